"""What a task of records promises: what two cells do, and no lower bound where a coin decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product

from shoal.accounting.of_task import guarantee_of
from shoal.accounting.several_messages.of_domain import design_several
from shoal.domain import AnswerRecord, Categories, Discovery
from shoal.mechanisms import design
from shoal.mechanisms.several.registry import create, fewest_messages
from shoal.questions.record import Attribute, all_pairs
from tests.cases import for_each
from tests.worlds.tasks import ATTRIBUTES, task

YES_NO = Categories(("no", "yes"))
SMALL = AnswerRecord((Attribute("a", YES_NO), Attribute("b", YES_NO)), ((0,), (1,)))
KEPT = Fraction(1, 2)  # of k-ary randomized response over the six cells
Law = dict[tuple[int, ...], Fraction]


def report(cell: int) -> list[Fraction]:
    other = (1 - KEPT) / (SMALL.cells - 1)
    return [KEPT if each == cell else other for each in range(SMALL.cells)]


def of_record(answers: tuple[int, ...]) -> list[Fraction]:
    """One device's report, over its coin."""
    first, second = (report(SMALL.cell_of(at, answers)) for at in range(2))
    return [(one + two) / 2 for one, two in zip(first, second, strict=True)]


def views(devices: list[list[Fraction]]) -> Law:
    """Of what an analyzer sees: the multiset of the reports of these devices."""
    found: Counter[tuple[int, ...]] = Counter()
    law: Law = {}
    for reports in product(range(SMALL.cells), repeat=len(devices)):
        chance = Fraction(1)
        for device, cell in zip(devices, reports, strict=True):
            chance *= device[cell]
        key = tuple(sorted(reports))
        found[key] += 1
        law[key] = law.get(key, Fraction(0)) + chance
    return law


def delta(one: Law, two: Law, ratio: Fraction) -> Fraction:
    return sum((max(Fraction(0), one[view] - ratio * two[view]) for view in one), Fraction(0))


def test_two_records_show_no_more_than_two_cells() -> None:
    """Exactly, of two devices, one of them the victim: for every pair of records and every record
    of the other, at three epsilons, delta is at most that of the worst two cells beside the worst
    cell. It is below it, so that what two cells attain is no lower bound here.

    Planted in the model: a marginal drawn by the answer -> as much as two cells, fails; the ratio
    on the wrong side -> fails.
    """
    every = list(product(range(3), repeat=2))
    for ratio in (Fraction(1), Fraction(3, 2), Fraction(2)):
        cells = max(
            delta(
                views([report(first), report(other)]), views([report(second), report(other)]), ratio
            )
            for first, second, other in product(range(SMALL.cells), repeat=3)
        )
        records = max(
            delta(
                views([of_record(first), of_record(other)]),
                views([of_record(second), of_record(other)]),
                ratio,
            )
            for first, second, other in product(every, every, every[:3])
        )
        assert 0 < records < cells


def test_no_lower_bound_is_claimed_where_a_coin_decides() -> None:
    """Of one message and of several; of all marginals at once, and of a single one, it is. Planted:
    the two cells' lower bound handed on -> fails.
    """
    one = AnswerRecord(ATTRIBUTES, all_pairs(3))
    whole = replace(one, together=True)
    single = AnswerRecord(ATTRIBUTES, ((0, 1, 2),))
    for domain, name in (
        (one, "krr"),
        (one, "dummies"),
        (whole, "marginals"),
        (single, "krr"),
    ):
        made = task(domain=domain, delta=1e-6, honest_fraction_ppm=1_000_000)
        if name == "krr":
            made = replace(made, mechanism=design("krr", domain, 3.0))
        else:
            spec = design_several(name, domain, made.min_batch, 1.0, 1e-6, windows=1)
            several = create(spec, domain)
            made = replace(
                made,
                mechanism=spec,
                report_size=several.report_size,
                messages=several.messages,
                fewest_messages=fewest_messages(several),
            )
        guarantee = guarantee_of(made)
        assert guarantee.epsilon_upper > 0.0
        assert (guarantee.epsilon_lower == 0.0) is (domain is one), name


@for_each("epsilon0, claimed", [(None, True), (9.0, False)])
def test_a_discovery_claims_no_lower_end_for_levels_that_hide_more(
    epsilon0: float | None, claimed: bool
) -> None:
    """What is certified is the largest level. At a small one the others' drawn cells fall on few
    cells, and hide far more. Planted: the lower end of the largest level -> .8 is claimed where .4
    is true.
    """
    domain = Discovery(2, 8, 64)
    made = task(domain=domain, delta=1e-6, min_batch=20_000, honest_fraction_ppm=1_000_000)
    spec = design_several(
        "dummies", domain, 20_000, 1.0, 1e-6, windows=7, epsilon0_if_colluding=epsilon0
    )
    several = create(spec, domain)
    made = replace(
        made,
        mechanism=spec,
        report_size=several.report_size,
        messages=several.messages,
        fewest_messages=fewest_messages(several),
    )
    guarantee = guarantee_of(made)
    assert 0.9 < guarantee.epsilon_upper <= 1.0
    assert (guarantee.epsilon_lower > 0.0) is claimed
