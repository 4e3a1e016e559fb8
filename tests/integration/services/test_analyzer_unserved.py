"""What an analyzer can't serve: named on every page, told to the shuffler, and no reason not to
serve the rest.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.analyzer.core import BatchState
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.clocks.clock import FakeClock
from shoal.errors import Kind, ShoalError
from shoal.protos import delivery_pb2
from shoal.rpc.channel import call
from tests.worlds.services.analyzer import World, make_task, make_world
from tests.worlds.services.analyzer_service import Running, running

WORLD = make_world()
SECOND = make_task(name="second")
OTHER = World(SECOND, WORLD.authority, WORLD.shuffler, WORLD.analyzer)
BATCH = WORLD.batch(WORLD.seal_cells([i % 7 for i in range(50)]))
LATE = OTHER.batch(OTHER.seal_cells([i % 7 for i in range(50)]))


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def pages(run: Running) -> tuple[int, str, list[dict[str, object]], str]:
    """/readyz with its status, the conditions of /status, /metrics."""
    status, ready = await asyncio.to_thread(get, run.admin_port, "/readyz")
    _, body = await asyncio.to_thread(get, run.admin_port, "/status")
    _, metrics = await asyncio.to_thread(get, run.admin_port, "/metrics")
    return status, ready, json.loads(body)["conditions"], metrics


async def serves(run: Running, *worlds: World) -> dict[bytes, list[int]]:
    keys = [
        delivery_pb2.TaskKeys(task_id=one.task_id.raw, schedule_hash=one.served.keys.digest.raw)
        for one in worlds
    ]
    request = delivery_pb2.ServesRequest(tasks=keys).SerializeToString()
    reply = delivery_pb2.ServesReply.FromString(
        await call(run.caller.channel, "/shoal.v1.Delivery/Serves", request, 30)
    )
    assert not reply.trouble
    return {one.task_id: list(one.windows) for one in reply.unserved}


def damaged(folder: Path) -> None:
    path = folder / "tasks" / "second.task"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def no_schedule(folder: Path) -> None:
    (folder / "tasks" / "second.keys").unlink()


def unknown_authority(folder: Path) -> None:
    World(SECOND, analyzer=WORLD.analyzer).write(folder)


def foreign(folder: Path) -> None:
    World(SECOND, WORLD.authority).write(folder)
    (folder / "signing.key").unlink()


def no_key(folder: Path) -> None:
    (folder / "keys" / f"{OTHER.keys[1].config.key_id.hex}.key").unlink()


# What is wrong with the second task; the condition's code and subject; what the shuffler is told of
# it.
BAD: dict[str, tuple[Callable[[Path], None], str, str, list[int]]] = {
    "damaged": (damaged, "task", "second.task", []),
    "schedule missing": (no_schedule, "task", "second.task", []),
    "of an unknown authority": (unknown_authority, "task", "second.task", []),
    "of another analyzer": (foreign, "task", "second.task", []),
    "a window's key missing": (no_key, "key", OTHER.task_id.short, [1]),
}


@pytest.mark.parametrize("how", BAD)
async def test_one_bad_task_stops_no_other_and_is_named_everywhere(
    tmp_path: Path, how: str
) -> None:
    """At a start: the other task is served to its release. Planted: the first bad task raised out
    of the start -> nothing is served; the conditions of tasks and keys not watched -> "ready";
    ``serves`` without the schedule, or the keys -> nothing is told. Each fails.
    """
    spoil, code, subject, windows = BAD[how]
    OTHER.write(tmp_path)
    spoil(tmp_path)
    clock = FakeClock(WORLD.task.windows.end_of(WORLD.task.windows.count - 1) + 1)
    async with running(WORLD, tmp_path, clock=clock) as run:
        await run.caller.done(BATCH)
        status, ready, conditions, metrics = await pages(run)
        assert [(one["code"], one["subject"], one["stops"]) for one in conditions] == [
            (code, subject, True)
        ]
        assert status == 503
        assert ready == f"{conditions[0]['message']}\n"
        assert f'shoal_conditions{{code="{code}",stops="yes"}} 1.0' in metrics
        assert "shoal_ready 0.0" in metrics
        assert await serves(run, WORLD, OTHER) == {OTHER.task_id.raw: windows}
        OTHER.write(tmp_path)
        await run.service.reload()
        if how != "of another analyzer":
            assert (await pages(run))[:2] == (200, "ready\n")
            assert await serves(run, WORLD, OTHER) == {}
            assert (await run.caller.done(LATE)).ack
    assert AnalyzerStore(tmp_path / "data" / FILE_NAME, read_only=True).over() >= {
        (WORLD.task_id, 0)
    }


async def not_yet(*_: object) -> None:
    raise ShoalError(Kind.OVERLOADED, "not yet")


async def test_a_task_under_another_schedule_is_not_served(tmp_path: Path) -> None:
    """Its batches would be refused when they come. Planted: the digest not compared -> nothing is
    told, fails.
    """
    twin = World(
        WORLD.task,
        WORLD.authority,
        WORLD.shuffler,
        WORLD.analyzer,
        list(WORLD.keys[::-1]),
        WORLD.hop,
    )
    assert twin.task_id == WORLD.task_id
    async with running(WORLD, tmp_path) as run:
        assert await serves(run, twin) == {WORLD.task_id.raw: []}
        assert (await pages(run))[0] == 200


@pytest.mark.parametrize("complete", [False, True])
async def test_unfinished_work_of_a_missing_task_is_named_and_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complete: bool
) -> None:
    """Complete, or under way; retention is nobody's to judge without the task. Planted: the sweep
    looks the task up -> it never starts, fails. Planted: orphans not looked for -> "ready", fails.
    Planted: told as a window that is stuck, too -> what to do is not what /readyz says, fails.
    """
    OTHER.write(tmp_path)
    async with running(WORLD, tmp_path) as run:
        await run.caller.offer(LATE)
        if complete:
            monkeypatch.setattr(run.service._processor, "_open", not_yet)
            await run.caller.deliver([LATE.chunk(0, 50)])
            assert [batch.state for batch in run.store.batches()] == [BatchState.PROCESSING]
    for path in (tmp_path / "tasks").glob("second.*"):
        path.unlink()
    clock = FakeClock(WORLD.after)
    async with running(WORLD, tmp_path, clock=clock) as run:
        await run.caller.done(BATCH)  # a complete one was tried before it
        status, ready, conditions, _ = await pages(run)
        assert (status, [(one["code"], one["subject"]) for one in conditions]) == (
            503,
            [("task", OTHER.task_id.short)],
        )
        assert "put its .task and .keys files back" in ready
        OTHER.write(tmp_path)
        await run.service.reload()
        assert (await run.caller.done(LATE)).ack
        assert (await pages(run))[0] == 200
