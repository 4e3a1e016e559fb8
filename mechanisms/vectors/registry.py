"""All local randomizers of vectors by name. Their code, and numpy, is loaded when one is asked
for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.mechanisms.base import check_parameters, invalid
from shoal.task import OF_VECTORS as NAMES

if TYPE_CHECKING:
    from shoal.domain import Domain
    from shoal.mechanisms.base import Setting
    from shoal.mechanisms.vectors.protocol import VectorRandomizer
    from shoal.task import MechanismSpec

__all__ = ["NAMES", "create", "design", "is_of_vectors", "settings"]


def is_of_vectors(name: str) -> bool:
    """Whether devices of a task with this mechanism randomize a vector."""
    return name in NAMES


def create(spec: MechanismSpec, domain: Domain) -> VectorRandomizer:
    """The randomizer that a task names. Raises INVALID, naming the parameter, unless every integer
    fits.
    """
    from shoal.mechanisms.vectors import privunit

    _check_name(spec.name)
    check_parameters(spec, privunit.PARAMETERS)
    return privunit.create(spec, domain)


def design(name: str, domain: Domain, epsilon0: float, setting: str = "") -> MechanismSpec:
    """The integers of a setting ("": the first) whose local epsilon is at most ``epsilon0``. Raises
    INVALID for an unknown name or setting, a domain that can't be served, an epsilon0 that is not
    above 0.
    """
    known = settings(name, domain)
    for candidate in known:
        if setting in {"", candidate.name}:
            return candidate.design(domain, epsilon0)
    raise invalid(
        f"{name} has no setting of that name: choose one of "
        f"{', '.join(each.name for each in known)}"
    )


def settings(name: str, domain: Domain) -> tuple[Setting, ...]:
    """The ways to choose its integers. Raises INVALID for an unknown name, and for a domain that
    can't be served.
    """
    from shoal.mechanisms.vectors import privunit

    _check_name(name)
    return privunit.settings(domain)


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise invalid(f"no randomizer of vectors has that name: choose one of {', '.join(NAMES)}")
