"""How values become cells: every value has one, and rounding between levels is unbiased."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import pytest

from shoal.domain import NO_ANSWER, Categories, Domain, Norm, Numeric, Value, Vector, Words, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from tests.cases import for_each
from tests.worlds.tapes import Tape

VISITS = Categories(("0", "1", "2", "3-4", "5-9", "10+"), (0, 1, 2, 3, 5, 10))
COLOURS = Categories(("red", "green", "1", "true"))
MISSING: tuple[Value, ...] = (
    None,
    math.nan,
    math.inf,
    -math.inf,
    "",
    "  ",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "five",
    "0x10",
    "1,5",
)


def word(value: int) -> Tape:
    return Tape(value.to_bytes(8, "little"))


@for_each(
    "value, cell",
    [
        *((yes, 1) for yes in (True, 1, 1.0, "yes", " YES ", "True", "1")),
        *((no, 0) for no in (False, 0, 0.0, "no", "0", 2, -1, 0.5, 10**400, *MISSING)),
    ],
)
def test_yes_no_maps_every_value(value: Value, cell: int) -> None:
    """Planted: truthiness (bool(value)) instead of == 1 -> 2, 0.5 and NaN become yes and this
    fails.
    """
    assert YesNo().encode(value) == cell


def test_yes_no_has_two_cells() -> None:
    assert (YesNo().size, YesNo().labels) == (2, ("no", "yes"))


@for_each(
    "value, label",
    [
        *(
            (0, "0"),
            (1, "1"),
            (2, "2"),
            (3, "3-4"),
            (4, "3-4"),
            (5, "5-9"),
            (9, "5-9"),
            (10, "10+"),
            (77, "10+"),
        ),
        *(
            (0.0, "0"),
            (4.999, "3-4"),
            (5.0, "5-9"),
            ("4", "3-4"),
            (" 12 ", "10+"),
            ("4.5", "3-4"),
            (True, "1"),
        ),
        *((-1, NO_ANSWER), (-0.001, NO_ANSWER), (-(10**400), NO_ANSWER)),
        *((10**400, "10+"), (1e308, "10+"), (str(10**400), "10+")),
        *((value, NO_ANSWER) for value in MISSING),
    ],
)
def test_bounds_put_every_number_into_its_label(value: Value, label: str) -> None:
    """Planted: bisect_left instead of bisect_right -> every bound falls one label short and this
    fails. Planted: huge integers through float() -> 10**400 becomes "no answer" and this fails.
    """
    assert VISITS.labels[VISITS.encode(value)] == label


def test_bounds_compare_integers_exactly() -> None:
    """2^53 + 1 is no float. Planted: float(value) before the comparison -> the first assertion
    fails.
    """
    domain = Categories(("low", "high"), (2**53, 2**53 + 1))
    assert domain.encode(2**53 + 1) == 1
    assert domain.encode(2**53) == 0
    assert domain.encode(2**53 - 1) == 2


@for_each(
    "value, cell",
    [
        *(
            ("red", 0),
            (" red\t", 0),
            ("green", 1),
            (1, 2),
            (1.0, 2),
            ("1", 2),
            (True, 3),
            ("true", 3),
        ),
        *(
            ("Red", 4),
            ("True", 4),
            ("\u00a0red", 4),
            ("1.0", 4),
            (NO_ANSWER, 4),
            *((v, 4) for v in MISSING),
        ),
    ],
)
def test_labels_match_as_text(value: Value, cell: int) -> None:
    assert COLOURS.encode(value) == cell


@for_each(
    "domain, answers, others",
    [
        (
            YesNo(),
            ["yes", " NO ", "1", 0, True, 1.0, "false"],
            ["maybe", ">50K", "", None, 2, 0.5, "ja", math.nan, "1.0"],
        ),
        (
            COLOURS,
            ["red", " green ", 1, "true", True],
            ["Red", "blue", "", None, NO_ANSWER, "1.0", 2],
        ),
        (
            VISITS,
            [0, "4", 77, " 12 ", 1e308, True, "+3"],
            ["many", -1, None, "", "1_0", "thirty", math.inf, "-0.5"],
        ),
        (
            Numeric(0, 20, 21),
            [0, -5, 400, "7", "1e2", False],
            ["thirty", None, "", "1,5", math.nan, "1e999", "0x10", "\u0663"],
        ),
        (Numeric(0, 20, 21, clip=False), [0, 20, "7"], [-5, 20.5, "400", None]),
        (
            Words(("flu", "cold")),
            ["flu", "anything", 7, NO_ANSWER],
            ["", "  ", None, math.nan, "\ud800"],
        ),
    ],
)
def test_what_is_an_answer(domain: Domain, answers: list[Value], others: list[Value]) -> None:
    """Planted: any finite number understood by ``YesNo`` -> 2 is "no", and this fails; texts that
    fit no label understood -> fails.
    """
    for value in answers:
        assert domain.understands(value), value
    for value in others:
        assert not domain.understands(value), value
    assert "\n" not in domain.accepted


def test_integers_longer_than_python_writes_are_no_answer() -> None:
    """Planted: str(value) for every integer -> ValueError: a device that stays away because of its
    value.
    """
    for value in (10**5_000, -(10**5_000), 10**400):
        assert COLOURS.encode(value) == COLOURS.size - 1
    name = "9" * LIMITS.name_chars
    assert Categories((name, "other")).encode(int(name)) == 0


def test_a_label_that_reads_none_does_not_catch_missing_values() -> None:
    """Planted: dropping "value is not None" -> a missing value counts as the label "None" and this
    fails.
    """
    assert Categories(("None", "some")).encode(None) == 2


@for_each(
    "names, bounds, said",
    [
        (("one",), (), "2 to"),
        (tuple(str(i) for i in range(65_536)), (), "2 to"),
        (("a", "a"), (), "distinct"),
        (("a", ""), (), "distinct"),
        (("a", "b" * 65), (), "distinct"),
        (("a", NO_ANSWER), (), "by itself"),
        (("a", " b"), (), "no blanks around"),
        (("a", "b\n"), (), "no blanks around"),
        (("a", "b"), (0,), "increasing"),
        (("a", "b"), (1, 1), "increasing"),
        (("a", "b"), (2, 1), "increasing"),
        (("a", "b"), (0, 2**63), "64 bits"),
        (("a", "b"), (-(2**63) - 1, 0), "64 bits"),
    ],
)
def test_bad_categories_are_refused(
    names: tuple[str, ...], bounds: tuple[int, ...], said: str
) -> None:
    with pytest.raises(ShoalError, match=said) as caught:
        Categories(names, bounds)
    assert caught.value.kind is Kind.INVALID


def test_numeric_levels_and_labels() -> None:
    domain = Numeric(0, 20, 21, unit="visits")
    assert (domain.size, domain.step) == (22, 1.0)
    assert domain.labels == (*(str(i) for i in range(21)), NO_ANSWER)
    assert [domain.encode(i) for i in range(21)] == list(range(21))


@for_each(
    "low, high, levels",
    [(1e6, 1e6 + 10, 11), (0, 1, 4), (1e15, 1e15 + 1e3, 1001), (-1, 1, 3), (0.1, 0.3, 65_535)],
)
def test_labels_of_levels_are_distinct(low: float, high: float, levels: int) -> None:
    """Planted: six digits always -> 1000000 and 1000010 are both "1e+06" and this fails."""
    assert len(set(Numeric(low, high, levels).labels)) == levels + 1


@for_each("clip", [True, False])
@for_each("value", MISSING)
def test_numeric_missing_is_no_answer(value: Value, clip: bool) -> None:
    """Planted: clipping before the test for infinity -> inf becomes the highest level and this
    fails.
    """
    assert Numeric(0, 20, 21, clip=clip).encode(value) == 21


@for_each(
    "value, cell",
    [
        (-5, 0),
        (21, 20),
        (10**400, 20),
        (-(10**400), 0),
        (1e308, 20),
        ("99", 20),
        (20, 20),
        (0, 0),
        (True, 1),
    ],
)
def test_clip_moves_outliers_to_the_ends(value: Value, cell: int) -> None:
    assert Numeric(0, 20, 21).encode(value) == cell


@for_each(
    "value, cell",
    [(-5, 21), (20.0001, 21), (10**400, 21), (-1e-9, 21), (20, 20), (0, 0), (7, 7)],
)
def test_without_clip_outliers_are_no_answer(value: Value, cell: int) -> None:
    assert Numeric(0, 20, 21, clip=False).encode(value) == cell


@for_each("value, below", [(0.25, 0), (7.5, 7), (19.75, 19), (3 + 2**-40, 3)])
def test_rounding_between_levels_uses_the_exact_threshold(value: float, below: int) -> None:
    """Up with probability exactly (value - below): the words t - 1, t and the ends decide it.

    Planted: round-half-up (threshold 2^63) -> 0.25 and 19.75 fail. Planted: <= instead of < in
    bernoulli -> word t fails.
    """
    domain = Numeric(0, 20, 21)
    threshold = Fraction(value) - below
    t = int(threshold * 2**64)
    assert t == threshold * 2**64
    assert [domain.encode(value, word(w)) for w in (0, t - 1)] == [below + 1] * 2
    assert [domain.encode(value, word(w)) for w in (t, 2**64 - 1)] == [below] * 2


def test_rounding_keeps_the_mean() -> None:
    """The mean of 4,000 roundings of 3.3 is within 5 standard errors of 3.3 (false-alarm rate 6e-7
    over seeds).
    """
    domain, entropy = Numeric(-10, 10, 21), SeededEntropy("rounding keeps the mean")
    mean = sum(domain.encode(3.3, entropy) - 10 for _ in range(4_000)) / 4_000
    assert abs(mean - 3.3) < 5 * math.sqrt(0.3 * 0.7 / 4_000)


@for_each("levels", [2, 3, 7, 11, 22, 1000])
def test_rounding_never_leaves_the_levels(levels: int) -> None:
    """Inexact steps (1/3, 1/10, ...): values at and beside each end and each level stay within the
    levels, at most one away.
    """
    domain = Numeric(-0.1, 0.9, levels)
    for i in range(levels):
        level = domain.low + i * domain.step
        for value in (level, math.nextafter(level, math.inf), math.nextafter(level, -math.inf)):
            for w in (0, 2**64 - 1):
                cell = domain.encode(value, word(w))
                assert 0 <= cell < levels
                assert abs(cell - i) <= 1


@for_each(
    "low, high, levels",
    [
        (1, 1, 3),
        (2, 1, 3),
        (math.nan, 1, 3),
        (0, math.inf, 3),
        (0, 1, 1),
        (0, 1, 65_536),
        (-sys.float_info.max, sys.float_info.max, 3),
        (0, 5e-324, 3),
        (1e16, 1e16 + 2, 1000),
    ],
)
def test_bad_numeric_domains_are_refused(low: float, high: float, levels: int) -> None:
    """Planted: without the check of the step, (0, 5e-324, 3) divides by zero and the widest range
    gives NaN places.
    """
    with pytest.raises(ShoalError) as caught:
        Numeric(low, high, levels)
    assert caught.value.kind is Kind.INVALID


def test_a_long_unit_is_refused() -> None:
    with pytest.raises(ShoalError, match="unit"):
        Numeric(0, 1, 2, unit="x" * 65)


@pytest.mark.parametrize("clip", [True, False])
def test_numbers_use_the_same_randomness_whatever_they_are(clip: bool) -> None:
    """On a level, between two, out of range or missing: one word, which the tape holds, and no
    more. The cells are as without it.

    Planted: no draw for a value that stands on a level, or for no answer -> the word is left over
    and this fails.
    """
    domain = Numeric(0, 20, 21, clip=clip)
    for value in (0, 7, 7.5, 20, -3, 99, *MISSING):
        tape = word(2**64 - 1)
        cell = domain.encode(value, tape)
        assert tape.done(), value
        known = (
            isinstance(value, int | float) and math.isfinite(value) and (clip or 0 <= value <= 20)
        )
        assert cell == (int(min(max(float(value or 0), 0), 20)) if known else 21)


# --- vectors --------------------------------------------------------------------------------------


def test_vectors_within_their_limits() -> None:
    """The last good values of each field, and what they are called. Planted: ``<`` for ``<=`` in
    any limit -> this fails.
    """
    assert Vector(1, Norm.L1, 1e-100, 1).labels == ("0",)
    assert Vector(LIMITS.vector_words, Norm.L2, 1e100, (1 << 48) - 1).size == LIMITS.vector_words
    assert Vector(2, Norm.COORDINATE, 1.0, 1, ("a", "x" * 64), "u" * 64).labels == ("a", "x" * 64)
    assert Vector(12, Norm.L2, 1.0, 1).labels[10:] == ("10", "11")


@for_each(
    "changes, named",
    [
        ({"dimension": 0}, "coordinates"),
        ({"dimension": -1}, "coordinates"),
        ({"dimension": LIMITS.vector_words + 1}, "coordinates"),
        ({"clip": 0.0}, "clip"),
        ({"clip": -1.0}, "clip"),
        ({"clip": math.nan}, "clip"),
        ({"clip": math.inf}, "clip"),
        ({"clip": 1.1e100}, "clip"),
        ({"clip": 5e-324}, "clip"),
        ({"grid": 0}, "grid"),
        ({"grid": 1 << 48}, "grid"),
        ({"names": ("a",)}, "names"),
        ({"names": ("a", "b", "c")}, "names"),
        ({"names": ("a", "a")}, "distinct"),
        ({"names": ("a", "")}, "names"),
        ({"names": ("a", "x" * 65)}, "names"),
        ({"unit": "x" * 65}, "unit"),
    ],
)
def test_bad_vectors_are_refused(changes: dict[str, Any], named: str) -> None:
    """A clip of 1e308 would make totals of infinity, of which no release could be written; a clip
    of 5e-324 has no steps.

    Planted: any one check of ``Vector`` removed -> its line fails.
    """
    fields: dict[str, Any] = {"dimension": 2, "norm": Norm.L2, "clip": 1.0, "grid": 100, **changes}
    with pytest.raises(ShoalError) as caught:
        Vector(**fields)
    assert caught.value.kind is Kind.INVALID
    assert named in caught.value.message


def test_a_vector_has_no_cells() -> None:
    """Whatever asks for one is told where vectors go, and no randomness is drawn."""
    for value in (None, 1, 0.5, "a"):
        with pytest.raises(ShoalError, match="secure aggregation") as caught:
            Vector(2, Norm.L2, 1.0, 100).encode(value, word(0))
        assert caught.value.kind is Kind.INVALID
