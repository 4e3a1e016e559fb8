"""Helper mode: one pad per device, one set of rows per sum; the analyzer sees uniform words, the
shuffler seeds and nothing under them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.crypto.admission.enrolment import DeviceIdentity, issue
from shoal.crypto.hpke import generate
from shoal.crypto.secagg import pads
from shoal.crypto.secagg.exchange import single_info
from shoal.crypto.secagg.single import (
    SingleSum,
    Submission,
    check_single,
    submit,
    sum_pads,
    window_label,
)
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.secagg import Mode, PairwisePlan
from tests.flipped import last_bit_flipped
from tests.worlds.rounds.secagg_relay import MemoryLedger

NOW = 1_800_000_000.0
ROOT = SigningKey.generate()
KEY = generate(SuiteId.X25519_AES128)
PLAN = PairwisePlan(Mode.HELPER, 4, 100, 3, 400_000, 32)
TERMS = RoundTerms(
    TaskId(bytes(32)),
    3,
    PLAN,
    900_000,
    5,
    bytes([1]) * 32,
    bytes([2]) * 32,
    ROOT.public,
    KEY.config,
    Digest(bytes([3]) * 32),
)


def identity() -> DeviceIdentity:
    key = SigningKey.generate()
    return DeviceIdentity(key, issue(ROOT, key.public, int(NOW) - 10, int(NOW) + 10))


def vectors(n: int, terms: RoundTerms = TERMS) -> NDArray[np.int64]:
    return np.arange(n * terms.dimension, dtype=np.int64).reshape(n, -1) * 977 % 2_000 - 1_000


def made(n: int, terms: RoundTerms = TERMS) -> tuple[list[Submission], NDArray[np.int64]]:
    values = vectors(n, terms)
    return [
        submit(terms, identity(), value, MemoryLedger(), SeededEntropy(i))
        for i, value in enumerate(values)
    ], values


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_the_sum_is_exact(bits: int) -> None:
    """Planted: a pad subtracted twice, or the check words left out -> this fails."""
    terms = replace(TERMS, plan=replace(PLAN, word_bits=bits))
    submissions, values = made(7, terms)
    total = SingleSum(terms, KEY)
    total.add(one.sealed for one in submissions)
    assert (total.devices, total.unusable) == (7, [])
    found = total.finish(sum_pads(terms, [one.single.seed for one in submissions]), 7)
    assert found.tolist() == values.sum(axis=0).tolist()


def test_pads_of_another_set_are_refused() -> None:
    """A missing, a doubled, a foreign pad, or another count: typed, never a wrong sum. Planted: no
    verify_checks -> this fails.
    """
    submissions, _ = made(5)
    seeds = [one.single.seed for one in submissions]
    for wrong, count in (
        (seeds[:-1], 5),
        ([*seeds, seeds[0]], 5),
        ([*seeds[:-1], bytes(32)], 5),
        (seeds, 4),
        (seeds, 6),
    ):
        total = SingleSum(TERMS, KEY)
        total.add(one.sealed for one in submissions)
        with pytest.raises(ShoalError) as error:
            total.finish(sum_pads(TERMS, wrong), count)
        assert error.value.kind is Kind.ABORTED


def test_rows_that_do_not_open_are_left_out() -> None:
    """They are named by their place, so that the shuffler leaves their pads out too."""
    submissions, values = made(5)
    rows = [one.sealed for one in submissions]
    rows[1] = last_bit_flipped(rows[1])
    rows[3] = rows[3][:-7]
    total = SingleSum(TERMS, KEY)
    total.add(rows)
    assert (total.devices, total.unusable) == (3, [1, 3])
    found = total.finish(sum_pads(TERMS, [submissions[i].single.seed for i in (0, 2, 4)]), 3)
    assert found.tolist() == values[[0, 2, 4]].sum(axis=0).tolist()


def test_too_few_usable_rows_have_no_sum() -> None:
    """Nobody gets the sum of a few by bringing rubbish beside their rows. Planted: no such check ->
    a sum of 2.
    """
    submissions, _ = made(5)
    total = SingleSum(TERMS, KEY)
    total.add([submissions[0].sealed, submissions[1].sealed, b"x", b"y", b"z"])
    with pytest.raises(ShoalError) as error:
        total.finish(sum_pads(TERMS, [one.single.seed for one in submissions[:2]]), 2)
    assert error.value.kind is Kind.ABORTED
    assert "too few vectors" in error.value.message


def test_a_vector_of_another_window_does_not_open() -> None:
    """Planted: an info string without the window -> this fails."""
    submissions, _ = made(1)
    total = SingleSum(replace(TERMS, window=4), KEY)
    total.add([submissions[0].sealed])
    assert total.unusable == [0]


def test_what_the_analyzer_opens_is_covered() -> None:
    """The opened words are the vector plus the pad of the seed, and nothing but that seed's pad
    takes it away.
    """
    (one,), values = made(1)
    opened = KEY.open(one.sealed, single_info(TERMS.task_id, TERMS.window, KEY.config.key_id))
    words = np.frombuffer(opened, "<u4").copy()
    assert words[:5].tolist() != (values[0] % (1 << 32)).tolist()
    pads.apply(words, pads.single_stream_key(one.single.seed, TERMS.task_id, TERMS.window), -1)
    assert words[:5].view("<i4").tolist() == values[0].tolist()


def test_the_ledger_is_written_before_anything_can_be_sent() -> None:
    """A window that was answered gives nothing. Planted: no call of the ledger -> this fails."""
    ledger = MemoryLedger()
    first = submit(TERMS, identity(), vectors(1)[0], ledger)
    assert ledger.entries == [
        ("masked", TERMS.task_id, 3, window_label(TERMS.task_id, 3), Digest.of(first.sealed))
    ]
    with pytest.raises(ShoalError) as error:
        submit(TERMS, identity(), vectors(1)[0], ledger)
    assert error.value.kind is Kind.CONFLICT


def test_the_shuffler_checks_proof_length_and_seed() -> None:
    """Planted: no verification of the proof -> this fails."""
    device = identity()
    one = submit(TERMS, device, vectors(1)[0], MemoryLedger())
    assert check_single(TERMS, one.single, one.sealed, NOW) == device.key.public
    other = submit(TERMS, identity(), vectors(1)[0], MemoryLedger())
    bad_seed = type(one.single)(proof=one.single.proof, seed=bytes(31))
    for single, sealed, kind in (
        (one.single, one.sealed[:-1], Kind.INVALID),
        (one.single, other.sealed, Kind.UNAUTHENTICATED),
        (bad_seed, one.sealed, Kind.INVALID),
        (type(one.single)(seed=one.single.seed), one.sealed, Kind.UNAUTHENTICATED),
    ):
        with pytest.raises(ShoalError) as error:
            check_single(TERMS, single, sealed, NOW)
        assert error.value.kind is kind
    with pytest.raises(ShoalError) as error:
        check_single(TERMS, one.single, one.sealed, NOW + 100)  # the certificate has expired
    assert error.value.kind is Kind.UNAUTHENTICATED


@pytest.mark.parametrize("shape", [(4,), (6,), (5, 1)])
def test_a_vector_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    ledger = MemoryLedger()
    with pytest.raises(ShoalError) as error:
        submit(TERMS, identity(), np.zeros(shape, np.int64), ledger)
    assert (error.value.kind, ledger.entries) == (Kind.INVALID, [])


def test_tasks_with_rounds_are_refused() -> None:
    terms = replace(TERMS, plan=replace(PLAN, mode=Mode.DEFAULT))
    for call in (
        lambda: submit(terms, identity(), vectors(1)[0], MemoryLedger()),
        lambda: SingleSum(terms, KEY),
    ):
        with pytest.raises(ShoalError) as error:
            call()
        assert error.value.kind is Kind.INVALID


def test_nothing_prints_a_seed() -> None:
    (one,), _ = made(1)
    assert one.single.seed.hex() not in repr(one)
    assert "seed" not in repr(one)
