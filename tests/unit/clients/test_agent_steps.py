"""What a report costs in commits and in turns of the store's thread, and what is on disk at each
moment between them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.clients.agent import Agent
from shoal.clients.core import ReportState
from shoal.clients.memory.database_thread import StoreThread
from shoal.clients.memory.device_memory import Memory
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.memory.outbox_sqlite import SqliteOutbox
from shoal.clients.owner.gate import Gates
from shoal.clients.reports.attempts import Attempts
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from tests.unit.clients.owner.device_of_an_owner import PURPOSE, Device, Hanging
from tests.unit.clients.owner.test_agent_consent import quick
from tests.worlds.devices.clients import START, WEEK, DirectTransport, FarEnd, make_world

__all__ = ["quick"]  # a fixture of every test here too


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path, make_world())


class Looking(DirectTransport):
    """Looks at the device's disk, as another program does, at the moment at which the frame would
    leave.
    """

    def __init__(self, far: FarEnd, path: Path) -> None:
        super().__init__(far)
        self.path, self.found = path, list[Any]()

    async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
        disk = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        newest = (
            "SELECT window, state, attempts, doubtful, frame = ? FROM report ORDER BY window DESC "
            "LIMIT 1"
        )
        (charges,) = disk.execute("SELECT count(*) FROM charge").fetchone()
        bodies = [str(body) for (body,) in disk.execute("SELECT body FROM ledger")]
        entries = [
            sum(f'"{event.value}"' in body for body in bodies)
            for event in (LedgerEvent.REPORTED, LedgerEvent.OUTCOME)
        ]
        self.found = [*disk.execute(newest, (frame,)).fetchone(), charges, *entries]
        disk.close()
        return await super().submit(frame, ack_key, deadline_s)


def counted(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[object]]:
    """The commits and the turns from here on; and no statement in the event loop's own thread."""
    commits, turns, loop, real = (
        list[str](),
        list[object](),
        threading.current_thread(),
        StoreThread.run,
    )

    def statement(text: str) -> None:
        commits.extend([text] if text in {"COMMIT", "ROLLBACK"} else [])
        turns.extend(["in the event loop"] if threading.current_thread() is loop else [])

    async def run(thread: StoreThread, step: Callable[[], Any]) -> Any:
        turns.append(step)
        return await real(thread, step)

    agent._guarantees._known[agent.tasks.find("visits").task_id] = 0.25
    store = agent.memory._store
    # the head's own transaction, once a second at most, would be one more
    store._again = float("inf")
    store._db.set_trace_callback(statement)
    monkeypatch.setattr(StoreThread, "run", run)
    return commits, turns


async def test_a_report_takes_two_commits_and_all_of_it_is_on_disk_before_a_byte_leaves(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the beginning of the attempt in a commit of its own -> three; the charge after the
    claim -> 0 of it when the frame leaves; ``deliver`` before ``_begin`` has committed -> no row; a
    read in the event loop -> a turn that is none.
    """
    looking = Looking(device.far, device.folder / "outbox.db")
    async with device.agent(looking) as agent:
        await agent.report("visits", 3)  # the certificate is looked up
        device.clock.advance(WEEK)
        commits, turns = counted(agent, monkeypatch)
        outcome = await agent.report("visits", 3)
        assert (outcome.state, outcome.attempts, outcome.fresh) == (ReportState.ACKED, 1, True)
        assert (commits, len(turns)) == (["COMMIT"] * 2, 2)
    assert looking.found == [1, "queued", 1, 1, 1, 2, 2, 1]


async def test_what_waits_is_sent_in_two_commits_and_queued_in_one(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with device.agent() as agent:
        await agent.report("visits", 3)
        device.clock.advance(WEEK)
        commits, turns = counted(agent, monkeypatch)
        assert (await agent.report("visits", 3, send=False)).state is ReportState.QUEUED
        assert (commits, len(turns)) == (["COMMIT"], 1)
        (outcome,) = await agent.flush()
        assert (outcome.state, outcome.attempts) == (ReportState.ACKED, 1)
        assert (commits, len(turns)) == (["COMMIT"] * 3, 4)


async def test_an_acknowledgement_that_could_not_be_kept_is_not_told(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt sends the same bytes. Planted: the standing named before the commit of the
    outcome -> ACKED is returned.
    """

    def full(*_: object) -> None:
        raise ShoalError(Kind.OVERLOADED, "disk full")

    async with device.agent() as agent:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteOutbox, "finish", full)
            outcome = await agent.report("visits", 3)
            assert (outcome.state, outcome.attempts, outcome.kind) == (
                ReportState.QUEUED,
                1,
                Kind.OVERLOADED,
            )
        (again,) = await agent.flush()
        assert (again.state, again.attempts) == (ReportState.ACKED, 2)
    assert len(device.far.frames) == 2
    assert len(set(device.far.frames)) == 1


async def test_a_report_waits_as_long_as_a_shuffler_without_room_asks(device: Device) -> None:
    """Its own pause would be ten milliseconds. Planted: the failure's wish left out -> due at once,
    and this fails.
    """
    device.far.script = lambda number, _: (
        ShoalError(Kind.OVERLOADED, "busy", retry_after_s=30.0) if number == 0 else None
    )
    async with device.agent() as agent:
        outcome = await agent.report("visits", 3)
        assert (outcome.state, outcome.kind) == (ReportState.QUEUED, Kind.OVERLOADED)
        ((_, due),) = agent._parts.attempts.retry_at.items()
        assert 25.0 <= due - asyncio.get_running_loop().time() <= 37.5


async def test_a_report_that_can_not_be_sent_is_kept(device: Device) -> None:
    """No attempt was made, and it is not in doubt. Planted: the gate's failure raised before the
    claim -> nothing is queued.
    """
    gates = device.folder / "outbox.db.gates"
    async with device.agent() as agent:
        gates.rmdir()
        outcome = await agent.report("visits", 3)
        assert (outcome.state, outcome.fresh, outcome.attempts, outcome.kind) == (
            ReportState.QUEUED,
            True,
            0,
            Kind.CONFIG,
        )
        again = await agent.report("visits", 3)
        assert (again.state, again.fresh, again.attempts) == (ReportState.QUEUED, False, 0)
        gates.mkdir(0o700)
        (sent,) = await agent.flush()
        assert (sent.state, sent.attempts) == (ReportState.ACKED, 1)
        gates.rename(device.folder / "away")
        done = await agent.report("visits", 3)
        assert (done.state, done.kind, done.message) == (ReportState.ACKED, None, "")
    assert len(device.far.frames) == 1


async def test_a_disk_without_locks_keeps_a_report_too(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some that are shared over a network. Planted: the system's own error let through ->
    nothing is kept, the background ends.
    """

    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    async with device.agent() as agent:
        with monkeypatch.context() as patch:
            patch.setattr("shoal.clients.owner.gate.fcntl.flock", none)
            outcome = await agent.report("visits", 3)
            assert (outcome.state, outcome.fresh, outcome.attempts, outcome.kind) == (
                ReportState.QUEUED,
                True,
                0,
                Kind.OVERLOADED,
            )
        (sent,) = await agent.flush()
        assert (sent.state, sent.attempts) == (ReportState.ACKED, 1)


async def test_an_attempt_that_has_ended_holds_no_gate_in_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a process that the host's program forked meanwhile. Planted: closed alone -> a
    withdrawal waits for that process, in vain.
    """
    copies, real, gates = list[int](), os.open, Gates(tmp_path / "gates")

    def copied(*arguments: Any) -> int:
        handle = real(*arguments)
        copies.append(os.dup(handle))
        return handle

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", copied)
        async with gates.attempt(PURPOSE):
            pass
    assert await gates.clear(PURPOSE, 0.1)
    for copy in copies:
        os.close(copy)


async def test_of_one_report_there_is_one_attempt_at_a_time(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ask for it, and when. Planted: the turn dropped by who had it, though others
    wait -> two at once.
    """
    device.far.script = lambda *_: ShoalError(Kind.OVERLOADED, "again")
    under_way, most, real = 0, 0, Attempts._attempt

    async def attempt(*arguments: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await real(*arguments)
        finally:
            under_way -= 1

    monkeypatch.setattr(Attempts, "_attempt", attempt)
    async with device.agent() as agent:
        asking = [asyncio.create_task(agent.report("visits", 3)) for _ in range(3)]
        asking[0].add_done_callback(
            lambda _: asking.append(asyncio.create_task(agent.report("visits", 3)))
        )
        outcomes = [await one for one in asking]  # the last one joins on the way
        assert [(one.state, one.fresh) for one in outcomes] == [
            (ReportState.QUEUED, True),
            *[(ReportState.QUEUED, False)] * 3,
        ]
        assert agent._parts.attempts._turns == {}
    assert most == 1
    assert (len(device.far.frames), len(set(device.far.frames))) == (4, 1)


async def test_a_consent_taken_back_in_another_program_ends_it_though_the_certificate_is_known(
    device: Device,
) -> None:
    """Nothing is looked up then but the owner's answers. Planted: no look at them in ``_begin``, or
    in ``_report`` -> sent, or queued.
    """
    async with device.agent() as agent, device.agent() as other:
        agent._guarantees._known[agent.tasks.find("visits").task_id] = 0.25
        await agent.report("visits", 3)
        await other.withdraw(PURPOSE)
        device.clock.advance(WEEK)
        for send in (True, False):
            with pytest.raises(ShoalError) as caught:
                await agent.report("visits", 3, send=send)
            assert caught.value.kind is Kind.REFUSED
        assert len(await agent.outcomes()) == 1
    assert (len(device.far.frames), len(device.entries(LedgerEvent.REPORTED))) == (1, 1)


async def test_a_caller_that_gave_up_leaves_its_report_to_the_background(device: Device) -> None:
    """Planted: no word to the background when a call is cancelled -> this hangs until the time
    limit.
    """
    hanging = Hanging(device.far)
    async with device.agent(hanging, background=True) as agent:
        asking = asyncio.create_task(agent.report("visits", 3))
        await hanging.arrived.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        hanging.go.set()
        while [one.state for one in await agent.outcomes()] != [ReportState.ACKED]:
            pass  # each look is a turn of the store's thread: no busy loop
    assert len(device.far.frames) == 1


async def test_what_a_caller_queued_and_gave_up_is_sent_in_the_background(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: no word to the background when the call is cancelled -> it sleeps on with nothing
    else to wait for, until the time limit.
    """
    arrived, go, asleep, real, wait = (
        threading.Event(),
        threading.Event(),
        asyncio.Event(),
        SqliteOutbox.claim,
        asyncio.Event.wait,
    )

    def claim(*arguments: Any) -> Any:
        arrived.set()
        go.wait(60.0)
        return real(*arguments)

    async def waiting(event: asyncio.Event) -> bool:
        asleep.set()
        return await wait(event)

    monkeypatch.setattr(SqliteOutbox, "claim", claim)
    async with device.agent(background=True) as agent:
        monkeypatch.setattr(
            agent._parts.sender._wake,
            "wait",
            lambda: waiting(agent._parts.sender._wake),
            raising=False,
        )
        await asleep.wait()
        asking = asyncio.create_task(agent.report("visits", 3, send=False))
        await asyncio.to_thread(arrived.wait, 60.0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        go.set()
        while [one.state for one in await agent.outcomes()] != [ReportState.ACKED]:
            pass  # each look is a turn of the store's thread: no busy loop


async def test_a_consent_taken_back_under_another_name_of_the_outbox_ends_attempts_too(
    device: Device,
) -> None:
    """The gates are beside the file, not beside a link to it. Planted: links kept in the
    configuration -> it returns while one is sent.
    """
    hanging = Hanging(device.far)
    (device.folder / "elsewhere").mkdir()
    link = device.folder / "elsewhere" / "link.db"
    link.symlink_to(device.folder / "outbox.db")
    async with (
        device.agent(hanging) as agent,
        Agent(replace(device.settings, outbox=link), background=False, clock=device.clock) as other,
    ):
        asking = asyncio.create_task(agent.report("visits", 3))
        await hanging.arrived.wait()
        await other.withdraw(PURPOSE)
        assert hanging.ended == ["cancelled"]
        await asyncio.gather(asking, return_exceptions=True)
        assert [one.state for one in await other.outcomes()] == [ReportState.WITHDRAWN]
    assert device.far.frames == []
    assert list(link.parent.iterdir()) == [link]


@pytest.mark.parametrize(
    ("now", "value"), [(START - 1.0, 3), (START + 100.0 * WEEK, 3), (START + 1.0, [1.0, 2.0])]
)
async def test_the_owner_s_refusal_is_named_before_any_other(
    device: Device, now: float, value: Any
) -> None:
    """Planted: the clock and the value looked at alone -> TOO_EARLY, WINDOW_CLOSED, INVALID."""
    device.policy = {"purposes": {PURPOSE: "denied"}}
    device.clock.time = now
    async with device.agent() as agent:
        with pytest.raises(ShoalError) as caught:
            await agent.report("visits", value)
        assert (caught.value.kind, "denied" in caught.value.message) == (Kind.REFUSED, True)


async def test_steps_run_in_one_thread_one_after_the_other() -> None:
    """Planted: two threads -> two names."""
    thread, names, order = StoreThread(), set[str](), list[int]()

    def step(number: int) -> int:
        names.add(threading.current_thread().name)
        order.append(number)
        return number

    assert await asyncio.gather(
        *(thread.run(lambda number=number: step(number)) for number in range(50))  # type: ignore[misc]
    ) == list(range(50))  # mypy knows no default there
    assert (len(names), order) == (1, list(range(50)))
    thread.close()
    with pytest.raises(ShoalError) as caught:
        await thread.run(lambda: 1)
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_a_step_tells_what_it_does_to_who_still_waits() -> None:
    """A caller that gave up leaves its step to the end, and the next one is told all the same.

    Planted: what a step raises ends the thread -> the next waits for ever; a cancelled caller told
    all the same -> InvalidStateError in the loop's log, which fails the test.
    """
    thread, begun, go, done = StoreThread(), threading.Event(), threading.Event(), list[str]()
    troubles = list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))

    def slow() -> None:
        begun.set()
        go.wait()
        done.append("slow")

    def failing() -> None:
        raise KeyError("x")

    waiting = asyncio.create_task(thread.run(slow))
    await asyncio.to_thread(begun.wait)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go.set()
    with pytest.raises(KeyError):
        await thread.run(failing)
    assert (await thread.run(lambda: "next"), done, troubles) == ("next", ["slow"], [])
    thread.close()


async def test_a_thread_that_can_not_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: RuntimeError let through; a thread that was not started kept -> the next waits for
    ever.
    """
    thread = StoreThread()

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        with pytest.raises(ShoalError) as caught:
            await thread.run(lambda: 1)
    assert caught.value.kind is Kind.OVERLOADED
    assert await thread.run(lambda: 2) == 2
    thread.close()


_ENDS = """
import asyncio, time
from shoal.clients.memory.database_thread import StoreThread
thread = StoreThread()
def step():
    time.sleep(0.2)
    print("done", flush=True)
async def leave():
    waiting = asyncio.create_task(thread.run(step))
    await asyncio.sleep(0)
asyncio.run(leave())
"""


@pytest.mark.parametrize("last", ["", "del thread"])
def test_a_process_ends_without_a_close_but_not_before_its_steps(last: str) -> None:
    """Also where nobody has the object any more. Planted: nothing waits at the end, or for those
    that are gone -> the step is cut off; a thread that is no daemon and was not told -> the process
    never ends.
    """
    done = subprocess.run(
        [sys.executable, "-c", _ENDS + last],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


async def test_a_memory_that_is_closed_says_so(device: Device) -> None:
    memory = Memory(device.settings, device.clock, SYSTEM)
    await memory.run(memory.close)
    with pytest.raises(ShoalError) as caught:
        await memory.run(memory.commitments.spent)
    assert caught.value.kind is Kind.UNAVAILABLE
