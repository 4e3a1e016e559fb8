"""What there is to choose from: every setting of every registered family that answers the question, and why the others don't."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.analyzer.planner.question import Frequencies, Question, Request, domains, wrong
from shoal.domain import Domain, Numeric
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, Mechanism, create, design
from shoal.mechanisms.base import Family, Setting

MEAN = "mean"  # the label of an estimate that is the mean of a number


@dataclass(frozen=True, slots=True)
class Candidate:
    """A family with everything fixed but epsilon0. ``alone``: the only setting of its family, which needs no name."""

    mechanism: str
    setting: str
    summary: str
    domain: Domain
    alone: bool = True

    @property
    def title(self) -> str:
        """As tables show it: "krr", "unary oue", "kmean, 24 levels"."""
        name = self.mechanism if self.alone else f"{self.mechanism} {self.setting}"
        return f"{name}, {self.domain.levels} levels" if isinstance(self.domain, Numeric) else name

    def build(self, epsilon0: float) -> Mechanism:
        """The mechanism whose local epsilon is at most ``epsilon0``. Raises INVALID where the setting has none."""
        return create(design(self.mechanism, self.domain, epsilon0, self.setting), self.domain)


@dataclass(frozen=True, slots=True)
class Unsuited:
    """A family that was not tried, and why, in a line."""

    mechanism: str
    reason: str


def candidates(request: Request) -> tuple[tuple[Candidate, ...], tuple[Unsuited, ...]]:
    """In the registry's order. Raises CONFIG for a name that is not registered, and if nothing answers the question."""
    for name in request.mechanisms:
        if name not in REGISTRY:
            raise wrong(f"there is no mechanism {name!r}: choose among {', '.join(sorted(REGISTRY))}")
    found: list[Candidate] = []
    unsuited: list[Unsuited] = []
    for name in REGISTRY:
        if request.mechanisms and name not in request.mechanisms:
            continue
        try:
            found.extend(_of_family(name, request.question))
        except ShoalError as error:
            if error.kind is not Kind.INVALID:
                raise
            unsuited.append(Unsuited(name, str(error)))
    if not found:
        why = "; ".join(f"{each.mechanism}: {each.reason}" for each in unsuited)
        raise wrong(f"no mechanism to choose from answers this question: {why}")
    return tuple(found), tuple(unsuited)


def _of_family(name: str, question: Question) -> list[Candidate]:
    """Raises INVALID where the family can't serve the question's domains, or estimates something else."""
    family, found, why = REGISTRY[name], [], None
    for domain in domains(question):
        try:
            settings = family.settings(domain)
        except ShoalError as error:
            why = error  # too many cells for this family, say: fewer levels may still do
            continue
        alone = len(settings) == 1
        found += [Candidate(name, one.name, _summary(family, one, alone), domain, alone) for one in settings]
    if not found:
        raise why or ShoalError(Kind.INVALID, "it has no settings for this question")
    _check_answer(found[0], question)
    return found


def _summary(family: Family, setting: Setting, alone: bool) -> str:
    return family.summary if alone else f"{family.summary}; {setting.summary}"


def _check_answer(candidate: Candidate, question: Question) -> None:
    """Raises INVALID unless the family estimates what is asked: the devices in each cell, or a mean."""
    mechanism = candidate.build(1.0)
    labels = mechanism.estimate(mechanism.tally(np.zeros((0, mechanism.report_size), dtype=np.uint8))).labels
    if isinstance(question, Frequencies):
        if labels != candidate.domain.labels:
            raise ShoalError(Kind.INVALID, "it does not count the devices in each cell")
    elif labels[0] != MEAN:
        raise ShoalError(Kind.INVALID, "it counts the devices in each cell, and estimates no mean")
