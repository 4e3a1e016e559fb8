"""Every durable step of a batch's life, broken in every way: whatever happens, the batch is counted
exactly once.

A child lives through one batch with a point armed: killed there (SIGKILL), or failing there once
(EIO, ENOSPC). Then a second child, unarmed, goes on with what is on the disk. The points are not
listed here: a recording run finds them, and every passing of each is tried; at reduced size the
first and the last.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shoal.analyzer.core import BatchState
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.crypto.signing import SigningContext, verify
from shoal.mechanisms import Tally
from shoal.protos import delivery_pb2
from tests.faults.conftest import Forge
from tests.sizes import FULL
from tests.worlds.services.analyzer import Batch, World, make_world, several_world

CELLS = [i % 7 for i in range(40)]
NONCE = bytes(range(16))
MIGRATION = "analyzer.migrate"  # of a file that is made: before anything is served
EXPECTED = {
    MIGRATION,
    *(
        "analyzer.offer.accepted",
        "analyzer.spool.write",
        "analyzer.spool.sync",
        "analyzer.deliver.synced",
        "analyzer.batch.processing",
    ),
    *(
        "analyzer.batch.opened",
        "analyzer.store.commit",
        "analyzer.store.release",
        "analyzer.store.ack",
        "analyzer.store.tally",
    ),
    *("analyzer.batch.done", "analyzer.spool.delete", "analyzer.key.delete"),
}


@pytest.fixture(scope="module")
def anvil() -> Iterator[Forge]:
    one = Forge("tests.faults.analyzer_child")
    yield one
    one.close()


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest) -> World:
    """With the parameter "several": devices send several messages."""
    return several_world() if getattr(request, "param", "") == "several" else make_world()


@pytest.fixture(scope="module")
def batch(world: World) -> Batch:
    """40 good rows, one that repeats a nonce, one that does not open: of 40 reports, or of 25."""
    rows = world.seal_cells(CELLS[:-1])
    rows += [
        world.seal(world.report(CELLS[-1]), nonce=NONCE),
        world.seal(world.report(0), nonce=NONCE),
        bytes(world.row_size()),
    ]
    return world.batch(rows, reports=25) if world.task.messages > 1 else world.batch(rows)


@pytest.fixture(scope="module")
def fresh(world: World, batch: Batch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh")
    world.write_config(folder)
    (folder / "offer.bin").write_bytes(batch.signed)
    (folder / "rows.bin").write_bytes(batch.data)
    (folder / "plan.json").write_text(
        json.dumps({"now": world.after, "row_size": world.row_size()})
    )
    return folder


def releases(folder: Path) -> list[bytes]:
    if not (folder / "data" / FILE_NAME).exists():
        return []
    store = AnalyzerStore(folder / "data" / FILE_NAME)
    found = [stored.release for stored in store.releases()]
    store.close()
    return found


def check(folder: Path, world: World, batch: Batch) -> None:
    """Counted once, acknowledged, and nothing left that could open it again."""
    store = AnalyzerStore(folder / "data" / FILE_NAME)
    (stored,) = store.releases()
    (known,) = store.batches()
    tally = store.tally(world.task_id, 0)
    store.close()
    release = to_json(decode_release(stored.release))
    # a report of several messages counts as rejected with any of its rows
    n = batch.manifest.reports - 2 if batch.manifest.reports else 40
    assert (release["n"], release["rejected"]) == (n, {"duplicate": 1, "unopenable": 1})
    assert known.state is BatchState.DONE
    assert tally == Tally(np.bincount(CELLS, minlength=7), 40).to_bytes()
    assert release["privacy"]["windows_composed"] == 1
    verify(world.analyzer.public, SigningContext.RELEASE, stored.release, stored.signature)
    ack = delivery_pb2.SignedAck.FromString((folder / "ack.bin").read_bytes())
    verify(world.analyzer.public, SigningContext.ACK, ack.ack, ack.signature)
    assert delivery_pb2.Ack.FromString(ack.ack).manifest_hash == batch.manifest_hash.raw
    assert list((folder / "data" / "spool").iterdir()) == []
    assert not (folder / "keys" / f"{world.keys[0].config.key_id.hex}.key").exists()
    assert (folder / "keys" / f"{world.keys[1].config.key_id.hex}.key").exists()


def passings(anvil: Forge, fresh: Path, folder: Path) -> dict[str, int]:
    shutil.copytree(fresh, folder)
    assert anvil.run("record", folder) == 0
    found: dict[str, int] = json.loads((folder / "passed.json").read_text())
    return found


def tried(count: int) -> list[int]:
    """Of so many passings of a point: the first and the last; in full, all."""
    return [*range(1, count + 1)] if FULL else sorted({1, count})


@pytest.mark.parametrize("world", ["single", "several"], indirect=True)
def test_every_crash_is_survived_and_counts_once(
    anvil: Forge, world: World, batch: Batch, fresh: Path, tmp_path: Path
) -> None:
    """SIGKILL at passings of every point.

    Planted: the state written in a transaction of its own, the key deleted before the commit, or
    the acknowledgement stored before the release -> this fails (a batch that can't be opened any
    more, or no acknowledgement).
    """
    passed = passings(anvil, fresh, tmp_path / "recorded")
    check(tmp_path / "recorded", world, batch)
    assert set(passed) == EXPECTED
    for point, count in passed.items():
        for at in tried(count):
            folder = tmp_path / f"{point}-{at}"
            shutil.copytree(fresh, folder)
            assert anvil.run("life", folder, f"{point}=exit@{at}") == -9
            before = releases(folder)
            assert anvil.run("life", folder) == 0
            check(folder, world, batch)
            # what was released stays, byte for byte
            assert not before or releases(folder) == before


@pytest.mark.parametrize("action", ["eio", "enospc"] if FULL else ["enospc"])
def test_every_failing_step_is_tried_again_and_counts_once(
    anvil: Forge, world: World, batch: Batch, fresh: Path, tmp_path: Path, action: str
) -> None:
    """Planted: after a failure the spool's hash keeps rows that were not synced -> MISMATCH, and
    this fails.
    """
    passed = passings(anvil, fresh, tmp_path / "recorded")
    for point, count in passed.items():
        for at in tried(count):
            folder = tmp_path / f"{point}-{at}"
            shutil.copytree(fresh, folder)
            ended = anvil.run("life", folder, f"{point}={action}@{at}")
            assert (ended == 0) == (point != MIGRATION), (point, at)
            if point == MIGRATION:  # the service does not start; the next one does
                assert anvil.run("life", folder) == 0
            check(folder, world, batch)
