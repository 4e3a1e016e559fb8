"""What a window of sums cost, as bytes: exact, and nothing else is taken for it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from shoal.accounting.composition.loss_bytes import from_bytes as law_from_bytes
from shoal.accounting.composition.loss_bytes import to_bytes as law_to_bytes
from shoal.accounting.composition.losses import pure_law
from shoal.accounting.sums.skellam import SkellamRound, rounds_epsilon
from shoal.accounting.sums.spent import from_bytes, spent_by, to_bytes
from shoal.accounting.sums.sum_task import check_sum
from shoal.domain import Norm
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.worlds.sums import designed, task_of
from tests.worlds.tasks import PAIRWISE

ROUND = SkellamRound(Fraction(10**18, 7), 123, 2**96)


def test_bytes_are_the_round() -> None:
    """Planted: the fraction as a float -> fails."""
    assert from_bytes(to_bytes(ROUND)) == ROUND
    assert to_bytes(ROUND) == to_bytes(replace(ROUND))


def test_neither_kind_is_taken_for_the_other() -> None:
    """Planted: one version for both -> fails."""
    assert from_bytes(law_to_bytes(pure_law(1.0, 1e-9))) is None
    with pytest.raises(ShoalError):
        law_from_bytes(to_bytes(ROUND))


@for_each(
    "data",
    [
        b"\x02",
        b"\x021 2 3",
        b"\x021 2 3 4 5",
        b"\x021 0 3 4",
        b"\x02-1 2 3 4",
        b"\x021  3 4",
        b"\x02" + b"9" * 500 + b" 1 1 1",
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    """Planted: no check of signs, zeros or lengths -> a division by zero, or a cheap window."""
    with pytest.raises(ShoalError) as raised:
        from_bytes(data)
    assert raised.value.kind is Kind.INVALID


def test_a_task_costs_what_its_certificate_says() -> None:
    """One window, and the noise of the guaranteed honest alone. Planted: the noise of all shares ->
    fails.
    """
    spent = spent_by(PAIRWISE)
    assert spent is not None
    one = from_bytes(spent)
    assert one is not None
    assert rounds_epsilon([(one, 1)], PAIRWISE.delta) == check_sum(PAIRWISE).epsilon_upper


def test_pure_noise_composes_by_its_epsilons() -> None:
    """Planted: bytes for it, which would be read as Skellam noise -> fails."""
    made = designed(
        3, norm=Norm.L1, noise="discrete_laplace", cohort_max=120, epsilon=1.0, delta=1e-8
    )
    task = task_of(made)
    assert spent_by(task) is None
