"""k-ary randomized response: the truth, or with some probability a cell drawn uniformly from all k.

Kairouz, Bonawitz, Ramage, "Discrete distribution estimation under local privacy", ICML 2016 (there:
with probability e^eps / (e^eps + k - 1) the truth, else another cell; the same law, drawn here from
one threshold). In the shuffle model it is the right single-message randomizer for counts beyond a
few 10,000 devices: its "uniform" reports are the privacy blanket (Balle, Bell, Gascon, Nissim
2019).

With T = ``uniform``: a report is the truth with probability (2^64 - T) / 2^64 and uniform over all
k cells, the true one included, with probability T / 2^64. In integers out of k * 2^64 the true cell
has weight k (2^64 - T) + T and each other cell T.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.limits import LIMITS
from shoal.mechanisms.base import Estimate, Family, Parameter, Tally, invalid, only
from shoal.mechanisms.parts import cells
from shoal.mechanisms.parts.draws import Draws, Field, Lane
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import KaryLaw
from shoal.task import MechanismSpec

NAME = "krr"
PARAMETERS = (
    Parameter("k", 2, LIMITS.cells, "number of cells of the domain"),
    Parameter(
        "uniform",
        1,
        WORDS - 1,
        "probability, out of 2^64, that the report is uniform over all cells",
    ),
)


@dataclass(frozen=True, slots=True)
class KaryResponse:
    """``labels``: one per cell, in the domain's order; ``uniform``: T out of 2^64."""

    labels: tuple[str, ...]
    uniform: int

    def __post_init__(self) -> None:
        if not 2 <= len(self.labels) <= 1 << 32:
            raise invalid("k is 2 to 2^32 cells")
        if not 1 <= self.uniform < WORDS:
            raise invalid("uniform is 1 to 2^64 - 1")

    @property
    def k(self) -> int:
        """Cells of the domain, at least 2."""
        return len(self.labels)

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return NAME

    @property
    def spec(self) -> MechanismSpec:
        """The name and the integers that a task carries: k and ``uniform``."""
        return MechanismSpec.of(NAME, k=self.k, uniform=self.uniform)

    @property
    def report_size(self) -> int:
        """Bytes of a report, the cell reported: 1 for k <= 256, 2 for k <= 65,536, else 4."""
        return cells.report_size(self.k)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    @property
    def blanket(self) -> float:
        """The probability that a report is uniform."""
        return self.uniform / WORDS

    @property
    def gap(self) -> float:
        """P(report v | v) - P(report v | not v) = 1 - blanket, without cancellation."""
        return (WORDS - self.uniform) / WORDS

    def draw(self, value: Lane, draws: Draws) -> Field:
        """Both draws are made for every device: time and entropy used don't tell which counted."""
        uniform = draws.coin(self.uniform)
        return draws.number(draws.where(uniform, draws.below(self.k), value), self.report_size)

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws a word of 8 bytes and a uniform
        cell, whichever of them is used. Raises INVALID for what is no cell.
        """
        return one_report(self.draw, value, self.k, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(self.draw, values, self.k, entropy, self.report_size)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: the reports of uint8[rows, report_size] that name a cell below k."""
        return cells.valid(reports, self.k)

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How often each cell was reported: int64[k]. Raises INVALID if a row is not valid."""
        return cells.tally(reports, self.k)

    def devices(self, tally: Tally) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(devices per cell, standard errors), float64[k]. Raises INVALID for another number of
        cells.
        """
        other_chance = self.blanket / self.k
        return cells.unbiased(
            cells.counts_of(tally, self.k),
            tally.rows,
            self.gap + other_chance,
            other_chance,
            self.gap,
        )

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per cell."""
        other_chance = self.blanket / self.k
        return cells.estimated(
            self.labels,
            cells.counts_of(tally, self.k),
            tally.rows,
            self.gap + other_chance,
            other_chance,
            self.gap,
        )

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[k]: exact standard errors, in devices, when ``counts`` (int64[k]) hold each cell.
        Raises INVALID for another number of cells.
        """
        other_chance = self.blanket / self.k
        return cells.expected(counts, self.k, self.gap + other_chance, other_chance, self.gap)

    def expected_stderr_of(self, counts: NDArray[np.int64], cell: int) -> float:
        """``expected_stderr`` of one cell, to the bit, in a fraction of the time."""
        other_chance = self.blanket / self.k
        return cells.expected_of(
            counts, self.k, self.gap + other_chance, other_chance, self.gap, cell
        )

    def privacy(self) -> KaryLaw:
        """The law that ``draw`` has, in weights out of k 2^64: ratio of the two weights =
        e^epsilon0, exactly.
        """
        return law(self.k, self.uniform)


def law(k: int, uniform: int) -> KaryLaw:
    """The output law at T = ``uniform``: integers out of k * 2^64."""
    return KaryLaw(k, same=k * (WORDS - uniform) + uniform, other=uniform)


def least_uniform(k: int, epsilon0: float) -> int:
    """The smallest T whose law over k cells keeps epsilon0. Raises INVALID if none does."""
    return least_noise(lambda uniform: law(k, uniform), WORDS - 1, epsilon0)


def check_k(spec: MechanismSpec, domain: Domain) -> None:
    """Raises INVALID unless the spec's k is the number of the domain's cells."""
    if spec.get("k") != domain.size:
        raise invalid(
            f'{spec.name}: the parameter "k" is {spec.get("k")}, but the domain has {domain.size} '
            f"cells: set k = {domain.size}"
        )


def _create(spec: MechanismSpec, domain: Domain) -> KaryResponse:
    check_k(spec, domain)
    return KaryResponse(domain.labels, spec.get("uniform"))


def _design(domain: Domain, epsilon0: float) -> MechanismSpec:
    return MechanismSpec.of(NAME, k=domain.size, uniform=least_uniform(domain.size, epsilon0))


FAMILY = Family(
    NAME,
    "k-ary randomized response: how many devices are in each cell",
    PARAMETERS,
    _create,
    only(_design),
)
