"""What an owner reads about a task: every fact in it is the task's, the certificate's, the
configuration's or the book's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.accounting.composition.basic import compose_basic
from shoal.accounting.composition.memoized import ALONE, PROMISE
from shoal.accounting.meaning import bound_text, sentences
from shoal.accounting.of_task import guaranteed
from shoal.accounting.sums.sum_task import check_sum, design_sum
from shoal.accounting.sums.windows import epsilon_of_task
from shoal.clients.owner.explain import _cells, explain
from shoal.clients.owner.explain_cost import guaranteed_epsilon
from shoal.clients.owner.fleet_policy import FleetPolicy
from shoal.clients.owner.rules import Rule
from shoal.clients.sources.spec import KINDS, SourceSpec
from shoal.domain import Categories, Domain, Norm, Numeric, Places, YesNo
from shoal.mechanisms import create
from shoal.secagg import Mode
from shoal.task import Admission, Aggregator
from tests.cases import for_each
from tests.worlds.devices.clients import VISITS, World, make_world
from tests.worlds.devices.explained import assignment_of, config_of, small_world, text_of
from tests.worlds.place_trees import SMALL


def test_all_facts_of_a_plain_task() -> None:
    """Every number is recomputed here from its source. Planted: epsilon at min_batch instead of its
    honest share, ``round`` for rounding up, the owner's max for the task's epsilon0 -> fails.
    """
    world = make_world()
    task, one = world.task, assignment_of(world)
    lines = explain(one, config_of(world), spent=6_500_000_000, charged=2_999_999_999, answered=1)
    text = text_of(lines)
    certificate = guaranteed(
        create(task.mechanism, task.domain).privacy(), 1_000, task.honest_fraction, task.delta
    )
    assert guaranteed_epsilon(one) == certificate.epsilon_upper
    for fact in (
        *(
            'asks: "How many visits?"',
            world.authority.public.hex(),
            '"to plan clinics". You allowed this purpose.',
            one.task_id.short,
        ),
        *(
            "no source is configured",
            '"3-4"',
            '"no answer"',
            "randomized (krr)",
            "at least 1,000 reports",
            "counts on 900 of them",
        ),
        *(
            "4 windows of 7 days",
            "until 2027-02-12 08:00 UTC",
            "anybody may take part",
            "a share of 0.9 of the reports",
        ),
        *(f"  - {sentence}" for sentence in sentences(certificate)),
        *(
            "Not promised: that nobody sees that this device takes part",
            f"epsilon0 = {bound_text(one.epsilon0)}.",
        ),
        f"each window costs epsilon {bound_text(one.epsilon0)}, whether or not the window is ever "
        "published",
        *("1 window was answered, which cost epsilon 3.", "cost epsilon 6.5 of 10; 3.5 are left"),
    ):
        assert fact in text, fact
    assert lines[-1] == "As things are, this device would answer it."
    together = compose_basic([certificate] * 4)
    assert (
        f"all 4 windows together: epsilon <= {bound_text(together.epsilon_upper)} at delta = 4e-08"
        in text
    )
    assert "memoized" not in text


def test_a_bound_is_rounded_up_and_said_to_be() -> None:
    """Two coins, whose exact share stands beside the bound: 75.1 % is no contradiction, and the
    owner is told so, once.

    Planted: the bound rounded to the nearest digit, or the comparison as a rounded bound without a
    word about rounding -> this fails.
    """
    lines = explain(
        one := assignment_of(
            small_world(domain=YesNo(), mechanism="binary_rr", epsilon0=math.log(3))
        ),
        config_of(small_world()),
    )
    text = text_of(lines)
    assert (
        f"epsilon0 = {bound_text(one.epsilon0)} would remain: at most 75.1 % right guesses." in text
    )
    assert "epsilon0 = ln 3 and 75 % right guesses." in text
    assert text.count("rounded up in its last digit") == 1
    assert "75.0 % right guesses" not in text


@for_each(
    "policy, stored, agreed, verdict",
    [
        (
            {"purposes": {}},
            {},
            "You were not asked",
            "would send nothing: task visits: its purpose was never agreed to",
        ),
        (
            {"purposes": {}},
            {"to plan clinics": "allowed"},
            "You allowed this purpose",
            "would answer it",
        ),
        ({}, {"to plan clinics": "denied"}, "This purpose is denied", "would send nothing"),
        ({"max_epsilon0": 2.0}, {}, "You allowed this purpose", "--accept-epsilon0"),
    ],
)
def test_consent_and_verdict_are_those_of_the_policy(
    policy: dict[str, Any], stored: dict[str, str], agreed: str, verdict: str
) -> None:
    """Planted: stored consents not passed on -> the second fails."""
    world = small_world()
    config = config_of(world)
    config = replace(config, policy=replace(config.policy, **policy))
    lines = explain(assignment_of(world), config, consents=stored)
    assert agreed in text_of(lines)
    assert verdict in lines[-1]


def test_a_fleets_denial_is_told() -> None:
    world = small_world()
    config = config_of(world, fleet_policy=FleetPolicy(denied=frozenset({"to plan clinics"})))
    lines = explain(assignment_of(world), config, consents={"to plan clinics": "allowed"})
    assert "This purpose is denied" in text_of(lines)
    assert "denied by the fleet's file" in lines[-1]


READ_FROM = [
    (
        SourceSpec("json", file=Path("/d/x.json"), pointer="/a/0"),
        "the JSON file /d/x.json, at /a/0 is read, for at most 5 seconds",
    ),
    (
        SourceSpec("sqlite", file=Path("/d/x.db"), query="SELECT 1"),
        "the SQLite file /d/x.db, by the query 'SELECT 1' is read",
    ),
    (
        SourceSpec("command", argv=("/bin/n", "-x y")),
        "the output of the command `/bin/n '-x y'` is read",
    ),
    (
        SourceSpec("http", 2.0, url="http://127.0.0.1:1/n"),
        "http://127.0.0.1:1/n is read, for at most 2 seconds",
    ),
    (
        SourceSpec("json", file=Path("/d/row.json"), releases=Path("/d/releases")),
        "It is read once /d/releases has the signed releases of all windows before",
    ),
]


@for_each("spec, words", READ_FROM)
def test_where_the_value_comes_from(spec: SourceSpec, words: str) -> None:
    world = small_world()
    assert words in text_of(
        explain(
            assignment_of(world),
            config_of(world, sources={"visits": spec, "other": SourceSpec("command", argv=("x",))}),
        )
    )


def test_every_kind_of_source_has_words() -> None:
    """Planted: a kind more in ``KINDS`` -> this fails, and so does explaining it."""
    assert {spec.kind for spec, _ in READ_FROM} == set(KINDS)


def test_the_rules_that_apply_are_told_and_no_others() -> None:
    """Planted: all rules listed -> fails."""
    world = small_world()
    rules = (Rule(task="visits", round_to=2), Rule(task="other", round_to=3))
    fleet = FleetPolicy(rules=(Rule(purpose="to plan clinics", at_most=7),))
    lines = explain(assignment_of(world), config_of(world, rules=rules, fleet_policy=fleet))
    told = [line for line in lines if "a rule applies" in line]
    assert len(told) == 2
    assert "rounded down to a multiple of 2" in told[0]
    assert "(by the fleet): at most 7" in told[1]


@for_each(
    "domain, mechanism, words",
    [
        (YesNo(), "krr", 'missing or unreadable value counts as "no"'),
        (
            Numeric(0.0, 10.0, 11, clip=False, unit="km"),
            "krr",
            "one of 11 levels from 0 to 10 km, rounded at random between two (values beyond count",
        ),
        (Numeric(0.0, 10.0, 11), "krr", "values beyond are moved there"),
        (Categories(tuple(f"c{n}" for n in range(30))), "krr", '30 answers: "c0", "c1"'),
        (Categories(tuple(f"c{n}" for n in range(30))), "krr", '"c11" and 18 more'),
        (VISITS, "krr", "each of the 6 others"),
        (YesNo(), "krr", ", the other in"),
        (
            Places(48_000_000, 11_300_000, 48_300_000, 11_800_000, 4, 5),
            "krr",
            "one of the 20 cells of a map is told, not where in it: 7,419 m from west to east and "
            "8,340 m from south to north each, in latitude 48 to 48.3, longitude 11.3 to 11.8.",
        ),
    ],
)
def test_the_possible_answers(domain: Domain, mechanism: str, words: str) -> None:
    world = small_world(domain=domain, mechanism=mechanism)
    assert words in text_of(explain(assignment_of(world), config_of(world)))


@for_each(
    "words",
    [
        "(latitude 48.06 to 48.25, longitude 11.36 to 11.72): first of 4 rows and columns, then",
        "many devices are there, at most 4 parts. The smallest have 417 m from west to east and",
        '"elsewhere, or no answer", and the device takes part all the same.',
    ],
)
def test_a_map_that_is_looked_at_part_by_part(words: str) -> None:
    """Planted: a discovery of places explained as one of words -> fails; degrees of longitude as
    long as those of latitude -> fails.
    """
    assert words in _cells(SMALL)


def test_what_memoizing_promises_is_told_in_the_same_words_as_everywhere() -> None:
    """And windows are not added up. Planted: the composition of the windows shown too -> fails."""
    world = small_world()
    world.task = replace(world.task, memoized=True)
    world.sign()
    text = text_of(explain(assignment_of(world), config_of(world)))
    assert PROMISE in text
    assert ALONE in text
    assert "by adding up" not in text
    assert "each further distinct value costs epsilon 3" in text
    assert "whoever reads this device's memory can try all answers" in text


def test_one_window_is_not_added_up() -> None:
    world = small_world(count=1)
    text = text_of(explain(assignment_of(world), config_of(world)))
    assert "windows together" not in text
    assert "one window of 7 days" in text


def test_many_windows_fall_back_to_what_the_reports_promise_by_themselves() -> None:
    """n_certified = 1 hides nobody: central and local are the same. Planted: the central sum shown
    all the same -> fails.
    """
    world = make_world(min_batch=2)
    one = assignment_of(world)
    text = text_of(explain(one, config_of(world)))
    assert (
        "all 4 windows together: epsilon <= "
        f"{bound_text(math.nextafter(4 * one.epsilon0, math.inf))}." in text
    )


def sum_world(mode: Mode) -> World:
    """A task that is summed in rounds, with noise made for epsilon 3."""
    made = design_sum(
        dimension=3,
        norm=Norm.L2,
        clip=2.5,
        noise="skellam",
        mode=mode,
        cohort_max=100,
        dropout_ppm=100_000,
        honest_fraction_ppm=900_000,
        epsilon=3.0,
        delta=1e-8,
    )
    world = small_world()
    world.task = replace(
        world.task,
        domain=made.domain,
        mechanism=made.mechanism,
        pairwise=made.plan,
        aggregator=Aggregator.PAIRWISE,
        admission=Admission.ENROLLED,
        enrolment_key=world.authority.public,
        report_size=made.plan.vector_bytes(3),
        messages=1,
    )
    world.sign()
    return world


@for_each("mode", [Mode.DEFAULT, Mode.STRICT])
@for_each("trusts", [False, True])
def test_all_facts_of_a_sum(mode: Mode, trusts: bool) -> None:
    """What is charged is what its owner counts on. Planted: honest ones of all reports, who may be
    lost in a round -> fails; ``apart`` charged whoever trusts whom
    -> fails in the default mode.
    """
    world = sum_world(mode)
    one = assignment_of(world)
    assert one.epsilon_apart is not None
    assert guaranteed_epsilon(one) == one.epsilon_apart
    config = config_of(world)
    lines = explain(one, replace(config, policy=replace(config.policy, sums_if_apart=trusts)))
    text = text_of(lines)
    assert "a list of 3 numbers, made smaller where it is larger than 2.5 (norm l2)" in text
    assert "nobody sees your vector, only that sum" in text
    assert f"  - That is epsilon <= {bound_text(one.epsilon_apart)} at delta = 1e-08" in text
    assert "Known to the shuffler: which enrolled device takes part" in text
    assert "anybody may take part" not in text
    honest = check_sum(world.task).honest
    assert honest < world.task.n_certified
    assert f"counts on {honest} of those in each round being honest" in text
    assert ("could read each device's vector" in text) == (mode is Mode.DEFAULT)
    counted = min(one.epsilon_apart, one.epsilon0) if trusts else one.epsilon0
    fine = counted <= 4.0
    assert (
        "each window costs epsilon "
        f"{bound_text(counted)}{'' if fine else ', which is above your limit'}" in text
    )
    assert (lines[-1] == "As things are, this device would answer it.") == fine
    together = epsilon_of_task(world.task, 4, 1e-8)
    assert together < 4 * one.epsilon_apart
    assert (
        f"all 4 windows together: epsilon <= {bound_text(together)} at delta = 1e-08, composed"
        in text
    )
