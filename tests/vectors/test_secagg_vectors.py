"""Replay shoal_secagg_v1.json: the program gives what is written there, and refuses what is to be
refused, with its kind.

The expected values are computed a second time here, from the library's primitives and from textbook
formulas, so that the file is right and not merely what the program said when it was made.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shoal.crypto.hpke import HpkePrivateKey, open_sealed
from shoal.crypto.secagg.complaints import Dispute
from shoal.crypto.secagg.exchange import (
    exchange_info,
    open_reply,
    open_request,
    request_key_id,
    seal_reply,
    shares_info,
    single_info,
    vector_info,
)
from shoal.crypto.secagg.pads import (
    WORD,
    agree,
    apply,
    pair_stream_key,
    self_stream_key,
    sign_of,
    single_stream_key,
)
from shoal.crypto.secagg.primitives.shamir import PRIME, combine, split
from shoal.crypto.secagg.segments import OpenedRow
from shoal.crypto.secagg.shares import (
    SharePair,
    commitment,
    decode_bundle,
    encode_bundle,
    open_shares,
    seal_shares,
    share_key,
)
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, KeyId, TaskId
from shoal.secagg import Mode, PairwisePlan
from tests.cases import for_each
from tests.worlds.tapes import Tape

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "tests" / "vectors" / "shoal_secagg_v1.json"
VECTORS: dict[str, Any] = json.loads(PATH.read_text())
REFUSE = VECTORS["refuse"]


def raw(entry: dict[str, Any], name: str) -> bytes:
    return bytes.fromhex(entry[name])


def named(entry: dict[str, Any]) -> str:
    return str(entry["name"])


def derived(salt: bytes, secret: bytes, info: bytes, size: int = 48) -> bytes:
    return HKDF(hashes.SHA256(), size, salt, info).derive(secret)


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


# --- pads -----------------------------------------------------------------------------------------


def check_words(entry: dict[str, Any]) -> None:
    """Each list of words against AES-256-CTR by the library in one call, and against the
    program.
    """
    key = raw(entry, "stream_key")
    assert {(case["word_bits"], case["sign"]) for case in entry["words"]} == {
        (bits, sign) for bits in (16, 32, 64) for sign in (1, -1)
    }
    for case in entry["words"]:
        bits, before, after = (
            case["word_bits"],
            [int(w) for w in case["before"]],
            [int(w) for w in case["after"]],
        )
        width = bits // 8
        pad = (
            Cipher(algorithms.AES(key[:32]), modes.CTR(key[32:]))
            .encryptor()
            .update(bytes(width * len(before)))
        )
        pads = [int.from_bytes(pad[i : i + width], "little") for i in range(0, len(pad), width)]
        assert [
            (x + case["sign"] * y) % 2**bits for x, y in zip(before, pads, strict=True)
        ] == after
        words = np.array(before, dtype=WORD[bits])
        apply(words, key, case["sign"])
        assert [int(w) for w in words] == after


@pytest.mark.parametrize("entry", VECTORS["pair_pads"])
def test_pair_pads(entry: dict[str, Any]) -> None:
    private = X25519PrivateKey.from_private_bytes(raw(entry, "private_key"))
    own, other = raw(entry, "public_key"), raw(entry, "other_public_key")
    assert private.public_key().public_bytes_raw() == own
    shared = private.exchange(X25519PublicKey.from_public_bytes(other))
    assert agree(private, other) == shared == raw(entry, "shared")
    assert sign_of(own, other) == entry["sign"] == (1 if own < other else -1)
    info = b"shoal/v1/secagg/pad\x00" + min(own, other) + max(own, other)
    expected = derived(raw(entry, "round_id"), shared, info)
    assert (
        pair_stream_key(shared, Digest.parse(entry["round_id"]), own, other)
        == expected
        == raw(entry, "stream_key")
    )
    check_words(entry)


def test_both_ends_of_a_pad_are_there() -> None:
    one, other = VECTORS["pair_pads"][:2]
    assert (one["public_key"], one["other_public_key"]) == (
        other["other_public_key"],
        other["public_key"],
    )
    assert (one["stream_key"], one["sign"]) == (other["stream_key"], -other["sign"])


@pytest.mark.parametrize("entry", VECTORS["self_pads"])
def test_self_pads(entry: dict[str, Any]) -> None:
    seed, round_id, public = (
        raw(entry, "seed"),
        Digest.parse(entry["round_id"]),
        raw(entry, "pad_key"),
    )
    expected = derived(round_id.raw, seed, b"shoal/v1/secagg/self-pad\x00" + public)
    assert self_stream_key(seed, round_id, public) == expected == raw(entry, "stream_key")
    committed = hashlib.sha256(b"shoal/v1/secagg/self\x00" + round_id.raw + public + seed).digest()
    assert commitment(round_id, public, seed) == committed == raw(entry, "commitment")
    check_words(entry)


@pytest.mark.parametrize("entry", VECTORS["single_pads"], ids=lambda e: str(e["window"]))
def test_single_pads(entry: dict[str, Any]) -> None:
    seed, task_id, window = raw(entry, "seed"), TaskId.parse(entry["task_id"]), entry["window"]
    expected = derived(task_id.raw, seed, b"shoal/v1/secagg/single-pad\x00" + u32(window))
    assert single_stream_key(seed, task_id, window) == expected == raw(entry, "stream_key")
    check_words(entry)


# --- secret sharing -------------------------------------------------------------------------------


@for_each("entry", VECTORS["shamir"], ids=lambda e: str(e["threshold"]))
def test_shamir(entry: dict[str, Any]) -> None:
    """Each share is the polynomial's value, summed power by power; the first and the last
    ``threshold`` of them give the secret.
    """
    assert int(VECTORS["prime"]) == PRIME == 2**256 + 297
    secret, threshold = raw(entry, "secret"), entry["threshold"]
    coefficients = [int.from_bytes(secret, "big"), *map(int, entry["coefficients"])]
    assert len(coefficients) == threshold
    shares = {case["point"]: raw(case, "share") for case in entry["shares"]}
    values = {x: sum(c * x**power for power, c in enumerate(coefficients)) % PRIME for x in shares}
    assert {x: int.from_bytes(share, "big") for x, share in shares.items()} == values
    script = (
        Tape(b"".join(c.to_bytes(33, "big") for c in coefficients[:0:-1]))
        if threshold > 1
        else Tape()
    )
    assert split(secret, threshold, list(shares), script) == list(shares.values())
    points = list(shares)
    for chosen in (points[:threshold], points[-threshold:]):
        assert combine({x: shares[x] for x in chosen}) == secret


# --- sealed shares, bundles -----------------------------------------------------------------------


@pytest.mark.parametrize("entry", VECTORS["sealed_shares"])
def test_sealed_shares(entry: dict[str, Any]) -> None:
    private = X25519PrivateKey.from_private_bytes(raw(entry, "sender_private_key"))
    own, other, round_id = (
        raw(entry, "sender_share_key"),
        raw(entry, "receiver_share_key"),
        Digest.parse(entry["round_id"]),
    )
    assert private.public_key().public_bytes_raw() == own
    shared = private.exchange(X25519PublicKey.from_public_bytes(other))
    key = derived(round_id.raw, shared, b"shoal/v1/secagg/share\x00" + own + other, 32)
    assert share_key(agree(private, other), round_id, own, other) == key == raw(entry, "key")
    pair, sender, receiver = (
        SharePair(raw(entry, "b"), raw(entry, "s")),
        entry["sender"],
        entry["receiver"],
    )
    sealed = AESGCM(key).encrypt(
        bytes(12), pair.b + pair.s, round_id.raw + u32(sender) + u32(receiver)
    )
    assert seal_shares(key, pair, round_id, sender, receiver) == sealed == raw(entry, "sealed")
    assert open_shares(key, sealed, round_id, sender, receiver) == pair


def proven(own: bytes, other: bytes, shared: bytes, context: bytes, proof: bytes) -> bool:
    """From X25519 and SHA-256 alone, as docs/WIRE.md says; the keys of the vectors are on the
    curve.
    """

    def times(scalar: bytes, point: bytes) -> bytes:
        return X25519PrivateKey.from_private_bytes(scalar).exchange(
            X25519PublicKey.from_public_bytes(point)
        )

    order = 2**252 + 27742317777372353535851937790883648493
    one = next(
        n
        for sign in (1, -1)
        for n in range(sign % order, 2**255, order)
        if n >= 2**254 and n % 8 == 0
    )
    if len(proof) != 16 + 128 * 32 or times(one.to_bytes(32, "little"), shared) != shared:
        return False
    points = []
    for i in range(128):
        scalar = proof[16 + 32 * i : 48 + 32 * i]
        first, second = (
            (own, shared) if proof[i // 8] >> (i % 8) & 1 else (bytes([9]) + bytes(31), other)
        )
        points += [times(scalar, first), times(scalar, second)]
    head = b"shoal/v1/secagg/agreement\x00" + u32(len(context)) + context + own + other + shared
    return hashlib.sha256(head + b"".join(points)).digest()[:16] == proof[:16]


@for_each("entry", VECTORS["complaints"], ids=named)
def test_complaints(entry: dict[str, Any]) -> None:
    round_id, dealer, complainer = raw(entry, "round_id"), entry["dealer"], entry["complainer"]
    dealt_by, own, shared = (
        raw(entry, "dealer_share_key"),
        raw(entry, "complainer_share_key"),
        raw(entry, "shared"),
    )
    key = derived(round_id, shared, b"shoal/v1/secagg/share\x00" + dealt_by + own, 32)
    try:
        plain = AESGCM(key).decrypt(
            bytes(12), raw(entry, "ciphertext"), round_id + u32(dealer) + u32(complainer)
        )
        opens = all(int.from_bytes(plain[at : at + 33], "big") < 2**256 + 297 for at in (0, 33))
    except InvalidTag:
        opens = False
    guilty = not opens and proven(
        own, dealt_by, shared, round_id + u32(complainer) + u32(dealer), raw(entry, "proof")
    )
    dispute = Dispute(Digest(round_id), dealer, dealt_by, complainer, own, raw(entry, "ciphertext"))
    assert (
        dispute.dealer_is_guilty(shared, raw(entry, "proof")) == guilty == entry["dealer_is_guilty"]
    )


@for_each("entry", VECTORS["segments"], ids=lambda e: f"{e['word_bits']}-{len(e['vector'])}")
def test_segments(entry: dict[str, Any]) -> None:
    """By the program, and from HPKE, AES and the layout of docs/WIRE.md alone. Planted: an info
    without the row, or a count that is one less -> fails.
    """
    bits, vector = entry["word_bits"], np.array(entry["vector"], np.int64)
    plan = PairwisePlan(Mode.DEFAULT, 5, 5, 3, 400_000, bits, segment_words=entry["segment_words"])
    key = HpkePrivateKey(SuiteId.X25519_AES128, bytes.fromhex(entry["analyzer_private_key"]))
    sealed, round_id = bytes.fromhex(entry["sealed"]), bytes.fromhex(entry["round_id"])
    opened = OpenedRow(plan, len(vector), key, Digest(round_id))
    assert opened.feed(memoryview(sealed)) == len(sealed)
    assert opened.words is not None
    assert opened.words.tobytes().hex() == entry["masked"]
    row, at, plain = sealed[:16], 16, b""
    assert row.hex() == entry["row_id"]
    for index, words in enumerate(entry["words"]):
        info = b"shoal/v1/secagg/segment\x00" + round_id + bytes.fromhex(entry["key_id"]) + row
        info += index.to_bytes(4, "big") + len(entry["words"]).to_bytes(4, "big")
        assert info.hex() == entry["infos"][index]
        size = words * bits // 8 + 48
        plain += SuiteId.X25519_AES128.hpke.decrypt(sealed[at : at + size], key._handle, info=info)
        at += size
    assert at == len(sealed)
    masked = int_words(plain, bits)
    for stream in entry["streams"]:
        secret = bytes.fromhex(stream["key"])
        cipher = Cipher(algorithms.AES(secret[:32]), modes.CTR(secret[32:])).encryptor()
        pad = int_words(cipher.update(bytes(len(plain))), bits)
        masked = [
            (word - stream["sign"] * more) % 2**bits for word, more in zip(masked, pad, strict=True)
        ]
    assert masked[: len(vector)] == [value % 2**bits for value in entry["vector"]]
    assert masked[len(vector)] == 1


def int_words(data: bytes, bits: int) -> list[int]:
    step = bits // 8
    return [int.from_bytes(data[at : at + step], "little") for at in range(0, len(data), step)]


@pytest.mark.parametrize("entry", VECTORS["bundles"], ids=lambda e: str(e["position"]))
def test_bundles(entry: dict[str, Any]) -> None:
    items = [(item["kind"], raw(item, "share")) for item in entry["items"]]
    written = u32(entry["position"]) + b"".join(
        bytes((kind,)) + (share or bytes(33)) for kind, share in items
    )
    assert encode_bundle(entry["position"], items) == written == raw(entry, "bundle")
    bundle = decode_bundle(written, len(items))
    assert (bundle.position, [(int(kind), share) for kind, share in bundle.items]) == (
        entry["position"],
        items,
    )


# --- exchange -------------------------------------------------------------------------------------


def test_infos() -> None:
    entry = VECTORS["infos"]
    round_id, task_id, key_id = (
        Digest.parse(entry["round_id"]),
        TaskId.parse(entry["task_id"]),
        KeyId.parse(entry["key_id"]),
    )
    prefix = b"shoal/v1/secagg/"
    assert (
        vector_info(round_id, key_id)
        == prefix + b"vector\x00" + round_id.raw + key_id.raw
        == raw(entry, "vector")
    )
    assert (
        shares_info(round_id, key_id)
        == prefix + b"shares\x00" + round_id.raw + key_id.raw
        == raw(entry, "shares")
    )
    single = prefix + b"single\x00" + task_id.raw + u32(entry["window"]) + key_id.raw
    assert single_info(task_id, entry["window"], key_id) == single == raw(entry, "single")
    assert exchange_info(key_id) == prefix + b"exchange\x00" + key_id.raw == raw(entry, "exchange")


@pytest.mark.parametrize("entry", VECTORS["exchanges"], ids=lambda e: str(len(e["frame"]) // 2))
def test_exchanges(entry: dict[str, Any]) -> None:
    key = HpkePrivateKey.from_raw_secret(SuiteId(entry["suite"]), raw(entry, "private_key"))
    frame, step, reply_key = raw(entry, "frame"), raw(entry, "step"), raw(entry, "reply_key")
    assert request_key_id(frame) == key.config.key_id == KeyId.parse(entry["key_id"])
    assert open_request(key, frame) == (step, reply_key)
    assert frame[:10] == bytes((1, entry["suite"])) + key.config.key_id.raw
    assert open_sealed(key, frame[10:], raw(entry, "info")) == reply_key + step
    answer, replies = raw(entry, "answer"), [bytes.fromhex(reply) for reply in entry["replies"]]
    assert len({reply[:12] for reply in replies}) == len(replies) == 2
    for reply in replies:
        assert open_reply(reply_key, reply) == answer
        assert reply[12:] == AESGCM(reply_key).encrypt(reply[:12], answer, None)
        assert seal_reply(reply_key, answer, Tape(reply[:12])) == reply


# --- what must be refused -------------------------------------------------------------------------


def refused(entry: dict[str, Any], act: Any, *args: Any) -> None:
    with pytest.raises(ShoalError) as caught:
        act(*args)
    assert caught.value.kind is Kind[entry["kind"]], str(caught.value)


@for_each("entry", REFUSE["keys"], ids=named)
def test_refused_keys(entry: dict[str, Any]) -> None:
    refused(
        entry,
        agree,
        X25519PrivateKey.from_private_bytes(bytes(range(32))),
        raw(entry, "public_key"),
    )


@for_each("entry", REFUSE["shamir"], ids=named)
def test_refused_shamir(entry: dict[str, Any]) -> None:
    refused(entry, combine, {case["point"]: raw(case, "share") for case in entry["shares"]})


@for_each("entry", REFUSE["sealed_shares"], ids=named)
def test_refused_sealed_shares(entry: dict[str, Any]) -> None:
    round_id = Digest.parse(entry["round_id"])
    refused(
        entry,
        open_shares,
        raw(entry, "key"),
        raw(entry, "sealed"),
        round_id,
        entry["sender"],
        entry["receiver"],
    )


@for_each("entry", REFUSE["bundles"], ids=named)
def test_refused_bundles(entry: dict[str, Any]) -> None:
    refused(entry, decode_bundle, raw(entry, "bundle"), entry["neighbours"])


@for_each("entry", REFUSE["exchanges"], ids=named)
def test_refused_exchanges(entry: dict[str, Any]) -> None:
    good = VECTORS["exchanges"][0]
    key = HpkePrivateKey.from_raw_secret(SuiteId(entry["suite"]), raw(good, "private_key"))
    refused(entry, open_request, key, raw(entry, "frame") + bytes(entry["zeros"]))


@for_each("entry", REFUSE["replies"], ids=named)
def test_refused_replies(entry: dict[str, Any]) -> None:
    refused(entry, open_reply, raw(entry, "reply_key"), raw(entry, "reply"))


def test_the_tool_still_makes_these_vectors(tmp_path: Path) -> None:
    """To the byte: nothing changes unnoticed, and no vector was edited by hand. Planted: one digit
    edited -> this fails.
    """
    tool = str(ROOT / "tools" / "vectors_secagg.py")
    subprocess.run(
        [sys.executable, tool, str(tmp_path / "new.json")], check=True, capture_output=True
    )
    assert (tmp_path / "new.json").read_bytes() == PATH.read_bytes()
