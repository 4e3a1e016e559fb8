"""What was asked of ``shoal epsilon``: which numbers are given, which one is solved for, and the
certificate that answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from shoal.accounting.accountant import LARGEST_EPSILON0
from shoal.accounting.certificate import SMALLEST_DELTA, check_delta, check_n, count_honest
from shoal.accounting.solving.solve import largest_epsilon0, smallest_delta, smallest_n
from shoal.accounting.solving.solve_total import (
    largest_epsilon0_of_rounds,
    smallest_delta_of_rounds,
    smallest_n_of_rounds,
)
from shoal.cli.epsilon.laws import WITHOUT_EPSILON0, check_epsilon0
from shoal.cli.epsilon.several import Mixture
from shoal.cli.epsilon.subjects import Bound, Dummies, Pure, Subject
from shoal.errors import Kind, ShoalError


class Solved(StrEnum):
    """What ``--solve`` looks for; the values are what people type."""

    epsilon0 = "epsilon0"
    n = "n"
    delta = "delta"
    per_device = "per-device"
    probability = "probability"


_RANGES = {
    Solved.epsilon0: "the local epsilon of one report, a number above 0",
    Solved.n: "the shuffled reports, a whole number of at least 1",
    Solved.delta: "a number strictly between 0 and 1, 1e-6 or less is usual",
}


@dataclass(frozen=True, slots=True)
class EpsilonRequest:
    """What was asked. After ``check``, only the number to be solved for is missing."""

    mechanism: str
    subject: Subject
    epsilon0: float | None
    n: int | None
    delta: float | None
    share: Fraction

    def check(self, solve: Solved | None, target: float | None) -> None:
        """Raises ShoalError CONFIG naming the option that is missing, out of range, or given
        although it is solved for.
        """
        if isinstance(self.subject, Mixture):
            self._check_mixture(solve, target)
        elif (solve is None) != (target is None):
            raise ShoalError(
                Kind.CONFIG,
                "--solve and --target go together: --solve epsilon0|n|delta|per-device|probability "
                "--target EPS",
            )
        if target is not None and not 0.0 < target <= LARGEST_EPSILON0:
            raise ShoalError(
                Kind.CONFIG,
                f"--target must be a number above 0, and at most {LARGEST_EPSILON0:g}, got "
                f"{target:g}",
            )
        self._check_solvable(solve)
        given: Mapping[Solved, Any] = {
            Solved.epsilon0: self.epsilon0,
            Solved.n: self.n,
            Solved.delta: self.delta,
        }
        for option, value in given.items():
            if option is Solved.epsilon0 and self.mechanism in WITHOUT_EPSILON0:
                if value is not None:
                    raise ShoalError(
                        Kind.CONFIG,
                        f"--mechanism {self.mechanism} takes no --epsilon0: its privacy follows "
                        "from its own options",
                    )
            elif value is None and option is not solve:
                found = f", or find it with --solve {option} --target EPS"
                raise ShoalError(
                    Kind.CONFIG,
                    f"--{option} is missing: {_RANGES[option]}"
                    + ("" if isinstance(self.subject, Mixture) else found),
                )
            elif value is not None and option is solve:
                raise ShoalError(
                    Kind.CONFIG, f"--solve {option} finds --{option}: leave that option out"
                )
        if self.epsilon0 is not None:
            check_epsilon0(self.epsilon0)
        if self.n is not None:
            check_n(self.n)
        if self.delta is not None:
            check_delta(self.delta)

    def _check_mixture(self, solve: Solved | None, target: float | None) -> None:
        """Either --target or --parameters, and no --solve."""
        given = isinstance(self.subject, Mixture) and self.subject.made is not None
        if solve is not None:
            raise ShoalError(
                Kind.CONFIG,
                f"--solve {solve} does not go with --mechanism {self.mechanism}: leave it out, and "
                "its noise is designed for --target",
            )
        if given == (target is not None):
            raise ShoalError(
                Kind.CONFIG,
                f"--mechanism {self.mechanism} wants --target EPS to be designed for it, or the "
                "--parameters of a task: give one of the two",
            )

    def _check_solvable(self, solve: Solved | None) -> None:
        if solve is None:
            return
        possible = (
            (Solved(self.subject.option),)
            if isinstance(self.subject, Dummies)
            else (Solved.epsilon0, Solved.n, Solved.delta) * isinstance(self.subject, Pure)
        )
        if solve not in possible:
            able = (
                f"it can find {', '.join(possible)}"
                if possible
                else "nothing can be solved for with it"
            )
            raise ShoalError(
                Kind.CONFIG,
                f"--solve {solve} does not go with --mechanism {self.mechanism}: {able}",
            )
        if isinstance(self.subject, Dummies) and self.subject.known:
            raise ShoalError(Kind.CONFIG, f"--solve {solve} finds --{solve}: leave that option out")

    def designed(self, target: float, rounds: int | None) -> tuple[EpsilonRequest, dict[str, int]]:
        """The request with the integers of a mechanism of several messages for ``target``, of
        ``rounds`` together, and these integers. Raises ShoalError CONFIG where there are none.
        """
        if not isinstance(self.subject, Mixture) or self.n is None or self.delta is None:
            raise ShoalError(Kind.INVALID, "a design wants several messages, n and delta")
        subject, parameters = self.subject.designed(self.n, self.delta, self.share, target, rounds)
        return replace(self, subject=subject), parameters

    def solved(
        self, solve: Solved, target: float, rounds: int | None = None
    ) -> tuple[EpsilonRequest, dict[str, float | int]]:
        """The request with the missing number, and that number. Raises ShoalError CONFIG where none
        reaches the target.

        ``rounds``: the target is of so many releases about the same devices together; None: of one.
        """
        subject, epsilon0, n, delta, share = (
            self.subject,
            self.epsilon0,
            self.n,
            self.delta,
            self.share,
        )
        solution: float | int
        if isinstance(subject, Dummies) and n is not None and delta is not None:
            subject, solution = subject.solved(max(1, count_honest(n, share)), target, delta)
        elif not isinstance(subject, Pure):
            raise ShoalError(Kind.INVALID, "a mechanism that nothing can be solved for")
        elif solve is Solved.epsilon0 and n is not None and delta is not None:
            solution = epsilon0 = (
                largest_epsilon0(subject.family, target, delta, n, honest_fraction=share)[0]
                if rounds is None
                else largest_epsilon0_of_rounds(
                    subject.family, target, delta, n, rounds, honest_fraction=share
                )
            )
        elif solve is Solved.n and epsilon0 is not None and delta is not None:
            law = subject.family(epsilon0)
            solution = n = (
                smallest_n(law, target, delta, honest_fraction=share)
                if rounds is None
                else smallest_n_of_rounds(law, target, delta, rounds, honest_fraction=share)
            )
        elif epsilon0 is not None and n is not None:
            law = subject.family(epsilon0)
            solution = delta = (
                smallest_delta(law, target, n, honest_fraction=share)
                if rounds is None
                else smallest_delta_of_rounds(law, target, n, rounds, honest_fraction=share)
            )
        else:
            raise ShoalError(
                Kind.INVALID, "a request lacks more than the number that is solved for"
            )
        return replace(self, subject=subject, epsilon0=epsilon0, n=n, delta=delta), {
            solve.replace("-", "_"): solution
        }

    def bound(self) -> Bound:
        """The certificate. A delta of 0 (solved: the target is epsilon0 or more) is certified at
        the smallest that is computed with.
        """
        if self.n is None or self.delta is None:
            raise ShoalError(Kind.INVALID, "a request is certified when all its numbers are known")
        return self.subject.certify(self.epsilon0, self.n, self.delta or SMALLEST_DELTA, self.share)
