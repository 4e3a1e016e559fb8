"""Frames from prepared key agreements: the same as a device's, each agreement used once, everything
bound to its task.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shoal.clients.core import Assignment, assign, expiry, seal
from shoal.clients.drawing import messages_of, prepare
from shoal.clients.fleet.pool import (
    BLOCK,
    Frames,
    Pool,
    make_frames,
    pool_of_raw,
    prepare_pool,
    seal_frames,
)
from shoal.crypto.admission.enrolled import EnrolledProver, verify_proof
from shoal.crypto.admission.enrolment import enrol
from shoal.crypto.envelope import ACK_KEY_SIZE, open_frame
from shoal.crypto.hpke import generate
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Numeric
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.services.workers import WorkerPool
from tests.cases import for_each
from tests.worlds.devices.clients import START, WEEK, World, make_world

SEED = SeededEntropy("pool")


def assignment_of(world: World) -> Assignment:
    trusted = trust_task(world.signed_task, world.authorities)
    return assign(trusted, trust_schedule(world.signed_schedule, trusted))


def refused(kind: Kind, act: Any) -> str:
    with pytest.raises(ShoalError) as caught:
        act()
    assert caught.value.kind is kind, str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def world() -> World:
    return make_world()


@pytest.fixture(scope="module")
def assignment(world: World) -> Assignment:
    return assignment_of(world)


def of_suite(suite: SuiteId) -> World:
    """A world whose task and both keys are of that suite."""
    world = make_world()
    return World(
        dataclasses.replace(world.task, suite=suite.value),
        world.authority,
        generate(suite),
        generate(suite),
        world.services,
    )


def many_messages(assignment: Assignment, messages: int) -> Assignment:
    """The same task with more messages: no registered randomizer sends more than one yet, the wire
    does.
    """
    trusted = dataclasses.replace(
        assignment.trusted, task=dataclasses.replace(assignment.task, messages=messages)
    )
    return dataclasses.replace(assignment, trusted=trusted)


WORLDS: dict[str, tuple[Callable[[], World], int, int]] = {
    "window 0": (make_world, 0, 1),
    "last window": (make_world, 3, 1),
    "two-byte reports": (lambda: make_world(domain=Numeric(0.0, 1.0, 1_000)), 1, 1),
    "three messages": (make_world, 0, 3),
    "64 messages": (make_world, 2, 64),
    "ChaCha20": (lambda: of_suite(SuiteId.X25519_CHACHA20), 1, 1),
    "post-quantum": (lambda: of_suite(SuiteId.MLKEM768_X25519_AES128), 0, 1),
    "post-quantum, four messages": (lambda: of_suite(SuiteId.MLKEM768_X25519_AES128), 3, 4),
}


@for_each("name", WORLDS)
def test_frames_are_as_a_device_makes_them(name: str) -> None:
    """Length, header and opened content are those of ``core.seal``, but for what is random: in
    windows 0 and above, whatever the protobuf leaves out, for every suite and number of messages.

    Planted: slot of the ack key one byte off; one nonce for all messages of a report; ``number`` of
    ``sealed`` reversed -> each fails.
    """
    make, window, messages = WORLDS[name]
    world, count = make(), 5
    assignment = many_messages(assignment_of(world), messages)
    shape = (count, messages, assignment.task.report_size)
    reports = np.frombuffer(SEED.bytes(int(np.prod(shape))), dtype=np.uint8).reshape(shape)
    frames = seal_frames(assignment, window, reports, prepare_pool(assignment, window, count))
    assert len(frames) == count
    nonces = set()
    for index, report in enumerate(reports):
        alone, ours = seal(assignment, window, messages_of(report)), frames.prepared(index)
        theirs, content = open_frame(world.hop, alone.frame), open_frame(world.hop, ours.frame)
        assert (len(ours.frame), ours.frame[:11], ours.expires_s) == (
            len(alone.frame),
            alone.frame[:11],
            alone.expires_s,
        )
        assert dataclasses.replace(content, ack_key=theirs.ack_key, sealed=theirs.sealed) == theirs
        assert content.ack_key == ours.ack_key == frames.ack_key(index)
        assert [len(message) for message in content.sealed] == [
            len(message) for message in theirs.sealed
        ]
        assert (
            world.reports(ours.frame)
            == world.reports(alone.frame)
            == [message.tobytes() for message in report]
        )
        nonces |= {plain[:16] for plain in world.opened(ours.frame)}
    assert len(nonces) == count * messages
    assert len({frames.ack_key(index) for index in range(count)}) == count
    assert {len(frames.ack_key(index)) for index in range(count)} == {ACK_KEY_SIZE}


def test_reports_come_out_in_the_order_of_their_devices(
    world: World, assignment: Assignment
) -> None:
    """Planted: inner rows assigned in reverse -> this fails."""
    reports = (np.arange(7, dtype=np.uint8)).reshape(7, 1, 1)
    frames = seal_frames(assignment, 1, reports, prepare_pool(assignment, 1, 7))
    assert [world.reports(frames.frame(i)) for i in range(7)] == [[bytes((i,))] for i in range(7)]


def test_every_report_is_a_draw_of_its_own(world: World, assignment: Assignment) -> None:
    """With epsilon0 3 over 7 cells a report tells the truth with probability 0.77: of 60 equal
    values not all, and not none.

    False alarm: 0.77^60 < 1e-6.
    """
    frames = make_frames(
        assignment, 0, [1] * 60, prepare_pool(assignment, 0, 60), SeededEntropy("draws")
    )
    told = [world.reports(frames.frame(i))[0][0] for i in range(60)]
    assert 0 < told.count(1) < 60


def test_an_encapsulation_is_handed_out_once(assignment: Assignment) -> None:
    """All frames of a pool begin differently, and an empty pool says so. Planted: ``take`` that
    returns self -> this fails.
    """
    pool = prepare_pool(assignment, 0, 20)
    parts = [make_frames(assignment, 0, [2] * n, pool) for n in (5, 0, 12)]
    assert (len(pool), sum(map(len, parts))) == (3, 17)
    encs = {part.frame(i)[11:43] for part in parts for i in range(len(part))}
    assert len(encs) == 17
    assert "prepare one per report" in refused(
        Kind.CONFLICT, lambda: make_frames(assignment, 0, [1] * 4, pool)
    )
    assert len(pool) == 3
    refused(Kind.CONFLICT, lambda: pool.take(-1))
    assert len(make_frames(assignment, 0, [1] * 3, pool)) == 3
    assert len(pool) == 0


def test_a_pool_serves_one_task_window_and_schedule(assignment: Assignment) -> None:
    """Nothing is taken where it doesn't fit: a report sealed under another's info would open
    nowhere.

    Planted: the check of ``seal_frames`` removed -> this fails.
    """
    pool = prepare_pool(assignment, 0, 2)
    other, rekeyed = assignment_of(make_world(name="other")), assignment_of(make_world())
    for refusing in (
        lambda: make_frames(assignment, 1, [1], pool),
        lambda: make_frames(other, 0, [1], pool),
    ):
        refused(Kind.MISMATCH, refusing)
    refused(Kind.MISMATCH, lambda: make_frames(rekeyed, 0, [1], pool))
    refused(Kind.INVALID, lambda: make_frames(assignment, 4, [1], pool))
    refused(Kind.INVALID, lambda: prepare_pool(assignment, 4, 1))
    refused(
        Kind.INVALID, lambda: seal_frames(assignment, 0, np.zeros((1, 2, 1), dtype=np.uint8), pool)
    )
    refused(Kind.INVALID, lambda: make_frames(assignment, 0, [1, 1], pool, provers=[]))
    inner, hop = prepare_pool(assignment, 0, 1).layers()
    refused(Kind.INVALID, lambda: Pool(assignment.task_id, 1, 1, inner, hop))
    refused(Kind.INVALID, lambda: Pool(TaskId(bytes(32)), 0, 1, inner, hop))
    refused(Kind.INVALID, lambda: Pool(assignment.task_id, 0, 2, inner, hop))
    refused(Kind.INVALID, lambda: Pool(assignment.task_id, 0, 1, hop, inner))
    assert len(pool) == 2


def test_enrolled_devices_prove_themselves(world: World, assignment: Assignment) -> None:
    """Each frame carries its own device's proof over its own sealed messages. Planted: the first
    proof in every row -> this fails.
    """
    root = SigningKey.generate()
    identities = [enrol(root, START, START + WEEK) for _ in range(3)]
    provers = [EnrolledProver(identity) for identity in identities]
    frames = make_frames(assignment, 0, [1, 2, 3], prepare_pool(assignment, 0, 3), provers=provers)
    alone = prepare(assignment, 0, 1, prover=provers[0])
    assert frames.size == len(alone.frame)
    for index, identity in enumerate(identities):
        content = open_frame(world.hop, frames.frame(index))
        found = verify_proof(
            content.admission, root.public, START + 60.0, assignment.task_id, 0, content.sealed
        )
        assert found == identity.key.public


def test_made_in_processes_and_carried_over(world: World, assignment: Assignment) -> None:
    """Workers make them, progress reaches 1, and a pool that moved to another process left nothing
    behind.
    """
    told: list[float] = []
    workers = WorkerPool(1)
    try:
        pool = prepare_pool(assignment, 0, 1_500, workers, progress=told.append)
    finally:
        workers.close()
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(told) == 4  # two chunks per layer
    raw = pool.move_raw()
    assert len(pool) == 0
    # our own bytes
    again = pool_of_raw(assignment.task_id, 0, 1, pickle.loads(pickle.dumps(raw)))  # noqa: S301
    assert len(again) == 1_500
    frames = make_frames(assignment, 0, [1] * BLOCK, again)
    assert len({frames.frame(i)[11:43] for i in range(BLOCK)}) == BLOCK
    assert world.reports(frames.frame(BLOCK - 1))
    refused(Kind.INVALID, lambda: pool_of_raw(assignment.task_id, 1, 2, again.move_raw()))


def test_secrets_stay_inside(assignment: Assignment) -> None:
    """Planted: ``__reduce__`` of Pool removed; repr=False of Frames.ack_keys removed -> fails."""
    pool = prepare_pool(assignment, 0, 2)
    assert repr(pool) == f"<Pool for 2 devices of task {assignment.task_id.short}, window 0>"
    for act in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="on purpose"):
            act(pool)
    frames = Frames(assignment.task_id, 0, 512, expiry(assignment.task, 0), bytes(512), b"k" * 32)
    assert "kkk" not in repr(frames)
