"""What is said of a task of several messages before anybody signs it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

from shoal.accounting.composition.compose import compose
from shoal.accounting.lint.task import lint
from shoal.accounting.meaning import bound_text
from shoal.accounting.several_messages.liars import liar_words
from shoal.accounting.several_messages.of_domain import design_several
from shoal.accounting.several_messages.of_mechanism import losses_of
from shoal.accounting.several_messages.of_windows import epsilon_together
from shoal.domain import Numeric
from shoal.limits import LIMITS
from shoal.mechanisms.registry import REGISTRY, serves
from shoal.mechanisms.several.registry import create
from shoal.task import Admission, MechanismSpec
from tests.cases import for_each
from tests.worlds.devices.several import noisy, several
from tests.worlds.tasks import shaped, without_empties
from tests.worlds.words import SMALL, words_world

TASK = several().task
ROOM = LIMITS.batch_rows // TASK.messages


@for_each(
    "changes, said",
    [
        ({}, None),
        ({"min_batch": 999}, "only 899 are sure to be honest"),
        ({"honest_fraction_ppm": 899_999}, "only 899 are sure to be honest"),
        ({"fewest_messages": 1}, "report_size, messages and fewest_messages"),
        ({"messages": TASK.messages + 1}, "report_size, messages and fewest_messages"),
        ({"memoized": True}, "can't be memoized"),
        ({"target_epsilon": 0.9}, "can't be met"),
        ({"max_batch": ROOM}, None),
        ({"max_batch": ROOM + 1}, f"room for {ROOM:,} reports"),
        ({"min_batch": ROOM + 1}, f"room for {ROOM:,} reports"),
    ],
)
def test_what_can_not_hold_is_an_error(changes: dict[str, Any], said: str | None) -> None:
    """Planted: a batch that no shuffler has room for -> its windows are refused to devices before
    they are full, and never released, fails.
    """
    found = lint(replace(TASK, **changes))
    assert [said in error for error in found.errors] == [True] if said else found.errors == ()


@for_each(
    "epsilon0, said",
    [(None, "see the value itself"), (5.0, "with epsilon0 5 in each window, 20 in all;")],
)
def test_what_both_see_together_is_warned_of(epsilon0: float | None, said: str) -> None:
    """And of how far a device that lies moves a count: further where messages weigh more. Planted:
    the same words for a value that is randomized first; the number of messages there; epsilon0 of
    one window alone, where a device answers in four -> fails.
    """
    task = several(epsilon0=epsilon0).task
    found = lint(task)
    assert found.errors == ()
    (warning,) = [each for each in found.warnings if "shuffler and analyzer together" in each]
    assert said in warning
    assert liar_words(create(task.mechanism, task.domain)) in warning
    bound = f"moves a count by {task.messages} at most, with all of its {task.messages} messages"
    assert (bound in warning) == (epsilon0 is None)


def test_a_shuffler_that_reads_releases_is_warned_of() -> None:
    """Of + and - without empty messages alone. Planted: of no mechanism, or of all; of tasks whose
    submissions are full, or whose empty messages are drawn -> fails.
    """
    of_words, among = words_world().task, several(min_batch=100_000).task
    tasks = (without_empties(TASK), TASK, among, of_words)
    told = [any("empty messages are added" in one for one in lint(each).warnings) for each in tasks]
    assert told == [True, False, False, False]
    assert ["full" in dict(each.mechanism.parameters) for each in tasks[:3]] == [False, True, False]


def test_trust_in_the_shuffler_is_warned_of() -> None:
    """And room for its noise is kept; any honest share will do. Planted: no such warning; a batch
    that leaves no room -> fails.
    """
    task = noisy().task
    found = lint(task)
    assert found.errors == ()
    assert any("the shuffler is trusted for the noise" in each for each in found.warnings)
    assert not any("split over" in each for each in found.warnings)
    assert not any("trusted" in each for each in lint(TASK).warnings)
    full = LIMITS.batch_rows - task.added_messages
    assert lint(replace(task, max_batch=full)).errors == ()
    (error,) = lint(replace(task, max_batch=full + 1)).errors
    assert f"room for {full:,} reports" in error


def test_noise_that_is_cut_off_for_fewer_windows_is_warned_of() -> None:
    """Thirty windows with the noise of one. The number told is right: so many have an epsilon
    together, and one more has none. Planted: the charge of one window compared with delta -> no
    warning, fails.
    """
    task = several(30, windows=1).task
    made = create(task.mechanism, task.domain)
    found = lint(task)
    assert not found.errors
    (said,) = [warning for warning in found.warnings if "windows together" in warning]
    most = int(said.split("cut off for ")[1].split()[0])
    losses = losses_of(made, task.n_certified, task.delta)
    assert losses is not None
    assert compose([(losses, most)], task.delta).epsilon_upper < 100
    assert math.isinf(compose([(losses, most + 1)], task.delta).epsilon_upper)
    assert not [
        warning for warning in lint(several(30).task).warnings if "windows together" in warning
    ]


@for_each("most, said", [(0, True), (2_000_000, True), (1_000_000, False)])
def test_a_sum_that_can_not_be_told_apart_is_an_error(most: int, said: bool) -> None:
    """Its modulus was chosen for a batch of at most a million. What one device can do is warned of,
    in words of its own. Planted: the rows of a batch compared in place of its reports -> fails.
    """
    domain = Numeric(0.0, 1.0, 1001)
    spec = design_several("split_mix", domain, 900, 1.0, 1e-8, windows=4, most=1_000_000)
    found = lint(shaped(spec, domain, TASK, max_batch=most))
    assert ["sums of more than 1,073,741 reports" in error for error in found.errors] == [True] * (
        said
    )
    assert any("it moves the result anywhere" in warning for warning in found.warnings)


@for_each(
    "changes, said, error",
    [
        ({}, None, False),
        ({"count": 2}, "3 levels asks one in a window", True),
        ({"grace_s": 1_801}, "every other window is lost", False),
    ],
)
def test_a_discovery_has_a_window_for_every_level(
    changes: dict[str, int], said: str | None, error: bool
) -> None:
    """Planted: as many windows as levels too few -> fails; half a window's grace too much ->
    fails.
    """
    task = words_world(windows=3).task
    plan = replace(task.windows, **{"grace_s": 1_800, **changes})
    found = lint(replace(task, windows=plan))
    told = found.errors if error else found.warnings
    assert said is None or any(said in one for one in told)
    assert len(found.errors) == error
    assert any("every other window" in one for one in found.warnings) == ("grace_s" in changes)


@for_each(
    "fresh, said",
    [
        (False, "of one level: a device answers in all 6 windows, which cost it epsilon"),
        (True, "answers in one of 6 windows alone, so all of them together cost it epsilon 1 "),
    ],
)
def test_what_a_whole_discovery_costs_is_said(fresh: bool, said: str) -> None:
    """Devices: the fewest of which a window has ``min_batch`` four standard deviations below its
    share. Planted: said of one window alone -> nothing; fresh devices composed -> the other line;
    two standard deviations -> too few devices.
    """
    task = words_world(replace(SMALL, fresh=fresh)).task
    spec = design_several("dummies", task.domain, task.n_certified, 1.0, task.delta, windows=6)
    made = create(spec, task.domain)
    task = shaped(spec, task.domain, task, target_epsilon=1.0)
    (line,) = [one for one in lint(task).warnings if said in one]
    assert ("devices have to take part" in line) == fresh
    together = epsilon_together(made, task.n_certified, task.delta, task.windows.count)
    assert fresh or bound_text(together) in line
    if fresh:
        (told,) = re.findall(r"some ([\d,]+) devices", line)
        share = int(told.replace(",", "")) / task.windows.count
        assert 0.0 <= share - 4.0 * math.sqrt(share) - task.min_batch < 1.0
    enrolled = replace(task, admission=Admission.ENROLLED, enrolment_key=bytes(32))
    kept = [
        any("while it keeps its memory" in one for one in lint(each).warnings)
        for each in (task, enrolled)
    ]
    assert kept == [fresh, False]


def test_a_discovery_has_no_other_mechanism_than_dummies() -> None:
    """Planted: the registries ask nothing of the domain -> krr lists the cells, fails."""
    task = words_world().task
    names = {name: value for name, value in task.mechanism.parameters if name != "dummies"}
    cancelling = MechanismSpec.of(
        "cancelling", **names, q=1 << 31, longest=40, floods=1 << 40, largest=4
    )
    krr = MechanismSpec.of("krr", k=task.domain.size, uniform=1 << 60)
    for spec in (cancelling, krr):
        (error,) = lint(replace(task, mechanism=spec)).errors
        assert "dummies" in error
    assert not any(serves(name, task.domain) for name in REGISTRY)
