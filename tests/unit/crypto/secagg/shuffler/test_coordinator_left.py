"""Which seats a round names at its end because they let a phase pass."""

from __future__ import annotations

import pytest

from shoal.crypto.secagg.records import Reason
from tests.cases import for_each
from tests.worlds.rounds.secagg import Play, Step, World

WORLD = World(5)


def session(play: Play, number: int) -> bytes:
    return play.devices[number].session


@for_each(
    "fates, reason, left",
    [
        ([Step.SHARE, Step.NONE, Step.NONE, Step.NONE, Step.NONE], None, {0}),
        ([Step.MASK, Step.NONE, Step.NONE, Step.NONE, Step.NONE], None, {0}),
        (
            [Step.SHARE, Step.SHARE, Step.SHARE, Step.NONE, Step.NONE],
            Reason.TOO_FEW_SHARED,
            {0, 1, 2},
        ),
        (
            [Step.MASK, Step.MASK, Step.MASK, Step.NONE, Step.NONE],
            Reason.TOO_FEW_VECTORS,
            {0, 1, 2},
        ),
        ([Step.UNMASK, Step.NONE, Step.NONE, Step.NONE, Step.NONE], None, set()),
    ],
)
def test_who_left_is_known_at_the_end(
    fates: list[Step], reason: Reason | None, left: set[int]
) -> None:
    """Planted: every seat of an aborted round named -> the two that were there all the time are
    among them.
    """
    play = Play(WORLD, fates).run()
    assert play.coordinator.ended
    assert play.coordinator.reason is reason
    assert play.coordinator.left == {session(play, number) for number in left}


@pytest.mark.parametrize("step", [Step.JOIN, Step.SHARE, Step.MASK])
def test_nobody_is_late_in_a_phase_that_was_cut_short(step: Step) -> None:
    """Planted: the phase that a restart ends taken for over -> whoever had not sent yet would have
    left.
    """
    play = Play(WORLD).run_to(step)
    play.coordinator.failed(Reason.RESTARTED)
    assert play.coordinator.left == frozenset()
