"""Long vectors in segments: whole rounds, rows that come in pieces, rows that are put together from
several.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

import numpy as np
import pytest

from shoal.crypto.secagg import pads, words
from shoal.crypto.secagg.records import Commit, Status
from shoal.crypto.secagg.segments import ROW_ID_SIZE, OpenedRow, seal_row
from shoal.crypto.secagg.shuffler.effects import Deliver, Effect
from shoal.crypto.signing import SigningContext
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.protos import pairwise_pb2
from shoal.secagg import CHECK_WORDS, Mode
from tests.cases import for_each
from tests.worlds.rounds.secagg import Play, Step, World

WORLD = World(5, dimension=23, segment_words=7)
ROUND = Digest.of(b"a round")


class InPieces(Play):
    """The analyzer gets the delivery in pieces of ``size`` bytes; ``spoil`` changes the rows."""

    size = 61

    def ask(self, effect: Effect) -> list[Effect]:
        if not isinstance(effect, Deliver):
            return super().ask(effect)
        rows = self.spoil([bytes(self.uploads[session]) for session in effect.rows])
        data, at = b"".join(rows), 0
        while at < len(data):
            self.collector.feed(data[at : at + self.size], at)
            at += self.size
        reply = pairwise_pb2.VectorsReply(unusable=self.collector.unusable)
        return self.coordinator.delivered(reply, self.now)

    def spoil(self, rows: list[bytes]) -> list[bytes]:
        return rows


@for_each("bits", [16, 32, 64])
@for_each("mode", [Mode.DEFAULT, Mode.STRICT])
def test_rounds_of_segments_end_with_the_exact_sum(bits: int, mode: Mode) -> None:
    """With devices lost after their vectors and before. Planted: pads that begin anew with each
    segment; check words in the first segment -> fails.
    """
    for segment in (1, 7, 23, 24):
        world = replace(WORLD, word_bits=bits, mode=mode, segment_words=segment)
        assert Play(world).run().check()
        assert InPieces(world).run().check()
    lost = [Step.NONE, Step.UNMASK, Step.NONE, Step.MASK, Step.NONE]
    world = replace(WORLD, word_bits=bits, dropout_ppm=400_000, honest_ppm=1_000_000)
    assert InPieces(world, fates=lost).run().check()


@for_each("size", [1, 16, 17, 64, 1_000, 100_000])
def test_pieces_of_any_size_are_the_same_sum(size: int) -> None:
    play = InPieces(WORLD)
    play.size = size
    assert play.run().check()


def test_a_row_put_together_from_two_does_not_open() -> None:
    """A shuffler that exchanges a segment between two rows, or two of one row, spoils those rows
    and nothing else: the round ends for want of vectors, not with a wrong sum.

    Planted: segments bound to the round alone, without their row -> the sum is wrong and nobody
    sees it (the check words are in the last segment): fails.
    """

    class Spliced(InPieces):
        def spoil(self, rows: list[bytes]) -> list[bytes]:
            first, second = ROW_ID_SIZE, ROW_ID_SIZE + 7 * 4 + 48
            a, b = rows[0], rows[1]
            return [
                a[:first] + b[first:second] + a[second:],
                b[:first] + a[first:second] + b[second:],
                *rows[2:],
            ]

    play = Spliced(replace(WORLD, dropout_ppm=0)).run()
    assert play.collector.unusable == (0, 1)
    assert not play.check()


def test_a_delivery_breaks_off_and_begins_again() -> None:
    """In the middle of a row, and with rows that came before. Planted: half a row added -> fails
    (the sum does not check); a row that came before added again -> fails.
    """

    class Broken(InPieces):
        def ask(self, effect: Effect) -> list[Effect]:
            if isinstance(effect, Deliver):
                rows = [bytes(self.uploads[session]) for session in effect.rows]
                size, one = len(rows[0]), self.collector
                one.feed(rows[0] + rows[1][: size // 2], 0)
                assert one.rows == 1
                one.feed(rows[1][: size // 3], size)
                with pytest.raises(ShoalError) as caught:  # a gap in a row
                    one.feed(rows[1][:5], size + size // 2)
                assert caught.value.kind is Kind.INVALID
                one.feed(rows[0] + rows[1], 0)
                assert one.rows == 2
                with pytest.raises(ShoalError) as caught:  # another row under a number
                    one.feed(rows[2], 0)
                assert caught.value.kind is Kind.CONFLICT
                with pytest.raises(ShoalError) as caught:  # a row that nobody began
                    one.feed(rows[2], 4 * size)
                assert caught.value.kind is Kind.INVALID
                one.feed(rows[1], 2 * size)  # a repeat is no row of its own
                assert one.unusable == (2,)
                assert one.rows == 3
                return []
            return super().ask(effect)

    Broken(WORLD).run()


class Spoiled(InPieces):
    """The last segment of the first row does not open, so the device of that row is lost."""

    def spoil(self, rows: list[bytes]) -> list[bytes]:
        return [rows[0][:-1] + bytes([rows[0][-1] ^ 1]), *rows[1:]]


def test_masks_of_a_round_are_opened_for_one_set_of_survivors() -> None:
    """One row opens up to its last segment: its device is out of the sum whole. A commit with it,
    or without another, is answered by nobody after the first; nor does an analyzer that forgot the
    round take its rows up again. The sum of the segments that opened would else be that of two
    sets.

    Planted: a device that forgets what it answered (DeviceRound.unmask) -> no CONFLICT: fails; an
    analyzer that signs each commit (Collector.commit) -> fails.
    """
    play = Spoiled(replace(WORLD, dropout_ppm=300_000, honest_ppm=1_000_000)).run_to(Step.UNMASK)
    first, collector = play.coordinator._commit, play.collector
    statuses = bytearray(play.commit().statuses)
    (lost,) = [at for at, one in enumerate(statuses) if one == Status.DROPPED]
    (device,) = [one for one in range(5) if play.position(one) == lost]
    with pytest.raises(ShoalError):  # it is not in the sum, and says nothing
        play.devices[device].unmask(first, [], play.ledgers[device])
    alive = [one for one in range(5) if one != device]
    for number in alive:
        play.attempt(number, play.unmask)
    assert not play.errors
    for at in (lost, next(at for at in range(5) if at != lost)):
        other = bytearray(statuses)
        other[at] = Status.ALIVE if at == lost else Status.DROPPED
        record = Commit(play.commit().round_id, bytes(other)).encode()
        ours, theirs = (
            key.sign(SigningContext.ROUND_COMMIT, record)
            for key in (play.world.shuffler_key, play.world.analyzer_key)
        )
        asked = pairwise_pb2.CommitRoundRequest(commit=record, shuffler_signature=ours)
        with pytest.raises(ShoalError) as caught:
            collector.commit(asked)
        assert caught.value.kind is Kind.CONFLICT
        shown = pairwise_pb2.SignedRecord(
            record=record, shuffler_signature=ours, analyzer_signature=theirs
        )
        number = alive.pop()
        with pytest.raises(ShoalError) as caught:
            play.devices[number].unmask(shown, [], play.ledgers[number])
        assert caught.value.kind is Kind.CONFLICT
    restarted = Play(play.world).collector  # its nonce is another, and so is its offer
    rows = b"".join(bytes(row) for row in play.uploads.values())
    with pytest.raises(ShoalError) as caught:
        restarted.feed(rows, 0)
    assert caught.value.kind is Kind.TOO_EARLY


def test_more_rows_than_devices_are_refused() -> None:
    class Many(InPieces):
        def spoil(self, rows: list[bytes]) -> list[bytes]:
            return [*rows, secrets.token_bytes(len(rows[0]))]

    play = Many(WORLD)
    assert not play.run().check()


@for_each("bits", [16, 32, 64])
def test_a_sealed_row_opens_into_what_one_piece_would_be(bits: int) -> None:
    """Vector, check words and pads as of a vector in one piece, from int64 and from words alike."""
    plan = replace(WORLD.plan, word_bits=bits)
    key, vector = WORLD.window_key, np.arange(-11, 12, dtype=np.int64)
    constants = words.check_constants(ROUND.raw, bits)
    streams = [(bytes([at] * 48), 1 - 2 * (at % 2)) for at in range(5)]
    wanted = words.append_checks(vector, constants, bits)
    pads.apply_all(wanted, streams)
    for given in (vector, words.narrow(vector.copy(), bits)):
        sealed = seal_row(plan, key.config, ROUND, given, constants, streams, SYSTEM)
        opened = OpenedRow(plan, 23, key, ROUND)
        assert opened.feed(memoryview(sealed + b"more")) == len(sealed) == opened.size
        np.testing.assert_array_equal(opened.words, wanted)
        other = OpenedRow(plan, 23, key, Digest.of(b"another round"))
        other.feed(memoryview(sealed))
        assert other.complete
        assert other.words is None


@for_each("bits", [16, 32, 64])
@for_each("size", [1, 2, 3, 5, 100_003])
def test_a_vector_is_narrowed_in_its_own_memory(bits: int, size: int) -> None:
    """Every length, so that the last words end within 8 bytes. Planted: blocks from the end ->
    fails.
    """
    vector = np.arange(-(size // 2), size - size // 2, dtype=np.int64) % (1 << (bits - 2))
    narrowed = words.narrow(vector.copy(), bits)
    assert narrowed.dtype == pads.WORD[bits]
    assert narrowed.view(f"<i{bits // 8}").tolist() == vector.tolist()
    held = narrowed
    while isinstance(held.base, np.ndarray):
        held = held.base
    assert held.nbytes <= size * bits // 8 + 8


@for_each("bits", [16, 32, 64])
def test_segments_hold_every_word_once(bits: int) -> None:
    for dimension in range(1, 30):
        for segment in range(1, 32):
            plan = replace(WORLD.plan, word_bits=bits, segment_words=segment)
            sizes = plan.segments(dimension)
            assert sum(sizes) * bits // 8 == plan.vector_bytes(dimension)
            assert sizes[-1] > CHECK_WORDS[bits]
            assert all(size == segment for size in sizes[:-1])


def test_a_plan_says_how_long_segments_may_be() -> None:
    for bad in (-1, LIMITS.segment_words + 1):
        with pytest.raises(ShoalError) as caught:
            replace(WORLD.plan, segment_words=bad)
        assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError) as caught:
        replace(WORLD.plan, mode=Mode.HELPER)
    assert "segment_words" in caught.value.message
    for mode, most in ((Mode.DEFAULT, LIMITS.cohort), (Mode.HELPER, LIMITS.helper_cohort)):
        with pytest.raises(ShoalError, match=f"cohort_max is at most {most} ") as caught:
            replace(WORLD.plan, mode=mode, segment_words=0, cohort_max=most + 1)
        assert caught.value.kind is Kind.INVALID
