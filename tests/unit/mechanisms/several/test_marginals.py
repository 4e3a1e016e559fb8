"""Records answered in all marginals: the bundle of a device, estimates, and what is refused."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from shoal.accounting.several_messages.messages import certify_messages
from shoal.accounting.several_messages.noise_design import design_dummies
from shoal.accounting.several_messages.of_domain import design_several, serves
from shoal.accounting.several_messages.of_mechanism import protocol_of
from shoal.domain import AnswerRecord, Categories, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms import REGISTRY
from shoal.mechanisms.several.marginals import AllMarginals
from shoal.mechanisms.several.protocol import Noisy
from shoal.mechanisms.several.registry import create
from shoal.questions.record import Attribute, all_pairs
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.tasks import ATTRIBUTES

HONEST, EPSILON, DELTA = 900, 1.0, 1e-6
RECORD = AnswerRecord(ATTRIBUTES, all_pairs(3), together=True)
ONE = replace(RECORD, together=False)
SPEC = design_several("marginals", RECORD, HONEST, EPSILON, DELTA, windows=1)


def made() -> AllMarginals:
    found = create(SPEC, RECORD)
    assert isinstance(found, AllMarginals)
    return found


def test_it_is_designed_for_its_target_and_accounted_as_tables() -> None:
    """Planted: the account of one table for three -> epsilon far below, and dummies too few."""
    mechanism = made()
    assert mechanism.spec == SPEC
    assert (SPEC.get("tables"), SPEC.get("k")) == (3, 33)
    bound = certify_messages(protocol_of(mechanism), HONEST, DELTA)
    assert bound is not None
    assert 0.99 < bound.epsilon_upper <= EPSILON
    assert bound.method == "poisson-dummies-in-tables"
    single = design_dummies(33, HONEST, EPSILON, DELTA)
    assert 2.0 < float(mechanism.noise.dummies / single.dummies) < 3.5
    assert mechanism.epsilon0 == math.inf
    assert isinstance(mechanism, Noisy)


@for_each(
    "value", ['{"age": 41, "sex": "f", "health": "poor"}', '{"age": 3}', None, "no object at all"]
)
def test_a_bundle_has_one_true_message_in_each_marginal(value: str | None) -> None:
    """Compared with the bundle of another record in the same words: they differ in the true
    messages alone, and in as many places. Planted: marginals that agree left out -> the number of
    messages tells of the value.
    """
    mechanism = made()
    number, other = RECORD.encode(value), RECORD.encode('{"sex": "m", "health": "good"}')
    for seed in range(20):
        mine = mechanism.randomize_one(number, SeededEntropy(seed))
        others = mechanism.randomize_one(other, SeededEntropy(seed))
        assert len(mine) == len(others) >= mechanism.fewest == 3
        counts = Counter(int.from_bytes(each, "big") for each in mine)
        noise = counts - Counter(RECORD.cells_of(number))
        rest = Counter(int.from_bytes(each, "big") for each in others) - Counter(
            RECORD.cells_of(other)
        )
        assert noise == rest
        assert all(counts[cell] for cell in RECORD.cells_of(number))


def test_estimates_are_unbiased_with_the_stated_error_and_intervals() -> None:
    """40 (full: 400) batches of 1,000 devices, 33 cells: the mean square of the errors is the
    stated variance to 12 % (4 %), intervals hold 94 to 97 % (of 13,200 at full size). Errors of
    cells are independent Poisson numbers: a false alarm in fewer than 1 of 10^4 seeds.

    Planted: the mean of the dummies for ``shares`` devices and not for those that came -> fails.
    """
    mechanism, entropy = made(), SeededEntropy("marginals")
    values = [
        RECORD.encode(
            json.dumps({"age": device % 60, "sex": "fm"[device % 3 == 0], "health": "good"})
        )
        for device in range(1_000)
    ]
    truth = np.zeros(33)
    for value in values:
        truth[list(RECORD.cells_of(value))] += 1.0
    runs, squares, held = size(40, 400), 0.0, 0
    for _ in range(runs):
        reports = mechanism.randomize(np.array(values), entropy)
        found = mechanism.estimate(mechanism.tally(reports.rows), len(values))
        assert found.labels == RECORD.labels
        squares += float(np.mean((found.values - truth) ** 2))
        held += int(np.sum((found.ci_low <= truth) & (truth <= found.ci_high)))
    error = mechanism.expected_stderr(1_000)
    assert np.allclose(found.stderr, error)
    assert abs(squares / runs / error**2 - 1.0) < (0.12 if runs == 40 else 0.04)
    assert 0.94 < held / (33 * runs) < 0.97
    assert mechanism.stderr_of(1_000, 7.0) == error


def test_what_is_no_cell_is_refused() -> None:
    """Planted: cells of one marginal taken for all -> 33 is a record's number."""
    mechanism = made()
    rows = np.array([[0], [32], [33], [255]], dtype=np.uint8)
    assert mechanism.valid(rows).tolist() == [True, True, False, False]
    with pytest.raises(ShoalError):
        mechanism.randomize_one(RECORD.combinations, SeededEntropy(0))


@for_each(
    "spec, domain, mends",
    [
        (SPEC, ONE, "set together = true"),
        (SPEC, YesNo(), "several answers together"),
        (MechanismSpec.of("marginals", **dict(SPEC.parameters) | {"k": 34}), RECORD, "set k = 33"),
        (
            MechanismSpec.of("marginals", **dict(SPEC.parameters) | {"tables": 2}),
            RECORD,
            "tables = 3",
        ),
        (
            design_several("dummies", ONE, HONEST, EPSILON, DELTA, windows=1),
            RECORD,
            "set together = false",
        ),
    ],
)
def test_other_questions_are_refused(spec: MechanismSpec, domain: object, mends: str) -> None:
    with pytest.raises(ShoalError, match=mends) as refused:
        create(spec, domain)  # type: ignore[arg-type]
    assert refused.value.kind is Kind.INVALID


def test_mechanisms_of_one_message_answer_in_one_marginal_alone() -> None:
    """Planted: the refusal taken out of the families -> one lists 36 cells for 33 labels."""
    assert serves("dummies", ONE)
    assert not serves("dummies", RECORD)
    assert serves("marginals", RECORD)
    assert not serves("marginals", ONE)
    for name in ("krr", "unary"):
        if name in REGISTRY:
            REGISTRY[name].settings(ONE)
            with pytest.raises(ShoalError, match="set together = false"):
                REGISTRY[name].settings(RECORD)


def test_a_design_with_too_many_messages_says_what_would_help() -> None:
    """Planted: no look at the slots -> the task is refused later, without a word of marginals."""
    many = tuple(
        Attribute(f"a{at}", Categories(tuple(f"c{cell}" for cell in range(7)))) for at in range(12)
    )
    record = AnswerRecord(many, all_pairs(12), together=True)
    with pytest.raises(ShoalError, match="ask for fewer marginals") as refused:
        design_several("marginals", record, HONEST, EPSILON, DELTA, windows=1)
    assert refused.value.kind is Kind.CONFIG
    assert str(LIMITS.messages) in refused.value.message
    with pytest.raises(ShoalError, match="leave epsilon0_if_colluding out"):
        design_several("marginals", RECORD, HONEST, 1.0, 1e-6, windows=1, epsilon0_if_colluding=3.0)
