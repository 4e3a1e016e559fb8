"""What commands share: tables for people, JSON for programs, files that are never overwritten by
accident.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from shoal.errors import Kind, ShoalError

console = Console(highlight=False)
stderr = Console(stderr=True, highlight=False)
_ANY_WIDTH = 10_000
STDOUT = Path("-")


def say(text: str) -> None:
    """A line to stdout, as it is: no markup, no wrapping."""
    console.print(text, markup=False, soft_wrap=True)


def say_table(table: Table, to: Console = console) -> None:
    """A table whose figures and words are whole: where they don't fit the terminal, first the
    padding goes (but for a space where cells have no lines between them), then it is wider.

    Left alone, rich cuts what is too wide: 0.02536 becomes "0.0…", and n = 2,000 and n = 2,999 are
    both "2,0…". Where nobody looks at a terminal every cell is on one line, however wide that makes
    the table, so that grep finds a name of two words.
    """
    if not to.is_terminal:
        for column in table.columns:
            column.no_wrap = True
    for column in table.columns:
        column.min_width = max(
            _longest(text, whole=column.no_wrap) for text in (column.header, *column.cells)
        )
    if to.is_terminal and _least_width(table, to) > to.width:
        # without lines between them cells stay one space apart
        table.padding = (0, 0) if table.box is not None else (0, 1, 0, 0)
    if _least_width(table, to) > to.width:
        table.width = _least_width(table, to)
    to.print(table, crop=False)


def _least_width(table: Table, to: Console) -> int:
    return Measurement.get(to, to.options.update(width=_ANY_WIDTH), table).minimum


def _longest(text: RenderableType, *, whole: bool) -> int:
    """Columns that the longest word of a cell takes, or all of it."""
    shown = Text.from_markup(text).plain if isinstance(text, str) else ""
    return max(map(cell_len, [shown] if whole else shown.split()), default=0)


def emit_json(value: Any) -> None:
    """To stdout, as it is: no colours, no wrapping."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def give(path: Path, data: bytes, written: str) -> None:
    """What a person reads or pipes on: to a new file, and then say so; to stdout, and nothing else
    there, where the path is "-".
    """
    if path == STDOUT:
        sys.stdout.write(data.decode())
    else:
        write_new(path, data)
        say(written)


def named(path: Path) -> None:
    """Raises CONFIG for "-", which people type for stdout, where only a file will do: it would
    become a file of that name.
    """
    if path.parts[:1] == STDOUT.parts:
        raise ShoalError(
            Kind.CONFIG, f'"{path}": this is written to a file, not to stdout: give its name'
        )


def write_new(path: Path, data: bytes) -> None:
    """Write a public file: whole, or not at all where the disk is full or Ctrl-C comes meanwhile.
    Raises CONFIG where it exists already or can't be written.
    """
    named(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot make the folder {path.parent}: {error.strerror or 'unwritable'}"
        ) from None
    try:
        with path.open("xb") as file:
            try:
                file.write(data)
                file.flush()
            except BaseException:  # Ctrl-C too
                path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        raise ShoalError(
            Kind.CONFIG, f"{path} exists: move it away, or choose another name"
        ) from None
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot write {path}: {error.strerror or 'unwritable'}"
        ) from None


def check_new(path: Path) -> None:
    """Before minutes are spent: raises CONFIG where ``write_new`` would, as far as that can be
    known.
    """
    named(path)
    if path == Path():  # as a variable that is not set gives it, too
        raise ShoalError(
            Kind.CONFIG, 'an empty name, or ".", is none that can be written: give another one'
        )
    if path.exists() or path.is_symlink():
        raise ShoalError(Kind.CONFIG, f"{path} exists: move it away, or choose another name")
    folder = next((parent for parent in path.parents if parent.exists()), path.parent)
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ShoalError(
            Kind.CONFIG, f"cannot write {path}: give a file in a folder that is writable"
        )


def read_bytes(path: Path, most: int = 8 << 20) -> bytes:
    """Raises CONFIG naming the file."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot read {path}: {error.strerror or 'unreadable'}"
        ) from None
    if len(data) > most:
        raise ShoalError(Kind.CONFIG, f"{path} is larger than {most} bytes")
    return data


def read_signed_task(path: Path) -> bytes:
    """A file that ``shoal task sign`` wrote; nothing is verified here. Raises CONFIG naming it."""
    from shoal import codec  # not for shoal --help

    data = read_bytes(path)
    try:
        codec.decode_signed_task(data)
    except ShoalError:
        raise ShoalError(
            Kind.CONFIG, f"{path} holds no signed task: give NAME.task, as shoal task sign wrote it"
        ) from None
    return data


def public_key(text: str, what: str) -> bytes:
    """32 bytes from 64 hex digits. Raises CONFIG."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ShoalError(
            Kind.CONFIG,
            f"{what} is an Ed25519 public key: 64 hex digits: shoal keys signing prints it",
        )
    return key


def plain_table(first: str, *others: str) -> Table:
    """Fits 80 columns: only the first column folds."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, no_wrap=True)
    return table
