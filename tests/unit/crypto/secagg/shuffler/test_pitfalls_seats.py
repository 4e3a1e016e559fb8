"""Keys and seats that corrupt devices and servers would like a device to accept: low order,
reflected, uncertified, twice, elsewhere on the ring. All certificates and signatures are right but
for the one thing that each test forges; both servers are accomplices.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from shoal.crypto.secagg.parameters import GraphParameters
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode
from tests.cases import for_each
from tests.flipped import last_bit_flipped
from tests.worlds.rounds.secagg_relay import (
    NOW,
    SPARSE,
    Relay,
    identity,
    make_join,
    make_terms,
    one_time_key,
    refused,
)

N, LOST = 9, 3
LOW_ORDER = (  # the points of order 2, 4 and 8 on Curve25519 and its twist, in their one spelling
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    (2**255 - 20).to_bytes(32, "little"),
)


def make(
    mode: Mode = Mode.DEFAULT,
    graph: GraphParameters | None = SPARSE,
    n: int = N,
    lost: int = LOST,
    seed: object = 0,
) -> Relay:
    return Relay(make_terms(n, graph=graph, mode=mode, lost=lost), n, seed)


Forge = Callable[[Relay, Sequence[pairwise_pb2.Join]], pairwise_pb2.Join]


def with_forged(forge: Forge) -> tuple[Relay, int]:
    """A rightly laid and signed ring on which the last seat is forged from those of the others: a
    complete graph, so all see it.

    Returns the position of the device that joined first.
    """
    relay = make(graph=None, n=6, lost=1)
    joins = [device.join(relay.offer(), NOW) for device in relay.devices[:-1]]
    joins.append(forge(relay, joins))
    relay.lay(joins)
    return relay, next(p for p, join in enumerate(relay.joins) if join is joins[0])


@for_each("which", ["pad_key", "share_key"])
@for_each("point", LOW_ORDER)
def test_a_point_of_low_order_ends_the_round_before_anything_is_sent(
    point: bytes, which: str
) -> None:
    """9. With it everybody would know the pad, or the key of the shares. Planted: agreements with
    errors passed over -> this fails.
    """
    pad_key, share_key = (point, b"") if which == "pad_key" else (b"", point)
    relay, position = with_forged(
        lambda relay, _: make_join(relay.offer_id, "low", pad_key=pad_key, share_key=share_key)
    )
    refused(
        Kind.INVALID,
        relay.devices[position].share,
        relay.started(position),
        NOW,
        text="small order",
    )


@for_each("top_bit", [False, True])
@for_each("mine, theirs", list(itertools.product(("pad_key", "share_key"), repeat=2)))
def test_a_neighbour_that_reflects_this_devices_own_key_is_refused(
    mine: str, theirs: str, top_bit: bool
) -> None:
    """9. Even in the other spelling of the same point. Planted: the arc is not verified, or keys
    are compared as bytes -> this fails.
    """

    def reflect(relay: Relay, joins: Sequence[pairwise_pb2.Join]) -> pairwise_pb2.Join:
        key = bytearray(getattr(joins[0], mine))
        key[31] |= 0x80 * top_bit
        pad_key, share_key = (bytes(key), b"") if theirs == "pad_key" else (b"", bytes(key))
        return make_join(relay.offer_id, "mirror", pad_key=pad_key, share_key=share_key)

    relay, position = with_forged(reflect)
    refused(
        Kind.INVALID,
        relay.devices[position].share,
        relay.started(position),
        NOW,
        text="two keys of a round are equal",
    )


def test_two_neighbours_with_one_key_are_refused() -> None:
    """9. Their pads would be one pad, added twice."""
    relay, position = with_forged(
        lambda relay, joins: make_join(relay.offer_id, "thief", pad_key=joins[1].pad_key)
    )
    refused(
        Kind.INVALID,
        relay.devices[position].share,
        relay.started(position),
        NOW,
        text="two keys of a round are equal",
    )


@pytest.mark.parametrize("whose", [0, 1])
def test_a_device_with_two_seats_is_seen_by_its_neighbours(whose: int) -> None:
    """10. Certified, with fresh keys and a valid signature, both servers accomplices: but the seat
    follows from the identity.

    Planted: seats made from keys, or tags that need not rise strictly -> this fails. ``whose`` 0: a
    second seat of the device itself.
    """
    relay, position = with_forged(
        lambda relay, _: make_join(relay.offer_id, "second seat", who=identity(whose))
    )
    refused(
        Kind.INVALID,
        relay.devices[position].share,
        relay.started(position),
        NOW,
        text="one of them twice",
    )


def test_strangers_beside_a_device_are_refused() -> None:
    """10. Planted: certificates are not looked at -> this fails."""
    certificate = identity(1).certificate
    for wrong in (b"", last_bit_flipped(certificate), certificate + b"\x1a\x00"):
        relay = make()
        relay.join()
        started = relay.started(0)
        started.neighbours[0].certificate = wrong
        refused(Kind.UNAUTHENTICATED, relay.devices[0].share, started, NOW)


def test_servers_that_lay_the_ring_as_they_like_are_refused() -> None:
    """10. Every device is certified, every signature is right, but two places of the ring are
    exchanged. Whoever sees both refuses.

    Planted: tags are not recomputed -> this fails.
    """
    relay = make(graph=None, n=6, lost=1)
    joins = [device.join(relay.offer(), NOW) for device in relay.devices]
    relay.lay(joins)
    order = [joins.index(join) for join in relay.joins]
    order[2], order[3] = order[3], order[2]
    again = make(graph=None, n=6, lost=1)
    again.lay([device.join(again.offer(), NOW) for device in again.devices], order)
    for position, device in enumerate(again.devices):
        refused(Kind.INVALID, device.share, again.started(position), NOW, text="ring's order")


def test_a_ring_from_another_list_of_seats_is_refused() -> None:
    """10. The analyzer saw one list, the devices stand on a ring laid from another. Planted: the
    list's hash is left out -> this fails.
    """
    relay = make(graph=None, n=6, lost=1)
    relay.join()
    started = relay.started(0, replace(relay.start_record, list_hash=Digest(bytes(32))))
    refused(Kind.INVALID, relay.devices[0].share, started, NOW, text="ring's order")


def test_neighbours_chosen_from_the_ring_are_refused() -> None:
    """10. True seats in their true order, but not those around this device: one is left out and the
    next one takes its place.

    Planted: the range proof is not verified -> this fails.
    """
    relay = make()
    relay.join()
    position = next(p for p in range(N) if 2 < p < N - 3)
    started = relay.started(position)
    further = relay.joins[position + 3]
    started.neighbours[3].CopyFrom(
        pairwise_pb2.Neighbour(
            certificate=further.certificate,
            pad_key=further.pad_key,
            share_key=further.share_key,
            signature=further.signature,
        )
    )
    refused(Kind.BAD_SIGNATURE, relay.devices[position].share, started, NOW, text="signed ring")
    elsewhere = relay.started(position + 1)
    elsewhere.position = position + 2
    with pytest.raises(ShoalError):
        relay.devices[position + 1].share(elsewhere, NOW)


def test_the_ring_of_another_root_is_refused() -> None:
    relay = make()
    relay.join()
    started = relay.started(0, replace(relay.start_record, ring_root=Digest(bytes(32))))
    refused(Kind.BAD_SIGNATURE, relay.devices[0].share, started, NOW, text="signed ring")


def test_neighbours_keys_are_those_that_they_signed() -> None:
    """10. A server that puts its own pad key into a neighbour's seat and lays the ring with it.
    Planted: signatures over keys are not verified -> this fails.
    """
    relay, position = with_forged(
        lambda relay, _: make_join(
            relay.offer_id,
            "in the middle",
            signature=make_join(relay.offer_id, "in the middle").signature,
        )
    )
    assert relay.devices[position].share(relay.started(position), NOW)
    relay, position = with_forged(
        lambda relay, _: make_join(
            relay.offer_id,
            "in the middle",
            pad_key=one_time_key("of the server"),
            signature=make_join(relay.offer_id, "in the middle").signature,
        )
    )
    refused(Kind.BAD_SIGNATURE, relay.devices[position].share, relay.started(position), NOW)
