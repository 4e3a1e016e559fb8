"""The candidates of a seed against their definition, made another way."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from shoal.errors import Kind, ShoalError
from shoal.mechanisms.vectors import gaussian_table
from shoal.mechanisms.vectors.gaussian_table import (
    CELLS,
    LARGEST,
    UNIT,
    candidates,
    reported,
    table,
    variance,
)
from shoal.mechanisms.vectors.order_statistics import largest

SEED = bytes(range(16))


def quantile_density(share: Decimal) -> Decimal:
    """The normal density at a quantile below one half, by Newton's method on the error function's
    series, in decimals of 50 digits.
    """
    pi = Decimal(
        "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899"
    )
    root = (2 * pi).sqrt()
    # a float is near enough to begin with
    low, high = -10.0, 0.0
    for _ in range(60):
        middle = (low + high) / 2
        below = 0.5 * math.erfc(-middle / math.sqrt(2.0)) < float(share)
        low, high = (middle, high) if below else (low, middle)
    x = Decimal(low)
    for _ in range(3):
        term, total, n = x, x, 0
        while abs(term) > Decimal(10) ** -45:
            n += 1
            term *= -x * x / (2 * n)
            total += term / (2 * n + 1)
        x -= (Decimal("0.5") + total / root - share) * root / (-x * x / 2).exp()
    return (-x * x / 2).exp() / root


def test_entries_are_the_means_of_their_cells() -> None:
    """Planted: middles of cells for means; the unit 2^11 -> fails."""
    entries = table()
    with localcontext() as context:
        context.prec = 50
        for cell in (0, 1, 2, 77, 5_000, 32_766):
            upper = quantile_density(Decimal(cell + 1) / CELLS)
            lower = quantile_density(Decimal(cell) / CELLS) if cell else Decimal(0)
            mean = UNIT * CELLS * (lower - upper)
            assert abs(mean - int(entries[cell])) < Decimal("0.50000001"), cell


def test_the_table_is_odd_and_nearly_gaussian() -> None:
    """What the docstring says of its moments. Planted: the upper half not reversed -> fails."""
    entries = table().astype(np.int64)
    assert (entries == -entries[::-1]).all()
    assert (np.diff(entries) >= 0).all()
    assert entries.max() == LARGEST
    squares = float((entries**2).mean()) / UNIT**2
    assert squares == variance() == pytest.approx(1.0 - 2.2e-6, abs=1e-7)
    fourth = float((entries.astype(np.float64) ** 4).mean()) / UNIT**4 - 3.0 * squares**2
    assert fourth == pytest.approx(-1.7e-4, abs=1e-5)
    assert not table().flags.writeable


def test_another_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the digest not compared -> fails."""
    monkeypatch.setattr(gaussian_table, "DIGEST", "0" * 64)
    with pytest.raises(ShoalError) as caught:
        table.__wrapped__()
    assert caught.value.kind is Kind.INTERNAL


def test_candidates_are_read_from_the_stream_as_is_said() -> None:
    """By single AES blocks of a counter. Planted: big-endian coordinates; candidates that begin
    where the one before ends, not at a block -> fails.
    """
    blocks = Cipher(algorithms.AES(SEED), modes.ECB()).encryptor()  # noqa: S305 - an oracle
    for dimension in (1, 7, 8, 9, 20):
        per = -(-dimension // 8)
        found = candidates(SEED, 3, 4, dimension)
        assert found.shape == (4, dimension)
        for row, j in enumerate(range(3, 7)):
            stream = b"".join(blocks.update((j * per + b).to_bytes(16, "big")) for b in range(per))
            for i in range(dimension):
                cell = stream[2 * i] + 256 * stream[2 * i + 1]
                assert found[row, i] == table()[cell]


def test_one_candidate_is_that_of_all() -> None:
    """What an analyzer expands is what the device looked at. Planted: the index taken for a block
    -> fails.
    """
    seeds = np.frombuffer(SEED + bytes(16) + SEED, dtype=np.uint8).reshape(3, 16)
    named = reported(seeds, np.array([5, 0, 65_535]), 11)
    assert (named[0] == candidates(SEED, 5, 1, 11)[0]).all()
    assert (named[1] == candidates(bytes(16), 0, 1, 11)[0]).all()
    assert (named[2] == candidates(SEED, 65_535, 1, 11)[0]).all()


def lean(pmf: NDArray[np.float64], step: float, count: int, inside: int) -> float:
    """The mean of the ``inside`` largest of ``count`` numbers that are on a grid around 0."""
    above = np.append(np.cumsum(pmf[::-1])[::-1], 0.0)
    share = np.append(0.0, np.geomspace(1e-9, 1.0, 200_001))
    fewer = np.zeros_like(share)
    for j in range(inside):
        fewer += math.comb(count - 1, j) * share**j * (1.0 - share) ** (count - 1 - j)
    sums = np.append(0.0, np.cumsum(np.diff(share) * (fewer[1:] + fewer[:-1]) / 2.0))
    chosen = np.interp(above, share, sums)
    weights = chosen[:-1] - chosen[1:]
    values = step * (np.arange(pmf.size) - pmf.size // 2)
    return float((weights * values).sum() / weights.sum())


def test_what_the_table_costs() -> None:
    """Vectors with one coordinate, and with two or four alike, lean by nearly as much as with
    Gaussian candidates: exact sums over the law of their inner products. Planted: middles of cells
    for means; 65,536 candidates -> fails.
    """
    entries, counts = np.unique(table().astype(np.int64), return_counts=True)
    single = np.zeros(2 * LARGEST + 1)
    single[entries + LARGEST] = counts / CELLS
    for alike in (1, 2, 4):
        length = alike * 2 * LARGEST + 1
        pmf = np.fft.irfft(np.fft.rfft(single, 1 << 18) ** alike, 1 << 18)[:length]
        pmf = np.maximum(pmf, 0.0)
        step = 1.0 / UNIT / math.sqrt(alike)
        for count, inside, least in ((64, 8, -2e-4), (4_096, 1, -2e-4), (16_384, 1, -1.1e-3)):
            off = lean(pmf / pmf.sum(), step, count, inside) / largest(count, inside)[0] - 1.0
            assert least < off < 1e-6, (alike, count, off)
