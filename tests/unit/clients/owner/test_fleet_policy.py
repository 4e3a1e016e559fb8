"""A fleet can only tighten: by every field, by random pairs, and in the words that an owner
reads.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.clients.core import assign
from shoal.clients.owner.fleet_policy import FleetPolicy, loosening, tighten
from shoal.clients.owner.policy import BY_NAME, NEVER, Ceiling, Policy, check, never_accepted
from shoal.clients.owner.rules import Rule
from shoal.crypto.campaign import OneTask
from shoal.crypto.trust import TrustedTask, trust_schedule, trust_task
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.devices.clients import make_world

A, B, C = (bytes([n]) * 32 for n in (1, 2, 3))
OWNER = Policy(
    frozenset({A, B}),
    4.0,
    1_000,
    {"clinics": "allowed", "ads": "denied"},
    sums_if_apart=True,
    lifetime_epsilon=50.0,
)
WORLD = make_world()
TRUSTED = trust_task(WORLD.signed_task, WORLD.authorities)


def allows(
    policy: Policy, trusted: TrustedTask, epsilon0: float, apart: float | None, **stored: object
) -> bool:
    try:
        # as ``check`` takes them
        check(policy, OneTask(trusted), trusted, epsilon0, apart, **stored)  # type: ignore[arg-type]
    except ShoalError as error:
        if error.kind is not Kind.REFUSED:
            raise
        return False
    return True


def test_every_field_takes_the_stricter_of_the_two() -> None:
    """Planted: min for max in any field, or the fleet's ``sums_if_apart`` in the place of the
    owner's -> fails.
    """
    fleet = FleetPolicy(
        frozenset({B, C}), 2.0, 20.0, 5_000, frozenset({"x"}), frozenset({"clinics"}), False
    )
    tight = tighten(OWNER, fleet)
    assert (
        tight.authorities,
        tight.max_epsilon0,
        tight.lifetime_epsilon,
        tight.min_batch_floor,
    ) == (frozenset({B}), 2.0, 20.0, 5_000)
    assert tight.sums_if_apart is False
    assert [tight.consent(purpose) for purpose in ("clinics", "ads", "x", "new")] == [
        "allowed",
        "denied",
        "denied",
        "denied",
    ]
    loose = FleetPolicy(
        None, 9.0, 90.0, 2, frozenset(), None, True, granted=frozenset({"ads", "new"})
    )
    same = tighten(OWNER, loose)
    assert replace(same, ceiling=OWNER.ceiling) == OWNER
    assert same.consent("new") == "not asked"
    assert tighten(OWNER, FleetPolicy()) == OWNER
    wary = replace(OWNER, sums_if_apart=False)
    assert [
        tighten(wary, FleetPolicy(sums_if_apart=said)).sums_if_apart for said in (None, True, False)
    ] == [False] * 3


_epsilons = st.sampled_from([0.5, 1.0, 2.0, 3.0, 4.0, 6.0, math.inf])
_purposes = st.sampled_from(["to plan clinics", "other"])
_deltas = st.sampled_from([1e-9, 1e-8, 1e-4])  # the task's is 1e-8
_answers = st.dictionaries(_purposes, st.sampled_from(["allowed", "denied"]))


@settings(max_examples=size(300, 20_000), deadline=None)
@given(
    st.builds(
        Policy,
        st.sampled_from([WORLD.authorities, WORLD.authorities | {A}, frozenset({A})]),
        _epsilons.filter(math.isfinite),
        st.sampled_from([2, 1_000, 1_001]),
        _answers,
        st.booleans(),
        _epsilons,
        max_delta=_deltas,
    ),
    st.builds(
        FleetPolicy,
        st.none() | st.sampled_from([WORLD.authorities, frozenset({A}), frozenset[bytes]()]),
        _epsilons,
        _epsilons,
        st.sampled_from([2, 1_000, 1_001]),
        st.frozensets(_purposes),
        st.none() | st.frozensets(_purposes),
        st.none() | st.booleans(),
        st.just(()),
        st.frozensets(_purposes),
        max_delta=st.none() | _deltas,
    ),
    _epsilons,
    st.none() | _epsilons,
    _answers,
    st.none() | _epsilons,
)
def test_what_the_two_allow_together_the_owner_allows_alone_and_the_fleet_does_not_forbid(
    owner: Policy,
    fleet: FleetPolicy,
    epsilon0: float,
    apart: float | None,
    consents: dict[str, str],
    accepted: float | None,
) -> None:
    """Whatever was answered or accepted. Planted: acceptance lifts the fleet's cap, or
    ``purposes_allowed`` is not looked at -> fails.
    """
    both = tighten(owner, fleet)
    assert both.lifetime_epsilon <= min(owner.lifetime_epsilon, fleet.lifetime_epsilon)
    if not allows(both, TRUSTED, epsilon0, apart, consents=consents, accepted=accepted):
        return
    assert allows(owner, TRUSTED, epsilon0, apart, consents=consents, accepted=accepted)
    # Said a second time, without the code: nothing that the fleet's file forbids.
    task = TRUSTED.task
    assert fleet.authorities is None or TRUSTED.authority in fleet.authorities
    assert task.purpose not in fleet.denied
    assert fleet.allowed is None or task.purpose in fleet.allowed
    assert task.min_batch >= fleet.min_batch_floor
    assert fleet.max_delta is None or task.delta <= fleet.max_delta
    held = (
        epsilon0
        if apart is None or fleet.sums_if_apart is False or not owner.sums_if_apart
        else min(apart, epsilon0)
    )
    assert held <= fleet.max_epsilon0
    if apart is not None and fleet.sums_if_apart is False and apart < epsilon0:
        assert epsilon0 <= min(owner.max_epsilon0, fleet.max_epsilon0)


@for_each(
    "fleet, words",
    [
        (FleetPolicy(frozenset({A})), "among those that the fleet's file allows"),
        (FleetPolicy(frozenset()), "among those that the fleet's file allows"),
        (
            FleetPolicy(max_epsilon0=2.5),
            "epsilon0 = 3, more than the fleet's max_epsilon0 = 2.5 allows",
        ),
        (FleetPolicy(denied=frozenset({"to plan clinics"})), "denied by the fleet's file"),
        (FleetPolicy(allowed=frozenset({"other"})), "denied by the fleet's file"),
        (FleetPolicy(allowed=frozenset()), "denied by the fleet's file"),
        (FleetPolicy(min_batch_floor=1_001), "min_batch_floor = 1001"),
        (FleetPolicy(max_delta=1e-9), "more than the fleet's max_delta = 1e-09 allows"),
    ],
)
def test_what_a_fleet_forbids_no_answer_and_no_acceptance_lifts(
    fleet: FleetPolicy, words: str
) -> None:
    """The message names no command that would not help. Planted: the order of acceptance and
    ceiling exchanged -> fails.
    """
    owner = Policy(WORLD.authorities, 4.0, 2, {"to plan clinics": "allowed"})
    epsilon0 = assign(TRUSTED, trust_schedule(WORLD.signed_schedule, TRUSTED)).epsilon0
    check(owner, OneTask(TRUSTED), TRUSTED, epsilon0)
    with pytest.raises(ShoalError) as caught:
        check(
            tighten(owner, fleet),
            OneTask(TRUSTED),
            TRUSTED,
            epsilon0,
            consents={"to plan clinics": "allowed"},
            accepted=math.inf,
        )
    assert caught.value.kind is Kind.REFUSED
    assert words in caught.value.message
    assert "shoal agent consent" not in caught.value.message
    assert "\n" not in caught.value.message


def test_a_fleet_that_forbids_sums_apart_forbids_them_one_by_one_too() -> None:
    """Where the certificate doesn't stand on two parties apart, an acceptance still counts.
    Planted: ``ceiling.sums_if_apart`` not looked at -> the first passes and this fails.
    """
    owner = Policy(WORLD.authorities, 4.0, 2, {"to plan clinics": "allowed"}, sums_if_apart=True)
    tight = tighten(owner, FleetPolicy(sums_if_apart=False))
    assert not allows(tight, TRUSTED, math.inf, 2.0, accepted=math.inf)
    assert not allows(tight, TRUSTED, 5.0, 2.0, accepted=math.inf)
    assert allows(tight, TRUSTED, 5.0, 5.0, accepted=5.0)
    assert allows(tight, TRUSTED, 3.0, 2.0)
    assert allows(owner, TRUSTED, math.inf, 2.0)


@for_each(
    "owners, fleets, infinite",
    [
        (BY_NAME, None, True),
        (BY_NAME, BY_NAME, True),
        (BY_NAME, NEVER, False),
        (NEVER, None, False),
        (NEVER, BY_NAME, False),
    ],
)
def test_an_infinite_epsilon0_wants_both_to_allow_it(
    owners: str, fleets: str | None, infinite: bool
) -> None:
    """And who forbids it is said. Planted: the fleet's word in the place of the owner's -> the last
    passes; the ceiling left as it was -> the words are the owner's, fails.
    """
    owner = Policy(
        WORLD.authorities, 4.0, 2, {"to plan clinics": "allowed"}, infinite_epsilon0=owners
    )
    tight = tighten(owner, FleetPolicy(infinite_epsilon0=fleets))
    assert allows(tight, TRUSTED, math.inf, None, accepted=math.inf) == infinite
    assert allows(tight, TRUSTED, 5.0, None, accepted=5.0)
    whose = "the fleet's file" if fleets == NEVER else "" if infinite else "your configuration"
    assert never_accepted(tight, math.inf).startswith(whose)
    assert loosening(owner, FleetPolicy(infinite_epsilon0=fleets)) == (
        ['infinite_epsilon0 = "by name": the owner refuses all such tasks, which stays']
        if (owners, fleets) == (NEVER, BY_NAME)
        else []
    )


def test_whatever_would_loosen_is_told_in_one_line_each() -> None:
    """Planted: a comparison turned round -> one line more or less."""
    fleet = FleetPolicy(
        frozenset({A, C}),
        8.0,
        80.0,
        500,
        frozenset({"x"}),
        frozenset({"clinics"}),
        True,
        granted=frozenset({"ads", "clinics", "new"}),
    )
    lines = loosening(replace(OWNER, sums_if_apart=False), fleet)
    assert [line.split(":")[0].split(" =")[0] for line in lines] == [
        *(
            "authorities",
            "max_epsilon0",
            "lifetime_epsilon",
            "min_batch_floor",
            "sums_if_apart",
            "purposes",
            "purposes",
        ),
    ]
    assert "1 of them is not among" in lines[0]
    assert all("\n" not in line for line in lines)
    assert loosening(OWNER, FleetPolicy()) == []
    tight = FleetPolicy(
        frozenset({A}),
        4.0,
        50.0,
        1_000,
        frozenset({"x"}),
        frozenset(),
        False,
        granted=frozenset({"clinics"}),
    )
    assert loosening(OWNER, tight) == []


def load(tmp_path: Path, text: str) -> FleetPolicy:
    (tmp_path / "fleet.toml").write_text(text)
    return FleetPolicy.load(tmp_path / "fleet.toml")


def test_every_key_is_read(tmp_path: Path) -> None:
    text = f"""
authorities = ["{A.hex()}"]
max_epsilon0 = 2
lifetime_epsilon = 30.5
min_batch_floor = 70
sums_if_apart = false
infinite_epsilon0 = "never"
max_delta = 1e-6
purposes_allowed = ["p", "q"]
[purposes]
"r" = "denied"
"s" = "allowed"
[[rules]]
task = "visits"
at_most = 9
"""
    assert load(tmp_path, text) == FleetPolicy(
        *(frozenset({A}), 2.0, 30.5, 70, frozenset({"r"}), frozenset({"p", "q"}), False),
        rules=(Rule(task="visits", at_most=9, fleet=True),),
        granted=frozenset({"s"}),
        infinite_epsilon0=NEVER,
        max_delta=1e-6,
    )
    assert load(tmp_path, "") == FleetPolicy()
    assert load(tmp_path, "purposes_allowed = []\nauthorities = []").allowed == frozenset()


@for_each(
    "text, words",
    [
        ("max_epsilon = 2", "max_epsilon: no such key"),
        ("max_epsilon0 = 0", "max_epsilon0: a number above 0"),
        ("max_epsilon0 = nan", "max_epsilon0: a number above 0"),
        ("lifetime_epsilon = -1", "lifetime_epsilon: a number above 0"),
        ('max_epsilon0 = "2"', "max_epsilon0: must be a number"),
        ("min_batch_floor = 1", "min_batch_floor: at least 2"),
        ("min_batch_floor = 2.5", "min_batch_floor: must be a whole number"),
        ('authorities = ["ab"]', "authorities: each is"),
        ("authorities = [1]", "authorities: each is"),
        ('authorities = "ab"', "authorities: must be a list"),
        ("sums_if_apart = 0", "sums_if_apart: must be true or false"),
        ("max_delta = 0", "max_delta: a number above 0 and below 1"),
        ("max_delta = 1", "max_delta: a number above 0 and below 1"),
        ("max_delta = nan", "max_delta: a number above 0 and below 1"),
        ('max_delta = "1e-6"', "max_delta: must be a number"),
        ('infinite_epsilon0 = "no"', 'infinite_epsilon0: "by name" asks'),
        ("infinite_epsilon0 = false", "infinite_epsilon0: must be a text"),
        ('purposes_allowed = "x"', "purposes_allowed: must be a list"),
        ("purposes_allowed = [1]", "purposes_allowed: must be a list of texts"),
        ('[purposes]\n"x" = "no"', 'purposes: "x"'),
        ("[[rules]]\nround_to = 1", "rules[1].task"),
        ("x = [", "Invalid"),
    ],
)
def test_every_mistake_names_the_file_and_the_key(tmp_path: Path, text: str, words: str) -> None:
    """A mistake must not be read as "no limit". Planted: ``end()`` left out -> the first passes."""
    with pytest.raises(ShoalError) as caught:
        load(tmp_path, text)
    assert caught.value.kind is Kind.CONFIG
    assert caught.value.message.startswith("fleet.toml: ")
    assert words in caught.value.message
    assert "\n" not in caught.value.message


def test_a_policy_without_authorities_is_a_fleets_doing_alone() -> None:
    """With an empty intersection a device trusts nobody; an owner who names none has made a
    mistake.
    """
    nobody = tighten(OWNER, FleetPolicy(frozenset({C})))
    assert nobody.authorities == frozenset()
    with pytest.raises(ShoalError):
        Policy(frozenset(), 4.0, 2)
    with pytest.raises(ShoalError):
        replace(nobody, ceiling=Ceiling())


def test_the_rules_of_a_fleet_are_marked() -> None:
    assert FleetPolicy(rules=(Rule(task="a", at_most=1),)).rules == (
        Rule(task="a", at_most=1, fleet=True),
    )
