"""The ring: every arc of every small ring is accepted, and everything else refused: gaps, swaps,
twins, other keys, other rings.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import product

import pytest

from shoal.crypto.secagg.primitives import merkle
from shoal.crypto.secagg.ring import (
    Ring,
    Seat,
    decode_seats,
    encode_seats,
    graph_seed,
    neighbour_positions,
    place_of,
    seat_of,
    tag,
    verify_arc,
)
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from tests.cases import for_each

OFFER = Digest(bytes(range(32)))
SEED = graph_seed(OFFER, Digest.of(b"list"), b"s" * 32, b"a" * 32)


def key(*words: object) -> bytes:
    """32 bytes that X25519 would print: below 2^255 - 19."""
    return hashlib.sha256(repr(words).encode()).digest()[:31] + b"\x00"


def seats(n: int) -> list[Seat]:
    return [
        Seat(seat_of(OFFER, key("device", i)), key("pad", i), key("share", i)) for i in range(n)
    ]


def degrees(n: int) -> list[int]:
    return [*range(2, n - 1, 2), n - 1]


def seen(ring: Ring, position: int, k: int) -> list[Seat]:
    """The leaves that a device sees, in the order that ``verify_arc`` wants."""
    n = len(ring)
    return (
        list(ring.order)
        if k == n - 1
        else [ring.order[(position - k // 2 + i) % n] for i in range(k + 1)]
    )


def check(
    ring: Ring,
    k: int,
    position: int,
    leaves: list[Seat] | None = None,
    proof: list[bytes] | None = None,
) -> None:
    verify_arc(
        ring.root,
        len(ring),
        k,
        position,
        seen(ring, position, k) if leaves is None else leaves,
        SEED,
        ring.proof(position, k) if proof is None else proof,
    )


def refused(kind: Kind | None, *arguments: object, **named: object) -> None:
    with pytest.raises(ShoalError) as caught:
        check(*arguments, **named)  # type: ignore[arg-type]
    assert caught.value.kind in ({Kind.INVALID, Kind.BAD_SIGNATURE} if kind is None else {kind})


class Forged(Ring):
    """What a dishonest shuffler lays: these seats in this order, whatever their tags, and the right
    proofs for it.
    """

    __slots__ = ()

    def __init__(self, order: list[Seat]) -> None:
        self.order = tuple(order)
        self._places = {one.seat: i for i, one in enumerate(order)}
        self._tree = merkle.Tree([one.leaf for one in order])
        self.root = self._tree.root


@for_each("n", range(3, 41))
def test_every_arc_of_every_small_ring(n: int) -> None:
    """All positions, all k; and no leaf or proof of one position passes at another."""
    ring = Ring(SEED, seats(n))
    assert [tag(SEED, one.seat) for one in ring.order] == sorted(
        tag(SEED, one.seat) for one in ring.order
    )
    for k, position in product(degrees(n), range(n)):
        check(ring, k, position)
        assert ring.arc(position, k) == list(neighbour_positions(n, k, position))
        assert ring.position_of(ring.order[position].seat) == position
        if k < n - 1:
            elsewhere = (position + 1) % n
            refused(
                None,
                ring,
                k,
                elsewhere,
                leaves=seen(ring, position, k),
                proof=ring.proof(position, k),
            )


@for_each("n", range(3, 41))
def test_neighbours_are_symmetric_and_even(n: int) -> None:
    for k in degrees(n):
        around = [neighbour_positions(n, k, p) for p in range(n)]
        assert all(len(set(one)) == k and p not in one for p, one in enumerate(around))
        assert all(p in around[q] for p in range(n) for q in around[p])
        if k < n - 1:
            assert around[n // 2] == tuple(
                (n // 2 + i) % n for i in (*range(-k // 2, 0), *range(1, k // 2 + 1))
            )


@for_each(
    "n, k, position",
    [(12, 4, 6), (12, 4, 0), (12, 4, 11), (12, 10, 3), (12, 11, 5), (5, 2, 4)],
)
def test_every_changed_byte_is_refused(n: int, k: int, position: int) -> None:
    """Of the root, the seed, the seats, the keys and the proof. Planted: the share key left out of
    the leaf -> fails.
    """
    ring = Ring(SEED, seats(n))
    leaves, proof = seen(ring, position, k), ring.proof(position, k)
    for i in range(32):
        flip = bytearray(32)
        flip[i] = 1

        def changed(data: bytes, flip: bytearray = flip) -> bytes:
            return bytes(a ^ b for a, b in zip(data, flip, strict=True))

        with pytest.raises(ShoalError) as caught:
            verify_arc(changed(ring.root), n, k, position, leaves, SEED, proof)
        assert caught.value.kind is Kind.BAD_SIGNATURE
        if k > 4:  # in another order; of five seats or fewer one order in 120 would rise by chance
            with pytest.raises(ShoalError):
                verify_arc(ring.root, n, k, position, leaves, changed(SEED), proof)
        for j, name in product(range(len(leaves)), ("seat", "pad_key", "share_key")):
            wrong = replace(leaves[j], **{name: changed(getattr(leaves[j], name))})
            refused(None, ring, k, position, leaves=[*leaves[:j], wrong, *leaves[j + 1 :]])
        for j in range(len(proof)):
            refused(
                Kind.BAD_SIGNATURE,
                ring,
                k,
                position,
                proof=[*proof[:j], changed(proof[j]), *proof[j + 1 :]],
            )
    for bad in ([*proof, bytes(32)], [bytes(32), *proof], proof[:-1] if proof else [b""]):
        refused(Kind.INVALID, ring, k, position, proof=bad)


@for_each("k, position", [(4, 6), (4, 1), (4, 11), (11, 0)])
def test_swapped_missing_and_added_leaves(k: int, position: int) -> None:
    ring = Ring(SEED, seats(12))
    leaves = seen(ring, position, k)
    for i in range(len(leaves) - 1):
        refused(
            Kind.INVALID,
            ring,
            k,
            position,
            leaves=[*leaves[:i], leaves[i + 1], leaves[i], *leaves[i + 2 :]],
        )
    refused(Kind.INVALID, ring, k, position, leaves=leaves[:-1])
    refused(Kind.INVALID, ring, k, position, leaves=[*leaves, leaves[0]])
    refused(Kind.INVALID, ring, k, position, leaves=leaves[::-1])
    if k == 4:  # one true leaf more, with the right proof of all six: still not the arc
        start = (position - 2) % 12
        six = [ring.order[(start + i) % 12] for i in range(6)]
        refused(
            Kind.INVALID,
            ring,
            k,
            position,
            leaves=six,
            proof=merkle.range_proof([one.leaf for one in ring.order], start, 6),
        )


def test_a_shuffler_picks_no_neighbour() -> None:
    """Pitfall 10: an order that does not follow the tags is refused by those who see it, even
    though its proofs are right.

    Two devices anywhere are exchanged, so that they get other neighbours: both refuse. An arc with
    a gap (a device passed over, the next one taken instead) has rising tags but no proof. Planted:
    the tags not compared, or compared around the ring's end -> fails.
    """
    honest = Ring(SEED, seats(12))
    for i, j in product(range(12), range(12)):
        if i != j:
            order = list(honest.order)
            order[i], order[j] = order[j], order[i]
            forged = Forged(order)
            for position in (i, j):
                refused(Kind.INVALID, forged, 4, position)
    # the tags rise all round, but the ring begins elsewhere
    turned = Forged([*honest.order[3:], *honest.order[:3]])
    for position in range(12):
        arc = {(position + i) % 12 for i in range(-2, 3)}
        if {8, 9} <= arc or {11, 0} <= arc:
            refused(Kind.INVALID, turned, 4, position)
    leaves = [honest.order[p] for p in (2, 3, 4, 5, 7)]
    refused(Kind.BAD_SIGNATURE, honest, 4, 4, leaves=leaves)


def test_nobody_sits_beside_himself() -> None:
    """A seat twice on a ring is refused wherever its places see one another, also across the ring's
    end. Planted: <= for < -> fails.
    """
    order = Ring(SEED, seats(12)).order
    double = replace(order[5], pad_key=key("other"), share_key=key("another"))
    with pytest.raises(ShoalError):
        Ring(SEED, [*order, double])
    forged = Forged([*order[:6], double, *order[6:]])
    for position in (4, 5, 6, 7):
        refused(Kind.INVALID, forged, 4, position)
    # Across the end: the last but one seat again at position 0, with the largest tag between them,
    # so that each step alone looks right.
    forged = Forged(
        [replace(order[10], pad_key=key("other"), share_key=key("another")), *order[1:]]
    )
    for position in (10, 11, 0):
        refused(Kind.INVALID, forged, 4, position)


@for_each("twist", ["same", "high bit", "plus the field"])
@for_each("mine, theirs", list(product(("pad_key", "share_key"), repeat=2)))
def test_keys_that_are_equal_or_reflected(twist: str, mine: str, theirs: str) -> None:
    """Pitfall 9: a neighbour with the device's own key, in any encoding of the point, and a device
    whose two keys are one.

    Planted: keys compared as bytes -> the twisted ones pass; share keys not compared with pad keys
    -> fails.
    """
    some = seats(12)
    small = (7).to_bytes(32, "little")  # a point with three encodings: 7, 7 + 2^255, 7 + 2^255 - 19
    other = {
        "same": small,
        "high bit": (7 + 2**255).to_bytes(32, "little"),
        "plus the field": (7 + 2**255 - 19).to_bytes(32, "little"),
    }[twist]
    for own in (3, 4):
        bad = list(some)
        bad[3] = replace(bad[3], **{mine: small})
        if own == 3 and mine == theirs:
            continue
        bad[own] = replace(bad[own], **{theirs: other})
        with pytest.raises(ShoalError, match="two keys") as caught:
            Ring(SEED, bad)
        assert caught.value.kind is Kind.INVALID
        with pytest.raises(ShoalError, match="two keys"):
            encode_seats(bad)
        with pytest.raises(ShoalError, match="two keys"):
            decode_seats(b"".join(one.leaf for one in sorted(bad, key=lambda one: one.seat)))
        order = sorted(bad, key=lambda one: tag(SEED, one.seat))
        with pytest.raises(ShoalError, match="two keys"):
            verify_arc(bytes(32), 12, 11, 0, order, SEED, [])


def test_other_numbers_of_devices() -> None:
    """The root binds n: an arc does not pass on a ring that is said to be one larger or smaller."""
    for n in range(6, 20):
        ring = Ring(SEED, seats(n))
        for position, other in product(range(2, n - 2), (n - 2, n - 1, n + 1, n + 2)):
            if position + 2 < other and other > 5:
                with pytest.raises(ShoalError):
                    verify_arc(
                        ring.root,
                        other,
                        4,
                        position,
                        seen(ring, position, 4),
                        SEED,
                        ring.proof(position, 4),
                    )


@for_each(
    "n, k, position",
    [
        (12, 4, 12),
        (12, 4, -1),
        (12, 5, 3),
        (12, 0, 3),
        (12, -2, 3),
        (1, 2, 0),
        (0, 2, 0),
        (LIMITS.cohort + 1, 4, 0),
    ],
)
def test_numbers_out_of_range(n: int, k: int, position: int) -> None:
    for call in (
        lambda: neighbour_positions(n, k, position),
        lambda: verify_arc(bytes(32), n, k, position, [], SEED, []),
    ):
        with pytest.raises(ShoalError) as caught:
            call()
        assert caught.value.kind is Kind.INVALID
    if n == 12:
        with pytest.raises(ShoalError):
            Ring(SEED, seats(12)).proof(position, k)


def test_lists_of_seats() -> None:
    """96 bytes each, ascending, and back. Planted: >= accepted instead of > -> fails."""
    some = seats(9)
    data = encode_seats(some)
    assert data == encode_seats(some[::-1])
    assert len(data) == 96 * 9
    back = decode_seats(data)
    assert set(back) == set(some)
    assert encode_seats(back) == data
    parts = [data[i : i + 96] for i in range(0, len(data), 96)]
    twice = parts[0][:32] + key("fresh") + key("fresher")
    wrong = [
        b"",
        parts[0],
        data[:-1],
        data + b"\x00",
        b"".join(parts[::-1]),
        b"".join([parts[0], twice, *parts[1:]]),
        data + parts[-1],
    ]
    for bad in (*wrong, bytes(96) * (LIMITS.cohort + 1)):
        with pytest.raises(ShoalError) as caught:
            decode_seats(bad)
        assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError):
        encode_seats(some[:1])
    with pytest.raises(ShoalError):
        Seat(bytes(31), bytes(32), bytes(32))


def test_hashes_as_documented() -> None:
    """Planted: one label for two hashes, or nonces exchanged -> fails."""
    assert (
        seat_of(OFFER, b"d" * 32)
        == hashlib.sha256(b"shoal/v1/secagg/seat\x00" + OFFER.raw + b"d" * 32).digest()
    )
    assert (
        tag(SEED, b"x" * 32)
        == hashlib.sha256(b"shoal/v1/secagg/tag\x00" + SEED + b"x" * 32).digest()
    )
    expected = hashlib.sha256(
        b"shoal/v1/secagg/graph\x00" + OFFER.raw + Digest.of(b"list").raw + b"s" * 32 + b"a" * 32
    )
    assert expected.digest() == SEED
    with pytest.raises(ShoalError):
        seat_of(OFFER, b"d" * 31)
    with pytest.raises(ShoalError):
        graph_seed(OFFER, OFFER, b"", b"a" * 32)
    with pytest.raises(ShoalError, match="did not join"):
        Ring(SEED, seats(3)).position_of(bytes(32))


@for_each("n, k", [(n, k) for n in range(2, 11) for k in (*range(2, n - 1, 2), n - 1)])
def test_a_neighbours_place_without_its_list(n: int, k: int) -> None:
    """Every pair of every small ring. Planted: ``before < k``, or the device itself counted -> this
    fails.
    """
    for position in range(n):
        around = neighbour_positions(n, k, position)
        for other in range(-n, 2 * n):
            if other in around:
                assert place_of(n, k, position, other) == around.index(other)
            else:
                with pytest.raises(ShoalError, match="no neighbours"):
                    place_of(n, k, position, other)
