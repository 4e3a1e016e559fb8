"""One commit group of one window on its way to a block: keys and messages joined, without an object
for each report. Which of its rows are stored is said by their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.arrays import NDArray, np
from shoal.errors import Kind
from shoal.ids import StorageKey
from shoal.shuffler.core import Capacity
from shoal.shuffler.stores.distinct import JoinedPlacement, place_joined
from shoal.shuffler.stores.joined import DIGEST, rows_of
from shoal.shuffler.stores.store import AdmittedRows

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.inbox import OpenWindow


@dataclass(frozen=True, slots=True)
class Group:
    """Reports of one window. ``keys``, ``sealed``: storage keys and messages of all, joined;
    ``messages``: to a report; ``tags``: of each report its device's, or none at all.
    """

    keys: bytes
    sealed: bytes
    messages: int
    tags: list[bytes]

    @property
    def rows(self) -> int:
        """Messages in all."""
        return len(self.keys) // StorageKey.SIZE

    def keyed(self) -> Iterator[tuple[bytes, ...]]:
        """Of each report the storage keys of its messages."""
        flat = rows_of(self.keys, StorageKey.SIZE)
        return zip(*[iter(flat)] * self.messages, strict=True)

    def taken(self, places: NDArray[np.intp]) -> tuple[bytes, bytes]:
        """Keys and messages of the rows at these places, joined in this order."""
        tables = (
            np.frombuffer(joined, dtype=np.uint8).reshape(self.rows, -1)
            for joined in (self.keys, self.sealed)
        )
        keys, sealed = (table[places].tobytes() for table in tables)
        return keys, sealed

    def whole(self, known: Sequence[bool]) -> list[bool]:
        """Of each report whether all its messages were ``known``, which is of all messages."""
        return [all(report) for report in zip(*[iter(known)] * self.messages, strict=True)]

    def admitted(
        self, placed: JoinedPlacement, entered: set[bytes], known: Sequence[bool]
    ) -> JoinedPlacement:
        """What is left of ``placed`` where only the devices whose tags were ``entered`` are
        admitted with it: the others were by another replica. ``known``: of all messages, whether
        they are stored.
        """
        flat, keyed = rows_of(self.keys, StorageKey.SIZE), list(self.keyed())
        old = {key for key, is_known in zip(flat, known, strict=True) if is_known}
        new = {
            key
            for kind, keys, tag in zip(placed.outcomes, keyed, self.tags, strict=True)
            if kind is None and tag in entered
            for key in keys
            if key not in old
        }
        # also of two reports of a device that came together: the second may be the stored one
        here = new | old
        outcomes = [
            kind
            if kind not in (None, Kind.CONFLICT)
            else None
            if here.issuperset(keys)
            else Kind.CONFLICT
            for kind, keys in zip(placed.outcomes, keyed, strict=True)
        ]
        first = {key: place for place, key in enumerate(flat)}
        places = np.array([first[key] for key in sorted(new)], dtype=np.intp)
        return JoinedPlacement(outcomes, places, entered)


def group_of(box: OpenWindow, rows: AdmittedRows, messages: int) -> Group:
    """With storage keys and tags under the window's secret. ``messages``: to a report."""
    keys = box.hashes.joined_keys_of(rows_of(rows.digests, DIGEST))
    tags = [box.hashes.tag(device) for device in rows.devices]
    return Group(keys, rows.sealed, messages, tags)


def placed_in(box: OpenWindow, group: Group, capacity: Capacity) -> JoinedPlacement:
    """What of it is new to what this replica knows of the window."""
    return place_joined(group.keys, box.keys, capacity, group.tags, box.admitted)
