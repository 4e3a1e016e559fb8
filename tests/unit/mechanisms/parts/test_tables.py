"""Finite tables: draws by their words, alone and in arrays, rounding of rows, and the values that
make an estimate unbiased.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.parts.sampling import BLOCK
from shoal.mechanisms.parts.tables import (
    ProbabilityTable,
    TableResponse,
    draw,
    draw_one,
    row,
    unbiased,
)
from tests.cases import for_each
from tests.worlds.tapes import Tape

WORDS = 1 << 64
LOPSIDED = ProbabilityTable(
    ((1, 2, WORDS - 4, 1), (WORDS // 2, 1, 1, WORDS // 2 - 2), (WORDS - 3, 1, 1, 1))
)
EVEN = ProbabilityTable(tuple(row([1 + (x + y) % 7 for y in range(300)]) for x in range(3)))


@pytest.mark.parametrize("table", [LOPSIDED, EVEN], ids=["lopsided", "two bytes"])
def test_an_output_has_the_words_of_its_weight(table: ProbabilityTable) -> None:
    """At the first and the last word of every output, alone, in an array of one and in a large one.

    Planted: bisect_left for bisect_right; the guide's part one too early; the last output's
    sentinel looked at -> each fails.
    """
    for x, weights in enumerate(table.rows):
        start, words, expected = 0, [], []
        for y, weight in enumerate(weights):
            words += [start, start + weight - 1]
            expected += [y, y]
            start += weight
        chunks = [word.to_bytes(8, "little") for word in words]
        assert [draw_one(table, x, Tape(chunk)) for chunk in chunks] == expected
        many = -(-(BLOCK + 1) // len(words))
        tape = b"".join(chunks * many)
        values = np.full(many * len(words), x)
        cut = 8 * BLOCK
        assert (
            draw(table, values, Tape(tape[:cut], *([tape[cut:]] if tape[cut:] else []))).tolist()
            == expected * many
        )
        assert draw(table, values[:6], Tape(tape[:48])).tolist() == expected[:6]


def test_arrays_are_drawn_as_one_by_one() -> None:
    """Cells mixed, more than a block. Planted: starts of the rows by the thresholds' width -> this
    fails.
    """
    values = np.arange(BLOCK + 70) ** 2 % 3
    found = draw(EVEN, values, SeededEntropy(1))
    entropy = SeededEntropy(1)
    words = np.concatenate([entropy.words(BLOCK), entropy.words(70)])
    chunks = [int(word).to_bytes(8, "little") for word in words]
    assert found.tolist() == [
        draw_one(EVEN, int(x), Tape(chunk)) for x, chunk in zip(values, chunks, strict=True)
    ]


def test_reports_name_outputs() -> None:
    response = TableResponse(EVEN)
    values = np.array([0, 1, 2, 2])
    reports = response.randomize(values, SeededEntropy(2))
    assert (reports.shape, response.report_size, response.messages) == ((4, 1, 2), 2, 1)
    outputs = draw(EVEN, values, SeededEntropy(2))
    assert [int.from_bytes(report.tobytes(), "big") for report in reports] == outputs.tolist()
    tally = response.tally(reports[:, 0])
    assert response.counts(tally).tolist() == np.bincount(outputs, minlength=300).tolist()
    assert response.valid(np.array([[1, 43], [1, 44]], dtype=np.uint8)).tolist() == [True, False]
    assert response.privacy().rows == EVEN.rows


@for_each(
    "rows, message",
    [
        ((), "at least 2 cells"),
        (((WORDS,), (WORDS,)), "at least 2 cells and 2 outputs"),
        (((1, WORDS - 1), (1, 1, WORDS - 2)), "as many outputs"),
        (((0, WORDS), (1, WORDS - 1)), "1 and more"),
        (((1, WORDS - 1), (1, WORDS)), "add up to 2\\^64"),
        (((1, WORDS - 1),) * 32_769, "use fewer levels"),
    ],
)
def test_other_tables_are_refused(rows: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(ShoalError, match=message) as caught:
        ProbabilityTable(rows)
    assert caught.value.kind is Kind.INVALID


def test_other_values_are_refused() -> None:
    for bad in (-1, 3, True):
        with pytest.raises(ShoalError):
            draw_one(EVEN, bad, Tape())
    with pytest.raises(ShoalError):
        draw(EVEN, np.array([0, 3]), Tape())


def test_rows_are_rounded_by_largest_remainder() -> None:
    """Sum, nearness and order of ties, in fractions. Planted: remainders sorted upwards -> fails;
    no floor of 1 -> fails.
    """
    lists: list[list[int | Fraction]] = [
        [1, 1, 1],
        [3, 5, 7, 11],
        [Fraction(1, 3), Fraction(2, 7), 5],
        [1, *[10**6] * 50],
    ]
    for weights in lists:
        found = row(weights)
        total = sum(weights, Fraction(0))
        assert sum(found) == WORDS
        shares = [Fraction(weight) * WORDS / total for weight in weights]
        assert all(abs(got - share) < 1 for got, share in zip(found, shares, strict=True))
        up = [share - int(share) for got, share in zip(found, shares, strict=True) if got > share]
        down = [share - int(share) for got, share in zip(found, shares, strict=True) if got < share]
        assert not up or not down or min(up) >= max(down)
    assert row([1, 1, 1]) == (WORDS // 3 + 1, WORDS // 3, WORDS // 3)
    assert row([0, 1, Fraction(1, 1 << 80), 1]) == (1, WORDS // 2 - 2, 1, WORDS // 2)
    impossible: list[list[int]] = [[], [0, 0], [1, -1]]
    for bad in impossible:
        with pytest.raises(ShoalError) as caught:
            row(bad)
        assert caught.value.kind is Kind.INVALID


def test_values_of_outputs_are_unbiased_and_vary_least() -> None:
    """Randomized response of 3 cells, whose values are given by its inverse; and with one output
    split in two, where the least variance gives both parts one value. Planted: plain least norm ->
    the second fails.
    """
    rows = tuple(row([5 if x == y else 1 for y in range(3)]) for x in range(3))
    targets = np.array([-1.0, 0.0, 1.0])
    assert unbiased(rows, targets) == pytest.approx(targets * 7 / 4, abs=1e-12)
    split = tuple(
        row(
            [
                5 * (x == 0) + (x != 0),
                5 * (x == 1) + (x != 1),
                *([1, 4] if x == 2 else [Fraction(1, 5), Fraction(4, 5)]),
            ]
        )
        for x in range(3)
    )
    assert unbiased(split, targets) == pytest.approx([-1.75, 0.0, 1.75, 1.75], abs=1e-9)
    assert unbiased(rows, targets, np.array([1.0, 5.0, 1.0])) == pytest.approx(
        targets * 7 / 4, abs=1e-12
    )


def test_where_no_estimate_is_unbiased_that_is_said() -> None:
    two = (row([1, 2]), row([2, 3]), row([2, 1]))
    with pytest.raises(ShoalError, match="unbiased") as caught:
        unbiased(two, np.array([0.0, 0.0, 1.0]))
    assert caught.value.kind is Kind.INVALID
    for wrong in (np.array([0.0, 1.0]), np.array([0.0, np.nan, 1.0])):
        with pytest.raises(ShoalError):
            unbiased(two, wrong)
    with pytest.raises(ShoalError):
        unbiased(two, np.zeros(3), np.array([1.0, 0.0, 1.0]))


def test_shares_are_made_once_and_nobody_changes_them() -> None:
    """Planted: the flag left at writable -> whoever divides them in place changes the table's."""
    shares = EVEN.probabilities()
    assert shares is EVEN.probabilities()
    assert [Fraction(each) for each in shares[2].tolist()] == [
        Fraction(weight / WORDS) for weight in EVEN.rows[2]
    ]
    with pytest.raises(ValueError, match="read-only"):
        shares /= 2.0
