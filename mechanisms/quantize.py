"""From a vector of real numbers to integers that can be summed under masks: clip, scale, round at
random; and what that bounds.

A value x becomes about x * grid / clip, after the vector was clipped to ``clip`` in the domain's
norm. Rounding is unbiased: each coordinate is rounded up with a probability that is its fraction,
an integer out of 2^64. What one vector can add to a sum (``bounds``) is proved for exact arithmetic
below, and enforced on the integers at the end, so that no float decides it.

Rounding, for a scaled vector y with magnitudes |y_i| = n_i + f_i / 2^64 (signs are put back last):
- COORDINATE and L2: independent; n_i + 1 if a word w_i < f_i, else n_i.
- L1: systematic; one word u for all. With c_i = (u + f_1 + ... + f_i) mod 2^64, coordinate i gets
  n_i + 1 if the i-th addition carries (c_i < f_i), else n_i. As u is uniform so is every c_(i-1),
  so the carry has probability exactly f_i / 2^64. All carries together are floor((u + f_1 + ... +
  f_d) / 2^64) <= ceil(f_1 / 2^64 + ... + f_d / 2^64), so sum |q_i| <= ceil(sum |y_i|).

Magnitudes of 2^-12 and more are whole multiples of 2^-64, as floats have 53 bits. Of smaller ones
what lies below 2^-64 is cut off: 2^-64 of a grid step is the largest bias of rounding. Scaling is
two float operations: y is within a factor 1 +- 2^-52 of the true value, or 1 +- d 2^-52 where a
norm had to be summed to clip the vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shoal.arrays import NDArray, np
from shoal.domain import Norm, Vector
from shoal.entropy import Entropy
from shoal.mechanisms.base import invalid
from shoal.mechanisms.parts.sampling import BLOCK, bernoulli, blocks

_LEAST_GRID = 1_000


@dataclass(frozen=True, slots=True)
class SensitivityBounds:
    """Of ONE device's integer vector q, whatever its values: sum |q_i| <= l1, sum q_i^2 <=
    l2_squared, max |q_i| <= linf.

    Exchanging one device's vector for another (replace-one) changes a sum by up to twice the norms:
    l1 and linf double, l2_squared quadruples.

    Not every integer vector within them is one that some values give for certain: l2_squared is for
    the unluckiest rounding. ``certain_squared``: wherever m coordinates of c each keep m c <= l1,
    m c^2 <= certain_squared and c <= linf, some values are rounded to c or more in each of m
    coordinates and 0 elsewhere, whatever the random words are, and their negatives to -c or less.
    """

    l1: int
    l2_squared: int
    linf: int
    certain_squared: int


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """``vector``: int64[dimension] within ``bounds(domain)``. ``clipped``: share of coordinates
    that clipping changed, 0 to 1.

    In L1 and L2 clipping scales the whole vector, so there it is 0 or 1. It is a private value: a
    device may show it to its owner, and sends it to nobody.
    """

    vector: NDArray[np.int64]
    clipped: float

    def __repr__(self) -> str:
        return f"Quantized({self.vector.size} coordinates)"


def bounds(domain: Vector) -> SensitivityBounds:
    """What one vector of ``quantize`` can be, at most. Integers, exact.

    COORDINATE: |y_i| <= grid, a whole number, so rounding up stays within it. L1: sum |q_i| <=
    ceil(grid) = grid (systematic rounding); the others follow. L2: |q_i - y_i| < 1, so ||q|| <
    ||y|| + sqrt(d) <= grid + sqrt(d) whatever the random words are; squared, grid^2 + d + 2 grid
    sqrt(d), and the floor of that as the left side is whole. sum |q_i| <= sqrt(d) ||q|| (Cauchy),
    and <= sum q_i^2 as q_i is whole. |q_i| <= grid as above.

    Certain: the value ``clip`` in m coordinates, 0 elsewhere. Each is scaled to y = grid
    (COORDINATE), grid / m (L1) or grid / sqrt(m) (L2), and rounded to floor(y) or more. In floats
    too y >= c if m c <= grid or m c^2 <= grid^2: a quotient of whole numbers never rounds across a
    whole one. The root of L2 alone may be too large, by a share of 2^-53, unless m is a square. But
    then c is smaller than the true y by a share of 2^-52 or more: m c^2 differs from grid^2, by 1
    at least, and from 2^25 steps on by a share of 2^-51 because ``certain_squared`` does.
    """
    d, grid = domain.dimension, domain.grid
    if domain.norm is Norm.L1:
        return SensitivityBounds(grid, grid**2, grid, grid**2)
    cube = SensitivityBounds(d * grid, d * grid**2, grid, d * grid**2)
    if domain.norm is Norm.COORDINATE:
        return cube
    l2_squared = min(grid**2 + d + math.isqrt(4 * grid**2 * d), cube.l2_squared)
    l1 = min(math.isqrt(d * l2_squared), l2_squared, cube.l1)
    return SensitivityBounds(l1, l2_squared, grid, grid**2 - (grid**2 >> 50))


def quantize(
    values: Sequence[float] | NDArray[np.float64] | None, domain: Vector, entropy: Entropy
) -> Quantized:
    """The integers of one device's vector: clipped, scaled to the grid, rounded without bias. None
    is the zero vector.

    ``values``: ``dimension`` finite numbers. Draws as many words whatever they are: one (L1) or one
    per coordinate. Raises INVALID, before any word is drawn, for another length, for NaN or
    infinity, and for what is no number.
    """
    numbers = check_vector(values, domain)
    magnitudes, clipped = _scaled(numbers, domain)
    vector = _rounded(magnitudes, numbers, domain, entropy)
    return Quantized(enforce(vector, domain), clipped)


def rounding_variance(domain: Vector) -> float:  # noqa: ARG001  # the same for every domain so far
    """Most variance that rounding adds per coordinate and device, in grid steps squared: f (1 - f)
    <= 1/4.
    """
    return 0.25


def dequantize(total: NDArray[np.int64], domain: Vector) -> NDArray[np.float64]:
    """float64[d] in the domain's unit from a sum of quantized vectors: total * clip / grid."""
    return np.asarray(total, dtype=np.int64).astype(np.float64) / domain.grid * domain.clip


def default_grid(norm: Norm, clip: float, dimension: int) -> int:
    """Steps that ``clip`` is cut into, unless a task says otherwise: rounding then costs at most 1
    % of sensitivity.

    L2: rounding can lengthen a vector by sqrt(d) steps, so 100 sqrt(d) steps or more. L1 and
    COORDINATE: rounding lengthens nothing, and 1,000 steps make its variance (1/4 per device) small
    beside noise of at least a clip's size. Never below 1,000; a larger grid only widens words and
    tables. Public, like every number of a task. Raises INVALID as ``Vector`` does.
    """
    grid = _LEAST_GRID
    if norm is Norm.L2:
        grid = max(grid, math.isqrt(10_000 * max(dimension, 1) - 1) + 1)  # ceil(100 sqrt(d))
    return Vector(dimension, norm, clip, grid).grid


def enforce(vector: NDArray[np.int64], domain: Vector) -> NDArray[np.int64]:
    """The vector, moved toward zero until it is within ``bounds(domain)``: a no-op but for the last
    bits of a float, and total.

    ``vector``: int64[d], absolute values that sum to less than 2^63; changed in place.
    """
    most = bounds(domain)
    np.clip(vector, -most.linf, most.linf, out=vector)
    if domain.norm is Norm.L1:
        while (excess := _sum_of_sizes(vector) - most.l1) > 0:
            largest = int(np.argmax(np.abs(vector)))
            value = int(vector[largest])
            vector[largest] = int(math.copysign(max(abs(value) - excess, 0), value))
    if domain.norm is Norm.L2 and (squares := sum_of_squares(vector)) > most.l2_squared:
        # Shrunk by less than sqrt(bound / squares), then rounded toward zero: ||q|| a / b < a <=
        # sqrt(bound).
        a, b = math.isqrt(most.l2_squared), math.isqrt(squares) + 1
        for part in blocks(vector.size, BLOCK):
            vector[part] = [q * a // b if q >= 0 else -(-q * a // b) for q in vector[part].tolist()]
    return vector


def _sum_of_sizes(vector: NDArray[np.int64]) -> int:
    """Exact, for int64[d] whose absolute values sum to less than 2^63."""
    return sum(int(np.abs(vector[part]).sum()) for part in blocks(vector.size))


def sum_of_squares(vector: NDArray[np.int64]) -> int:
    """Exact, for int64[d] below 2^48 in absolute value: halves of 24 bits, so that no product of a
    block leaves 63 bits.
    """
    total = 0
    for part in blocks(vector.size, BLOCK):
        size = np.abs(vector[part])
        high, low = size >> 24, size & 0xFFFFFF
        total += (int(high @ high) << 48) + (int(high @ low) << 25) + int(low @ low)
    return total


def check_vector(
    values: Sequence[float] | NDArray[np.float64] | None, domain: Vector
) -> NDArray[np.float64]:
    """float64[dimension]: the numbers as ``quantize`` takes them, zeros for None. Raises INVALID as
    it does.
    """
    if values is None:
        return np.zeros(domain.dimension)
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise invalid("a vector holds numbers and nothing else") from None
    if numbers.shape != (domain.dimension,):
        raise invalid(
            f"this question wants a vector of {domain.dimension} numbers: the value has another "
            "shape"
        )
    # in blocks: an array of yes and no would be an eighth of another vector
    if not all(np.isfinite(numbers[part]).all() for part in blocks(numbers.size)):
        raise invalid("a vector holds NaN or infinity: mend it, or give no vector")
    return numbers


def _scaled(numbers: NDArray[np.float64], domain: Vector) -> tuple[NDArray[np.float64], float]:
    """A fresh float64[d] in [0, grid]: magnitudes clipped, then in grid steps; and the share that
    was clipped. No input overflows.

    Always a division and a multiplication, each at most 1 ulp off. Divisors are at least every
    magnitude, so a quotient is at most 1. In place, so that a long vector is held once.
    """
    clip, grid = domain.clip, float(domain.grid)
    sizes = np.abs(numbers)
    if domain.norm is Norm.COORDINATE:
        above = sum(np.count_nonzero(sizes[part] > clip) for part in blocks(sizes.size))
        clipped = above / sizes.size
        np.minimum(sizes, clip, out=sizes)
        sizes /= clip
        sizes *= grid
        return sizes, clipped
    largest = float(sizes.max())
    # in [0, 1], so that no sum below overflows, and one of them is 1
    sizes /= largest or 1.0
    relative = float(sizes.sum()) if domain.norm is Norm.L1 else math.sqrt(float(sizes @ sizes))
    fits = largest * relative <= clip  # the norm, or infinity
    if fits:
        np.abs(numbers, out=sizes)
        sizes /= clip
    sizes *= grid if fits else grid / relative
    return np.minimum(sizes, grid, out=sizes), 0.0 if fits else 1.0


def _rounded(
    magnitudes: NDArray[np.float64],
    numbers: NDArray[np.float64],
    domain: Vector,
    entropy: Entropy,
) -> NDArray[np.int64]:
    """int64[d]: the magnitudes rounded at random, with the signs of ``numbers``; in the memory of
    ``magnitudes``, which are gone then.

    Systematic rounding (L1) goes from block to block with where its sum stands modulo 2^64.
    """
    vector = magnitudes.view(np.int64)
    systematic = domain.norm is Norm.L1
    stands = entropy.words(1)[0] if systematic else np.uint64(0)
    for part in blocks(magnitudes.size, BLOCK):
        whole = np.floor(magnitudes[part])
        # the difference and the product are exact
        fractions = ((magnitudes[part] - whole) * 2.0**64).astype(np.uint64)
        if systematic:
            running = np.cumsum(fractions, dtype=np.uint64)  # modulo 2^64
            running += stands
            up, stands = np.less(running, fractions), running[-1]
        else:
            up = bernoulli(fractions, entropy)
        rounded = whole.astype(np.int64)
        rounded += up
        np.negative(rounded, out=rounded, where=np.signbit(numbers[part]))
        vector[part] = rounded
    return vector
