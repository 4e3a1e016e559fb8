"""What one device that lies does to a count of several messages, against what its owner and a
release are told of it.
"""

from __future__ import annotations

import math

import pytest

from shoal.accounting.several_messages.liars import liar_words, moved_by_liar, report_weight
from shoal.accounting.several_messages.of_domain import design_several
from shoal.arrays import np
from shoal.domain import AnswerRecord, Categories, Domain, Numeric, YesNo
from shoal.entropy import SYSTEM
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create
from shoal.questions.record import all_pairs
from tests.cases import for_each
from tests.worlds.tasks import ATTRIBUTES

N = 1_000
CELLS = Categories(("a", "b", "c"))


def made_of(name: str, domain: Domain, epsilon0: float | None = None) -> Several:
    spec = design_several(
        name, domain, N, 2.0, 1e-6, windows=1, most=N, epsilon0_if_colluding=epsilon0
    )
    return create(spec, domain)


@for_each(
    "name, domain, epsilon0, part",
    [
        ("cancelling", CELLS, None, 1.0),
        ("cancelling", CELLS, 4.0, 1.0),
        ("dummies", CELLS, None, 1.0),
        ("dummies", CELLS, 4.0, 1.0),
        ("signed_count", YesNo(), None, 0.5),
        ("signed_count", YesNo(), 4.0, 0.5),
        ("shuffler_noise", CELLS, None, 1.0),
    ],
)
def test_one_device_moves_a_count_by_no_more_than_is_told(
    name: str, domain: Domain, epsilon0: float | None, part: float
) -> None:
    """Among honest devices: M messages of every kind that there is, against none; and no estimate
    of any label moves further than the bound, which the most harmful kind reaches (a signed count
    by half).

    Planted: one message instead of ``messages`` -> fails; a drawn message at weight 1 -> fails.
    """
    made = made_of(name, domain, epsilon0)
    values = (np.arange(N) % domain.size).astype(np.int64)
    honest = made.randomize(values, SYSTEM).rows
    before = made.estimate(made.tally(honest), N).values
    kinds = [row for row in range(256) if made.valid(np.array([[row]], dtype=np.uint8))[0]]
    assert len(kinds) in (3, 4, 9)
    moved = []
    for kind in kinds:
        lies = np.full((made.messages, 1), kind, dtype=np.uint8)
        after = made.estimate(made.tally(np.concatenate([honest, lies])), N).values
        moved.append(float(np.abs(after - before).max()))
    assert max(moved) <= moved_by_liar(made) * (1.0 + 1e-12)
    assert max(moved) == pytest.approx(part * moved_by_liar(made))
    if epsilon0 is None:
        assert f"moves a count by {made.messages} at most" in liar_words(made)
    else:
        assert moved_by_liar(made) > made.messages


def test_nothing_bounds_a_liar_about_shares() -> None:
    """Planted: shares counted as messages of a cell -> a number that is none, fails."""
    made = made_of("split_mix", Numeric(0.0, 1.0, 11))
    assert math.isinf(moved_by_liar(made))
    assert "nothing bounds" in liar_words(made)


def test_a_report_weighs_as_many_devices_as_there_are_marginals_to_draw() -> None:
    """Of a record that is answered in one of three, three; in all of them one. Planted: the weight
    left out of the words -> fails.
    """
    one = AnswerRecord(ATTRIBUTES, all_pairs(3))
    every = AnswerRecord(ATTRIBUTES, all_pairs(3), together=True)
    made = create(design_several("dummies", one, 900, 1.0, 1e-6, windows=1), one)
    assert f"a count by {3 * made.messages} at most" in liar_words(made, one)
    assert liar_words(made, one).endswith("would move it by 3")
    assert f"a count by {made.messages} at most" in liar_words(made)
    assert [report_weight(domain) for domain in (one, every, YesNo(), None)] == [3, 1, 1, 1]
