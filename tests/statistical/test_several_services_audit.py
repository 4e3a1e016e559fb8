"""Mixtures of several messages are attacked where the analyzer meets them: devices draw, seal and
send over TLS to a running shuffler, which stores, mixes and delivers, and the attacker opens what
was delivered, in its order.

A batch is many trials: victim t answers cell 2t or 2t + 1, which nobody else answers, and the noise
of all devices is independent from cell to cell. So the view of each trial is that of one victim
among devices whose answers are known. The attacker knows when each report arrived and how many
messages it had; the statistic "place" reads the rows that would be the victim's, had the order of
arrival been kept.

Noise is designed for (2, .01). Draws of services can't be seeded: "not refuted" is wrong with
probability at most 1e-6 (``FALSE_ALARM``) each. The broken ones, with as many trials: noise that is
split over 200 times as many devices as there are (over 20 times as many, 4 of 25 runs were not
refuted with dummies), and rows in the order of arrival. Each is refuted, for each mechanism: that
is what says that the attack has teeth.

That the rows of a report are not neighbours is tests/conformance/store/bundles.py's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting.audit.audit import AuditResult
from shoal.accounting.several_messages.of_domain import design_several
from shoal.clients.core import seal
from shoal.clients.drawing import reports_of
from shoal.clocks.clock import FakeClock
from shoal.domain import Categories
from shoal.mechanisms.several.registry import create, fewest_messages
from shoal.rpc.channel import call
from tests.cases import for_each
from tests.integration.services.test_shuffler_service import Running
from tests.sizes import size
from tests.statistical.delivered import assignment_of, audited, opened
from tests.worlds.services.shuffler import START, Published, World, submit_batch

EPSILON, DELTA = 2.0, 0.01
VICTIMS = 256  # of a batch, which are all of its devices
BATCHES = size(6, 40)
DOMAIN = Categories(tuple(map(str, range(2 * VICTIMS))), tuple(range(2 * VICTIMS)))
ANSWERS = [2 * victim + victim % 2 for victim in range(VICTIMS)]
FRAMES = 25  # of a call
MIXTURES = ("cancelling", "dummies")

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Seen:
    """Messages as numbers: ``sent``, in the order of arrival; ``delivered``, in the analyzer's;
    ``sizes``: of each report in the order of arrival.
    """

    signed: bool
    sent: Numbers
    delivered: Numbers
    sizes: Numbers

    def statistics(self, *, kept: bool) -> dict[str, NDArray[np.float64]]:
        """float64[VICTIMS] each. ``kept``: as if the order of arrival had been."""
        rows = self.sent if kept else self.delivered
        cells = rows >> 1 if self.signed else rows
        signs = np.where(rows & 1 if self.signed else np.zeros_like(rows), -1.0, 1.0)
        counts = np.bincount(cells, signs, minlength=DOMAIN.size).astype(np.float64)
        first, second = counts[: 2 * VICTIMS].reshape(VICTIMS, 2).T
        ends = np.cumsum(self.sizes)
        place = np.zeros(VICTIMS)
        for victim, (end, length) in enumerate(zip(ends, self.sizes, strict=True)):
            own, weights = cells[end - length : end], signs[end - length : end]
            place[victim] = weights[own == 2 * victim].sum() - weights[own == 2 * victim + 1].sum()
        return {"difference": first - second, "place": place}


def publish(world: World, name: str, split_over: int) -> Published:
    """A task of one batch, for noise of as many devices."""
    made = create(design_several(name, DOMAIN, split_over, EPSILON, DELTA, windows=1), DOMAIN)
    return world.publish(
        domain=DOMAIN,
        mechanism=made.spec,
        delta=DELTA,
        target_epsilon=EPSILON,
        min_batch=VICTIMS,
        max_batch=VICTIMS,
        report_size=made.report_size,
        messages=made.messages,
        fewest_messages=fewest_messages(made),
    )


async def batch(running: Running, published: Published) -> Seen:
    """From the devices' draws to what the analyzer opens."""
    assignment = assignment_of(running.world, published)
    reports = reports_of(assignment, ANSWERS)
    frames = [seal(assignment, 0, report).frame for report in reports]
    for at in range(0, VICTIMS, FRAMES):
        request = submit_batch(frames[at : at + FRAMES])
        await call(running.channel, "/shoal.v1.Ingress/SubmitBatch", request, 60.0)
    await running.tick(4)
    rows = running.analyzer.delivered[published.task_id, 0]
    return Seen(
        published.task.mechanism.name == "cancelling",
        numbers(message for report in reports for message in report),
        numbers(opened(published, rows)),
        np.array([len(report) for report in reports]),
    )


def numbers(messages: Iterable[bytes]) -> Numbers:
    return np.array([int.from_bytes(message, "big") for message in messages], dtype=np.int64)


async def watched(name: str, folder: Path, split_over: int = VICTIMS) -> list[Seen]:
    """All batches, by one shuffler."""
    running = Running(World(folder), FakeClock(START + 10))
    tasks = [publish(running.world, name, split_over) for _ in range(BATCHES)]
    await running.start()
    try:
        return [await batch(running, published) for published in tasks]
    finally:
        await running.stop()


def attack(seen: list[Seen], *, kept: bool = False) -> AuditResult:
    """The victims with even numbers answer the first of their cells, the others the second."""
    found = [one.statistics(kept=kept) for one in seen]
    every = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
    return audited(every, EPSILON, DELTA)


@pytest.fixture(autouse=True)
def slow_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its first tick the shuffler waits for ours."""
    monkeypatch.setattr("shoal.shuffler.reports.lifecycle.TICK_S", 3_600.0)


@pytest.mark.timeout(size(120, 900))
@for_each("name", MIXTURES)
async def test_what_an_analyzer_opens_stays_under_its_certificate(
    name: str, tmp_path: Path
) -> None:
    """And the same reports in the order in which they came do not: the control, which says that the
    attack on places sees one that is kept.
    """
    seen = await watched(name, tmp_path)
    for one in seen:
        assert sorted(one.sent) == sorted(one.delivered)
    honest, ordered = attack(seen), attack(seen, kept=True)
    assert not honest.refuted, honest
    assert ordered.refuted, ordered
    assert ordered.event.statistic == "place"


@pytest.mark.timeout(size(120, 900))
@for_each("name", MIXTURES)
async def test_noise_that_is_split_over_more_devices_than_there_are_is_caught(
    name: str, tmp_path: Path
) -> None:
    seen = await watched(name, tmp_path, 200 * VICTIMS)
    assert attack(seen).refuted
