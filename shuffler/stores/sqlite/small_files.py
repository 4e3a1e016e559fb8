"""What the small files of rounds share: each is made when there is something to keep, and a failure
leaves nothing half done in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.errors import Kind, ShoalError
from shoal.shuffler.stores.sqlite import disk
from shoal.storage import sqlite


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Around the opening of a file that is there: raises CONFIG where it can't be used."""
    try:
        yield
    except (OSError, sqlite.Error) as error:
        raise ShoalError(
            Kind.CONFIG,
            f"{path}: cannot be used ({type(error).__name__}): check rights and space, or restore "
            "it",
        ) from None


@contextmanager
def rolled_back(
    connection: Callable[[], sqlite.Connection | None], folder: Path, words: str
) -> Iterator[None]:
    """Around a step: whatever fails, its transaction is undone.

    ``connection``: asked after the failure, since the step may have opened it; None: there is none.
    Raises OVERLOADED or INTERNAL with these ``words`` for failures of disk and SQLite, whose text
    stays here.
    """
    try:
        yield
    except BaseException as error:
        held = connection()
        if held is not None:
            sqlite.rollback(held)
        if not isinstance(error, OSError | sqlite.Error):
            raise
        raise ShoalError(disk.kind_of(error, folder), words) from None
