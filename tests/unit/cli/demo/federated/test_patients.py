"""The demo's patients: numbers in range, one fifth held out, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.cli.demo.federated.patients import FEATURES, load_patients, scaled
from shoal.errors import Kind, ShoalError


def test_every_patient_is_asked_or_held_out() -> None:
    """Planted: the held-out ones asked too -> 569, fails; benign taken for malignant -> fails."""
    asked, held_out = load_patients()
    assert (len(asked), len(held_out)) == (455, 114)
    assert asked.malignant.sum() + held_out.malignant.sum() == 212
    assert 0.3 < held_out.malignant.mean() < 0.45
    together = np.concatenate([asked.rows, held_out.rows])
    assert together.shape == (569, len(FEATURES)) == (569, 30)
    assert len(np.unique(together, axis=0)) == 569


def test_numbers_are_scaled_by_public_ends() -> None:
    """Each within [-1, 1], and every end is met: the published ends are those of the data, rounded.
    Planted: ends of another measurement -> many numbers cut off at an end, fails.
    """
    asked, held_out = load_patients()
    rows = np.concatenate([asked.rows, held_out.rows])
    assert np.abs(rows).max() <= 1.0
    assert (rows.max(axis=0) > 0.98).all()
    assert (rows.min(axis=0) < -0.9).all()
    assert (np.abs(rows) == 1.0).mean() < 0.01
    low = np.zeros((1, 30))
    assert (scaled(low) == -1.0).all()


def test_the_first_so_many() -> None:
    """Planted: no check -> all patients are asked where more were wanted, fails."""
    asked, _ = load_patients()
    assert len(asked.first(60)) == 60
    with pytest.raises(ShoalError, match="455 patients to ask") as raised:
        asked.first(456)
    assert raised.value.kind is Kind.CONFIG
