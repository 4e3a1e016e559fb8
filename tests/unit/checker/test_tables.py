"""The checker's account of true messages among dummies: against everything that devices can send,
and against the claims of the accountant that it is there to check.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from shoal.accounting import certify, certify_messages
from shoal.accounting.accountant import upper_curve
from shoal.accounting.composition.compose import compose, release_law
from shoal.accounting.several_messages.noise_losses import noise_losses
from shoal.accounting.several_messages.of_domain import design_several
from shoal.accounting.several_messages.of_mechanism import protocol_of
from shoal.checker.chain import Chain
from shoal.checker.errors import UnreadableError
from shoal.checker.findings import Outcome
from shoal.checker.promise import decided, law_of_task, promise
from shoal.checker.questions.terms import refused
from shoal.checker.release_file import SignedParts
from shoal.checker.several.dummies import DummiesLaw, dummies_law
from shoal.checker.several.losses_sum import SMOOTHING
from shoal.checker.several.tables import (
    TablesLaw,
    curve_of_tables,
    decide_tables,
    decide_together,
    divergence,
    shown_by,
    tables_law,
)
from shoal.checker.together import _as_tables, _composed
from shoal.codec import encode_task
from shoal.domain import AnswerRecord, Categories, Domain, Numeric, Places
from shoal.mechanisms import create as create_single
from shoal.mechanisms.several.in_tables import InTables
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.parameters import law_of, spec_of
from shoal.mechanisms.several.registry import create
from shoal.protos import release_pb2, task_pb2
from shoal.questions.record import Attribute, all_pairs
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.several_messages.devices import divergence_of, pairs_of_views
from tests.unit.accounting.several_messages.test_tables import CASES
from tests.worlds.tasks import shaped

Parameters = dict[str, int]


def checked(name: str, law: NoiseLaw) -> TablesLaw:
    parameters = dict(spec_of(name, law).parameters)
    if name == "dummies":
        found = _as_tables(dummies_law(parameters))
    else:
        found = tables_law(name, parameters, law.slots)
    assert found is not None
    return found


@for_each("name", [name for name in CASES if name != "cancelling"][: size(4, 6)])
def test_both_sides_hold_what_devices_send(name: str) -> None:
    """Every multiset, device by device, with the cap and the integers; every dataset of the others,
    every pair of answers, both directions.

    Planted: A for A + 1 in one of the cells; a table less; the chance of an infinite loss left out;
    dummies that don't fit left out; one slot more for dummies -> each fails.
    """
    law, answers, honest, known = CASES[name]
    shown = shown_by(((checked("marginals", law), honest),))
    assert shown is not None
    pairs = list(pairs_of_views(law, honest, known, answers))
    for epsilon in (0.0, 0.7, 1.5):
        truth = max(divergence_of(p, q, math.exp(epsilon)) for p, q in pairs)
        found = divergence(shown, epsilon, SMOOTHING[1])
        assert found.low <= truth * (1 + 1e-12)
        assert truth <= found.high * (1 + 1e-12)
        charge = (1 + math.exp(epsilon)) * shown.unlike
        assert found.high - found.low <= 2 * charge + 12 * SMOOTHING[1] or found.high == 1.0


def record(attributes: int, answers: int) -> AnswerRecord:
    labels = tuple(map(str, range(answers)))
    asked = tuple(Attribute(f"a{at}", Categories(labels)) for at in range(attributes))
    return AnswerRecord(asked, all_pairs(attributes), together=True)


BINS = Categories(tuple(map(str, range(40))), tuple(range(40)))
# mechanism, question, honest devices, epsilon, delta
CLAIMS: dict[str, tuple[str, Domain, int, float, float]] = {
    "ranges": ("ranges", Numeric(0.0, 1.0, 255), 20_000, 1.0, 1e-6),
    "ranges of bins": ("ranges", BINS, 2_000, 3.0, 1e-7),
    "ranges at little": ("ranges", Numeric(0.0, 1.0, 1_023), 500_000, 0.25, 1e-8),
    "three pairs": ("marginals", record(3, 3), 5_000, 1.0, 1e-6),
    "many pairs": ("marginals", record(8, 3), 100_000, 2.0, 1e-8),
    "a map": ("blocks", Places(0, 0, 9_000, 9_000, 7, 9), 5_000, 1.0, 1e-6),
    "one table": ("dummies", Categories(tuple(map(str, range(9)))), 3_000, 1.0, 1e-6),
}


@for_each("name", list(CLAIMS)[: size(7, 7)])
def test_what_is_certified_is_confirmed_and_less_is_not(name: str) -> None:
    """From the signed task on. 1 % less is wrong: two answers show more. So is what more devices
    are said to buy, if it is more than they can.

    Planted: in the accountant, an epsilon that is 1 % too small; here, a level or a table less, a
    tenth more dummies, delta doubled -> each fails.
    """
    mechanism, domain, n, epsilon, delta = CLAIMS[name]
    spec = design_several(mechanism, domain, n, epsilon, delta, windows=1)
    law = law_of_task(asked(spec, domain, n, delta))
    assert isinstance(law, TablesLaw | DummiesLaw)
    bound = certify_messages(protocol_of(create(spec, domain)), n, delta)
    assert bound is not None
    claimed = bound.epsilon_upper
    assert claimed == pytest.approx(epsilon, rel=0.01)
    assert decided(law, n, claimed, delta).outcome is Outcome.HOLDS
    assert decided(law, n, claimed * 0.99, delta).outcome is Outcome.WRONG
    for more in (2 * n, 1_000 * n):  # the accountant counts no further dummies
        assert decided(law, more, claimed, delta).outcome is Outcome.HOLDS
    assert decided(law, 2 * n, claimed * 0.99, delta).outcome is Outcome.HOLDS
    assert decided(law, 2 * n, claimed * 0.4, delta).outcome is Outcome.WRONG
    assert decided(law, n // 2, claimed, delta).outcome is Outcome.WRONG


def asked(spec: MechanismSpec, domain: Domain, n: int, delta: float) -> task_pb2.Task:
    made = shaped(
        spec, domain, min_batch=n, honest_fraction_ppm=1_000_000, delta=delta, target_epsilon=10.0
    )
    return task_pb2.Task.FromString(encode_task(made))


def test_levels_and_tables_are_counted_from_the_integers() -> None:
    """Against the mechanisms' own. Planted: blocks rounded down; the leaves left out -> fails."""
    for domain, mechanism in (
        (Numeric(0.0, 1.0, 255), "ranges"),
        (BINS, "ranges"),
        (record(4, 2), "marginals"),
        (Places(0, 0, 9_000, 9_000, 7, 9), "blocks"),
    ):
        spec = design_several(mechanism, domain, 10_000, 1.0, 1e-6, windows=1)
        made = create(spec, domain)
        assert isinstance(made, InTables)
        own, parameters = made.law, dict(spec.parameters)
        if isinstance(domain, Places):
            parameters |= {"rows": domain.rows, "columns": domain.columns}
        found = tables_law(mechanism, parameters, own.slots)
        assert found is not None
        assert (found.tables, found.cells) == (own.truths, own.cells)
        assert found.mean == Fraction(own.rates()[0].weight, 1 << 64)


def test_tables_that_the_question_does_not_have_are_refused() -> None:
    """Planted: the mechanism's word taken for it -> fails."""
    domain = record(3, 3)
    spec = design_several("marginals", domain, 10_000, 1.0, 1e-6, windows=1)
    good = asked(spec, domain, 10_000, 1e-6)
    assert isinstance(law_of_task(good), TablesLaw)
    for changed in ("marginals", "attributes", "together"):
        bad = task_pb2.Task.FromString(good.SerializeToString())
        if changed == "marginals":
            bad.domain.record.marginals.add(attributes=[0])
        elif changed == "attributes":
            del bad.domain.record.attributes[2]
        else:
            bad.domain.record.together = False
        assert refused(bad)
        assert isinstance(law_of_task(bad), str)


def test_a_true_message_has_no_epsilon0() -> None:
    """And at delta 0 none is promised. Planted: a finite one taken -> fails."""
    law = checked("dummies", NoiseLaw(Truth.CELL, 4, 10, 40, dummies=Fraction(100)))
    assert decide_tables(law, 10, 50.0, 0.0).outcome is Outcome.WRONG
    domain, delta = record(3, 3), 1e-6
    spec = design_several("marginals", domain, 1_000, 1.0, delta, windows=1)
    release = released(spec, domain, 1_000, delta, 1.0)
    said = {one.what: one.outcome for one in promise(release)}
    assert said == dict.fromkeys(said, Outcome.HOLDS)
    release.release.privacy.epsilon0 = 20.0
    assert next(one.outcome for one in promise(release)) is Outcome.WRONG


def released(
    spec: MechanismSpec, domain: Domain, n: int, delta: float, epsilon: float, number: int = 1
) -> Chain:
    """With what is certified of it. Nothing is signed."""
    release = release_pb2.Release(version=1, n=n)
    release.privacy.epsilon0 = math.inf
    release.privacy.epsilon_upper = release.privacy.epsilon_at_received_n = epsilon
    release.privacy.delta, release.privacy.windows_composed = delta, number
    data = [
        each.SerializeToString(deterministic=True)
        for each in (release, asked(spec, domain, n, delta))
    ]
    return Chain(SignedParts(data[0], b"", data[1], b"", b"", b"", b""))


@for_each("windows", [2, 5])
def test_totals_over_windows_and_questions_are_composed(windows: int) -> None:
    """Windows of ranges, and one of marginals, about the same devices. What the accountant composes
    holds, and 1 % less is wrong.

    Planted: a release left out; each law once, however many windows it has -> fails.
    """
    n, delta = 20_000, 1e-6
    asked_of: list[tuple[str, Domain]] = [
        ("ranges", Numeric(0.0, 1.0, 63)),
        ("marginals", record(3, 3)),
    ]
    specs = [design_several(name, of, n, 0.5, delta, windows=windows) for name, of in asked_of]
    losses = [noise_losses(law_of(spec), n, delta) for spec in specs]
    found = [one for one in losses if one is not None]
    composed = compose([(found[0], windows), (found[1], 1)], delta)
    chains = [released(specs[0], asked_of[0][1], n, delta, 0.5) for _ in range(windows)]
    chains.append(released(specs[1], asked_of[1][1], n, delta, 0.5))
    epsilon = composed.epsilon_upper
    assert _composed(chains, epsilon, composed.delta).outcome is Outcome.HOLDS
    assert _composed(chains, epsilon * 0.99, composed.delta).outcome is Outcome.WRONG


def test_totals_of_tables_and_other_kinds_are_composed() -> None:
    """Two windows of ranges and three of one message. What the accountant composes is confirmed,
    and 1 % less is not.

    Planted: in the curve of tables, a table less; a release left out -> each fails.
    """
    n, delta, domain = 2_000, 1e-4, Numeric(0.0, 1.0, 15)
    ranges = design_several("ranges", domain, n, 2.0, delta, windows=2)
    losses = noise_losses(law_of(ranges), n, delta)
    assert losses is not None
    krr = MechanismSpec.of("krr", k=3, uniform=(1 << 64) // 64)
    privacy = create_single(krr, Categories(("a", "b"))).privacy()
    alone = certify(privacy, n, delta).epsilon_upper
    composed = compose([(losses, 2), (release_law(upper_curve, privacy, n, delta), 3)], 5 * delta)
    chains = [released(ranges, domain, n, delta, 2.0) for _ in range(2)]
    chains += [single(krr, Categories(("a", "b")), n, delta, alone) for _ in range(3)]
    total = composed.epsilon_upper
    assert total < 0.9 * (2 * 2.0 + 3 * alone)
    assert _composed(chains, total, composed.delta).outcome is Outcome.HOLDS
    assert _composed(chains, total * 0.99, composed.delta).outcome is Outcome.OPEN


def single(spec: MechanismSpec, domain: Domain, n: int, delta: float, epsilon: float) -> Chain:
    """Of one message, with what is certified of it. Nothing is signed."""
    release = release_pb2.Release(version=1, n=n)
    release.privacy.epsilon_upper, release.privacy.delta = epsilon, delta
    made = asked(spec, domain, n, delta)
    data = [each.SerializeToString(deterministic=True) for each in (release, made)]
    return Chain(SignedParts(data[0], b"", data[1], b"", b"", b"", b""))


@for_each("name", list(CLAIMS)[: size(3, 6)])
def test_a_curve_of_tables_is_above_the_divergence(name: str) -> None:
    """At every e. Planted: the logarithm a hundredth too large -> fails."""
    mechanism, domain, n, _, delta = CLAIMS[name]
    spec = design_several(mechanism, domain, n, 1.0, delta, windows=1)
    law = law_of_task(asked(spec, domain, n, delta))
    assert isinstance(law, TablesLaw)
    curve, shown = curve_of_tables(law, n), shown_by(((law, n),))
    assert curve is not None
    assert shown is not None
    for e in (Fraction(1), Fraction(2)):
        found = divergence(shown, math.log(e), SMOOTHING[1])
        assert found.low <= curve(e) <= found.high * 1.01 + 1e-9


BAD: dict[str, tuple[str, Parameters, int]] = {
    "a parameter less": ("marginals", {"k": 10, "shares": 5, "slots": 9, "dummies": 99}, 9),
    "one cell a table": (
        "marginals",
        {"k": 5, "tables": 3, "shares": 5, "slots": 9, "dummies": 99},
        9,
    ),
    "no dummies": (
        "marginals",
        {"k": 5, "tables": 2, "shares": 5, "slots": 9, "dummies": 0},
        9,
    ),
    "nobody": (
        "marginals",
        {"k": 5, "tables": 2, "shares": 0, "slots": 9, "dummies": 9},
        9,
    ),
    "other slots": (
        "marginals",
        {"k": 5, "tables": 2, "shares": 5, "slots": 9, "dummies": 9},
        8,
    ),
    "a level of one block": (
        "ranges",
        {"k": 16, "base": 4, "levels": 3, "shares": 5, "slots": 9, "dummies": 99},
        9,
    ),
    "no base": (
        "ranges",
        {"k": 16, "base": 1, "levels": 3, "shares": 5, "slots": 9, "dummies": 99},
        9,
    ),
}


@for_each("name", BAD)
def test_integers_that_no_mechanism_has_are_refused(name: str) -> None:
    with pytest.raises(UnreadableError):
        tables_law(*BAD[name])


def test_numbers_that_are_no_promise_are_refused() -> None:
    law = checked("dummies", NoiseLaw(Truth.CELL, 4, 10, 40, dummies=Fraction(100)))
    for epsilon, delta in ((-1.0, 1e-6), (601.0, 1e-6), (1.0, 1.0), (math.nan, 1e-6)):
        with pytest.raises(UnreadableError):
            decide_together([(law, 10)], epsilon, delta)


def test_so_many_dummies_as_are_not_looked_at_are_open() -> None:
    """Planted: the verdict of fewer -> fails."""
    law = checked("dummies", NoiseLaw(Truth.CELL, 4, 10, 40, dummies=Fraction(100)))
    many = replace(law, mean=law.mean * 10_000_000)
    assert decide_tables(many, 10, 1.0, 1e-6).outcome is Outcome.OPEN
