"""Chained unary encoding: a bitmap that a device draws once per value and keeps, and fresh noise on
it in every window.

Arcolezi, Couchot, Al Bouna, Xiao, "Improving the utility of locally differentially private
protocols for longitudinal and multidimensional frequency estimates", Digital Communications and
Networks, 2022: two rounds of unary encoding (``unary``). The *permanent* bits are unary encoding of
the value: the true cell's bit is 1 with probability P1 / 2^64, another's with Q1 / 2^64. A window's
*report* has a bit 1 with probability P2 / 2^64 where the permanent bit is 1, with Q2 / 2^64 where
it is 0. All independent. Each round is symmetric (q = 1 - p) or optimized (p = 1/2), which gives
four names: L-SUE (both symmetric: basic RAPPOR, Erlingsson, Pihur, Korolova, CCS 2014, section 3),
L-OSUE (first optimized, then symmetric: the paper's recommendation), L-OUE, and L-SOUE.

**One report.** A reported bit is 1 with probability, out of 2^128,

    P = P1 P2 + (2^64 - P1) Q2    for the true cell,    Q = Q1 P2 + (2^64 - Q1) Q2    for another,

and the bits stay independent: one report alone is unary encoding with these P and Q, *exactly*.
That is ``privacy``.

**All windows.** They are fresh noise on the permanent bits, so an unchanged value costs what those
cost, ``permanent``: unary encoding with P1 and Q1. Since P lies between P2 and Q2 as Q does,
``privacy`` never costs more (Dwork, McSherry, Nissim, Smith 2006: post-processing).

**What is designed.** epsilon0 is asked of *one report*, as everywhere. The permanent bits get at
most epsilon0 / alpha, the field's convention epsilon_1 = alpha epsilon_infinity: alpha = 1/2 unless
the setting says otherwise, so an unchanged value costs twice epsilon0 over all windows. Smaller
alpha: a smaller error in a window, more given away by many. A report is a bitmap of ceil(k / 8)
bytes; its randomness is one 64-bit word per cell for the permanent bits, then one per cell for the
report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.limits import LIMITS
from shoal.mechanisms.base import Estimate, Family, Parameter, Setting, Tally, invalid
from shoal.mechanisms.categories import unary
from shoal.mechanisms.categories.krr import check_k
from shoal.mechanisms.parts import bitmaps, cells, laws
from shoal.mechanisms.parts.draws import Bits, Draws, Field, Lane
from shoal.mechanisms.parts.intervals import of_counts
from shoal.mechanisms.parts.one_device import OneDevice
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import PureLaw, SymmetricLaw
from shoal.task import MechanismSpec

NAME = "l_unary"
PARAMETERS = (
    Parameter("k", 2, LIMITS.cells, "number of cells of the domain"),
    Parameter(
        "permanent_if_one",
        2,
        WORDS - 1,
        "probability, out of 2^64, that the true cell's permanent bit is 1",
    ),
    Parameter(
        "permanent_if_zero",
        1,
        WORDS - 2,
        "probability, out of 2^64, that another cell's permanent bit is 1",
    ),
    Parameter(
        "report_if_one",
        2,
        WORDS - 1,
        "probability, out of 2^64, that a reported bit is 1 where the permanent one is 1",
    ),
    Parameter(
        "report_if_zero",
        1,
        WORDS - 2,
        "probability, out of 2^64, that a reported bit is 1 where the permanent one is 0",
    ),
)
_BOTH = WORDS**2  # the chain's probabilities are integers out of this
_WORDS_AT_ONCE = 32_768  # 256 KiB: they, and the bits made of them, stay in cache
ALPHA = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class ChainedUnary:
    """``labels``: one per cell. The others out of 2^64, ``..._if_zero`` < ``..._if_one`` each."""

    labels: tuple[str, ...]
    permanent_if_one: int
    permanent_if_zero: int
    report_if_one: int
    report_if_zero: int

    def __post_init__(self) -> None:
        if self.k < 2:
            raise invalid(f'{NAME}: the parameter "k" is {self.k}: it is 2 or more')
        bitmaps.check_k(NAME, self.k)
        for what, one, zero in (
            ("permanent", self.permanent_if_one, self.permanent_if_zero),
            ("report", self.report_if_one, self.report_if_zero),
        ):
            if not 0 < zero < one < WORDS:
                raise invalid(
                    f'{NAME}: the parameters want 0 < "{what}_if_zero" < "{what}_if_one" < 2^64'
                )

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
        """The name and the integers that a task carries: k and the four thresholds."""
        return MechanismSpec.of(
            NAME,
            k=self.k,
            permanent_if_one=self.permanent_if_one,
            permanent_if_zero=self.permanent_if_zero,
            report_if_one=self.report_if_one,
            report_if_zero=self.report_if_zero,
        )

    @property
    def report_size(self) -> int:
        """ceil(k / 8) bytes, one bit per cell."""
        return bitmaps.report_size(self.k)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    # --- a device with a memory (``longitudinal.Longitudinal``) -----------------------------------

    @property
    def keys(self) -> int:
        """Every cell has permanent bits of its own."""
        return self.k

    def choose_one(self, entropy: Entropy) -> bytes:
        """Nothing: b""."""
        return b""

    def key_of(self, choice: bytes, value: int) -> int:
        """The cell itself."""
        _no_choice(choice)
        return cells.check_value(value, self.k)

    def remember_one(self, choice: bytes, key: int, entropy: Entropy) -> bytes:
        """The permanent bits of a cell, as a bitmap of ``report_size`` bytes."""
        _no_choice(choice)
        draws = OneDevice(entropy)
        return draws.bitmap(self._permanent(cells.check_value(key, self.k), draws))

    def report_one(self, choice: bytes, remembered: bytes, entropy: Entropy) -> tuple[bytes, ...]:
        """Fresh noise on every permanent bit. Raises INVALID for another length and for padding
        bits.
        """
        _no_choice(choice)
        bits = bitmaps.unpack(remembered, self.k)
        if bits is None:
            raise invalid(
                f"{NAME}: the permanent answer is no bitmap of {self.k} cells: forget the task, "
                "and begin anew"
            )
        return (self._report(bits, OneDevice(entropy)),)

    def permanent(self) -> SymmetricLaw:
        """The law of the permanent bits: unary encoding with P1 and Q1."""
        return unary.law(self.k, self.permanent_if_one, self.permanent_if_zero)

    def _permanent(self, value: Lane, draws: Draws) -> Bits:
        return draws.coins_but_one(self.k, self.permanent_if_zero, value, self.permanent_if_one)

    def _report(self, permanent: Bits, draws: Draws) -> Field:
        return draws.bitmap(draws.coins_if(permanent, self.report_if_zero, self.report_if_one))

    # --- a report of a device without one ---------------------------------------------------------

    def draw(self, value: Lane, draws: Draws) -> Field:
        """2 k words, whatever the value: the permanent bits' before the report's."""
        return self._report(self._permanent(value, draws), draws)

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws permanent bits and the report's
        bits anew: what a device without a memory sends. Raises INVALID for what is no cell.
        """
        return one_report(self.draw, value, self.k, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(
            self.draw, values, self.k, entropy, self.report_size, _WORDS_AT_ONCE // self.k
        )

    # --- the analyzer's side: unary encoding with the chain's P and Q -----------------------------

    @property
    def chain(self) -> tuple[int, int]:
        """(P, Q) out of 2^128: how likely a reported bit of the true cell, and of another, is 1."""
        return chain(
            self.permanent_if_one, self.permanent_if_zero, self.report_if_one, self.report_if_zero
        )

    @property
    def gap(self) -> float:
        """(P - Q) / 2^128, without cancellation."""
        return (
            (self.permanent_if_one - self.permanent_if_zero)
            * (self.report_if_one - self.report_if_zero)
            / _BOTH
        )

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Any bits of the cells may be set, but no padding bit."""
        return bitmaps.valid(reports, self.k)

    def supports(self, reports: NDArray[np.uint8], cell: int) -> NDArray[np.bool_]:
        """bool[rows]: the reports in which the cell's bit is set."""
        return bitmaps.marked(reports, self.k, cell)

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How many reports have each cell's bit set: int64[k]. Raises INVALID if a row is not
        valid.
        """
        return bitmaps.tally(reports, self.k)

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per cell: (count - n q) / (p - q) with the chain's p and q
        (Arcolezi et al. 2022, equation 7).

        The errors are those of one window. The windows of a memoized task share the noise of the
        permanent bits: the mean of their estimates errs by more than these errors would have it.
        """
        counts, rows, (true, other) = cells.counts_of(tally, self.k), tally.rows, self.chain
        values = (counts - rows * (other / _BOTH)) / self.gap
        stderr = self._stderr(np.clip(values, 0.0, float(rows)), float(rows))
        return Estimate(
            self.labels,
            values,
            stderr,
            *of_counts(counts, rows, true / _BOTH, other / _BOTH, self.gap),
        )

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """A cell's count is the sum of one Bernoulli(p) per device that holds it and one
        Bernoulli(q) per other device.
        """
        holders = cells.check_counts(counts, self.k).astype(np.float64)
        return self._stderr(holders, float(holders.sum()))

    def _stderr(self, holders: NDArray[np.float64], devices: float) -> NDArray[np.float64]:
        """sqrt(holders p (1 - p) + others q (1 - q)) / (p - q), float64[k], 0 <= holders <=
        devices; products are of integers.
        """
        variance_one, variance_zero = (
            chance * (_BOTH - chance) / _BOTH**2 for chance in self.chain
        )
        errors: NDArray[np.float64] = (
            np.sqrt(holders * variance_one + (devices - holders) * variance_zero) / self.gap
        )
        return errors

    def privacy(self) -> SymmetricLaw:
        """Unary encoding with the chain's P and Q: the exact law of one report."""
        true, other = self.chain
        return laws.unary(self.k, Fraction(true, _BOTH), Fraction(other, _BOTH))


def chain(
    permanent_if_one: int, permanent_if_zero: int, report_if_one: int, report_if_zero: int
) -> tuple[int, int]:
    """(P, Q) out of 2^128: P1 P2 + (2^64 - P1) Q2, and the same of Q1. 0 < Q < P < 2^128 where each
    round is that of a ``ChainedUnary``.
    """
    true, other = (
        bit * report_if_one + (WORDS - bit) * report_if_zero
        for bit in (permanent_if_one, permanent_if_zero)
    )
    return true, other


def ratio(
    permanent_if_one: int, permanent_if_zero: int, report_if_one: int, report_if_zero: int
) -> Fraction:
    """e^epsilon0 of one report, exactly: the ``max_ratio`` of ``privacy`` for every k, without the
    classes.
    """
    true, other = chain(permanent_if_one, permanent_if_zero, report_if_one, report_if_zero)
    return Fraction(true * (_BOTH - other), other * (_BOTH - true))


def _no_choice(choice: bytes) -> None:
    if choice:
        raise invalid(f"{NAME}: a device chooses nothing: its choice is empty")


Round = Callable[[int], int]  # Q -> P of a round of unary encoding


def _optimized(_zero: int) -> int:
    return WORDS // 2


def _symmetric(zero: int) -> int:
    return WORDS - zero


def _design(
    first: Round, second: Round, alpha: Fraction, domain: Domain, epsilon0: float
) -> MechanismSpec:
    """The least noise in the permanent bits that keeps epsilon0 / alpha, then the least in the
    reports that keeps epsilon0.
    """
    bitmaps.check_k(NAME, domain.size)
    highest = WORDS // 2 - 1
    zero = least_noise(
        lambda q: PureLaw(unary.ratio(first(q), q)), highest, epsilon0 / float(alpha)
    )
    one = first(zero)
    again = least_noise(lambda q: PureLaw(ratio(one, zero, second(q), q)), highest, epsilon0)
    return MechanismSpec.of(
        NAME,
        k=domain.size,
        permanent_if_one=one,
        permanent_if_zero=zero,
        report_if_one=second(again),
        report_if_zero=again,
    )


def _create(spec: MechanismSpec, domain: Domain) -> ChainedUnary:
    check_k(spec, domain)
    names = ("permanent_if_one", "permanent_if_zero", "report_if_one", "report_if_zero")
    return ChainedUnary(domain.labels, *(spec.get(name) for name in names))


def _settings(domain: Domain) -> tuple[Setting, ...]:
    bitmaps.check_k(NAME, domain.size)
    twice = "an unchanged value costs 2 epsilon0 over all windows"
    return (
        Setting(
            "l_osue",
            f"permanent bits optimized, reports symmetric; {twice}",
            partial(_design, _optimized, _symmetric, ALPHA),
        ),
        Setting(
            "l_sue",
            f"both symmetric, the basic RAPPOR; {twice}",
            partial(_design, _symmetric, _symmetric, ALPHA),
        ),
        Setting(
            "l_oue", f"both optimized; {twice}", partial(_design, _optimized, _optimized, ALPHA)
        ),
        Setting(
            "l_soue",
            f"permanent bits symmetric, reports optimized; {twice}",
            partial(_design, _symmetric, _optimized, ALPHA),
        ),
        *(
            Setting(
                f"alpha={float(alpha):g}",
                f"as l_osue; an unchanged value costs epsilon0 / {float(alpha):g} over all windows",
                partial(_design, _optimized, _symmetric, alpha),
            )
            for alpha in (Fraction(1, 4), Fraction(3, 4))
        ),
    )


FAMILY = Family(
    NAME,
    "chained unary encoding: counts per cell over many windows, permanent noisy bits under fresh "
    "noise",
    PARAMETERS,
    _create,
    _settings,
)
