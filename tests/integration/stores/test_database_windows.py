"""``shoal shuffler window`` on a database that several shufflers share: what any of them did
counts, and nothing that only looks changes a thing.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.main import main
from shoal.crypto.hpke import generate
from shoal.crypto.suites import SuiteId
from shoal.services.given_up import FILE_NAME, GivenUpWindows
from shoal.services.settings import load_settings
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.core import Capacity, WindowId, WindowState, row_size
from shoal.shuffler.stores.configured import ShufflerStorage, open_store
from shoal.shuffler.stores.store import AdmittedReport, Store
from tests.conformance.store.harness import mine
from tests.worlds import postgres
from tests.worlds.operations import Site

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
HOP_KEY = generate(SuiteId.X25519_AES128)
WHY = ("--reason", "the machine of its key burned", "--yes")
Capture = pytest.CaptureFixture[str]


def replicas(site: Site, dsn: str) -> list[Path]:
    """The configurations of two, each with a data_dir of its own."""
    file = site.folder / "dsn"
    file.touch(mode=0o600)
    file.write_text(dsn)
    found = []
    for name in ("one", "two"):
        (site.folder / name).mkdir(mode=0o700)
        store = {"kind": "postgresql", "dsn_file": "dsn", "replicas": 2, "without_standby": True}
        toml = site.shuffler_toml(store=store, data_dir=name)
        found.append(toml.replace(toml.with_name(f"{name}.toml")))
    return found


async def command(toml: Path, *words: str) -> int:
    return await asyncio.to_thread(main, ["shuffler", "window", *words, "--config", str(toml)])


async def take(store: Store, site: Site, window: WindowId) -> None:
    task = site.published.task
    store.adopt(
        *(window.task_id, site.published.served.keys.digest, Capacity.of(task), row_size(task)),
        lambda _: HOP_KEY,
    )
    row = AdmittedReport(window, (bytes(row_size(task)),))
    assert await store.append([row]) == [None]


async def end(store: Store, window: WindowId) -> None:
    """As a window is that the analyzer acknowledged."""
    claim = await mine(store, window)
    await store.close_intake(claim)
    sealed = await store.seal(claim)
    await store.advance(claim, WindowState.CLOSING, WindowState.SEALED, sealed, 1, b"manifest")
    await store.advance(claim, WindowState.SEALED, WindowState.DELIVERING)
    await store.advance(claim, WindowState.DELIVERING, WindowState.ACKNOWLEDGED)


async def test_what_another_replica_delivered_is_not_given_up(
    tmp_path: Path, capsys: Capture
) -> None:
    """Planted: state.db of this replica asked -> its line says that the window was open, fails."""
    site = Site(tmp_path)
    with postgres.Server() as server:
        tomls = replicas(site, server.database())
        one = load_settings(ShufflerConfig, tomls[0])
        storage = await open_store(one)
        try:
            store = storage.reports
            delivered, held = (WindowId(site.published.task_id, number) for number in (0, 1))
            for window in (delivered, held):
                await take(store, site, window)
            assert await command(tomls[1], "skip", "test", "1", *WHY) == 1
            assert "has begun" in capsys.readouterr().err  # there is a row, whatever clocks say
            await end(store, delivered)
            for toml in tomls:
                assert await command(toml, "abandon", "test", "0", *WHY) == 1
                assert "acknowledged already" in capsys.readouterr().err
                assert not (toml.parent / toml.stem / FILE_NAME).exists()
            assert await command(tomls[1], "abandon", "test", "1", *WHY, "--json") == 0
            assert json.loads(capsys.readouterr().out)["was"] == "open"
            assert (await listed(tomls[1], capsys))[0]["now"] == "open"
            claim = await mine(store, held)
            await store.close_intake(claim)
            await store.advance(claim, WindowState.CLOSING, WindowState.EXPIRED)
            assert (await listed(tomls[1], capsys))[0]["now"] == "expired"
        finally:
            await storage.close()
        await nobody_answers(server, tomls[0], tomls[1], capsys)


async def test_what_one_replica_gave_up_the_others_keep_to_and_show(
    tmp_path: Path, capsys: Capture
) -> None:
    """The one that works on the window ends it, the others show who said so, and it is given up
    once. Planted: nothing heard -> the owner goes on with it, fails; the table not asked ->
    `window list` of the others is empty, and a second line is written, fails.
    """
    site = Site(tmp_path)
    tomls = replicas(site, postgres.shared().database())
    window = WindowId(site.published.task_id, 1)
    storages = [await open_store(load_settings(ShufflerConfig, toml)) for toml in tomls]
    try:
        lines = [GivenUpWindows(toml.parent / toml.stem) for toml in tomls]
        for number, storage in enumerate(storages):
            assert storage.fellows is not None
            await storage.fellows.start(bytes([number]) * 16, dict, dict, lines[number])
        await take(storages[1].reports, site, window)
        assert await command(tomls[0], "abandon", "test", "1", *WHY) == 0
        for number, storage in enumerate(storages):
            lines[number].look()
            assert storage.fellows is not None
            await storage.fellows.look()
        assert [(window.task_id, window.window) in each for each in lines] == [True, True]
        capsys.readouterr()
        ((row,),) = [await listed(tomls[1], capsys)]
        assert row["replica"] == (tomls[0].parent / "one" / "replica-id").read_text()[:8]
        assert (row["window"], row["now"], row["reason"]) == (1, "open", WHY[1])
        assert (await listed(tomls[0], capsys))[0]["replica"] is None
        assert await command(tomls[1], "abandon", "test", "1", *WHY) == 0
        assert "given up before" in capsys.readouterr().out
        assert not (tomls[1].parent / "two" / FILE_NAME).exists()
        await nothing_is_believed(storages, lines)
    finally:
        for storage in storages:
            await storage.close()


async def nothing_is_believed(storages: list[ShufflerStorage], lines: list[GivenUpWindows]) -> None:
    """A row that no replica wrote ends no window, and is told."""
    first, second = (storage.fellows for storage in storages)
    assert first is not None
    assert second is not None
    database = second._database
    await database.execute("UPDATE given_up SET win = 2")
    await second.look()
    assert len(lines[1]) == 1
    assert [(one.code, one.stops) for one in second.conditions()] == [("damage", False)]
    await database.execute("DELETE FROM given_up")
    await first.look()  # it enters its line again
    await second.look()
    assert list(second.conditions()) == []
    assert await database.fetchval("SELECT win FROM given_up") == 1


async def listed(toml: Path, capsys: Capture) -> list[dict[str, Any]]:
    assert await command(toml, "list", "--json") == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


async def nobody_answers(server: postgres.Server, one: Path, two: Path, capsys: Capture) -> None:
    """Without the database nothing is given up, and what was is still shown."""
    await asyncio.to_thread(server.kill)
    assert await command(one, "abandon", "test", "5", *WHY) == 1
    said = capsys.readouterr().err
    assert "the database can't be reached" in said
    assert server.password not in said
    assert not (one.parent / one.stem / FILE_NAME).exists()
    rows = await listed(two, capsys)
    assert [(row["window"], row["now"]) for row in rows] == [(1, None)]
