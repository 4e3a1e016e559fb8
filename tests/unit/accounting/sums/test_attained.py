"""The lower end of a sum's certificate is attained by real devices: by vectors that ``quantize``
gives for certain, whatever its random words are.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from shoal.accounting.sums.pairwise import SumBound, certify_sum
from shoal.domain import Norm, Vector
from shoal.entropy import Entropy, SeededEntropy
from shoal.mechanisms.quantize import bounds, default_grid, quantize
from shoal.secagg import Mode
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.unit.accounting.noise_laws import divergence, polya_pmf, product, skellam_log_pmf
from tests.worlds.tapes import Constant

Whole = tuple[int, ...]
SIZES = [(1, 1), (1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2)]
SEEDS = range(6)


def certain_vectors(domain: Vector) -> list[Whole]:
    """All whole vectors that some value is quantized to under every source of words tried: the two
    extreme words, and seeds. The clip is the grid, so that values are in steps.
    """
    steps = range(-domain.grid, domain.grid + 1)
    found = []
    for wanted in itertools.product(steps, repeat=domain.dimension):
        sources: list[Entropy] = [Constant(0), Constant((1 << 64) - 1), *map(SeededEntropy, SEEDS)]
        made = {
            tuple(quantize(list(map(float, wanted)), domain, source).vector.tolist())
            for source in sources
        }
        if made == {wanted}:
            found.append(wanted)
    return found


def certified(spec: MechanismSpec, domain: Vector, delta: float) -> SumBound:
    """Of four survivors, all honest."""
    return certify_sum(
        spec,
        bounds(domain),
        domain.dimension,
        survivors=4,
        honest_fraction=1,
        delta=delta,
        mode=Mode.DEFAULT,
    )


def most_refuted(law: NDArray[np.float64], vectors: list[Whole], epsilon: float) -> float:
    """The largest divergence at ``epsilon`` of two of the vectors. Never above the truth: what lies
    outside the table is left out.
    """
    shifts = {
        tuple(sorted(abs(a - b) for a, b in zip(v, w, strict=True)))
        for v, w in itertools.combinations(vectors, 2)
    }
    joint = product(law, len(vectors[0]))
    return max(divergence(joint, shift, epsilon) for shift in shifts)


@for_each("norm", list(Norm))
@for_each("dimension, grid", SIZES)
@for_each("variance, delta", [(3, 1e-2), (6, 1e-5)])
def test_skellam_lower_ends_are_of_real_vectors(
    norm: Norm, dimension: int, grid: int, variance: int, delta: float
) -> None:
    """Some pair that devices send for certain has delta or more at the stated lower end.

    Planted: lower ends from the bounds of the unluckiest rounding (grid + sqrt(d))^2, and
    ``certain_squared`` one larger -> L2 in several coordinates fails.
    """
    domain = Vector(dimension, norm, float(grid), grid)
    found = certified(MechanismSpec.of("skellam", variance=variance, shares=4), domain, delta)
    law = np.exp(skellam_log_pmf(variance, 26))
    assert found.epsilon_lower > 0.0
    reached = most_refuted(law, certain_vectors(domain), found.epsilon_lower)
    assert reached >= delta * (1 - 1e-6)


@for_each("norm", list(Norm))
@for_each("dimension, grid", SIZES)
@for_each("shares", [4, 8])
def test_laplace_lower_ends_are_of_real_vectors(
    norm: Norm, dimension: int, grid: int, shares: int
) -> None:
    """As above; of all shares, and of half of them. Planted: as above -> the same fail."""
    domain, delta = Vector(dimension, norm, float(grid), grid), 1e-4
    spec = MechanismSpec.of("discrete_laplace", scale=1 << 16, shares=shares)
    found = certified(spec, domain, delta)
    law = polya_pmf(1 << 16, 4 / shares, 26)
    assert found.epsilon_lower > 0.0
    reached = most_refuted(law, certain_vectors(domain), found.epsilon_lower)
    assert reached >= delta * (1 - 1e-6)


def test_what_devices_send_for_certain() -> None:
    """The vectors that are compared: of L2 those within the grid, and not those of length above
    it, which rounding reaches by luck.
    """
    for norm, length in ((Norm.L1, 1), (Norm.L2, 2)):
        domain = Vector(2, norm, 3.0, 3)
        inside = [
            v
            for v in itertools.product(range(-3, 4), repeat=2)
            if sum(abs(x) ** length for x in v) <= 3**length
        ]
        assert certain_vectors(domain) == inside
    assert len(certain_vectors(Vector(2, Norm.COORDINATE, 3.0, 3))) == 49


@for_each("dimension", [100, 10_000, 1_000_000])
def test_the_room_between_the_ends_of_long_vectors(dimension: int) -> None:
    """Not much below the truth either: at the usual grid, rounding that may lengthen a vector
    widens the room by 1 %. Planted: lower ends of 0 -> this fails.
    """
    grid = default_grid(Norm.L2, 1.0, dimension)
    spec = MechanismSpec.of("skellam", variance=20 * grid**2, shares=4)
    found = certified(spec, Vector(dimension, Norm.L2, 1.0, grid), 1e-6)
    assert 1.05 < found.epsilon_upper / found.epsilon_lower < 1.15


def test_many_small_moves_are_told_apart_best() -> None:
    """(1, 1, 1, 1) and (2, 0, 0, 0) are of one length. Of the first and its negative epsilon is
    2.876, of the second 2.752, by convolution of the losses of single coordinates. Planted: of
    equal lengths the fewest coordinates -> this fails.
    """
    domain = Vector(4, Norm.L2, 1.0, 2)
    found = certified(MechanismSpec.of("skellam", variance=40, shares=4), domain, 1e-6)
    assert 2.87 < found.epsilon_lower < 2.8755
