"""Vectors of secure aggregation without devices: records, seats, rings, parameters, check words.
See tools/vectors_secagg.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from google.protobuf.message import Message
from vectors_tasks import Json, fixed, hpke_key, signing_key

from shoal.crypto.secagg import records, words
from shoal.crypto.secagg.device.checks import OwnKeys, round_keys
from shoal.crypto.secagg.parameters import parameters_for, survivors_needed
from shoal.crypto.secagg.primitives import merkle
from shoal.crypto.secagg.records import Commit, Offer, Start
from shoal.crypto.secagg.ring import (
    Ring,
    Seat,
    encode_seats,
    graph_seed,
    neighbour_positions,
    seat_of,
    tag,
)
from shoal.crypto.signing import SigningContext
from shoal.crypto.suites import SuiteId
from shoal.errors import ShoalError
from shoal.ids import Digest, TaskId
from shoal.protos import pairwise_pb2
from shoal.secagg import CHECK_WORDS, Mode, PairwisePlan

SUITE = SuiteId.X25519_AES128


def raw(message: Message) -> bytes:
    """Its bytes, the same in every run."""
    return message.SerializeToString(deterministic=True)


def public(label: str) -> bytes:
    """An X25519 public key whose private half is ``fixed(label)``."""
    return X25519PrivateKey.from_private_bytes(fixed(label)).public_key().public_bytes_raw()


# --- records, seats, rings ------------------------------------------------------------------------


def _records() -> dict[str, bytes]:
    offer = Offer(
        TaskId(fixed("task id")),
        7,
        hpke_key(SUITE, "analyzer").config.key_id,
        Digest(fixed("schedule hash")),
        records.nonce_commitment(fixed("shuffler nonce")),
        records.nonce_commitment(fixed("analyzer nonce")),
    ).encode()
    start = Start(
        records.offer_id(offer),
        1024,
        Digest(fixed("root")),
        fixed("shuffler nonce"),
        fixed("analyzer nonce"),
        Digest(fixed("list")),
    ).encode()
    return {
        "offer": offer,
        "start": start,
        "commit": Commit(records.round_id(start), bytes((2, 1, 0, 2, 2))).encode(),
    }


def record_vectors() -> Json:
    """One record of each sort, with both signatures over it, and an endorsement; what a device
    signs when it joins.
    """
    shuffler, analyzer, device = (
        signing_key("shuffler"),
        signing_key("analyzer"),
        signing_key("device"),
    )
    made, entries = _records(), []
    contexts = {
        "offer": SigningContext.ROUND_OFFER,
        "start": SigningContext.ROUND_START,
        "commit": SigningContext.ROUND_COMMIT,
    }
    for name, record in made.items():
        entry: Json = {"name": name, "record": record.hex(), "context": contexts[name].value}
        entry["shuffler_signature"] = shuffler.sign(contexts[name], record).hex()
        entry["analyzer_signature"] = analyzer.sign(contexts[name], record).hex()
        entries.append(entry)
    offer_id = records.offer_id(made["offer"])
    keys = OwnKeys(device.public, public("pad key of device 1"), public("share key of device 1"))
    joined = round_keys(offer_id, keys.pad_key, keys.share_key)
    return {
        "shuffler_key": shuffler.public.hex(),
        "analyzer_key": analyzer.public.hex(),
        "device_key": device.public.hex(),
        "shuffler_nonce": fixed("shuffler nonce").hex(),
        "analyzer_nonce": fixed("analyzer nonce").hex(),
        "records": entries,
        "offer_id": offer_id.hex,
        "round_id": records.round_id(made["start"]).hex,
        "statuses": "0201000202",
        "join": {
            "pad_key": keys.pad_key.hex(),
            "share_key": keys.share_key.hex(),
            "signed": joined.hex(),
            "signature": device.sign(SigningContext.ROUND_KEYS, joined).hex(),
        },
        "endorsement": device.sign(SigningContext.ROUND_ENDORSE, made["commit"]).hex(),
    }


def bad_records() -> list[Json]:
    """Records that nobody may act on, whoever signed them."""
    made = _records()
    offer, start, commit = made["offer"], made["start"], made["commit"]
    cases = {
        "offer: empty": ("offer", b""),
        "offer: cut": ("offer", offer[:-1]),
        "offer: version 2": ("offer", b"\x08\x02" + offer[2:]),
        "offer: without a version": ("offer", offer[2:]),
        "offer: with a field 8": ("offer", offer + b"\x40\x01"),
        "offer: window out of range": ("offer", pairwise_offer(offer, window=10_000)),
        "offer: a commitment of 31 bytes": (
            "offer",
            pairwise_offer(offer, analyzer_commitment=bytes(31)),
        ),
        "start: one device": ("start", pairwise_start(start, devices=1)),
        "start: 10001 devices": ("start", pairwise_start(start, devices=10_001)),
        "start: a nonce of 33 bytes": ("start", pairwise_start(start, shuffler_nonce=bytes(33))),
        "start: no list hash": ("start", pairwise_start(start, list_hash=b"")),
        "start: version 0": ("start", pairwise_start(start, version=0)),
        "commit: status 3": ("commit", pairwise_commit(commit, statuses=bytes((2, 2, 3)))),
        "commit: of one device": ("commit", pairwise_commit(commit, statuses=bytes((2,)))),
        "commit: with a field 4": ("commit", commit + b"\x20\x00"),
    }
    return [
        {"name": name, "record": what, "bytes": data.hex(), "kind": "INVALID"}
        for name, (what, data) in cases.items()
    ]


def pairwise_offer(data: bytes, **changes: Any) -> bytes:
    """The offer with some fields changed."""
    return _changed(pairwise_pb2.Offer.FromString(data), changes)


def pairwise_start(data: bytes, **changes: Any) -> bytes:
    """The start with some fields changed."""
    return _changed(pairwise_pb2.Start.FromString(data), changes)


def pairwise_commit(data: bytes, **changes: Any) -> bytes:
    """The commit with some fields changed."""
    return _changed(pairwise_pb2.Commit.FromString(data), changes)


def _changed(message: Message, changes: dict[str, Any]) -> bytes:
    for name, value in changes.items():
        setattr(message, name, value)
    return raw(message)


def _seats(offer: Digest, count: int) -> list[Seat]:
    return [
        Seat(
            seat_of(offer, fixed(f"device key {i}")),
            public(f"ring pad key {i}"),
            public(f"ring share key {i}"),
        )
        for i in range(count)
    ]


def _ring(n: int) -> tuple[Digest, bytes, bytes, Ring]:
    """Offer id, list of seats, seed, ring."""
    offer = Digest(fixed(f"offer of {n}"))
    seats = _seats(offer, n)
    listed = encode_seats(seats)
    seed = graph_seed(offer, Digest.of(listed), fixed("shuffler nonce"), fixed("analyzer nonce"))
    return offer, listed, seed, Ring(seed, seats)


def rings() -> list[Json]:
    """A ring of 7 with 4 neighbours each, and complete graphs of 4 and of 2."""
    entries = []
    for n, k in ((7, 4), (4, 3), (2, 1)):
        offer, listed, seed, ring = _ring(n)
        arcs = []
        for position in range(n):
            arcs.append(
                {
                    "position": position,
                    "neighbours": list(neighbour_positions(n, k, position)),
                    "proof": [one.hex() for one in ring.proof(position, k)],
                }
            )
        entries.append(
            {
                "offer_id": offer.hex,
                "devices": n,
                "neighbours": k,
                "device_keys": [fixed(f"device key {i}").hex() for i in range(n)],
                "list": listed.hex(),
                "list_hash": Digest.of(listed).hex,
                "shuffler_nonce": fixed("shuffler nonce").hex(),
                "analyzer_nonce": fixed("analyzer nonce").hex(),
                "seed": seed.hex(),
                "ring": [
                    {
                        "seat": one.seat.hex(),
                        "tag": tag(seed, one.seat).hex(),
                        "pad_key": one.pad_key.hex(),
                        "share_key": one.share_key.hex(),
                        "leaf_hash": merkle.leaf_hash(one.leaf).hex(),
                    }
                    for one in ring.order
                ],
                "tree_hash": merkle.Tree([one.leaf for one in ring.order]).tree_hash.hex(),
                "root": ring.root.hex(),
                "arcs": arcs,
            }
        )
    return entries


def bad_arcs() -> list[Json]:
    """What a device at position 1 of the first ring of ``rings`` is told: leaves from the arc's
    lower end on, its own among them.
    """
    *_, ring = _ring(7)
    n, k, position = 7, 4, 1
    good = [ring.order[(position - k // 2 + i) % n] for i in range(k + 1)]
    proof = ring.proof(position, k)
    flipped = bytes((proof[0][0] ^ 1,)) + proof[0][1:]
    other = Seat(good[0].seat, public("another pad key"), good[0].share_key)
    cases: dict[str, tuple[Sequence[Seat], list[bytes], str]] = {
        "two neighbours exchanged": (
            [good[0], good[1], good[2], good[4], good[3]],
            proof,
            "INVALID",
        ),
        "one neighbour twice": ([*good[:3], good[3], good[3]], proof, "INVALID"),
        "a neighbour left out": (good[:-1], proof, "INVALID"),
        "own key at a neighbour": (
            [Seat(good[0].seat, good[2].pad_key, good[0].share_key), *good[1:]],
            proof,
            "INVALID",
        ),
        "a neighbour's pad key is its share key": (
            [Seat(good[0].seat, good[0].share_key, good[0].share_key), *good[1:]],
            proof,
            "INVALID",
        ),
        "a hash too many": (good, [*proof, proof[-1]], "INVALID"),
        "no hashes": (good, [], "INVALID"),
        "a hash of 31 bytes": (good, [proof[0][:-1], *proof[1:]], "INVALID"),
        "a bit flipped in a hash": (good, [flipped, *proof[1:]], "BAD_SIGNATURE"),
        "another key of a neighbour": ([other, *good[1:]], proof, "BAD_SIGNATURE"),
    }
    return [
        {
            "name": name,
            "leaves": [one.leaf.hex() for one in leaves],
            "proof": [one.hex() for one in hashes],
            "kind": kind,
        }
        for name, (leaves, hashes, kind) in cases.items()
    ]


def bad_lists() -> list[Json]:
    """Lists of seats that an analyzer refuses."""
    offer = Digest(fixed("offer of 4"))
    good = sorted(_seats(offer, 4), key=lambda one: one.seat)
    top = bytearray(good[0].pad_key)
    top[-1] |= 0x80
    cases = {
        "empty": b"",
        "one seat": good[0].leaf,
        "not sorted": good[1].leaf + good[0].leaf,
        "a device twice": good[0].leaf + good[0].seat + good[1].pad_key + good[1].share_key,
        "a pad key twice": good[0].leaf + good[1].seat + good[0].pad_key + good[1].share_key,
        "a pad key as another's share key": good[0].leaf
        + good[1].seat
        + good[1].pad_key
        + good[0].pad_key,
        "a pad key twice, once with the top bit": good[0].leaf
        + good[1].seat
        + bytes(top)
        + good[1].share_key,
        "one byte short": (good[0].leaf + good[1].leaf)[:-1],
    }
    return [{"name": name, "list": data.hex(), "kind": "INVALID"} for name, data in cases.items()]


# --- numbers --------------------------------------------------------------------------------------


def parameters() -> list[Json]:
    """(k, t) and the survivors that a round needs. ``kind`` where no (k, t) fits."""
    entries = []
    for mode in (Mode.DEFAULT, Mode.STRICT):
        for n, honest, dropout in (
            (2, 1_000_000, 0),
            (5, 800_000, 400_000),
            (10, 900_000, 200_000),
            (20, 700_000, 600_000),
            (50, 900_000, 100_000),
            (51, 900_000, 100_000),
            (100, 900_000, 100_000),
            (100, 950_000, 300_000),
            (128, 999_999, 333_333),
            (333, 900_000, 200_000),
            (1_000, 900_000, 300_000),
            (1_000, 950_000, 50_000),
            (1_024, 666_667, 100_000),
        ):
            plan = PairwisePlan(mode, n, n, max(2, n - n * dropout // 1_000_000), dropout, 32)
            entry: Json = {
                "mode": mode.name.lower(),
                "devices": n,
                "honest_fraction_ppm": honest,
                "dropout_ppm": dropout,
            }
            entry |= {"survivors_min": plan.survivors_min}
            try:
                graph = parameters_for(plan, honest, n)
                entry |= {
                    "neighbours": graph.neighbours,
                    "threshold": graph.threshold,
                    "complete": graph.complete,
                }
                entry |= {"survivors": survivors_needed(plan, n)}
            except ShoalError as error:
                entry |= {"kind": error.kind.name}
            entries.append(entry)
    return entries


def check_constants() -> list[Json]:
    """The constants of the check words, at every width."""
    label = Digest(fixed("round id"))
    return [
        {
            "label": label.hex,
            "word_bits": bits,
            "constants": [str(word) for word in words.check_constants(label.raw, bits)],
        }
        for bits in CHECK_WORDS
    ]
