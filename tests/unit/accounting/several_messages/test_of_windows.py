"""Several releases of several messages together: the epsilon that each may have."""

from __future__ import annotations

import math

import pytest

from shoal.accounting.several_messages.of_domain import design_several
from shoal.accounting.several_messages.of_windows import epsilon_of_each, epsilon_together
from shoal.domain import Numeric, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create

N, DELTA, WINDOWS = 20_000, 1e-6, 4
NUMBER = Numeric(0.0, 1.0, 101)


def counted(epsilon: float) -> Several:
    spec = design_several("signed_count", YesNo(), N, epsilon, DELTA, windows=WINDOWS)
    return create(spec, YesNo())


def mean(epsilon: float, domain: Numeric = NUMBER) -> Several:
    spec = design_several("split_mix", domain, N, epsilon, DELTA, windows=WINDOWS, most=N)
    return create(spec, domain)


def test_each_has_the_largest_that_keeps_all_of_them() -> None:
    """To 1 %: 2 % more does not. Planted: windows - 1 composed -> this fails."""
    each = epsilon_of_each(counted, N, 1.0, DELTA, WINDOWS)
    assert epsilon_together(counted(each), N, DELTA, WINDOWS) <= 1.0
    assert epsilon_together(counted(each * 1.02), N, DELTA, WINDOWS) > 1.0


def test_losses_that_only_add_up_leave_the_plain_share() -> None:
    """Four means of discrete Laplace noise at 1 have nearly 1/4 each. Planted: the search given up
    where its next step is below the plain share, which it has not tried -> this fails.
    """
    each = epsilon_of_each(mean, N, 1.0, DELTA, WINDOWS)
    assert 0.9 / WINDOWS <= each <= 1.0 / WINDOWS * 1.01


def test_where_there_is_none_the_reason_is_said() -> None:
    wide = Numeric(0.0, 1.0, 60_001)
    with pytest.raises(ShoalError, match=r"keeps 4 releases together at 1 \(split_mix: ") as error:
        epsilon_of_each(lambda epsilon: mean(epsilon, wide), N, 1.0, DELTA, WINDOWS)
    assert error.value.kind is Kind.CONFIG


def test_too_few_honest_devices_have_no_epsilon() -> None:
    assert epsilon_together(mean(0.5), N - 1, DELTA, WINDOWS) == math.inf
