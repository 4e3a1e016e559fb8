"""What a device's owner allows: the last word over any task, whoever signed it.

A fleet's file (shoal.clients.owner.fleet_policy) can only tighten it. What the owner himself can't
lift afterwards is the ``Ceiling``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from shoal.clients.memory.commitments import nano_down
from shoal.clients.memory.marks import COMMAND
from shoal.clients.owner.consent import ALLOWED, DENIED, NOTHING_STORED, consent_to, unreadable
from shoal.crypto.campaign import Campaign, check_step
from shoal.crypto.trust import TrustedTask
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.task import SHUFFLER_NOISE

if TYPE_CHECKING:
    from shoal.clients.core import Assignment

_ANSWERS = (ALLOWED, DENIED)
MOST_OWNER_DEVICES = 1000
"""As many as the accountant takes, which is not imported for one number."""
BY_NAME, NEVER = "by name", "never"
"""What ``infinite_epsilon0`` says: the owner is asked about each such task, or about none."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What a fleet forbids, whatever the owner answers. The default forbids nothing.

    ``authorities``: the only ones, or None. ``max_epsilon0``: no acceptance of the owner goes
    beyond it. ``denied``: purposes. ``allowed``: the only purposes that the owner may still allow,
    or None. ``sums_if_apart``: False forbids sums that protect a vector only while shuffler and
    analyzer do not work together, even those that the owner accepts one by one.
    ``infinite_epsilon0``: NEVER forbids to accept an infinite epsilon0, of any task. ``max_delta``:
    as the policy's, or None.
    """

    authorities: frozenset[bytes] | None = None
    max_epsilon0: float = math.inf
    denied: frozenset[str] = frozenset()
    allowed: frozenset[str] | None = None
    sums_if_apart: bool = True
    infinite_epsilon0: str = BY_NAME
    max_delta: float | None = None

    def forbids(self, purpose: str) -> bool:
        """Whether the fleet's file leaves no answer for this purpose to the owner."""
        return purpose in self.denied or (self.allowed is not None and purpose not in self.allowed)


NO_CEILING = Ceiling()


@dataclass(frozen=True, slots=True)
class Policy:
    """Which tasks may have an answer from this device.

    ``authorities``: Ed25519 public keys (32 bytes each) whose tasks are trusted; at least one,
    unless the fleet's leave none. ``max_epsilon0``: largest local epsilon of one report, above 0;
    only an explicit acceptance of the very task goes beyond it. ``min_batch_floor``: smallest
    min_batch of a task, in reports, at least 2. ``purposes``: the owner's answer per purpose, by
    the task's exact words; a purpose that is absent was not asked, and nothing is sent for it.
    ``sums_if_apart``: whether sums are accepted that protect a vector only while shuffler and
    analyzer do not work together. ``lifetime_epsilon``: the budget, what all answers of this device
    to all tasks together may cost, above 0; infinite: no budget. ``keep_values``: whether the
    ledger keeps true values too. ``ceiling``: of a fleet. ``infinite_epsilon0``: BY_NAME, the owner
    may accept a task whose epsilon0 is infinite, by its name and no other way; NEVER, such tasks
    are refused, and nobody is asked. ``owner_devices``: how many devices of this owner answer the
    same tasks, 1 to 1000; it changes what is explained, and nothing else. ``max_delta``: largest
    delta of one window of a task, above 0 and below 1; nothing that the owner accepts goes beyond
    it. Raises CONFIG for anything else.
    """

    authorities: frozenset[bytes]
    max_epsilon0: float
    min_batch_floor: int
    purposes: Mapping[str, str] = field(default_factory=dict)
    sums_if_apart: bool = False
    lifetime_epsilon: float = math.inf
    keep_values: bool = False
    ceiling: Ceiling = NO_CEILING
    infinite_epsilon0: str = BY_NAME
    owner_devices: int = 1
    max_delta: float = LIMITS.device_delta

    def __post_init__(self) -> None:
        nobody = not self.authorities and self.ceiling.authorities is None
        if nobody or any(len(key) != 32 for key in self.authorities):
            raise ShoalError(
                Kind.CONFIG,
                "authorities: at least one Ed25519 public key of 32 bytes (64 hex digits)",
            )
        if not (self.max_epsilon0 > 0 and math.isfinite(self.max_epsilon0)):
            raise ShoalError(Kind.CONFIG, "max_epsilon0: a finite number above 0")
        if self.min_batch_floor < 2:
            raise ShoalError(Kind.CONFIG, "min_batch_floor: at least 2 reports")
        if any(answer not in _ANSWERS for answer in self.purposes.values()):
            raise ShoalError(
                Kind.CONFIG,
                'purposes: each answer is "allowed" or "denied"; leave a purpose out that was not '
                "asked",
            )
        if not self.lifetime_epsilon > 0:
            raise ShoalError(
                Kind.CONFIG, "lifetime_epsilon: a number above 0; leave it out for no budget"
            )
        if not 1 <= self.owner_devices <= MOST_OWNER_DEVICES:
            raise ShoalError(
                Kind.CONFIG,
                f"owner_devices: the number of your devices, 1 to {MOST_OWNER_DEVICES}",
            )
        check_infinite(self.infinite_epsilon0)
        check_max_delta(self.max_delta)
        object.__setattr__(self, "purposes", MappingProxyType(dict(self.purposes)))

    def consent(self, purpose: str, stored: Mapping[str, str] = NOTHING_STORED) -> str:
        """allowed, denied or "not asked". ``stored``: the answers in the device's memory."""
        return (
            DENIED if self.ceiling.forbids(purpose) else consent_to(purpose, self.purposes, stored)
        )

    @property
    def limit_nano(self) -> int | None:
        """The budget in nano-epsilon, rounded down from the decimal number that the owner wrote;
        None: no budget.
        """
        return nano_down(self.lifetime_epsilon)


def check_infinite(word: str) -> None:
    """Raises CONFIG unless ``word`` is one that ``infinite_epsilon0`` has."""
    if word not in (BY_NAME, NEVER):
        raise ShoalError(
            Kind.CONFIG,
            f'infinite_epsilon0: "{BY_NAME}" asks the owner about each such task, "{NEVER}" about '
            "none",
        )


def check_max_delta(most: float) -> None:
    """Raises CONFIG unless ``most`` can be a limit of delta; NaN can't."""
    if not 0 < most < 1:
        raise ShoalError(Kind.CONFIG, "max_delta: a number above 0 and below 1, for example 1e-6")


def never_answered(policy: Policy, assignment: Assignment) -> str:
    """Why no yes of the owner's to this task would count, so that nobody is asked. "" for any
    other.
    """
    epsilon = counted_on(policy, assignment.epsilon0, assignment.epsilon_apart)
    return above_max_delta(policy, assignment.task.delta) or never_accepted(policy, epsilon)


def above_max_delta(policy: Policy, delta: float) -> str:
    """Why a task of this delta is refused, in words; "" for one within the limit. NaN never is.

    It is asked of every task, not of those alone that are charged an epsilon at a delta: which
    these are depends on what the owner accepted, and of no task is a large delta of use.
    """
    if delta <= policy.max_delta:
        return ""
    fleet = policy.ceiling.max_delta
    if fleet is not None and fleet <= policy.max_delta:
        return (
            f"an answer may leak whole with probability delta = {_up(delta)} in each window, more "
            f"than the fleet's max_delta = {fleet:g} allows, which the device's owner can't change"
        )
    return (
        f"an answer may leak whole with probability delta = {_up(delta)} in each window, more "
        f"than max_delta = {policy.max_delta:g} allows: change that under [policy], or leave the "
        "task"
    )


def never_accepted(policy: Policy, epsilon: float) -> str:
    """Why no yes to ``epsilon`` counts, the one that the owner's limit is about (``counted_on``):
    it is infinite, and the owner or the fleet refuses all such. "" for any other.
    """
    if not math.isinf(epsilon):
        return ""
    if policy.ceiling.infinite_epsilon0 == NEVER:
        return f'the fleet\'s file refuses all such tasks (infinite_epsilon0 = "{NEVER}")'
    if policy.infinite_epsilon0 == NEVER:
        return f'your configuration refuses all such tasks (infinite_epsilon0 = "{NEVER}")'
    return ""


def check_acceptable(policy: Policy, assignment: Assignment) -> None:
    """Raises REFUSED where the owner's yes to this task would not count: nothing was asked, and
    nothing is kept.
    """
    if never := never_answered(policy, assignment):
        raise _refused(assignment.task.name, f"nothing was accepted: {never}")


def check(
    policy: Policy,
    campaign: Campaign,
    trusted: TrustedTask,
    epsilon0: float,
    epsilon_apart: float | None = None,
    *,
    consents: Mapping[str, str] = NOTHING_STORED,
    accepted: float | None = None,
) -> None:
    """Return if the owner allows this task, ``epsilon0`` being its local epsilon rounded up; else
    raise REFUSED.

    ``campaign``: what the owner's answers are about; a task that is not its step is refused.
    ``epsilon_apart``, of a sum by secure aggregation: what holds while shuffler and analyzer do not
    work together. It takes the place of ``epsilon0``, which is what holds if they do, where the
    owner accepts such sums. ``consents``: the answers per purpose in the device's memory.
    ``accepted``: the local epsilon, possibly infinite, that the owner accepted for this very
    campaign; None if there is no such acceptance. The message says why in one line, and what the
    owner could change. Nothing was sent, nothing was randomized.
    """
    task, ceiling = trusted.task, policy.ceiling
    if ceiling.authorities is not None and trusted.authority not in ceiling.authorities:
        raise _refused(task.name, "its authority is not among those that the fleet's file allows")
    if trusted.authority not in policy.authorities:
        raise _refused(
            task.name,
            "its authority is not among the trusted ones: add its public key to authorities, or "
            "leave the task",
        )
    check_step(campaign, (), trusted)  # tasks come without releases: each is a first step
    # before the purpose: nobody is asked for one that would change nothing
    if too_large := above_max_delta(policy, task.delta):
        raise _refused(task.name, too_large)
    relevant = counted_on(policy, epsilon0, epsilon_apart)
    if never := never_accepted(policy, relevant):
        raise _refused(task.name, f"{_has(relevant, epsilon0, epsilon_apart)}, and {never}")
    _check_consent(policy, task.name, task.purpose, consents)
    try:
        _check_epsilon(policy, task.name, epsilon0, epsilon_apart, accepted)
    except ShoalError as error:
        if task.mechanism.name != SHUFFLER_NOISE:
            raise
        raise ShoalError(error.kind, f"{error.message}. {_TRUSTS}") from None
    if task.min_batch < policy.min_batch_floor:
        raise _refused(
            task.name,
            f"its min_batch is {task.min_batch}, below min_batch_floor = {policy.min_batch_floor}",
        )


_TRUSTS = "It also trusts the shuffler to add noise: nobody can tell whether it does"


def _check_consent(policy: Policy, name: str, purpose: str, stored: Mapping[str, str]) -> None:
    if policy.ceiling.forbids(purpose):
        raise _refused(
            name, "its purpose is denied by the fleet's file, which the device's owner can't change"
        )
    match policy.consent(purpose, stored):
        case "denied":
            if policy.purposes.get(purpose) == DENIED:
                raise _refused(
                    name,
                    'its purpose is denied: set it to "allowed" under purposes to change your mind',
                )
            raise _refused(
                name,
                f"its purpose is denied: `shoal agent consent {name} allow` if you change your "
                "mind",
            )
        case "not asked" if unreadable(stored):
            raise _refused(
                name,
                "an answer of yours is damaged on this disk, so none counts that is not whole: "
                f"`shoal agent consent {name}`, or {COMMAND}",
            )
        case "not asked":
            raise _refused(
                name,
                'its purpose was never agreed to: put it under purposes as "allowed" or "denied", '
                f"or answer with `shoal agent consent {name} allow`",
            )


def counted_on(policy: Policy, epsilon0: float, epsilon_apart: float | None) -> float:
    """The epsilon that an owner's limit is about: of a sum what holds while shuffler and analyzer
    don't work together, where the owner accepts such sums; else what holds if they do.
    """
    if epsilon_apart is None or not policy.sums_if_apart:
        return epsilon0
    return min(epsilon_apart, epsilon0)


def _check_epsilon(
    policy: Policy, name: str, epsilon0: float, epsilon_apart: float | None, accepted: float | None
) -> None:
    """Comparisons are written so that NaN never passes."""
    most, ceiling = policy.max_epsilon0, policy.ceiling
    if (
        epsilon_apart is not None
        and not ceiling.sums_if_apart
        and not (epsilon0 <= most or epsilon0 <= epsilon_apart)
    ):
        raise _refused(
            name,
            f"if shuffler and analyzer worked together, epsilon0 = {_up(epsilon0)} would remain, "
            "which the fleet's file forbids",
        )
    relevant = counted_on(policy, epsilon0, epsilon_apart)
    if relevant <= most:
        return
    if relevant > ceiling.max_epsilon0:
        raise _refused(
            name,
            f"{_has(relevant, epsilon0, epsilon_apart)}, more than the fleet's max_epsilon0 = "
            f"{ceiling.max_epsilon0:g} allows",
        )
    if accepted is not None and relevant <= accepted:
        return
    alone = f"`shoal agent consent {name} --accept-epsilon0` accepts it for this task alone"
    if epsilon_apart is not None and not policy.sums_if_apart:
        raise _refused(
            name,
            f"if shuffler and analyzer worked together, epsilon0 = {_up(epsilon0)} would remain, "
            "more than max_epsilon0 = "
            f"{most:g} allows: sums_if_apart = true accepts sums that are protected while they "
            f"don't, {alone}",
        )
    raise _refused(
        name,
        f"{_has(relevant, epsilon0, epsilon_apart)}, more than max_epsilon0 = {most:g} allows: "
        f"{alone}",
    )


def _has(relevant: float, epsilon0: float, epsilon_apart: float | None) -> str:
    if epsilon_apart is None and math.isinf(epsilon0):
        return "shuffler and analyzer together would see your answer itself (epsilon0 is infinite)"
    if epsilon_apart is None:
        return f"one report has epsilon0 = {_up(epsilon0)}"
    return f"its sums have epsilon = {_up(relevant)}"


def _up(epsilon: float) -> str:
    """An upper bound, never printed too small."""
    from shoal.accounting.meaning import bound_text  # who refuses nothing loads nothing

    return bound_text(epsilon)


def _refused(name: str, why: str) -> ShoalError:
    return ShoalError(Kind.REFUSED, f"task {name}: {why}")
