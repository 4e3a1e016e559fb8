"""What a device's owner allows: the last word over any task, whoever signed it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from shoal.crypto.trust import TrustedTask
from shoal.errors import Kind, ShoalError

Consent = Literal["allowed", "denied"]
_ANSWERS = ("allowed", "denied")


@dataclass(frozen=True, slots=True)
class Policy:
    """Which tasks may have an answer from this device.

    ``authorities``: Ed25519 public keys (32 bytes each) whose tasks are trusted. ``max_epsilon0``: largest local epsilon of
    one report, above 0. ``min_batch_floor``: smallest min_batch of a task, in reports, at least 2. ``purposes``: the
    owner's answer per purpose, by the task's exact words; a purpose that is absent was not asked, and nothing is sent
    for it. ``sums_if_apart``: whether sums are accepted that protect a vector only while shuffler and analyzer do not work together.
    Raises CONFIG for anything else.
    """

    authorities: frozenset[bytes]
    max_epsilon0: float
    min_batch_floor: int
    purposes: Mapping[str, Consent] = field(default_factory=dict)
    sums_if_apart: bool = False

    def __post_init__(self) -> None:
        if not self.authorities or any(len(key) != 32 for key in self.authorities):
            raise ShoalError(Kind.CONFIG, "authorities: at least one Ed25519 public key of 32 bytes (64 hex digits)")
        if not (self.max_epsilon0 > 0 and math.isfinite(self.max_epsilon0)):
            raise ShoalError(Kind.CONFIG, "max_epsilon0: a finite number above 0")
        if self.min_batch_floor < 2:
            raise ShoalError(Kind.CONFIG, "min_batch_floor: at least 2 reports")
        if any(answer not in _ANSWERS for answer in self.purposes.values()):
            raise ShoalError(Kind.CONFIG, 'purposes: each answer is "allowed" or "denied"; leave a purpose out that was not asked')
        object.__setattr__(self, "purposes", MappingProxyType(dict(self.purposes)))

    def consent(self, purpose: str) -> str:
        """allowed, denied or "not asked"."""
        return self.purposes.get(purpose, "not asked")


def check(policy: Policy, trusted: TrustedTask, epsilon0: float, apart: float | None = None) -> None:
    """Return if the owner allows this task, ``epsilon0`` being its local epsilon rounded up; else raise REFUSED.

    ``apart``, of a sum by secure aggregation: what holds while shuffler and analyzer do not work together. It takes the place of
    ``epsilon0``, which is what holds if they do, where the owner accepts such sums.
    The message says why in one line, and what the owner could change. Nothing was sent, nothing was randomized.
    """
    task = trusted.task
    if trusted.authority not in policy.authorities:
        raise _refused(task.name, "its authority is not among the trusted ones: add its public key to authorities, or leave the task")
    match policy.consent(task.purpose):
        case "denied":
            raise _refused(task.name, 'its purpose is denied: set it to "allowed" under purposes to change your mind')
        case "not asked":
            raise _refused(task.name, 'its purpose was never agreed to: put it under purposes as "allowed" or "denied"')
    if apart is not None and not policy.sums_if_apart and not epsilon0 <= policy.max_epsilon0:
        raise _refused(
            task.name,
            f"if shuffler and analyzer worked together, epsilon0 = {_up(epsilon0)} would remain, more than max_epsilon0 = "
            f"{policy.max_epsilon0:g} allows: sums_if_apart = true accepts sums that are protected while they don't",
        )
    if apart is not None and not min(apart, epsilon0) <= policy.max_epsilon0:
        raise _refused(task.name, f"its sums have epsilon = {_up(apart)}, more than max_epsilon0 = {policy.max_epsilon0:g} allows")
    if apart is None and not epsilon0 <= policy.max_epsilon0:
        raise _refused(task.name, f"one report has epsilon0 = {_up(epsilon0)}, more than max_epsilon0 = {policy.max_epsilon0:g} allows")
    if task.min_batch < policy.min_batch_floor:
        raise _refused(task.name, f"its min_batch is {task.min_batch}, below min_batch_floor = {policy.min_batch_floor}")


def _up(epsilon: float) -> str:
    """An upper bound, never printed too small."""
    from shoal.accounting.meaning import bound_text  # who refuses nothing loads nothing

    return bound_text(epsilon)


def _refused(name: str, why: str) -> ShoalError:
    return ShoalError(Kind.REFUSED, f"task {name}: {why}")
