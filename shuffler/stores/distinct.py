"""Which storage keys a window holds, and which devices it admitted, exactly, while it is open: in
memory, 16 bytes each.

With it a repeat is known for what it is before it is written: it is acknowledged like the first
(which is on disk) and costs no room, so repeats of one report can neither fill a window nor its
file, and the count of distinct reports is exact. Whole keys are compared. Half a key would do by
chance, but then an acknowledged report could be missing by chance.

Admitted devices (of tasks that admit enrolled ones alone) are tags, keyed hashes of their public
keys. Keys and tags are two sets that nothing joins: which report is whose is never asked. It need
not be: a report that is stored already adds nothing, whoever sends it, and a new one needs a device
that has not been admitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from shoal.arrays import NDArray, np
from shoal.errors import Kind
from shoal.ids import StorageKey
from shoal.shuffler.core import Capacity
from shoal.shuffler.stores.joined import rows_of

_FEW = 256  # keys that are added one by one; more are a run from the beginning
_RECENT = 32_768  # keys in the Python set (about 100 bytes each) before they are merged into a run


class _Run(NamedTuple):
    """Keys as two uint64 arrays of one length, their first and second halves, sorted by the
    first.
    """

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]

    @classmethod
    def of(cls, joined: bytes) -> _Run:
        halves = np.frombuffer(joined, dtype=">u8").reshape(-1, 2)
        return cls(halves[:, 0].astype(np.uint64), halves[:, 1].astype(np.uint64))

    def order(self) -> NDArray[np.intp]:
        """That of the keys, without all but one row of each."""
        order = np.argsort(self.high)
        high = self.high[order]
        if not (high[1:] == high[:-1]).any():
            return order
        order = np.lexsort((self.low, self.high))
        high, low = self.high[order], self.low[order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        return order[new]

    def taken(self, places: NDArray[np.intp]) -> _Run:
        return _Run(self.high[places], self.low[places])

    def ordered(self) -> _Run:
        order = np.argsort(self.high, kind="stable")  # merges what is already sorted in linear time
        return _Run(self.high[order], self.low[order])

    def with_all(self, other: _Run) -> _Run:
        return _Run(np.concatenate((self.high, other.high)), np.concatenate((self.low, other.low)))

    def has(self, wanted: _Run) -> NDArray[np.bool_]:
        """For each wanted key whether it is here."""
        present = np.zeros(len(wanted.high), dtype=bool)
        places = np.searchsorted(self.high, wanted.high)
        left = np.arange(len(present))
        while True:  # once, and once more for keys that differ but share their first half
            left = left[places[left] < len(self.high)]
            left = left[self.high[places[left]] == wanted.high[left]]
            if not len(left):
                return present
            present[left] = self.low[places[left]] == wanted.low[left]
            left = left[~present[left]]
            places[left] += 1


class KeySet:
    """A set of storage keys (or of tags) that only grows: sorted runs of doubling size (a
    log-structured merge) and a small recent set.

    Adding costs O(log n) per key in all; memory is 16 bytes per key, and twice as much again for
    the moment of a merge.
    """

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._runs: list[_Run] = []  # without common keys, longest first

    def __len__(self) -> int:
        return len(self._recent) + sum(len(run.high) for run in self._runs)

    def __repr__(self) -> str:
        return f"<KeySet of {len(self)}>"

    def known(self, keys: Sequence[bytes]) -> list[bool]:
        """For each key (16 bytes) whether it was added before."""
        hits: list[bool] = self._known(_Run.of(b"".join(keys)), keys).tolist()
        return hits

    def _known(self, wanted: _Run, keys: Iterable[bytes]) -> NDArray[np.bool_]:
        hits = np.zeros(len(wanted.high), dtype=bool)
        if self._recent:
            hits |= np.fromiter(map(self._recent.__contains__, keys), dtype=bool, count=len(hits))
        for run in self._runs:
            hits |= run.has(wanted)
        return hits

    def unknown(self, joined: bytes) -> NDArray[np.intp]:
        """Of keys joined to one bytes object the places of those that were not added before, in the
        order of the keys; of equal ones, one.
        """
        if len(joined) < _FEW * StorageKey.SIZE:
            return self._few_unknown(rows_of(joined, StorageKey.SIZE))
        wanted = _Run.of(joined)
        order = wanted.order()
        # in their order, because then each search begins where the one before it ended
        ordered = wanted.taken(order)
        table = _table(joined)[order].tobytes() if self._recent else b""
        return order[~self._known(ordered, rows_of(table, StorageKey.SIZE))]

    def _few_unknown(self, keys: Sequence[bytes]) -> NDArray[np.intp]:
        """Each call of numpy costs as much as a dozen keys one by one."""
        places = {key: len(keys) - 1 - at for at, key in enumerate(reversed(keys))}
        left = sorted(places.keys() - self._recent)
        if self._runs and left:
            known = self.known(left)
            left = [key for key, old in zip(left, known, strict=True) if not old]
        return np.array([places[key] for key in left], dtype=np.intp)

    def add(self, keys: Collection[bytes]) -> None:
        """Add keys that are different and were not added before."""
        self._recent.update(keys)
        if len(self._recent) >= _RECENT:
            run = _Run.of(b"".join(self._recent)).ordered()
            self._recent = set()
            self._merge(run)

    def add_joined(self, joined: bytes) -> None:
        """As ``add``, of keys in their order, joined to one bytes object."""
        if len(joined) < _FEW * StorageKey.SIZE:
            self.add(rows_of(joined, StorageKey.SIZE))
        else:
            self._merge(_Run.of(joined))

    def _merge(self, run: _Run) -> None:
        while self._runs and len(self._runs[-1].high) <= len(run.high):
            run = self._runs.pop().with_all(run).ordered()
        self._runs.append(run)

    def load(self, keys: Sequence[bytes]) -> None:
        """Add keys of unknown newness, with repeats: for rebuilding after a start."""
        self.load_joined(b"".join(keys))

    def load_joined(self, joined: bytes) -> None:
        """As ``load``, of keys joined to one bytes object."""
        places = self.unknown(joined)
        self.add_joined(_table(joined)[places].tobytes())


def _table(joined: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, StorageKey.SIZE)


class JoinedPlacement(NamedTuple):
    """``outcomes``: per report None = taken, once the rest is on disk, or why not. ``places``: of
    the reports that have to be written, in the order of their keys. ``tags``: what has to be
    written with them.
    """

    outcomes: list[Kind | None]
    places: NDArray[np.intp]
    tags: set[bytes]


def place_joined(
    joined: bytes,
    keys: KeySet,
    capacity: Capacity,
    tags: Sequence[bytes] = (),
    admitted: KeySet | None = None,
) -> JoinedPlacement:
    """Which reports of one commit group a window takes.

    ``joined``: the storage keys of the reports. ``tags``: for each its device's tag; empty where
    anybody is admitted. When max_batch is reached new ones are WINDOW_FULL, beyond what a batch
    holds OVERLOADED; a new one of a device that was admitted before is CONFLICT; repeats are always
    taken, so that a retry of an accepted report gets the reply of the first. What is refused leaves
    no tag. The sets are left as they are: add what is new once it is on disk.

    *Who gets the last places* of a window, where more are new than there is room for, is decided by
    the second halves of the keys: a chance that nobody can steer and that depends on nothing. Not
    by where a report lies in the group: those of as many messages lie together there, and who has
    one message has drawn no noise. And not by the first halves: rows of one message are delivered
    in their order, so the first rows of a batch would be those that came last. (Of two reports of
    one device, which no honest one has, the first is its ticket.)

    Where there is room for all that is new and nobody is named twice, no report is looked at by
    itself.
    """
    places = keys.unknown(joined)
    reports, entering = len(joined) // StorageKey.SIZE, set(tags)
    room = len(keys) + len(places) <= capacity.reports
    once = not tags or (
        len(entering) == len(tags)
        and len(places) == reports
        and not (admitted is not None and any(admitted.known(tags)))
    )
    if room and once:
        return JoinedPlacement([None] * reports, places, entering)
    flat = rows_of(joined, StorageKey.SIZE)
    outcomes, fresh, entering = _one_by_one(flat, keys, capacity, tags, admitted)
    some = [place for place in places.tolist() if flat[place] in fresh]
    return JoinedPlacement(outcomes, np.array(some, dtype=np.intp), entering)


def _one_by_one(
    flat: Sequence[bytes],
    keys: KeySet,
    capacity: Capacity,
    tags: Sequence[bytes],
    admitted: KeySet | None,
) -> tuple[list[Kind | None], set[bytes], set[bytes]]:
    """As ``place_joined``: outcomes, the keys and the tags that have to be written."""
    known = keys.known(flat)
    been = admitted.known(tags) if admitted is not None and tags else [False] * len(flat)
    full = Kind.WINDOW_FULL if capacity.distinct == capacity.reports else Kind.OVERLOADED
    coming, first = dict[bytes, bytes](), dict[bytes, bytes]()  # tag by new key, and back
    rivals = dict[int, bytes]()  # of who comes twice: the key that came first
    outcomes: list[Kind | None] = [None] * len(flat)
    for number, (key, old) in enumerate(zip(flat, known, strict=True)):
        if old or key in coming:
            continue
        tag = tags[number] if tags else b""
        if tag and (been[number] or tag in first):
            outcomes[number] = Kind.CONFLICT
            if not been[number]:
                rivals[number] = first[tag]
            continue
        coming[key] = tag
        if tag:
            first[tag] = key
    fresh = {*sorted(coming, key=_by_chance)[: max(0, capacity.reports - len(keys))]}
    left = coming.keys() - fresh
    for number, key in enumerate(flat):
        if outcomes[number] is None and key in left:
            outcomes[number] = Kind.CONFLICT if been[number] else full
        elif rivals.get(number) in left:
            outcomes[number] = full
    return outcomes, fresh, {coming[key] for key in fresh} - {b""}


def _by_chance(key: bytes) -> bytes:
    return key[StorageKey.SIZE // 2 :]
