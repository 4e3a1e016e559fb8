"""Pads cancel, whoever adds them in whatever order; nothing but the two devices' secret and the
round decides them.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from shoal.crypto.secagg.pads import (
    _AT_ONCE,
    _CHUNK,
    STREAM_KEY_SIZE,
    WORD,
    agree,
    apply,
    apply_all,
    hkdf,
    pair_stream_key,
    self_stream_key,
    sign_of,
    single_stream_key,
    zeros,
)
from shoal.crypto.secagg.primitives.shamir import combine, split
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from tests.cases import for_each
from tests.sizes import size

ROUND = Digest.of(b"round")
TASK = TaskId(bytes(range(32)))
PRIVATE = [X25519PrivateKey.from_private_bytes(bytes((i,)) * 32) for i in range(1, 7)]
PUBLIC = [key.public_key().public_bytes_raw() for key in PRIVATE]
SEED = bytes(range(100, 132))
STREAM_KEY = bytes(range(STREAM_KEY_SIZE))
FIELD_PRIME = 2**255 - 19


def refused(act: Any, *args: Any) -> str:
    with pytest.raises(ShoalError) as caught:
        act(*args)
    assert caught.value.kind is Kind.INVALID
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pair_key(i: int, j: int, round_id: Digest = ROUND) -> bytes:
    """What device i derives for its neighbour j."""
    return pair_stream_key(agree(PRIVATE[i], PUBLIC[j]), round_id, PUBLIC[i], PUBLIC[j])


def reference_pad(stream_key: bytes, count: int) -> bytes:
    """AES-256-CTR written out with the bare block cipher: counter blocks counted as 128-bit
    big-endian numbers.
    """
    first = int.from_bytes(stream_key[32:], "big")
    blocks = b"".join(((first + i) % 2**128).to_bytes(16, "big") for i in range(-(-count // 16)))
    return Cipher(algorithms.AES(stream_key[:32]), modes.ECB()).encryptor().update(blocks)[:count]  # noqa: S305 - one block at a time


# --- derivation -----------------------------------------------------------------------------------


@for_each("count", [1, 31, 32, 33, 48, 64, 65, 8160])
def test_hkdf_is_that_of_the_library(count: int) -> None:
    """Planted: the previous block left out of the next one -> sizes above 32 fail."""
    for salt, secret, info in (
        (b"", b"x", b""),
        (ROUND.raw, SEED, b"info"),
        (bytes(100), bytes(200), bytes(300)),
    ):
        assert hkdf(salt, secret, info, count) == HKDF(hashes.SHA256(), count, salt, info).derive(
            secret
        )


def test_hkdf_rfc_5869_case_1() -> None:
    salt, info = bytes(range(13)), bytes(range(0xF0, 0xFA))
    expected = (
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    )
    assert hkdf(salt, b"\x0b" * 22, info, 42).hex() == expected


def test_hkdf_refuses_sizes_that_it_cannot_give() -> None:
    refused(hkdf, b"", b"", b"", 0)
    refused(hkdf, b"", b"", b"", 8161)


def test_stream_keys_are_what_their_documentation_says() -> None:
    """Planted: lo and hi exchanged; a label changed; the window little-endian -> this fails."""

    def derived(salt: bytes, secret: bytes, info: bytes) -> bytes:
        return HKDF(hashes.SHA256(), 48, salt, info).derive(secret)

    low, high = sorted(PUBLIC[:2])
    assert pair_key(0, 1) == derived(
        ROUND.raw, agree(PRIVATE[0], PUBLIC[1]), b"shoal/v1/secagg/pad\x00" + low + high
    )
    assert self_stream_key(SEED, ROUND, PUBLIC[0]) == derived(
        ROUND.raw, SEED, b"shoal/v1/secagg/self-pad\x00" + PUBLIC[0]
    )
    assert single_stream_key(SEED, TASK, 258) == derived(
        TASK.raw, SEED, b"shoal/v1/secagg/single-pad\x00\x00\x00\x01\x02"
    )


def test_both_neighbours_derive_one_key() -> None:
    """Whoever computes it, and in whichever order the keys are handed in. Planted: own||other
    instead of lo||hi -> this fails.
    """
    for i, j in itertools.combinations(range(len(PRIVATE)), 2):
        shared = agree(PRIVATE[i], PUBLIC[j])
        assert shared == agree(PRIVATE[j], PUBLIC[i])
        assert (
            pair_key(i, j) == pair_key(j, i) == pair_stream_key(shared, ROUND, PUBLIC[j], PUBLIC[i])
        )


def test_every_pair_device_and_round_has_its_own_stream() -> None:
    """The round id is the salt: the same keys in another round give other pads. Planted: a constant
    salt -> this fails.
    """
    rounds = [Digest.of(bytes((i,))) for i in range(3)]
    keys = [pair_key(i, j, r) for i, j in itertools.combinations(range(4), 2) for r in rounds]
    keys += [self_stream_key(SEED, r, public) for public in PUBLIC[:4] for r in rounds]
    keys += [
        single_stream_key(SEED, TaskId(r.raw), window)
        for r in rounds
        for window in (0, 1, 2**32 - 1)
    ]
    assert len(set(keys)) == len(keys)
    assert len({key[:32] for key in keys}) == len({key[32:] for key in keys}) == len(keys)


def first_words(stream_key: bytes) -> bytes:
    words = np.zeros(4, dtype=WORD[32])
    apply(words, stream_key, 1)
    return words.tobytes()


def test_every_bit_of_every_secret_changes_the_pad() -> None:
    """No secret is folded into fewer bits on its way to a pad. Planted: seed[:16] used, or two
    halves XORed -> this fails.
    """
    makers: tuple[Callable[[bytes], bytes], ...] = (
        lambda secret: pair_stream_key(secret, ROUND, PUBLIC[0], PUBLIC[1]),
        lambda secret: self_stream_key(secret, ROUND, PUBLIC[0]),
        lambda secret: single_stream_key(secret, TASK, 0),
    )
    flips = [(int.from_bytes(SEED, "big") ^ 1 << bit).to_bytes(32, "big") for bit in range(256)]
    swapped = SEED[4:8] + SEED[:4] + SEED[8:]  # the same after an XOR fold of 32-bit words
    for make in makers:
        pads = [first_words(make(secret)) for secret in (SEED, swapped, *flips)]
        assert len(set(pads)) == len(pads) == 258


def test_every_bit_of_a_stream_key_changes_the_pad() -> None:
    """Key and counter block both matter, all 384 bits. Planted: a zero IV -> this fails."""
    flips = [
        (int.from_bytes(STREAM_KEY, "big") ^ 1 << bit).to_bytes(48, "big") for bit in range(384)
    ]
    assert len({first_words(key) for key in (STREAM_KEY, *flips)}) == 385


@pytest.mark.parametrize("length", [0, 31, 33])
def test_wrong_lengths_are_refused(length: int) -> None:
    wrong = bytes(length)
    assert "32 bytes" in refused(agree, PRIVATE[0], wrong)
    refused(sign_of, PUBLIC[0], wrong)
    refused(sign_of, wrong, PUBLIC[0])
    refused(pair_stream_key, wrong, ROUND, PUBLIC[0], PUBLIC[1])
    refused(pair_stream_key, SEED, ROUND, wrong, PUBLIC[1])
    refused(self_stream_key, wrong, ROUND, PUBLIC[0])
    refused(self_stream_key, SEED, ROUND, wrong)
    refused(single_stream_key, wrong, TASK, 0)


def test_windows_out_of_range_are_refused() -> None:
    for window in (-1, 2**32):
        refused(single_stream_key, SEED, TASK, window)


# --- keys that are no keys ------------------------------------------------------------------------

# u-coordinates of every point of order 1, 2, 4 and 8 on Curve25519 and its twist.
SMALL_ORDER = (
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    FIELD_PRIME - 1,
)


def test_the_list_of_small_orders_is_right() -> None:
    """A point has order dividing 8 iff three doublings lead to infinity (Z = 0).

    The cofactors are 8 on the curve and 4 on its twist, and both small subgroups are cyclic: the
    curve has u = 0 (order 2), 1 (order 4) and two of order 8; the twist has 0 and -1. That is all,
    besides infinity, which X25519 also spells 0.
    """

    def double(x: int, z: int) -> tuple[int, int]:
        """RFC 7748 section 5, the doubling half of a ladder step."""
        plus, minus = (x + z) ** 2, (x - z) ** 2
        e = plus - minus
        return plus * minus % FIELD_PRIME, e * (plus + 121665 * e) % FIELD_PRIME

    for u in SMALL_ORDER:
        x, z = u, 1
        for _ in range(3):
            x, z = double(x, z)
        assert z == 0
    x, z = 9, 1  # the base point is not one of them
    for _ in range(3):
        x, z = double(x, z)
    assert z != 0
    assert len(set(SMALL_ORDER)) == 5


@for_each("private", PRIVATE[:3])
@for_each("u", SMALL_ORDER)
def test_points_of_small_order_are_refused(private: X25519PrivateKey, u: int) -> None:
    """In canonical and in every other spelling. Planted: the library's ValueError caught and 32
    zero bytes returned -> this fails.
    """
    assert "small order" in refused(agree, private, u.to_bytes(32, "little"))
    for top in (0, 1 << 255):
        for turns in (0, 1):
            if (spelled := u + turns * FIELD_PRIME) < 1 << 255:
                refused(agree, private, (spelled | top).to_bytes(32, "little"))


@for_each(
    "u",
    [
        int.from_bytes(PUBLIC[0], "little") | 1 << 255,
        FIELD_PRIME,
        FIELD_PRIME + 9,
        2**255 - 1,
        2**256 - 1,
    ],
)
def test_a_second_spelling_of_a_key_is_refused(u: int) -> None:
    """Keys that differ as bytes differ as points, so that no key is on a list twice. Planted: the
    check removed -> this fails.
    """
    assert "canonical" in refused(agree, PRIVATE[1], u.to_bytes(32, "little"))


def test_a_private_key_put_together_from_shares_has_the_same_public_key() -> None:
    """X25519 clamps a private key when it is used, not when it is made: its 32 raw bytes are shared
    and come back as they were.
    """
    entropy = SeededEntropy("clamping")
    for raw in (*(entropy.bytes(32) for _ in range(5)), bytes(32), b"\xff" * 32):
        private = X25519PrivateKey.from_private_bytes(raw)
        assert private.private_bytes_raw() == raw
        shares = split(private.private_bytes_raw(), 2, (1, 2, 3), entropy)
        again = X25519PrivateKey.from_private_bytes(combine({1: shares[0], 3: shares[2]}))
        assert again.public_key().public_bytes_raw() == private.public_key().public_bytes_raw()
        assert agree(again, PUBLIC[0]) == agree(private, PUBLIC[0])


# --- signs ----------------------------------------------------------------------------------------


def test_one_adds_and_the_other_subtracts() -> None:
    """By the bytes of the keys, first byte first. Planted: compared as little-endian numbers ->
    this fails.
    """
    low, high = b"\x01" + b"\xff" * 31, b"\x02" + bytes(31)
    assert (sign_of(low, high), sign_of(high, low)) == (1, -1)
    for a, b in itertools.permutations(PUBLIC, 2):
        assert sign_of(a, b) == -sign_of(b, a) == (1 if a < b else -1)


def test_equal_keys_are_refused() -> None:
    refused(sign_of, PUBLIC[0], PUBLIC[0])
    refused(pair_stream_key, SEED, ROUND, PUBLIC[0], PUBLIC[0])


@pytest.mark.parametrize("bits", WORD)
def test_pads_of_a_round_cancel_in_any_order(bits: int) -> None:
    """Six devices, everybody with everybody, each in another order of its neighbours: the sum is
    that of the vectors.

    Planted: the sign by position in the list instead of by key; sign always +1 -> this fails.
    """
    entropy, count = SeededEntropy(f"cancel {bits}"), 257
    vectors = [np.frombuffer(entropy.bytes(count * bits // 8), dtype=WORD[bits]) for _ in PRIVATE]
    total = np.zeros(count, dtype=WORD[bits])
    for i in range(len(PRIVATE)):
        masked = vectors[i].copy()
        order = sorted(
            (j for j in range(len(PRIVATE)) if j != i),
            key=lambda j: hashlib.sha256(bytes((i, j))).digest(),
        )
        for j in order:
            apply(masked, pair_key(i, j), sign_of(PUBLIC[i], PUBLIC[j]))
        assert (masked != vectors[i]).mean() > 0.9
        total += masked
    assert np.array_equal(total, np.sum(vectors, axis=0, dtype=WORD[bits]))


# --- the stream -----------------------------------------------------------------------------------

LENGTHS = [
    0,
    1,
    2,
    15,
    16,
    17,
    1000,
    _CHUNK - 16,
    _CHUNK - 8,
    _CHUNK,
    _CHUNK + 8,
    2 * _CHUNK + 24,
]  # bytes, rounded down to words


@for_each("bits", WORD)
@for_each("sign", [1, -1])
@for_each(
    "stream_key",
    [STREAM_KEY, bytes(32) + b"\xff" * 16, pair_key(0, 1)],
    ids=["plain", "counter wraps", "pair"],
)
def test_the_pad_is_aes_256_ctr(bits: int, sign: int, stream_key: bytes) -> None:
    """Against the library's one-shot CTR and against the bare block cipher, word by word in
    little-endian, across chunks.

    Planted: sign ignored; words big-endian; the cipher begun anew in every chunk -> this fails.
    """
    width = bits // 8
    for length in LENGTHS:
        count = length // width
        before = np.frombuffer(SeededEntropy(length).bytes(count * width), dtype=WORD[bits])
        words = before.copy()
        apply(words, stream_key, sign)
        pad = (
            Cipher(algorithms.AES(stream_key[:32]), modes.CTR(stream_key[32:]))
            .encryptor()
            .update(bytes(count * width))
        )
        assert pad[:4096] == reference_pad(stream_key, min(4096, len(pad)))
        expected = (
            before + np.frombuffer(pad, WORD[bits])
            if sign == 1
            else before - np.frombuffer(pad, WORD[bits])
        )
        assert np.array_equal(words, expected)
        first = [
            int.from_bytes(pad[i * width : (i + 1) * width], "little")
            for i in range(min(count, 50))
        ]
        assert words[:50].tolist() == [
            (int(x) + sign * y) % 2**bits for x, y in zip(before, first, strict=False)
        ]
        apply(words, stream_key, -sign)
        assert np.array_equal(words, before)


@pytest.mark.parametrize("bits", WORD)
def test_a_slice_of_a_vector_is_changed_and_nothing_around_it(bits: int) -> None:
    whole = np.zeros(100, dtype=WORD[bits])
    apply(whole[10:90], STREAM_KEY, 1)
    assert not whole[:10].any()
    assert not whole[90:].any()
    assert whole[10:14].tobytes() == reference_pad(STREAM_KEY, 4 * bits // 8)


def test_the_moduli_are_powers_of_two_and_these_three() -> None:
    assert {bits: dtype.str for bits, dtype in WORD.items()} == {16: "<u2", 32: "<u4", 64: "<u8"}


BAD_WORDS: dict[str, NDArray[Any]] = {
    "big-endian": np.arange(16, dtype=">u4"),
    "bytes": np.arange(16, dtype="u1"),
    "signed": np.arange(16, dtype="<i4"),
    "floats": np.arange(16, dtype="<f4"),
    "booleans": np.zeros(16, dtype="?"),
    "objects": np.arange(16).astype(object),
    "two dimensions": np.arange(16, dtype="<u4").reshape(4, 4),
    "no dimension": np.array(1, dtype="<u4"),
    "every second word": np.arange(32, dtype="<u4")[::2],
    "backwards": np.arange(16, dtype="<u4")[::-1],
}


@for_each("name", BAD_WORDS)
def test_other_arrays_are_refused_unchanged(name: str) -> None:
    """Above all a big-endian view, whose sum would be garbage. Planted: the dtype check by width
    and kind alone -> this fails.
    """
    words = (
        BAD_WORDS[name].copy()
        if name not in ("every second word", "backwards")
        else BAD_WORDS[name]
    )
    before = words.copy()
    refused(apply, words, STREAM_KEY, 1)
    assert np.array_equal(words, before)


def test_a_read_only_vector_a_wrong_sign_and_a_wrong_key_are_refused() -> None:
    words = np.zeros(16, dtype=WORD[32])
    for sign in (0, 2, -2):
        refused(apply, words, STREAM_KEY, sign)
    for length in (0, 32, 47, 49):
        refused(apply, words, bytes(length), 1)
    assert not words.any()
    words.flags.writeable = False
    refused(apply, words, STREAM_KEY, 1)


def test_threads_do_not_share_scratch_memory() -> None:
    """Four threads pad their own vectors at once, many times. Planted: one scratch buffer for all
    threads -> this fails.
    """
    keys = [bytes((i,)) * STREAM_KEY_SIZE for i in range(4)]
    count, turns = 3 * _CHUNK // 4 + 5, size(10, 100)
    results: list[NDArray[Any]] = [np.zeros(count, dtype=WORD[32]) for _ in keys]
    begin = threading.Barrier(len(keys))

    def work(index: int) -> None:
        begin.wait()
        for _ in range(turns):
            apply(results[index], keys[index], 1)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(keys))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for key, result in zip(keys, results, strict=True):
        pad = (
            Cipher(algorithms.AES(key[:32]), modes.CTR(key[32:]))
            .encryptor()
            .update(bytes(4 * count))
        )
        assert np.array_equal(result, np.frombuffer(pad, "<u4") * np.uint32(turns))


def test_zeros_begin_at_a_cache_line() -> None:
    """What pads are added to; where it begins decides nothing but the time. Planted: numpy's own
    zeros -> fails.
    """
    for dtype in WORD.values():
        made = [zeros(count, dtype) for count in (1, 3, 1_000, 100_000)]
        assert [len(one) for one in made] == [1, 3, 1_000, 100_000]
        assert not any(one.any() for one in made)
        assert all(one.dtype == dtype and one.ctypes.data % 64 == 0 for one in made)
        apply(made[2], STREAM_KEY, 1)


def test_many_pads_at_once_are_each_of_them() -> None:
    """Over more than one chunk, and more pads than go at once. A bad one in the middle changes
    nothing. Planted: the last group left out, one sign for all, a stream begun anew in each chunk,
    or streams looked at one by one -> each fails.
    """
    count = 3 * _CHUNK // 2 // 4 + 1
    streams = [
        (hkdf(b"salt", bytes((number,)), b"pad", STREAM_KEY_SIZE), 1 if number % 3 else -1)
        for number in range(_AT_ONCE + 2)
    ]
    one_by_one, at_once = (zeros(count, WORD[32]) for _ in range(2))
    for stream_key, sign in streams:
        apply(one_by_one, stream_key, sign)
    apply_all(at_once, streams)
    assert np.array_equal(one_by_one, at_once)
    for bad in ((STREAM_KEY[:-1], 1), (STREAM_KEY, 0)):
        with pytest.raises(ShoalError) as caught:
            apply_all(at_once, [*streams, bad])
        assert caught.value.kind is Kind.INVALID
    assert np.array_equal(one_by_one, at_once)
    apply_all(at_once, [(stream_key, -sign) for stream_key, sign in reversed(streams)])
    assert not at_once.any()
    apply_all(at_once, [])
    assert not at_once.any()
