"""Unary encoding: one bit per cell, each flipped by itself, the true cell's with other
probabilities than the rest.

Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation", USENIX
Security 2017, section 4.3. Two choices of the probabilities have names: *symmetric* (SUE, the basic
RAPPOR of one report: Erlingsson, Pihur, Korolova, CCS 2014), and *optimized* (OUE, section 5.1),
which errs least on rare cells under local privacy alone. After shuffling p = 1/2 throws half of
every count away for noise that the other devices would have given: hence the settings with p by
number, which design q alone.

With P = ``one_if_one`` and Q = ``one_if_zero``: the true cell's bit is 1 with probability P / 2^64,
every other bit with probability Q / 2^64, independently. Two inputs differ in two bits, so an
output's probabilities differ by at most

    e^epsilon0 = P (2^64 - Q) / (Q (2^64 - P)), exactly: for the *report*, not for one bit of it.

A report is a bitmap of ceil(k / 8) bytes (``bitmaps``). Its randomness is one 64-bit word per cell,
in the cells' order.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.limits import LIMITS
from shoal.mechanisms.base import Estimate, Family, Parameter, Setting, Tally, invalid
from shoal.mechanisms.categories.krr import check_k
from shoal.mechanisms.parts import bitmaps, cells, laws
from shoal.mechanisms.parts.draws import Draws, Field, Lane
from shoal.mechanisms.parts.intervals import of_counts
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import PureLaw, SymmetricLaw
from shoal.task import MechanismSpec

NAME = "unary"
PARAMETERS = (
    Parameter("k", 2, LIMITS.cells, "number of cells of the domain"),
    Parameter(
        "one_if_one", 2, WORDS - 1, "probability, out of 2^64, that the true cell's bit is 1"
    ),
    Parameter(
        "one_if_zero", 1, WORDS - 2, "probability, out of 2^64, that another cell's bit is 1"
    ),
)
_WORDS_AT_ONCE = 32_768  # 256 KiB: they, and the bits made of them, stay in cache
_FREE = ("0.6", "0.75", "0.9", "0.97", "0.99", "0.999")


@dataclass(frozen=True, slots=True)
class UnaryEncoding:
    """``labels``: one per cell, in the domain's order; 0 < ``one_if_zero`` < ``one_if_one`` < 2^64,
    both out of 2^64.
    """

    labels: tuple[str, ...]
    one_if_one: int
    one_if_zero: int

    def __post_init__(self) -> None:
        if self.k < 2:
            raise invalid(f'{NAME}: the parameter "k" is {self.k}: it is 2 or more')
        bitmaps.check_k(NAME, self.k)
        if not 0 < self.one_if_zero < self.one_if_one < WORDS:
            raise invalid(f'{NAME}: the parameters want 0 < "one_if_zero" < "one_if_one" < 2^64')

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
        """The name and the integers that a task carries: k and both thresholds."""
        return MechanismSpec.of(
            NAME, k=self.k, one_if_one=self.one_if_one, one_if_zero=self.one_if_zero
        )

    @property
    def report_size(self) -> int:
        """ceil(k / 8) bytes, one bit per cell."""
        return bitmaps.report_size(self.k)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    @property
    def gap(self) -> float:
        """P(bit | true cell) - P(bit | other cell) = p - q, from the integers: without
        cancellation.
        """
        return (self.one_if_one - self.one_if_zero) / WORDS

    def draw(self, value: Lane, draws: Draws) -> Field:
        """The same word decides the true cell's bit, whichever cell that is."""
        return draws.bitmap(draws.coins_but_one(self.k, self.one_if_zero, value, self.one_if_one))

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws one word of 8 bytes per cell, k
        in all. Raises INVALID for what is no cell.
        """
        return one_report(self.draw, value, self.k, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(
            self.draw, values, self.k, entropy, self.report_size, _WORDS_AT_ONCE // self.k
        )

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Any bits of the cells may be set, but no padding bit."""
        return bitmaps.valid(reports, self.k)

    def supports(self, reports: NDArray[np.uint8], cell: int) -> NDArray[np.bool_]:
        """bool[rows]: the reports in which the cell's bit is set."""
        return bitmaps.marked(reports, self.k, cell)

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How many reports have each cell's bit set: int64[k], each at most the rows. Raises
        INVALID if a row is not valid.
        """
        return bitmaps.tally(reports, self.k)

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per cell: (count - n q) / (p - q) (Wang et al. 2017, section 4).

        The cells' bits are drawn apart, so the estimates don't add up to the number of reports. In
        the standard errors the unknown numbers are replaced by these estimates, moved into [0, n]
        for the variance alone.
        """
        counts, rows = cells.counts_of(tally, self.k), tally.rows
        values = (counts - rows * (self.one_if_zero / WORDS)) / self.gap
        stderr = self._stderr(np.clip(values, 0.0, float(rows)), float(rows))
        return Estimate(
            self.labels,
            values,
            stderr,
            *of_counts(counts, rows, self.one_if_one / WORDS, self.one_if_zero / WORDS, self.gap),
        )

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """A cell's count is the sum of one Bernoulli(p) per device that holds it and one
        Bernoulli(q) per other device.
        """
        holders = cells.check_counts(counts, self.k).astype(np.float64)
        return self._stderr(holders, float(holders.sum()))

    def _stderr(self, holders: NDArray[np.float64], devices: float) -> NDArray[np.float64]:
        """sqrt(holders p (1 - p) + others q (1 - q)) / (p - q), float64[k], 0 <= holders <=
        devices.

        The products are quotients of integers, since 1 - p from a float p is off by 2^-53, and all
        of it at p near 1; and both terms are added, never subtracted, since their difference would
        lose what a small one says.
        """
        variance_one = self.one_if_one * (WORDS - self.one_if_one) / WORDS**2
        variance_zero = self.one_if_zero * (WORDS - self.one_if_zero) / WORDS**2
        errors: NDArray[np.float64] = (
            np.sqrt(holders * variance_one + (devices - holders) * variance_zero) / self.gap
        )
        return errors

    def privacy(self) -> SymmetricLaw:
        """The law of the whole bitmap, exactly: two inputs differ in two bits."""
        return law(self.k, self.one_if_one, self.one_if_zero)


def law(k: int, one_if_one: int, one_if_zero: int) -> SymmetricLaw:
    """The output law at p = ``one_if_one`` / 2^64 and q = ``one_if_zero`` / 2^64, exactly."""
    return laws.unary(k, Fraction(one_if_one, WORDS), Fraction(one_if_zero, WORDS))


def ratio(one_if_one: int, one_if_zero: int) -> Fraction:
    """e^epsilon0 of a report, exactly: the ``max_ratio`` of ``law`` for every k, without the
    classes. Needs 0 < Q <= P < 2^64.
    """
    return Fraction(one_if_one * (WORDS - one_if_zero), one_if_zero * (WORDS - one_if_one))


def least_one_if_zero(one_if_one: int, epsilon0: float) -> int:
    """The smallest Q whose report at P = ``one_if_one`` keeps epsilon0. Raises INVALID if none
    below P does.
    """
    return least_noise(lambda zero: PureLaw(ratio(one_if_one, zero)), one_if_one - 1, epsilon0)


def least_symmetric(epsilon0: float) -> int:
    """The smallest Q whose report at P = 2^64 - Q keeps epsilon0: both move together, towards 1/2.
    Raises INVALID if none does.
    """
    return least_noise(lambda zero: PureLaw(ratio(WORDS - zero, zero)), WORDS // 2 - 1, epsilon0)


def _create(spec: MechanismSpec, domain: Domain) -> UnaryEncoding:
    check_k(spec, domain)
    return UnaryEncoding(domain.labels, spec.get("one_if_one"), spec.get("one_if_zero"))


def _spec(domain: Domain, one_if_one: int, one_if_zero: int) -> MechanismSpec:
    bitmaps.check_k(NAME, domain.size)
    return MechanismSpec.of(NAME, k=domain.size, one_if_one=one_if_one, one_if_zero=one_if_zero)


def _free(one_if_one: int, domain: Domain, epsilon0: float) -> MechanismSpec:
    return _spec(domain, one_if_one, least_one_if_zero(one_if_one, epsilon0))


def _symmetric(domain: Domain, epsilon0: float) -> MechanismSpec:
    zero = least_symmetric(epsilon0)
    return _spec(domain, WORDS - zero, zero)


def _settings(domain: Domain) -> tuple[Setting, ...]:
    bitmaps.check_k(NAME, domain.size)
    return (
        Setting(
            "oue",
            "optimized: p = 1/2, the least error on rare cells without shuffling",
            partial(_free, WORDS // 2),
        ),
        Setting("sue", "symmetric: q = 1 - p, the basic RAPPOR", _symmetric),
        *(
            Setting(
                f"p={p}",
                f"the true cell's bit is 1 with probability {p}",
                partial(_free, int(Fraction(p) * WORDS)),
            )
            for p in _FREE
        ),
    )


FAMILY = Family(
    NAME,
    "unary encoding: how many devices are in each cell, one noisy bit per cell",
    PARAMETERS,
    _create,
    _settings,
)
