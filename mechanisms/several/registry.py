"""All mechanisms of several messages by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.domain import YesNo
from shoal.mechanisms.base import check_parameters, invalid
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.parameters import PARAMETERS, SIGNED_COUNT, law_of
from shoal.mechanisms.several.signed_count import SignedCount

if TYPE_CHECKING:
    from shoal.domain import Domain
    from shoal.mechanisms.several.protocol import Several
    from shoal.task import MechanismSpec

NAMES = tuple(PARAMETERS)


def is_several(name: str) -> bool:
    """Whether devices of a task with this mechanism send several messages."""
    return name in PARAMETERS


def create(spec: MechanismSpec, domain: Domain) -> Several:
    """The mechanism that a task names. Raises INVALID, naming the parameter, unless every integer
    fits.
    """
    if not is_several(spec.name):
        raise invalid(f"no mechanism of several messages has that name: choose one of {NAMES}")
    check_parameters(spec, PARAMETERS[spec.name])
    if spec.name == SIGNED_COUNT:
        if not isinstance(domain, YesNo):
            raise invalid(f"{SIGNED_COUNT} counts the answers of a yes/no question, and no other")
        no, yes = domain.labels
        return SignedCount((no, yes), law_of(spec))
    if spec.get("k") != domain.size:
        raise invalid(
            f'{spec.name}: the parameter "k" is {spec.get("k")}, but the domain has {domain.size} '
            f"cells: set k = {domain.size}"
        )
    return BundledHistogram(domain.labels, law_of(spec))
