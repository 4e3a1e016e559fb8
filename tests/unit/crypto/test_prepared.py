"""HPKE's sender in two halves: the published answers, what the one-call library opens, and no key
used twice.
"""

from __future__ import annotations

import base64
import copy
import json
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from shoal.crypto.envelope import (
    HopContent,
    hop_info,
    open_frame,
    open_report,
    report_info,
    seal_frame,
)
from shoal.crypto.hpke import generate, open_sealed
from shoal.crypto.prepared import (
    Encapsulations,
    encapsulate,
    encapsulate_many,
    seal_rows,
    seal_with,
)
from shoal.crypto.suites import PublicKeyConfig, SuiteId
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from tests.sizes import size

RFC = json.loads((Path(__file__).parents[2] / "vectors" / "rfc9180_base.json").read_text())
# (key, base_nonce) that RFC 9180 prints in A.1.1 and A.2.1, beside what the file of vectors holds.
SCHEDULE = {
    "A.1.1": ("4531685d41d65f03dc48f6b8302c05b0", "56d890e5accaaf011cff4b7d"),
    "A.2.1": (
        "ad2744de8e17f4ebba575b3f5f5a8fa1f69c2a07f6e7500bc60ca6e3e3ec1c91",
        "5c4d98150661b848853b547f",
    ),
}
INFO = b"some context"
KEYS = {suite: generate(suite) for suite in SuiteId}
SUITES = pytest.mark.parametrize("suite", SuiteId)
AES = SuiteId.X25519_AES128


class Fixed(SeededEntropy):
    """The ephemeral key of a published vector."""

    def __init__(self, secret: bytes) -> None:
        super().__init__(0)
        self._secret = secret

    def bytes(self, count: int) -> bytes:
        assert count == len(self._secret)
        return self._secret


def refused(kind: Kind, act: Any) -> str:
    with pytest.raises(ShoalError) as caught:
        act()
    assert caught.value.kind is kind, str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("entry", RFC["rfc9180"], ids=lambda e: e["section"])
def test_rfc_9180_known_answers(entry: dict[str, Any]) -> None:
    """The RFC's ephemeral key gives the RFC's enc, key, nonce and, with the RFC's AAD (ours is
    empty), its ciphertext.

    Planted: "HPKE-v1" for "KEM" in the KEM's suite id; pkR before enc in the KEM context; info_hash
    before psk_id_hash; "exp" for "base_nonce" -> each fails.
    """
    public, info, ephemeral, enc, aad, pt, ct = (
        bytes.fromhex(entry[name]) for name in ("pkRm", "info", "skEm", "enc", "aad", "pt", "ct")
    )
    suite = SuiteId(entry["suite"])
    raw = encapsulate_many(PublicKeyConfig(suite, public), info, 1, Fixed(ephemeral)).move_raw()
    key, nonce = raw[32:-12], raw[-12:]
    assert raw[:32] == enc
    assert (key.hex(), nonce.hex()) == SCHEDULE[entry["section"]]
    aead = AESGCM if suite is AES else ChaCha20Poly1305
    assert aead(key).encrypt(nonce, pt, aad) == ct
    sealed = seal_with(encapsulate(PublicKeyConfig(suite, public), info, Fixed(ephemeral)), pt)
    assert sealed == enc + aead(key).encrypt(nonce, pt, None)


@SUITES
@pytest.mark.parametrize("length", [0, 1, 17, 453, 33_000])
def test_the_library_opens_what_was_sealed_in_halves(suite: SuiteId, length: int) -> None:
    """One at a time and by rows; of the hybrid it shows the combiner. Planted: ML-KEM's secret
    after X25519's -> suite 3 fails.
    """
    key, entropy = KEYS[suite], SeededEntropy(f"text {length}")
    text = entropy.bytes(length)
    sealed = seal_with(encapsulate(key.config, INFO), text)
    assert len(sealed) == length + suite.overhead
    assert open_sealed(key, sealed, INFO) == text
    rows = np.frombuffer(entropy.bytes(3 * length), dtype=np.uint8).reshape(3, length)
    many = seal_rows(encapsulate_many(key.config, INFO, 3), rows, b"ab")
    assert many.shape == (3, 2 + length + suite.overhead)
    assert [row[:2].tobytes() for row in many] == [b"ab"] * 3
    assert [open_sealed(key, row[2:].tobytes(), INFO) for row in many] == [
        row.tobytes() for row in rows
    ]


@SUITES
def test_both_layers_open_with_the_services_code(suite: SuiteId) -> None:
    """open_report and open_frame can't tell. The frame's bytes lie where seal_frame puts them: same
    length, same header.
    """
    key, hop, task_id = KEYS[suite], generate(suite), TaskId(bytes(range(32)))
    info = report_info(task_id, 7, key.config.key_id)
    sealed = seal_with(encapsulate(key.config, info), b"n" * 16 + b"\x05")
    assert open_report(key, info, sealed) == b"n" * 16 + b"\x05"
    whole = seal_frame(
        hop.config, HopContent(task_id, 7, bytes(32), key.config.key_id, b"", (sealed,))
    )
    plain = open_sealed(hop, whole[11:], hop_info(0, hop.config.key_id))
    halves = whole[:11] + seal_with(encapsulate(hop.config, hop_info(0, hop.config.key_id)), plain)
    assert len(halves) == len(whole)
    assert open_frame(hop, halves) == open_frame(hop, whole)


@SUITES
def test_encapsulations_share_nothing(suite: SuiteId) -> None:
    """enc, key and nonce differ from one to the next, and of X25519's none starts as another does.

    Planted: the ephemeral key drawn once per ``_Sender`` -> this fails.
    """
    count = size(20, 200)
    raw = encapsulate_many(KEYS[suite].config, INFO, count).move_raw()
    stride = len(raw) // count
    rows = [raw[i * stride : (i + 1) * stride] for i in range(count)]
    enc = suite.enc_length
    for part in (
        slice(0, 16),
        slice(enc - 32, enc),
        slice(enc, stride - 12),
        slice(stride - 12, stride),
    ):
        assert len({row[part] for row in rows}) == count


def test_a_second_use_raises() -> None:
    """Two texts under one key and nonce would give each other away. Planted: ``_left[0]`` for
    ``_left.pop()`` -> this fails.
    """
    one = encapsulate(KEYS[AES].config, INFO)
    seal_with(one, b"first")
    assert "once" in refused(Kind.CONFLICT, lambda: seal_with(one, b"second"))


def test_rows_are_used_up() -> None:
    """Planted: ``_move`` that copies without forgetting -> fails."""
    many = encapsulate_many(KEYS[AES].config, INFO, 3)
    rows = np.zeros((3, 5), dtype=np.uint8)
    seal_rows(many, rows)
    assert len(many) == 0
    assert "once" in refused(Kind.CONFLICT, lambda: seal_rows(many, rows))
    refused(Kind.CONFLICT, lambda: many.take(1))
    assert many.move_raw() == b""


def test_each_is_handed_out_once() -> None:
    """Parts together are the whole, in order and without overlap, and what was taken is zeros in
    the memory that it left.

    Planted: ``_first`` not moved on; the zeroing left out -> fails.
    """
    key = KEYS[AES].config
    raw = encapsulate_many(key, INFO, 10).move_raw()
    many = Encapsulations(key, INFO, raw)
    parts = [many.take(n) for n in (0, 3, 1, 4)]
    assert (len(many), [len(part) for part in parts]) == (2, [0, 3, 1, 4])
    assert not any(many._raw[: 8 * 60])
    assert b"".join(part.move_raw() for part in parts) + many.move_raw() == raw
    assert len(many) == 0


def test_threads_never_take_the_same() -> None:
    """Every row reaches exactly one of four threads. Planted: the lock left out -> fails in four
    runs of five.
    """
    key = KEYS[AES].config
    count = 8_000
    raw = b"".join(i.to_bytes(60, "big") for i in range(count))
    many, seen = Encapsulations(key, INFO, raw), [bytearray() for _ in range(4)]

    def work(mine: bytearray) -> None:
        for _ in range(count // 4):
            mine += many.take(1).move_raw()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in seen]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    taken = b"".join(seen)
    assert sorted(taken[i : i + 60] for i in range(0, len(taken), 60)) == [
        raw[i : i + 60] for i in range(0, len(raw), 60)
    ]
    assert len(many) == 0


def test_what_does_not_fit_is_refused_and_nothing_is_used() -> None:
    """Planted: rows sealed before their number is checked -> the length afterwards fails."""
    key = KEYS[AES].config
    many = encapsulate_many(key, INFO, 2)
    refused(Kind.CONFLICT, lambda: seal_rows(many, np.zeros((3, 5), dtype=np.uint8)))
    refused(Kind.CONFLICT, lambda: seal_rows(many, np.zeros((1, 5), dtype=np.uint8)))
    refused(Kind.INVALID, lambda: seal_rows(many, np.zeros((2, 5), dtype=np.int64)))
    refused(Kind.INVALID, lambda: seal_rows(many, np.zeros(10, dtype=np.uint8)))
    refused(Kind.CONFLICT, lambda: many.take(3))
    refused(Kind.INVALID, lambda: many.take(-1))
    refused(Kind.INVALID, lambda: Encapsulations(key, INFO, bytes(59)))
    assert len(many) == 2
    assert len(seal_rows(many, np.zeros((2, 5), dtype=np.uint8))) == 2


def _one() -> tuple[Any, bytes]:
    one = encapsulate(KEYS[AES].config, INFO)
    return one, one._left[0][0]


def _many() -> tuple[Any, bytes]:
    many = encapsulate_many(KEYS[AES].config, INFO, 1)
    return many, bytes(many._raw[32:48])


@pytest.mark.parametrize("make", [_one, _many])
def test_secrets_stay_inside(make: Any) -> None:
    """No text, no dictionary, no pickle, no copy. Planted: ``__repr__``, ``__slots__`` or
    ``__reduce__`` removed -> fails.
    """
    holder, secret = make()
    shown = [
        repr(holder),
        str(holder),
        f"{holder!r:>5}",
        repr([holder]),
        str(getattr(holder, "__dict__", "")),
    ]
    forms = [
        repr(secret)[2:-1],
        secret.hex(),
        base64.b64encode(secret).decode(),
        str(list(secret))[1:-1],
    ]
    assert not any(form in text for text in shown for form in forms)
    assert KEYS[AES].config.key_id.hex in repr(holder)
    assert not getattr(holder, "__dict__", {})
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="on purpose"):
            pickle.dumps(holder, protocol)
    for copier in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="on purpose"):
            copier(holder)
