"""Loss laws survive being stored, bit by bit; nothing else is taken for one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.accounting.accountant import upper_curve
from shoal.accounting.composition.compose import compose, release_law
from shoal.accounting.composition.loss_bytes import from_bytes, to_bytes
from shoal.accounting.composition.losses import LossLaw, pure_law
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.unit.accounting.laws import kary


@for_each(
    "law",
    [
        release_law(upper_curve, kary(16, 2.0), 900, 1e-8),
        pure_law(1.0),
        pure_law(0.5, 1e-6),
        pure_law(0.0),
    ],
)
def test_there_and_back(law: LossLaw) -> None:
    """Planted: masses as float32 -> this fails."""
    again = from_bytes(to_bytes(law))
    assert (again.step, again.infinity, again.epsilon0) == (law.step, law.infinity, law.epsilon0)
    assert np.array_equal(again.indices, law.indices)
    assert np.array_equal(again.masses, law.masses)
    assert to_bytes(again) == to_bytes(law)
    assert compose([(again, 3)], 1e-5) == compose([(law, 3)], 1e-5)


def test_other_bytes_are_refused() -> None:
    """Planted: no check of the length -> a traceback of numpy instead of the typed error, and this
    fails.
    """
    good = to_bytes(pure_law(1.0, 1e-6))
    bad = [
        b"",
        good[:20],
        good[:-1],
        good + b"\0",
        bytes([2]) + good[1:],
        good[:1] + bytes(8) + good[9:],
    ]
    bad.append(good[:-8] + np.array([-1.0]).tobytes())
    bad.append(good[:-8] + np.array([math.nan]).tobytes())
    for data in bad:
        with pytest.raises(ShoalError) as error:
            from_bytes(data)
        assert error.value.kind is Kind.INVALID
