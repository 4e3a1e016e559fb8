"""What a device of a discovery draws and sends in a window: an answer to what that window asks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.clients.core import Assignment, assign
from shoal.clients.drawing import encode, prepare, reports_of
from shoal.clients.feeds.known_tasks import KnownTasks
from shoal.clients.memory.outbox import MemoryOutbox
from shoal.clients.owner.policy import Policy
from shoal.crypto.envelope import open_frame, open_report, report_info
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.questions.discovery import DiscoveryLevel
from tests.flipped import last_bit_flipped
from tests.worlds.services.analyzer import LENGTH, START, World
from tests.worlds.words import RELEASE, SMALL, step_of, words_world

WORLD = words_world()
FOLLOWED = [b"\x02", b"\x13"]
LEVEL = SMALL.level(1, FOLLOWED)


def assignment_of() -> Assignment:
    trusted = trust_task(WORLD.signed_task, {WORLD.authority.public})
    return assign(trusted, trust_schedule(WORLD.signed_schedule, trusted))


def told(assignment: Assignment, window: int, level: DiscoveryLevel | None) -> Assignment:
    assignment.steps[window] = step_of(WORLD, window, level)
    return assignment


def known(folder: Path, outbox: MemoryOutbox | None = None) -> KnownTasks:
    (folder / "tasks").mkdir(exist_ok=True)
    (folder / "tasks" / "words.task").write_bytes(WORLD.signed_task)
    (folder / "tasks" / "words.keys").write_bytes(WORLD.signed_schedule)
    policy = Policy(frozenset({WORLD.authority.public}), 4.0, 2)
    tasks = KnownTasks(folder / "tasks", policy, outbox or MemoryOutbox(), folder / "learnt")
    tasks.refresh()
    return tasks


def test_a_window_is_answered_as_it_asks() -> None:
    """Half of the devices have "cat", half "the": of 400 reports the two cells of each level have
    200 true messages and dummies. Planted: level 0 in every window -> fails.
    """
    assignment = told(assignment_of(), 1, LEVEL)
    words = ["cat", "the"] * 200
    for window, cells in ((0, (2, 19)), (1, (0, 32 + 7))):
        messages = Counter(
            int.from_bytes(message, "big")
            for report in reports_of(assignment, words, SeededEntropy("draw"), window)
            for message in report
        )
        assert max(messages) < (32 if window == 0 else LEVEL.size)
        assert {cell for cell, count in messages.items() if count >= 200} == set(cells)
    assert [encode(assignment, word, window=1) for word in ("car", "xyz", None)] == [0, 64, 64]


def test_no_answer_before_a_window_is_known_or_after_the_end() -> None:
    """Planted: level 0 where nothing is known -> drawn."""
    assignment = told(told(assignment_of(), 1, LEVEL), 3, None)
    prepare(assignment, 1, "cat")
    for window, kind in ((2, Kind.UNAVAILABLE), (3, Kind.WINDOW_CLOSED), (4, Kind.WINDOW_CLOSED)):
        with pytest.raises(ShoalError) as refused:
            prepare(assignment, window, "cat")
        assert refused.value.kind is kind
        assert "words" in refused.value.message


def test_a_report_says_which_question_it_answers() -> None:
    """In the place of its task, and to the shuffler alone. Planted: the task's id in every window
    -> fails.
    """
    step = step_of(WORLD, 1, LEVEL)
    assignment = told(assignment_of(), 1, LEVEL)
    for window, name in ((0, WORLD.task_id), (1, step.name)):
        made = prepare(assignment, window, "cat")
        content = open_frame(WORLD.hop, made.frame)
        assert (content.task_id, content.window, made.task_id) == (name, window, WORLD.task_id)
        for sealed in content.sealed:
            info = report_info(WORLD.task_id, window, WORLD.keys[window].config.key_id)
            assert open_report(WORLD.keys[window], info, sealed)
    other = step_of(WORLD, 1, SMALL.level(1, FOLLOWED[:1]))
    assert len({WORLD.task_id, step.name, other.name}) == 3


def test_steps_are_kept_beside_the_tasks(tmp_path: Path) -> None:
    """Planted: steps in memory alone -> the second agent does not know window 1."""
    tasks = known(tmp_path)
    now = START + LENGTH + 1.0
    (one,) = tasks.all()
    assert tasks.awaits(now)
    assert not tasks.awaits(START + 1.0)
    with pytest.raises(ShoalError) as waits:
        tasks.check_open(one, now)
    assert waits.value.kind is Kind.UNAVAILABLE
    assert tasks.step(step_of(WORLD, 1, LEVEL).data)
    assert not tasks.step(step_of(WORLD, 1, LEVEL).data)
    for again in (tasks, known(tmp_path)):
        (one,) = again.all()
        again.check_open(one, now)
        assert one.level(1) == LEVEL
        assert not again.awaits(now)


def test_two_steps_for_one_window_end_the_task(tmp_path: Path) -> None:
    """Also where the second comes after a restart. Planted: no strike -> the task is there."""
    outbox = MemoryOutbox()
    assert known(tmp_path, outbox).step(step_of(WORLD, 1, LEVEL).data)
    tasks = known(tmp_path, outbox)
    with pytest.raises(ShoalError) as refused:
        tasks.step(step_of(WORLD, 1, SMALL.level(1, FOLLOWED[:1])).data)
    assert refused.value.kind is Kind.CONFLICT
    assert tasks.all() == []
    tasks.refresh()
    assert tasks.all() == []
    assert known(tmp_path, outbox).all() == []


def test_steps_of_others_are_nothing_to_this_device(tmp_path: Path) -> None:
    """Planted: a step that this device can't judge is kept -> a file."""
    tasks, stranger = known(tmp_path), words_world()
    assert not tasks.step(step_of(stranger, 1, LEVEL).data)
    true = step_of(WORLD, 1, LEVEL, RELEASE).data
    forged = last_bit_flipped(true)
    with pytest.raises(ShoalError) as refused:
        tasks.step(forged)
    assert refused.value.kind is Kind.BAD_SIGNATURE
    assert len(tasks.all()) == 1
    assert not (tmp_path / "learnt").exists()


def test_a_clock_ten_days_off_answers_no_question_of_another_window(tmp_path: Path) -> None:
    """Windows of a week, in the third one: a device ahead is in a window of which it knows nothing,
    and draws nothing; one behind is in one that is over, and its report names that one's question.
    Planted: the last step that is known taken for every later window -> it answers, fails.
    """
    week, ten_days = 7 * 86_400, 10 * 86_400.0
    plan = replace(WORLD.task.windows, length_s=week)
    world = World(replace(WORLD.task, windows=plan, retention_s=20 * week), WORLD.authority)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "words.task").write_bytes(world.signed_task)
    (tmp_path / "tasks" / "words.keys").write_bytes(world.signed_schedule)
    policy = Policy(frozenset({world.authority.public}), 4.0, 2)
    tasks = KnownTasks(tmp_path / "tasks", policy, MemoryOutbox(), tmp_path / "learnt")
    tasks.refresh()
    for window, level in ((1, LEVEL), (2, SMALL.level(2, [b"\x02\x00"]))):
        tasks.step(step_of(world, window, level).data)
    (assignment,) = tasks.all()
    now = float(plan.start_of(2) + 5 * 86_400)
    tasks.check_open(assignment, now)
    with pytest.raises(ShoalError) as ahead:
        tasks.check_open(assignment, now + ten_days)
    assert ahead.value.kind is Kind.UNAVAILABLE
    assert plan.current(now - ten_days) == 1
    tasks.check_open(assignment, now - ten_days)
    assert assignment.level(1) == LEVEL
