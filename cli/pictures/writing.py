"""Around every ``--plot``: the path is checked first, a bar shows how far the points are, and the
file is written whole.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from shoal.cli.extras import need
from shoal.cli.output import stderr
from shoal.errors import Kind, ShoalError


def check_plot(path: Path) -> None:
    """Before minutes are spent: raises CONFIG unless the path ends in .svg, its folder can be
    written and pictures can be drawn.
    """
    need("plot")
    if path.suffix.lower() != ".svg":
        raise ShoalError(
            Kind.CONFIG,
            f"--plot writes an SVG picture: give a name that ends in .svg, got {path.name}",
        )
    if not path.parent.is_dir() or path.is_dir() or not os.access(path.parent, os.W_OK):
        raise ShoalError(
            Kind.CONFIG,
            f"--plot cannot write {path}: give a file in a folder that exists and is writable",
        )


def bar_of_points(what: str) -> Progress:
    """A bar on stderr that counts points and is gone at the end; on no terminal, nothing. Add one
    task of so many points.
    """
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal)


def write_plot(path: Path, text: str) -> None:
    """All of it or nothing; an existing picture is replaced. Raises ShoalError CONFIG where it
    can't be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"--plot cannot write {path}: {error.strerror or 'unwritable'}"
        ) from None
