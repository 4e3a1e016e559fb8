"""Protocols of several messages whose batch tells of one victim are attacked where the analyzer
meets them, as test_several_services_audit.py does with mixtures of many victims.

Every batch is a task of its own with ``DEVICES`` devices, of which the last is the victim. They
draw, seal and send over TLS to one running shuffler, which stores, mixes, adds its noise where the
task wants some, and delivers; the attacker opens what was delivered. Their statistics are those of
``shoal audit`` (accounting/audit/several.py).

Noise is designed for (.5, .01). Draws of services can't be seeded: "not refuted" is wrong with
probability at most 1e-6 (``FALSE_ALARM``) each. The broken ones, with as many batches: noise that
is split over 1,000 times as many devices as there are, or that is designed for epsilon 20. Each is
refuted: of the fewest ``BATCHES`` a victim that is always told is measured as 1.07. At reduced
counts that is shown with the noise of the shuffler alone; of devices' noise that is too little
test_several_audit.py tells, without services.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shoal.accounting.audit.audit import AuditResult, crowd_of
from shoal.accounting.audit.several import attacked_answers, numbers_of, several_statistics
from shoal.accounting.several_messages.of_domain import design_several
from shoal.cli.services.noise import DrawnNoise
from shoal.clients.core import seal
from shoal.clocks.clock import FakeClock
from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.entropy import SYSTEM
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create, fewest_messages
from shoal.mechanisms.several.split_mix import SplitMix
from shoal.rpc.channel import call
from tests.cases import for_each
from tests.integration.services.test_shuffler_service import Running
from tests.sizes import FULL, size
from tests.statistical.delivered import assignment_of, audited, opened
from tests.worlds.services.shuffler import START, Published, World, submit_batch

EPSILON, DELTA = 0.5, 0.01
DEVICES = 5  # of a batch
BATCHES = size(200, 2_000)
AT_ONCE = 500_000  # bytes of a call
DOMAINS: dict[str, Domain] = {
    "signed_count": YesNo(),
    "split_mix": Numeric(0.0, 1.0, 2),
    "shuffler_noise": Categories(("a", "b")),
}


def made(name: str, *, split_over: int = DEVICES, epsilon: float = EPSILON) -> Several:
    domain = DOMAINS[name]
    spec = design_several(name, domain, split_over, epsilon, DELTA, windows=1, most=DEVICES)
    return create(spec, domain)


def publish(world: World, mechanism: Several) -> Published:
    return world.publish(
        domain=DOMAINS[mechanism.name],
        mechanism=mechanism.spec,
        delta=DELTA,
        target_epsilon=20.0,
        min_batch=DEVICES,
        max_batch=DEVICES,
        report_size=mechanism.report_size,
        messages=mechanism.messages,
        fewest_messages=fewest_messages(mechanism),
    )


def frames_of(world: World, published: Published, cells: list[int]) -> list[bytes]:
    """From the devices' draws to what they send."""
    assignment = assignment_of(world, published)
    assert assignment.several is not None
    reports = [assignment.several.randomize_one(cell, SYSTEM) for cell in cells]
    return [seal(assignment, 0, report).frame for report in reports]


async def attack(mechanism: Several, folder: Path) -> AuditResult:
    """The victims of even batches give the first answer, the others the second."""
    cells = DOMAINS[mechanism.name].size
    answers = attacked_answers(mechanism, cells)
    crowd = crowd_of(cells, answers, answers[0] if isinstance(mechanism, SplitMix) else None)
    running = Running(World(folder), FakeClock(START + 10))
    tasks = [publish(running.world, mechanism) for _ in range(BATCHES)]
    await running.start(noise=DrawnNoise())
    try:
        frames = [
            frame
            for number, one in enumerate(tasks)
            for frame in frames_of(
                running.world, one, [crowd] * (DEVICES - 1) + [answers[number % 2]]
            )
        ]
        at_once = max(1, AT_ONCE // len(frames[0]))
        for at in range(0, len(frames), at_once):
            request = submit_batch(frames[at : at + at_once])
            await call(running.channel, "/shoal.v1.Ingress/SubmitBatch", request, 60.0)
        await running.tick(4)
    finally:
        await running.stop()
    batches = [opened(one, running.analyzer.delivered[one.task_id, 0]) for one in tasks]
    every = b"".join(message for batch in batches for message in batch)
    numbers = numbers_of(
        mechanism, np.frombuffer(every, np.uint8).reshape(-1, mechanism.report_size)
    )
    trial = np.repeat(np.arange(BATCHES), [len(batch) for batch in batches])
    found = several_statistics(mechanism, answers)(numbers, trial, BATCHES)
    return audited(found, EPSILON, DELTA)


@pytest.fixture(autouse=True)
def slow_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its first tick the shuffler waits for ours."""
    monkeypatch.setattr("shoal.shuffler.reports.lifecycle.TICK_S", 3_600.0)


@pytest.mark.timeout(size(120, 900))
@for_each("name", DOMAINS)
async def test_what_an_analyzer_opens_stays_under_its_certificate(
    name: str, tmp_path: Path
) -> None:
    """Planted: as much noise in every cell, shares without noise -> fails."""
    assert not (found := await attack(made(name), tmp_path)).refuted, found


@pytest.mark.timeout(size(120, 900))
@for_each("name", DOMAINS if FULL else ["shuffler_noise"])
async def test_too_little_noise_is_caught(name: str, tmp_path: Path) -> None:
    """Split over more devices than there are; the shuffler's designed for less privacy."""
    if name == "shuffler_noise":
        broken = made(name, epsilon=20.0)
    else:
        broken = made(name, split_over=1_000 * DEVICES)
    assert (found := await attack(broken, tmp_path)).refuted, found
