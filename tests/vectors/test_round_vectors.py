"""Replay the rounds of shoal_secagg_v1.json, twice: by the program, and from hashes, HKDF, AES,
X25519 and Ed25519 alone.

The second half follows docs/WIRE.md and nothing of ``shoal.crypto.secagg``: it can serve as a model
for an implementation in another language. Protobuf parsing and HPKE are the program's; they have
vectors of their own.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shoal.clients.core import assign
from shoal.crypto.hpke import HpkePrivateKey, open_sealed
from shoal.crypto.secagg import records, words
from shoal.crypto.secagg.collector import Collector
from shoal.crypto.secagg.parameters import parameters_for, survivors_needed
from shoal.crypto.secagg.primitives import merkle
from shoal.crypto.secagg.records import Commit, Offer, Start
from shoal.crypto.secagg.ring import (
    Ring,
    Seat,
    decode_seats,
    graph_seed,
    neighbour_positions,
    seat_of,
    tag,
    verify_arc,
)
from shoal.crypto.secagg.single import SingleSum, check_single, sum_pads, window_label
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.protos import pairwise_pb2
from shoal.secagg import CHECK_WORDS, Mode, PairwisePlan
from tests.cases import for_each
from tests.vectors.test_secagg_vectors import raw, u32

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "shoal_secagg_v1.json").read_text())
REFUSE, ROUND, SINGLES, RECORDS = (
    VECTORS["refuse"],
    VECTORS["round"],
    VECTORS["singles"],
    VECTORS["records"],
)
PRIME = 2**256 + 297
NEVER_SHARED, DROPPED, ALIVE = 0, 1, 2


# --- from primitives ------------------------------------------------------------------------------


def labelled(label: str, *parts: bytes) -> bytes:
    return hashlib.sha256(b"shoal/v1/secagg/" + label.encode() + b"\x00" + b"".join(parts)).digest()


def derived(salt: bytes, secret: bytes, label: str, *parts: bytes, size: int = 48) -> bytes:
    return HKDF(
        hashes.SHA256(),
        size,
        salt,
        b"shoal/v1/secagg/" + label.encode() + b"\x00" + b"".join(parts),
    ).derive(secret)


def signed(key: bytes, context: str, data: bytes, signature: bytes) -> None:
    """Raises unless it is."""
    Ed25519PublicKey.from_public_bytes(key).verify(
        signature, b"shoal/v1/sign/" + context.encode() + b"\x00" + data
    )


def agreed(private: bytes, other: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).exchange(
        X25519PublicKey.from_public_bytes(other)
    )


def public_of(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def pad(stream_key: bytes, count: int, bits: int) -> list[int]:
    stream = (
        Cipher(algorithms.AES(stream_key[:32]), modes.CTR(stream_key[32:]))
        .encryptor()
        .update(bytes(count * bits // 8))
    )
    return numbers(stream, bits)


def numbers(data: bytes, bits: int) -> list[int]:
    return [
        int.from_bytes(data[i : i + bits // 8], "little") for i in range(0, len(data), bits // 8)
    ]


def added(words: Sequence[int], more: Iterable[int], sign: int, bits: int) -> list[int]:
    return [(one + sign * other) % 2**bits for one, other in zip(words, more, strict=True)]


def as_signed(word: int, bits: int) -> int:
    return word - 2**bits if word >= 2 ** (bits - 1) else word


def constants_of(label: bytes, bits: int) -> list[int]:
    digest = labelled("checks", bytes((bits,)), label)
    return [1] + [one | 1 for one in numbers(digest, bits)[1 : {16: 4, 32: 2, 64: 2}[bits]]]


def tree_hash(leaves: Sequence[bytes]) -> bytes:
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + tree_hash(leaves[:half]) + tree_hash(leaves[half:])).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"\x02" + u32(len(leaves)) + tree_hash(leaves)).digest()


def hidden(leaves: Sequence[bytes], shown: set[int], first: int = 0) -> list[bytes]:
    """The hashes of a range proof."""
    if not shown & set(range(first, first + len(leaves))):
        return [tree_hash(leaves)]
    if len(leaves) == 1:
        return []
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return hidden(leaves[:half], shown, first) + hidden(leaves[half:], shown, first + half)


def around(n: int, k: int, position: int) -> list[int]:
    if k == n - 1:
        return [p for p in range(n) if p != position]
    return [(position + step) % n for step in range(-k // 2, k // 2 + 1) if step]


def at_zero(shares: dict[int, bytes]) -> bytes:
    """Lagrange's formula, naively."""
    total = 0
    for x, share in shares.items():
        factor = int.from_bytes(share, "big")
        for other in shares:
            if other != x:
                factor = factor * other * pow(other - x, -1, PRIME) % PRIME
        total += factor
    return (total % PRIME).to_bytes(32, "big")


# --- records, rings -------------------------------------------------------------------------------


def test_records() -> None:
    """Planted: round id hashed under the offer's label -> this fails."""
    made = {entry["name"]: raw(entry, "record") for entry in RECORDS["records"]}
    for entry in RECORDS["records"]:
        for who in ("shuffler", "analyzer"):
            signed(
                raw(RECORDS, f"{who}_key"),
                entry["context"],
                raw(entry, "record"),
                raw(entry, f"{who}_signature"),
            )
    assert (
        labelled("offer", made["offer"])
        == records.offer_id(made["offer"]).raw
        == raw(RECORDS, "offer_id")
    )
    assert (
        labelled("round", made["start"])
        == records.round_id(made["start"]).raw
        == raw(RECORDS, "round_id")
    )
    offer, start, commit = (
        Offer.decode(made["offer"]),
        Start.decode(made["start"]),
        Commit.decode(made["commit"]),
    )
    assert (offer.encode(), start.encode(), commit.encode()) == (
        made["offer"],
        made["start"],
        made["commit"],
    )
    for who, nonce, committed in (
        ("shuffler", start.shuffler_nonce, offer.shuffler_commitment),
        ("analyzer", start.analyzer_nonce, offer.analyzer_commitment),
    ):
        assert nonce == raw(RECORDS, f"{who}_nonce")
        assert committed == labelled("nonce", nonce) == records.nonce_commitment(nonce)
    assert commit.statuses == raw(RECORDS, "statuses")
    assert (start.offer_id.raw, commit.round_id.raw) == (
        raw(RECORDS, "offer_id"),
        raw(RECORDS, "round_id"),
    )
    # Proto3 by hand: tag, length, bytes; the window is a varint.
    fields = (
        offer.task_id.raw,
        offer.analyzer_key_id.raw,
        offer.schedule_hash.raw,
        offer.shuffler_commitment,
        offer.analyzer_commitment,
    )
    parts = [
        bytes((number << 3 | 2, len(data))) + data
        for number, data in zip((2, 4, 5, 6, 7), fields, strict=True)
    ]
    assert made["offer"] == b"\x08\x01" + parts[0] + b"\x18\x07" + b"".join(parts[1:])
    join = RECORDS["join"]
    assert raw(join, "signed") == raw(RECORDS, "offer_id") + raw(join, "pad_key") + raw(
        join, "share_key"
    )
    signed(raw(RECORDS, "device_key"), "round-keys", raw(join, "signed"), raw(join, "signature"))
    signed(raw(RECORDS, "device_key"), "round-endorse", made["commit"], raw(RECORDS, "endorsement"))


@for_each("entry", REFUSE["records"], ids=lambda entry: entry["name"])
def test_refused_records(entry: dict[str, Any]) -> None:
    decode = {"offer": Offer.decode, "start": Start.decode, "commit": Commit.decode}[
        entry["record"]
    ]
    with pytest.raises(ShoalError) as caught:
        decode(raw(entry, "bytes"))
    assert caught.value.kind is Kind[entry["kind"]]


def seat_in(entry: dict[str, Any]) -> Seat:
    return Seat(raw(entry, "seat"), raw(entry, "pad_key"), raw(entry, "share_key"))


@pytest.mark.parametrize("entry", VECTORS["rings"], ids=lambda entry: str(entry["devices"]))
def test_rings(entry: dict[str, Any]) -> None:
    """Planted: a ring ordered by seat, not by tag; nodes with the prefix of leaves; a root that
    does not bind n -> this fails.
    """
    n, k, offer = entry["devices"], entry["neighbours"], raw(entry, "offer_id")
    nonces = raw(entry, "shuffler_nonce"), raw(entry, "analyzer_nonce")
    seats = {labelled("seat", offer, bytes.fromhex(key)) for key in entry["device_keys"]}
    assert seats == {seat_of(Digest(offer), bytes.fromhex(key)) for key in entry["device_keys"]}
    listed, ring = raw(entry, "list"), [seat_in(one) for one in entry["ring"]]
    assert listed == b"".join(one.leaf for one in sorted(ring, key=lambda one: one.seat))
    assert {one.seat for one in ring} == seats
    assert hashlib.sha256(listed).digest() == raw(entry, "list_hash")
    seed = labelled("graph", offer, raw(entry, "list_hash"), *nonces)
    assert seed == graph_seed(Digest(offer), Digest.of(listed), *nonces) == raw(entry, "seed")
    tags = [labelled("tag", seed, one.seat) for one in ring]
    assert (
        tags
        == sorted(tags)
        == [tag(seed, one.seat) for one in ring]
        == [raw(one, "tag") for one in entry["ring"]]
    )
    leaves = [one.seat + one.pad_key + one.share_key for one in ring]
    assert [tree_hash([leaf]) for leaf in leaves] == [
        raw(one, "leaf_hash") for one in entry["ring"]
    ]
    assert tree_hash(leaves) == merkle.Tree(leaves).tree_hash == raw(entry, "tree_hash")
    made = Ring(seed, decode_seats(listed))
    assert made.root == root_of(leaves) == raw(entry, "root")
    assert list(made.order) == ring
    assert len(entry["arcs"]) == n
    for position, arc in enumerate(entry["arcs"]):
        assert (
            arc["neighbours"]
            == around(n, k, position)
            == list(neighbour_positions(n, k, position))
            == made.arc(position, k)
        )
        proof = [bytes.fromhex(one) for one in arc["proof"]]
        assert proof == hidden(leaves, {position, *arc["neighbours"]}) == made.proof(position, k)
        start = 0 if k == n - 1 else position - k // 2
        verify_arc(
            made.root, n, k, position, [ring[(start + i) % n] for i in range(k + 1)], seed, proof
        )


@for_each("entry", REFUSE["arcs"], ids=lambda entry: entry["name"])
def test_refused_arcs(entry: dict[str, Any]) -> None:
    ring = VECTORS["rings"][0]
    leaves = [bytes.fromhex(leaf) for leaf in entry["leaves"]]
    seats = [Seat(leaf[:32], leaf[32:64], leaf[64:]) for leaf in leaves]
    proof = [bytes.fromhex(one) for one in entry["proof"]]
    with pytest.raises(ShoalError) as caught:
        verify_arc(
            raw(ring, "root"),
            ring["devices"],
            ring["neighbours"],
            1,
            seats,
            raw(ring, "seed"),
            proof,
        )
    assert caught.value.kind is Kind[entry["kind"]]


@for_each("entry", REFUSE["lists"], ids=lambda entry: entry["name"])
def test_refused_lists(entry: dict[str, Any]) -> None:
    with pytest.raises(ShoalError) as caught:
        decode_seats(raw(entry, "list"))
    assert caught.value.kind is Kind[entry["kind"]]


# --- numbers --------------------------------------------------------------------------------------


def tail(n: int, marked: int, k: int, least: int) -> Fraction:
    """P[X >= least], X hypergeometric: k drawn from n, ``marked`` of them marked."""
    ways = sum(
        math.comb(marked, x) * math.comb(n - marked, k - x)
        for x in range(max(0, least), min(marked, k) + 1)
    )
    return Fraction(ways, math.comb(n, k))


def fits(n: int, bad: int, lost: int, k: int, t: int, strict: bool) -> bool:
    """The three conditions of the page, naively."""
    most = Fraction(1, 2 ** ((80 if strict else 40) + 1))
    joined = Fraction(n * (n - k - 1) * math.perm(bad + lost, k), 2 * math.perm(n, k)) < most
    x = next(x for x in range(k + 2) if n * tail(n, bad, k, x) <= most)
    private = 3 * t > 2 * k + 2 * x if strict else t >= x
    return joined and private and n * tail(n, lost, k, k - t + 1) <= Fraction(1, 2**20)


@for_each(
    "entry", VECTORS["parameters"], ids=lambda e: "-".join(str(v) for v in list(e.values())[:4])
)
def test_parameters(entry: dict[str, Any]) -> None:
    """(k, t) meets the conditions, t - 1 and k - 2 do not. Planted: an entry's t off by one -> this
    fails.
    """
    n, honest, dropout, mode = (
        entry["devices"],
        entry["honest_fraction_ppm"],
        entry["dropout_ppm"],
        Mode[entry["mode"].upper()],
    )
    plan, strict = (
        PairwisePlan(mode, n, n, entry["survivors_min"], dropout, 32),
        mode is Mode.STRICT,
    )
    bad, lost = (1_000_000 - honest) * n // 1_000_000, dropout * n // 1_000_000
    least = max(2, (n - 1 + bad) // 2 + 1 if strict else bad + 1)
    if "kind" in entry:
        with pytest.raises(ShoalError) as caught:
            parameters_for(plan, honest, n)
        assert caught.value.kind is Kind[entry["kind"]]
        assert least > n - 1 - lost
        return
    graph, k, t = parameters_for(plan, honest, n), entry["neighbours"], entry["threshold"]
    assert (graph.neighbours, graph.threshold, graph.complete) == (k, t, entry["complete"])
    assert survivors_needed(plan, n) == max(entry["survivors_min"], n - lost) == entry["survivors"]
    if entry["complete"]:
        assert k == n - 1
        assert t == (least + (n - 1 - lost) + 1) // 2
        return
    assert n > 50
    assert fits(n, bad, lost, k, t, strict)
    assert t == 2 or not fits(n, bad, lost, k, t - 1, strict)
    if k > 2 and k < 100:  # naive arithmetic takes seconds beyond
        assert not any(fits(n, bad, lost, k - 2, other, strict) for other in range(2, k - 1))


@pytest.mark.parametrize(
    "entry", VECTORS["check_constants"], ids=lambda entry: str(entry["word_bits"])
)
def test_check_constants(entry: dict[str, Any]) -> None:
    """Planted: other odd constants -> this fails."""
    bits, label, expected = (
        entry["word_bits"],
        raw(entry, "label"),
        [int(one) for one in entry["constants"]],
    )
    assert words.check_constants(label, bits).tolist() == constants_of(label, bits) == expected
    assert len(expected) == CHECK_WORDS[bits]


# --- a whole round --------------------------------------------------------------------------------


def terms_of(entry: dict[str, Any]) -> RoundTerms:
    documents = entry["documents"]
    trusted = trust_task(raw(documents, "signed_task"), {raw(documents, "authority")})
    terms = RoundTerms.of(
        trusted.task,
        trusted.task_id,
        trust_schedule(raw(documents, "signed_schedule"), trusted),
        entry["window"],
    )
    assert (terms.task_id.hex, terms.schedule_hash.hex) == (
        documents["task_id"],
        documents["schedule_hash"],
    )
    return terms


def key_of(entry: dict[str, Any]) -> HpkePrivateKey:
    return HpkePrivateKey.from_raw_secret(SuiteId.X25519_AES128, raw(entry, "analyzer_private_key"))


DEVICES: list[dict[str, Any]] = ROUND["devices"]
ROUND_ID = raw(ROUND, "round_id")
STATUSES = Commit.decode(pairwise_pb2.SignedRecord.FromString(raw(ROUND, "commit")).record).statuses


def own_keys(device: dict[str, Any]) -> tuple[bytes, bytes]:
    return public_of(raw(device, "pad_private_key")), public_of(raw(device, "share_private_key"))


def share_at(device: dict[str, Any], secret: bytes, which: str, point: int) -> bytes:
    coefficients = [int.from_bytes(secret, "big"), *map(int, device[f"coefficients_{which}"])]
    value: int = sum(c * point**power for power, c in enumerate(coefficients)) % PRIME
    return value.to_bytes(33, "big")


def neighbours_of(device: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        DEVICES[place] for place in around(len(DEVICES), ROUND["neighbours"], device["position"])
    ]


def sealed_share(sender: dict[str, Any], receiver: dict[str, Any]) -> bytes:
    (_, own), (_, other), point = own_keys(sender), own_keys(receiver), receiver["position"] + 1
    key = derived(
        ROUND_ID, agreed(raw(sender, "share_private_key"), other), "share", own, other, size=32
    )
    plaintext = share_at(sender, raw(sender, "b"), "b", point) + share_at(
        sender, raw(sender, "pad_private_key"), "s", point
    )
    return AESGCM(key).encrypt(
        bytes(12), plaintext, ROUND_ID + u32(sender["position"]) + u32(receiver["position"])
    )


@pytest.mark.parametrize("entry", [ROUND, SINGLES], ids=["round", "singles"])
def test_a_device_accepts_the_tasks(entry: dict[str, Any]) -> None:
    """Noise for exactly the honest survivors, words that can't wrap: everything that a device
    checks. Planted: shares = 3 -> this fails.
    """
    documents = entry["documents"]
    trusted = trust_task(raw(documents, "signed_task"), {raw(documents, "authority")})
    assigned = assign(trusted, trust_schedule(raw(documents, "signed_schedule"), trusted))
    assert assigned.task.mechanism.get("shares") == 2
    assert assigned.mechanism is None


def test_the_round_starts_as_the_page_says() -> None:
    terms, offer = terms_of(ROUND), pairwise_pb2.SignedOffer.FromString(raw(ROUND, "offer"))
    signed(terms.shuffler_key, "round-offer", offer.offer, offer.shuffler_signature)
    signed(terms.analyzer_key, "round-offer", offer.offer, offer.analyzer_signature)
    assert labelled("offer", offer.offer) == raw(ROUND, "offer_id")
    start = pairwise_pb2.Start.FromString(
        pairwise_pb2.StartRoundReply.FromString(raw(ROUND, "start_reply")).start
    )
    nonces = raw(ROUND, "shuffler_nonce"), raw(ROUND, "analyzer_nonce")
    assert (start.shuffler_nonce, start.analyzer_nonce, start.devices) == (*nonces, len(DEVICES))
    seats = pairwise_pb2.StartRoundRequest.FromString(raw(ROUND, "start_request")).seats
    assert hashlib.sha256(seats).digest() == start.list_hash
    seed = labelled("graph", raw(ROUND, "offer_id"), start.list_hash, *nonces)
    leaves = [
        labelled("seat", raw(ROUND, "offer_id"), raw(one, "device_key")) + b"".join(own_keys(one))
        for one in DEVICES
    ]
    assert sorted(leaves) == [seats[i : i + 96] for i in range(0, len(seats), 96)]
    assert leaves == sorted(leaves, key=lambda leaf: labelled("tag", seed, leaf[:32]))
    assert start.ring_root == root_of(leaves)
    for device in DEVICES:
        started, join = (
            pairwise_pb2.Started.FromString(raw(device, "started")),
            pairwise_pb2.Join.FromString(raw(device, "join")),
        )
        assert labelled("round", started.start.record) == ROUND_ID
        signed(
            terms.shuffler_key,
            "round-start",
            started.start.record,
            started.start.shuffler_signature,
        )
        signed(
            terms.analyzer_key,
            "round-start",
            started.start.record,
            started.start.analyzer_signature,
        )
        assert started.position == DEVICES.index(device) == device["position"]
        assert (join.pad_key, join.share_key) == own_keys(device)
        signed(
            raw(device, "device_key"),
            "round-keys",
            join.offer_id + join.pad_key + join.share_key,
            join.signature,
        )
        certificate = pairwise_pb2.SignedCertificate.FromString(join.certificate)
        signed(terms.enrolment_key, "enrolment", certificate.certificate, certificate.signature)
        told = [(one.certificate, one.pad_key, one.share_key) for one in started.neighbours]
        assert told == [(raw(one, "certificate"), *own_keys(one)) for one in neighbours_of(device)]


def test_shares_and_masked_words_follow_from_the_secrets() -> None:
    """Planted: the sign of pads turned; AAD in the order (to, from); a self pad or a commitment of
    other inputs -> this fails.
    """
    terms = terms_of(ROUND)
    for device in DEVICES:
        own, neighbours = own_keys(device)[0], neighbours_of(device)
        if STATUSES[device["position"]] == NEVER_SHARED:
            assert "shares" not in device
            continue
        shares = pairwise_pb2.Shares.FromString(raw(device, "shares"))
        assert shares.ciphertexts == b"".join(sealed_share(device, one) for one in neighbours)
        assert shares.commitment == labelled("self", ROUND_ID, own, raw(device, "b"))
        signed = ROUND_ID + u32(device["position"]) + shares.commitment + shares.ciphertexts
        Ed25519PublicKey.from_public_bytes(raw(device, "device_key")).verify(
            shares.signature, b"shoal/v1/sign/round-shares\x00" + signed
        )
        roster = pairwise_pb2.Roster.FromString(raw(device, "roster"))
        shared = [one for one in neighbours if "shares" in one]
        assert list(roster.ciphertexts) == [
            sealed_share(one, device) if one in shared else b"" for one in neighbours
        ]
        plain = [*(one % 2**32 for one in device["vector"]), *constants_of(ROUND_ID, 32)]
        masked = added(
            plain, pad(derived(ROUND_ID, raw(device, "b"), "self-pad", own), len(plain), 32), 1, 32
        )
        for one in shared:
            other = own_keys(one)[0]
            stream = derived(
                ROUND_ID,
                agreed(raw(device, "pad_private_key"), other),
                "pad",
                min(own, other),
                max(own, other),
            )
            masked = added(masked, pad(stream, len(plain), 32), 1 if own < other else -1, 32)
        assert numbers(raw(device, "masked"), 32) == masked
        info = b"shoal/v1/secagg/vector\x00" + ROUND_ID + terms.analyzer_config.key_id.raw
        assert open_sealed(key_of(ROUND), raw(device, "sealed_vector"), info) == raw(
            device, "masked"
        )


def test_bundles_and_the_sum_follow_from_the_statuses() -> None:
    """The analyzer's arithmetic from the file alone. Planted: a self pad left in; a status changed
    -> this fails.
    """
    assert sorted(STATUSES) == [NEVER_SHARED, DROPPED, ALIVE, ALIVE, ALIVE]
    terms, held = terms_of(ROUND), {device["position"]: dict[int, bytes]() for device in DEVICES}
    alive = [device for device in DEVICES if STATUSES[device["position"]] == ALIVE]
    info = b"shoal/v1/secagg/shares\x00" + ROUND_ID + terms.analyzer_config.key_id.raw
    for device in alive:
        items = b""
        for one in neighbours_of(device):
            secret, which = ((raw(one, "b"), "b"), (raw(one, "pad_private_key"), "s"))[
                STATUSES[one["position"]] == DROPPED
            ]
            if STATUSES[one["position"]] == NEVER_SHARED:
                items += bytes(34)
                continue
            share = share_at(one, secret, which, device["position"] + 1)
            items += bytes((1 if which == "b" else 2,)) + share
            held[one["position"]][device["position"] + 1] = share
        assert raw(device, "bundle") == u32(device["position"]) + items
        assert open_sealed(key_of(ROUND), raw(device, "sealed_bundle"), info) == raw(
            device, "bundle"
        )
    count = len(DEVICES[0]["vector"]) + 2
    total = [0] * count
    for device in alive:
        total = added(total, numbers(raw(device, "masked"), 32), 1, 32)
    for place, shares in held.items():
        own = own_keys(DEVICES[place])[0]
        if STATUSES[place] == NEVER_SHARED:
            assert not shares
            continue
        chosen = dict(list(shares.items())[: ROUND["threshold"]])
        secret = at_zero(chosen)
        if STATUSES[place] == ALIVE:
            total = added(total, pad(derived(ROUND_ID, secret, "self-pad", own), count, 32), -1, 32)
            continue
        assert public_of(secret) == own
        for one in [one for one in neighbours_of(DEVICES[place]) if one in alive]:
            other = own_keys(one)[0]
            stream = derived(
                ROUND_ID, agreed(secret, other), "pad", min(own, other), max(own, other)
            )
            total = added(total, pad(stream, count, 32), -1 if other < own else 1, 32)
    assert total[-2:] == [len(alive) * one % 2**32 for one in constants_of(ROUND_ID, 32)]
    assert (
        [as_signed(one, 32) for one in total[:-2]]
        == ROUND["sum"]
        == np.sum([one["vector"] for one in alive], axis=0).tolist()
    )
    assert ROUND["in_the_sum"] == len(alive)


def test_an_analyzer_makes_the_same_answers_and_the_same_sum() -> None:
    """The production collector, fed with what stands in the file. Only its signatures need a key
    that is not there.
    """
    terms, request = (
        terms_of(ROUND),
        pairwise_pb2.StartRoundRequest.FromString(raw(ROUND, "start_request")),
    )
    analyzer = Collector(
        terms,
        key_of(ROUND),
        SigningKey.generate(),
        raw(ROUND, "analyzer_nonce"),
        labelled("nonce", request.shuffler_nonce),
    )
    assert analyzer.offered.offer == pairwise_pb2.SignedOffer.FromString(raw(ROUND, "offer")).offer
    assert (
        analyzer.start(request).start
        == pairwise_pb2.StartRoundReply.FromString(raw(ROUND, "start_reply")).start
    )
    alive = [device for device in DEVICES if STATUSES[device["position"]] == ALIVE]
    assert analyzer.add_vectors([raw(device, "sealed_vector") for device in alive]) == ()
    commit = pairwise_pb2.CommitRoundRequest.FromString(raw(ROUND, "commit_request"))
    assert analyzer.commit(commit).analyzer_signature
    bundles = [u32(device["position"]) + raw(device, "sealed_bundle") for device in alive]
    assert analyzer.unmask(
        pairwise_pb2.UnmaskRoundRequest(round_id=ROUND_ID, bundles=bundles, last=True)
    ).done
    assert analyzer.result is not None
    assert analyzer.result.vector.tolist() == ROUND["sum"]


# --- helper mode ----------------------------------------------------------------------------------


def test_singles() -> None:
    """Planted: the window left out of the pad's info; the label of a round used for the check words
    -> this fails.
    """
    terms, task_id, label = (
        terms_of(SINGLES),
        raw(SINGLES["documents"], "task_id"),
        raw(SINGLES, "label"),
    )
    assert label == labelled("singles", task_id, u32(0)) == window_label(terms.task_id, 0).raw
    info = b"shoal/v1/secagg/single\x00" + task_id + u32(0) + terms.analyzer_config.key_id.raw
    pads, adding = [0] * 5, SingleSum(terms, key_of(SINGLES))
    for device in SINGLES["devices"]:
        single = pairwise_pb2.Single.FromString(raw(device, "single"))
        assert single.seed == raw(device, "seed")
        assert check_single(terms, single, raw(device, "sealed_vector"), SINGLES["now"]) == raw(
            device, "device_key"
        )
        proof = pairwise_pb2.AdmissionProof.FromString(single.proof)
        statement = task_id + u32(0) + hashlib.sha256(raw(device, "sealed_vector")).digest()
        signed(raw(device, "device_key"), "admission", statement, proof.signature)
        own = pad(derived(task_id, single.seed, "single-pad", u32(0)), 5, 32)
        plain = [*(one % 2**32 for one in device["vector"]), *constants_of(label, 32)]
        assert numbers(raw(device, "masked"), 32) == added(plain, own, 1, 32)
        assert open_sealed(key_of(SINGLES), raw(device, "sealed_vector"), info) == raw(
            device, "masked"
        )
        pads = added(pads, own, 1, 32)
        adding.add([raw(device, "sealed_vector")])
    assert numbers(raw(SINGLES, "pads"), 32) == pads
    assert sum_pads(terms, [raw(device, "seed") for device in SINGLES["devices"]]) == raw(
        SINGLES, "pads"
    )
    assert adding.finish(raw(SINGLES, "pads"), 3).tolist() == SINGLES["sum"]
    assert (
        SINGLES["sum"]
        == np.sum([device["vector"] for device in SINGLES["devices"]], axis=0).tolist()
    )
