"""The proof that a shared secret is the right one: it comes out for the right one alone, whatever
the keys, and says nothing else.
"""

from __future__ import annotations

from collections import Counter

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from shoal.crypto.secagg.primitives import agreement_proof as proofs
from shoal.crypto.secagg.primitives.agreement_proof import (
    _ORDER,
    ROUNDS,
    SIZE,
    on_curve,
    prove,
    verify,
)
from shoal.entropy import SeededEntropy
from tests.cases import for_each

PRIME = 2**255 - 19
ENTROPY = SeededEntropy("agreement")
# A point of order 8 (RFC 7748's list of small orders), and u = 2, which lies on the twist.
ORDER_8 = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")
TWIST = (2).to_bytes(32, "little")


def key(label: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(SeededEntropy(label).bytes(32))


def public(private: X25519PrivateKey) -> bytes:
    return private.public_key().public_bytes_raw()


def agreed(private: X25519PrivateKey, other: bytes) -> bytes:
    return private.exchange(X25519PublicKey.from_public_bytes(other))


A, B = key("a"), key("b")
SHARED = agreed(A, public(B))
PROOF = prove(A, public(B), SHARED, b"context", ENTROPY)


# --- the curve, by affine arithmetic of its own: slow, and only here ------------------------------


def v_of(u: int) -> int:
    """A square root of u^3 + A u^2 + u; p = 5 mod 8."""
    w = (u**3 + 486662 * u * u + u) % PRIME
    root = pow(w, (PRIME + 3) // 8, PRIME)
    if root * root % PRIME != w:
        root = root * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    assert root * root % PRIME == w
    return root


def plus(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The sum of two points that are neither equal nor opposite."""
    (u, v), (x, y) = one, other
    slope = (y - v) * pow(x - u, -1, PRIME) % PRIME
    w = (slope * slope - 486662 - u - x) % PRIME
    return w, (slope * (u - w) - v) % PRIME


def beside(point: bytes) -> bytes:
    """The point with one of order 8 added: another one, that X25519 takes to the same secret."""
    u, torsion = (int.from_bytes(one, "little") for one in (point, ORDER_8))
    return plus((u, v_of(u)), (torsion, v_of(torsion)))[0].to_bytes(32, "little")


def test_the_right_secret_is_proven_and_nothing_else() -> None:
    """Planted: a challenge that does not hash the context -> it holds in another one."""
    assert len(PROOF) == SIZE == 4_112
    assert verify(public(A), public(B), SHARED, b"context", PROOF)
    other = public(key("c"))
    for what, arguments in {
        "context": (public(A), public(B), SHARED, b"another", PROOF),
        "secret": (public(A), public(B), agreed(A, other), b"context", PROOF),
        "other key": (public(A), other, SHARED, b"context", PROOF),
        "own key": (other, public(B), SHARED, b"context", PROOF),
        "turned round": (public(B), public(A), SHARED, b"context", PROOF),
        "short": (public(A), public(B), SHARED, b"context", PROOF[:-1]),
        "long": (public(A), public(B), SHARED, b"context", PROOF + b"\x00"),
        "empty": (public(A), public(B), SHARED, b"context", b""),
        "zeros": (public(A), public(B), SHARED, b"context", bytes(SIZE)),
        "no secret": (public(A), public(B), b"", b"context", PROOF),
        "secret of small order": (public(A), public(B), bytes(32), b"context", PROOF),
    }.items():
        assert not verify(*arguments), what


@for_each("place", [0, ROUNDS // 8 - 1, ROUNDS // 8, ROUNDS // 8 + 35, SIZE - 20])
def test_every_bit_counts(place: int) -> None:
    """Of the challenge, and of scalars (but the five of each that X25519 does not read)."""
    changed = bytearray(PROOF)
    changed[place] ^= 8
    assert not verify(public(A), public(B), SHARED, b"context", bytes(changed))


def test_a_lie_is_not_proven() -> None:
    """A prover that claims another secret, made by the program itself: half of the rounds fail."""
    wrong = agreed(A, public(key("c")))
    assert not verify(
        public(A), public(B), wrong, b"context", prove(A, public(B), wrong, b"context", ENTROPY)
    )


def test_a_secret_with_a_small_order_part_is_refused() -> None:
    """It passes every round, for all scalars are multiples of 8, but is another secret. Planted: no
    look at ``_ONE`` -> passes.
    """
    lie = beside(SHARED)
    assert lie != SHARED
    assert not verify(
        public(A), public(B), lie, b"context", prove(A, public(B), lie, b"context", ENTROPY)
    )


def test_keys_with_a_small_order_part_prove_all_the_same() -> None:
    """A dealer gets no key past the proof against which nobody could complain."""
    dealer = beside(public(B))
    shared = agreed(A, dealer)
    assert shared == SHARED
    assert verify(public(A), dealer, shared, b"", prove(A, dealer, shared, b"", ENTROPY))
    # and a complainer has no other secret with such a key: the same proof is bound to the other
    # bytes
    complainer = beside(public(A))
    assert agreed(B, complainer) == SHARED
    assert not verify(complainer, public(B), SHARED, b"context", PROOF)


def test_points_of_the_twist_are_told() -> None:
    """Half of all numbers lie there. A proof for such a key does not come out. Planted:
    ``on_curve`` that says True -> fails.
    """
    assert on_curve(public(A))
    assert not on_curve(TWIST)
    assert not on_curve(bytes(32))
    found = Counter(on_curve(ENTROPY.bytes(31) + b"\x00") for _ in range(400))
    assert 130 < found[True] < 270  # 7 standard deviations
    shared = agreed(A, TWIST)
    assert not verify(public(A), TWIST, shared, b"", prove(A, TWIST, shared, b"", ENTROPY))


def test_every_number_is_a_scalar_of_x25519_up_to_its_sign() -> None:
    """At random, and small ones. The edge, a part of 2^-124, has none: for it another nonce is
    drawn.
    """
    numbers = [
        1,
        2,
        3,
        _ORDER - 1,
        *(1 + int.from_bytes(ENTROPY.bytes(64), "big") % (_ORDER - 1) for _ in range(500)),
    ]
    for number in numbers:
        found = proofs._scalar(number)
        assert found is not None
        assert proofs._clamped(found) == int.from_bytes(found, "little")
        assert proofs._clamped(found) % _ORDER in {number, _ORDER - number}
    assert proofs._scalar((1 << 255) % _ORDER) is None


def test_what_is_shown_is_spread_alike_whatever_the_private_key() -> None:
    """The scalars shown for either bit are uniform up to sign, for each of two private keys: top
    bits in 8 classes, remainders by 7.

    Planted: q = r + e instead of r / e, or nonces of 128 bits -> one class, or no proof.
    """
    for label in ("a", "b"):
        private, top, rest = key(label), Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for number in range(4):
            other = public(key(f"other {number}"))
            proof = prove(private, other, agreed(private, other), b"", ENTROPY)
            assert verify(public(private), other, agreed(private, other), b"", proof)
            for index in range(ROUNDS):
                scalar = proofs._clamped(proof[ROUNDS // 8 + 32 * index :][:32]) % _ORDER
                scalar, bit = min(scalar, _ORDER - scalar), proofs._bit(proof, index)
                top[bit, scalar * 16 // _ORDER] += 1
                rest[bit, scalar % 7] += 1
        assert (len(top), len(rest)) == (16, 14)
        # 32 or 37 expected, standard deviation 6
        assert all(8 < count < 68 for count in (*top.values(), *rest.values()))
