"""Power cuts at every sync of a device's memory: what was answered stays answered and paid, and no
honest cut looks like a memory that was set back. See ``power`` for the model.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from shoal.errors import ShoalError
from tests.conformance.outbox.device import TASK, Device
from tests.faults.power import Disk, Image, restore, watched
from tests.sizes import size

pytestmark = pytest.mark.campaign
WINDOWS, LIVES = size(4, 12, 40), size(1, 4, 12)


def lived(folder: Path, rng: random.Random, patch: pytest.MonkeyPatch) -> Disk:
    """Answers, with restarts on the way; a label is what was answered by then."""
    answered: set[bytes] = set()
    disk = Disk(folder, lambda: frozenset(answered))
    with watched(disk, patch):
        device = Device(folder / "outbox.db", rng.choice((0.0, 3_600.0)))
        for window in range(WINDOWS):
            assert device.claim(window)
            answered.add(b"%d" % window)
            if rng.random() < 0.3:
                device.store.close()
                device = Device(folder / "outbox.db", rng.choice((0.0, 3_600.0)))
        device.store.close()
    return disk


def broken(folder: Path, image: Image, answered: frozenset[bytes]) -> str:
    """Empty if what was answered by then is answered and paid after this power cut, and the memory
    goes on.
    """
    folder.mkdir()
    restore(folder, image)
    try:
        device = Device(folder / "outbox.db")
    except (ShoalError, sqlite3.Error) as error:
        return f"{type(error).__name__} {error}"
    try:
        windows, noted = {int(label) for label in answered}, device.store.noted()
        if not windows <= {record.window for record in device.outbox.records()}:
            return "an answer is lost"
        if any(device.commitments.charged(TASK, window) != 1 for window in windows):
            return "an answer is not paid once"
        if (
            device.store.forgetful()
            or noted is None
            or noted.spent is None
            or noted.spent < device.commitments.spent()
        ):
            return "an honest cut looks like a memory that was set back"
        device.commitments.verify()
        return "" if device.claim(999) else "it goes on no more"
    except (ShoalError, sqlite3.Error) as error:
        return f"{type(error).__name__} {error}"
    finally:
        device.store.close()
        shutil.rmtree(folder)


@pytest.mark.parametrize("seed", range(LIVES))
def test_what_was_answered_stays_answered_and_paid(
    memory_folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each sync that is left out is noticed, but that of SQLite's rollback journal, which
    guards the step of an empty file to a log.

    Planted: synchronous = OFF -> windows are lost; the head's file or its folder not synced -> a
    memory that is whole answers nothing; the head written before the commit that it names -> the
    same.
    """
    home = memory_folder / "life"
    home.mkdir()
    rng = random.Random(f"agent {seed}")  # noqa: S311 - no secret
    disk = lived(home, rng, monkeypatch)
    assert disk.syncs >= WINDOWS
    told = [
        (number, broken(memory_folder / f"cut{number}", *image))
        for number, image in enumerate(disk.images(rng))
    ]
    assert [one for one in told if one[1]] == []
    sites = [site for site in disk.sites() if not site.endswith("-journal")]
    unseen = []
    for place, site in enumerate(sites):
        images = list(disk.images(rng, site))
        rng.shuffle(images)  # the first one that is broken is enough
        if not any(
            broken(memory_folder / f"without{place}-{number}", *image)
            for number, image in enumerate(images)
        ):
            unseen.append(site)
    assert unseen == []
    assert len(sites) >= 4
