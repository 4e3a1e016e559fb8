"""An enrolled device of a discovery with fresh devices draws its window by its key: the same one
whatever becomes of its memory.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from shoal.clients.agent import Agent
from shoal.clients.core import Assignment, ReportState, assign
from shoal.clients.memory.commitments_memory import MemoryCommitments
from shoal.clients.memory.device_memory import Memory
from shoal.clients.owner.policy import Policy
from shoal.clients.reports.own_window import OwnWindow, draw_window
from shoal.clients.settings.config import AgentConfig, EnrolmentFiles
from shoal.clocks.clock import FakeClock
from shoal.crypto.admission.enrolment import DeviceIdentity, enrol
from shoal.crypto.admission.fresh_window import fresh_window
from shoal.crypto.admission.members import verifier_of
from shoal.crypto.envelope import HopContent, open_frame
from shoal.crypto.keyfiles import save_signing_key
from shoal.crypto.signing import SigningKey
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.entropy import SYSTEM, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.task import Admission
from tests.worlds.services.analyzer import LENGTH, START, World
from tests.worlds.words import SMALL, step_of, words_world

FRESH = replace(SMALL, fresh=True)
WINDOWS = 6
ROOT = SigningKey.generate()


def world(admission: Admission = Admission.ENROLLED) -> World:
    return _made(admission)


@cache
def _made(admission: Admission) -> World:
    task = words_world(FRESH, WINDOWS).task
    enrolled = admission is Admission.ENROLLED
    key = ROOT.public if enrolled else b""
    return World(replace(task, admission=admission, enrolment_key=key))


def assignment(admission: Admission = Admission.ENROLLED) -> Assignment:
    made = world(admission)
    trusted = trust_task(made.signed_task, {made.authority.public})
    return assign(trusted, trust_schedule(made.signed_schedule, trusted))


def device(until: int = START + 9 * LENGTH) -> DeviceIdentity:
    return enrol(ROOT, int(START) - 100, int(until))


def config_of(folder: Path, files: EnrolmentFiles | None = None) -> AgentConfig:
    policy = Policy(
        frozenset({world().authority.public}), 4.0, 2, {world().task.purpose: "allowed"}
    )
    return AgentConfig(folder / "tasks", folder / "memory" / "outbox.db", policy, enrolment=files)


def drawn(folder: Path, me: DeviceIdentity) -> int | None:
    """By a memory on disk, of which nothing was kept but what is in the folder."""
    config = config_of(folder)
    config.outbox.parent.mkdir(exist_ok=True)
    memory = Memory(config, FakeClock(START), SYSTEM)
    try:
        assert memory.forgetful() is None
        own = draw_window(assignment(), memory.commitments, SYSTEM, START, me)
        assert own is not None
        memory.settle()
        return own.window
    finally:
        memory.close()


def test_a_wiped_device_with_its_key_draws_the_same_window(tmp_path: Path) -> None:
    """Ten devices, whose memory and head are gone between two draws; nothing there says so.
    Planted: drawn at random -> all ten draw the same again with a chance of 6^-10.
    """
    for number in range(10):
        me, folder = device(), tmp_path / str(number)
        folder.mkdir()
        first = drawn(folder, me)
        assert first == fresh_window(me.key, assignment().task_id, WINDOWS)
        shutil.rmtree(folder / "memory")
        assert drawn(folder, me) == first


async def test_a_shuffler_is_shown_the_same_device_in_the_same_window(tmp_path: Path) -> None:
    """So it takes one of the reports: the tag of both is one, and so is the window. In every other
    window the device is not asked, before and after. Planted: drawn at random -> another window is
    answered, in five of six runs.
    """
    me, clock = device(), FakeClock(START)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "words.task").write_bytes(world().signed_task)
    (tmp_path / "tasks" / "words.keys").write_bytes(world().signed_schedule)
    files = EnrolmentFiles(tmp_path / "device.cert", tmp_path / "device.key")
    save_signing_key(files.key, me.key)
    files.certificate.write_bytes(me.certificate)
    config, shown = config_of(tmp_path, files), list[tuple[int, bytes]]()
    for _ in range(2):
        config.outbox.parent.mkdir()
        for window in range(WINDOWS):
            clock.time = float(START + window * LENGTH)
            async with Agent(config, background=False, clock=clock) as agent:
                await agent.accept("words")
                for later in range(1, WINDOWS):
                    agent.tasks.step(step_of(world(), later, FRESH.level(0), None).data)
                outcome = await agent.report("words", "cat", send=False)
                if outcome.state is ReportState.NOT_ASKED:
                    continue
                asked = agent.tasks.find("words")
                entry = agent.memory.outbox.load(asked.task_id, window)
                assert entry is not None
                content = open_frame(world().hop, entry.frame)
                shown.append((window, tag_of(content)))
        shutil.rmtree(config.outbox.parent)
    own = fresh_window(me.key, assignment().task_id, WINDOWS)
    assert shown == [(own, me.key.public)] * 2


def tag_of(content: HopContent) -> bytes:
    """As a shuffler finds it."""
    verifier = verifier_of(world().task)
    return verifier.verify(
        content.admission, content.task_id, content.window, content.sealed, START
    )


def test_a_draw_that_is_known_stands() -> None:
    """Made at random by an earlier version, say. Planted: the key asked first -> another window."""
    me, asked = device(), assignment()
    of_key = fresh_window(me.key, asked.task_id, WINDOWS)
    memory = MemoryCommitments()
    memory.choose(asked.task_id, ((of_key + 1) % WINDOWS).to_bytes(4, "big"))
    own = draw_window(asked, memory, SYSTEM, START, me)
    assert own == OwnWindow((of_key + 1) % WINDOWS)


@pytest.mark.parametrize("until", [None, int(START) - 1])
def test_who_can_not_show_a_key_draws_nothing(until: int | None) -> None:
    """No certificate, or one that has ended: a draw at random would be another one than that of the
    key which comes. Planted: drawn at random -> a choice is kept.
    """
    me = None if until is None else device(until)
    memory = MemoryCommitments()
    with pytest.raises(ShoalError) as refused:
        draw_window(assignment(), memory, SYSTEM, START, me)
    assert refused.value.kind is Kind.CONFIG
    assert memory.choice(assignment().task_id) is None
    assert not memory.entries()


def test_where_anybody_is_admitted_no_key_is_asked() -> None:
    """The shuffler must not learn who answers, and the draw is the memory's. Planted: by the key
    all the same -> one window of twenty draws.
    """
    me, asked, entropy = device(), assignment(Admission.OPEN), SeededEntropy("anybody")
    owns = {draw_window(asked, MemoryCommitments(), entropy, START, me) for _ in range(20)}
    assert len(owns) > 1
