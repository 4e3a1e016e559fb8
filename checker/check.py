"""Release files: everything that is checked of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.checker.chain import Chain
from shoal.checker.consistency import consistency
from shoal.checker.errors import UnreadableError
from shoal.checker.findings import Outcome, Statement, worst
from shoal.checker.promise import promise
from shoal.checker.questions.terms import answered
from shoal.checker.release_file import read_release_file
from shoal.checker.steps import steps
from shoal.checker.together import consistent, total
from shoal.checker.totals import totals


@dataclass(frozen=True, slots=True)
class ReleaseCheck:
    """``checked``: every statement, in the order of the chain."""

    name: str
    window: int
    checked: tuple[Statement, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst of them."""
        return worst(self.checked)


def check_releases(
    files: Sequence[bytes],
    authorities: Collection[bytes] = (),
    folders: Sequence[Path] = (),
) -> Iterator[ReleaseCheck]:
    """Each file in turn. A total over several releases is checked where all of them are at hand.

    ``authorities``: public keys (Ed25519, 32 bytes) that the reader trusts. ``folders``: where
    each file lies, beside which the array of a long vector is looked for. Raises UnreadableError
    for what is no release file, named by its number, before any is checked.
    """
    read = []
    for number, data in enumerate(files):
        try:
            file = read_release_file(data)
            read.append((file, Chain(file.signed)))
        except UnreadableError as error:
            raise UnreadableError(str(error), number) from None
    signed = [tuple(chain.checked(authorities)) for _, chain in read]
    sound = [
        chain
        for (_, chain), found in zip(read, signed, strict=True)
        if worst(found) is not Outcome.WRONG
    ]
    places: Sequence[Path | None] = folders or [None] * len(read)
    for (file, chain), found, folder in zip(read, signed, places, strict=True):
        checked = (
            *found,
            *consistency(chain, file.shown, file.law),
            *totals(chain, folder),
            answered(chain.task),
            *promise(chain),
            *steps(chain, sound),
            consistent(chain, sound),
            total(chain, sound),
        )
        yield ReleaseCheck(chain.release.name, chain.release.window, checked)


def check_release(
    data: bytes, authorities: Collection[bytes] = (), folder: Path | None = None
) -> ReleaseCheck:
    """One file, which lies in ``folder``. Arguments and errors as of ``check_releases``."""
    (check,) = check_releases([data], authorities, [] if folder is None else [folder])
    return check
