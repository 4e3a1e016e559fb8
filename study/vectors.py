"""Means of vectors by secure aggregation, tried without services: what each device adds, what the
analyzer learns, and what it promises.

A round's masks cancel in the sum, so that the analyzer sees the sum alone (docs/SECAGG.md). Here
nothing is masked: the vectors are added up at once, with the production's clipping, rounding and
noise. What is estimated and promised is the same.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shoal.accounting.meaning import bound_text, sum_sentences
from shoal.accounting.sums.pairwise import SumBound, certify_sum
from shoal.accounting.sums.sum_task import SumDesign, design_sum
from shoal.accounting.sums.windows import epsilon_of_windows
from shoal.analyzer.rounds.sum_errors import errors_of_sum, reach_of_sum
from shoal.arrays import NDArray, np
from shoal.domain import Norm, Vector
from shoal.limits import LIMITS
from shoal.mechanisms.noise.registry import create_noise
from shoal.mechanisms.quantize import bounds, dequantize, quantize
from shoal.secagg import Mode
from shoal.study.arguments import (
    about,
    below_one,
    delta_of,
    positive,
    share,
    whole,
    wrong_type,
    wrong_value,
)
from shoal.study.designed import entropy_of
from shoal.study.frames import Table
from shoal.study.promise import DELTA, HONEST_FRACTION
from shoal.study.updates import NORMS, clip_update, flattened
from shoal.study.weighted import LABEL, WeightedMean, weigh, widened
from shoal.task import PPM

DROP_OUT = 0.2
"""The share of a round that may be lost where nobody says another: that of the sample task."""


@dataclass(frozen=True, slots=True, repr=False)
class VectorPromise:
    """What every round's sum promises each device. ``certificate`` has all figures of one round.
    ``together``: the epsilon of all ``rounds``, each in its own window, at the same delta.
    """

    certificate: SumBound
    mode: str
    rounds: int
    together: float

    @property
    def epsilon(self) -> float:
        """The central epsilon of one round's sum, proven, rounded up."""
        return self.certificate.epsilon_upper

    @property
    def sentences(self) -> list[str]:
        """What it means for a person, in plain words and odds."""
        c = self.certificate
        colluding = c.remaining.together
        left = colluding if math.isfinite(colluding) else None
        return sum_sentences(c.epsilon_upper, c.delta, c.honest, left, self.mode)

    @property
    def headline(self) -> str:
        """Both ends in a line."""
        c = self.certificate
        line = (
            f"epsilon <= {bound_text(c.epsilon_upper)} at delta = {c.delta:g} for each round, by "
            f"noise of {c.honest:,} honest devices of {c.survivors:,} that stay"
        )
        if self.rounds == 1:
            return line
        all_of_them = f"epsilon <= {bound_text(self.together)} for {self.rounds} rounds together"
        return f"{all_of_them}; {line}"

    def __repr__(self) -> str:
        return "\n".join([self.headline, *(f"- {line}" for line in self.sentences)])

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{html.escape(line)}</li>" for line in self.sentences)
        return f"<p><b>{html.escape(self.headline)}</b></p><ul>{items}</ul>"


class VectorMean(Table):
    """The mean of the devices' vectors, a row per coordinate with its 95 % interval. ``mean``:
    float64[d]; ``total``: the sum that the analyzer learned.
    """

    def __init__(
        self, names: Sequence[str], total: NDArray[np.float64], stderr: float, reach: float, n: int
    ) -> None:
        self.total, self.n, self.stderr = total, n, stderr / n
        self.mean = np.asarray(total / n)
        wide = reach * self.stderr
        rows = [
            (name, value, self.stderr, value - wide, value + wide)
            for name, value in zip(names, self.mean.tolist(), strict=True)
        ]
        super().__init__(("label", "value", "stderr", "ci_low", "ci_high"), rows)


@dataclass(frozen=True, slots=True, repr=False)
class VectorDesign:
    """How vectors are clipped, rounded and covered with noise before they are added up."""

    sums: SumDesign
    honest_fraction_ppm: int
    delta: float
    rounds: int
    clip: float
    weighted: bool

    @property
    def dimension(self) -> int:
        """Numbers in a vector, a weight not counted."""
        return self.sums.domain.dimension - self.weighted

    @property
    def survivors(self) -> int:
        """Devices that a round keeps at least; with fewer there is no sum."""
        return self.sums.plan.survivors_min

    def randomize(self, update: Any, *, simulation_seed: int | None = None) -> NDArray[np.int64]:
        """int64[d]: what one device adds to the sum: its vector clipped, rounded to whole steps at
        random, and its share of the noise. One share is little noise: show it to nobody.
        """
        if self.weighted:
            raise wrong_value("update", "this design is of weighted means: ask weighted_mean")
        return self._one(self._flat(update), entropy_of(simulation_seed))

    def mean(self, updates: Iterable[Any], *, simulation_seed: int | None = None) -> VectorMean:
        """What an analyzer learns of these devices' updates, one each. Raises for fewer than
        ``survivors``, and for more than a round takes.
        """
        if self.weighted:
            raise wrong_value("updates", "this design is of weighted means: ask weighted_mean")
        total, n = self._sum(map(self._flat, updates), entropy_of(simulation_seed))
        stderr, reach = self._errors(n)
        return VectorMean(self.sums.domain.labels, total, stderr, reach, n)

    def weighted_mean(
        self, weighted: Iterable[tuple[Any, float]], *, simulation_seed: int | None = None
    ) -> WeightedMean:
        """As ``mean``, of (update, weight) of each device, weights from 0 to 1: an update counts
        as much as its weight, which stays as hidden as the update. Wants ``weighted=True``.
        """
        if not self.weighted:
            raise wrong_value(
                "weighted", "design_vector(..., weighted=True) makes room for weights"
            )
        own = (weigh(self._clipped(update), weight, self.clip) for update, weight in weighted)
        total, n = self._sum(own, entropy_of(simulation_seed))
        stderr, reach = self._errors(n)
        return WeightedMean(self.sums.domain.labels[:-1], total, stderr, reach, self.clip)

    def _sum(
        self, vectors: Iterable[NDArray[np.float64]], entropy: Any
    ) -> tuple[NDArray[np.float64], int]:
        """(the sum with its noise, of how many devices)."""
        domain = self.sums.domain
        total, n = np.zeros(domain.dimension, dtype=np.int64), 0
        for vector in vectors:
            total += self._one(vector, entropy)
            n += 1
        if n < self.survivors:
            raise wrong_value(
                "updates", f"{n:,} devices: a round has {self.survivors:,} at least, or no sum"
            )
        if n > self.sums.plan.cohort_max:
            raise wrong_value(
                "updates", f"{n:,} devices: a round takes {self.sums.plan.cohort_max:,} at most"
            )
        return dequantize(total, domain), n

    def _errors(self, n: int) -> tuple[float, float]:
        """(standard error of each total, how many of them hold the truth with 95 %)."""
        noise = self.sums.mechanism
        drawn = math.hypot(*errors_of_sum(self.sums.domain, noise, n))
        return drawn, reach_of_sum(noise, n)

    def certify(self) -> VectorPromise:
        """The promise of every round, and of all of them together: of the fewest devices that a
        round keeps, and the honest share that is left of them whoever is lost.
        """
        domain, plan = self.sums.domain, self.sums.plan
        bound = certify_sum(
            self.sums.mechanism,
            bounds(domain),
            domain.dimension,
            survivors=plan.survivors_min,
            honest_fraction=plan.honest_share(self.honest_fraction_ppm),
            delta=self.delta,
            mode=plan.mode,
        )
        together = epsilon_of_windows(
            self.sums.mechanism,
            bounds(domain),
            domain.dimension,
            honest=bound.honest,
            windows=self.rounds,
            delta=self.delta,
        )
        return VectorPromise(
            bound,
            plan.mode.name.lower(),
            self.rounds,
            bound.epsilon_upper if self.rounds == 1 else together,
        )

    @property
    def error(self) -> float:
        """The standard error of each coordinate of a mean over the fewest devices of a round."""
        return math.hypot(*errors_of_sum(self.sums.domain, self.sums.mechanism, self.survivors)) / (
            self.survivors
        )

    def _flat(self, update: Any) -> NDArray[np.float64]:
        flat, _ = flattened(update)
        if flat.size != self.dimension:
            raise wrong_value(
                "update", f"give {self.dimension:,} numbers, not {flat.size:,}, as was designed"
            )
        return flat

    def _clipped(self, update: Any) -> NDArray[np.float64]:
        return clip_update(self._flat(update), self.clip).vector

    def _one(self, flat: NDArray[np.float64], entropy: Any) -> NDArray[np.int64]:
        vector = quantize(flat, self.sums.domain, entropy).vector
        create_noise(self.sums.mechanism).add_to(vector, entropy)
        return vector

    def __repr__(self) -> str:
        plan = self.sums.plan
        return (
            f"<VectorDesign: {self.dimension:,} numbers, {self.sums.domain.norm.name.lower()} norm "
            f"at most {self.clip:g}; rounds of {plan.cohort_min:,} to {plan.cohort_max:,} devices, "
            f"{self.sums.mechanism.name} noise>"
        )


def design_vector(
    names: int | Iterable[str],
    *,
    clip: float,
    devices: int,
    epsilon: float,
    norm: str = "l2",
    delta: float = DELTA,
    honest_fraction: float = HONEST_FRACTION,
    drop_out: float = DROP_OUT,
    unit: str = "",
    mode: str = "default",
    rounds: int = 1,
    weighted: bool = False,
) -> VectorDesign:
    """The least noise with which sums of vectors promise ``epsilon`` in all ``rounds`` together.

    A device may answer in every round, and a round may ask what the ones before it suggest, as
    when a model is trained: their costs grow about with the root of their number.
    ``names``: one per coordinate, or how many coordinates there are. ``clip``: the largest
    ``norm`` ("l2", "l1" or "coordinate") of one device's vector. ``devices``: of a round, at most;
    it begins with four fifths of them, and ``drop_out`` of these may be lost. ``mode``: "default",
    "strict" or "helper" (docs/SECAGG.md). ``weighted``: make room for a weight of each device
    ("l2" alone).
    """
    labels, dimension = _names(names)
    if norm not in NORMS:
        raise wrong_value("norm", f"give one of {', '.join(NORMS)}")
    chosen = _mode(mode, devices)
    ppm = int(share("honest_fraction", honest_fraction) * PPM)
    largest, allowed = positive("clip", clip), delta_of(delta)
    cohort = whole("devices", devices, 2, LIMITS.helper_cohort)
    lost = int(below_one("drop_out", drop_out) * PPM)
    target, asked = positive("epsilon", epsilon), whole("rounds", rounds, 1, LIMITS.windows)
    with about("clip"):
        Vector(dimension, NORMS[norm], largest, 1, labels, unit)
    bound = largest
    if weighted:
        if NORMS[norm] is not Norm.L2:
            raise wrong_value("weighted", "weights go with norm='l2' alone")
        dimension, bound = dimension + 1, widened(largest)
        labels = (*labels, LABEL) if labels else ()
    if not _enough(cohort, lost, ppm):
        raise wrong_value(
            "devices",
            "fewer than 2 honest ones are sure to be left of a round: raise devices or "
            "honest_fraction, or lower drop_out",
        )
    with about("epsilon"):
        sums = design_sum(
            dimension=dimension,
            norm=NORMS[norm],
            clip=bound,
            noise="discrete_laplace" if NORMS[norm] is Norm.L1 else "skellam",
            mode=chosen,
            cohort_max=cohort,
            dropout_ppm=lost,
            honest_fraction_ppm=ppm,
            epsilon=target,
            delta=allowed,
            names=labels,
            unit=unit,
            windows=asked,
        )
    return VectorDesign(sums, ppm, allowed, asked, largest, weighted)


def _mode(mode: str, devices: int) -> Mode:
    modes = {each.name.lower(): each for each in Mode}
    if mode not in modes:
        raise wrong_value("mode", f"give one of {', '.join(modes)}")
    most = LIMITS.helper_cohort if modes[mode] is Mode.HELPER else LIMITS.cohort
    if isinstance(devices, int) and most < devices <= LIMITS.helper_cohort:
        raise wrong_value(
            "devices", f"a round takes {most:,} at most: mode='helper' takes more (docs/SECAGG.md)"
        )
    return modes[mode]


def _names(names: int | Iterable[str]) -> tuple[tuple[str, ...], int]:
    """The names of the coordinates, none if they are numbered, and how many there are."""
    said = "give one name per coordinate in a list, or how many coordinates there are"
    if isinstance(names, str | bytes):
        raise wrong_type("names", f"one text is no list: {said}")
    if isinstance(names, Iterable):
        labels = tuple(str(name) for name in names)
        if len(set(labels)) != len(labels):
            raise wrong_value("names", f"a name is there twice: {said}")
        return labels, whole("names", len(labels), 1, LIMITS.vector_words)
    return (), whole("names", names, 1, LIMITS.vector_words)


def _enough(devices: int, dropout_ppm: int, honest_ppm: int) -> bool:
    """Whether two honest devices are sure to be left of a round, as the task's lint wants."""
    least = max(2, -(-devices * 4 // 5))
    left = least - least * dropout_ppm // PPM
    honest = 1 - Fraction(PPM - honest_ppm, PPM) / (1 - Fraction(dropout_ppm, PPM))
    return left * honest >= 2
