"""RAPPOR: a Bloom filter of a word, a permanent noisy copy of it, and a fresh noisy copy of that in
every report.

Erlingsson, Pihur, Korolova, "RAPPOR: randomized aggregatable privacy-preserving ordinal response",
CCS 2014, sections 2 to 4. A device draws its *cohort* once, uniformly, and so which public hash
functions it uses (``bloom``). The filter of its cell has up to h = ``hashes`` of ``bits`` bits set.
The *permanent* response keeps each bit, but with probability f / 2 it is the opposite; it is drawn
once for each cell and kept. The *instantaneous* response, of every report, sets a bit with
probability q where the permanent one is 1, else with p. With F = ``half_f``, P = ``p``, Q = ``q``
and W = 2^64 a bit of the report is 1 with probability

    q* = ((W - F) Q + F P) / W^2 where the filter has it,    p* = (F Q + (W - F) P) / W^2 where not:

the paper's q* = f (p + q) / 2 + (1 - f) q, in integers. Bits of different places are independent,
given the filter.

**Epsilon of one report.** Filters of two cells differ in at most h bits one way and h the other: 2
h bits. An output's probability changes by at most the factor q* / p* for a bit of the first kind
that is 1, and (1 - p*) / (1 - q*) for one of the second that is 0, so

    e^epsilon0 = (q* (1 - p*) / (p* (1 - q*)))^h.

That is the paper's epsilon_1 = h ln(q* (1 - p*) / (p* (1 - q*))), natural logarithm: its h already
counts *both* directions, 2 h bits, one factor of each kind per hash function. It is for a pair of
words, not of a word and none. The permanent response alone has q* = 1 - f/2 and p* = f/2:
epsilon_inf = 2 h ln((1 - f/2) / (f/2)), the paper's. Leaving h out would understate either h times.
Filters where hash functions coincide have fewer bits, and cells whose filters share bits differ in
fewer: each missing bit takes away a factor of at least 1.

**The law that is stated** (``filter_law``) is above that of every pair of cells, whatever the
vocabulary and the seed.

**A report** is the cohort, big-endian in 1 byte (2 beyond 256 cohorts), and the bits (``bitmaps``).
The cohort is drawn from one 16-bit word, the responses from a 64-bit word per bit each.

**The estimate** is ``bloom``'s: unbiased least squares over all cohorts and bits against the
labels.

**Settings** fix h and choose bits and cohorts by the number of labels. ``epsilon0`` bounds one
report; an unchanged word costs twice that for life (``LIFETIME``), by f; the rest is symmetric
instantaneous noise, q = 1 - p. Since one report's law alone decides the errors, a smaller f with
more instantaneous noise would cost privacy for life and gain no accuracy; a larger f makes reports
of one device more alike, so that they can be linked. More hash functions cost accuracy: each has
epsilon0 / h.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from shoal.arrays import NDArray, np
from shoal.domain import Categories, Domain, Words
from shoal.entropy import Entropy
from shoal.mechanisms.base import Estimate, Family, Parameter, Setting, Tally, invalid
from shoal.mechanisms.longitudinal.bloom import MOST_LABELS, Decoder, Filters, check_number, decoder
from shoal.mechanisms.longitudinal.filter_law import MOST_PAIRED, FilterPair, chained, law, ratio
from shoal.mechanisms.parts import bitmaps, cells
from shoal.mechanisms.parts.draws import Bits, Draws, Field, Lane
from shoal.mechanisms.parts.one_device import OneDevice
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.sampling import blocks
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import PureLaw, SymmetricLaw
from shoal.task import MechanismSpec

NAME = "rappor"
LIFETIME = 2.0
"""The settings' permanent epsilon, in units of one report's."""
SEED = 1
"""The settings' seed of the public hash functions. A task may name any other."""
_MOST_BITS, _MOST_COHORTS, _MOST_ROWS, _MOST_HASHES = 1 << 14, 1 << 12, 1 << 19, 8
PARAMETERS = (
    Parameter("bits", 2, _MOST_BITS, "bits of the Bloom filter, a power of two"),
    Parameter(
        "cohorts",
        1,
        _MOST_COHORTS,
        "groups of devices with hash functions of their own, a power of two",
    ),
    Parameter(
        "half_f",
        1,
        WORDS // 2 - 1,
        "probability f / 2, out of 2^64, that a permanent bit is the opposite of the filter's",
    ),
    Parameter("hashes", 1, _MOST_HASHES, "hash functions, and so bits that a word sets"),
    Parameter(
        "p",
        1,
        WORDS - 2,
        "probability, out of 2^64, that a bit is reported as 1 where the permanent one is 0",
    ),
    Parameter(
        "q",
        2,
        WORDS - 1,
        "probability, out of 2^64, that a bit is reported as 1 where the permanent one is 1",
    ),
    Parameter("seed", 0, WORDS - 1, "names the task's public hash functions"),
)
_WORDS_AT_ONCE = 32_768  # 256 KiB: they, and the bits made of them, stay in cache
_TALLY_BITS = 1 << 22  # bits that are unpacked at once
_HASHES = (1, 2)


@dataclass(frozen=True, slots=True)
class Rappor:
    """``labels`` and ``label_cells``: what is looked for; ``size``: cells of the domain; the
    integers are those of ``PARAMETERS``.
    """

    labels: tuple[str, ...]
    label_cells: tuple[int, ...]
    size: int
    filters: Filters
    half_f: int
    p: int
    q: int

    def __post_init__(self) -> None:
        bits, hashes, cohorts = self.filters.bits, self.filters.hashes, self.filters.cohorts
        for name, value, low, high in (
            ("bits", bits, 2, _MOST_BITS),
            ("cohorts", cohorts, 1, _MOST_COHORTS),
        ):
            if not low <= value <= high or value & (value - 1):
                raise invalid(
                    f'{NAME}: the parameter "{name}" is a power of two from {low} to {high}'
                )
        if self.filters.rows > _MOST_ROWS:
            raise invalid(f'{NAME}: "bits" times "cohorts" is {_MOST_ROWS} at most')
        if not 1 <= hashes <= _MOST_HASHES or not 0 <= self.filters.seed < WORDS:
            raise invalid(
                f'{NAME}: the parameter "hashes" is 1 to {_MOST_HASHES}, and "seed" is below 2^64'
            )
        if not 1 <= self.half_f < WORDS // 2:
            raise invalid(f'{NAME}: the parameter "half_f" is 1 to 2^63 - 1')
        if not 0 < self.p < self.q < WORDS:
            raise invalid(f'{NAME}: the parameters want 0 < "p" < "q" < 2^64')
        check_number(self.filters, len(self.labels), open_words=self.open)

    @property
    def open(self) -> bool:
        """Whether devices may hold cells that no label stands for."""
        return self.size > len(self.labels)

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return NAME

    @property
    def spec(self) -> MechanismSpec:
        """The name and the integers that a task carries: those of ``PARAMETERS``."""
        return _spec(self.filters, self.half_f, self.p, self.q)

    @property
    def report_size(self) -> int:
        """The cohort (1, 2 or 4 bytes) and a bitmap of the filter's bits."""
        return self._cohort_size + bitmaps.report_size(self.filters.bits)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    @property
    def keys(self) -> int:
        """One per cell: 2^62 for an open vocabulary."""
        return self.size

    @property
    def rates(self) -> tuple[int, int]:
        """(q*, p*) out of 2^128: how likely a bit of the report is 1 where the filter has it, and
        where not.
        """
        return chained(self.half_f, self.p, self.q)

    @property
    def _cohort_size(self) -> int:
        return cells.report_size(self.filters.cohorts)

    # --- a device ---------------------------------------------------------------------------------

    def choose_one(self, entropy: Entropy) -> bytes:
        """The cohort, as bytes of a report."""
        draws = OneDevice(entropy)
        return draws.number(draws.below_power(self.filters.cohorts), self._cohort_size)

    def key_of(self, choice: bytes, value: int) -> int:
        """The cell itself: every word has a permanent answer of its own. Raises INVALID for what is
        no cell, or no cohort.
        """
        self._cohort(choice)
        return cells.check_value(value, self.size)

    def remember_one(self, choice: bytes, key: int, entropy: Entropy) -> bytes:
        """The permanent bits of a cell, as bytes of a report."""
        cohort, draws = self._cohort(choice), OneDevice(entropy)
        return draws.bitmap(self._permanent(cohort, cells.check_value(key, self.size), draws))

    def report_one(self, choice: bytes, remembered: bytes, entropy: Entropy) -> tuple[bytes, ...]:
        """The cohort, and the permanent bits under fresh noise. Raises INVALID for what
        ``choose_one`` and ``remember_one`` do not make.
        """
        self._cohort(choice)
        bits, size = self.filters.bits, bitmaps.report_size(self.filters.bits)
        if not isinstance(remembered, bytes) or len(remembered) != size:
            raise invalid(
                f"{NAME}: a permanent answer is the {size} bytes that remember_one() makes"
            )
        permanent = bitmaps.unpack(remembered, bits)
        if permanent is None:
            raise invalid(f"{NAME}: a permanent answer has bits beyond the filter's")
        return (self._report(choice, permanent, OneDevice(entropy)),)

    def _permanent(self, cohort: Lane, cell: Lane, draws: Draws) -> Bits:
        """One word per bit, whatever the filter is."""
        opposite = draws.coins(self.filters.bits, self.half_f)
        return draws.off_filter(opposite, self.filters, cohort, cell)

    def _report(self, cohort: Field, permanent: Bits, draws: Draws) -> Field:
        """One word per bit, whatever was remembered."""
        return draws.joined(cohort, draws.bitmap(draws.coins_if(permanent, self.p, self.q)))

    def draw(self, value: Lane, draws: Draws) -> Field:
        """The first report of a device: a cohort, the words of the permanent bits, and those of the
        report's, in this order.
        """
        cohort = draws.below_power(self.filters.cohorts)
        permanent = self._permanent(cohort, value, draws)
        return self._report(draws.number(cohort, self._cohort_size), permanent, draws)

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws cohort, permanent bits and the
        report's bits anew: what a device without a memory sends. Raises INVALID for what is no
        cell.
        """
        return one_report(self.draw, value, self.size, entropy)

    def _cohort(self, choice: bytes) -> int:
        if (
            not isinstance(choice, bytes)
            or len(choice) != self._cohort_size
            or int.from_bytes(choice, "big") >= self.filters.cohorts
        ):
            raise invalid(
                f"{NAME}: a choice is a cohort from 0 to {self.filters.cohorts - 1}, in the bytes "
                "that choose_one() makes"
            )
        return int.from_bytes(choice, "big")

    # --- the analyzer -----------------------------------------------------------------------------

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(
            self.draw,
            values,
            self.size,
            entropy,
            self.report_size,
            _WORDS_AT_ONCE // self.filters.bits,
        )

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Cohorts that there are, any bits, and no padding bits."""
        cohorts, filters = self._split(reports)
        clean: NDArray[np.bool_] = bitmaps.valid(filters, self.filters.bits) & (
            cohorts < self.filters.cohorts
        )
        return clean

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How many reports each cohort made, and then how often each bit of each cohort was set:
        cohorts * (1 + bits) counts.
        """
        if not self.valid(reports).all():
            raise invalid(
                "a report names no cohort or has padding bits: keep only the rows that valid() "
                "accepts"
            )
        cohorts, filters = self._split(reports)
        bits, count = self.filters.bits, self.filters.cohorts
        sizes, set_bits = (
            np.bincount(cohorts, minlength=count),
            np.zeros((count, bits), dtype=np.int64),
        )
        order = np.argsort(cohorts, kind="stable")
        for part in blocks(order.size, max(1, _TALLY_BITS // bits)):
            rows = order[part]
            named, starts = np.unique(cohorts[rows], return_index=True)
            set_bits[named] += np.add.reduceat(
                np.unpackbits(filters[rows], axis=1, count=bits), starts, axis=0, dtype=np.int64
            )
        return Tally(np.concatenate([sizes, set_bits.reshape(-1)]), reports.shape[0])

    def solution(self, tally: Tally) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(devices, standard errors): float64[labels], and one more number of devices, those of no
        label, if the vocabulary is open.

        Raises INVALID for a tally of other filters, or labels that their filters don't tell apart.
        """
        counts = cells.counts_of(tally, self.filters.cohorts * (1 + self.filters.bits))
        sizes, bit_counts = counts[: self.filters.cohorts], counts[self.filters.cohorts :]
        solver, (_, low), (zero, one) = self._decoder(), self.rates, self._variances()
        unbiased = (bit_counts - np.repeat(sizes, self.filters.bits) * (low / WORDS**2)) / self._gap
        solved = solver.solve(unbiased)
        coins = solver.coins(solved, float(tally.rows), zero, one)
        return solved, np.sqrt(coins + solver.collisions(unbiased, solved, sizes, zero, one))

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per label. Raises INVALID as ``solution`` does."""
        solved, errors = self.solution(tally)
        return Estimate.wald(self.labels, solved[: len(self.labels)], errors)

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[labels], when ``counts``, int64[labels], devices hold each label, and none
        another word.
        """
        holders, solver = (
            cells.check_counts(counts, len(self.labels)).astype(np.float64),
            self._decoder(),
        )
        held = np.append(holders, 0.0) if self.open else holders
        errors: NDArray[np.float64] = np.sqrt(
            solver.coins(held, float(holders.sum()), *self._variances())
        )
        return errors

    def privacy(self) -> SymmetricLaw:
        """The law of one report, above that of every pair of cells, with a pair of labels for lower
        bounds: see the module.
        """
        return law(self.filters.hashes, *self.rates, self._pair(*self.rates))

    def permanent(self) -> SymmetricLaw:
        """The law of cohort and permanent bits: all that an unchanged word ever tells."""
        rates = WORDS * (WORDS - self.half_f), WORDS * self.half_f
        return law(self.filters.hashes, *rates, self._pair(*rates))

    def _pair(self, high: int, low: int) -> FilterPair:
        return FilterPair(self.label_cells[:MOST_PAIRED], self.filters, high, low)

    @property
    def _gap(self) -> float:
        """q* - p* = (1 - f)(q - p), without cancellation."""
        return (WORDS - 2 * self.half_f) * (self.q - self.p) / WORDS**2

    def _variances(self) -> tuple[float, float]:
        """Of a report's bit over the squared gap, where the filter's bit is 0 and where it is 1."""
        high, low = self.rates
        variance_zero, variance_one = (
            rate * (WORDS**2 - rate) / WORDS**4 / self._gap**2 for rate in (low, high)
        )
        return variance_zero, variance_one

    def _decoder(self) -> Decoder:
        return decoder(self.filters, self.label_cells, open_words=self.open)

    def _split(self, reports: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """(cohorts int64[rows], bits uint8[rows, bytes]), unchecked. Raises INVALID for another
        shape.
        """
        head = self._cohort_size
        if reports.ndim != 2 or reports.shape[1] != self.report_size or reports.dtype != np.uint8:
            raise invalid(f"reports are uint8[rows, {self.report_size}]")
        cohorts = np.ascontiguousarray(reports[:, :head]).view(f">u{head}")[:, 0].astype(np.int64)
        return cohorts, reports[:, head:]


def integers(hashes: int, epsilon0: float, lifetime: float) -> tuple[int, int, int]:
    """(F, P, Q): the least f with ``permanent()`` within ``lifetime``, and then the least symmetric
    noise with ``privacy()`` within ``epsilon0``. Raises INVALID if either is not above 0, or finer
    than the integers.
    """
    half_f = least_noise(
        lambda f: PureLaw(ratio(hashes, WORDS * (WORDS - f), WORDS * f)), WORDS // 2 - 1, lifetime
    )
    p = least_noise(
        lambda p: PureLaw(ratio(hashes, *chained(half_f, p, WORDS - p))), WORDS // 2 - 1, epsilon0
    )
    return half_f, p, WORDS - p


def _spec(filters: Filters, half_f: int, p: int, q: int) -> MechanismSpec:
    return MechanismSpec.of(
        NAME,
        bits=filters.bits,
        cohorts=filters.cohorts,
        half_f=half_f,
        hashes=filters.hashes,
        p=p,
        q=q,
        seed=filters.seed,
    )


def _create(spec: MechanismSpec, domain: Domain) -> Rappor:
    _check_domain(domain)
    filters = Filters(spec.get("bits"), spec.get("hashes"), spec.get("cohorts"), spec.get("seed"))
    return Rappor(
        domain.labels,
        tuple(domain.label_cells),
        domain.size,
        filters,
        spec.get("half_f"),
        spec.get("p"),
        spec.get("q"),
    )


def sized(domain: Domain, hashes: int) -> Filters:
    """Bits and cohorts for a domain: 32 to 128 bits, at least 128 for an open vocabulary, and 16
    rows or more for each label.
    """
    labels = len(domain.labels)
    bits = (
        128 if isinstance(domain, Words) else min(128, max(32, 1 << (4 * labels - 1).bit_length()))
    )
    cohorts = max(64 if isinstance(domain, Words) else 8, 1 << (16 * labels // bits).bit_length())
    return Filters(bits, hashes, cohorts, SEED)


def _design(hashes: int, domain: Domain, epsilon0: float) -> MechanismSpec:
    return _spec(sized(domain, hashes), *integers(hashes, epsilon0, LIFETIME * epsilon0))


def _check_domain(domain: Domain) -> None:
    if not isinstance(domain, Categories | Words):
        raise invalid(
            f"{NAME} is for words and categories: choose l_unary or loloha for numbers and yes/no "
            "questions"
        )
    if len(domain.labels) > MOST_LABELS:
        raise invalid(
            f'{NAME}: {MOST_LABELS} labels at most, "no answer" too, are solved for together: '
            "choose count_sketch or hadamard_sketch"
        )


def _settings(domain: Domain) -> tuple[Setting, ...]:
    _check_domain(domain)
    return tuple(
        Setting(f"h={h}", f"{h} hash function{'s' * (h > 1)}", partial(_design, h)) for h in _HASHES
    )


FAMILY = Family(
    NAME,
    "a Bloom filter with a memory: how many devices hold each word",
    PARAMETERS,
    _create,
    _settings,
    words=True,
)
