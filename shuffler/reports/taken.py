"""What became of many frames, and what their senders are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shoal.crypto.envelope import receipt_mac
from shoal.errors import Kind
from shoal.protos import submit_pb2
from shoal.shuffler.reports.opened import ACCEPTED, OpenedGroup


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a frame. ``kind`` None: it is on disk. ``ack_key`` None: it did not open, so
    nobody can be told in a way that its sender could verify.
    """

    kind: Kind | None
    ack_key: bytes | None = field(repr=False)

    @property
    def status(self) -> int:
        """What a receipt says: 0, or the number of the kind."""
        return ACCEPTED if self.kind is None else self.kind.value


# one for all that could not be opened: they cost their sender next to nothing
_MISSHAPEN = Answer(Kind.INVALID, None)


def _entry(status: int, mac: bytes = b"") -> bytes:
    receipt = submit_pb2.Receipt(status=status, mac=mac)
    return submit_pb2.SubmitBatchReply(receipts=[receipt]).SerializeToString()


_NO_FRAME = _entry(_MISSHAPEN.status)


class Taken:
    """Frames that were taken together: refused one by one, or group by group of those that opened.
    ``count``: how many frames.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._unopened: dict[int, Kind] = {}
        # of each group where its frames stand, and what became of each; None: all are stored
        self._groups: list[tuple[OpenedGroup, Sequence[int], list[Kind | None] | None]] = []

    def refuse(self, index: int, kind: Kind) -> None:
        """The frame number ``index`` was not opened."""
        self._unopened[index] = kind

    def settle(
        self, group: OpenedGroup, indices: Sequence[int], kinds: list[Kind | None] | None
    ) -> None:
        """What became of a group; ``indices``: the numbers of its frames, here."""
        if kinds is not None and not any(kind is not None for kind in kinds):
            kinds = None
        self._groups.append((group, indices, kinds))

    def soften(self, change: Callable[[Kind], Kind]) -> None:
        """Say ``change`` of every refusal instead: where the clock is not sure of itself."""
        self._unopened = {index: change(kind) for index, kind in self._unopened.items()}
        for at, (group, indices, kinds) in enumerate(self._groups):
            if kinds is not None:
                changed = [None if kind is None else change(kind) for kind in kinds]
                self._groups[at] = (group, indices, changed)

    def refused(self) -> Counter[Kind]:
        """How many were, by kind."""
        counts = Counter(self._unopened.values())
        for _, _, kinds in self._groups:
            if kinds is not None:
                counts.update(kind for kind in kinds if kind is not None)
        return counts

    def answers(self) -> list[Answer]:
        """One for each frame, in order."""
        answers: list[Answer] = [_MISSHAPEN] * self.count
        for index, kind in self._unopened.items():
            if kind is not Kind.INVALID:
                answers[index] = Answer(kind, None)
        for group, indices, kinds in self._groups:
            for place, index in enumerate(indices):
                refusal = None if kinds is None else kinds[place]
                answers[index] = Answer(refusal, group.ack_key(place))
        return answers

    def reply(self, frames: list[bytes]) -> bytes:
        """The SubmitBatchReply: a receipt for each of ``frames``, in order; without a mac where it
        could not be opened.
        """
        if len(self._groups) == 1 and not self._unopened and self._groups[0][2] is None:
            return self._groups[0][0].entries  # all are stored: a worker made it
        entries: list[bytes] = [_NO_FRAME] * self.count
        for index, kind in self._unopened.items():
            if kind is not Kind.INVALID:
                entries[index] = _entry(kind.value)
        for group, indices, kinds in self._groups:
            for place, index in enumerate(indices):
                refusal = None if kinds is None else kinds[place]
                entries[index] = (
                    group.entry(place)
                    if refusal is None
                    else _refusal(group.ack_key(place), refusal, frames[index])
                )
        return b"".join(entries)


def _refusal(ack_key: bytes, kind: Kind, frame: bytes) -> bytes:
    return _entry(kind.value, receipt_mac(ack_key, kind.value, frame))
