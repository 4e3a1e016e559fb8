"""Every course that a small discovery can take: each window is released, released late, withheld,
given up or lost. Whatever comes, it gets on as fast as its windows let it, or ends with what was
found so far.

Devices hold every step against all that they were told before (``check_step``), so each course is
also looked at with their eyes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise, product

from shoal.analyzer.discovery.campaign import ReleasedLevel, due_step
from shoal.analyzer.discovery.progress import Stand, progress
from shoal.crypto.discovery_steps import DiscoveryStep, check_step, level_asked
from shoal.errors import ShoalError
from shoal.ids import Digest
from tests.sizes import FULL, size
from tests.worlds.words import SMALL, words_world

WINDOWS = size(5, 6)
WORLD = words_world(windows=WINDOWS)
PLAN = WORLD.task.windows
CHECKS = (0.1, 0.4, 0.6, 0.9)  # of a window: when the analyzer looks
BEGINNINGS = {0: (b"\x00", b"\x01"), 1: (b"\x00\x01", b"\x01\x02"), 2: (b"\x00\x01\x00",)}


class Fate(Enum):
    """What becomes of a window that was asked something: windows after its end until it is known,
    and whether it tells anything. Of a lost one nothing is ever heard.
    """

    RELEASED = (0.05, True)
    LATE = (0.8, True)  # too late for the next window
    VERY_LATE = (2.3, True)  # asked again by then
    WITHHELD = (0.05, False)  # or given up
    LOST = (float("inf"), False)


@dataclass
class Course:
    """``steps``: that were told. ``forgets``: the window in which the analyzer loses them."""

    fates: tuple[Fate, ...]
    forgets: int | None = None
    steps: dict[int, DiscoveryStep] = field(default_factory=dict)
    refused: int = 0

    def run(self) -> None:
        """To the end of all windows, with a look at every moment."""
        known = dict[int, DiscoveryStep]()
        for hours in moments():
            if self.forgets is not None and hours == self.forgets + CHECKS[0]:
                known.clear()
            released, ended = self.heard(hours)
            step = due_step(WORLD.task, WORLD.task_id, known, released, ended, at(hours))
            if step is not None:
                assert step.window > hours - 0.5
                known[step.window] = step
                self._tell(step)
            if self.forgets is None:
                self._stands(known, hours)

    def _tell(self, step: DiscoveryStep) -> None:
        """To the shuffler, which keeps the first of each window, if it follows."""
        try:
            check_step(step, self.steps.values(), SMALL)
        except ShoalError:
            self.refused += 1
            return
        self.steps[step.window] = step

    def heard(self, hours: float) -> tuple[dict[int, ReleasedLevel], set[int]]:
        """What is released by then, and which windows are over, for the analyzer."""
        released, ended = dict[int, ReleasedLevel](), set[int]()
        for window, fate in enumerate(self.fates):
            after, tells = fate.value
            asked = level_asked(SMALL, self.steps, window)
            if asked is None or hours < window + 1 + after:
                continue
            ended.add(window)
            if tells:
                digest = Digest.of(str(window).encode())
                released[window] = ReleasedLevel(asked.number, BEGINNINGS[asked.number], digest)
        return released, ended

    def _stands(self, known: dict[int, DiscoveryStep], hours: float) -> None:
        """What a person is told fits what is asked."""
        released, ended = self.heard(hours)
        withheld = dict.fromkeys(ended - released.keys(), "too few")
        over = any(found.level == SMALL.levels - 1 for found in released.values())
        told = progress(WORLD.task, known, released, withheld, at(hours), over=over)
        assert len(told.withheld) == len(withheld)
        running = level_asked(SMALL, known, int(hours))
        ends = over or any(step.is_over for step in known.values())
        if ends:
            assert told.stand is Stand.OVER
        elif running is not None and int(hours) < WINDOWS and int(hours) not in ended:
            assert told.stand is Stand.ASKED
        elif hours > WINDOWS + 3:
            assert told.stand is Stand.RAN_OUT

    @property
    def levels(self) -> list[int]:
        """That were asked, by window, the end left out."""
        asked = (level_asked(SMALL, self.steps, window) for window in range(WINDOWS))
        return [one.number for one in asked if one is not None]

    @property
    def is_over(self) -> bool:
        """Whether devices were told so."""
        return any(step.is_over for step in self.steps.values())


def at(hours: float) -> float:
    return PLAN.start_s + hours * PLAN.length_s


def moments() -> Iterator[float]:
    for window in range(WINDOWS + 5):
        for part in CHECKS:
            yield window + part


COURSES = list(product(Fate, repeat=WINDOWS))


def test_every_course_gets_on_or_ends_with_what_was_found() -> None:
    """No step is refused by devices. A level is asked when the one before is released, and no
    level twice without a reason. Every window that tells nothing costs one window, a late one or a
    lost one two at most, and so does the wait for a very late one.

    Planted: a silent window never given up -> the number of windows fails; a level asked again
    with other beginnings, or the next one before its release -> refused, fails; a window asked
    that has run for half -> fails; what is late
    taken for lost -> a level is asked twice, fails.
    """
    costs = {Fate.RELEASED: 1, Fate.LATE: 2, Fate.VERY_LATE: 2, Fate.WITHHELD: 1, Fate.LOST: 2}
    for fates in COURSES:
        course = Course(fates)
        course.run()
        assert course.refused == 0, fates
        assert course.levels == sorted(course.levels), fates
        windows = [0, *sorted(course.steps)]
        for window, later in pairwise(windows):
            assert later - window <= costs[fates[window]], fates
            if fates[window] in (Fate.RELEASED, Fate.LATE):
                asked, then = (level_asked(SMALL, course.steps, one) for one in (window, later))
                assert asked is not None
                assert then is None or then.number == asked.number + 1, fates
        released, _ = course.heard(1e9)
        done = {found.level for found in released.values()}
        assert {*course.levels} - {max(course.levels)} <= done, fates
        reached = fates[: SMALL.levels] == (Fate.RELEASED,) * SMALL.levels
        assert course.is_over or not reached, fates
        last = windows[-1]
        if not course.is_over:  # its windows ran out
            assert last + costs[fates[last]] >= WINDOWS - 1, fates


def test_no_course_asks_a_window_otherwise_where_the_analyzer_forgets() -> None:
    """It loses its steps in some window, and keeps its releases. What it makes then is what was
    told, or follows from that: no device and no shuffler refuses it.

    Planted: steps made of the steps alone, without the releases -> refused, fails.
    """
    for place, fates in enumerate(COURSES[:: 1 if FULL else 3]):
        for forgets in range(1, WINDOWS) if FULL else [1 + place % (WINDOWS - 1)]:
            course = Course(fates, forgets)
            course.run()
            assert course.refused == 0, (fates, forgets)
