"""All randomizers by name. A new one is one file and one line here; it then inherits
tests/conformance/mechanisms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from shoal.domain import Domain, Vector
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.base import Family, Mechanism, check_parameters, invalid
from shoal.task import MechanismSpec

# A family's name, which its file has too, and the folder of mechanisms/ that the file stands in:
# krr is FAMILY in categories/krr.py. Planner and pages list families in this order.
_ROOMS = {
    "binary_rr": "categories",
    "krr": "categories",
    "kmean": "numbers",
    "one_bit_mean": "numbers",
    "piecewise": "numbers",
    "hybrid": "numbers",
    "local_hash": "categories",
    "unary": "categories",
    "subset": "categories",
    "hadamard": "categories",
    "hadamard_response": "categories",
    "projective": "categories",
    "l_unary": "longitudinal",
    "dbitflip": "longitudinal",
    "loloha": "longitudinal",
    "rappor": "longitudinal",
    "count_sketch": "categories",
    "hadamard_sketch": "categories",
    "laplace": "numbers",
    "gaussian": "numbers",
    "exponential": "categories",
    "square_wave": "numbers",
    "planar": "maps",
}


class _Families(Mapping[str, Family]):
    """Loads a family's file when it is asked for: an idle device keeps the code of its tasks'
    randomizers, not of all.
    """

    def __getitem__(self, name: str) -> Family:
        if name not in _ROOMS:
            raise KeyError(name)
        family: Family = import_module(f"shoal.mechanisms.{_ROOMS[name]}.{name}").FAMILY
        return family

    def __contains__(self, name: object) -> bool:
        return name in _ROOMS

    def __iter__(self) -> Iterator[str]:
        return iter(_ROOMS)

    def __len__(self) -> int:
        return len(_ROOMS)


REGISTRY: Mapping[str, Family] = _Families()


def create(spec: MechanismSpec, domain: Domain) -> Mechanism:
    """The randomizer that a task names. Raises INVALID, naming the parameter, unless every integer
    fits.
    """
    family = _family(spec.name, domain)
    check_parameters(spec, family.parameters)
    return family.create(spec, domain)


def design(name: str, domain: Domain, epsilon0: float, setting: str = "") -> MechanismSpec:
    """The integers of a setting ("": the family's first) whose local epsilon is at most
    ``epsilon0``: one integer step below at most.

    Raises INVALID for an unknown name or setting, a domain that the mechanism can't serve, or an
    epsilon0 that is not above 0.
    """
    settings = _family(name, domain).settings(domain)
    for candidate in settings:
        if setting in {"", candidate.name}:
            return candidate.design(domain, epsilon0)
    raise invalid(
        f"{name} has no setting of that name: choose one of "
        f"{', '.join(each.name for each in settings)}"
    )


def serves(name: str, domain: Domain) -> bool:
    """Whether a registered mechanism can answer questions of that domain. Raises INVALID for an
    unknown name, or a vector.
    """
    family = _family(name, domain)
    try:
        return bool(family.settings(domain))
    except ShoalError as error:
        if error.kind is not Kind.INVALID:
            raise
        return False


def _family(name: str, domain: Domain) -> Family:
    if isinstance(domain, Vector):
        raise invalid(
            "a vector has no cells to randomize: it is summed by the aggregator pairwise, with "
            "noise of its own, or randomized by privunit"
        )
    if name not in REGISTRY:
        raise invalid(
            f"there is no mechanism of that name: choose one of {', '.join(sorted(REGISTRY))}"
        )
    return REGISTRY[name]
