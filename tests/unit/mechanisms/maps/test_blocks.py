"""A map in blocks: its errors and intervals against many batches, and what the mechanism refuses.
``test_bundles`` has what it shares with the other mechanisms.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from shoal.accounting.several_messages.of_domain import design_blocks, design_several
from shoal.domain import Categories, Places
from shoal.entropy import SeededEntropy
from shoal.errors import ShoalError
from shoal.mechanisms.base import Tally, Z
from shoal.mechanisms.maps.block_squares import BlockGrid
from shoal.mechanisms.maps.blocks import MapBlocks
from shoal.mechanisms.noise.exact import SmallSampler
from shoal.mechanisms.noise.skellam import Poisson
from shoal.mechanisms.several.noise_law import RATE_BITS, NoiseLaw, Truth
from shoal.mechanisms.several.registry import create
from shoal.task import MechanismSpec
from tests.sizes import size
from tests.worlds.tapes import Poured

N, DELTA = 20_000, 1e-6
MAP = Places(48_000_000, 11_300_000, 48_300_000, 11_800_000, 32, 32)
SMALL = replace(MAP, rows=4, columns=5)


def designed(places: Places, n: int = N, side: int = 0) -> MapBlocks:
    made = create(design_blocks(places, n, 1.0, DELTA, windows=1, side=side), places)
    assert isinstance(made, MapBlocks)
    return made


def tally_of(made: MapBlocks, held: np.ndarray, entropy: Poured) -> Tally:
    """Of a batch with so many devices in each cell: the true messages, and the noise of all
    devices drawn at once, from the sum of their laws (a Poisson number in each count).
    """
    counts = np.zeros(made.grid.nodes, dtype=np.int64)
    for cell, devices in enumerate(held.tolist()):
        counts[list(made.grid.path(cell))] += devices
    rate = Fraction(made.noise.rates()[0].weight * int(held.sum()), 1 << RATE_BITS)
    sampler = SmallSampler(Poisson(rate))
    counts += np.array([sampler.draw(entropy) for _ in counts])
    return Tally(counts, int(counts.sum()))


def test_rectangles_err_as_is_said() -> None:
    """32 x 32 cells at (1, 1e-6), 30 batches (200 in full), 400 rectangles: the mean square error
    against the exact one, within 5 standard deviations of it; intervals hold the truth in 94 to
    97 % of cases. False alarm 1e-6.

    Planted: the noise of ``shares`` devices for twice as many -> fails.
    """
    made, entropy, runs = designed(MAP, N // 2), Poured(SeededEntropy("map")), size(30, 200)
    held = np.random.default_rng(1).multinomial(N, np.random.default_rng(2).dirichlet([0.1] * 1025))
    ends = np.sort(np.random.default_rng(5).integers(0, 33, size=(400, 2, 2)), axis=2)
    ends = ends[(ends[:, :, 0] < ends[:, :, 1]).all(axis=1)]
    said = np.array([made.stderr_of_rectangle(N, (a, b), (c, d)) for (a, b), (c, d) in ends])
    truth = held[:-1].reshape(32, 32)
    squares, inside = list[float](), list[float]()
    for _ in range(runs):
        estimate = made.estimate(tally_of(made, held, entropy), N)
        assert float(estimate.values.sum()) == pytest.approx(N, abs=1e-6)
        errors = estimate.values[:-1].reshape(32, 32) - truth
        off = np.array([errors[a:b, c:d].sum() for (a, b), (c, d) in ends])
        squares.append(float(np.mean((off / said) ** 2)))
        inside.append(float(np.mean(np.abs(off) <= Z * said)))
    spread = float(np.std(squares)) / math.sqrt(runs)
    assert abs(np.mean(squares) - 1.0) < 5.0 * spread
    assert spread < 0.05
    assert 0.94 < np.mean(inside) < 0.97
    assert made.rectangle_stderr(N) == pytest.approx(44.2 * math.sqrt(2.0), rel=0.01)


def test_messages_are_cell_and_block_and_noise() -> None:
    """Planted: the messages of the cell before -> fails."""
    made = designed(SMALL, 400)
    assert made.grid == BlockGrid(4, 5, 2)
    for cell, block in ((0, 21), (1, 21), (2, 22), (4, 23), (10, 24), (19, 26), (20, 27)):
        assert made.grid.path(cell) == (cell, block)
        numbers = {message[0] for message in made.randomize_one(cell, SeededEntropy(cell))}
        assert {cell, block} <= numbers <= set(range(28))
    tight = replace(made, noise=replace(made.noise, slots=2))
    assert {m[0] for m in tight.randomize_one(19, SeededEntropy(1))} == {19, 26}


def test_what_does_not_fit_is_refused() -> None:
    """Planted: the map's size, or the number of true messages, not looked at -> fails."""
    made = designed(SMALL, 400)
    with pytest.raises(ShoalError, match="of the cells of its map"):
        MapBlocks(MAP, made.grid, made.noise)
    flat = NoiseLaw(Truth.CELL, made.grid.nodes, 400, 90, dummies=Fraction(9))
    with pytest.raises(ShoalError, match="two true messages"):
        MapBlocks(SMALL, made.grid, flat)
    numbers = dict(made.spec.parameters)
    with pytest.raises(ShoalError, match="blocks of a map are 2 to 256"):
        create(MechanismSpec.of("blocks", **{**numbers, "side": 6}), SMALL)
    with pytest.raises(ShoalError, match="set k = 21"):
        create(MechanismSpec.of("blocks", **{**numbers, "k": 20}), SMALL)
    with pytest.raises(ShoalError, match="places on a map, and no other"):
        create(
            MechanismSpec.of("blocks", **numbers), Categories(tuple(f"c{at}" for at in range(20)))
        )


def test_designs_that_cannot_be_are_refused() -> None:
    """Planted: the messages of a report not looked at -> fails."""
    with pytest.raises(ShoalError, match="blocks answers questions for places on a map alone"):
        design_several("blocks", Categories(("a", "b")), 1_000, 1.0, DELTA, windows=1)
    with pytest.raises(ShoalError, match="leave epsilon0_if_colluding out"):
        design_several("blocks", MAP, 1_000, 1.0, DELTA, windows=1, epsilon0_if_colluding=4.0)
    with pytest.raises(ShoalError, match="blocks: a device would send up to"):
        design_several("blocks", MAP, 400, 1.0, DELTA, windows=1)
    for rows, columns in ((1, 2_000), (1, 1), (255, 257)):
        other = replace(MAP, rows=rows, columns=columns)
        with pytest.raises(ShoalError, match="blocks"):
            design_several("blocks", other, 10**6, 1.0, DELTA, windows=1)
