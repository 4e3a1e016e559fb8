"""A fleet's file: what its operator forbids on all devices. It can only tighten what a device's
owner allows. Sample: deploy/fleet.toml.

Whatever in it would loosen the owner's policy has no effect, and ``loosening`` says so in words.
What it forbids, the owner can't lift with ``shoal agent consent`` afterwards (``policy.Ceiling``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal.clients.owner.consent import ALLOWED, DENIED
from shoal.clients.owner.policy import (
    BY_NAME,
    NEVER,
    Ceiling,
    Policy,
    check_infinite,
    check_max_delta,
)
from shoal.clients.owner.rules import Rule, rules_from
from shoal.clients.settings.toml_tables import TomlTable
from shoal.errors import Kind, ShoalError
from shoal.storage.toml import read_toml


@dataclass(frozen=True, slots=True)
class FleetPolicy:
    """Every field None, empty or infinite: the fleet says nothing about it.

    ``authorities``: the only ones of the owner's that stay trusted. ``max_epsilon0``,
    ``lifetime_epsilon``: upper limits, above 0; ``max_epsilon0`` also bounds what the owner may
    accept task by task. ``min_batch_floor``: a lower limit, in reports. ``denied``: purposes that
    get no answer. ``allowed``: the only purposes that the owner may allow. ``sums_if_apart``: False
    forbids sums that protect a vector only while shuffler and analyzer do not work together; True
    has no effect. ``infinite_epsilon0``: NEVER forbids owners to accept an infinite epsilon0;
    BY_NAME has no effect. ``rules`` run after the owner's. ``granted``: purposes that the file says
    are "allowed": without effect, only the owner can allow. ``max_delta``: an upper limit, above 0
    and below 1. Raises CONFIG.
    """

    authorities: frozenset[bytes] | None = None
    max_epsilon0: float = math.inf
    lifetime_epsilon: float = math.inf
    min_batch_floor: int = 2
    denied: frozenset[str] = frozenset()
    allowed: frozenset[str] | None = None
    sums_if_apart: bool | None = None
    rules: tuple[Rule, ...] = ()
    granted: frozenset[str] = frozenset()
    infinite_epsilon0: str | None = None
    max_delta: float | None = None

    def __post_init__(self) -> None:
        if any(len(key) != 32 for key in self.authorities or ()):
            raise ShoalError(
                Kind.CONFIG, "authorities: each is an Ed25519 public key, 64 hex digits"
            )
        for key in ("max_epsilon0", "lifetime_epsilon"):
            if not getattr(self, key) > 0:
                raise ShoalError(Kind.CONFIG, f"{key}: a number above 0; leave it out for no limit")
        if self.min_batch_floor < 2:
            raise ShoalError(Kind.CONFIG, "min_batch_floor: at least 2 reports")
        if self.infinite_epsilon0 is not None:
            check_infinite(self.infinite_epsilon0)
        if self.max_delta is not None:
            check_max_delta(self.max_delta)
        object.__setattr__(self, "rules", tuple(replace(rule, fleet=True) for rule in self.rules))

    @classmethod
    def load(cls, path: Path) -> FleetPolicy:
        """Read and check a file. Raises CONFIG: a device doesn't run without the file that its
        configuration names.
        """
        values = read_toml(path)
        try:
            return cls._from(TomlTable("", values))
        except ShoalError as error:
            raise ShoalError(Kind.CONFIG, f"{path.name}: {error}") from None

    @classmethod
    def _from(cls, table: TomlTable) -> FleetPolicy:
        authorities = (
            authorities_from(table.take("authorities", list)) if "authorities" in table else None
        )
        allowed = (
            frozenset(table.texts("purposes_allowed")) if "purposes_allowed" in table else None
        )
        purposes = purposes_from(table.take("purposes", dict, {}))
        fleet = cls(
            authorities=authorities,
            max_epsilon0=table.number("max_epsilon0", math.inf),
            lifetime_epsilon=table.number("lifetime_epsilon", math.inf),
            min_batch_floor=table.take("min_batch_floor", int, 2),
            denied=frozenset(purpose for purpose, answer in purposes.items() if answer == DENIED),
            allowed=allowed,
            sums_if_apart=table.take("sums_if_apart", bool) if "sums_if_apart" in table else None,
            rules=rules_from(table.take("rules", list, []), fleet=True),
            granted=frozenset(purpose for purpose, answer in purposes.items() if answer == ALLOWED),
            infinite_epsilon0=(
                table.take("infinite_epsilon0", str) if "infinite_epsilon0" in table else None
            ),
            max_delta=table.number("max_delta") if "max_delta" in table else None,
        )
        table.end()
        return fleet


def tighten(owner: Policy, fleet: FleetPolicy) -> Policy:
    """The owner's policy within the fleet's limits: allows a task only if both do. Never allows
    more than the owner alone.
    """
    ceiling = Ceiling(
        fleet.authorities,
        fleet.max_epsilon0,
        fleet.denied,
        fleet.allowed,
        fleet.sums_if_apart is not False,
        NEVER if fleet.infinite_epsilon0 == NEVER else BY_NAME,
        fleet.max_delta,
    )
    return replace(
        owner,
        authorities=owner.authorities
        if fleet.authorities is None
        else owner.authorities & fleet.authorities,
        max_epsilon0=min(owner.max_epsilon0, fleet.max_epsilon0),
        min_batch_floor=max(owner.min_batch_floor, fleet.min_batch_floor),
        purposes={**owner.purposes, **dict.fromkeys(fleet.denied, DENIED)},
        sums_if_apart=owner.sums_if_apart and fleet.sums_if_apart is not False,
        lifetime_epsilon=min(owner.lifetime_epsilon, fleet.lifetime_epsilon),
        ceiling=ceiling,
        infinite_epsilon0=(
            NEVER if NEVER in (owner.infinite_epsilon0, fleet.infinite_epsilon0) else BY_NAME
        ),
        max_delta=(
            owner.max_delta if fleet.max_delta is None else min(owner.max_delta, fleet.max_delta)
        ),
    )


def loosening(owner: Policy, fleet: FleetPolicy) -> list[str]:
    """One line for everything in the fleet's file that would loosen the owner's policy, and so has
    no effect.
    """
    lines = []
    strangers = len((fleet.authorities or frozenset()) - owner.authorities)
    if strangers:
        lines.append(
            f"authorities: {strangers} of them {'is' if strangers == 1 else 'are'} not among the "
            "owner's, and not trusted"
        )
    if owner.max_epsilon0 < fleet.max_epsilon0 < math.inf:
        lines.append(
            f"max_epsilon0 = {fleet.max_epsilon0:g}: above the owner's {owner.max_epsilon0:g}, "
            "which stays; "
            "it only bounds what the owner may accept task by task"
        )
    if owner.lifetime_epsilon < fleet.lifetime_epsilon < math.inf:
        lines.append(
            f"lifetime_epsilon = {fleet.lifetime_epsilon:g}: above the owner's "
            f"{owner.lifetime_epsilon:g}, which stays"
        )
    if fleet.max_delta is not None and owner.max_delta < fleet.max_delta:
        lines.append(
            f"max_delta = {fleet.max_delta:g}: above the owner's {owner.max_delta:g}, which stays"
        )
    if 2 < fleet.min_batch_floor < owner.min_batch_floor:
        lines.append(
            f"min_batch_floor = {fleet.min_batch_floor}: below the owner's "
            f"{owner.min_batch_floor}, which stays"
        )
    if fleet.sums_if_apart and not owner.sums_if_apart:
        lines.append("sums_if_apart = true: the owner does not accept such sums, which stays")
    if fleet.infinite_epsilon0 == BY_NAME and owner.infinite_epsilon0 == NEVER:
        lines.append(
            f'infinite_epsilon0 = "{BY_NAME}": the owner refuses all such tasks, which stays'
        )
    for purpose in sorted(fleet.granted):
        if owner.consent(purpose) != ALLOWED:
            lines.append(f'purposes: "{purpose}" = "allowed": only the owner can allow a purpose')
    return lines


def purposes_from(values: dict[str, Any]) -> dict[str, str]:
    """The answers per purpose of a file. Raises CONFIG for any but the two words."""
    for purpose, answer in values.items():
        if answer not in (ALLOWED, DENIED):
            raise ShoalError(
                Kind.CONFIG,
                f'purposes: "{purpose[:40]}": "allowed" or "denied"; leave a purpose out that was '
                "not asked",
            )
    return dict(values)


def authorities_from(values: Iterable[object]) -> frozenset[bytes]:
    """Ed25519 public keys of a file, from hex digits. Raises CONFIG."""
    return frozenset(map(_authority, values))


def _authority(key: object) -> bytes:
    try:
        raw = bytes.fromhex(key) if isinstance(key, str) else b""
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise ShoalError(Kind.CONFIG, "authorities: each is an Ed25519 public key, 64 hex digits")
    return raw
