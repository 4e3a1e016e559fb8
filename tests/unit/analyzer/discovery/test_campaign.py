"""From one level to the next: which window is asked what, and when.

Windows are an hour, the first begins at ``START``.
"""

from __future__ import annotations

from shoal.analyzer.discovery.campaign import ReleasedLevel, due_step
from shoal.crypto.discovery_steps import DiscoveryStep, check_step, level_asked
from shoal.ids import Digest
from tests.worlds.services.analyzer import LENGTH, START
from tests.worlds.words import SMALL, words_world

WORLD = words_world()
A, B = bytes((0,)), bytes((1,))
END = bytes((31,))
FOUND_0 = ReleasedLevel(0, (A, B), Digest.of(b"0"))
FOUND_1 = ReleasedLevel(1, (A + B, A + END), Digest.of(b"1"))
FOUND_2 = ReleasedLevel(2, (A + B + A,), Digest.of(b"2"))
LEVEL_1 = SMALL.level(1, [A, B])


def at(window: float) -> float:
    return START + window * LENGTH


def due(
    steps: list[DiscoveryStep],
    released: dict[int, ReleasedLevel],
    now: float,
    lost: set[int] | None = None,
) -> DiscoveryStep | None:
    ended = {*released, *(lost or set())}
    known = {step.window: step for step in steps}
    step = due_step(WORLD.task, WORLD.task_id, known, released, ended, now)
    if step is not None:
        check_step(step, steps, SMALL)  # devices take it
    return step


def made(window: int, level: int, *followed: bytes, release: Digest | None) -> DiscoveryStep:
    asked = SMALL.level(level, followed)
    return DiscoveryStep(WORLD.task_id, window, asked, release)


STEP_1 = made(1, 1, A, B, release=FOUND_0.release)
STEP_2 = made(2, 2, A + B, release=FOUND_1.release)


def test_the_next_level_follows_what_was_released() -> None:
    """Planted: whole words followed too -> INVALID; the release's hash of another one -> fails."""
    assert due([], {}, at(0.2)) is None
    assert due([], {0: FOUND_0}, at(0.9)) == STEP_1
    assert due([], {0: FOUND_0}, at(1.2)) == STEP_1
    assert due([STEP_1], {0: FOUND_0}, at(1.2)) is None
    assert due([STEP_1], {0: FOUND_0, 1: FOUND_1}, at(2.1)) == STEP_2
    end = due([STEP_1, STEP_2], {0: FOUND_0, 1: FOUND_1, 2: FOUND_2}, at(3.1))
    assert end == DiscoveryStep(WORLD.task_id, 3, None, FOUND_2.release)
    assert end is not None
    assert due([STEP_1, STEP_2, end], {0: FOUND_0, 1: FOUND_1, 2: FOUND_2}, at(4.1)) is None


def test_a_window_that_ran_for_half_its_length_is_left_out() -> None:
    """Planted: any window that runs is asked -> 1."""
    late = due([], {0: FOUND_0}, at(1.6))
    assert late is not None
    assert (late.window, late.level) == (2, LEVEL_1)


def test_nothing_left_to_follow_is_the_end() -> None:
    words = ReleasedLevel(1, (A + END,), Digest.of(b"words"))
    end = due([STEP_1], {0: FOUND_0, 1: words}, at(2.1))
    assert end == DiscoveryStep(WORLD.task_id, 2, None, words.release)
    nothing = ReleasedLevel(0, (), Digest.of(b"nothing"))
    end = due([], {0: nothing}, at(1.1))
    assert end == DiscoveryStep(WORLD.task_id, 1, None, nothing.release)


def test_a_withheld_window_is_asked_again_at_once() -> None:
    """Planted: taken for one that is still to come -> None."""
    assert due([], {}, at(1.1), lost={0}) == made(1, 0, release=None)
    again = due([STEP_1], {0: FOUND_0}, at(2.1), lost={1})
    assert again == made(2, 1, A, B, release=FOUND_0.release)


def test_a_window_of_which_nothing_is_heard_is_asked_again_in_the_next_but_one() -> None:
    """Planted: at once -> the first assert fails; never -> the second."""
    assert due([STEP_1], {0: FOUND_0}, at(2.9)) is None
    again = due([STEP_1], {0: FOUND_0}, at(3.1))
    assert again == made(3, 1, A, B, release=FOUND_0.release)


def test_a_release_that_comes_late_counts() -> None:
    """Window 1 was asked again in 3, and was released after all; 3 never is."""
    again = made(3, 1, A, B, release=FOUND_0.release)
    after = due([STEP_1, again], {0: FOUND_0, 1: FOUND_1}, at(5.1))
    assert after == DiscoveryStep(WORLD.task_id, 5, SMALL.level(2, [A + B]), FOUND_1.release)


def test_no_step_beyond_the_last_window_or_outside_of_all() -> None:
    """Planted: the last window taken for one that has a next -> INVALID."""
    last = made(5, 1, A, B, release=FOUND_0.release)
    assert due([last], {0: FOUND_0, 5: FOUND_1}, at(5.9)) is None
    assert due([], {0: FOUND_0}, at(5.6)) is None
    assert due([], {0: FOUND_0}, at(6.1)) is None
    assert due([], {}, at(-1)) is None


def test_steps_that_were_lost_with_a_disk_are_no_reason_to_begin_again() -> None:
    """What was released stands, and says of which level it was. Planted: goes by its steps alone
    -> level 1 again.
    """
    after = due([], {0: FOUND_0, 1: FOUND_1}, at(2.1))
    assert after == STEP_2
    assert due([], {0: FOUND_0, 1: FOUND_1}, at(1.4)) == STEP_2


def test_releases_that_were_lost_with_a_disk_are_no_reason_to_begin_again() -> None:
    """The steps say which level was reached. Planted: goes by its releases alone -> level 0 again,
    which devices refuse.
    """
    again = due([STEP_1], {}, at(2.1), lost={0, 1})
    assert again == made(2, 1, A, B, release=FOUND_0.release)


def test_a_window_without_a_step_asks_nothing() -> None:
    assert level_asked(SMALL, {}, 0) == SMALL.level(0)
    assert level_asked(SMALL, {}, 1) is None
    assert level_asked(SMALL, {1: STEP_1}, 1) == LEVEL_1
