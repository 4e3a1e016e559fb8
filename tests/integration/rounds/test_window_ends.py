"""How a window of rounds ends, and what is left of it."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal.analyzer.results.release_json import decode_release
from shoal.clients.rounds.participation import RoundState
from shoal.clocks.backoff import Backoff
from shoal.crypto.signing import SigningContext, verify
from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2
from shoal.shuffler.core import WindowState
from shoal.shuffler.rounds.window import lonely_pause
from shoal.shuffler.stores.sqlite.admissions import Admissions
from tests.worlds.rounds.services import TICK_S, Running, World, ask, running, step, total
from tests.worlds.services.shuffler import LENGTH


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(World(tmp_path)) as both:
        yield both


async def test_a_window_is_released_once_and_its_keys_go(one: Running) -> None:
    """Two rounds of a window, then its end: one release, signed, over both; hop key and analyzer
    key are destroyed.
    """
    world, published = one.world, one.world.published
    devices = world.devices(24)
    for batch in (devices[:12], devices[12:]):
        assert {outcome.state for outcome in await asyncio.gather(*one.begin(batch))} == {
            RoundState.COUNTED
        }
    hop_file = world.shuffler.keys_dir / f"{published.hop.config.key_id.hex}.key"
    key_files = [
        world.folder / "analyzer" / "keys" / f"{key.config.key_id.hex}.key"
        for key in published.analyzer_keys
    ]
    await one.advance(LENGTH + 400)  # within the grace: too late for a round to end in time
    late = await one.take_part(world.device())
    assert (late.state, late.kind) == (RoundState.NONE, Kind.WINDOW_CLOSED)
    assert one.store.releases() == []
    await one.advance(200)
    await one.until(lambda: one.shuffler.rounds.window(one.window()) is None)
    (stored,) = one.store.releases()
    verify(world.shuffler.analyzer.public, SigningContext.RELEASE, stored.release, stored.signature)
    release = decode_release(stored.release)
    assert (release.n, release.rounds.rounds, release.withheld) == (24, 2, "")
    assert [round(row.value * 16) for row in release.estimates] == total(devices)
    assert [path.exists() for path in key_files] == [False, True]
    assert hop_file.exists()  # the second window uses it
    record = one.shuffler.store.record(one.window())
    assert record is not None
    assert record.state is WindowState.SHREDDED
    assert (await ask(one, step(one, poll=pairwise_pb2.Poll()))).kind == Kind.WINDOW_CLOSED.value
    await one.advance(LENGTH)
    await one.until(lambda: not hop_file.exists())
    assert [decode_release(each.release).withheld != "" for each in one.store.releases()] == [
        False,
        True,
    ]
    gone = await one.take_part(world.device())
    assert (gone.state, gone.kind) == (RoundState.NONE, Kind.WINDOW_CLOSED)


async def test_a_window_that_ended_while_the_shuffler_was_down_is_finished_after_its_start(
    tmp_path: Path,
) -> None:
    """Planted: windows past their deadline not begun after a start -> no release, ever."""
    world = World(tmp_path)
    devices = world.devices(12)
    async with running(world) as one:
        await asyncio.gather(*one.begin(devices))
        await one.stop("shuffler")
        await one.advance(LENGTH + 601)
        await one.start_shuffler()
        await one.until(lambda: one.shuffler.rounds.window(one.window()) is None)
        (stored,) = one.store.releases()
        assert decode_release(stored.release).n == 12
        await one.stop("shuffler")
        await one.start_shuffler()
        await asyncio.sleep(0)
        assert len(one.store.releases()) == 1


async def test_an_analyzer_that_is_down_at_the_end_gets_the_window_later(tmp_path: Path) -> None:
    """Also over a restart of the shuffler: a window is decided when the analyzer has released it,
    and not before.

    Planted: windows of rounds closed like shuffled ones (Lifecycle._close_due) -> recorded as over,
    and no release, ever.
    """
    world = World(tmp_path)
    async with running(world) as one:
        await asyncio.gather(*one.begin(world.devices(12)))
        await one.stop("analyzer")
        await one.advance(LENGTH + 601)
        await one.shuffler.lifecycle.tick()
        assert one.shuffler.store.record(one.window()) is None
        await one.stop("shuffler")
        await one.start_analyzer()
        await one.start_shuffler()
        await one.until(lambda: one.store.released(one.window().task_id, 0))
        assert decode_release(one.store.releases()[0].release).n == 12


async def test_nobody_asks_and_no_round_is_opened(one: Running) -> None:
    """A window without devices: nothing is opened, nothing aborted, and its release is withheld
    with no round in it.

    Planted: an offer opened without an Ask (WindowRounds.run) -> "too few devices joined" every
    half minute.
    """
    for _ in range(3):
        await one.advance(31)
        for _ in range(5):
            await asyncio.sleep(TICK_S)
    assert one.analyzer._rounds.counts() == {"open": 0}
    await one.advance(LENGTH + 601)
    await one.until(lambda: one.store.released(one.window().task_id, 0))
    release = decode_release(one.store.releases()[0].release)
    assert (release.n, len(release.rounds.aborted), release.withheld != "") == (0, 0, True)


async def test_an_analyzer_that_will_not_finish_a_window_makes_the_shuffler_unready(
    one: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers, and refuses: somebody has to look. Planted: failures not counted -> ready."""
    monkeypatch.setattr("shoal.shuffler.rounds.driver._FINISH", Backoff(0.001, 0.001))

    async def refuse(*_: object) -> bool:
        raise ShoalError(Kind.INTERNAL, "internal error, incident 1")

    monkeypatch.setattr(one.shuffler.rounds._parts.collection, "finish", refuse)
    await one.advance(LENGTH + 601)
    await one.until(lambda: one.shuffler.rounds.failing[one.window()] >= 5)
    assert "can't be finished" in await ready(one)
    monkeypatch.undo()
    await one.until(lambda: one.store.released(one.window().task_id, 0))
    await one.until(lambda: not one.shuffler.rounds.failing)
    assert "can't be finished" not in await ready(one)


async def ready(one: Running) -> str:
    def read() -> str:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{one.shuffler.admin_port}/readyz"
            ) as page:
                return str(page.read().decode())
        except urllib.error.HTTPError as error:
            return str(error.read().decode())

    return await asyncio.to_thread(read)


async def test_a_round_that_is_under_way_at_the_deadline_ends_first(tmp_path: Path) -> None:
    """It began in time; the window waits for it."""
    world = World(tmp_path, devices=6, survivors_min=4)
    devices = world.devices(6)
    async with running(world) as one:
        await one.advance(LENGTH + 600 - 350)
        tasks = one.begin(devices[1:])
        held = asyncio.create_task(one.take_part(devices[0]))
        outcomes = await asyncio.gather(*tasks, held)
        assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
        await one.advance(350)
        await one.until(lambda: one.shuffler.rounds.window(one.window()) is None)
        assert decode_release(one.store.releases()[0].release).n == 6


async def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Stopped in the middle of a round: no task, no file of a vector, no seat; the data folders
    hold databases and counts alone.
    """
    world = World(tmp_path, devices=8, survivors_min=6, dimension=1_000)
    devices = world.devices(8)
    async with running(world) as one:
        tasks = one.begin(devices[1:])
        await one.until(lambda: one.counts().get("joined") == 7)
        tasks += one.begin(devices[:1])
        await one.until(
            lambda: one.counts().get("uploaded", 0) > 0 or all(task.done() for task in tasks)
        )
        await one.stop("shuffler")
        await one.stop("analyzer")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    left = {
        path.name
        for folder in (world.shuffler.data_dir, tmp_path / "analyzer" / "data")
        for path in folder.iterdir()
    }
    databases = {
        f"{name}.db"
        for name in ("state", "rounds", "analyzer", "singles", "counts-rounds", "counts-singles")
    }
    assert {name for name in left if not name.endswith(("-wal", "-shm"))} <= {
        ".lock",
        "spool",
        "acknowledged",
        *databases,
    }
    admissions = Admissions(world.shuffler.data_dir)
    assert admissions.windows() <= {one.window()}
    admissions.close()
    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]
    assert not {name for name in names if "Round" in name or "Window" in name}


async def test_status_and_metrics_count_rounds_and_nobody_in_them(one: Running) -> None:
    await asyncio.gather(*one.begin(one.world.devices(12)))
    await one.until(lambda: not one.rounds.phases())
    wanted = {
        one.shuffler.admin_port: "shoal_shuffler_rounds_total",
        one.analyzer_admin_port: "shoal_analyzer_rounds_total",
    }
    for port, words in wanted.items():
        with await asyncio.to_thread(
            urllib.request.urlopen, f"http://127.0.0.1:{port}/metrics"
        ) as page:
            assert words in page.read().decode()


async def test_left_over_devices_do_not_open_rounds_without_end(one: Running) -> None:
    """After two rounds in a row that too few joined, the third waits join_s. Planted: no pause ->
    it may open at once.
    """
    lonely = one.world.devices(2)
    for ended in (1, 2):
        asked = one.begin(lonely)
        await one.until(lambda: one.counts().get("joined", 0) == 2)
        await one.advance(31)
        await one.until(lambda ended=ended: one.rounds.ended["too few devices joined"] == ended)  # type: ignore[misc]
        assert {(await each).state for each in asked} == {RoundState.ABORTED}
    asked = one.begin(lonely)
    await one.until(lambda: one.rounds._wanted)
    now, opens = one.clock.now(), list[bool]()
    for wait in (0, 29, 31):
        one.clock.time = now + wait
        opens.append(one.rounds.opens_now(one.clock.now()))
    one.clock.time = now
    assert opens == [False, False, True]
    await one.advance(31)
    await one.until(lambda: one.counts().get("joined", 0) == 2)
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


def test_the_pause_grows_to_ten_minutes() -> None:
    assert [lonely_pause(n, 30) for n in range(7)] == [0, 0, 30, 90, 210, 450, 600]
    assert lonely_pause(10**6, 86_400) == 600
