"""Backups of running services, restored after their disks were lost: what was acknowledged and not
yet released is counted once, and nothing that happened since is undone.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.core import BatchState
from shoal.analyzer.results.release_json import decode_release
from shoal.analyzer.service import SPOOL_FOLDER, AnalyzerService
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.main import main
from shoal.clocks.clock import FakeClock
from shoal.errors import Kind, ShoalError
from shoal.rpc.channel import build_channel, call
from shoal.services.given_up import GivenUp, add, read
from shoal.services.process import DataFolder
from shoal.services.settings import load_settings
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.service import Shuffler
from shoal.storage.checksums import row_digest
from tests.unit.cli.operations.test_backup import rewritten
from tests.worlds.operations import DAY, Site, agreed
from tests.worlds.services.analyzer import World, identity, make_world
from tests.worlds.services.analyzer_service import Caller, Refused, chunks, shared_pool
from tests.worlds.services.shuffler import CA, submit

Capture = pytest.CaptureFixture[str]
SUBMIT = "/shoal.v1.Ingress/Submit"


def shoal(capsys: Capture, *arguments: str | Path, status: int = 0) -> Any:
    """A command's JSON, or its one line of failure."""
    code = main([*map(str, arguments)])
    shown = capsys.readouterr()
    assert code == status, shown.out + shown.err
    return json.loads(shown.out) if status == 0 else shown.err


@asynccontextmanager
async def serving(world: World, folder: Path) -> AsyncIterator[tuple[Caller, AnalyzerStore]]:
    """An analyzer from the files that are there: none is made anew."""
    config = load_settings(AnalyzerConfig, folder / "analyzer.toml")
    with DataFolder(config.data_dir) as data:
        store = AnalyzerStore(data / FILE_NAME)
        clock = FakeClock(world.after)
        service = AnalyzerService(config, data, store, clock=clock, pool=shared_pool())
        try:
            port, _ = await service.start()
            caller = Caller(port, identity())
            yield caller, store
            await caller.channel.close()
        finally:
            await service.stop()
            store.close()


async def test_an_analyzer_that_lost_its_disk_counts_what_was_not_released_and_undoes_nothing(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Window 0 is released before the backup, window 1 after it, window 2 has come in half.
    Planted: the head written as the backup's count -> the missing release is forgotten: fails.
    Planted: undecided rows copied -> the half batch is in the copy: fails.
    """
    world, folder = make_world(windows=3), tmp_path / "a"
    world.write_config(folder)
    batches = [
        world.batch(world.seal_cells([cell % 7 for cell in range(90)], window), window)
        for window in range(3)
    ]
    file = tmp_path / "a.backup"
    async with serving(world, folder) as (caller, store):
        await caller.done(batches[0])
        await caller.offer(batches[2])
        await caller.deliver(chunks(batches[2])[:2])
        before = {one.window: one.release for one in store.releases()}
        run = asyncio.to_thread(
            shoal, capsys, "backup", "--analyzer", folder / "analyzer.toml", "--out", file, "--json"
        )
        told = await run
        await caller.done(batches[1])
    assert (told["releases"], told["secrets"]) == (1, False)
    assert batches[2].manifest_hash.raw not in file.read_bytes()
    shutil.rmtree(folder / "data")
    monkeypatch.setattr(
        "shoal.cli.operations.restoring.time", SimpleNamespace(time=lambda: world.after)
    )
    restore: tuple[str | Path, ...] = (
        "restore",
        file,
        "--config",
        folder / "analyzer.toml",
        "--json",
    )
    restore += agreed(world.after)
    done = shoal(capsys, *restore)
    assert (done["lost"], done["missing"]) == (1, [])
    assert "start the service with it" in shoal(capsys, *restore, status=2)
    async with serving(world, folder) as (caller, store):
        assert {one.window: one.release for one in store.releases()} == before
        assert store.lost == 1
        again = await caller.offer(batches[0])  # the same acknowledgement, and no second release
        assert again.ack.ack
        other = world.batch(world.seal_cells([1] * 90, 0), 0)
        with pytest.raises(Refused) as refused:
            await caller.done(other)
        assert refused.value.refusal.kind is Kind.CONFLICT
        with pytest.raises(Refused) as refused:  # its key went with the release that is lost
            await caller.done(batches[1])
        assert refused.value.refusal.kind is Kind.UNAVAILABLE
        await caller.done(batches[2])
        (last,) = [decode_release(one.release) for one in store.releases() if one.window == 2]
        assert last.n == 90
        assert last.privacy.epsilon_cumulative_upper == float("inf")
        assert [one.state for one in store.batches()] == [BatchState.DONE] * 2
    assert not list((folder / "data" / SPOOL_FOLDER).iterdir())


async def test_a_release_made_again_after_a_restore_is_the_same(
    tmp_path: Path, capsys: Capture
) -> None:
    """The crash came before the acknowledgement: the shuffler still has the batch, and its key is
    there. Planted: a window whose key is there counted as lost -> fails.
    """
    world, folder, file = make_world(windows=2), tmp_path / "a", tmp_path / "a.backup"
    world.write_config(folder)
    batch = world.batch(world.seal_cells([cell % 7 for cell in range(90)], 0), 0)
    async with serving(world, folder):
        pass
    shoal(capsys, "backup", "--analyzer", folder / "analyzer.toml", "--out", file, "--json")
    (folder / "data" / FILE_NAME).unlink()
    config = folder / "analyzer.toml"
    done = shoal(capsys, "restore", file, "--config", config, *agreed(), "--json")
    assert done["lost"] == 0
    async with serving(world, folder) as (caller, store):
        await caller.done(batch)
        (release,) = store.releases()
        assert decode_release(release.release).n == 90
        assert store.lost == 0


async def test_a_release_whose_key_could_not_be_deleted_is_told_when_it_is_lost(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The analyzer was killed between the two, or its tasks folder could not be read. Nobody may
    have the batch any more, and what the release cost must not be forgotten. Planted: no note of
    the release, or one that a restore does not look at -> 0 are lost, fails.
    """
    world, folder, file = make_world(windows=2), tmp_path / "a", tmp_path / "a.backup"
    world.write_config(folder)
    batch = world.batch(world.seal_cells([cell % 7 for cell in range(90)], 0), 0)
    config = folder / "analyzer.toml"

    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error")

    async with serving(world, folder) as (caller, store):
        back_up = ("backup", "--analyzer", config, "--out", file, "--json")
        await asyncio.to_thread(shoal, capsys, *back_up)
        monkeypatch.setattr("shoal.analyzer.keys.delete_key_file", failing)
        with pytest.raises(Refused):
            await caller.done(batch)
        assert len(store.releases()) == 1
    (folder / "data" / FILE_NAME).unlink()
    (folder / "data" / "releases.head").unlink()
    monkeypatch.setattr(
        "shoal.cli.operations.restoring.time", SimpleNamespace(time=lambda: world.after)
    )
    said = agreed(world.after)
    done = shoal(capsys, "restore", file, "--config", config, *said, "--json")
    assert done["lost"] == 1  # and not window 1, whose key nothing was opened with


async def test_a_shuffler_that_lost_its_disk_opens_no_window_that_had_begun(
    tmp_path: Path, capsys: Capture
) -> None:
    """Devices that answered could answer again, and a window that was delivered be filled anew.
    Planted: nothing closed -> the report is taken: fails. Planted: all windows closed -> the next
    window's report is refused: fails.
    """
    site, file = Site(tmp_path), tmp_path / "s.backup"
    config, key = site.shuffler_toml(), tmp_path / "passphrase"
    key.touch(0o600)
    key.write_text("correct horse battery staple\n")
    sealing = ("--passphrase-file", key)
    shoal(
        capsys, "backup", "--shuffler", config, "--out", file, *sealing, "--with-window-keys",
        "--json",
    )  # fmt: skip
    shutil.rmtree(site.folder)
    restore: tuple[Any, ...] = (
        capsys,
        "restore",
        file,
        "--config",
        config,
        *sealing,
        *agreed(),
        "--json",
    )
    done = await asyncio.to_thread(shoal, *restore)
    assert (done["closed"], done["missing"], done["missing_keys"]) == (1, [], 0)
    start = site.published.task.windows.start_s
    clock = FakeClock(time.time())
    settings = load_settings(type(site.config()), config)
    async with Shuffler(settings, clock=clock) as shuffler:
        first = WindowId(site.published.task_id, 0)
        record = shuffler.store.record(first)
        assert record is not None
        assert record.state is WindowState.SHREDDED
        channel = build_channel(f"127.0.0.1:{shuffler.port}", CA.cert_pem, private_pool=True)
        with pytest.raises(ShoalError) as refused:
            await call(channel, SUBMIT, submit(site.published.frame()), 10)
        assert refused.value.kind is Kind.WINDOW_CLOSED
        clock.advance(start + DAY + 60 - clock.now())
        assert await call(channel, SUBMIT, submit(site.published.frame(window=1)), 10)
        await channel.close()
    assert "start the service with it" in shoal(*restore, status=2)


def test_no_key_of_a_window_that_had_begun_comes_back(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One key for each window, backed up before any began, restored after two began and were
    released. Planted: every key of the backup written -> the deleted ones are back: fails.
    Planted: keys of windows that have begun backed up -> fails.
    """
    world, folder, file = make_world(windows=3), tmp_path / "a", tmp_path / "a.backup"
    world.write_config(folder)
    first_start(folder)
    key = tmp_path / "passphrase"
    key.touch(0o600)
    key.write_text("correct horse battery staple")
    config = folder / "analyzer.toml"
    sealing: tuple[str | Path, ...] = ("--passphrase-file", key)
    made = ("backup", "--analyzer", config, *sealing, "--with-window-keys", "--json", "--out")
    assert shoal(capsys, *made, file)["window_keys"] == 3
    plan = world.task.windows
    now = SimpleNamespace(time=lambda: float(plan.start_of(1)))
    monkeypatch.setattr("shoal.cli.operations.backup.time", now)
    assert shoal(capsys, *made, tmp_path / "later.backup")["window_keys"] == 1
    for path in (folder / "keys").iterdir():
        path.unlink()
    (folder / "data" / FILE_NAME).unlink()
    monkeypatch.setattr("shoal.cli.operations.restoring.time", now)
    sealing += agreed(now.time())
    done = shoal(capsys, "restore", file, "--config", config, *sealing, "--json")
    assert done["lost"] == 2
    assert [path.name for path in (folder / "keys").iterdir()] == [
        f"{world.keys[2].config.key_id.hex}.key"
    ]


def first_start(folder: Path) -> None:
    """As a first start leaves it."""
    (folder / "data").mkdir(mode=0o700)
    AnalyzerStore(folder / "data" / FILE_NAME).close()


async def test_a_window_that_was_given_up_before_the_copy_is_no_lost_release(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key is gone, and it has no release; the line says that there never was one. Planted: the
    lines not copied -> one release is counted as lost, fails. Planted: lines of a backup that
    anybody may have made believed -> fails.
    """
    world, folder, file = make_world(windows=2), tmp_path / "a", tmp_path / "a.backup"
    world.write_config(folder)
    async with serving(world, folder):
        pass
    line = GivenUp(world.task_id.hex, 1, 1_000_000_000, "alice", "lost", "nothing came")
    add(folder / "data", line)
    (folder / "keys" / f"{world.keys[1].config.key_id.hex}.key").unlink()
    key = tmp_path / "passphrase"
    key.touch(0o600)
    key.write_text("correct horse battery staple")
    config, sealing = folder / "analyzer.toml", ("--passphrase-file", key)
    shoal(capsys, "backup", "--analyzer", config, "--out", file, *sealing, "--json")
    shutil.rmtree(folder / "data")
    monkeypatch.setattr(
        "shoal.cli.operations.restoring.time", SimpleNamespace(time=lambda: world.after)
    )
    said = agreed(world.after)
    assert shoal(capsys, "restore", file, "--config", config, *said, "--json")["lost"] == 1
    shutil.rmtree(folder / "data")
    done = shoal(capsys, "restore", file, "--config", config, *sealing, *said, "--json")
    assert done["lost"] == 0
    assert read(folder / "data") == (line,)


async def test_of_a_backup_that_anybody_may_have_made_what_was_signed_is_taken_and_no_more(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody wrote into it that window 0 cost nothing, that window 1 had another result, and that
    another key may sign. Planted: the store taken as it is -> fails. Planted: the stored charge
    taken -> fails. Planted: signatures of acknowledgements not looked at -> window 2's is
    somebody's, fails.
    """
    world, folder, file = make_world(windows=3), tmp_path / "a", tmp_path / "a.backup"
    world.write_config(folder)
    async with serving(world, folder) as (caller, store):
        cells = [cell % 7 for cell in range(40)]
        batches = [world.batch(world.seal_cells(cells, window), window) for window in range(3)]
        for batch in batches:
            await caller.done(batch)
        before = {one.window: one.release for one in store.releases()}
        charged = [one.epsilon_upper for one in store.spendings()]
    config = folder / "analyzer.toml"
    shoal(capsys, "backup", "--analyzer", config, "--out", file, "--json")
    shutil.rmtree(folder / "data")

    def forge(files: dict[str, bytes], _: dict[str, str]) -> None:
        path = tmp_path / "forged.db"
        path.write_bytes(files["analyzer.db"])
        with closing(sqlite3.connect(path)) as db, db:
            db.create_function("row_digest", -1, row_digest)
            for name in ("releases_never_change", "acks_never_change"):
                db.execute(f"DROP TRIGGER {name}")
            db.execute("UPDATE releases SET epsilon = 0, loss_law = NULL")
            db.execute("UPDATE releases SET signature = zeroblob(64) WHERE window = 1")
            db.execute("UPDATE acks SET signature = zeroblob(64) WHERE window = 2")
            db.execute(
                "UPDATE releases SET digest = row_digest(task_id, window, release, signature,"
                " epsilon, delta, loss_law, lifetime)"
            )
            db.execute("UPDATE acks SET digest = row_digest(task_id, window, ack, signature)")
            db.execute("INSERT INTO signer VALUES (?, ?)", (bytes(32), row_digest(bytes(32))))
        files["analyzer.db"] = path.read_bytes()

    monkeypatch.setattr(
        "shoal.cli.operations.restoring.time", SimpleNamespace(time=lambda: world.after)
    )
    forged, said = rewritten(file, tmp_path / "forged", forge), agreed(world.after)
    done = shoal(capsys, "restore", forged, "--config", config, *said, "--json")
    assert (done["left_out"], done["lost"]) == (2, 2)
    with closing(AnalyzerStore(folder / "data" / FILE_NAME, read_only=True)) as store:
        assert {one.window: one.release for one in store.releases()} == {0: before[0]}
        assert store.spendings()[0].epsilon_upper >= charged[0] > 0
        assert store.lost == 2
        with store.reading() as db:
            assert [key for (key,) in db.execute("SELECT key FROM signer")] == [
                world.task.analyzer_key
            ]
    (folder / "data" / FILE_NAME).unlink()
    whole = shoal(capsys, "restore", file, "--config", config, *said, "--json")
    assert (whole["left_out"], whole["lost"]) == (0, 0)
    async with serving(world, folder) as (caller, store):
        assert {one.window: one.release for one in store.releases()} == before
        for batch in batches:
            assert (await caller.offer(batch)).ack.ack
