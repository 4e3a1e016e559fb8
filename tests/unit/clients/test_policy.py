"""The owner has the last word."""

from __future__ import annotations

import pytest

from shoal.clients.core import assign
from shoal.clients.policy import Policy, check
from shoal.crypto.trust import TrustedTask, trust_schedule, trust_task
from shoal.errors import Kind, ShoalError
from tests.clients_world import World, make_world


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
    """epsilon0 is compared rounded up, and equality is allowed: the task asks for 3 and its integers give at most 3."""
    world = make_world(epsilon0=3.0)
    trusted, epsilon0 = _trusted(world)
    assert 2.99 < epsilon0 <= 3.0
    check(_policy(world), trusted, epsilon0)


@pytest.mark.parametrize(
    ("changes", "mend"),
    [
        ({"authorities": frozenset({bytes(32)})}, "authorities"),
        ({"max_epsilon0": 2.99}, "max_epsilon0 = 2.99"),
        ({"min_batch_floor": 1_001}, "min_batch_floor = 1001"),
        ({"purposes": {"to plan clinics": "denied"}}, "denied"),
        ({"purposes": {}}, "never agreed"),
        ({"purposes": {"To plan clinics": "allowed"}}, "never agreed"),
    ],
)
def test_whatever_the_owner_forbids_is_refused_in_one_line_that_says_what_to_change(changes: dict[str, object], mend: str) -> None:
    """Planted: drop any of the five checks, or treat "not asked" as allowed -> its case fails."""
    world = make_world()
    trusted, epsilon0 = _trusted(world)
    with pytest.raises(ShoalError) as caught:
        check(_policy(world, **changes), trusted, epsilon0)
    assert caught.value.kind is Kind.REFUSED
    assert mend in caught.value.message
    assert "\n" not in caught.value.message


def test_an_infinite_or_undefined_epsilon0_never_passes() -> None:
    """Planted: `if epsilon0 > max_epsilon0` instead of `not <=` -> NaN passes and this fails."""
    world = make_world()
    trusted, _ = _trusted(world)
    for epsilon0 in (float("inf"), float("nan")):
        with pytest.raises(ShoalError):
            check(_policy(world), trusted, epsilon0)


@pytest.mark.parametrize(
    "changes",
    [
        {"authorities": frozenset()},
        {"authorities": frozenset({b"short"})},
        {"max_epsilon0": 0.0},
        {"max_epsilon0": float("inf")},
        {"max_epsilon0": float("nan")},
        {"min_batch_floor": 1},
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


@pytest.mark.parametrize(
    ("together", "apart", "accepts", "allowed"),
    [
        (2.0, 2.0, False, True),  # strict mode: the same holds if shuffler and analyzer work together
        (23.0, 2.0, False, False),  # the default: only while they don't
        (float("inf"), 2.0, False, False),
        (23.0, 2.0, True, True),
        (float("inf"), 2.0, True, True),
        (23.0, 3.5, True, False),
        (4.0, 3.5, True, False),
        (float("nan"), 2.0, False, False),
    ],
)
def test_sums_that_stand_on_two_parties_apart_want_the_owner_to_say_so(together: float, apart: float, accepts: bool, allowed: bool) -> None:
    """max_epsilon0 is about shuffler and analyzer together. Planted: the certificate of the sum compared in every mode -> fails."""
    world = make_world()
    trusted, _ = _trusted(world)
    policy = _policy(world, sums_if_apart=accepts)
    if allowed:
        check(policy, trusted, together, apart)
        return
    with pytest.raises(ShoalError) as caught:
        check(policy, trusted, together, apart)
    assert caught.value.kind is Kind.REFUSED
    assert ("sums_if_apart" in caught.value.message) == (not accepts)


@pytest.mark.parametrize(
    ("epsilon0", "shown"), [(1.78524731, "= 1.786,"), (23.1101, "= 23.12,"), (4.000000000000007, "= 4,"), (float("inf"), "= inf,")]
)
def test_an_epsilon_is_never_shown_smaller_than_it_is(epsilon0: float, shown: str) -> None:
    """The owner decides by it. Planted: rounded to the nearest decimal -> 1.785, and this fails."""
    world = make_world()
    trusted, _ = _trusted(world)
    for accepts in (None, True):
        with pytest.raises(ShoalError) as caught:
            check(_policy(world, max_epsilon0=0.5, sums_if_apart=bool(accepts)), trusted, epsilon0, epsilon0 if accepts else None)
        assert shown in caught.value.message
