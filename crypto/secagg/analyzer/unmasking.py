"""From shares and a masked sum to the sum: the analyzer's arithmetic, free of state machines,
sockets and clocks.

The masked sum is, modulo 2^w,

    sum of (vector_i, checks) + sum of PRG(b_i) + sum over alive i and their neighbours j that
    shared of sign(i, j) pad_ij,

all over the devices i that are alive. Pads between two alive devices cancel: both signs are in it.
What is left to take away is the self mask of each alive device, and the pad between each dropped
device and each of its alive neighbours. The analyzer learns b of alive and the private pad key of
dropped devices, never both of one: then nothing but the sum lies open.

A secret is put together from exactly t shares and compared with what its owner promised before it
had any vector to hide: the commitment to b, the public pad key. If it does not fit, somebody's
share is wrong: then all shares are decoded together (``decoding``), the wrong ones are outvoted and
their holders are believed last from then on. What then comes out is checked by the check words, as
a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal.arrays import NDArray, np
from shoal.crypto.secagg import pads
from shoal.crypto.secagg.parameters import GraphParameters
from shoal.crypto.secagg.primitives.decoding import at_zero, decode, interpolate, outliers
from shoal.crypto.secagg.primitives.shamir import SECRET_SIZE, combine, parse_share
from shoal.crypto.secagg.records import Reason, Status
from shoal.crypto.secagg.ring import neighbour_positions
from shoal.crypto.secagg.shares import ShareBundle, ShareKind, commitment
from shoal.errors import ShoalError
from shoal.ids import Digest

_TRIES = 256  # subsets of t shares that are tried when more are wrong than can be outvoted

# What a device may hand on about a neighbour of that status, besides nothing.
_KIND = {
    Status.NEVER_SHARED: ShareKind.NONE,
    Status.DROPPED: ShareKind.PAD_KEY,
    Status.ALIVE: ShareKind.SELF_SEED,
}


@dataclass(frozen=True, slots=True)
class RoundSum:
    """``vector``: int64[d], the exact sum of the vectors (noise included) of ``survivors`` devices,
    in grid steps; signed words of the task's width where vectors travel in segments.

    ``blamed``: positions on the ring whose shares were wrong, sorted. A hint, not a proof: a device
    that dealt a wrong share makes its neighbour look like that.
    """

    vector: NDArray[np.signedinteger[Any]]
    survivors: int
    blamed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """What everybody agreed on in a round: its graph, and by position pad keys, commitments (32
    bytes) and statuses. Public.
    """

    round_id: Digest
    graph: GraphParameters
    pad_keys: tuple[bytes, ...]
    commitments: tuple[bytes, ...]
    statuses: bytes

    def neighbours(self, position: int) -> tuple[int, ...]:
        """In the order in which a device's bundle speaks of them."""
        return neighbour_positions(len(self.statuses), self.graph.neighbours, position)

    def positions(self, status: Status) -> list[int]:
        """Of all devices with that status, ascending."""
        return [position for position, listed in enumerate(self.statuses) if listed == status]


@dataclass(frozen=True, slots=True)
class Secrets:
    """By position: the self seeds of alive devices and the private pad keys of dropped ones, 32
    bytes each. Does not print.
    """

    seeds: Mapping[int, bytes]
    pad_keys: Mapping[int, bytes]

    def __repr__(self) -> str:
        return f"<Secrets of {len(self.seeds)} alive and {len(self.pad_keys)} dropped devices>"


class CollectedShares:
    """Collects bundles, one per alive device, and puts secrets together. Shares do not print."""

    def __init__(self, committed: Committed) -> None:
        self.committed = committed
        self.blamed: set[int] = set()
        self.answered: set[int] = set()
        self._held: dict[int, dict[int, bytes]] = {
            position: {}
            for position, status in enumerate(committed.statuses)
            if status != Status.NEVER_SHARED
        }

    def add(self, position: int, bundle: ShareBundle) -> None:
        """Take the bundle that came from ``position``.

        Ignored as a whole, and the position blamed: another position inside, a sender that is not
        in the sum, items that are not one per neighbour, and a kind of share that the neighbour's
        status does not allow. Only the first bundle of a position counts.
        """
        if position in self.answered or not 0 <= position < len(self.committed.statuses):
            return
        self.answered.add(position)
        neighbours = self.committed.neighbours(position)
        allowed = [
            {ShareKind.NONE, _KIND[Status(self.committed.statuses[neighbour])]}
            for neighbour in neighbours
        ]
        if (
            self.committed.statuses[position] != Status.ALIVE
            or bundle.position != position
            or len(bundle.items) != len(neighbours)
            or not all(
                kind in kinds for (kind, _), kinds in zip(bundle.items, allowed, strict=True)
            )
        ):
            self.blamed.add(position)
            return
        for neighbour, (kind, share) in zip(neighbours, bundle.items, strict=True):
            if kind is not ShareKind.NONE:
                self._held[neighbour][position + 1] = share

    def refuse(self, position: int) -> None:
        """What came from ``position`` is no bundle: it counts as nothing, and its sender is
        blamed.
        """
        if 0 <= position < len(self.committed.statuses):
            self.answered.add(position)
            self.blamed.add(position)

    def recover(self) -> Secrets:
        """Every secret that the sum needs. Raises ABORTED: TOO_FEW_SHARES, or WRONG_SHARES if no t
        of them fit the promise.
        """
        if any(len(shares) < self.committed.graph.threshold for shares in self._held.values()):
            raise Reason.TOO_FEW_SHARES.error
        secrets = {position: self._secret(position) for position in self._held}
        alive = {
            position for position in secrets if self.committed.statuses[position] == Status.ALIVE
        }
        return Secrets(
            {position: secret for position, secret in secrets.items() if position in alive},
            {position: secret for position, secret in secrets.items() if position not in alive},
        )

    def _secret(self, position: int) -> bytes:
        """From t shares, of holders that were never wrong if there are so many."""
        shares, threshold = self._held[position], self.committed.graph.threshold
        order = sorted(shares, key=lambda point: (point - 1 in self.blamed, point))
        try:
            secret = combine({point: shares[point] for point in order[:threshold]})
        except ShoalError:  # no 32-byte secret: a share is wrong
            return self._search(position)
        return secret if self._fits(position, secret) else self._search(position)

    def _search(self, position: int) -> bytes:
        """All shares together; then subsets, of neighbours on the ring, and blame for who does not
        lie on what fits.
        """
        shares = {point: parse_share(share) for point, share in self._held[position].items()}
        points, threshold = sorted(shares), self.committed.graph.threshold
        polynomial = decode(shares, threshold)
        for attempt in range(-1, min(_TRIES, len(points))):
            if attempt >= 0:
                subset = [points[(attempt + index) % len(points)] for index in range(threshold)]
                polynomial = interpolate(subset, [shares[point] for point in subset])
            if polynomial is None or at_zero(polynomial) >> (8 * SECRET_SIZE):
                continue
            secret = at_zero(polynomial).to_bytes(SECRET_SIZE, "big")
            if self._fits(position, secret):
                self.blamed |= {point - 1 for point in outliers(polynomial, shares)}
                return secret
        raise Reason.WRONG_SHARES.error

    def _fits(self, position: int, secret: bytes) -> bool:
        """Whether the secret is the one whose owner it was promised by."""
        committed, pad_key = self.committed, self.committed.pad_keys[position]
        if committed.statuses[position] == Status.ALIVE:
            return compare_digest(
                commitment(committed.round_id, pad_key, secret), committed.commitments[position]
            )
        return compare_digest(
            X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw(), pad_key
        )


def remove_masks(
    words: NDArray[np.unsignedinteger[Any]], committed: Committed, secrets: Secrets
) -> None:
    """Take all that does not cancel out of the masked sum, in place, modulo 2^w. ``words``: as
    ``pads.apply`` wants them.

    One pad per alive device and one per pair of a dropped device and an alive neighbour. Raises
    INVALID, with the words as they were, for a pad key of small order.
    """
    round_id, keys = committed.round_id, committed.pad_keys
    streams = [
        (pads.self_stream_key(seed, round_id, keys[position]), -1)
        for position, seed in secrets.seeds.items()
    ]
    for position, secret in secrets.pad_keys.items():
        private, own = X25519PrivateKey.from_private_bytes(secret), keys[position]
        for neighbour in committed.neighbours(position):
            if committed.statuses[neighbour] == Status.ALIVE:
                stream = pads.pair_stream_key(
                    pads.agree(private, keys[neighbour]), round_id, own, keys[neighbour]
                )
                streams.append((stream, -pads.sign_of(keys[neighbour], own)))
    pads.apply_all(words, streams)
