"""Mixtures of several messages stay under their certificates, and broken ones are caught, by the
same attack with the same numbers.

Real ``randomize`` with seeded entropy: ``DEVICES`` send their bundles, the victim yes or no (the
first cell or the second), and the analyzer sees how often each message came. Noise is designed for
(2, 0.01), which so few trials can see. Every assertion "not refuted" is wrong with probability at
most 1e-6 (``FALSE_ALARM``) over seeds; there are 15, and the seeds are fixed. That the attack has
teeth is asserted too: of an honest mixture it measures at least a stated share of what is claimed.

The broken ones: noise that is split over more than are honest, the grouping left in, and the noise
of a draw that is not made. Each is refuted, for each mechanism.

The attack is the product's own (``shoal audit``, accounting/audit/several.py); what breaks a
mixture is here.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.accounting.audit.audit import AuditResult, audit
from shoal.accounting.audit.several import (
    Messages,
    Seen,
    all_of_them,
    attacked_answers,
    several_views,
)
from shoal.accounting.several_messages.of_domain import design_several
from shoal.domain import Categories, Domain, Numeric, Places, YesNo
from shoal.entropy import SeededEntropy
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create
from shoal.mechanisms.several.signed_count import SignedCount
from tests.cases import for_each
from tests.sizes import CAMPAIGN, FULL, size

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(size(300, 300, 1_800))]
TRIALS, OF_BROKEN = size(5_000, 40_000, 200_000), 2_000
OF_LEVELS = size(4_000, 40_000, 200_000)  # of ``ranges`` and ``blocks``, which draw the most noise
DEVICES, EPSILON, DELTA = 5, 2.0, 0.01
PAIR = 2  # devices of a trial where the victim's messages alone are looked at
SPLIT_OVER = 20 * DEVICES
TWO = Categories(("a", "b"))  # and no answer, which the others give
DOMAINS: dict[str, Domain] = {"cancelling": TWO, "dummies": TWO, "signed_count": YesNo()}
SHARED: dict[str, Domain] = {
    **DOMAINS,
    "ranges": Numeric(0.0, 1.0, 20),  # two levels
    "blocks": Places(0, 0, 400, 400, 4, 4),  # blocks of 2 x 2
    "split_mix": Numeric(0.0, 1.0, 2),
}
EVERY: dict[str, Domain] = {**SHARED, "shuffler_noise": TWO}
TEETH = 0.45 if CAMPAIGN else 0.4 if FULL else 0.3
DRAWN = 2.1  # epsilon0 of true messages that are drawn
TEETH_OF_DRAWN, TEETH_OF_GROUPED = 0.2, 0.6


def made(name: str, epsilon0: float | None = None, split_over: int = DEVICES) -> Several:
    """Designed for all devices; ``epsilon0``: of true messages that are drawn."""
    domain = EVERY[name]
    spec = design_several(
        *(name, domain, split_over, EPSILON, DELTA),
        windows=1,
        most=100,
        epsilon0_if_colluding=epsilon0,
    )
    return create(spec, domain)


def attack(
    mechanism: Several,
    seed: str,
    seen: Seen = all_of_them,
    trials: int = TRIALS,
    claimed: float = EPSILON,
) -> AuditResult:
    """The victim is the last of each trial's devices. Where only its messages are seen, one other
    device is enough: they are independent of what more would send.
    """
    devices = PAIR if seen is of_one_device else DEVICES
    cells, entropy = EVERY[mechanism.name].size, SeededEntropy(f"{mechanism.name} {seed}")
    answers = attacked_answers(mechanism, cells)
    views = several_views(mechanism, cells, devices, entropy, answers=answers, seen=seen)
    return audit(views, claimed, DELTA, trials, at_once=5_000)


def of_one_device(messages: Messages) -> Messages:
    """The victim's alone. The others are not honest: they leave their noise out, and their answers
    too. Or whose messages are whose is seen.
    """
    kept = messages.devices % PAIR == PAIR - 1
    return Messages(messages.numbers[kept], messages.devices[kept])


@for_each("name", EVERY)
def test_an_honest_mixture_stays_under_its_certificate(name: str) -> None:
    trials = OF_LEVELS if name in {"ranges", "blocks"} else TRIALS
    found = attack(made(name), "honest", trials=trials)
    assert not found.refuted
    assert found.epsilon_measured_lower >= TEETH * EPSILON


@for_each("name", EVERY)
def test_messages_that_are_still_grouped_are_caught(name: str) -> None:
    """So is the noise of one honest device: what the others send can be subtracted. And a shuffler
    that adds no noise.
    """
    assert attack(made(name), "grouped", of_one_device, OF_BROKEN).refuted


@for_each("name", SHARED)
def test_noise_that_is_split_over_more_than_are_honest_is_caught(name: str) -> None:
    assert attack(made(name, split_over=SPLIT_OVER), "split", trials=OF_BROKEN).refuted


@for_each("name", DOMAINS)
def test_a_drawn_true_message_stays_under_its_certificate(name: str) -> None:
    """With less noise than where it is the value."""
    found = attack(made(name, DRAWN), "drawn")
    assert not found.refuted
    assert found.epsilon_measured_lower >= TEETH_OF_DRAWN * EPSILON


@for_each("name", DOMAINS)
def test_a_drawn_true_message_keeps_its_epsilon0_among_colluders(name: str) -> None:
    """Whose messages are whose is seen, and what is left is the draw's."""
    found = attack(made(name, DRAWN), "drawn and grouped", of_one_device, claimed=DRAWN)
    assert not found.refuted
    assert found.epsilon_measured_lower >= TEETH_OF_GROUPED * DRAWN


@for_each("name", DOMAINS)
def test_less_noise_without_the_draw_is_caught(name: str) -> None:
    """The noise that a draw allows for, around the value itself."""
    drawn = made(name, DRAWN)
    assert isinstance(drawn, BundledHistogram | SignedCount)
    assert attack(replace(drawn, response=None), "not drawn").refuted
