"""Who is whose neighbour: the devices of a round on a ring, each joined with the k/2 next ones on
either side (a Harary graph).

A seat's place follows from tag = SHA-256("shoal/v1/secagg/tag" 0x00 seed seat), in ascending order
of tags. The seed is made of a nonce of the shuffler and a nonce of the analyzer, both committed
before anybody joined, and of the list of all seats with their keys: whoever knows at most one of
the nonces cannot place a device beside another, and whoever knows both can only try lists (the
strict mode's 80 bits are for that). The seat follows from the device's certified identity: a device
that took two seats in one round would stand beside itself, where its neighbours see one tag twice.

A device sees k + 1 leaves of the ring and one range proof
(``shoal.crypto.secagg.primitives.merkle``). The leaves are consecutive, so nobody can leave out the
neighbours that it does not like: a shuffler picks no neighbour. If k >= n - 1 the graph is
complete, everybody is a neighbour of everybody, and the arc is the ring.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from shoal.crypto.secagg.primitives import merkle
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS

SEAT_SIZE = 32  # bytes; also of each of the two keys
LEAF_SIZE = 96  # bytes: seat, pad key, share key
_FIELD = 2**255 - 19  # of X25519


def _hash(label: bytes, *parts: bytes) -> bytes:
    return hashlib.sha256(b"".join((b"shoal/v1/secagg/", label, b"\x00", *parts))).digest()


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.INVALID, message)


@dataclass(frozen=True, slots=True)
class Seat:
    """One device in one round, all public: its pseudonym ``seat`` and its one-time X25519 keys, 32
    bytes each. Raises INVALID.
    """

    seat: bytes
    pad_key: bytes
    share_key: bytes

    def __post_init__(self) -> None:
        _require(
            len(self.seat) == len(self.pad_key) == len(self.share_key) == SEAT_SIZE,
            f"a seat and each of its two keys are {SEAT_SIZE} bytes long",
        )

    @property
    def leaf(self) -> bytes:
        """96 bytes: of the list of seats, and the data of the seat's leaf on the ring."""
        return self.seat + self.pad_key + self.share_key


def seat_of(offer_id: Digest, device_key: bytes) -> bytes:
    """SHA-256("shoal/v1/secagg/seat" 0x00 offer_id device_key): a pseudonym of one round, the same
    however often the device joins it.

    ``device_key``: the certified Ed25519 public key, 32 bytes. Raises INVALID.
    """
    _require(len(device_key) == SEAT_SIZE, "a device's identity key is 32 bytes long")
    return _hash(b"seat", offer_id.raw, device_key)


def graph_seed(
    offer_id: Digest, list_hash: Digest, shuffler_nonce: bytes, analyzer_nonce: bytes
) -> bytes:
    """SHA-256("shoal/v1/secagg/graph" 0x00 offer_id list_hash nonce_S nonce_A): 32 bytes. Nonces
    are 32 bytes. Raises INVALID.
    """
    _require(len(shuffler_nonce) == len(analyzer_nonce) == 32, "a round's nonce is 32 random bytes")
    return _hash(b"graph", offer_id.raw, list_hash.raw, shuffler_nonce, analyzer_nonce)


def tag(seed: bytes, seat: bytes) -> bytes:
    """SHA-256("shoal/v1/secagg/tag" 0x00 seed seat): what orders the ring, bytewise ascending."""
    return _hash(b"tag", seed, seat)


def encode_seats(seats: Sequence[Seat]) -> bytes:
    """The list of all seats, 96 bytes each, in ascending order of ``seat``. Raises INVALID as
    ``decode_seats``.
    """
    ordered = sorted(seats, key=lambda seat: seat.seat)
    _check_list(ordered)
    return b"".join(seat.leaf for seat in ordered)


def decode_seats(data: bytes) -> tuple[Seat, ...]:
    """Raises INVALID unless the seats are 2 to LIMITS.cohort, strictly ascending (no device twice),
    and all their keys distinct.
    """
    _require(len(data) % LEAF_SIZE == 0, f"a list of seats has {LEAF_SIZE} bytes for each")
    _require(len(data) <= LIMITS.cohort * LEAF_SIZE, f"a round has 2 to {LIMITS.cohort} devices")
    parts = [data[i : i + LEAF_SIZE] for i in range(0, len(data), LEAF_SIZE)]
    seats = tuple(Seat(part[:32], part[32:64], part[64:]) for part in parts)
    _check_list(seats)
    return seats


def _check_list(seats: Sequence[Seat]) -> None:
    _require(2 <= len(seats) <= LIMITS.cohort, f"a round has 2 to {LIMITS.cohort} devices")
    _require(
        all(a.seat < b.seat for a, b in pairwise(seats)),
        "a list of seats is strictly ascending: a device has one seat in a round",
    )
    _check_keys(seats)


def _check_keys(seats: Sequence[Seat]) -> None:
    """No key twice, neither as pad key nor as share key, of one device or of two.

    Compared as points, not as bytes: X25519 ignores the highest bit and reduces modulo 2^255 - 19
    (RFC 7748 section 5), so that one point has several encodings, and a device could otherwise
    reflect another's key.
    """
    keys = {_point(key) for seat in seats for key in (seat.pad_key, seat.share_key)}
    _require(
        len(keys) == 2 * len(seats),
        "two keys of a round are equal: every device makes two fresh ones",
    )


def _point(key: bytes) -> int:
    return (int.from_bytes(key, "little") & (2**255 - 1)) % _FIELD


def _check_graph(n: int, k: int, position: int) -> None:
    _require(2 <= n <= LIMITS.cohort, f"a round has 2 to {LIMITS.cohort} devices")
    _require(
        k >= n - 1 or (k >= 2 and k % 2 == 0),
        "neighbours are an even number, half on either side, or everybody",
    )
    _require(0 <= position < n, f"a position on this ring is 0 to {n - 1}")


def _arc(n: int, k: int, position: int) -> tuple[int, int]:
    """(start, count) of the leaves that a device sees: k + 1 around its own, or all n from position
    0.
    """
    return (0, n) if k >= n - 1 else ((position - k // 2) % n, k + 1)


def neighbour_positions(n: int, k: int, position: int) -> tuple[int, ...]:
    """Whom the device at ``position`` pads and shares with: position - k/2 .. position + k/2 modulo
    n without itself, in this order.

    With k >= n - 1 everybody else, in ascending order. The relation is symmetric. Raises INVALID.
    """
    _check_graph(n, k, position)
    start, count = _arc(n, k, position)
    return tuple(p for p in ((start + i) % n for i in range(count)) if p != position)


def place_of(n: int, k: int, position: int, neighbour: int) -> int:
    """Where ``neighbour`` stands in ``neighbour_positions(n, k, position)``, without a list: 0 to k
    - 1. Raises INVALID if it is none.
    """
    _check_graph(n, k, position)
    if k >= n - 1:
        place = (
            neighbour - (neighbour > position)
            if 0 <= neighbour < n and neighbour != position
            else -1
        )
    else:
        # from the arc's lower end, the device itself counted
        before = (neighbour - position + k // 2) % n
        place = (
            before - (before > k // 2)
            if 0 <= neighbour < n and before <= k and before != k // 2
            else -1
        )
    _require(place >= 0, "these two devices are no neighbours on the ring")
    return place


class Ring:
    """The ring of one round, as shuffler and analyzer lay it. Public data, immutable."""

    __slots__ = ("_places", "_tree", "order", "root")

    order: tuple[Seat, ...]  # by position
    root: bytes  # 32 bytes

    def __init__(self, seed: bytes, seats: Sequence[Seat]) -> None:
        """``seats`` in any order. Raises INVALID for a device or a key that occurs twice, or too
        few or too many devices.
        """
        _check_list(sorted(seats, key=lambda seat: seat.seat))
        self.order = tuple(sorted(seats, key=lambda seat: tag(seed, seat.seat)))
        self._places = {seat.seat: position for position, seat in enumerate(self.order)}
        self._tree = merkle.Tree([seat.leaf for seat in self.order])
        self.root = self._tree.root

    def __len__(self) -> int:
        return len(self.order)

    def position_of(self, seat: bytes) -> int:
        """Of the device with this pseudonym, from 0. Raises INVALID if it has no place here."""
        if seat not in self._places:
            raise ShoalError(
                Kind.INVALID, "this seat is not on the ring: its device did not join the round"
            )
        return self._places[seat]

    def arc(self, position: int, k: int) -> list[int]:
        """The neighbours' positions, as ``neighbour_positions``."""
        return list(neighbour_positions(len(self.order), k, position))

    def proof(self, position: int, k: int) -> list[bytes]:
        """What leads from the leaves of the arc (with the device's own) to the root; empty if they
        are all. Raises INVALID.
        """
        _check_graph(len(self.order), k, position)
        return self._tree.range_proof(*_arc(len(self.order), k, position))


def verify_arc(
    root: bytes,
    n: int,
    k: int,
    position: int,
    leaves: Sequence[Seat],
    seed: bytes,
    proof: Sequence[bytes],
) -> None:
    """Return if ``leaves`` are what stands around ``position`` on the ring with that root, in the
    ring's order; else raise.

    ``leaves``: the device's own and its neighbours', in ring order from the arc's lower end
    (position - k/2 modulo n); with k >= n - 1 all n by position. ``seed``: recomputed by the device
    from both nonces (``graph_seed``). Checked:

    * INVALID: numbers out of range, a wrong number of leaves or hashes, two equal keys (also the
      device's own, also in another encoding), and tags that do not rise strictly with the position.
      The tags are compared by position, so an arc that goes round the ring's end falls exactly
      once, from position n - 1 to 0, and no seat stands in it twice.
    * BAD_SIGNATURE: the leaves do not lead to the root.

    Not checked here: that the seats belong to certified devices, and that ``root`` and ``n`` are
    signed.
    """
    _check_graph(n, k, position)
    start, count = _arc(n, k, position)
    _require(len(leaves) == count, "the arc of neighbours has too few or too many devices")
    by_position = [leaves[(p - start) % n] for p in sorted((start + i) % n for i in range(count))]
    tags = [tag(seed, seat.seat) for seat in by_position]
    _require(
        all(a < b for a, b in pairwise(tags)),
        "the neighbours do not stand in the ring's order, or one of them twice: leave this round",
    )
    _check_keys(leaves)
    computed_root = merkle.root_of_range(
        n, start, [merkle.leaf_hash(seat.leaf) for seat in leaves], proof
    )
    if not hmac.compare_digest(computed_root, root):
        raise ShoalError(
            Kind.BAD_SIGNATURE,
            "the neighbours are not those of the signed ring: leave this round and tell its "
            "shuffler",
        )
