"""Attacks on a randomizer of ours, alone and in a shuffled batch, held against what it claims."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.accounting.accountant import certify
from shoal.accounting.audit.attack import furthest_answers, views_of
from shoal.accounting.audit.audit import AuditResult, audit
from shoal.accounting.meaning import bound_text
from shoal.domain import Domain, Vector, Words
from shoal.entropy import Entropy
from shoal.mechanisms.base import Mechanism
from shoal.privacy import epsilon0_upper
from shoal.study.arguments import wrong_value
from shoal.study.frames import Table

_VIEWS = 200_000  # reports that are made at a time


@dataclass(frozen=True, slots=True, repr=False)
class Audited:
    """What attacks measured, with certainty of all but one in a million. ``local``: on one report;
    ``shuffled``: on a batch of ``n``.
    """

    n: int
    local: AuditResult
    shuffled: AuditResult

    @property
    def refuted(self) -> bool:
        """Whether more was measured than is claimed: then something of ours is broken. False proves
        nothing: a better attack may find more.
        """
        return self.local.refuted or self.shuffled.refuted

    @property
    def table(self) -> Table:
        """A row per attack."""
        parts = (("one report", self.local), (f"{self.n:,} shuffled", self.shuffled))
        return Table(
            ("attack", "delta", "measured at least", "claimed at most", "trials"),
            [
                (
                    name,
                    result.delta,
                    bound_text(result.epsilon_measured_lower, up=False),
                    bound_text(result.claimed),
                    result.trials,
                )
                for name, result in parts
            ],
            caption="more than is claimed: broken" if self.refuted else "within the claim",
        )

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def audited(
    mechanism: Mechanism, domain: Domain, n: int, delta: float, trials: int, entropy: Entropy
) -> Audited:
    """The same randomizer alone (at delta 0) and in a batch of n honest devices."""
    if isinstance(domain, Words | Vector):
        raise wrong_value("design", "an open vocabulary has no cells to attack: design with labels")
    law, cells = mechanism.privacy(), domain.size
    answers = furthest_answers(law)

    def attack(size: int, allowed: float, claimed: float) -> AuditResult:
        views = views_of(mechanism, cells, size, entropy, answers=answers)
        at_once = max(1, _VIEWS // (size * max(1, cells // 64)))
        return audit(views, claimed, allowed, trials, at_once=at_once)

    return Audited(
        n,
        attack(1, 0.0, epsilon0_upper(law)),
        attack(n, delta, certify(law, n, delta).epsilon_upper),
    )
