"""Power cuts at every sync of a device's memory: what was answered stays answered and paid, and no honest cut looks like a memory that
was set back. See ``power`` for the model."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.conformance.outbox.device import TASK, Device
from tests.faults.power import Disk, restore, watched
from tests.sizes import size

WINDOWS, LIVES = size(4, 40), size(1, 12)


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


@pytest.mark.parametrize("seed", range(LIVES))
def test_what_was_answered_stays_answered_and_paid(memory_folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: synchronous = OFF -> windows are lost; the head's file or its folder not synced -> a memory that is whole answers nothing;
    the head written before the commit that it names -> the same."""
    home = memory_folder / "life"
    home.mkdir()
    rng = random.Random(f"agent {seed}")  # noqa: S311 - no secret
    disk = lived(home, rng, monkeypatch)
    assert disk.syncs >= WINDOWS
    for number, (image, answered) in enumerate(disk.images(rng)):
        folder = memory_folder / f"cut{number}"
        folder.mkdir()
        restore(folder, image)
        device = Device(folder / "outbox.db")
        windows = {int(label) for label in answered}
        assert windows <= {record.window for record in device.outbox.records()}
        assert all(device.book.charged(TASK, window) == 1 for window in windows)
        assert not device.store.forgetful()
        noted = device.store.noted()
        assert noted is not None
        assert noted.spent is not None
        assert noted.spent >= device.book.spent()
        device.book.verify()
        assert device.claim(999)
        device.store.close()
        shutil.rmtree(folder)
