"""Which rows of a delivery came to the analyzer, by number: what a repeated delivery is compared
with.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.errors import Kind, ShoalError


@dataclass(slots=True)
class DeliveredRows:
    """Of a round with ``seats`` devices. ``digests``: SHA-256 of each row; ``seen``: the same, to
    be looked up; ``unusable``: numbers of rows that are in no sum.
    """

    seats: int
    digests: list[bytes] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)
    unusable: list[int] = field(default_factory=list)

    def known(self, index: int, digest: bytes) -> bool:
        """Whether the row was added before. Raises CONFLICT for another one under its number."""
        if index >= len(self.digests):
            return False
        if digest != self.digests[index]:
            raise ShoalError(
                Kind.CONFLICT,
                "another row was delivered under this number: deliver the same rows in the same "
                "order",
            )
        return True

    def check_room(self, index: int, *, closed: bool) -> None:
        """Before a row that is new. Raises CONFLICT once who is in the sum was signed (``closed``),
        INVALID for more rows than devices.
        """
        if closed:
            raise ShoalError(
                Kind.CONFLICT, "who is in the sum was signed: no vector is taken any more"
            )
        if index >= self.seats:
            raise ShoalError(Kind.INVALID, "more rows are delivered than the round has devices")

    def note(self, index: int, digest: bytes, *, usable: bool) -> None:
        """What came under this number is remembered, usable or not."""
        if not usable:
            self.unusable.append(index)
        self.digests.append(digest)
        self.seen.add(digest)
