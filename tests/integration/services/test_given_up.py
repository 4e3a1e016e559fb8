"""Windows that operators gave up, at running services: what is told, charged, deleted, and what
goes on.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.analyzer.batches import processing
from shoal.analyzer.core import BatchState
from shoal.analyzer.keys import RELEASING
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.cli.main import main
from shoal.clocks.backoff import Backoff
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.protos import directory_pb2
from shoal.rpc.channel import build_channel, call
from shoal.shuffler.core import WindowId, WindowState
from tests.integration.services.test_analyzer_unserved import get, serves
from tests.integration.services.test_restoring import SUBMIT
from tests.worlds.operations import Site
from tests.worlds.services.analyzer import make_world
from tests.worlds.services.analyzer_service import (
    Running,
    chunks,
    refused,
    running,
    tries,
)
from tests.worlds.services.shuffler import CA, submit

Capture = pytest.CaptureFixture[str]


def give_up(config: Path, service: str, task: str, window: int) -> None:
    more = ["--reason", "its key is lost", "--yes", "--json"]
    assert (
        main([service, "window", "abandon", task, str(window), "--config", str(config), *more]) == 0
    )


async def status(run: Running) -> dict[str, object]:
    _, body = await asyncio.to_thread(get, run.admin_port, "/status")
    found: dict[str, object] = json.loads(body)
    return found


async def given_up(run: Running, task_id: TaskId, keys: list[Path]) -> None:
    """Wait until window 0 is done, and ``keys``, notes of their release and all rows are gone."""
    for _ in tries():
        done = run.store.batch_of(task_id, 0)
        if (
            done is not None
            and done.state is BatchState.DONE
            and not any(key.exists() or key.with_suffix(RELEASING).exists() for key in keys)
            and not any((run.data / "spool").iterdir())  # its rows go after its release
        ):
            return
        await asyncio.sleep(0.01)


async def test_at_the_analyzer_nothing_is_counted_and_nothing_that_was_charged_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Window 0 can't be opened, of 1 a part came, of 2 nothing did; 3 is released.

    Planted: the charge of a batch that is given up left out -> the composed epsilon of window 3 is
    its own, fails. Planted: the key kept, or no word of it in later releases -> fails.
    """
    monkeypatch.setattr(processing, "_LOOK_S", 0.01)
    monkeypatch.setattr(processing, "_AGAIN", Backoff(0.001, 0.001))
    world = make_world(windows=4)
    batches = [world.batch(world.seal_cells([i % 7 for i in range(40)], w), w) for w in range(4)]
    config = world.write_config(tmp_path)
    keys = [tmp_path / "keys" / f"{key.config.key_id.hex}.key" for key in world.keys]
    async with running(world, tmp_path) as run:
        caller = run.caller
        await caller.offer(batches[0])
        keys[0].write_bytes(b"no key")
        await caller.deliver(chunks(batches[0]))
        await caller.offer(batches[1])
        await caller.deliver(chunks(batches[1])[:1])
        for window in (0, 1, 2):
            give_up(config, "analyzer", "visits", window)
        await given_up(run, world.task_id, keys[:3])
        assert [key.exists() for key in keys] == [False, False, False, True]
        for window in (1, 2):
            refusal = await refused(run, caller.offer(batches[window]))
            assert refusal.kind is Kind.WINDOW_CLOSED
            assert "gave window" in refusal.message
        assert (await caller.done(batches[0])).ack
        assert await serves(run, world) == {world.task_id.raw: [1, 2]}
        await caller.done(batches[3])
        rows = (await status(run))["tasks"]
        assert isinstance(rows, list)
        assert [line["window"] for line in rows[0]["given_up"]] == [0, 1, 2]
        first, last = (to_json(decode_release(one.release)) for one in run.store.releases())
        spool = list((run.data / "spool").iterdir())
        give_up(config, "analyzer", "visits", 1)  # twice
    assert spool == []
    assert (first["window"], first["n"], first["estimates"]) == (0, 0, [])
    assert "gave the window up" in first["withheld"]
    assert last["n"] == 40
    (word,) = [line for line in last["privacy"]["assumptions"] if "gave windows" in line]
    assert word.endswith(": 0, 1, 2")
    assert last["privacy"]["windows_composed"] == 2
    spent = first["privacy"]["epsilon_cumulative_upper"]
    assert spent >= first["privacy"]["epsilon0"]
    assert last["privacy"]["epsilon_cumulative_upper"] > spent
    # a start with the same files does all of it again, and nothing more
    async with running(world, tmp_path) as run:
        assert await serves(run, world) == {world.task_id.raw: [1, 2]}
        assert len(run.store.releases()) == 2
    capsys.readouterr()
    command = ["analyzer", "window", "list", "--config", str(config), "--json"]
    assert main(command) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(line["window"], line["was"], line["reports"]) for line in shown] == [
        (0, "processing", 40),
        (1, "receiving", 40),
        (2, "nothing came", None),
    ]


@pytest.mark.parametrize(
    "point",
    [
        *("analyzer.store.release", "analyzer.store.ack", "analyzer.store.commit"),
        *("analyzer.spool.delete", "analyzer.key.delete"),
    ],
)
async def test_a_step_at_the_analyzer_that_breaks_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """A batch that can't be opened is given up; the disk fails at each step of its end, or the
    service stops there and starts anew. Planted: rows deleted before the release is there -> the
    batch begins again and nothing ends it, fails.
    """
    monkeypatch.setattr(processing, "_LOOK_S", 0.01)
    monkeypatch.setattr(processing, "_AGAIN", Backoff(0.001, 0.001))
    world = make_world(windows=1)
    batch = world.batch(world.seal_cells([i % 7 for i in range(40)]))
    config = world.write_config(tmp_path)
    key = tmp_path / "keys" / f"{world.keys[0].config.key_id.hex}.key"
    passed = failpoints.record(True)
    try:
        async with running(world, tmp_path) as run:
            await run.caller.offer(batch)
            key.write_bytes(b"no key")
            await run.caller.deliver(chunks(batch))
            failpoints.arm(f"{point}=eio@1")
            give_up(config, "analyzer", "visits", 0)
            async with asyncio.timeout(60):
                while not passed[point]:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.005)
    finally:
        failpoints.arm("")
        failpoints.record(False)
    async with running(world, tmp_path) as run:
        await run.caller.done(batch)
        (release,) = run.store.releases()
        assert list((run.data / "spool").iterdir()) == []
        assert len(run.store.spendings()) == 1
    assert "gave the window up" in decode_release(release.release).withheld
    assert not key.exists()


async def test_at_the_shuffler_devices_hear_the_truth(tmp_path: Path, capsys: Capture) -> None:
    """While it runs: an open window and one to come. Devices learn of it before they answer, and
    who sends all the same is told that the window is decided.

    Planted: only the analyzer's windows in the catalogue -> devices answer for nothing, fails.
    """
    site = Site(tmp_path)
    config, published = site.shuffler_toml(), site.published
    async with site.running() as (shuffler, _):
        channel = build_channel(f"127.0.0.1:{shuffler.port}", CA.cert_pem, private_pool=True)
        frames = [submit(published.frame()) for _ in range(2)]
        await call(channel, SUBMIT, frames[0], 30)
        for window in (0, 5):
            await asyncio.to_thread(give_up, config, "shuffler", "test", window)
        await shuffler.lifecycle.tick()
        await shuffler.lifecycle.settle()
        for frame in frames:
            with pytest.raises(ShoalError) as error:
                await call(channel, SUBMIT, frame, 30)
            assert error.value.kind is Kind.WINDOW_CLOSED
        request = directory_pb2.PageRequest().SerializeToString()
        page = directory_pb2.PageReply.FromString(
            await call(channel, "/shoal.v1.Directory/Page", request, 30)
        )
        (paused,) = directory_pb2.Catalogue.FromString(page.data).paused
        assert (paused.task_id, list(paused.windows)) == (published.task_id.raw, [0, 5])
        records = [shuffler.store.record(WindowId(published.task_id, w)) for w in (0, 1, 5)]
        assert [record and record.outcome for record in records] == [
            WindowState.EXPIRED,
            None,
            WindowState.WITHHELD,
        ]
        _, body = await asyncio.to_thread(get, shuffler.admin_port, "/status")
        (task,) = json.loads(body)["tasks"]
        assert [line["window"] for line in task["given_up"]] == [0, 5]
        _, metrics = await asyncio.to_thread(get, shuffler.admin_port, "/metrics")
        assert f'shoal_shuffler_given_up_windows{{task="{published.task_id.short}"}} 2.0' in metrics
        await channel.close()
    capsys.readouterr()
    listing = ["shuffler", "window", "list", "--config", str(config), "--json"]
    assert await asyncio.to_thread(main, listing) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(line["was"], line["now"], line["reports"]) for line in shown] == [
        ("open", "expired", None),
        ("not begun", "withheld", None),
    ]
