"""LOLOHA: local hashing with a memory. A hash function for life, a permanent answer per hash value,
fresh noise in every window.

Arcolezi, Pinzon, Palamidessi, Gambs, "Frequency estimation of evolving data under local
differential privacy", EDBT 2023 (arXiv 2210.00262). A device draws the seed of a hash function to g
values once. For each hash value that its cell comes to have it draws a *permanent* answer by g-ary
response, once, and keeps it. Every report is the seed and the permanent answer under g-ary response
anew, the *instantaneous* one. BiLOLOHA is g = 2. The hash, and why it is exactly pairwise
independent, is ``local_hash``'s.

**One report.** With T1 = ``permanent_uniform`` and T2 = ``instant_uniform``: the permanent answer
is uniform over all g values with probability T1 / 2^64, else the hash; the reported one is uniform
with probability T2 / 2^64, else the permanent one. So the report is the hash with probability (2^64
- T1) (2^64 - T2) / 2^128 and uniform over all g values otherwise: g-ary response once more, with
integers out of g * 2^128, and its law is ``laws.local_hash`` at that ratio (``chained``).
``privacy`` states it.

The paper composes the two responses as if a wrong permanent answer became right again along one way
only (its p1 p2 + q1 q2 lacks the factor g - 1, and p1 q2 + q1 p2 the term (g - 2) q1 q2). For g = 2
that is exact. For g > 2 it takes a report for more telling than it is, and so asks for more
instantaneous noise than epsilon0 needs. Here the law is exact. The error of an estimate then
depends on g and on the chained law alone, at frequency 0 as n / (keep^2 (g - 1)), keep = (1 - T1 /
2^64) (1 - T2 / 2^64): the same as for ``local_hash`` with that epsilon0. So the best g is near
e^epsilon0 + 1, whatever the permanent epsilon is, and ``oloha`` takes that power of two; the
paper's formula for g is the optimum for its own, larger, noise.

**All reports.** They are a post-processing of the seed and of the permanent answers of the hash
values that the device's cells ever had. A device whose hash value never changes loses
``permanent()``, however many windows there are. Of two histories that change between as many hash
values at the same times, all reports together lose at most that number times ``permanent()``, and
so g times at most: ``keys`` is g, where a mechanism that keeps an answer per cell has k (the
paper's point: g epsilon_inf instead of k epsilon_inf). *When* a hash value changed is not covered
by that count: many windows with little instantaneous noise show it, as for every mechanism that
keeps answers. A change between cells of one hash value changes nothing: 1 in g of all changes.

The seed tells a device's reports apart from those of others: the windows of one device can be
linked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.limits import LIMITS
from shoal.mechanisms.base import Estimate, Family, Parameter, Setting, Tally, invalid
from shoal.mechanisms.categories.krr import check_k, least_uniform
from shoal.mechanisms.categories.local_hash import LocalHash, best_g, hashed
from shoal.mechanisms.parts import cells, laws
from shoal.mechanisms.parts.draws import Draws, Field, Lane
from shoal.mechanisms.parts.hash_triple import HashTriple
from shoal.mechanisms.parts.one_device import OneDevice
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import PureLaw, SymmetricLaw
from shoal.task import MechanismSpec

NAME = "loloha"
LIFETIME = 2.0
"""The settings' permanent epsilon, in units of one report's."""
PARAMETERS = (
    Parameter("g", 2, 1 << 16, "values of the hash function, a power of two"),
    Parameter(
        "instant_uniform",
        1,
        WORDS - 1,
        "probability, out of 2^64, that a report is uniform and not the permanent answer",
    ),
    Parameter("k", 2, LIMITS.cells, "number of cells of the domain"),
    Parameter(
        "permanent_uniform",
        1,
        WORDS - 1,
        "probability, out of 2^64, that a permanent answer is uniform and not the hash",
    ),
)
_SEED = 8  # bytes, as of local_hash
_MEMBERS = {4: "g=4", 16: "g=16", 64: "g=64", 256: "g=256"}


@dataclass(frozen=True, slots=True)
class LongitudinalLocalHash:
    """``labels``: one per cell, in the domain's order; ``g``: values of the hash; the others: T1
    and T2 out of 2^64.
    """

    labels: tuple[str, ...]
    g: int
    permanent_uniform: int
    instant_uniform: int

    def __post_init__(self) -> None:
        LocalHash(self.labels, self.g, 1)  # raises INVALID for another k or g
        for name, value in (
            ("permanent_uniform", self.permanent_uniform),
            ("instant_uniform", self.instant_uniform),
        ):
            if not 1 <= value < WORDS:
                raise invalid(f'{NAME}: the parameter "{name}" is 1 to 2^64 - 1')

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
        """The name and the integers that a task carries: k, ``g`` and both thresholds."""
        return _spec(self.k, self.g, self.permanent_uniform, self.instant_uniform)

    @property
    def report_size(self) -> int:
        """8 bytes of seed and the hash value, in 1, 2 or 4 bytes."""
        return _SEED + cells.report_size(self.g)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    @property
    def keys(self) -> int:
        """g: one per hash value, not one per cell."""
        return self.g

    @property
    def chances(self) -> tuple[float, float, float]:
        """(p, q, p - q): how likely a report supports a cell that its device holds, and any other;
        p - q without cancellation.
        """
        q, keep = (
            1.0 / self.g,
            (WORDS - self.permanent_uniform) * (WORDS - self.instant_uniform) / WORDS**2,
        )
        gap = keep * (1.0 - q)
        return gap + q, q, gap

    # --- a device ---------------------------------------------------------------------------------

    def choose_one(self, entropy: Entropy) -> bytes:
        """The seed of the device's hash function, 8 bytes."""
        return entropy.bytes(_SEED)

    def key_of(self, choice: bytes, value: int) -> int:
        """The hash of a cell. Raises INVALID for a choice that is no seed, or a value that is no
        cell.
        """
        x = cells.check_value(value, self.k)
        self._check_choice(choice)
        return hashed(
            int.from_bytes(choice[:4], "big"),
            int.from_bytes(choice[4:], "big"),
            x,
            self.g.bit_length() - 1,
        )

    def remember_one(self, choice: bytes, key: int, entropy: Entropy) -> bytes:
        """The permanent answer of a hash value, as the cell of a report. A coin and a uniform value
        are drawn, whatever the key is.
        """
        self._check_choice(choice)
        if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < self.g:
            raise invalid(f"{NAME}: a key is a value of the hash function, 0 to {self.g - 1}")
        draws = OneDevice(entropy)
        answer = self._respond(key, self.permanent_uniform, draws)
        return draws.number(answer, self.report_size - _SEED)

    def report_one(self, choice: bytes, remembered: bytes, entropy: Entropy) -> tuple[bytes, ...]:
        """The seed, and the permanent answer under fresh noise: a coin and a uniform value,
        whatever was remembered.
        """
        self._check_choice(choice)
        if not isinstance(remembered, bytes) or len(remembered) != self.report_size - _SEED:
            raise invalid(
                f"{NAME}: a permanent answer is the {self.report_size - _SEED} bytes that "
                "remember_one() makes"
            )
        answer = int.from_bytes(remembered, "big")
        if answer >= self.g:
            raise invalid(
                f"{NAME}: a permanent answer is a value of the hash function, 0 to {self.g - 1}"
            )
        return (self._report(choice, answer, OneDevice(entropy)),)

    def draw(self, value: Lane, draws: Draws) -> Field:
        """The first report of a device: a seed, two draws of the permanent response and two of the
        instantaneous one, in this order.
        """
        seed = draws.seed(_SEED)
        low, high = draws.read(seed, 0), draws.read(seed, 1)
        truth = hashed(low, high, value, self.g.bit_length() - 1)
        return self._report(seed, self._respond(truth, self.permanent_uniform, draws), draws)

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws seed, permanent answer and
        report anew: what a device without a memory sends. Raises INVALID for what is no cell.
        """
        return one_report(self.draw, value, self.k, entropy)

    def _respond(self, value: Lane, uniform: int, draws: Draws) -> Lane:
        coin = draws.coin(uniform)
        return draws.where(coin, draws.below(self.g), value)

    def _report(self, seed: Field, permanent: Lane, draws: Draws) -> Field:
        answer = self._respond(permanent, self.instant_uniform, draws)
        return draws.joined(seed, draws.number(answer, self.report_size - _SEED))

    def _check_choice(self, choice: bytes) -> None:
        if not isinstance(choice, bytes) or len(choice) != _SEED:
            raise invalid(
                f"{NAME}: a choice is the {_SEED} bytes of a seed, as choose_one() makes them"
            )

    # --- the analyzer -----------------------------------------------------------------------------

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(self.draw, values, self.k, entropy, self.report_size)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Every seed is one, and so is every value below g."""
        return self._hashes().valid(reports)

    def supports(self, reports: NDArray[np.uint8], cell: int) -> NDArray[np.bool_]:
        """bool[rows]: the reports that name the hash of ``cell`` under their own function."""
        return self._hashes().supports(reports, cell)

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How many reports support each cell, as ``local_hash`` counts it. Raises INVALID for a row
        that is not ``valid``.
        """
        return self._hashes().tally(reports)

    def _hashes(self) -> LocalHash:
        """What reads reports of this form: its own noise is not looked at."""
        return LocalHash(self.labels, self.g, 1)

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per cell. Raises INVALID for another number of cells.

        The support estimator with p and q of the chain; why the counts are sums of independent
        coins: ``LocalHash.estimate``. For the reports of *one* window. Those of one device in
        several windows are not independent, and neither are these estimates.
        """
        return cells.estimated(
            self.labels, cells.counts_of(tally, self.k), tally.rows, *self.chances
        )

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[k]: exact standard errors, in devices, when ``counts`` (int64[k]) hold each cell.
        Raises INVALID for another number of cells.
        """
        return cells.expected(counts, self.k, *self.chances)

    def privacy(self) -> SymmetricLaw:
        """The law of one report, with the seed, permanent answer and noise all drawn anew
        (epsilon_1). What holds over all windows is ``permanent()``.
        """
        ratio = chained(self.g, self.permanent_uniform, self.instant_uniform)
        stated = laws.local_hash(self.g, ratio, self.k, wise=2)
        return replace(stated, real=HashTriple(self.g, ratio)) if self.k > 2 else stated

    def permanent(self) -> SymmetricLaw:
        """The seed and the permanent answer: all that an unchanged hash value ever tells."""
        return laws.local_hash(self.g, chained(self.g, self.permanent_uniform, 0), self.k, wise=2)


def chained(g: int, permanent_uniform: int, instant_uniform: int) -> Fraction:
    """e^epsilon0 of one report, exactly: both responses are uniform or keep what they are given.

    Kept through both with K = (2^64 - T1)(2^64 - T2) out of 2^128, else uniform with U = 2^128 - K:
    the hash has weight g K + U, any other value U, out of g * 2^128. T2 = 0 gives the permanent
    answer's.
    """
    kept = (WORDS - permanent_uniform) * (WORDS - instant_uniform)
    other = WORDS**2 - kept
    return Fraction(g * kept + other, other)


def integers(g: int, epsilon0: float, lifetime: float) -> tuple[int, int]:
    """(T1, T2): the least noise with ``permanent()`` within ``lifetime`` and then ``privacy()``
    within ``epsilon0``.

    T2 is at least 1, and one step of it is far below any epsilon, so a ``lifetime`` of ``epsilon0``
    or less is kept by both. Raises INVALID if either is not above 0, or finer than the integers.
    """
    permanent = least_uniform(g, lifetime)
    return permanent, least_noise(
        lambda noise: PureLaw(chained(g, permanent, noise)), WORDS - 1, epsilon0
    )


def _spec(k: int, g: int, permanent_uniform: int, instant_uniform: int) -> MechanismSpec:
    return MechanismSpec.of(
        NAME, k=k, g=g, permanent_uniform=permanent_uniform, instant_uniform=instant_uniform
    )


def _create(spec: MechanismSpec, domain: Domain) -> LongitudinalLocalHash:
    check_k(spec, domain)
    return LongitudinalLocalHash(
        domain.labels, spec.get("g"), spec.get("permanent_uniform"), spec.get("instant_uniform")
    )


def _with_g(g: int, domain: Domain, epsilon0: float) -> MechanismSpec:
    """One report within ``epsilon0``, an unchanged hash value for life within twice that."""
    return _spec(domain.size, g, *integers(g, epsilon0, LIFETIME * epsilon0))


def _optimized(domain: Domain, epsilon0: float) -> MechanismSpec:
    return _with_g(best_g(epsilon0), domain, epsilon0)


def _settings(domain: Domain) -> tuple[Setting, ...]:
    return (
        Setting(
            "biloloha",
            "two hash values: the smallest cost of a changing value, 2 permanent answers for life",
            partial(_with_g, 2),
        ),
        Setting("oloha", "g of least variance without a shuffler, near e^epsilon0 + 1", _optimized),
        *(
            Setting(name, f"a hash function to {g} values", partial(_with_g, g))
            for g, name in _MEMBERS.items()
            if g < domain.size
        ),
    )


FAMILY = Family(
    NAME,
    "local hashing with a memory: g permanent answers for life, however many cells there are",
    PARAMETERS,
    _create,
    _settings,
)
