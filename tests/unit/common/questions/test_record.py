"""Records: every value has a cell in every marginal, and which marginal is asked says nothing."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from shoal.domain import AnswerRecord, Categories, Value
from shoal.entropy import SYSTEM, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.questions.json_object import MOST_CHARS
from shoal.questions.record import Attribute, all_pairs
from tests.cases import for_each
from tests.worlds.tapes import Tape

AGE = Attribute("age", Categories(("young", "old"), (0, 40)))
SEX = Attribute("sex", Categories(("f", "m")))
HEALTH = Attribute("health", Categories(("good", "fair", "poor")))
ATTRIBUTES = (AGE, SEX, HEALTH)
RECORD = AnswerRecord(ATTRIBUTES, all_pairs(3))
WHOLE = AnswerRecord(ATTRIBUTES, all_pairs(3), together=True)
MANY = Categories(tuple(map(str, range(99))))
NONE = (2, 2, 3)  # "no answer" everywhere


@for_each(
    "value, answers",
    [
        ('{"age": 41, "sex": "f", "health": "poor"}', (1, 0, 2)),
        ('{"health": "poor", "sex": "f", "age": "39.5"}', (0, 0, 2)),
        ('{"age": 41}', (1, 2, 3)),
        ('{"age": -1, "sex": "F", "health": null}', NONE),
        ('{"age": 41, "more": 3}', (1, 2, 3)),
        ('{"age": true, "sex": ["f"], "health": {"good": 1}}', (0, 2, 3)),
        ('{"age": 41, "age": 41}', NONE),  # twice
        ('{"age": NaN, "sex": "f"}', NONE),  # no JSON
        ('{"age": 1' + "0" * 5_000 + "}", NONE),
        ('{"sex": "f"' + " " * MOST_CHARS + "}", NONE),
        ("[" * 9_999, NONE),
        ('{"sex": "\\ud800"}', NONE),
        *((value, NONE) for value in (None, 3, 2.5, True, "", "f", "[1]", "3", "null")),
    ],
)
def test_every_value_has_an_answer_to_every_attribute(
    value: Value, answers: tuple[int, ...]
) -> None:
    """Planted: the last of two members taken; a recursion that is not caught -> fails."""
    assert RECORD.answers_of(value) == answers
    number = WHOLE.encode(value)
    assert WHOLE.cells_of(number) == tuple(RECORD.cell_of(at, answers) for at in range(3))


def test_numbers_of_records_are_one_to_one_and_cells_have_the_labels_of_their_answers() -> None:
    """Planted: the first axis fastest in labels, the last in cells -> fails."""
    seen = set()
    for answers in product(*(range(size) for size in RECORD.sizes)):
        number = WHOLE.number_of(answers)
        seen.add(number)
        for at, cell in enumerate(WHOLE.cells_of(number)):
            assert RECORD.starts[at] <= cell < RECORD.starts[at + 1]
            assert RECORD.labels[cell] == ", ".join(
                f"{ATTRIBUTES[place].name}={ATTRIBUTES[place].answers.labels[answers[place]]}"
                for place in RECORD.marginals[at]
            )
    assert seen == set(range(WHOLE.size))
    assert (RECORD.size, WHOLE.size) == (RECORD.cells, RECORD.combinations) == (33, 36)


def test_the_marginal_is_drawn_uniformly_and_never_looks_at_the_value() -> None:
    """By every word of two bits of its draw: the same word asks for the same marginal whatever the
    value is, and one word is drawn for each. Planted: the draw only where the value is an object ->
    fails.
    """
    two = AnswerRecord(ATTRIBUTES, ((0, 1), (0, 2), (1,), (2,)))
    for word in range(8):
        asked = set()
        for value in ('{"age": 41}', None, "no object", '{"sex": "m", "health": "fair"}'):
            tape = Tape((word << 3).to_bytes(8, "little"))
            cell = two.encode(value, tape)
            asked.add(next(at for at in range(4) if cell < two.starts[at + 1]))
        assert asked == {(word << 3) % 4}
    entropy = SeededEntropy("marginals")
    drawn = Counter(RECORD.encode(None, entropy) for _ in range(9_000))
    # each 3,000 +- 5 standard deviations of 45: false in fewer than 1 of 10^5 runs
    assert len(drawn) == 3
    assert all(abs(count - 3_000) < 225 for count in drawn.values())


def test_answering_in_one_marginal_costs_no_more_than_the_worst_pair_of_cells() -> None:
    """Exactly, for k-ary randomized response over the cells: for every pair of records and every
    report the ratio of probabilities, averaged over the coin, is at most that of two cells; it is
    less, since some marginals agree. Planted: a draw that goes by the value -> fails.
    """
    keep, cells = Fraction(1, 2), RECORD.cells
    other = (1 - keep) / (cells - 1)

    def law(answers: tuple[int, ...]) -> list[Fraction]:
        reports = [Fraction(0)] * cells
        for at in range(3):
            mine = RECORD.cell_of(at, answers)
            for report in range(cells):
                reports[report] += (keep if report == mine else other) / 3
        return reports

    laws = [law(answers) for answers in product(*(range(size) for size in RECORD.sizes))]
    worst = max(
        first[report] / second[report]
        for first in laws[:12]
        for second in laws
        for report in range(cells)
    )
    assert 1 < worst < keep / other


def test_what_a_person_types_is_an_answer_if_it_answers_something() -> None:
    """Planted: members that are none of the attributes passed over -> a slip of the pen counts as
    no answer, and nobody is told.
    """
    assert RECORD.understands('{"sex": "f"}')
    for value in ("{}", '{"sex": "x"}', '{"sex": "f", "aeg": 3}', "f", None, "[]"):
        assert not RECORD.understands(value), value
    assert "a JSON object" in RECORD.accepted
    assert '"good"' in RECORD.accepted


@for_each(
    "arguments, mends",
    [
        (((AGE,), ((0,),)), "2 to 12 attributes"),
        (((AGE, AGE), ((0, 1),)), "different names"),
        ((ATTRIBUTES, ()), "one or more"),
        ((ATTRIBUTES, ((1, 2), (0, 1))), "in order"),
        ((ATTRIBUTES, ((0, 1), (0, 1))), "each once"),
        ((ATTRIBUTES, ((1, 0),)), "in order"),
        ((ATTRIBUTES, ((0, 3),)), "attributes of its record"),
        ((ATTRIBUTES, ((),)), "attributes of its record"),
        ((ATTRIBUTES, ((0, 1),)), "asks for health"),
        (
            (tuple(Attribute(name, MANY) for name in ("a", "b", "c")), ((0, 1, 2),)),
            "leave marginals or answers out",
        ),
    ],
)
def test_records_that_are_none_are_refused(arguments: Any, mends: str) -> None:
    with pytest.raises(ShoalError, match=mends) as refused:
        AnswerRecord(*arguments)
    assert refused.value.kind is Kind.INVALID


@for_each("name", ["", " age", "a=b", "a,b", "x" * 300])
def test_names_of_attributes(name: str) -> None:
    with pytest.raises(ShoalError, match="without = and commas"):
        Attribute(name, SEX.answers)


def test_a_record_for_all_marginals_has_no_cell_for_a_label() -> None:
    assert RECORD.label_cells == tuple(range(33))
    with pytest.raises(ShoalError, match="no cell for a label"):
        _ = WHOLE.label_cells


def test_system_entropy_serves_too() -> None:
    value = json.dumps({"age": 3, "sex": "m", "health": "fair"})
    assert 0 <= RECORD.encode(value, SYSTEM) < RECORD.size
