"""An analyzer goes from level to level by what is in its store."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.analyzer.core import WITHHELD_NOT_ASKED
from shoal.analyzer.discovery.steps import DiscoverySteps
from shoal.analyzer.records import StoredRelease
from shoal.analyzer.results.release import prepare
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.clock import FakeClock
from shoal.crypto.discovery_steps import SignedStep, check_step, trust_step
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.questions.spelling import ANOTHER
from tests.worlds.services.analyzer import LENGTH, START, World
from tests.worlds.words import SMALL, found_in, store_release, words_world

WORDS = ("cat",) * 150 + ("cow",) * 120 + ("the",) * 100 + ("x",) * 30


class Desk:
    """A store, and the steps that are made of it; again after a restart."""

    def __init__(self, folder: Path, world: World) -> None:
        self.folder, self.world, self.clock = folder, world, FakeClock(START + 1.0)
        world.write(folder)
        self.given_up: set[int] = set()
        self.store = AnalyzerStore(folder / FILE_NAME)
        self.restart()

    def restart(self, steps: str = "steps") -> None:
        tasks = AnalyzerTasks(
            self.folder / "tasks", {self.world.authority.public}, self.world.analyzer.public
        )
        self.steps = DiscoverySteps(
            self.folder / steps,
            self.store,
            tasks,
            self.world.analyzer,
            self.clock,
            self._given_up,
        )

    def _given_up(self, _: TaskId) -> set[int]:
        return self.given_up

    def last(self) -> SignedStep | None:
        data = self.steps.last(self.world.served)
        if data is None:
            return None
        return trust_step(data, self.world.task, self.world.task_id)

    def release(self, window: int, words: tuple[str, ...] = WORDS) -> bytes:
        """What devices answer in a window, released."""
        level = self.steps.level(self.world.served, window) or SMALL.level(0)
        prepared = found_in(self.world, level, words, window)
        return store_release(self.store, self.world, prepared)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, words_world())


def test_a_discovery_from_its_first_level_to_its_end(desk: Desk) -> None:
    """Each step names the release that it follows. Planted: a step before its release -> the
    first; no step for the end -> the last.
    """
    told = list[tuple[int, int | None, int]]()
    for window in range(3):
        desk.steps.look()
        step = desk.last()
        assert (window == 0) == (step is None)
        release = desk.release(window)
        desk.clock.advance(LENGTH)
        desk.steps.look()
        step = desk.last()
        assert step is not None
        assert step.step.release == Digest.of(release)
        level = step.step.level
        number, followed = (None, 0) if level is None else (level.number, len(level.followed))
        told.append((step.step.window, number, followed))
    assert told == [(1, 1, 3), (2, 2, 3), (3, None, 0)]
    found = to_json(decode_release(release))
    assert [row["label"] for row in found["estimates"]] == ["cat…", "cow…", "the…", ANOTHER]
    assert found["discovered"]["whole"] == [False] * 3


def test_a_restart_or_a_lost_folder_asks_the_same(desk: Desk) -> None:
    """Ed25519 signs the same bytes the same way, so even a step that is made anew is the one that
    devices have. Planted: a salt in a step -> fails.
    """
    desk.release(0)
    desk.clock.advance(LENGTH)
    desk.steps.look()
    first = desk.last()
    for folder in ("steps", "elsewhere"):
        desk.restart(folder)
        desk.steps.look()
        assert desk.last() == first


def test_a_window_that_was_given_up_is_asked_again(desk: Desk) -> None:
    """Planted: given up taken for still to come -> no step."""
    desk.given_up = {0}
    desk.clock.advance(LENGTH)
    desk.steps.look()
    step = desk.last()
    assert step is not None
    assert (step.step.window, step.step.level, step.step.release) == (1, SMALL.level(0), None)


def test_no_step_is_made_by_a_clock_that_is_disputed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: ``now`` in place of ``decide`` -> fails."""
    desk.release(0)
    desk.clock.advance(LENGTH)
    monkeypatch.setattr(desk.clock, "decide", lambda: None)
    desk.steps.look()
    assert desk.last() is None


def test_a_window_that_was_asked_nothing_is_withheld(desk: Desk) -> None:
    """Whoever answers it all the same is no honest device. Planted: taken for level 0 -> told."""
    made = found_in(desk.world, SMALL.level(0), WORDS, 4)
    assert made.withheld is None
    prepared = prepare(desk.world.served, made.batch, made.opened, None)
    assert prepared.withheld == WITHHELD_NOT_ASKED
    assert prepared.estimate is None
    assert prepared.found is None


def test_a_release_is_looked_for_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks come every second, and one reads all releases: also where a window published nothing.
    Planted: only what was published is remembered -> a read at each look.
    """
    made = found_in(desk.world, SMALL.level(0), WORDS, 0)
    store_release(desk.store, desk.world, replace(made, withheld="few", estimate=None, found=None))
    reads, read = list[int](), desk.store.releases

    def counted() -> list[StoredRelease]:
        reads.append(1)
        return read()

    monkeypatch.setattr(desk.store, "releases", counted)
    desk.clock.advance(LENGTH)
    for _ in range(3):
        desk.steps.look()
    step = desk.last()
    assert step is not None
    assert (step.step.window, step.step.level) == (1, SMALL.level(0))
    assert len(reads) == 1


def test_a_batch_that_answers_another_question_waits_for_its_step(tmp_path: Path) -> None:
    """The analyzer's folder is restored from before it asked window 1: by now that window asks
    something else by it, and devices answered what they were told before. It is not counted, nor
    withheld for good: with the step put back it is released. Planted: the name in the manifest not
    looked at -> answers of one level are counted as those of another, fails.
    """
    desk = Desk(tmp_path, words_world())
    desk.release(0)
    desk.clock.advance(LENGTH)
    desk.steps.look()
    step, world = desk.last(), desk.world
    assert step is not None
    assert step.step.level is not None

    def counted(asked: bytes) -> str | None:
        batch = world.batch([b""] * 400, 1, reports=400, asked=asked)
        level = desk.steps.level_of(world.served, batch.manifest)
        made = found_in(world, SMALL.level(0), WORDS, 1, asked=asked)
        return prepare(world.served, made.batch, made.opened, level).withheld

    assert counted(step.name.raw) is None
    assert counted(b"") is None  # of a shuffler that says nothing of it
    assert list(desk.steps.conditions()) == []
    with pytest.raises(ShoalError):
        counted(bytes(32))
    assert len(list(desk.steps.conditions())) == 1
    assert counted(step.name.raw) is None  # of another batch of that window
    assert list(desk.steps.conditions()) == []
    desk.restart("restored")
    for asked in (bytes(32), step.name.raw):
        with pytest.raises(ShoalError) as unknown:
            counted(asked)
        assert unknown.value.kind is Kind.MISMATCH
        (condition,) = desk.steps.conditions()
        assert not condition.stops
        assert str(tmp_path / "restored") in condition.message
    shutil.copytree(tmp_path / "steps", tmp_path / "restored")
    desk.restart("restored")
    assert counted(step.name.raw) is None
    assert list(desk.steps.conditions()) == []


def test_no_condition_is_left_of_a_window_that_is_over(desk: Desk) -> None:
    """Given up, or beyond its retention. Planted: it stays -> fails."""
    batch = desk.world.batch([b""] * 400, 1, reports=400, asked=bytes(32))
    with pytest.raises(ShoalError):
        desk.steps.level_of(desk.world.served, batch.manifest)
    assert len(list(desk.steps.conditions())) == 1
    desk.release(1)
    assert list(desk.steps.conditions()) == []


def test_with_its_steps_an_older_copy_goes_on_where_devices_are(tmp_path: Path) -> None:
    """The copy has no release at all, and window 1 was asked level 1 since. By itself the analyzer
    would ask level 0 again, which follows from nothing that devices were told. With the shuffler's
    files it waits for window 1, and asks level 2 of what that released. Planted: the first window
    that was not released is asked again, whatever is known to be asked -> fails.
    """
    desk = Desk(tmp_path, words_world())
    desk.release(0)
    desk.clock.advance(LENGTH)
    desk.steps.look()
    told = desk.last()
    assert told is not None
    (tmp_path / "older").mkdir()
    older = Desk(tmp_path / "older", desk.world)
    older.clock.advance(2.6 * LENGTH)
    older.given_up = {0}  # as what may be lost since
    older.steps.look()
    other = older.last()
    assert other is not None
    assert other.step.level == SMALL.level(0)
    with pytest.raises(ShoalError):
        check_step(other.step, [told.step], SMALL)
    mended = Desk(tmp_path / "older", desk.world)
    shutil.rmtree(tmp_path / "older" / "steps")
    shutil.copytree(tmp_path / "steps", tmp_path / "older" / "steps")
    mended.clock.advance(1.9 * LENGTH)
    mended.steps.look()
    assert mended.last() == told
    mended.release(1)
    mended.steps.look()
    step = mended.last()
    assert step is not None
    assert step.step.level is not None
    assert step.step.level.number == 2
    check_step(step.step, [told.step], SMALL)
