"""Replay the rounds of shoal_secagg_v1.json, twice: by the program, and from hashes, HKDF, AES,
X25519 and Ed25519 alone.

The second half follows docs/WIRE.md and nothing of ``shoal.crypto.secagg``: it can serve as a model
for an implementation in another language. Protobuf parsing and HPKE are the program's; they have
vectors of their own.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shoal.clients.core import assign
from shoal.crypto.hpke import HpkePrivateKey, open_sealed
from shoal.crypto.secagg.analyzer.collector import Collector
from shoal.crypto.secagg.records import Commit
from shoal.crypto.secagg.single import SingleSum, check_single, sum_pads, window_label
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.protos import pairwise_pb2
from tests.vectors.rounds_by_hand import (
    PRIME,
    ROUND,
    SINGLES,
    added,
    agreed,
    around,
    as_signed,
    at_zero,
    constants_of,
    derived,
    labelled,
    numbers,
    pad,
    public_of,
    root_of,
    signed,
)
from tests.vectors.test_secagg_vectors import raw, u32

NEVER_SHARED, DROPPED, ALIVE = 0, 1, 2


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
