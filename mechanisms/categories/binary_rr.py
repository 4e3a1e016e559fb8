"""Binary randomized response with any bias: a yes/no question.

Warner, "Randomized response: a survey technique for eliminating evasive answer bias", 1965. The
classic two-coin form (first coin heads: the truth; else the second coin answers) says yes with
probability 3/4 after a yes and 1/4 after a no: epsilon0 = ln 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.arrays import NDArray, np
from shoal.domain import Domain, YesNo
from shoal.entropy import Entropy
from shoal.mechanisms.base import Estimate, Family, Parameter, Tally, invalid, only
from shoal.mechanisms.parts import cells
from shoal.mechanisms.parts.draws import Draws, Field, Lane
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import FiniteLaw, KaryLaw
from shoal.task import MechanismSpec

NAME = "binary_rr"
PARAMETERS = (
    Parameter(
        "yes_if_no",
        1,
        WORDS - 2,
        "probability, out of 2^64, of reporting yes when the answer is no",
    ),
    Parameter(
        "yes_if_yes",
        2,
        WORDS - 1,
        "probability, out of 2^64, of reporting yes when the answer is yes",
    ),
)
# words: 256 KiB. Less arithmetic than elsewhere is done with each, so that the call for half as
# many would be felt
_BLOCK = 32_768


@dataclass(frozen=True, slots=True)
class BinaryResponse:
    """0 < yes_if_no < yes_if_yes < 2^64. A report is one byte: 0 no, 1 yes."""

    yes_if_yes: int
    yes_if_no: int
    labels: tuple[str, str] = ("no", "yes")

    def __post_init__(self) -> None:
        if not 0 < self.yes_if_no < self.yes_if_yes < WORDS:
            raise invalid(f'{NAME}: the parameters want 0 < "yes_if_no" < "yes_if_yes" < 2^64')

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return NAME

    @property
    def spec(self) -> MechanismSpec:
        """The name and the integers that a task carries: both thresholds."""
        return MechanismSpec.of(NAME, yes_if_yes=self.yes_if_yes, yes_if_no=self.yes_if_no)

    @property
    def report_size(self) -> int:
        """1 byte: 0 for no, 1 for yes."""
        return 1

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    def draw(self, value: Lane, draws: Draws) -> Field:
        """One word against the threshold of the answer."""
        return draws.number(draws.coin_if(value, self.yes_if_no, self.yes_if_yes), 1)

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws one word of 8 bytes. Raises
        INVALID for what is no cell.
        """
        return one_report(self.draw, value, 2, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(self.draw, values, 2, entropy, self.report_size, _BLOCK)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: the reports of uint8[rows, 1] that are 0 or 1."""
        return cells.valid(reports, 2)

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How many reports say no, and yes: int64[2]. Raises INVALID if a row is not valid."""
        return cells.tally(reports, 2)

    def estimate(self, tally: Tally) -> Estimate:
        """("no", "yes"): numbers of devices."""
        counts = cells.counts_of(tally, 2)
        gap = (self.yes_if_yes - self.yes_if_no) / WORDS
        yes = cells.estimated(
            self.labels[1:],
            counts[1:],
            tally.rows,
            self.yes_if_yes / WORDS,
            self.yes_if_no / WORDS,
            gap,
        )
        rows, both = tally.rows, np.concatenate
        values, stderr = both((rows - yes.values, yes.values)), both((yes.stderr, yes.stderr))
        return Estimate(
            self.labels,
            values,
            stderr,
            both((rows - yes.ci_high, yes.ci_low)),
            both((rows - yes.ci_low, yes.ci_high)),
        )

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Both estimates err alike: they add up to the number of reports."""
        cells.check_counts(counts, 2)
        # Products of integers: 1 - p in floats would lose what little noise there is at a large
        # epsilon0.
        yes, no = (
            chance * (WORDS - chance) / WORDS**2 for chance in (self.yes_if_yes, self.yes_if_no)
        )
        error: NDArray[np.float64] = np.sqrt(counts[1] * yes + counts[0] * no) / (
            (self.yes_if_yes - self.yes_if_no) / WORDS
        )
        return np.array([error, error])

    def privacy(self) -> KaryLaw | FiniteLaw:
        """KaryLaw(2) when yes and no are treated alike, else the 2 x 2 table: rows are inputs,
        columns outputs, (no, yes).
        """
        if self.yes_if_yes + self.yes_if_no == WORDS:
            return KaryLaw(2, same=self.yes_if_yes, other=self.yes_if_no)
        return FiniteLaw(
            ((WORDS - self.yes_if_no, self.yes_if_no), (WORDS - self.yes_if_yes, self.yes_if_yes))
        )


def two_coin() -> MechanismSpec:
    """The classic: first coin heads, the truth; tails, the second coin's answer. epsilon0 = ln 3,
    exactly: 3/4 over 1/4.
    """
    return MechanismSpec.of(NAME, yes_if_yes=3 * (WORDS // 4), yes_if_no=WORDS // 4)


def symmetric(epsilon0: float) -> MechanismSpec:
    """Yes and no flipped with the same probability, the smallest that keeps epsilon0. Raises
    INVALID if none does.
    """
    flip = least_noise(lambda t: KaryLaw(2, same=WORDS - t, other=t), WORDS // 2 - 1, epsilon0)
    return MechanismSpec.of(NAME, yes_if_yes=WORDS - flip, yes_if_no=flip)


def _yes_no(domain: Domain) -> YesNo:
    if not isinstance(domain, YesNo):
        raise invalid(f"{NAME} wants a yes/no domain: use krr for categories and kmean for numbers")
    return domain


def _create(spec: MechanismSpec, domain: Domain) -> BinaryResponse:
    _yes_no(domain)
    return BinaryResponse(spec.get("yes_if_yes"), spec.get("yes_if_no"))


def _design(domain: Domain, epsilon0: float) -> MechanismSpec:
    _yes_no(domain)
    return symmetric(epsilon0)


FAMILY = Family(
    NAME,
    "binary randomized response: how many devices say yes",
    PARAMETERS,
    _create,
    only(_design, _yes_no),
)
