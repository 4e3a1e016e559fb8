"""Replay the parts of a round of shoal_secagg_v1.json, from hashes and curves alone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from shoal.crypto.secagg import records, words
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
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.secagg import CHECK_WORDS, Mode, PairwisePlan
from tests.cases import for_each
from tests.vectors.rounds_by_hand import (
    RECORDS,
    REFUSE,
    VECTORS,
    around,
    constants_of,
    labelled,
    root_of,
    signed,
    tree_hash,
)
from tests.vectors.test_secagg_vectors import raw

# --- from primitives ------------------------------------------------------------------------------


def hidden(leaves: Sequence[bytes], shown: set[int], first: int = 0) -> list[bytes]:
    """The hashes of a range proof."""
    if not shown & set(range(first, first + len(leaves))):
        return [tree_hash(leaves)]
    if len(leaves) == 1:
        return []
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return hidden(leaves[:half], shown, first) + hidden(leaves[half:], shown, first + half)


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
