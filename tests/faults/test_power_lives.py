"""Power cuts at every sync of what both services keep: nothing that was promised is lost, and
nothing that was deleted comes back.

Every life makes promises as the services do (an acknowledgement, a stored sum, "it is deleted") and
says afterwards, of a folder that a power cut left, which of them are broken. Each is also looked at
once per place in the code that syncs, with the syncs of that place left out: the model has to
notice every one. See ``power`` for the model.

``SHOAL_CAMPAIGN=1 python -m tests.faults.test_power_lives`` prints how many images there are of
each, and how many syncs left out are noticed.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.errors import ShoalError
from tests.faults.conftest import memory
from tests.faults.power import Disk, Image, restore, watched
from tests.faults.power_lives import ALL, DAMAGE, GROUPS, LIVES, Promises

pytestmark = pytest.mark.campaign
_UNSEEN = "process.fsync_folder < inbox.__init__, the folder"


class Played:
    """A life that was lived, and what any power cut leaves of it. ``looked``: what was found in
    which image.
    """

    def __init__(self, name: str, number: int, folder: Path) -> None:
        self.number, self.folder = number, folder
        life, self.found = ALL[name]
        self.promised = Promises()
        live = folder / "live"
        live.mkdir(parents=True)
        self.disk = Disk(live, self.promised.copy)
        with pytest.MonkeyPatch.context() as patch, watched(self.disk, patch):
            # which image is no secret
            life(live, self.promised, random.Random(f"{name} {number}"))  # noqa: S311
        self.looked: dict[frozenset[tuple[str, bytes]], set[bytes] | str] = {}
        self._secrets: dict[bytes, frozenset[bytes]] = {}

    def images(self, drop: str = "") -> list[tuple[Image, Promises]]:
        return list(self.disk.images(random.Random(f"{self.number} {drop}"), drop))  # noqa: S311

    def broken(self, image: Image, then: Promises) -> str:
        """Empty if every promise of that moment holds in this image."""
        if back := sorted(then.gone & image.keys()):
            return f"{back} are back"
        if any(self._secrets_in(data) & then.secret for data in image.values()):
            return "a secret is back"
        key = frozenset(image.items())
        if key not in self.looked:
            self.looked[key] = self._look(image)
        there = self.looked[key]
        if isinstance(there, str):
            return there
        missing = len(then.kept - there)
        return (
            f"{missing} of {len(then.kept)} promises are broken"
            if missing
            else "damage is told"
            if DAMAGE in there
            else ""
        )

    def _look(self, image: Image) -> set[bytes] | str:
        folder = self.folder / str(len(self.looked))
        folder.mkdir()
        restore(folder, image)
        try:
            return self.found(folder)
        except (ShoalError, OSError, sqlite3.Error) as error:
            return f"{type(error).__name__} {error}"
        finally:
            shutil.rmtree(folder)

    def _secrets_in(self, data: bytes) -> frozenset[bytes]:
        if data not in self._secrets:
            self._secrets[data] = frozenset(one for one in self.promised.secret if one in data)
        return self._secrets[data]

    def cut(self) -> list[str]:
        """The promises that power cuts break, where all syncs happen."""
        told = [(number, self.broken(*image)) for number, image in enumerate(self.images())]
        return [f"image {number}: {bad}" for number, bad in told if bad]

    def notices(self) -> dict[str, bool]:
        """By place that syncs: whether an image breaks a promise without its syncs."""
        found: dict[str, bool] = {}
        for site in self.disk.sites():
            if site != _UNSEEN and not site.endswith("-journal"):
                images = self.images(site)
                random.Random(site).shuffle(images)  # noqa: S311 - the first one is enough
                found[site] = any(self.broken(*image) for image in images)
        return found


@pytest.fixture(
    scope="module",
    params=[(name, number) for name in ALL for number in range(LIVES)],
    ids=lambda one: f"{one[0]}-{one[1]}",
)
def played(request: pytest.FixtureRequest) -> Iterator[Played]:
    with memory() as folder:
        name, number = request.param
        yield Played(name, number, folder)


def test_what_was_promised_holds_after_a_power_cut(played: Played) -> None:
    """Planted: no sync of the folder when the file of vectors is made, none after its removal, none
    of an emptied log, none of a new spool's name after a start -> each fails.
    """
    assert played.cut() == []
    assert len(played.images()) >= 4 * GROUPS
    assert len(played.looked) >= GROUPS


def test_every_sync_that_is_left_out_is_noticed(played: Played) -> None:
    """But two: SQLite's of a rollback journal guards the step of an empty file to a log, when
    nothing is promised yet; and that of ``Inbox`` is for a log that a process made which then died,
    while the model takes every first sync for its maker's.
    """
    noticed = played.notices()
    assert [site for site, seen in noticed.items() if not seen] == []
    assert len(noticed) >= 2


def main() -> None:
    """How many images of what, and what was noticed."""
    write, total = sys.stdout.write, 0
    write(
        "| what | lives | images | distinct | broken promises | places that sync | left out and "
        f"noticed |\n|{'---|' * 7}\n"
    )
    for name in ALL:
        images = distinct = broken = places = noticed = 0
        for number in range(LIVES):
            with memory() as folder:
                one = Played(name, number, folder)
                broken += len(one.cut())
                images, distinct = images + 2 * len(one.disk.moments), distinct + len(one.looked)
                seen = one.notices()
                places, noticed = places + len(seen), noticed + sum(seen.values())
        write(f"| {name} | {LIVES} | {images} | {distinct} | {broken} | {places} | {noticed} |\n")
        sys.stdout.flush()
        total += images
    write(f"{total} images\n")


if __name__ == "__main__":
    main()
