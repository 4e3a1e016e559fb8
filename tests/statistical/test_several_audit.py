"""Mixtures of several messages stay under their certificates, and broken ones are caught, by the
same attack with the same numbers.

Real ``randomize`` with seeded entropy: ``DEVICES`` send their bundles, the victim yes or no (the
first cell or the second), and the analyzer sees how often each message came. Noise is designed for
(2, 0.01), which so few trials can see. Every assertion "not refuted" is wrong with probability at
most 1e-6 (``FALSE_ALARM``) over seeds; there are 10, and the seeds are fixed. That the attack has
teeth is asserted too: of an honest mixture it measures at least a stated share of what is claimed.

The broken ones: noise of one device in place of all (split over more than are honest), and the
grouping left in. Each is refuted, for each mechanism.

Of split numbers the attack looks at the sum of all shares, and at the number of shares of each sign
(as a number modulo q nearest to 0): what is left of them beyond their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting.audit.audit import AuditResult, audit
from shoal.accounting.several_messages.of_domain import design_several
from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.entropy import SeededEntropy
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create
from shoal.mechanisms.several.signed_count import SignedCount
from shoal.mechanisms.several.split_mix import SplitMix
from tests.cases import for_each
from tests.sizes import CAMPAIGN, FULL, size

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(size(300, 300, 1_800))]
TRIALS, OF_BROKEN = size(8_000, 40_000, 200_000), 2_000
DEVICES, EPSILON, DELTA = 5, 2.0, 0.01
TWO = Categories(("a", "b"))  # and no answer, which the others give
DOMAINS: dict[str, Domain] = {"cancelling": TWO, "dummies": TWO, "signed_count": YesNo()}
TEETH = 0.45 if CAMPAIGN else 0.4 if FULL else 0.3
KINDS = 6  # of messages, at most
DRAWN = 2.1  # epsilon0 of true messages that are drawn
TEETH_OF_DRAWN, TEETH_OF_GROUPED = 0.2, 0.6

Rows = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The number of each message, and the device that it came from, of all trials after another."""
Break = Callable[[Rows], Rows]


def made(name: str, epsilon0: float | None = None) -> Several:
    """Designed for all devices; ``epsilon0``: of true messages that are drawn."""
    domain = DOMAINS[name]
    spec = design_several(
        name, domain, DEVICES, EPSILON, DELTA, windows=1, epsilon0_if_colluding=epsilon0
    )
    return create(spec, domain)


def sent(mechanism: Several, which: int, trials: int, entropy: SeededEntropy) -> Rows:
    """The victim is the last of each trial's devices; the others answer the last cell."""
    values = np.full((trials, DEVICES), len(DOMAINS[mechanism.name].labels) - 1, dtype=np.int64)
    values[:, -1] = which
    bundles = mechanism.randomize(values.reshape(-1), entropy)
    return bundles.rows[:, 0].astype(np.int64), np.repeat(
        np.arange(trials * DEVICES), bundles.sizes
    )


def statistics(name: str, counts: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """float64[trials, KINDS]: how often each message came. Of Poisson noise ln(a / b) is the best
    statistic that there is; of singles nearly the difference.
    """
    one, two, three, four = counts.T[:4]
    if name == "cancelling":
        first, second = one - two, three - four
        return {"difference": first - second, "first": first, "second": second}
    return {"difference": one - two, "ratio": np.log(one + 0.5) - np.log(two + 0.5)}


def attack(
    name: str,
    seed: str,
    broken: Break | None = None,
    grouped: bool = False,
    mechanism: Several | None = None,
    claimed: float = EPSILON,
) -> AuditResult:
    """``grouped``: it is seen whose messages are whose."""
    mechanism = mechanism or made(name)
    entropy = SeededEntropy(f"{name} {seed}")

    def views(which: int, trials: int) -> dict[str, NDArray[np.float64]]:
        rows = sent(mechanism, which, trials, entropy)
        numbers, device = rows if broken is None else broken(rows)
        if grouped:
            own = device % DEVICES == DEVICES - 1
            numbers, device = numbers[own], device[own]
        cells = KINDS * (device // DEVICES) + numbers
        counts = np.bincount(cells, minlength=KINDS * trials).reshape(trials, KINDS)
        return statistics(name, counts.astype(np.float64))

    fails = broken is not None or (grouped and claimed == EPSILON)
    trials = OF_BROKEN if fails else TRIALS
    return audit(views, claimed, DELTA, trials, at_once=5_000)


def of_one_device(rows: Rows) -> Rows:
    """The others are not honest: they leave their noise out, and their answers too."""
    kept = rows[1] % DEVICES == DEVICES - 1
    return rows[0][kept], rows[1][kept]


@for_each("name", DOMAINS)
def test_an_honest_mixture_stays_under_its_certificate(name: str) -> None:
    found = attack(name, "honest")
    assert not found.refuted
    assert found.epsilon_measured_lower >= TEETH * EPSILON


@for_each("name", DOMAINS)
def test_noise_that_is_split_over_more_than_are_honest_is_caught(name: str) -> None:
    found = attack(name, "one", of_one_device)
    assert found.refuted


@for_each("name", DOMAINS)
def test_messages_that_are_still_grouped_are_caught(name: str) -> None:
    found = attack(name, "grouped", grouped=True)
    assert found.refuted


@for_each("name", DOMAINS)
def test_a_drawn_true_message_stays_under_its_certificate(name: str) -> None:
    """With less noise than where it is the value."""
    found = attack(name, "drawn", mechanism=made(name, DRAWN))
    assert not found.refuted
    assert found.epsilon_measured_lower >= TEETH_OF_DRAWN * EPSILON


@for_each("name", DOMAINS)
def test_a_drawn_true_message_keeps_its_epsilon0_among_colluders(name: str) -> None:
    """Whose messages are whose is seen, and what is left is the draw's."""
    found = attack(
        name, "drawn and grouped", grouped=True, mechanism=made(name, DRAWN), claimed=DRAWN
    )
    assert not found.refuted
    assert found.epsilon_measured_lower >= TEETH_OF_GROUPED * DRAWN


@for_each("name", DOMAINS)
def test_less_noise_without_the_draw_is_caught(name: str) -> None:
    """The noise that a draw allows for, around the value itself."""
    drawn = made(name, DRAWN)
    assert isinstance(drawn, BundledHistogram | SignedCount)
    found = attack(name, "not drawn", mechanism=replace(drawn, response=None))
    assert found.refuted


NUMBER = Numeric(0.0, 1.0, 2)


def shares(which: int, trials: int, made: SplitMix, entropy: SeededEntropy) -> NDArray[np.int64]:
    """int64[trials, DEVICES, slots]: the shares modulo 2^16, nearest to 0; the victim's are last.
    It answers 0 or 1 (``which``), the others 0.
    """
    values = np.zeros((trials, DEVICES), dtype=np.int64)
    values[:, -1] = which
    rows = made.randomize(values.reshape(-1), entropy).rows
    words = np.ascontiguousarray(rows).view(">u2").astype(np.int64)
    centred = (words + 0x8000) % 0x10000 - 0x8000
    return np.asarray(centred.reshape(trials, DEVICES, made.messages))


def attack_split(seed: str, devices: slice = slice(None)) -> AuditResult:
    """Of the messages of these devices alone, in whatever order."""
    spec = design_several("split_mix", NUMBER, DEVICES, EPSILON, DELTA, windows=1, most=100)
    made, entropy = create(spec, NUMBER), SeededEntropy(f"split {seed}")
    assert isinstance(made, SplitMix)
    assert made.bits == 16

    def views(which: int, trials: int) -> dict[str, NDArray[np.float64]]:
        seen = shares(which, trials, made, entropy)[:, devices].reshape(trials, -1)
        total = (seen.sum(axis=1) + 0x8000) % 0x10000 - 0x8000
        return {
            "sum": total.astype(np.float64),
            "negative": (seen < 0).sum(axis=1).astype(np.float64),
        }

    trials = TRIALS if devices == slice(None) else OF_BROKEN
    return audit(views, EPSILON, DELTA, trials, at_once=5_000)


def test_an_honest_sum_of_shares_stays_under_its_certificate() -> None:
    found = attack_split("honest")
    assert not found.refuted
    assert found.epsilon_measured_lower >= TEETH * EPSILON


def test_shares_that_are_still_grouped_are_caught() -> None:
    """So is noise of one device in place of all: the others' shares can be subtracted then."""
    assert attack_split("grouped", slice(-1, None)).refuted
