"""The randomness seam: exact integer draws, fresh streams, reproducible streams for tests only."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from shoal.entropy import (
    SYSTEM,
    Entropy,
    SeededEntropy,
    SystemEntropy,
    bernoulli,
    streamed,
    uniform_below,
)
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.worlds.tapes import DryError, Tape


def word(value: int) -> bytes:
    return value.to_bytes(8, "little")


@for_each("source", [SystemEntropy(), SeededEntropy(1)])
@for_each("count", [0, 1, 16, 4096, 4097, 100_003])
def test_bytes_have_the_length_asked_for(source: Entropy, count: int) -> None:
    assert len(source.bytes(count)) == count


@for_each("source", [SystemEntropy(), SeededEntropy(1)])
@for_each("count", [0, 1, 511, 513, 10_000])
def test_words_are_unsigned_64_bit(source: Entropy, count: int) -> None:
    words = source.words(count)
    assert words.dtype == np.uint64
    assert words.shape == (count,)


@pytest.mark.parametrize("count", [32, 8192])
def test_no_two_draws_are_alike(count: int) -> None:
    """Small draws come from the system, large ones from a cipher. Planted: a key kept between draws
    with the same counter start -> the large draws repeat and this fails (a chance collision: below
    2^-200).
    """
    assert len({SYSTEM.bytes(count) for _ in range(50)}) == 50
    stream = SYSTEM.bytes(1 << 16)
    assert len({stream[i : i + 16] for i in range(0, len(stream), 16)}) == len(stream) // 16


def test_system_bits_are_balanced() -> None:
    """Each of 64 bit positions over 65,536 words is one half within 6 standard errors: false alarm
    64 * 2e-9 = 1.3e-7. Planted: words() through a float64 (53 bits) -> the low positions are all 0
    and this fails.
    """
    words = SYSTEM.words(65_536)
    for bit in range(64):
        ones = int(((words >> np.uint64(bit)) & np.uint64(1)).sum())
        assert abs(ones - 32_768) < 6 * 128


def test_blocks_of_system_words_are_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of AES-256-CTR with a fresh key and counter. Planted: a cipher begun anew for each
    block with the same key; the last block's length for all -> fails.
    """
    draws = iter([bytes(range(32)), bytes(16)])
    monkeypatch.setattr("os.urandom", lambda count: next(draws)[:count])
    source = streamed(SYSTEM)
    found = [source.words(count).copy() for count in (1_000, 1_000, 500)]
    assert [block.size for block in found] == [1_000, 1_000, 500]
    stream = (
        Cipher(algorithms.AES(bytes(range(32))), modes.CTR(bytes(16)))
        .encryptor()
        .update(bytes(8 * 2_500))
    )
    assert np.concatenate(found).astype("<u8").tobytes() == stream
    assert next(draws, None) is None


def test_words_and_bytes_are_of_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more words are wanted than before. Planted: a longer buffer with a new cipher ->
    fails.
    """
    monkeypatch.setattr("os.urandom", bytes)
    source = streamed(SYSTEM)
    found = source.words(2).tobytes() + source.bytes(5) + source.words(40).tobytes()
    stream = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor()
    assert found == stream.update(bytes(16 + 5 + 320))


def test_another_source_is_not_streamed() -> None:
    seeded = SeededEntropy("x")
    assert streamed(seeded) is seeded


def test_two_streams_are_not_alike() -> None:
    """60,000 words: a chance collision below 2^-33. Planted: a constant key -> fails."""
    sources = [streamed(SYSTEM) for _ in range(20)]
    words = [word for source in sources for word in source.words(3_000).tolist()]
    assert len(set(words)) == len(words)


def test_small_seeded_draws_are_the_beginnings_of_their_streams() -> None:
    """However many words come between them. Planted: a draw's second block that of the next draw's
    first; one draw skipped where blocks are made anew -> each fails.
    """
    source = SeededEntropy.keyed(bytes(range(32)))
    for draw in range(1, 1_200):
        count = (0, 1, 8, 16, 17, 32, 33, 8, 100)[draw % 9]
        start = (draw << 64).to_bytes(16, "big")
        cipher = Cipher(algorithms.AES(bytes(range(32))), modes.CTR(start)).encryptor()
        assert source.bytes(count) == cipher.update(bytes(count))


def test_a_seeded_stream_repeats_by_seed_and_by_order_of_draws() -> None:
    first, again, other = SeededEntropy("a"), SeededEntropy("a"), SeededEntropy("b")
    assert first.bytes(100) == again.bytes(100)
    assert np.array_equal(first.words(7), again.words(7))
    assert first.bytes(32) != other.bytes(32)


def test_seeded_draws_do_not_overlap() -> None:
    """Planted: the counter advanced by one block per draw, not by 2^64 -> the second draw repeats
    the first's tail.
    """
    entropy = SeededEntropy(3)
    stream = b"".join(entropy.bytes(160) for _ in range(100))
    assert len({stream[i : i + 16] for i in range(0, len(stream), 16)}) == 1000


@pytest.mark.parametrize("threshold", [1, 2**63, 2**64 - 1])
def test_bernoulli_decides_at_the_threshold(threshold: int) -> None:
    """Exactly ``threshold`` words of 2^64 say True. Planted: <= for < -> word == threshold
    fails.
    """
    assert bernoulli(threshold, Tape(word(0)))
    assert bernoulli(threshold, Tape(word(threshold - 1)))
    assert not bernoulli(threshold, Tape(word(threshold)))


def test_bernoulli_ends() -> None:
    assert not bernoulli(0, Tape(word(0)))
    assert bernoulli(2**64, Tape(word(2**64 - 1)))


@for_each("bound", [2, 3, 7, 10, 2**32 + 1, 2**63 + 1, 2**64 - 1, 2**64])
def test_uniform_below_has_no_modulo_bias(bound: int) -> None:
    """Words from the largest multiple of the bound upwards are refused, so every residue keeps as
    many words. Planted: plain word % bound -> the refused word returns instead of asking again and
    this fails.
    """
    limit = 2**64 // bound * bound
    assert uniform_below(bound, Tape(word(0))) == 0
    assert uniform_below(bound, Tape(word(limit - 1))) == bound - 1
    if limit < 2**64:
        assert uniform_below(bound, Tape(word(limit), word(2**64 - 1), word(1))) == 1
        with pytest.raises(DryError):
            uniform_below(bound, Tape(word(limit)))


def test_uniform_below_one_draws_nothing() -> None:
    assert uniform_below(1, Tape()) == 0


@pytest.mark.parametrize("bound", [0, -1, 2**64 + 1])
def test_uniform_below_refuses_other_bounds(bound: int) -> None:
    """Planted: without the check, 2^64 + 1 refuses every word and never returns."""
    with pytest.raises(ShoalError) as caught:
        uniform_below(bound, SeededEntropy(1))
    assert caught.value.kind is Kind.INVALID
