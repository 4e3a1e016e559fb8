"""One commit group of one window on its way to a block: keys and messages joined, without an object
for each report. Which of its reports are stored is said by their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.arrays import NDArray, np
from shoal.errors import Kind
from shoal.ids import StorageKey
from shoal.shuffler.core import Capacity
from shoal.shuffler.stores.distinct import JoinedPlacement, place_joined
from shoal.shuffler.stores.joined import DIGEST, row_places, rows_of
from shoal.shuffler.stores.postgresql.blocks import with_sizes
from shoal.shuffler.stores.store import AdmittedRows

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.inbox import OpenWindow


@dataclass(frozen=True, slots=True)
class Group:
    """Reports of one window. ``keys``: their storage keys, joined; ``sealed``: their messages,
    joined; ``sizes``: messages of each, empty: one; ``tags``: of each report its device's, or none
    at all; ``asked``: the question that they answer.
    """

    keys: bytes
    sealed: bytes
    sizes: tuple[int, ...]
    tags: list[bytes]
    asked: bytes = b""

    @property
    def reports(self) -> int:
        """How many they are."""
        return len(self.keys) // StorageKey.SIZE

    def taken(self, places: NDArray[np.intp]) -> tuple[bytes, bytes]:
        """Keys and messages of the reports at these places, joined in this order, as a block holds
        them.
        """
        keys = np.frombuffer(self.keys, dtype=np.uint8).reshape(self.reports, -1)[places].tobytes()
        if not self.sizes:
            sealed = np.frombuffer(self.sealed, dtype=np.uint8).reshape(self.reports, -1)
            return keys, sealed[places].tobytes()
        rows = np.frombuffer(self.sealed, dtype=np.uint8).reshape(sum(self.sizes), -1)
        some = [self.sizes[place] for place in places.tolist()]
        return keys, with_sizes(some, rows[row_places(places, self.sizes)].tobytes())

    def admitted(
        self, placed: JoinedPlacement, entered: set[bytes], known: Sequence[bool]
    ) -> JoinedPlacement:
        """What is left of ``placed`` where only the devices whose tags were ``entered`` are
        admitted with it: the others were by another replica. ``known``: of all reports, whether
        they are stored. A report is of the device that it was placed for, whoever sends it again:
        else one device would bring in the reports of all that were refused. Who found the window
        full comes again: a place that went to a device which is not admitted is free.
        """
        flat = rows_of(self.keys, StorageKey.SIZE)
        old = {key for key, is_known in zip(flat, known, strict=True) if is_known}
        owner = dict[bytes, bytes]()
        for kind, key, tag in zip(placed.outcomes, flat, self.tags, strict=True):
            if kind is None and key not in old:
                owner.setdefault(key, tag)
        new = {key for key, tag in owner.items() if tag in entered}
        # also of two reports of a device that came together: the second may be the stored one
        here = new | old
        outcomes = [
            self._after(kind, key in here, tag in placed.tags)
            for kind, key, tag in zip(placed.outcomes, flat, self.tags, strict=True)
        ]
        first = {key: place for place, key in enumerate(flat)}
        places = np.array([first[key] for key in sorted(new)], dtype=np.intp)
        return JoinedPlacement(outcomes, places, entered)

    @staticmethod
    def _after(kind: Kind | None, here: bool, asked: bool) -> Kind | None:
        """``here``: stored; ``asked``: whether its device's tag was to be entered."""
        if kind in (None, Kind.CONFLICT) and here:
            return None
        if kind is None and not asked:  # it sent what another one's refusal left out
            return Kind.OVERLOADED
        return {None: Kind.CONFLICT, Kind.WINDOW_FULL: Kind.OVERLOADED}.get(kind, kind)


def group_of(box: OpenWindow, rows: AdmittedRows) -> Group:
    """With storage keys and tags under the window's secret."""
    keys = box.hashes.joined_keys_of(rows_of(rows.digests, DIGEST))
    tags = [box.hashes.tag(device) for device in rows.devices]
    return Group(keys, rows.sealed, rows.sizes, tags, rows.asked)


def placed_in(box: OpenWindow, group: Group, capacity: Capacity) -> JoinedPlacement:
    """What of it is new to what this replica knows of the window."""
    return place_joined(group.keys, box.keys, capacity, group.tags, box.admitted)
