"""What a release promises, whatever kind of task it is of: one Protocol, three members today.

- ``Certificate``: shuffled reports of one message each. epsilon0, which remains without the
  shuffler, is finite.
- ``MessagesBound``: several messages per device. A message may be the value itself: then epsilon0
  is infinite and all rests on the mixture. Where it is randomized first, epsilon0 is that draw's.
- ``SumBound``: a sum by secure aggregation. What remains under collusion depends on the mode.

Release, lint, explain and planner speak to this Protocol alone. Whoever wants another kind of
promise writes a member and a subclass of ``tests/conformance/guarantee/suite.py``; ``of_task`` says
which kind a task has.

Sums and shuffled reports promise different things to different people, so ``Remaining`` says for
every kind what is left against the analyzer alone, and against both services together. No member
may claim less than the truth there: both figures are upper bounds, and infinity is an honest
answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

from shoal.errors import Kind, ShoalError


@dataclass(frozen=True, slots=True)
class Remaining:
    """What a device keeps when parties work together: an epsilon for each, an upper bound at the
    guarantee's delta; math.inf where nothing is promised. Corrupt devices help every one of them.

    ``analyzer``: against the analyzer alone. ``together``: against shuffler and analyzer together.
    Raises INVALID unless 0 <= analyzer <= together.
    """

    analyzer: float
    together: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.analyzer <= self.together:
            raise ShoalError(
                Kind.INVALID,
                "two parties together know no less than one of them: 0 <= analyzer <= together",
            )


@runtime_checkable
class Guarantee(Protocol):
    """(epsilon, delta) of one release, replace-one. The true epsilon at ``delta`` is proven to lie
    in [epsilon_lower, epsilon_upper], both finite and at least 0.
    """

    @property
    def epsilon_upper(self) -> float:
        """The promise. Direction: upper bound."""
        ...

    @property
    def epsilon_lower(self) -> float:
        """Refuted below this; 0.0 where nothing is known. Direction: lower bound."""
        ...

    @property
    def epsilon0(self) -> float:
        """What a device's own randomness promises by itself; math.inf where it promises nothing.
        Direction: upper bound, at least ``epsilon_upper``.
        """
        ...

    @property
    def delta(self) -> float:
        """In [1e-100, 1)."""
        ...

    @property
    def n(self) -> int:
        """Shuffled reports, devices or survivors that the guarantee is about, at least 1."""
        ...

    @property
    def n_honest(self) -> int:
        """floor(honest_fraction * n), exactly: those that hide one another, the protected one among
        them. What a release calls ``n_certified``.
        """
        ...

    @property
    def honest_fraction(self) -> Fraction:
        """In (0, 1]: assumed, of every batch or round."""
        ...

    @property
    def relation(self) -> str:
        """Which datasets are neighbours: "replace-one"."""
        ...

    @property
    def method(self) -> str:
        """The proof that gave ``epsilon_upper``, by its name in docs/ACCOUNTING.md."""
        ...

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Plain sentences: the numbers are worth nothing without them."""
        ...

    @property
    def remaining(self) -> Remaining:
        """What remains when parties work together."""
        ...

    def to_json(self) -> dict[str, Any]:
        """The stable machine shape; an infinite epsilon is None."""
        ...
