"""Shamir's secret sharing (Communications of the ACM 22(11), 1979) of 32-byte secrets, over the
integers modulo 2^256 + 297.

The modulus is the smallest prime above 2^256, so every 32-byte string is one field element: no
padding, no pieces. A share is the value of a random polynomial of degree threshold - 1, whose
constant term is the secret, at the holder's point. ``threshold`` shares give the secret; one fewer
say nothing about it, whatever the secret is.

Python's integers do not run in constant time. What is computed here are one-time secrets: a device
computes shares once, from secrets of one round, and reconstruction is by the analyzer, which is
meant to learn the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod

from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError

PRIME = (1 << 256) + 297
SECRET_SIZE = 32  # bytes
SHARE_SIZE = 33  # bytes: a number below PRIME, big-endian
POINT_MAX = (1 << 32) - 1

# The largest multiple of PRIME that 33 bytes can count to: a draw below it is uniform modulo PRIME,
# a draw above is made again.
_UNIFORM_BELOW = (1 << (8 * SHARE_SIZE)) // PRIME * PRIME
# steps of Horner's rule between two reductions: a multiplication by a small point costs less than a
# division
_LAZY = 16


def split(secret: bytes, threshold: int, points: Sequence[int], entropy: Entropy) -> list[bytes]:
    """One share of 33 bytes per point, in their order; any ``threshold`` of them give the secret.

    ``secret``: 32 bytes. ``points``: distinct, 1 to 2^32 - 1 (zero would be the secret itself), at
    least ``threshold`` of them. Coefficients are exactly uniform: 33 random bytes are refused with
    probability below 1/256, else reduced. With threshold 1 every share is the secret. Raises
    INVALID.
    """
    if len(secret) != SECRET_SIZE:
        raise ShoalError(Kind.INVALID, f"a shared secret is {SECRET_SIZE} bytes long")
    _check_points(points)
    if not 1 <= threshold <= len(points):
        raise ShoalError(Kind.INVALID, "a threshold is at least 1 and at most the number of shares")
    # Highest power first, as Horner's rule wants them; the secret is the last.
    coefficients = [*_uniform(threshold - 1, entropy), int.from_bytes(secret, "big")]
    runs = [coefficients[i : i + _LAZY] for i in range(0, threshold, _LAZY)]
    shares = []
    for point in points:
        value = 0
        for run in runs:
            for coefficient in run:
                value = value * point + coefficient
            value %= PRIME
        shares.append(value.to_bytes(SHARE_SIZE, "big"))
    return shares


def combine(shares: Mapping[int, bytes]) -> bytes:
    """The secret of 32 bytes that exactly these shares (point -> 33 bytes) lie on.

    Every share given is used: hand in as many as the threshold, no more (more would only be
    slower). Too few, or a wrong one, give another secret that looks as good, so check the result
    against what its owner committed to. Raises INVALID for no shares, a point or share out of
    range, and a result that is no 32-byte string.
    """
    points = tuple(sorted(shares))
    _check_points(points)
    product = prod(points)
    total = 0
    # Lagrange's formula at zero: sum of y_i * prod_{j != i} x_j / (x_j - x_i). The denominators
    # depend on differences alone.
    for point, inverse in zip(
        points, _inverse_denominators(tuple(point - points[0] for point in points)), strict=True
    ):
        total += parse_share(shares[point]) * inverse % PRIME * (product // point)
    secret = total % PRIME
    if secret >> (8 * SECRET_SIZE):
        raise ShoalError(
            Kind.INVALID,
            "these shares do not lie on one polynomial of a 32-byte secret: one is wrong",
        )
    return secret.to_bytes(SECRET_SIZE, "big")


def parse_share(share: bytes) -> int:
    """The number of a share. Raises INVALID unless it is 33 bytes and below PRIME."""
    value = int.from_bytes(share, "big")
    if len(share) != SHARE_SIZE or value >= PRIME:
        raise ShoalError(Kind.INVALID, f"a share is {SHARE_SIZE} bytes and below 2^256 + 297")
    return value


def _uniform(count: int, entropy: Entropy) -> list[int]:
    """Independent, exactly uniform numbers modulo PRIME."""
    numbers: list[int] = []
    while missing := count - len(numbers):
        drawn = entropy.bytes(missing * SHARE_SIZE)
        for start in range(0, len(drawn), SHARE_SIZE):
            number = int.from_bytes(drawn[start : start + SHARE_SIZE], "big")
            if number < _UNIFORM_BELOW:
                numbers.append(number % PRIME)
    return numbers


def _check_points(points: Sequence[int]) -> None:
    if not points or min(points) < 1 or max(points) > POINT_MAX or len(set(points)) != len(points):
        raise ShoalError(
            Kind.INVALID, "the points of shares are at least one, all different, from 1 to 2^32 - 1"
        )


@lru_cache(maxsize=256)
def _inverse_denominators(offsets: tuple[int, ...]) -> tuple[int, ...]:
    """1 / prod_{j != i} (x_j - x_i) modulo PRIME for each i, from the distances of the points to
    the first.

    Public, and the same for every holder pattern of the same shape anywhere on the ring. One
    inversion for all (Montgomery, Mathematics of Computation 48, 1987, section 10.3.1): invert the
    product, then take it apart. No factor is zero, since points are distinct and their differences
    far smaller than PRIME.
    """
    denominators = [
        prod(other - own for other in offsets if other != own) % PRIME for own in offsets
    ]
    before = list(accumulate(denominators, lambda a, b: a * b % PRIME, initial=1))
    inverse = pow(before[-1], -1, PRIME)
    inverses = []
    for index in range(len(offsets) - 1, -1, -1):
        inverses.append(inverse * before[index] % PRIME)
        inverse = inverse * denominators[index] % PRIME
    return tuple(reversed(inverses))
