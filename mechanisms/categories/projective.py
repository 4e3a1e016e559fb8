"""Projective geometry response: one point of a projective space over a field of q elements, more
likely one of the hyperplane that belongs to the true cell.

Feldman, Nelson, Nguyen, Talwar, "Private frequency estimation via projective geometry", ICML 2022,
arXiv 2203.00194, sections 2 and 3. With q near e^epsilon0 + 1 it errs as subset selection with k /
q cells does, in reports of about log2 k bits, for any number of cells.

The field is the numbers modulo a prime q = ``field``. Points are the vectors of t numbers whose
first one that is not 0 is 1, t the least number from 2 on for which they are enough for k cells;
there are K = (q^t - 1) / (q - 1). They are numbered as the numbers that they spell in base q rise.
Cell x is point x. Its *support* are the points y with <x, y> = 0 modulo q, and there are c = (q^(t
- 1) - 1) / (q - 1) of them; two different cells share (q^(t - 2) - 1) / (q - 1). With I =
``include``: the report is a point of the support with probability I / 2^64, exactly, else one of
the q^(t - 1) others; uniform either way. So a point of the support is

    ratio = I q^(t - 1) / ((2^64 - I) c)

times as likely as another, exactly. A report is the point's number, big-endian in as few bytes as
hold K - 1. (t = 2 is k-ary randomized response with q + 1 answers.)

**Privacy.** Any two cells share equally many points, so all pairs look alike, and the law is that
of four classes: in both supports, in one, in the other, in neither. Three cells may lie on a line
or not, so the law says nothing of a third, and lower bounds are of three of the task's own cells.
The least weight is exact: no point is in the support of every cell. For the first c points span all
vectors that begin with 0, and k is more than c, so one cell at least is not among them.

**The estimate.** The count of a cell is that of reports in its support: one Bernoulli(p) per device
that holds it, one Bernoulli(b) per other device, as in subset selection. All k counts come from one
discrete Fourier transform. Let g(y) be the reports of the point of y's line, for the vectors y that
are not 0, and g(0) = 0. At x its transform is the sum over points of h(y) (q - 1) for those of the
support and -h(y) for the others, which is q C(x) - n. Counts are whole, so what floats lose is
rounded away: they lose some 1e-15 of q n, and half of q would be needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.limits import LIMITS
from shoal.mechanisms.base import Estimate, Family, Parameter, Setting, Tally, invalid
from shoal.mechanisms.categories.krr import check_k
from shoal.mechanisms.parts import cells, laws, numbered
from shoal.mechanisms.parts.draws import Draws, Field, Lane
from shoal.mechanisms.parts.projective_space import MOST_VECTORS, Space
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import FiniteLaw, PureLaw, SymmetricLaw
from shoal.task import MechanismSpec

NAME = "projective"
_LEAST = 3  # cells: of two a third point would tell nothing
PARAMETERS = (
    Parameter("field", 2, math.isqrt(MOST_VECTORS), "elements of the field, a prime"),
    Parameter(
        "include",
        1,
        WORDS - 1,
        "probability, out of 2^64, that the report lies in the true cell's support",
    ),
    Parameter("k", _LEAST, LIMITS.cells, "number of cells of the domain"),
)
# About twice the one before: errors change little between.
_FIELDS = (2, 3, 5, 7, 11, 17, 37, 67, 127, 251)


@dataclass(frozen=True, slots=True)
class ProjectiveResponse:
    """``labels``: one per cell, in the domain's order; ``field``: q, a prime; ``include``: I out of
    2^64.
    """

    labels: tuple[str, ...]
    field: int
    include: int

    def __post_init__(self) -> None:
        _check_enough(self.k)
        space = Space.of(self.field, self.k)
        if not 1 <= self.include < WORDS or ratio(space, self.include) <= 1:
            raise invalid(
                f'{NAME}: the parameter "include" is below 2^64 and above the support\'s share of '
                "the points"
            )

    @property
    def k(self) -> int:
        """Cells of the domain, at least 3."""
        return len(self.labels)

    @property
    def space(self) -> Space:
        """The points: the least space over the field that has k of them."""
        return Space.of(self.field, self.k)

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return NAME

    @property
    def spec(self) -> MechanismSpec:
        """The name and the integers that a task carries: ``field``, ``include`` and k."""
        return MechanismSpec.of(NAME, field=self.field, include=self.include, k=self.k)

    @property
    def report_size(self) -> int:
        """As few bytes as hold the number of a point: 1 to 3."""
        return numbered.report_size(self.space.points)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    @property
    def _chances(self) -> tuple[float, float, float]:
        """(p, b, p - b): the report lies in a cell's support if the device holds the cell, if it
        does not, and the difference without cancellation.
        """
        other, gap = chances(self.space, self.include)
        return self.include / WORDS, float(other), float(gap)

    def draw(self, value: Lane, draws: Draws) -> Field:
        """A coin, a point of the support and one outside, whichever is sent."""
        space = self.space
        included = draws.coin(self.include)
        inside, outside = draws.below(space.support), draws.below(space.others)
        point = space.solution(draws, value, included, inside, outside)
        return draws.number(point, self.report_size)

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws the coin and both points,
        whichever is sent. Raises INVALID for what is no cell.
        """
        return one_report(self.draw, value, self.k, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(self.draw, values, self.k, entropy, self.report_size)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: the report is the number of a point."""
        return numbered.valid(reports, self.space.points)

    def supports(self, reports: NDArray[np.uint8], cell: int) -> NDArray[np.bool_]:
        """bool[rows]: the reports that lie in the cell's support. Of valid reports."""
        space = self.space
        points = numbered.decode(reports, space.points).astype(np.int64)
        supported: NDArray[np.bool_] = np.equal(
            space.product(space.vector(cell), space.vector(points)), 0
        )
        return supported

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How often each point was reported: K entries."""
        return numbered.tally(reports, self.space.points)

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per cell."""
        reported = cells.counts_of(tally, self.space.points)
        supported = self.space.sums(reported, tally.rows)[: self.k]
        return cells.estimated(self.labels, supported, tally.rows, *self._chances)

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[k]: exact standard errors, in devices, when ``counts`` (int64[k]) hold each cell.
        Raises INVALID for another number of cells.
        """
        return cells.expected(counts, self.k, *self._chances)

    def privacy(self) -> SymmetricLaw:
        """The law of one point, exactly: those of the support are e^epsilon0 times as likely as
        the others, and any two supports meet in as many. ``real`` names cells, for lower bounds.
        """
        space = self.space
        factor = ratio(space, self.include)
        law = laws.integers(
            (count * _weight(first, factor), count * _weight(second, factor), count, None)
            for (first, second), count in _patterns(space, 2)
        )
        return replace(law, real=_SomeCells(space, factor))


@dataclass(frozen=True, slots=True)
class _SomeCells:
    """``RealPair``: cells 0 and 1; for the others cell q + 1, whose vector is independent of theirs
    where t is 3 or more, and cell 2, whose vector is the sum of theirs. (t = 2: cell 2 alone.)

    Who answers cell 2 reports a point that supports just one of the first two as rarely as anybody
    can: these are the points that tell them apart. So such a dataset hides nearly as little as the
    blanket says.
    """

    space: Space
    factor: Fraction

    def law(self) -> FiniteLaw:
        """Three rows or four, of the points' classes under each."""
        space, factor = self.space, self.factor
        total = factor * space.support + space.others
        return laws.table_of(
            tuple(count * _weight(each, factor) / total for each in pattern)
            for pattern, count in _with_sum(space)
        )


def _with_sum(space: Space) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """``_patterns`` of three cells, and whether a point supports the cell whose vector is the sum
    of the first two: where both of its products are 0, or neither is and they cancel, as one in
    q - 1 do, whatever the product with the third cell is.
    """
    for pattern, count in _patterns(space, 3):
        if space.width == 2:  # the third is that cell
            yield pattern, count
            continue
        both, neither = pattern[:2] == (1, 1), pattern[:2] == (0, 0)
        cancel = Fraction(int(both)) if not neither else Fraction(1, space.field - 1)
        for one, share in ((1, cancel), (0, 1 - cancel)):
            if share:
                yield (*pattern, one), count * share


def _weight(supported: int, factor: Fraction) -> Fraction:
    return factor if supported else Fraction(1)


def _patterns(space: Space, fixed: int) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Which of two cells, or of three whose vectors are independent, a point supports, and how many
    such points there are (by inclusion and exclusion), if any.
    """
    common = [space.common(count) for count in range(fixed + 1)]
    for pattern in product((1, 0), repeat=fixed):
        inside, rest = sum(pattern), fixed - sum(pattern)
        count = sum(
            (-1) ** more * math.comb(rest, more) * common[inside + more] for more in range(rest + 1)
        )
        if count:
            yield pattern, Fraction(count)


def ratio(space: Space, include: int) -> Fraction:
    """How many times as likely a point of the support is as another, exactly."""
    return Fraction(include * space.others, (WORDS - include) * space.support)


def chances(space: Space, include: int) -> tuple[Fraction, Fraction]:
    """(b, p - b), exactly: the report of a device with another cell lies in a cell's support, and
    how much more likely that of a device with this cell does.
    """
    p = Fraction(include, WORDS)
    other = p * space.shared / space.support + (1 - p) / space.field
    return other, p - other


def most_include(space: Space, epsilon0: float) -> int:
    """The largest I that keeps epsilon0. Raises INVALID if none above the support's share of the
    points does.
    """
    most_left_out = (WORDS * space.others - 1) // space.points
    return WORDS - least_noise(
        lambda left_out: PureLaw(ratio(space, WORDS - left_out)), most_left_out, epsilon0
    )


def variance(space: Space, include: int, k: int) -> Fraction:
    """Variance of one cell's estimate per device, exactly, averaged over the k cells: (p (1 - p) +
    (k - 1) b (1 - b)) / (k (p - b)^2).
    """
    p = Fraction(include, WORDS)
    other, gap = chances(space, include)
    return (p * (1 - p) + (k - 1) * other * (1 - other)) / (k * gap**2)


def fields(k: int) -> list[int]:
    """The primes q from which a design chooses, rising: q + 1 < k, so that a support is more than
    a point and this is not ``krr``, and not too many vectors. 2 is always among them, and for k =
    3 (which is ``krr``) alone.
    """
    # t is 3 or more, so none above the cube root of the most vectors
    return [q for q in range(2, max(3, min(k - 1, 257))) if Space.fits(q, k)]


def best_field(k: int, epsilon0: float) -> int:
    """The field of least ``variance``: near e^epsilon0 + 1 (section 2 of the paper) where k is
    large. Floats say which three are looked at exactly.
    """
    e = math.exp(min(epsilon0, 600.0))

    def roughly(q: int) -> float:
        """The variance but for what all fields have in common: p - b is q^(t - 2) (e - 1) over
        ``total``.
        """
        space = Space.of(q, k)
        total = e * space.support + space.others
        p = e * space.support / total
        other = p * space.shared / space.support + (1.0 - p) / q
        noise = p * (1.0 - p) + (k - 1) * other * (1.0 - other)
        return math.sqrt(noise) * (total * q / space.others)

    def exactly(q: int) -> Fraction:
        space = Space.of(q, k)
        return variance(space, most_include(space, epsilon0), k)

    return min(sorted(fields(k), key=roughly)[:3], key=exactly)


def _check_enough(k: int) -> None:
    if k < _LEAST:
        raise invalid(f"{NAME} wants {_LEAST} cells or more: take binary_rr, or krr, for {k}")


def _spec(q: int, domain: Domain, epsilon0: float) -> MechanismSpec:
    k = domain.size
    return MechanismSpec.of(NAME, field=q, include=most_include(Space.of(q, k), epsilon0), k=k)


def _standard(domain: Domain, epsilon0: float) -> MechanismSpec:
    if not (math.isfinite(epsilon0) and epsilon0 > 0):
        raise invalid("epsilon0 is a finite number above 0: give one, such as 2")
    return _spec(best_field(domain.size, epsilon0), domain, epsilon0)


def _settings(domain: Domain) -> tuple[Setting, ...]:
    """The field of least error under local privacy first, then q = 2, 3, 5, 7, 11, 17, ...

    Raises INVALID for fewer than 3 cells.
    """
    _check_enough(domain.size)
    possible = set(fields(domain.size))
    return (
        Setting(
            "standard",
            "the field of least error for one report under local privacy, about e^epsilon0 + 1",
            _standard,
        ),
        *(
            Setting(f"q={q}", f"supports of one in {q} points", partial(_spec, q))
            for q in _FIELDS
            if q in possible
        ),
    )


def _create(spec: MechanismSpec, domain: Domain) -> ProjectiveResponse:
    check_k(spec, domain)
    return ProjectiveResponse(domain.labels, spec.get("field"), spec.get("include"))


FAMILY = Family(
    NAME,
    "projective geometry response: how many devices are in each cell, as subset selection in a "
    "few bytes",
    PARAMETERS,
    _create,
    _settings,
)
