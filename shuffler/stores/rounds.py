"""What the shuffler asks of a store for sums: who answered a window of rounds, and the sealed
vectors of helper mode. See ``shoal.shuffler.stores.store`` for reports.

Every method that changes something returns only after the change would survive a power cut, and may
be repeated after a crash. Both raise OVERLOADED and INTERNAL where the disk is full or failing:
nothing was changed then.

A window is changed by whoever claimed it (``shoal.shuffler.stores.claims``): a method that takes a
claim raises StaleClaimError, and changes nothing, if it is not the window's last one. The vectors
of helper mode are taken from everybody, as reports are: they need no claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shoal.errors import Kind
from shoal.services.conditions import Condition
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.claims import Claim


@dataclass(frozen=True, slots=True)
class StoredVector:
    """Where a vector lies, and the seed of its pad, which does not print."""

    place: int
    seed: bytes = field(repr=False)
    digest: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class VerifiedVector:
    """A device's vector that may be stored. ``most``: vectors that the window takes."""

    window: WindowId
    most: int
    device_key: bytes
    sealed: bytes = field(repr=False)
    seed: bytes = field(repr=False)


class AnsweredDevices(Protocol):
    """Which devices have answered a window of rounds."""

    async def answered(self, window: WindowId, device_key: bytes) -> bool:
        """Whether a complete vector of this device is, or was, here. Raises OVERLOADED if that is
        not known any more.
        """
        ...

    async def remember(self, claim: Claim, device_key: bytes) -> None:
        """This device's vector is complete. Durable on return; until then say nothing to it."""
        ...

    async def forget(self, claim: Claim) -> None:
        """The window is over: destroy what would tell who answered."""
        ...

    def damage(self) -> Iterable[Condition]:
        """For ``Conditions.watch``."""
        ...

    async def close(self) -> None:
        """Release files."""
        ...


class SingleVectors(Protocol):
    """The sealed vectors of helper mode, with the seeds of their pads, by window."""

    async def add(self, vector: VerifiedVector) -> Kind | None:
        """Store a vector, with others in one commit. None = on disk, now or before; or why not.

        CONFLICT: the device has another vector in this window. WINDOW_CLOSED: it takes no more.
        WINDOW_FULL: it has as many as its words are made for. A caller that goes away undoes
        nothing.
        """
        ...

    async def take_no_more(self, claim: Claim) -> None:
        """After everything that ``add`` was given before: store no new vector of this window,
        whatever the clock says. Raises MISMATCH if that is damaged.
        """
        ...

    async def leave_out_damaged(self, claim: Claim, size: int) -> None:
        """Before the set of rows is decided: delete those that are not what came. Reads all
        vectors, of ``size`` bytes each.
        """
        ...

    async def rows(self, window: WindowId) -> list[StoredVector]:
        """Those that are (to be) in the sum, in an order that says nothing of their arrival. Raises
        MISMATCH if the set is decided and one of its rows is lost or damaged.
        """
        ...

    async def is_fixed(self, window: WindowId) -> bool:
        """Whether the set of rows is decided. Raises MISMATCH if that is damaged."""
        ...

    async def fix(
        self, claim: Claim, shown: Sequence[StoredVector], left_out: Sequence[int]
    ) -> None:
        """Decide the set of rows, once: those that were shown but for these places. Raises CONFLICT
        if it was decided before, MISMATCH if what is stored is not what was shown.
        """
        ...

    async def read(self, window: WindowId, place: int, size: int) -> bytes:
        """The sealed vector at a place. Raises INTERNAL if it is not all there."""
        ...

    async def missing(self, window: WindowId) -> int:
        """Acknowledged vectors of the window that the disk lost or changed."""
        ...

    async def forget(self, claim: Claim) -> None:
        """The window is over: destroy vectors and seeds, and take none any more."""
        ...

    def damage(self) -> Iterable[Condition]:
        """For ``Conditions.watch``."""
        ...

    async def close(self) -> None:
        """Commit what waits, release files."""
        ...
