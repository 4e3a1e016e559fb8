"""How a discovery stands, at any moment of its windows."""

from __future__ import annotations

from dataclasses import replace

from shoal.analyzer.discovery.progress import Stand, progress
from shoal.crypto.discovery_steps import DiscoveryStep
from shoal.domain import Discovery
from shoal.ids import Digest
from tests.cases import for_each
from tests.worlds.words import SMALL, words_world

WORLD = words_world(windows=4)
TASK, PLAN = WORLD.task, WORLD.task.windows
HOUR = float(PLAN.length_s)


def step(window: int, level: int | None) -> DiscoveryStep:
    asked = None if level is None else SMALL.level(level, [b"\x02"] if level else [])
    return DiscoveryStep(WORLD.task_id, window, asked, Digest.of(b"release"))


ASKED = {1: step(1, 1)}


@for_each(
    "hours, steps, released, withheld, stand, said",
    [
        (0.5, {}, [], {}, Stand.ASKED, "window 0 asks level 0"),
        (1.9, {}, [], {}, Stand.AWAITED, "window 0 asked level 0"),
        (0.9, {}, [0], {}, Stand.NEXT, "a later window"),
        (0.9, ASKED, [0], {}, Stand.NEXT, "window 1 asks level 1, from"),
        (1.5, ASKED, [0], {}, Stand.ASKED, "window 1 asks level 1, until"),
        (2.5, ASKED, [0], {}, Stand.AWAITED, "window 1 asked level 1"),
        (2.5, ASKED, [0], {1: "too few"}, Stand.NEXT, "a later window"),
        (3.9, ASKED, [0, 1], {}, Stand.RAN_OUT, "4 windows are over"),
        (9.0, ASKED, [0], {}, Stand.RAN_OUT, "window 1 may still be released"),
        (9.0, ASKED, [0], {1: "too few"}, Stand.RAN_OUT, "not all levels were asked"),
        (9.0, {**ASKED, 3: step(3, None)}, [0, 1], {}, Stand.OVER, "nothing is left"),
    ],
)
def test_how_it_stands(
    hours: float,
    steps: dict[int, DiscoveryStep],
    released: list[int],
    withheld: dict[int, str],
    stand: Stand,
    said: str,
) -> None:
    """Planted: a window that is withheld waited for -> awaited, fails; a step that ends it not
    looked at -> it ran out, fails.
    """
    now = PLAN.start_s + hours * HOUR
    found = progress(TASK, steps, released, withheld, now, over=False)
    assert (found.stand, found.ended) == (stand, stand in (Stand.OVER, Stand.RAN_OUT))
    assert said in found.why
    assert len(found.withheld) == len(withheld)


@for_each("fresh, draws", [(False, 0), (True, 4)])
def test_it_tells_of_how_many_windows_a_device_draws_one(fresh: bool, draws: int) -> None:
    """Planted: of every discovery -> 4 in both."""
    task = replace(TASK, domain=replace(SMALL, fresh=fresh))
    assert progress(task, {}, [], {}, float(PLAN.start_s), over=False).draws == draws
    assert progress(None, {}, [], {}, float(PLAN.start_s), over=False).draws == 0


def test_without_the_task_it_goes_on_until_it_is_over() -> None:
    assert progress(None, {}, [0], {}, 0.0, over=False).stand is Stand.GOING_ON
    assert progress(None, {}, [0], {}, 0.0, over=True).stand is Stand.OVER
    assert isinstance(TASK.domain, Discovery)
