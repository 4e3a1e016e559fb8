"""Lists of revoked devices in the tasks folder, and the newest of each authority beside the store.

A list is kept before it is used: an older one that is put in its place, or a folder that lost it,
gives no revoked device back. What can't be used is a condition, and the list before stays. Where
that is the kept list itself, nobody knows who is revoked: the authority's devices wait until an
operator put it back, or removed it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shoal.crypto.admission.revocation import LARGEST, SUFFIX, RevokedDevices, verify_list
from shoal.errors import Kind, ShoalError
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.services.whole_files import replace_whole

log = get_log("shuffler")
_NOBODY: frozenset[bytes] = frozenset()
_MOST_FILES = 100  # in the folder
_DAMAGED = (
    "devices of this authority are not served: put its newest list into tasks_dir, then "
    "remove this file from data_dir"
)
_Stamp = tuple[int, int, int]


@dataclass(slots=True)
class _Known:
    """What looks have found so far."""

    lists: dict[bytes, RevokedDevices] = field(default_factory=dict)  # by enrolment key
    stamps: dict[Path, _Stamp] = field(default_factory=dict)
    troubles: dict[Path, str] = field(default_factory=dict)
    unkept: dict[bytes, bytes] = field(default_factory=dict)
    damaged: dict[bytes, Path] = field(default_factory=dict)  # kept lists that can't be used

    def copy(self) -> _Known:
        return _Known(
            dict(self.lists),
            dict(self.stamps),
            dict(self.troubles),
            dict(self.unkept),
            dict(self.damaged),
        )


class Revocations:
    """``look`` reads what changed: a long list takes half a second, so it may run in a thread of
    its own. Until it is through, everybody else sees what was known before, and then all of it.
    """

    def __init__(self, tasks_dir: Path, data_dir: Path) -> None:
        self._tasks_dir, self._data_dir = tasks_dir, data_dir
        self._looking = threading.Lock()  # one look after the other
        self._known = _Known()  # replaced as a whole, never changed
        look = _Look(tasks_dir, data_dir, _Known())
        for path in sorted(data_dir.glob(f"*{SUFFIX}")):
            look.take_kept(path)
        self._known = look.known
        self.look()

    def any(self) -> bool:
        """Whether there is anybody to ask ``revoked`` about."""
        known = self._known
        return bool(known.lists or known.damaged)

    def revoked(self, enrolment_key: bytes) -> frozenset[bytes]:
        """Device keys that this authority took back. Raises UNAVAILABLE if the kept list can't be
        used.
        """
        known = self._known
        if enrolment_key in known.damaged:
            raise ShoalError(
                Kind.UNAVAILABLE,
                "nobody can say now which devices are revoked: try again later, the operator knows",
            )
        found = known.lists.get(enrolment_key)
        return _NOBODY if found is None else found.devices

    def look(self) -> None:
        """Take up lists that are new or changed. A file that can't be used changes nothing."""
        with self._looking:
            look = _Look(self._tasks_dir, self._data_dir, self._known.copy())
            look.take_all()
            self._known = look.known

    def conditions(self) -> Iterator[Condition]:
        """For ``Conditions.watch``."""
        known = self._known
        for path, why in known.troubles.items():
            if path in known.damaged.values():
                yield Condition("damage", path.name, f"{why}; {_DAMAGED}")
            else:
                what = f"{why}; revoked devices stay revoked"
                yield Condition("task", path.name, what, stops=False)

    def counts(self) -> dict[str, dict[str, int]]:
        """By enrolment key (8 hex digits): the list's number, and how many devices it names."""
        return {
            key.hex()[:8]: {"number": known.number, "devices": len(known.devices)}
            for key, known in sorted(self._known.lists.items())
        }


class _Look:
    """One look at the folders. ``known`` is its own."""

    def __init__(self, tasks_dir: Path, data_dir: Path, known: _Known) -> None:
        self._tasks_dir, self._data_dir, self.known = tasks_dir, data_dir, known

    def take_all(self) -> None:
        known = self.known
        try:
            names = sorted(one for one in os.listdir(self._tasks_dir) if one.endswith(SUFFIX))
        except OSError:
            return  # the tasks folder tells of itself
        for path in list(known.damaged.values()):
            self.take_kept(path)
        paths = [self._tasks_dir / name for name in names[:_MOST_FILES]]
        known.troubles = {
            path: why
            for path, why in known.troubles.items()
            if path in paths or path.parent == self._data_dir
        }
        for path in paths:
            self._take(path)
        if len(names) > _MOST_FILES:
            known.troubles[self._tasks_dir / names[_MOST_FILES]] = (
                f"{names[_MOST_FILES]} and all after it are not read: leave at most {_MOST_FILES} "
                f"*{SUFFIX} files in tasks_dir, one of each authority"
            )
        for key, data in list(known.unkept.items()):
            self._keep(key, data)

    def take_kept(self, path: Path) -> None:
        """At the start, and again while it can't be used."""
        try:
            key = bytes.fromhex(path.stem)
        except ValueError:
            key = b""
        if not os.path.lexists(path):  # an operator removed it
            self.known.damaged.pop(key, None)
            self.known.troubles.pop(path, None)
            return
        self._take(path, kept=True)
        if key in self.known.lists:
            self.known.damaged.pop(key, None)
        else:
            self.known.damaged[key] = path
            self.known.troubles.setdefault(path, f"{path.name}: it is another authority's list")

    def _take(self, path: Path, *, kept: bool = False) -> None:
        try:
            found = path.stat()
            stamp = found.st_ino, found.st_size, found.st_mtime_ns
            if self.known.stamps.get(path) == stamp:
                return
            with path.open("rb") as file:
                data = file.read(LARGEST + 1)
            new = verify_list(data)
        except OSError as error:
            self.known.troubles[path] = f"{path.name}: {error.strerror or 'cannot be read'}"
            return
        except ShoalError as error:
            self.known.stamps[path] = stamp
            self.known.troubles[path] = f"{path.name}: {error}"
            return
        if new.enrolment_key in self.known.damaged and not kept:
            return  # it may be older than what was kept: looked at again when that is decided
        self.known.stamps[path] = stamp
        self.known.troubles.pop(path, None)
        before = self.known.lists.get(new.enrolment_key)
        if before is not None and new != before and new.number <= before.number:
            self.known.troubles[path] = (
                f"{path.name}: list {new.number} is not newer than list {before.number}, which "
                "stays: put the newest one there"
            )
            return
        if before == new:
            return
        self.known.lists[new.enrolment_key] = new
        log.warning("a list of revoked devices is taken up", count=len(new.devices))
        if not kept:
            self._keep(new.enrolment_key, data)

    def _keep(self, enrolment_key: bytes, data: bytes) -> None:
        try:
            path = self._data_dir / f"{enrolment_key.hex()}{SUFFIX}"
            replace_whole(path, data, "revoked")
        except OSError as error:  # it is used all the same, and tried again
            log.error("a list of revoked devices can't be kept", error=error)
            self.known.unkept[enrolment_key] = data
        else:
            self.known.unkept.pop(enrolment_key, None)
