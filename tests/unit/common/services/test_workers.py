"""Worker processes: warm, replaced when they die, and dead when their parent is, however it
went.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.services.workers import WorkerPool

_PREPARED: list[int] = []


def prepare(number: int) -> None:
    _PREPARED.append(number)


def prepared() -> list[int]:
    return list(_PREPARED)


def square(value: int) -> int:
    return value * value


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise ShoalError(Kind.INVALID, "the report is no report")


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_dead(pids: list[int], seconds: float = 20.0) -> list[int]:
    """The pids still alive after at most ``seconds``; returns as soon as none is."""
    end = time.monotonic() + seconds
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < end:
        os.sched_yield()
    return left


def spawned(but: list[int]) -> list[int]:
    """Worker processes of this one, from the kernel, without those of other tests: ``but``."""
    text = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return [
        int(pid)
        for pid in text.split()
        if int(pid) not in but and alive(int(pid)) and is_worker(int(pid))
    ]


def is_worker(pid: int) -> bool:
    try:
        return "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()
    except FileNotFoundError:  # gone meanwhile
        return False


@pytest.fixture
def others() -> list[int]:
    """Workers that are there before the test: pools that tests share."""
    return spawned([])


async def test_work_comes_back_prepared() -> None:
    pool = WorkerPool(2, prepare, (7,))
    try:
        pool.warm()
        assert await pool.run(prepared) == [7]
        assert await asyncio.gather(*(pool.run(square, n) for n in range(50))) == [
            n * n for n in range(50)
        ]
    finally:
        pool.close()


async def test_a_typed_failure_stays_typed() -> None:
    """Kind and text survive the way back from the worker. Planted: an error that does not pickle ->
    the pool breaks and this fails.
    """
    pool = WorkerPool(1)
    try:
        with pytest.raises(ShoalError) as caught:
            await pool.run(fail)
        assert (caught.value.kind, caught.value.message) == (
            Kind.INVALID,
            "the report is no report",
        )
        assert await pool.run(square, 3) == 9
    finally:
        pool.close()


async def test_a_dead_worker_is_unavailable_and_replaced(others: list[int]) -> None:
    """All calls that waited fail typed, one new set of workers is started, and the next call works.

    Planted: a new pool per failed call -> more than two workers are left, and this fails.
    """
    pool = WorkerPool(2)
    try:
        pool.warm()
        before = spawned(others)
        outcomes = await asyncio.gather(*(pool.run(die) for _ in range(8)), return_exceptions=True)
        assert all(isinstance(one, ShoalError) and one.kind is Kind.UNAVAILABLE for one in outcomes)
        assert await pool.run(square, 5) == 25
        pool.warm()
        assert not wait_until_dead(before)
        assert len(spawned(others)) == 2
    finally:
        pool.close()


def test_the_next_call_waits_until_a_broken_pool_has_ended_what_was_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever hears of it drops its other calls: one that is cancelled before the pool has ended it
    makes the pool's thread fail, and its workers stay. Here the thread is held at the first call
    for a while. Planted: new workers made without waiting -> calls are not done then, fails.
    """
    pool, reached, go_on = WorkerPool(1), threading.Event(), threading.Event()
    try:
        pool.warm()
        under_way = [pool.submit(die) for _ in range(8)]

        def hold(_: Future[None]) -> None:
            reached.set()
            go_on.wait(20.0)

        # the later ones are not in a worker's queue, and could be cancelled
        under_way[0].add_done_callback(hold)
        assert reached.wait(20.0)
        done_before: list[bool] = []
        real = pool._make

        def make() -> ProcessPoolExecutor:
            done_before.extend(future.done() for future in under_way)
            return real()

        monkeypatch.setattr(pool, "_make", make)
        threading.Timer(0.1, go_on.set).start()
        with pytest.raises(ShoalError) as caught:
            pool.submit(square, 1)
        assert caught.value.kind is Kind.UNAVAILABLE
        assert done_before == [True] * 8
    finally:
        go_on.set()
        pool.close()


async def test_a_worker_killed_while_idle(others: list[int]) -> None:
    """The next call says so and the one after works."""
    pool = WorkerPool(1)
    try:
        pool.warm()
        (pid,) = spawned(others)
        os.kill(pid, signal.SIGKILL)
        assert not wait_until_dead([pid])
        kinds: list[Kind] = []
        for _ in range(5):
            try:
                assert await pool.run(square, 2) == 4
                break
            except ShoalError as error:
                kinds.append(error.kind)
        assert set(kinds) <= {Kind.UNAVAILABLE}
        assert len(kinds) < 5
    finally:
        pool.close()


def test_closing_ends_the_workers(others: list[int]) -> None:
    pool = WorkerPool(2)
    pool.warm()
    pids = spawned(others)
    assert len(pids) == 2
    pool.close()
    assert not wait_until_dead(pids)


def test_killing_ends_workers_in_the_middle_of_their_work(others: list[int]) -> None:
    """Planted: ``kill`` that waits for what is under way, as ``close`` does -> never ends."""
    pool = WorkerPool(2)
    pool.warm()
    pids = spawned(others)
    under_way = pool.submit(signal.pause)
    pool.kill()
    assert not wait_until_dead(pids)
    assert under_way.exception() is not None


@pytest.mark.parametrize("processes", [0, -1, 257])
def test_bad_counts(processes: int) -> None:
    with pytest.raises(ShoalError) as caught:
        WorkerPool(processes)
    assert caught.value.kind is Kind.CONFIG


PARENT = """
import sys
from concurrent.futures import wait
from shoal.services.workers import WorkerPool
import os

if __name__ == "__main__":
    pool = WorkerPool(2)
    pool.warm()
    print(*open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read().split(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_workers_die_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    """A parent that is killed cleans nothing up. Planted: no ``die_with_parent`` in ``_start`` ->
    workers are left and this fails.
    """
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    try:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(list(filter(is_worker, pids))) == 2
    finally:
        parent.send_signal(number)
        parent.wait()
        parent.stdin.close()
        parent.stdout.close()
    assert not wait_until_dead(pids)


DEAF = """
import multiprocessing, os, signal
from shoal.services.workers import WorkerPool, deaf_to_interrupts

def main():
    context = multiprocessing.get_context("spawn")
    with deaf_to_interrupts():
        child = context.Process(target=signal.pause, daemon=True)
        child.start()
    blocked = next(line for line in open(f"/proc/{child.pid}/status") if line.startswith("SigBlk"))
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    print(bool(int(blocked.split()[1], 16) & 1 << signal.SIGINT - 1), signal.SIGINT in masked)
    child.kill()

if __name__ == "__main__":
    main()
"""


def test_the_first_child_of_a_process_is_deaf_to_interrupts_too(tmp_path: Path) -> None:
    """Ctrl-C while it imports would print a trace. The mask is its parent's from the fork on, so it
    is looked at from outside.

    Planted: no ``ensure_running`` first -> the start of multiprocessing's tracker lets SIGINT
    through, and this fails.
    """
    script = tmp_path / "parent.py"
    script.write_text(DEAF)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.stderr) == (["True", "False"], "")
