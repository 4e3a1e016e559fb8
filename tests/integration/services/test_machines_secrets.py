"""What the scheduler and workers on other machines hold and take: keys of windows, rows, code."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed.versions import get_versions

from shoal.analyzer.batches.checking import check_opened
from shoal.analyzer.batches.row_opening import ChunkResult, RowContext, empty_tally
from shoal.analyzer.machines import messages
from shoal.analyzer.machines.cluster import Cluster, ClusterSettings
from shoal.analyzer.machines.comms import connect, over_tls, workers_of
from shoal.analyzer.machines.connection import open_connection
from shoal.analyzer.machines.engine import MachinesDelivery, MachinesExecutor
from shoal.analyzer.machines.messages import Ask, ChunkPart
from shoal.analyzer.machines.sealing import AnalyzerHello, WorkerHello
from shoal.crypto import hpke
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally
from tests.cases import for_each
from tests.conformance.opening.worker_tasks import (
    Rows,
    echo,
    files_of,
    hold_key,
    redeemed_key_id,
    results,
    single_rows,
)
from tests.worlds.machines import Machines, machines
from tests.worlds.services.analyzer import make_world
from tests.worlds.services.analyzer_service import tries

SUITE, CONTEXT = SuiteId.X25519_AES128, SigningContext.WORKER_SESSION


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("machines")) as made:
        yield made


def copies(pid: int, wanted: bytes) -> int:
    """How often bytes are in the memory that a process can write."""
    found = 0
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            first, last = (int(end, 16) for end in place.split("-"))
            if not rights.startswith("rw") or "[v" in line:
                continue
            try:
                memory.seek(first)
                found += memory.read(last - first).count(wanted)
            except OSError:  # gone meanwhile
                continue
    return found


async def register(world: Machines, canary: bytes) -> Any:
    """A worker that tells the scheduler these bytes, as whoever passes a key along would."""
    line = await connect(over_tls(world.address), world.tls.security())
    await line.write(
        {
            "op": "register-worker",
            "reply": False,
            "address": over_tls("127.0.0.1:1"),
            "status": "running",
            "server_id": "canary",
            "nthreads": 1,
            "name": "canary",
            "now": time.time(),
            "resources": {},
            "memory_limit": 0,
            "metrics": {},
            "services": {},
            "local_directory": "",
            "versions": get_versions(),
            "nanny": None,
            "extra": {"key": canary},
            "stimulus_id": "canary",
        }
    )
    for _ in tries():
        if over_tls("127.0.0.1:1") in await workers_of(
            over_tls(world.address), world.tls.security()
        ):
            return line
        await asyncio.sleep(0.05)
    raise AssertionError("the scheduler did not take it")


def told_in(path: Path) -> int:
    """The process that holds the key."""
    for _ in tries():
        if path.exists() and (told := path.read_text()):
            return int(told)
        time.sleep(0.05)
    raise AssertionError("no worker has the key")


async def test_a_lent_key_is_nowhere_but_in_workers_and_there_for_the_loan(
    world: Machines,
) -> None:
    """Memory of the scheduler during the loan and after it, of workers after it and some more
    work, files and logs; rows and what is answered for them too. Controls: a key that is told to
    the scheduler is found there; the key is found in a worker while it opens rows. Planted: a
    module of the worker that keeps what was unsealed -> this fails.
    """
    cluster = world.cluster()
    executor, delivery = MachinesExecutor(cluster), MachinesDelivery(cluster)
    key = hpke.generate(SUITE)
    secret = key.to_raw_secret()
    value, mark = secrets.token_bytes(40), world.folder / "mark"
    row = secrets.token_bytes(40)
    source = Rows(1)
    source.data = [row]
    scheduler = world.scheduler.process.pid
    async with delivery.lend(key) as lent:
        arguments = (SUITE, *lent.arguments())
        await results(executor, redeemed_key_id, arguments, Rows(50), single_rows(50))
        assert await results(executor, echo, (value,), source, single_rows(1)) == [value + row]
        holding = asyncio.create_task(
            results(executor, hold_key, (*lent.arguments(), str(mark)), source, single_rows(1))
        )
        holder = await asyncio.to_thread(told_in, Path(f"{mark}.pid"))
        assert copies(holder, secret) > 0
        assert copies(scheduler, secret) == 0
        mark.touch()
        assert await holding
        for wanted in (secret, value, row):
            assert copies(scheduler, wanted) == 0
    assert copies(scheduler, secret) == 0
    assert copies(scheduler, row) == 0
    # What a worker freed lies about until something else takes its place; what it kept stays.
    for _ in range(20):
        if not any(copies(worker.process.pid, secret) for worker in world.workers):
            break
        async with delivery.lend(hpke.generate(SUITE)) as other:
            arguments = (SUITE, *other.arguments())
            await results(executor, redeemed_key_id, arguments, Rows(50), single_rows(50))
    else:
        raise AssertionError("a worker keeps a key that was taken back")
    written = files_of(world.folder)
    for wanted in (secret, value, row):
        assert wanted not in written
    assert secret.hex().encode() not in written
    control = secrets.token_bytes(32)
    line = await register(world, control)
    try:
        assert copies(scheduler, control) > 0
    finally:
        line.abort()


async def test_whoever_has_no_listed_key_gets_nothing(world: Machines) -> None:
    """A worker that a lying scheduler names has a certificate and a key of its own. Planted: the
    list not looked at -> this fails.
    """
    settings = ClusterSettings(
        over_tls(world.address), world.tls, frozenset({SigningKey.generate().public}), 0.5
    )
    cluster = Cluster(settings, world.analyzer_key)
    async with cluster.looked():
        told = [one.message for one in cluster.conditions() if "does not list" in one.message]
        assert len(told) == len(world.identities)
        assert not cluster.size


async def test_a_worker_works_for_its_analyzer_alone(world: Machines) -> None:
    """Another analyzer with a certificate of the same CA. Planted: its signature not verified ->
    this fails.
    """
    cluster = world.cluster()
    async with cluster.looked():
        addresses = list(cluster._connections)
    stranger = SigningKey.generate()
    one = await open_connection(
        addresses[0], world.tls.security(), stranger, frozenset(world.identities)
    )
    with pytest.raises(ShoalError) as caught:
        await one.ask(Ask.OPEN, ChunkPart(0, 0, 1).to_bytes(), messages.order(echo, (b"",)), b"")
    assert caught.value.kind is Kind.UNAVAILABLE
    await one.close()


async def test_dasks_own_ways_to_run_code_are_shut(world: Machines) -> None:
    """In worker and scheduler. Planted: the handlers left as they come -> this fails."""
    cluster = world.cluster()
    async with cluster.looked():
        addresses = list(cluster._connections)
    for address in (addresses[0], over_tls(world.address)):
        for operation in (
            "run",
            "run_function",
            "plugin-add",
            "update_data",
            "scatter",
            "get_logs",
        ):
            line = await connect(address, world.tls.security())
            await line.write({"op": operation, "reply": True, "function": b"", "close": True})
            told = await asyncio.wait_for(line.read(), 30)
            assert told is None, (address, operation, told)
            line.abort()


HOSTILE = """
from distributed.protocol import core
from shoal.analyzer.machines.comms import disarm, hostile_messages
print([core.loads(frames)["x"] is print for frames in hostile_messages()])
disarm()
for frames in hostile_messages():
    try:
        core.loads(frames)
        print("read")
    except ValueError:
        print("refused")
"""


def test_pickles_of_peers_are_not_read() -> None:
    """Control: before ``disarm`` the same messages become a function."""
    said = subprocess.run(
        [sys.executable, "-c", HOSTILE], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert said.split("\n")[:3] == ["[True, True]", "refused", "refused"]


def test_a_greeting_is_bound_to_everything_in_it() -> None:
    """A public key put in its place, another challenge, another worker, another analyzer; messages
    left out, repeated or sent back. Planted: any of them left out of what is signed -> this fails.
    """
    analyzer, worker = SigningKey.generate(), SigningKey.generate()
    hello = AnalyzerHello(analyzer)
    theirs, another = WorkerHello(worker, hello.challenge), WorkerHello(worker, os.urandom(32))
    impostor = WorkerHello(SigningKey.generate(), hello.challenge)
    for config, signature in (
        (impostor.config, theirs.signature),
        (impostor.config, impostor.signature),
        (another.config, another.signature),
    ):
        with pytest.raises(ShoalError) as caught:
            hello.accept(worker.public, config, signature)
        assert caught.value.kind is Kind.BAD_SIGNATURE
    channel, sealed, signature = hello.accept(worker.public, theirs.config, theirs.signature)
    with pytest.raises(ShoalError):
        theirs.accept(SigningKey.generate().public, sealed, signature)
    with pytest.raises(ShoalError):
        another.accept(analyzer.public, sealed, signature)
    with pytest.raises(ShoalError):  # sealed by somebody who knows the analyzer's public key alone
        theirs.accept(analyzer.public, sealed, SigningKey.generate().sign(CONTEXT, sealed))
    other, _ = theirs.accept(analyzer.public, sealed, signature)
    first, second = channel.seal(b"first"), channel.seal(b"second")
    for wrong in (second, b"", first[:-1], other.seal(b"back")):
        with pytest.raises(ShoalError):
            other.open(wrong)
    assert (other.open(first), other.open(second)) == (b"first", b"second")
    with pytest.raises(ShoalError):
        other.open(second)


def test_a_loan_is_there_until_it_is_taken_back() -> None:
    """Two loans over one connection; one is taken back, then the connection ends. Planted:
    ``give_back`` or ``close`` that forgets nothing -> this fails.
    """
    analyzer, worker = SigningKey.generate(), SigningKey.generate()
    hello = AnalyzerHello(analyzer)
    theirs = WorkerHello(worker, hello.challenge)
    _, sealed, signature = hello.accept(worker.public, theirs.config, theirs.signature)
    _, lent = theirs.accept(analyzer.public, sealed, signature)
    keys = {loan: hpke.generate(SUITE) for loan in (b"1" * 16, b"2" * 16)}
    for loan, key in keys.items():
        lent.take(loan, key.config.key_id.raw, hello.lend(loan, key))
        assert lent.redeem(loan) == key.to_raw_secret()
    first, second = keys
    lent.give_back(first)
    assert (lent.has(first), lent.has(second), lent.any) == (False, True, True)
    assert lent.redeem(second) == keys[second].to_raw_secret()
    with pytest.raises(ShoalError) as caught:
        lent.redeem(first)
    assert caught.value.kind is Kind.UNAVAILABLE
    lent.close()
    assert not lent.any
    with pytest.raises(ShoalError) as caught:
        lent.redeem(second)
    assert caught.value.kind is Kind.UNAVAILABLE


def context() -> RowContext:
    made = make_world()
    key_id = made.keys[0].config.key_id
    return RowContext.of(made.task, made.task_id, 0, key_id, made.row_size())


NOTHING = empty_tally(context())
GOOD_TALLY = NOTHING.to_bytes()
CELLS = (len(GOOD_TALLY) - 13) // 8


def tally(rows: int, cells: int = CELLS, most: int | None = None) -> bytes:
    counts = [rows if most is None else most] + [0] * (cells - 1)
    return (
        b"\x01"
        + rows.to_bytes(8, "big")
        + cells.to_bytes(4, "big")
        + b"".join(count.to_bytes(8, "big") for count in counts)
    )


def opened(rows: int, marks: bytes, nonces: int, **of: int) -> ChunkResult:
    return ChunkResult(tally(rows, **of), marks, bytes(8 * nonces))


LIES: list[tuple[str, object]] = [
    ("too few rows", opened(2, bytes(2), 2)),
    ("too many rows", opened(4, bytes(4), 4)),
    ("a mark that there is not", opened(2, b"\0\0\7", 2)),
    ("fewer nonces than good rows", opened(3, bytes(3), 2)),
    ("a rejected row that is tallied", opened(3, b"\0\0\1", 2)),
    ("a good row that is not", opened(2, bytes(3), 3)),
    ("other cells", opened(3, bytes(3), 3, cells=CELLS + 1)),
    ("more in a cell than rows", opened(3, bytes(3), 3, most=4)),
    (
        "sums where cells are counted",
        ChunkResult(
            Tally(np.zeros(CELLS, dtype=np.int64), 3, weight=9).to_bytes(), bytes(3), bytes(24)
        ),
    ),
    ("no tally", ChunkResult(b"", bytes(3), bytes(24))),
    ("another type", b"bytes"),
]


@for_each(("name", "lie"), LIES)
def test_an_answer_that_cannot_be_true_is_a_mismatch(name: str, lie: object) -> None:
    """Planted: any check left out of ``check_opened`` -> its case fails."""
    check_opened(NOTHING, opened(3, bytes(3), 3), [range(3)])
    check_opened(NOTHING, opened(2, b"\0\2\0", 2), [range(2), range(9, 10)])
    with pytest.raises(ShoalError) as caught:
        check_opened(NOTHING, lie, [range(3)])  # type: ignore[arg-type] # what a worker may send
    assert caught.value.kind is Kind.MISMATCH, name


async def test_a_worker_that_lies_is_named(world: Machines) -> None:
    """In the error and in a condition. Planted: the check not applied to what a worker elsewhere
    answers; no condition -> each fails.
    """

    def never(result: bytes, chunk: object) -> None:
        raise ShoalError(Kind.MISMATCH, "planted")

    cluster = world.cluster()
    executor = MachinesExecutor(cluster)
    lies = executor.over_chunks(echo, (b"",), Rows(9), single_rows(9), never)
    with pytest.raises(ShoalError) as caught:
        await anext(lies)
    assert caught.value.kind is Kind.MISMATCH
    named = [key.hex()[:16] for key in world.identities if key.hex()[:16] in str(caught.value)]
    assert len(named) == 1
    assert set(named) <= {one.subject for one in cluster.conditions()}


@for_each("answer", [b"", b"\x09", b"\x04\0\0\0\x09", b"\x01x", b"\x03", b"\x03\0\0", b"\x05\xff"])
def test_what_is_no_answer_is_a_mismatch(answer: bytes) -> None:
    with pytest.raises(ShoalError) as caught:
        messages.answered(answer)
    assert caught.value.kind is Kind.MISMATCH
