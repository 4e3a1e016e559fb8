"""The owner has the last word."""

from __future__ import annotations

import math

import pytest

from shoal.clients.core import assign
from shoal.clients.owner.policy import BY_NAME, NEVER, Policy, check
from shoal.crypto.campaign import OneTask
from shoal.crypto.trust import TrustedTask, trust_schedule, trust_task
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.worlds.devices.clients import World, make_world


def _trusted(world: World) -> tuple[TrustedTask, float]:
    trusted = trust_task(world.signed_task, world.authorities)
    return trusted, assign(trusted, trust_schedule(world.signed_schedule, trusted)).epsilon0


def _policy(world: World, **changes: object) -> Policy:
    values: dict[str, object] = {
        "authorities": world.authorities,
        "max_epsilon0": 3.0,
        "min_batch_floor": 1_000,
        "purposes": {"to plan clinics": "allowed"},
    }
    return Policy(**{**values, **changes})  # type: ignore[arg-type] # the point of some tests


def test_an_allowed_task_passes() -> None:
    """epsilon0 is compared rounded up, and equality is allowed: the task asks for 3 and its
    integers give at most 3.
    """
    world = make_world(epsilon0=3.0)
    trusted, epsilon0 = _trusted(world)
    assert 2.99 < epsilon0 <= 3.0
    check(_policy(world), OneTask(trusted), trusted, epsilon0)


@for_each(
    "changes, mend",
    [
        ({"authorities": frozenset({bytes(32)})}, "authorities"),
        ({"max_epsilon0": 2.99}, "max_epsilon0 = 2.99"),
        ({"min_batch_floor": 1_001}, "min_batch_floor = 1001"),
        ({"purposes": {"to plan clinics": "denied"}}, "denied"),
        ({"purposes": {}}, "never agreed"),
        ({"purposes": {"To plan clinics": "allowed"}}, "never agreed"),
    ],
)
def test_whatever_the_owner_forbids_is_refused_in_one_line_that_says_what_to_change(
    changes: dict[str, object], mend: str
) -> None:
    """Planted: drop any of the five checks, or treat "not asked" as allowed -> its case fails."""
    world = make_world()
    trusted, epsilon0 = _trusted(world)
    with pytest.raises(ShoalError) as caught:
        check(_policy(world, **changes), OneTask(trusted), trusted, epsilon0)
    assert caught.value.kind is Kind.REFUSED
    assert mend in caught.value.message
    assert "\n" not in caught.value.message


def test_an_infinite_or_undefined_epsilon0_never_passes() -> None:
    """Planted: `if epsilon0 > max_epsilon0` instead of `not <=` -> NaN passes and this fails."""
    world = make_world()
    trusted, _ = _trusted(world)
    for epsilon0 in (float("inf"), float("nan")):
        with pytest.raises(ShoalError):
            check(_policy(world), OneTask(trusted), trusted, epsilon0)


@for_each(
    "changes",
    [
        {"authorities": frozenset()},
        {"authorities": frozenset({b"short"})},
        {"max_epsilon0": 0.0},
        {"max_epsilon0": float("inf")},
        {"max_epsilon0": float("nan")},
        {"min_batch_floor": 1},
        {"lifetime_epsilon": 0.0},
        {"lifetime_epsilon": float("nan")},
        {"purposes": {"x": "perhaps"}},
    ],
)
def test_a_policy_validates_itself(changes: dict[str, object]) -> None:
    with pytest.raises(ShoalError) as caught:
        _policy(make_world(), **changes)
    assert caught.value.kind is Kind.CONFIG
    assert next(iter(changes)) in caught.value.message


def test_a_policy_cannot_be_changed_through_the_mapping_that_made_it() -> None:
    purposes = {"to plan clinics": "denied"}
    policy = _policy(make_world(), purposes=purposes)
    purposes["to plan clinics"] = "allowed"
    assert policy.consent("to plan clinics") == "denied"


@for_each(
    "together, apart, accepts, allowed",
    [
        (
            2.0,
            2.0,
            False,
            True,
        ),  # strict mode: the same holds if shuffler and analyzer work together
        (23.0, 2.0, False, False),  # the default: only while they don't
        (float("inf"), 2.0, False, False),
        (23.0, 2.0, True, True),
        (float("inf"), 2.0, True, True),
        (23.0, 3.5, True, False),
        (4.0, 3.5, True, False),
        (float("nan"), 2.0, False, False),
    ],
)
def test_sums_that_stand_on_two_parties_apart_want_the_owner_to_say_so(
    together: float, apart: float, accepts: bool, allowed: bool
) -> None:
    """max_epsilon0 is about shuffler and analyzer together. Planted: the certificate of the sum
    compared in every mode -> fails.
    """
    world = make_world()
    trusted, _ = _trusted(world)
    policy = _policy(world, sums_if_apart=accepts)
    if allowed:
        check(policy, OneTask(trusted), trusted, together, apart)
        return
    with pytest.raises(ShoalError) as caught:
        check(policy, OneTask(trusted), trusted, together, apart)
    assert caught.value.kind is Kind.REFUSED
    assert ("sums_if_apart" in caught.value.message) == (not accepts)


@for_each(
    "epsilon0, shown",
    [
        (1.78524731, "= 1.786,"),
        (23.1101, "= 23.12,"),
        (4.000000000000007, "= 4,"),
        (float("inf"), "inf"),
    ],
)
def test_an_epsilon_is_never_shown_smaller_than_it_is(epsilon0: float, shown: str) -> None:
    """The owner decides by it. Planted: rounded to the nearest decimal -> 1.785, and this fails."""
    world = make_world()
    trusted, _ = _trusted(world)
    for accepts in (None, True):
        with pytest.raises(ShoalError) as caught:
            check(
                _policy(world, max_epsilon0=0.5, sums_if_apart=bool(accepts)),
                OneTask(trusted),
                trusted,
                epsilon0,
                epsilon0 if accepts else None,
            )
        assert shown in caught.value.message


def refusal(
    policy: Policy,
    trusted: TrustedTask,
    epsilon0: float,
    apart: float | None = None,
    **stored: object,
) -> str:
    """Why ``check`` refuses; "" if it doesn't."""
    try:
        # as ``check`` takes them
        check(policy, OneTask(trusted), trusted, epsilon0, apart, **stored)  # type: ignore[arg-type]
    except ShoalError as error:
        if error.kind is not Kind.REFUSED:
            raise
        return error.message
    return ""


@for_each(
    "written, stored, expected",
    [
        (None, None, "not asked"),
        ("allowed", None, "allowed"),
        (None, "allowed", "allowed"),
        ("allowed", "allowed", "allowed"),
        ("denied", None, "denied"),
        (None, "denied", "denied"),
        ("denied", "allowed", "denied"),
        ("allowed", "denied", "denied"),
        (None, "perhaps", "denied"),
        ("allowed", "", "denied"),
    ],
)
def test_denied_wins_wherever_it_was_said(
    written: str | None, stored: str | None, expected: str
) -> None:
    """Planted: the store's answer in the place of the file's, or the file's in the place of the
    store's -> fails.
    """
    world = make_world()
    trusted, epsilon0 = _trusted(world)
    purpose = world.task.purpose
    policy = _policy(world, purposes={} if written is None else {purpose: written})
    consents = {"other": "allowed"} | ({} if stored is None else {purpose: stored})
    assert policy.consent(purpose, consents) == expected
    message = refusal(policy, trusted, epsilon0, consents=consents)
    assert bool(message) == (expected != "allowed")
    if expected == "not asked":
        assert "shoal agent consent visits allow" in message
    if expected == "denied":
        # The remedy is where it was denied.
        assert ("under purposes" in message) == (written == "denied")
        assert ("shoal agent consent visits allow" in message) == (written != "denied")


@for_each(
    "epsilon0, accepted, allowed",
    [
        (5.0, None, False),
        (5.0, 4.99, False),
        (5.0, 5.0, True),
        (5.0, math.inf, True),
        (math.inf, 1e300, False),
        (math.inf, math.inf, True),
        (math.nan, math.inf, False),
        (5.0, math.nan, False),
        (3.0, None, True),
        (3.0, 0.1, True),
    ],
)
def test_an_epsilon_above_the_cap_wants_an_acceptance_of_at_least_it(
    epsilon0: float, accepted: float | None, allowed: bool
) -> None:
    """Planted: any acceptance lifts the cap, whatever it was for -> the second fails; ``not >`` for
    ``<=`` -> NaN passes.
    """
    world = make_world()
    trusted, _ = _trusted(world)
    message = refusal(_policy(world, max_epsilon0=4.0), trusted, epsilon0, accepted=accepted)
    assert (message == "") == allowed
    if not allowed:
        assert "`shoal agent consent visits --accept-epsilon0`" in message
        assert "\n" not in message


@for_each(
    "together, apart, trusts, accepted, allowed",
    [
        (math.inf, 6.0, True, None, False),
        (math.inf, 6.0, True, 5.0, False),
        (math.inf, 6.0, True, 6.0, True),
        (
            math.inf,
            6.0,
            False,
            6.0,
            False,
        ),  # what is accepted then is what holds if they work together
        (math.inf, 6.0, False, math.inf, True),
        (9.0, 6.0, False, 9.0, True),
        (9.0, 6.0, False, 8.0, False),
    ],
)
def test_a_sum_above_the_cap_is_accepted_for_what_its_owner_counts_on(
    together: float, apart: float, trusts: bool, accepted: float | None, allowed: bool
) -> None:
    """Planted: ``apart`` compared with the acceptance of an owner who does not trust the two apart
    -> the fourth passes.
    """
    world = make_world()
    trusted, _ = _trusted(world)
    message = refusal(
        _policy(world, max_epsilon0=4.0, sums_if_apart=trusts),
        trusted,
        together,
        apart,
        accepted=accepted,
    )
    assert (message == "") == allowed
    assert ("--accept-epsilon0" in message) == (not allowed)


@for_each(
    "epsilon0, apart, trusts, allowed",
    [
        (5.0, None, False, True),
        (math.inf, None, False, False),
        (math.inf, 2.0, True, True),  # the owner counts on the two apart: that is finite
        (math.inf, 2.0, False, False),
    ],
)
def test_no_yes_to_an_infinite_epsilon0_counts_for_an_owner_who_wants_none(
    epsilon0: float, apart: float | None, trusts: bool, allowed: bool
) -> None:
    """Planted: the acceptance looked at first -> fails; sums that the owner trusts refused ->
    fails.
    """
    world = make_world()
    trusted, _ = _trusted(world)
    for word in (BY_NAME, NEVER):
        policy = _policy(world, max_epsilon0=4.0, sums_if_apart=trusts, infinite_epsilon0=word)
        message = refusal(policy, trusted, epsilon0, apart, accepted=math.inf)
        assert (message == "") == (allowed or word == BY_NAME)
        assert ("your configuration refuses all such tasks" in message) == (message != "")


def test_what_is_said_of_an_infinite_epsilon0_is_one_of_two_words() -> None:
    """Planted: any other word read as "by name" -> fails."""
    with pytest.raises(ShoalError, match='infinite_epsilon0: "by name" asks') as caught:
        Policy(frozenset({bytes(32)}), 4.0, 2, infinite_epsilon0="sometimes")
    assert caught.value.kind is Kind.CONFIG


def test_an_acceptance_lifts_nothing_but_the_cap() -> None:
    """Planted: ``accepted`` looked at first -> fails."""
    world = make_world()
    trusted, epsilon0 = _trusted(world)
    cases: list[dict[str, object]] = [
        {"authorities": frozenset({bytes(32)})},
        {"min_batch_floor": 1_001},
        {"purposes": {}},
    ]
    for changes in cases:
        assert refusal(_policy(world, **changes), trusted, epsilon0, accepted=math.inf)


@for_each(
    "lifetime, nano",
    [
        (math.inf, None),
        (0.3, 300_000_000),
        (1e-9, 1),
        (1.5e-9, 1),
        (12, 12_000_000_000),
        (0.1 + 0.2, 300_000_000),
    ],
)
def test_a_budget_is_counted_in_the_decimals_that_the_owner_wrote_rounded_down(
    lifetime: float, nano: int | None
) -> None:
    """Planted: round for floor -> 1.5e-9 becomes 2."""
    assert _policy(make_world(), lifetime_epsilon=lifetime).limit_nano == nano
