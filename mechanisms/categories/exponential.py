"""The local exponential mechanism for ordered categories: a cell is reported in the place of the
true one the less likely, the further off.

McSherry, Talwar, "Mechanism design via differential privacy", FOCS 2007, with the negative distance
for the utility:

    P(y | x) = a^d(x, y) / Z(x),  Z(x) = sum over y of a^d(x, y),  a = decay / 2^64.

d is |x - y| on a *line* of categories (ages, sizes), and the shorter way around on a *circle* of
them (hours of a day, months, directions). "No answer" is a cell like the others, as far from every
category as two categories can be.

**Tight.** The general theorem takes a = exp(-epsilon0 / (2 max d)): one half for the distance, one
for Z, which may differ between cells. Here epsilon0 is read off the integers of the table, Z and
all, and ``decay`` is the smallest that keeps it. On a circle, where Z is nearly the same for all
cells, that is about half of the noise.

**When.** If each single report should be near the truth, and neighbours must hide each other better
than distant cells do: their ratio is about e^(epsilon0 / max d), so that a cell is told to within a
few cells and no further. *Not* to count: at equal epsilon0 ``krr`` errs less in every cell, and in
totals over a third of the cells as well, at 6 to 256 cells and epsilon0 0.5 to 20. (6 cells on a
line, epsilon0 1, 6,000 devices: 715 in a cell and 604 in a range, with ``krr`` 126 and 160; at 3
cells they are the same.) Neighbours have to be told apart that the reports hardly tell apart. Use
``covariance`` for the error of a range. For categories without an order all distances are 1, and
that is ``krr``.

Counts are unbiased: the table is solved for them (``parts.solved``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from shoal.arrays import NDArray, np
from shoal.domain import Categories, Domain, Numeric
from shoal.mechanisms.base import Family, Parameter, Setting, invalid
from shoal.mechanisms.categories.krr import check_k
from shoal.mechanisms.parts.decay import least_noise_of_rows, powers
from shoal.mechanisms.parts.solved import SolvedResponse
from shoal.mechanisms.parts.tables import ProbabilityTable, TableResponse, check_entries, row
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.task import MechanismSpec

NAME = "exponential"
PARAMETERS = (
    Parameter(
        "circle",
        0,
        1,
        "1 if the last category is a neighbour of the first, 0 if they are furthest apart",
    ),
    Parameter(
        "decay",
        1,
        WORDS - 1,
        "by how much, out of 2^64, a cell one step further off is less likely",
    ),
    Parameter("k", 3, 256, "number of cells of the domain, with no answer"),
)


@dataclass(frozen=True, slots=True)
class ExponentialResponse(SolvedResponse):
    """``labels``: one per cell, the last for "no answer", 3 to 256; ``circle``: 0 or 1; 1 <=
    ``decay`` < 2^64.
    """

    labels: tuple[str, ...]
    circle: int
    decay: int
    response: TableResponse = field(init=False, repr=False, compare=False)
    _solved: list[NDArray[np.float64]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        cells = range(len(self.labels))
        table = ProbabilityTable(
            tuple(row(each) for each in weights(len(cells), self.circle, self.decay, cells))
        )
        object.__setattr__(self, "response", TableResponse(table))
        object.__setattr__(self, "_solved", [])

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return NAME

    @property
    def spec(self) -> MechanismSpec:
        """The name and the integers that a task carries: k, ``decay`` and ``circle``."""
        return MechanismSpec.of(NAME, circle=self.circle, decay=self.decay, k=len(self.labels))


def weights(k: int, circle: int, decay: int, cells: Sequence[int]) -> list[list[int]]:
    """Of the k outputs, for each of these cells, out of 2^BITS; the last cell and output is "no
    answer".
    """
    last = k - 1
    furthest = last // 2 if circle else last - 1
    steps = powers(decay, furthest + 1)

    def distance(x: int, y: int) -> int:
        if last in {x, y}:
            return 0 if x == y else furthest
        return min(abs(x - y), last - abs(x - y)) if circle else abs(x - y)

    return [[steps[distance(x, y)] for y in range(k)] for x in cells]


def _checked(domain: Domain) -> Categories | Numeric:
    if not isinstance(domain, Categories | Numeric):
        raise invalid(
            f"{NAME} wants ordered categories or a numeric domain: use binary_rr for yes/no"
        )
    check_entries(domain.size, domain.size)
    return domain


def _create(spec: MechanismSpec, domain: Domain) -> ExponentialResponse:
    known = _checked(domain)
    check_k(spec, known)
    return ExponentialResponse(known.labels, spec.get("circle"), spec.get("decay"))


def _design(circle: int, domain: Domain, epsilon0: float) -> MechanismSpec:
    """Raises INVALID where no counts could be made of the reports."""
    known = _checked(domain)

    def rows_at(decay: int, cells: Sequence[int]) -> list[list[int]]:
        return weights(known.size, circle, decay, cells)

    response = ExponentialResponse(
        known.labels, circle, least_noise_of_rows(rows_at, known.size, WORDS - 1, epsilon0)
    )
    response.scores()
    return response.spec


def _settings(domain: Domain) -> tuple[Setting, ...]:
    _checked(domain)
    return (
        Setting(
            "line", "ordered categories, the first and the last furthest apart", partial(_design, 0)
        ),
        Setting(
            "circle",
            "categories in a circle, the last a neighbour of the first",
            partial(_design, 1),
        ),
    )


FAMILY = Family(
    NAME,
    "the exponential mechanism: ordered categories, told to within a few cells",
    PARAMETERS,
    _create,
    _settings,
)
