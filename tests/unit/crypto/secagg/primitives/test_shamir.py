"""Any threshold of shares gives the secret, one fewer says nothing, and no wrong input passes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from shoal.crypto.secagg.primitives import shamir
from shoal.crypto.secagg.primitives.shamir import PRIME, SHARE_SIZE, combine, parse_share, split
from shoal.entropy import SeededEntropy, uniform_below
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.flipped import last_bit_flipped
from tests.sizes import size
from tests.worlds.tapes import Tape

SECRET = bytes(range(32))


def refused(act: Any, *args: Any) -> None:
    with pytest.raises(ShoalError) as caught:
        act(*args)
    assert caught.value.kind is Kind.INVALID
    assert "\n" not in str(caught.value)


def tape(*coefficients: int) -> Tape:
    """Randomness that gives these coefficients, the highest power first."""
    return Tape(b"".join(coefficient.to_bytes(SHARE_SIZE, "big") for coefficient in coefficients))


def lagrange(shares: Mapping[int, int], at: int) -> int:
    """The textbook formula, one modular inverse per factor."""
    total = 0
    for i, y in shares.items():
        term = y
        for j in shares:
            if j != i:
                term = term * (at - j) * pow(i - j, -1, PRIME) % PRIME
        total += term
    return total % PRIME


def numbers(points: list[int], shares: list[bytes]) -> dict[int, int]:
    return {
        point: int.from_bytes(share, "big") for point, share in zip(points, shares, strict=True)
    }


def pick(points: list[int], count: int, entropy: SeededEntropy) -> list[int]:
    """``count`` of the points, in random order."""
    left = list(points)
    return [left.pop(uniform_below(len(left), entropy)) for _ in range(count)]


# --- arithmetic -----------------------------------------------------------------------------------


def strong_probable_prime(n: int, base: int) -> bool:
    """One round of Miller-Rabin."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    x = pow(base, odd, n)
    return x in (1, n - 1) or any((x := x * x % n) == n - 1 for _ in range(twos - 1))


def test_the_modulus_is_the_smallest_prime_above_every_secret() -> None:
    assert PRIME == 2**256 + 297
    assert all(strong_probable_prime(PRIME, base) for base in range(2, 66))
    # 2^256 + 1 would deceive base 2
    assert not any(strong_probable_prime(2**256 + offset, 3) for offset in range(1, 297, 2))


def test_known_answer() -> None:
    """Coefficients 7 (of x) and 11 (of x^2). Planted: the order of coefficients reversed;
    little-endian shares -> this fails.
    """
    shares = split(SECRET, 3, [1, 2, 3], tape(11, 7))
    low = [int.from_bytes(share[-8:], "big") for share in shares]
    assert low == [0x18191A1B1C1D1E31, 0x18191A1B1C1D1E59, 0x18191A1B1C1D1E97]
    assert all(share[:25] == b"\x00" + SECRET[:24] for share in shares)
    assert combine(dict(zip((1, 2, 3), shares, strict=True))) == SECRET


def test_small_numbers_agree_with_exact_rational_interpolation() -> None:
    """While nothing exceeds the modulus, the field is that of the rationals."""
    shares = split(bytes(31) + b"\x05", 4, [1, 2, 5, 9, 20], tape(3, 1, 4))
    values = numbers([1, 2, 5, 9, 20], shares)
    assert values == {x: 5 + 4 * x + x**2 + 3 * x**3 for x in values}
    for chosen in itertools.combinations(values, 4):
        at_zero = Fraction(0)
        for i in chosen:
            term = Fraction(values[i])
            for j in chosen:
                term *= Fraction(-j, i - j) if j != i else 1
            at_zero += term
        assert at_zero == 5
        assert (
            combine({i: values[i].to_bytes(SHARE_SIZE, "big") for i in chosen})
            == bytes(31) + b"\x05"
        )


@for_each("secret", [bytes(32), b"\xff" * 32, SECRET], ids=["zeros", "ones", "counting"])
@for_each(
    "threshold, count", [(1, 1), (1, 3), (2, 2), (3, 7), (16, 17), (17, 20), (26, 50), (33, 40)]
)
def test_any_threshold_of_shares_in_any_order_gives_the_secret(
    secret: bytes, threshold: int, count: int
) -> None:
    """Against the textbook formula too; 16 and 17 lie on both sides of the lazy reduction.

    Planted: the sign of a difference; the inverse of another index; the cached row of another
    pattern -> this fails.
    """
    entropy = SeededEntropy(f"any {threshold} {count}")
    points = pick(list(range(1, 200)), count, entropy)
    shares = dict(zip(points, split(secret, threshold, points, entropy), strict=True))
    for _ in range(size(3, 30)):
        chosen = pick(points, threshold, entropy)
        assert combine({point: shares[point] for point in chosen}) == secret
        assert lagrange(
            {point: int.from_bytes(shares[point], "big") for point in chosen}, 0
        ) == int.from_bytes(secret, "big")
    assert combine(shares) == secret  # more than the threshold still lie on the polynomial


def test_points_far_apart_and_shapes_around_the_ring() -> None:
    """The first, the last and the largest points; one shape at several places gives each its own
    weights.
    """
    entropy = SeededEntropy("far")
    for points in (
        [1, 2**32 - 1],
        [2**32 - 1, 2**32 - 2, 2**32 - 3],
        [1, 2, 1023, 1024],
        [5, 6, 7, 9],
        [500, 501, 502, 504],
    ):
        shares = split(SECRET, len(points), points, entropy)
        assert combine(dict(zip(points, shares, strict=True))) == SECRET


def test_a_large_round() -> None:
    """The largest complete graph that a threshold can ask for, with 32-bit points."""
    entropy = SeededEntropy("large")
    points = [2**32 - 1 - 3 * i for i in range(size(200, 1023))]
    threshold = len(points) * 2 // 3
    shares = split(SECRET, threshold, points, entropy)
    chosen = range(len(points) - threshold, len(points))
    assert combine({points[i]: shares[i] for i in chosen}) == SECRET


# --- secrecy --------------------------------------------------------------------------------------


def test_one_share_too_few_fits_every_secret() -> None:
    """For any other secret there is a polynomial of the same degree through the same shares, so
    they say nothing about it.
    """
    entropy = SeededEntropy("few")
    points = [3, 4, 8, 9, 11]
    held = numbers(points, split(SECRET, 6, [*points, 20], entropy)[:5])
    for other in (bytes(32), b"\xff" * 32, entropy.bytes(32)):
        full = {0: int.from_bytes(other, "big"), **held}
        again = {
            point: lagrange(full, point).to_bytes(SHARE_SIZE, "big") for point in (*points, 20)
        }
        assert numbers(points, [again[point] for point in points]) == held
        assert combine(again) == other
    guess = {point: y.to_bytes(SHARE_SIZE, "big") for point, y in held.items()}
    assert combine(guess) != SECRET


def test_coefficients_are_drawn_without_bias() -> None:
    """33 bytes cover the field 255 times and a rest; the rest is drawn again. Planted: no
    rejection; a bound one off -> this fails.
    """
    bound = 255 * PRIME
    assert bound + PRIME > 2**264 > bound
    for accepted, coefficient in ((bound - 1, PRIME - 1), (0, 0), (PRIME, 0), (PRIME + 5, 5)):
        assert numbers([1], split(bytes(32), 2, [1, 2], tape(accepted))[:1]) == {1: coefficient}
    for rejected in (bound, 2**264 - 1):
        script = Tape(rejected.to_bytes(33, "big"), (77).to_bytes(33, "big"))
        assert numbers([1], split(bytes(32), 2, [1, 2], script)[:1]) == {1: 77}
        assert script.done()


def test_only_the_missing_coefficients_are_drawn_again() -> None:
    """Those accepted keep their places. Planted: a rejected draw counted as zero -> this fails."""
    first = b"".join(number.to_bytes(33, "big") for number in (11, 2**264 - 1, 7))
    script = Tape(first, (5).to_bytes(33, "big"))
    assert numbers([1, 2], split(bytes(32), 4, [1, 2, 3, 4], script)[:2]) == {
        1: 11 + 7 + 5,
        2: 11 * 8 + 7 * 4 + 5 * 2,
    }


def test_two_splits_share_nothing_but_the_secret() -> None:
    entropy = SeededEntropy("twice")
    assert not set(split(SECRET, 2, [1, 2, 3], entropy)) & set(split(SECRET, 2, [1, 2, 3], entropy))


# --- what is refused ------------------------------------------------------------------------------


@for_each("points", [[], [0, 1], [-1, 1], [1, 1], [1, 2**32], [2, 3, 2]])
def test_points_that_are_none_are_refused(points: list[int]) -> None:
    """Zero above all: a share at zero is the secret. Planted: the lower bound 0 -> this fails."""
    refused(split, SECRET, 1, points, SeededEntropy(1))
    if len(set(points)) == len(points):
        refused(combine, {point: bytes(SHARE_SIZE) for point in points})


@pytest.mark.parametrize("threshold", [-1, 0, 4])
def test_thresholds_that_are_none_are_refused(threshold: int) -> None:
    refused(split, SECRET, threshold, [1, 2, 3], SeededEntropy(1))


@pytest.mark.parametrize("length", [0, 31, 33])
def test_secrets_of_another_length_are_refused(length: int) -> None:
    refused(split, bytes(length), 2, [1, 2, 3], SeededEntropy(1))


@for_each("share", [b"", bytes(32), bytes(34), PRIME.to_bytes(33, "big"), b"\xff" * 33])
def test_what_is_no_share_is_refused(share: bytes) -> None:
    """Planted: the comparison with PRIME removed -> this fails."""
    refused(parse_share, share)
    refused(combine, {1: share, 2: bytes(SHARE_SIZE)})
    assert parse_share((PRIME - 1).to_bytes(33, "big")) == PRIME - 1


@pytest.mark.parametrize("value", [2**256, PRIME - 1])
def test_a_result_that_is_no_secret_is_refused(value: int) -> None:
    """The field has 297 elements that no 32 bytes spell. Planted: the check removed -> an
    OverflowError.
    """
    refused(combine, {1: value.to_bytes(SHARE_SIZE, "big")})
    assert combine({1: (2**256 - 1).to_bytes(SHARE_SIZE, "big")}) == b"\xff" * 32


def test_a_wrong_share_gives_another_secret() -> None:
    """Nothing here can tell: that is what commitments are for."""
    shares = dict(zip((1, 2, 3), split(SECRET, 3, [1, 2, 3], SeededEntropy("wrong")), strict=True))
    for point, share in shares.items():
        changed = dict(shares)
        changed[point] = last_bit_flipped(share)
        assert combine(changed) != SECRET


def test_weights_are_remembered_by_shape() -> None:
    """The same distances elsewhere on the ring cost no new inversion; the memory is bounded."""
    shamir._inverse_denominators.cache_clear()
    for start in (1, 50, 900):
        combine({start + offset: bytes(SHARE_SIZE) for offset in (0, 1, 3)})
    info = shamir._inverse_denominators.cache_info()
    assert (info.misses, info.hits) == (1, 2)
    assert info.maxsize is not None
