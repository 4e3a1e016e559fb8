"""End to end: honest randomizers stay under their certificates, broken ones are caught, by the same
attack with the same numbers.

Real ``randomize`` with seeded entropy, a real permutation, n = 1 (delta = 0, against epsilon0) and
n = 20 to 200 (delta = 0.01 or 0.05, against ``certify``). Every assertion "not refuted" is wrong
with probability at most 1e-6 (``FALSE_ALARM``) over seeds; there are 24, and the seeds are fixed.
That an attack has teeth is asserted too: what it measures of an honest randomizer is at least a
stated share of the certificate's own lower bound, except where this is too small to be seen in so
few trials (``FAINT``).

Planted, one at a time, each fails here: q_low in the place of q_high; delta added where it is
subtracted; no statistic of the order; an audit that measures 0. An audit has its limits: a
certificate for four times too many reports is refuted, one for a few too many is beyond what so few
trials can see (the exact comparisons are in tests/unit/accounting).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting import certify
from shoal.accounting.audit.audit import AuditResult, Shuffle, audit, permute, shuffled_views
from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.entropy import Entropy, SeededEntropy
from shoal.mechanisms import Mechanism, create, design
from shoal.mechanisms.categories.binary_rr import two_coin
from shoal.privacy import LocalPrivacy, epsilon0_upper
from shoal.task import MechanismSpec
from tests.sizes import CAMPAIGN, FULL, size

pytestmark = pytest.mark.campaign
TRIALS = size(16_000, 32_000, 200_000)
SIXTEEN = Categories(tuple(f"c{i}" for i in range(15)))
LEVELS = Numeric(0, 20, 21)
# Of the certificate's lower bound, to be seen at least; per n below.
SHARES = (0.8, 0.65, 0.5) if CAMPAIGN else (0.5, 0.2, 0.1)


def built(name: str, domain: Domain, epsilon0: float) -> Mechanism:
    return create(design(name, domain, epsilon0), domain)


HONEST = {
    "two coins": create(two_coin(), YesNo()),
    "asymmetric": create(
        MechanismSpec.of("binary_rr", yes_if_yes=1 << 63, yes_if_no=1 << 60), YesNo()
    ),
    "binary, epsilon0 3": built("binary_rr", YesNo(), 3.0),
    "krr 3": built("krr", Categories(("a", "b")), 2.0),
    "krr 16": built("krr", SIXTEEN, 3.0),
    "kmean 22": built("kmean", LEVELS, 3.0),
}
# Behind a shuffle of 20 or more these give so little away that no event can be told from chance.
FAINT = {"two coins", "asymmetric"}


def attack(
    randomizer: object,
    law: LocalPrivacy,
    n: int,
    delta: float,
    seed: str,
    *,
    shuffle: Shuffle = permute,
    claimed: float | None = None,
) -> AuditResult:
    """The attack as ``shoal audit`` makes it."""
    claim = (
        claimed
        if claimed is not None
        else epsilon0_upper(law)
        if n == 1
        else certify(law, n, delta).epsilon_upper
    )
    views = shuffled_views(randomizer, law, n, SeededEntropy(f"{seed} {n}"), shuffle=shuffle)  # type: ignore[arg-type]
    return audit(views, claim, delta, TRIALS, at_once=max(1, 200_000 // n))


@pytest.mark.parametrize("name", HONEST)
def test_alone(name: str) -> None:
    """n = 1: epsilon0 is not exceeded, and 80 % of it are measured. Planted: q_low in the place of
    q_high -> fails.
    """
    mechanism = HONEST[name]
    law = mechanism.privacy()
    result = attack(mechanism, law, 1, 0.0, name)
    assert not result.refuted
    assert result.epsilon_measured_lower >= 0.8 * result.claimed


@pytest.mark.parametrize(
    ("n", "delta", "share", "name"),
    [
        (n, delta, share, name)
        for place, (n, delta, share) in enumerate(
            ((20, 0.01, SHARES[0]), (50, 0.05, SHARES[1]), (200, 0.01, SHARES[2]))
        )
        for name in (HONEST if FULL or place == 0 else list(HONEST)[place % 2 :: 2])
    ],
)
def test_shuffled(n: int, delta: float, share: float, name: str) -> None:
    """Under the certificate, and ``share`` of its lower bound is seen. Reduced, randomizers take
    turns at 50 and 200 reports. Planted: delta added to p_low instead of subtracted -> fails.
    """
    law = HONEST[name].privacy()
    certificate = certify(law, n, delta)
    result = attack(HONEST[name], law, n, delta, name, claimed=certificate.epsilon_upper)
    assert not result.refuted
    assert name in FAINT or result.epsilon_measured_lower >= share * certificate.epsilon_lower


def test_more_reports_than_there_are_is_caught() -> None:
    """A certificate that counts four times the reports is refuted. Planted: an audit that always
    measures 0 -> fails.
    """
    law = HONEST["krr 16"].privacy()
    result = attack(
        HONEST["krr 16"], law, 20, 0.01, "too many", claimed=certify(law, 80, 0.01).epsilon_upper
    )
    assert result.refuted


@dataclass(frozen=True)
class Beside:
    """The true report, memoized and never reset, is sent beside the random one."""

    honest: Mechanism

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        return np.concatenate(
            [self.honest.randomize(values, entropy), values.astype(np.uint8)[:, None, None]], axis=1
        )


@dataclass(frozen=True)
class BitNotReset:
    """A yes stays a yes even when the coin says no."""

    honest: Mechanism

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        return self.honest.randomize(values, entropy) | values.astype(np.uint8)[:, None, None]


@dataclass(frozen=True)
class TooTrue:
    """Now and then (one time in ``every``) the truth is sent as it is."""

    honest: Mechanism
    every: int

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        reports = self.honest.randomize(values, entropy)
        plain = entropy.words(values.size) % np.uint64(self.every) == 0
        return np.where(plain[:, None, None], values.astype(np.uint8)[:, None, None], reports)


def identity(reports: NDArray[np.int64], entropy: Entropy) -> NDArray[np.int64]:
    return reports


def all_but_the_last(reports: NDArray[np.int64], entropy: Entropy) -> NDArray[np.int64]:
    return np.concatenate([permute(reports[:, :-1], entropy), reports[:, -1:]], axis=1)


def reversed_order(reports: NDArray[np.int64], entropy: Entropy) -> NDArray[np.int64]:
    return reports[:, ::-1]


@pytest.mark.parametrize("name", ["two coins", "krr 3", "krr 16", "kmean 22"])
@pytest.mark.parametrize("n", [1, 20])
def test_a_true_report_beside_is_caught(name: str, n: int) -> None:
    """Planted: the randomizer made honest -> not refuted, this fails."""
    law = HONEST[name].privacy()
    assert attack(Beside(HONEST[name]), law, n, 0.0 if n == 1 else 0.01, name).refuted


@pytest.mark.parametrize("n", [1, 20])
def test_a_bit_that_is_not_reset_is_caught(n: int) -> None:
    """Planted: only the likelihood ratio as statistic and only "above" -> fails at n = 1."""
    law = HONEST["two coins"].privacy()
    assert attack(BitNotReset(HONEST["two coins"]), law, n, 0.0 if n == 1 else 0.01, "bit").refuted


@pytest.mark.parametrize(
    ("name", "every"), [("two coins", 4), ("krr 3", 4), ("krr 16", 3), ("kmean 22", 3)]
)
def test_the_truth_a_little_too_often_is_caught(name: str, every: int) -> None:
    """Planted: ``every`` = 1000 -> too little for so few trials, this fails."""
    assert attack(TooTrue(HONEST[name], every), HONEST[name].privacy(), 1, 0.0, name).refuted


@pytest.mark.parametrize("shuffle", [identity, all_but_the_last, reversed_order])
@pytest.mark.parametrize("name", ["two coins", "krr 16"])
def test_a_shuffle_that_leaves_the_victim_where_it_was_is_caught(
    name: str, shuffle: Shuffle
) -> None:
    """Planted: no statistic of the order -> fails."""
    result = attack(HONEST[name], HONEST[name].privacy(), 200, 0.01, name, shuffle=shuffle)
    assert result.refuted
    assert result.event.statistic == (
        "the first report" if shuffle is reversed_order else "the last report"
    )
