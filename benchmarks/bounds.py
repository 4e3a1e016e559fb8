"""How tight certificates are: epsilon_upper over epsilon_lower, and over the smallest sound value
that has been published.

No clock here: every figure is a ratio of proven numbers and the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Goal, Outcome
from shoal.accounting import certify
from shoal.accounting.reference.published import published, smallest_sound
from shoal.privacy import KaryLaw, LocalPrivacy, PureLaw

TITLE = (
    "epsilon_upper / epsilon_lower of certificates, and against the smallest sound published value"
)

_EPSILON0 = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
_N = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_DELTA = (1e-6, 1e-8, 1e-10, 1e-12)
_LAWS = ("any", "binary", "krr, 3 cells", "krr, 16 cells", "krr, 1,024 cells")
_CELLS = {"binary": 2, "krr, 3 cells": 3, "krr, 16 cells": 16, "krr, 1,024 cells": 1024}
# The interval is asked to be narrow where shuffling buys something and there is a crowd.
_BUYS = 0.9
_CROWD = 1_000
_NARROW = 1.01
# Of an epsilon: what two searches for the same number may differ by.
_SAME = 1e-7
_OFFENDERS = 5


@dataclass(frozen=True, slots=True)
class Case:
    """One certificate. ``best``: the smallest published epsilon that is an upper bound for this
    law, and ``source`` whose it is.
    """

    law: str
    epsilon0: float
    n: int
    delta: float
    upper: float
    lower: float
    best: float
    source: str

    @property
    def ratio(self) -> float:
        """upper / lower; inf where nothing is refuted."""
        return (
            self.upper / self.lower
            if self.lower > 0.0
            else (1.0 if self.upper == 0.0 else math.inf)
        )

    @property
    def judged(self) -> bool:
        """Whether shuffling buys enough here for the ratio to say something."""
        return (
            self.upper <= _BUYS * self.epsilon0 and self.n >= _CROWD and math.isfinite(self.ratio)
        )

    @property
    def violates(self) -> bool:
        """Whether our upper bound is above the best published one, rounding apart."""
        return self.upper > self.best * (1.0 + _SAME)

    @property
    def gain(self) -> float:
        """Published / ours: 1.2 says that the published epsilon is 20 % larger."""
        return self.best / self.upper if self.upper > 0.0 else 1.0

    def __str__(self) -> str:
        where = f"{self.law}, epsilon0 = {self.epsilon0:g}, n = {self.n:,}, delta = {self.delta:g}"
        return (
            f"{where}: {self.lower:.6g} to {self.upper:.6g}, published {self.best:.6g} "
            f"({self.source})"
        )


def law_of(name: str, epsilon0: float) -> LocalPrivacy:
    """The law whose ratio is e^epsilon0, to a float's digits."""
    ratio = Fraction(math.exp(epsilon0))
    return (
        KaryLaw(_CELLS[name], same=ratio.numerator, other=ratio.denominator)
        if name in _CELLS
        else PureLaw(ratio)
    )


def measure(name: str, epsilon0: float, n: int, delta: float) -> Case:
    """Our bounds and the best published one, for n honest devices."""
    law = law_of(name, epsilon0)
    certificate, best = certify(law, n, delta), smallest_sound(published(law, n, delta))
    value = math.inf if best.epsilon is None else best.epsilon
    return Case(
        name,
        epsilon0,
        n,
        delta,
        certificate.epsilon_upper,
        certificate.epsilon_lower,
        value,
        best.name,
    )


def run(bench: Bench) -> Outcome:
    """Our upper bounds beside the best published ones."""
    laws = bench.pick(("binary", "krr, 16 cells"), _LAWS, _LAWS)
    epsilons = bench.pick((2.0,), (0.5, 2.0, 4.0, 7.0), _EPSILON0)
    sizes = bench.pick((1_000,), (1_000, 100_000, 10_000_000), _N)
    deltas = bench.pick((1e-6,), (1e-8,), _DELTA)
    cases = [
        measure(law, e, n, delta)
        for law in laws
        for delta in deltas
        for n in sizes
        for e in epsilons
    ]
    ratios: list[Figure] = []
    for law in laws:
        of_law = [case for case in cases if case.law == law]
        judged = [case.ratio for case in of_law if case.judged]
        if judged:
            # No goal for an unknown randomizer: its gap is one of theory, not of accounting
            # (docs/ACCOUNTING.md, section 7).
            goal = Goal(at_most=_NARROW) if law in _CELLS else None
            ratios.append(
                Figure(
                    f"{law}: upper / lower, the widest of {len(judged)}", (max(judged),), goal=goal
                )
            )
            ratios.append(Figure(f"{law}: upper / lower", tuple(judged)))
        ratios.append(
            Figure(f"{law}: smallest published / upper", tuple(case.gain for case in of_law))
        )
    violations = float(sum(case.violates for case in cases))
    return Outcome(
        (
            *ratios,
            Figure(
                f"of {len(cases)} uppers, above the smallest published",
                (violations,),
                "",
                Goal(at_most=0.0),
            ),
        ),
        (
            f"upper / lower is judged where upper <= {_BUYS:g} epsilon0 and n >= {_CROWD:,}",
            *(f"above the published: {case}" for case in cases if case.violates),
            *(f"widest: {case.ratio:.4f}, {case}" for case in _widest(cases)),
            *_table(cases),
        ),
    )


def _widest(cases: Iterable[Case]) -> list[Case]:
    """The judged cases of known laws that are farthest from a ratio of 1, the worst first."""
    judged = [case for case in cases if case.judged and case.law in _CELLS]
    return sorted(judged, key=lambda case: -case.ratio)[:_OFFENDERS]


def _table(cases: Iterable[Case]) -> list[str]:
    """One line per law, delta and n: epsilon0: lower to upper (published)."""
    lines: dict[tuple[str, float, int], list[str]] = {}
    for case in cases:
        entry = f"{case.epsilon0:g}: {case.lower:.5g} to {case.upper:.5g} ({case.best:.5g})"
        lines.setdefault((case.law, case.delta, case.n), []).append(entry)
    return [
        f"{law}, delta {delta:g}, n {n:g}: {'; '.join(entries)}"
        for (law, delta, n), entries in lines.items()
    ]
