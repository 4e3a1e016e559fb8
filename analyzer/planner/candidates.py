"""What there is to choose from: every setting of every registered family that answers the question,
and why the others don't.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from shoal.analyzer.planner.numbers import MEAN, empty_estimate
from shoal.analyzer.planner.question import (
    Frequencies,
    Quantiles,
    Question,
    Request,
    domains,
    wrong,
)
from shoal.domain import Categories, Domain, Numeric, Places
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, Mechanism, create, design
from shoal.mechanisms.base import Family, Setting
from shoal.mechanisms.categories import count_sketch, hadamard_sketch
from shoal.mechanisms.maps.planar import NAME as PLANAR
from shoal.mechanisms.numbers.distribution import Distributed
from shoal.mechanisms.parts.tables import MEAN_OF_ALL
from shoal.privacy import FiniteLaw, KaryLaw

# Two cells that a public hash function maps to one place are an error that stands beside the
# coins', grows with n, and is in no prediction.
COLLIDE = frozenset({count_sketch.NAME, hadamard_sketch.NAME})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A family with everything fixed but epsilon0. ``alone``: the only setting of its family, which
    needs no name.
    """

    mechanism: str
    setting: str
    summary: str
    domain: Domain
    alone: bool = True

    @property
    def title(self) -> str:
        """As tables show it: "krr", "unary oue", "kmean, 24 levels"."""
        name = self.mechanism if self.alone else f"{self.mechanism} {self.setting}"
        if isinstance(self.domain, Numeric):
            return f"{name}, {self.domain.levels} levels"
        if isinstance(self.domain, Categories) and self.domain.lower_bounds:
            return f"{name}, {self.domain.size - 1} bins"
        return name

    def build(self, epsilon0: float) -> Mechanism:
        """The mechanism whose local epsilon is at most ``epsilon0``. Raises INVALID where the
        setting has none.
        """
        return _built(self.mechanism, self.setting, self.domain, epsilon0)


# a large table is a second's work, and is asked for again and again while one candidate is looked
# at
@lru_cache(maxsize=16)
def _built(name: str, setting: str, domain: Domain, epsilon0: float) -> Mechanism:
    return create(design(name, domain, epsilon0, setting), domain)


@dataclass(frozen=True, slots=True)
class Unsuited:
    """A family that was not tried, and why, in a line."""

    mechanism: str
    reason: str


def candidates(request: Request) -> tuple[tuple[Candidate, ...], tuple[Unsuited, ...]]:
    """In the registry's order; sketches only if they are named: their collisions are not predicted.
    ``planar`` likewise: its tables take long, and what it is for is in no error.

    Raises CONFIG for a name that is not registered, and if nothing answers the question.
    """
    for name in request.mechanisms:
        if name not in REGISTRY:
            raise wrong(
                f"there is no mechanism {name!r}: choose among {', '.join(sorted(REGISTRY))}"
            )
    every: list[Candidate] = []
    unsuited: list[Unsuited] = []
    for name in REGISTRY:
        if request.mechanisms and name not in request.mechanisms:
            continue
        if not request.mechanisms and name in COLLIDE:
            unsuited.append(
                Unsuited(
                    name,
                    "its hash functions collide, and no error here counts that: see it with "
                    f"--mechanism {name}",
                )
            )
            continue
        if not request.mechanisms and name == PLANAR and _on_a_map(request.question):
            unsuited.append(
                Unsuited(
                    name,
                    "it is chosen for its promise per kilometre, and counts no better at equal "
                    f"epsilon: see it with --mechanism {name}",
                )
            )
            continue
        try:
            every.extend(of_family(name, request.question, all_settings=bool(request.mechanisms)))
        except ShoalError as error:
            if error.kind is not Kind.INVALID:
                raise
            unsuited.append(Unsuited(name, str(error)))
    if not every:
        why = "; ".join(f"{each.mechanism}: {each.reason}" for each in unsuited)
        raise wrong(f"no mechanism to choose from answers this question: {why}")
    return tuple(every), tuple(unsuited)


def _on_a_map(question: Question) -> bool:
    return isinstance(question, Frequencies) and isinstance(question.domain, Places)


def of_family(name: str, question: Question, *, all_settings: bool) -> list[Candidate]:
    """Every setting; for a number, whose levels are many and whose tables take long to certify, the
    first one unless ``all_settings``.

    Raises INVALID where the family can't serve the question's domains, or estimates something else.
    """
    family, why = REGISTRY[name], None
    members: list[Candidate] = []
    # kinds of domain for which the family estimates something else, whatever the number of levels
    refused: set[type] = set()
    for domain in domains(question):
        if type(domain) in refused:
            continue
        try:
            settings = family.settings(domain)
            alone = len(settings) == 1
            if isinstance(domain, Numeric) and not all_settings:
                settings = settings[:1]
            those = [
                Candidate(name, setting.name, _summary(family, setting, alone), domain, alone)
                for setting in settings
            ]
            if not any(type(each.domain) is type(domain) for each in members):
                refused.add(type(domain))
                _check_answer(those[0], question)
                refused.remove(type(domain))
        except ShoalError as error:
            if error.kind is not Kind.INVALID:
                raise
            why = error  # too many cells for this family, say: fewer levels may still do
            continue
        members += those
    if not members:
        raise why or ShoalError(Kind.INVALID, "it has no settings for this question")
    return members


def _summary(family: Family, setting: Setting, alone: bool) -> str:
    return family.summary if alone else f"{family.summary}; {setting.summary}"


def _check_answer(candidate: Candidate, question: Question) -> None:
    """Raises INVALID unless the family estimates what is asked: the devices in each cell, a mean,
    or a distribution.
    """
    mechanism = candidate.build(1.0)
    labels = empty_estimate(mechanism).labels
    counts = labels == candidate.domain.labels
    if isinstance(question, Frequencies):
        if not counts:
            raise ShoalError(Kind.INVALID, "it does not count the devices in each cell")
    elif isinstance(question, Quantiles):
        if isinstance(candidate.domain, Categories):
            if not (counts and isinstance(mechanism.privacy(), KaryLaw)):
                raise ShoalError(
                    Kind.INVALID,
                    "of ordered bins only k-ary responses are compared here: shoal plan categories "
                    "has the others",
                )
        elif not isinstance(mechanism, Distributed):
            bins = counts and isinstance(mechanism.privacy(), KaryLaw)
            mend = (
                "; over bins it would: choose a smaller unit, in which they begin at whole numbers"
                if bins
                else ""
            )
            raise ShoalError(Kind.INVALID, f"it does not tell how a number is distributed{mend}")
        elif not isinstance(mechanism.privacy(), KaryLaw | FiniteLaw):
            raise ShoalError(
                Kind.INVALID,
                "no errors of quantiles are predicted for it: the law of its reports is no table",
            )
    elif labels[0] not in {MEAN, MEAN_OF_ALL}:
        raise ShoalError(Kind.INVALID, "it counts the devices in each cell, and estimates no mean")
