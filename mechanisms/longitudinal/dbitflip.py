"""dBitFlip: a device picks d of the b buckets once, and says in each window which of those is its
own, every bit flipped by itself.

Ding, Kulkarni, Yekhanin, "Collecting Telemetry Data Privately", NeurIPS 2017, section 3
(Microsoft's histograms; the cells of the domain are its b buckets). The d buckets are drawn without
looking at the value, uniformly among all sets of d. The bit of a chosen bucket is 1 with
probability 1 - Q / 2^64 if the value lies in it, else with probability Q / 2^64, Q = ``flip``. A
report is the d buckets in rising order, each in 1, 2 or 4 bytes, and a bitmap of d bits in ceil(d /
8) bytes: which buckets were chosen is public, and the same size for all.

**Privacy.** Let S be the set and, with s = (2^64 - Q) / Q, let an output be as likely as its S
times the flips that make it. An input in S multiplies that by s where its bit is 1 and by 1 / s
where it is 0, one outside of S by 1. So for two inputs that an output was drawn from: both in S,
s^2 at most; one of them, s; none, 1. Renaming buckets leaves the law of the sets as it is, so every
pair (and triple) of inputs looks alike, and

    e^epsilon0 = s for d = 1, s^2 for d >= 2, exactly.

(The paper's e^(epsilon/2) / (e^(epsilon/2) + 1) is right for d >= 2; for d = 1 it spends half of
epsilon, so here d = 1 gets more.)

**Memory.** The set is drawn once per device and task. Values outside of it share one permanent
answer, so there are d + 1 of them (d if all buckets are chosen): few. A report *is* the permanent
answer, without further noise: ``permanent`` and ``privacy`` are one law. A device that keeps its
answers gives away, over all windows, epsilon0 for an unchanged value; and its set tells it from
other devices: C(b, d) are possible.

**Estimate.** Only devices that chose a bucket speak of it; they are a uniform sample of all that
report. With m of n reports that chose bucket j, c of them with its bit at 1, and q = Q / 2^64: n (c
/ m - q) / (1 - 2 q), unbiased given m >= 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from math import comb

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.limits import LIMITS
from shoal.mechanisms.base import Estimate, Family, Parameter, Setting, Tally, Z, invalid
from shoal.mechanisms.categories.krr import check_k
from shoal.mechanisms.parts import bitmaps, cells, laws
from shoal.mechanisms.parts.draws import Bits, Draws, Field, Lane
from shoal.mechanisms.parts.intervals import shift
from shoal.mechanisms.parts.one_device import OneDevice
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.sampling import blocks
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import PureLaw, SymmetricLaw
from shoal.task import MechanismSpec

NAME = "dbitflip"
PARAMETERS = (
    Parameter("d", 1, LIMITS.cells, "buckets that a device chooses"),
    Parameter(
        "flip", 1, WORDS // 2 - 1, "probability, out of 2^64, that a bit is not what the value says"
    ),
    Parameter("k", 2, LIMITS.cells, "number of cells of the domain: the buckets"),
)
_MARKS = 131_072  # cells of all rows of a block
# Of so few bits all ones are likely enough to be told apart in the law; beyond, their least weight
# is stated smaller than it is.
_MOST_TOLD = 16


@dataclass(frozen=True, slots=True)
class DBitFlip:
    """``labels``: one per bucket; 1 <= ``d`` <= k; 0 < ``flip`` < 2^63, out of 2^64."""

    labels: tuple[str, ...]
    d: int
    flip: int

    def __post_init__(self) -> None:
        if self.k < 2:
            raise invalid(f'{NAME}: the parameter "k" is {self.k}: it is 2 or more')
        if not 1 <= self.d <= self.k:
            raise invalid(f'{NAME}: the parameter "d" is {self.d}: it is 1 to k = {self.k}')
        if not 0 < self.flip < WORDS // 2:
            raise invalid(f'{NAME}: the parameter "flip" is above 0 and below 2^63')
        check_size(self.k, self.d)

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
        """The name and the integers that a task carries: k, ``d`` and ``flip``."""
        return MechanismSpec.of(NAME, d=self.d, flip=self.flip, k=self.k)

    @property
    def _width(self) -> int:
        """Bytes of one bucket's number."""
        return cells.report_size(self.k)

    @property
    def report_size(self) -> int:
        """d bucket numbers of 1, 2 or 4 bytes each, and a bitmap of d bits."""
        return report_size(self.k, self.d)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    # --- a device with a memory (``longitudinal.Longitudinal``) -----------------------------------

    @property
    def keys(self) -> int:
        """One for each chosen bucket, and one for all others."""
        return min(self.d + 1, self.k)

    def choose_one(self, entropy: Entropy) -> bytes:
        """d buckets in rising order."""
        draws = OneDevice(entropy)
        return draws.numbers(self._choice(draws), self._width)

    def key_of(self, choice: bytes, value: int) -> int:
        """The place of the value's bucket in the choice; d if it is not there."""
        cell, chosen = cells.check_value(value, self.k), self._chosen(choice)
        return chosen.index(cell) if cell in chosen else self.d

    def remember_one(self, choice: bytes, key: int, entropy: Entropy) -> bytes:
        """The d bits, as a bitmap."""
        self._chosen(choice)
        draws = OneDevice(entropy)
        return draws.bitmap(self._permanent(cells.check_value(key, self.keys), draws))

    def report_one(self, choice: bytes, remembered: bytes, entropy: Entropy) -> tuple[bytes, ...]:
        """Choice and permanent bits as they are: nothing is drawn."""
        self._chosen(choice)
        if bitmaps.unpack(remembered, self.d) is None:
            raise invalid(
                f"{NAME}: the permanent answer is no bitmap of {self.d} bits: forget the task, and "
                "begin anew"
            )
        return (choice + remembered,)

    def permanent(self) -> SymmetricLaw:
        """The same as ``privacy``."""
        return self.privacy()

    def _chosen(self, choice: bytes) -> tuple[int, ...]:
        """The buckets of a choice. Raises INVALID for what is none."""
        width = self._width
        chosen = tuple(
            int.from_bytes(choice[at : at + width], "big") for at in range(0, len(choice), width)
        )
        if (
            len(choice) != self.d * width
            or chosen[-1] >= self.k
            or any(b <= a for a, b in pairwise(chosen))
        ):
            raise invalid(
                f"{NAME}: the choice is no {self.d} buckets of {self.k} in rising order: forget "
                "the task, and begin anew"
            )
        return chosen

    # --- a report of a device without one ---------------------------------------------------------

    def _choice(self, draws: Draws) -> Lane:
        """d buckets, rising, by Floyd's algorithm (Bentley, Floyd, "A sample of brilliance", CACM
        1987): d uniform draws.
        """
        chosen = draws.marked(self.k)
        for last in range(self.k - self.d, self.k):
            pick = draws.below(last + 1)
            chosen.put(draws.where(chosen.has(pick), last, pick), True)
        return chosen.members()

    def _permanent(self, key: Lane, draws: Draws) -> Bits:
        return draws.coins_but_one(self.d, self.flip, key, WORDS - self.flip)

    def draw(self, value: Lane, draws: Draws) -> Field:
        """d uniform draws and then d words, whatever the value is."""
        chosen = self._choice(draws)
        bits = self._permanent(draws.place_in(chosen, value), draws)
        return draws.joined(draws.numbers(chosen, self._width), draws.bitmap(bits))

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws a set of d buckets and its bits
        anew: what a device without a memory sends. Raises INVALID for what is no cell.
        """
        return one_report(self.draw, value, self.k, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(self.draw, values, self.k, entropy, self.report_size, _MARKS // self.k)

    # --- the analyzer's side ----------------------------------------------------------------------

    def _split(self, reports: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """int64[rows, d] buckets and uint8[rows, bytes] bitmaps, unchecked. Raises INVALID for
        another shape.
        """
        if reports.ndim != 2 or reports.shape[1] != self.report_size or reports.dtype != np.uint8:
            raise invalid(f"reports are uint8[rows, {self.report_size}]")
        split = self.d * self._width
        return np.ascontiguousarray(reports[:, :split]).view(f">u{self._width}").astype(
            np.int64
        ), reports[:, split:]

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: the buckets rise and are those of the domain; no padding bit is set."""
        flags = np.empty(reports.shape[0], dtype=np.bool_)
        self._split(reports[:0])
        for part in blocks(reports.shape[0], max(1, _MARKS // self.d)):
            chosen, bitmap = self._split(reports[part])
            flags[part] = (
                (chosen[:, -1] < self.k)
                & (np.diff(chosen, axis=1) > 0).all(axis=1)
                & bitmaps.valid(bitmap, self.d)
            )
        return flags

    def supports(self, reports: NDArray[np.uint8], cell: int) -> NDArray[np.bool_]:
        """bool[rows]: the reports that chose the bucket and say 1 of it."""
        chosen, bitmap = self._split(reports)
        ones = np.unpackbits(bitmap, axis=1, count=self.d).astype(np.bool_)
        supported: NDArray[np.bool_] = ((chosen == cell) & ones).any(axis=1)
        return supported

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """2 k counts: how many reports chose each bucket, then how many say 1 of it. Raises INVALID
        if a row is not ``valid``.
        """
        if not self.valid(reports).all():
            raise invalid(
                f"a report is no {self.d} buckets with their bits: keep only the rows that valid() "
                "accepts"
            )
        counts = np.zeros(2 * self.k, dtype=np.int64)
        for part in blocks(reports.shape[0], max(1, _MARKS // self.d)):
            chosen, bitmap = self._split(reports[part])
            ones = np.unpackbits(bitmap, axis=1, count=self.d).astype(np.bool_)
            counts[: self.k] += np.bincount(chosen.reshape(-1), minlength=self.k)
            counts[self.k :] += np.bincount(chosen[ones], minlength=self.k)
        return Tally(counts, reports.shape[0])

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per bucket, with the score intervals of ``_interval``.

        In the variance of ``_stderr``, f (1 - f) is what the sample variance s = c / m (1 - c / m)
        / (1 - 2 q)^2 says without bias: s less that of the coins, v = q (1 - q) / (1 - 2 q)^2. That
        leaves n^2 / m (s (1 - m / n) + v m / n), with no term below 0. A bucket that no report
        chose: 0, with the number of reports for its standard error.
        """
        counts, rows = cells.counts_of(tally, 2 * self.k), float(tally.rows)
        known, asked, ones = (
            counts[: self.k] > 0,
            np.maximum(counts[: self.k], 1.0),
            counts[self.k :],
        )
        said, part = ones / asked, asked / max(rows, 1.0)
        share = np.where(known, (said - self.flip / WORDS) / self._gap, 0.0)
        variance = (said * (1.0 - said) / self._gap**2 * (1.0 - part) + self._coins * part) / asked
        low, high = self._interval(share, asked, rows)
        stderr = rows * np.where(known, np.sqrt(variance), 1.0)
        return Estimate(
            self.labels,
            rows * share,
            stderr,
            np.where(known, rows * low, -rows),
            np.where(known, rows * high, rows),
        )

    def _interval(
        self, share: NDArray[np.float64], asked: NDArray[np.float64], devices: float
    ) -> tuple[NDArray[np.float64], ...]:
        """The shares f that are not too far from the estimated one, if f were true: (share - f)^2
        <= z^2 (v + a f (1 - f)), with the variance of ``_stderr`` over n^2. A quadratic in f
        (Wilson, JASA 22, 1927), with two roots for every count; and skewness and steps of the bits
        that are 1, which are few where hardly any is flipped (``intervals``).
        """
        zz, coins, part = Z**2, self._coins / asked, np.minimum(asked / max(devices, 1.0), 1.0)
        a, flip, gap = (1.0 - part) / asked, self.flip / WORDS, self._gap

        def end(side: float, at: NDArray[np.float64]) -> NDArray[np.float64]:
            root = Z * np.sqrt(
                np.maximum(zz * a**2 / 4.0 + a * at * (1.0 - at) + coins * (1.0 + zz * a), 0.0)
            )
            edge: NDArray[np.float64] = (at + zz * a / 2.0 + side * root) / (1.0 + zz * a)
            return edge

        def corrected(side: float) -> NDArray[np.float64]:
            f = np.clip(end(side, share), 0.0, 1.0)
            sampled = f * (1.0 - f) * (1.0 - part)  # of those who were asked, without replacement
            second = asked * (flip * (1.0 - flip) + gap**2 * sampled)
            third = asked * (
                flip * (1.0 - flip) * gap * (1.0 - 2.0 * f)
                + gap**3 * sampled * (1.0 - 2.0 * f) * (1.0 - 2.0 * part)
            )
            return end(side, share - shift(side, second, third) / (asked * gap))

        return np.minimum(corrected(-1.0), share), np.maximum(corrected(1.0), share)

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """To first order: with n d / k reports that chose a bucket, as many as there are on
        average.
        """
        holders = cells.check_counts(counts, self.k).astype(np.float64)
        devices = float(holders.sum())
        asked = np.full(self.k, max(1.0, devices * self.d / self.k))
        return self._stderr(holders / max(1.0, devices), asked, devices)

    @property
    def _gap(self) -> float:
        """1 - 2 q, without cancellation."""
        return (WORDS - 2 * self.flip) / WORDS

    @property
    def _coins(self) -> float:
        """q (1 - q) / (1 - 2 q)^2: the variance of one bit's estimate, from the integers."""
        return self.flip * (WORDS - self.flip) / (WORDS - 2 * self.flip) ** 2

    def _stderr(
        self, share: NDArray[np.float64], asked: NDArray[np.float64], devices: float
    ) -> NDArray[np.float64]:
        """float64[k]: of n (c / m - q) / (1 - 2 q), f of the n devices in the bucket, ``asked`` = m
        of them spoke of it:

            n^2 / m (q (1 - q) / (1 - 2 q)^2 + f (1 - f) (n - m) / (n - 1)),

        the coins of the bits, and the sampling without replacement of those who were asked.
        """
        sampled = (
            share * (1.0 - share) * (np.maximum(devices - asked, 0.0) / max(devices - 1.0, 1.0))
        )
        errors: NDArray[np.float64] = devices * np.sqrt((self._coins + sampled) / asked)
        return errors

    def privacy(self) -> SymmetricLaw:
        """The law of one report with its set, exactly but for the least weights beyond 16 buckets,
        which are bounded from below. No noise is added later, so it is ``permanent()`` too.
        """
        return law(self.k, self.d, self.flip)


def report_size(k: int, d: int) -> int:
    """Bytes of a report of d of k buckets."""
    return d * cells.report_size(k) + bitmaps.report_size(d)


def check_size(k: int, d: int) -> None:
    """Raises INVALID unless d of k buckets fit a report."""
    if report_size(k, d) > LIMITS.report_bytes:
        raise invalid(
            f'{NAME}: the parameter "d" is {d}: that many buckets are longer than a report of '
            f"{LIMITS.report_bytes} bytes"
        )


def ratio(d: int, flip: int) -> Fraction:
    """e^epsilon0, exactly."""
    return Fraction(WORDS - flip, flip) ** min(d, 2)


def law(k: int, d: int, flip: int) -> SymmetricLaw:
    """The output law, exactly; beyond 16 buckets per device the least weights are a little smaller
    than they are.

    A class fixes, of x, x' and a third z, who is in S and with which bit; and of the others in S
    whether all their bits are 1. An output is least likely under an input in S whose bit is 0, if
    there is one; else under one outside of S; else (S is everything) under any.
    """
    known, q = min(k, 3), Fraction(flip, WORDS)
    agrees, differs = (1 - q) / q, q / (1 - q)  # against the law of an input outside of S
    classes: list[laws.Class] = []
    for pattern in product((None, 1, 0), repeat=known):
        bits = [bit for bit in pattern if bit is not None]
        others = d - len(bits)
        sets = comb(k - known, others) if others >= 0 else 0
        if not sets:
            continue
        base = Fraction(sets, comb(k, d)) * q ** bits.count(1) * (1 - q) ** bits.count(0)
        factors = [{None: Fraction(1), 1: agrees, 0: differs}[bit] for bit in pattern]
        ones = q**others if d <= _MOST_TOLD else Fraction(0)
        for chance, all_ones in ((ones, True), (1 - ones, False)):
            if chance:
                least = differs if 0 in bits or not all_ones else Fraction(1) if d < k else agrees
                weight_x, weight_x2, *third = (base * chance * factor for factor in factors)
                classes.append(
                    (weight_x, weight_x2, base * chance * least, third[0] if third else None)
                )
    return laws.integers(classes, alike=True)


def _create(spec: MechanismSpec, domain: Domain) -> DBitFlip:
    check_k(spec, domain)
    return DBitFlip(domain.labels, spec.get("d"), spec.get("flip"))


def _design(d: int, domain: Domain, epsilon0: float) -> MechanismSpec:
    check_size(domain.size, d)
    flip = least_noise(lambda noise: PureLaw(ratio(d, noise)), WORDS // 2 - 1, epsilon0)
    return MechanismSpec.of(NAME, d=d, flip=flip, k=domain.size)


def _settings(domain: Domain) -> tuple[Setting, ...]:
    """d = 1, 4, 16, ... and all buckets, as far as a report is long enough."""
    k = domain.size
    powers = [1 << step for step in range(0, k.bit_length(), 2) if 1 << step < k]
    chosen = [d for d in (*powers, k) if report_size(k, d) <= LIMITS.report_bytes]
    return tuple(
        Setting(
            f"d={d}",
            f"a device speaks of {d} of {k} buckets; it keeps {min(d + 1, k)} answers, epsilon0 "
            "each",
            partial(_design, d),
        )
        for d in chosen
    )


FAMILY = Family(
    NAME,
    "dBitFlip: how many devices are in each bucket, each device speaking of d buckets",
    PARAMETERS,
    _create,
    _settings,
)
