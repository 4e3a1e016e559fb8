"""Pictures for a notebook or a file: SVG, self-contained, without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shoal.analyzer.results.plots import plot
from shoal.errors import Kind, ShoalError
from shoal.pictures.templates import render
from shoal.study.arguments import wrong_value
from shoal.study.frames import package

_HERE = "shoal.study"


class Picture:
    """An SVG picture. A notebook shows it; ``save`` writes it to a file; ``svg`` is its text."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<SVG picture of {len(self.svg):,} characters: save it with .save('name.svg')>"

    def save(self, path: str | Path) -> Path:
        """Write it to ``path``, which must end in .svg. Raises CONFIG where it can't be written."""
        target = Path(path)
        if target.suffix.lower() != ".svg":
            raise wrong_value("path", f"give a name that ends in .svg, got {target.name}")
        try:
            target.write_text(self.svg, encoding="utf-8")
        except OSError as error:
            raise ShoalError(
                Kind.CONFIG, f"path: cannot write {target}: {error.strerror or 'unwritable'}"
            ) from None
        return target


def intervals(title: str, unit: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> Picture:
    """One line per label: an estimate (``value``) between ``low`` and ``high``, and a truth
    (``truth``) where there is one. A mark that a row does not have is not drawn.
    """
    package("jinja2", "plot")
    return Picture(
        render(_HERE, "intervals.svg.j2", title=title, unit=unit, plot=plot(rows), top=34.0)
    )
