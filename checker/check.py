"""One release file: everything that is checked of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from shoal.checker.chain import Chain
from shoal.checker.consistency import consistency
from shoal.checker.findings import Outcome, Statement, worst
from shoal.checker.promise import promise
from shoal.checker.release_file import read_release_file


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


def check_release(data: bytes, authorities: Collection[bytes] = ()) -> ReleaseCheck:
    """``authorities``: public keys (Ed25519, 32 bytes) that the reader trusts.

    Raises UnreadableError for what is no release file.
    """
    file = read_release_file(data)
    chain = Chain(file.signed)
    checked = (
        *chain.checked(authorities),
        *consistency(chain, file.shown, file.law),
        *promise(chain),
    )
    return ReleaseCheck(chain.release.name, chain.release.window, checked)
