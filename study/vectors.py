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
from shoal.study.updates import NORMS, flattened
from shoal.task import PPM

DROP_OUT = 0.2
"""The share of a round that may be lost where nobody says another: that of the sample task."""


@dataclass(frozen=True, slots=True, repr=False)
class VectorPromise:
    """What every round's sum promises each device. ``certificate`` has all figures."""

    certificate: SumBound
    mode: str

    @property
    def epsilon(self) -> float:
        """The central epsilon of one round's sum, proven, rounded up."""
        return self.certificate.epsilon_upper

    @property
    def sentences(self) -> list[str]:
        """What it means for a person, in plain words and odds."""
        c = self.certificate
        together = c.remaining.together
        left = together if math.isfinite(together) else None
        return sum_sentences(c.epsilon_upper, c.delta, c.honest, left, self.mode)

    @property
    def headline(self) -> str:
        """Both ends in a line."""
        c = self.certificate
        return (
            f"epsilon <= {bound_text(c.epsilon_upper)} at delta = {c.delta:g} for each round, by "
            f"noise of {c.honest:,} honest devices of {c.survivors:,} that stay"
        )

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

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return self.sums.domain.dimension

    @property
    def clip(self) -> float:
        """The largest norm of one device's vector."""
        return self.sums.domain.clip

    @property
    def survivors(self) -> int:
        """Devices that a round keeps at least; with fewer there is no sum."""
        return self.sums.plan.survivors_min

    def randomize(self, update: Any, *, simulation_seed: int | None = None) -> NDArray[np.int64]:
        """int64[d]: what one device adds to the sum: its vector clipped, rounded to whole steps at
        random, and its share of the noise. One share is little noise: show it to nobody.
        """
        return self._one(update, entropy_of(simulation_seed))

    def mean(self, updates: Iterable[Any], *, simulation_seed: int | None = None) -> VectorMean:
        """What an analyzer learns of these devices' updates, one each. Raises for fewer than
        ``survivors``, and for more than a round takes.
        """
        entropy = entropy_of(simulation_seed)
        total, n = np.zeros(self.dimension, dtype=np.int64), 0
        for update in updates:
            total += self._one(update, entropy)
            n += 1
        if n < self.survivors:
            raise wrong_value(
                "updates", f"{n:,} devices: a round has {self.survivors:,} at least, or no sum"
            )
        if n > self.sums.plan.cohort_max:
            raise wrong_value(
                "updates", f"{n:,} devices: a round takes {self.sums.plan.cohort_max:,} at most"
            )
        domain, noise = self.sums.domain, self.sums.mechanism
        stderr = math.hypot(*errors_of_sum(domain, noise, n))
        return VectorMean(
            domain.labels, dequantize(total, domain), stderr, reach_of_sum(noise, n), n
        )

    def certify(self) -> VectorPromise:
        """The promise of every round: of the fewest devices that it keeps, and the honest share
        that is left of them whoever is lost.
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
        return VectorPromise(bound, plan.mode.name.lower())

    @property
    def error(self) -> float:
        """The standard error of each coordinate of a mean over the fewest devices of a round."""
        return math.hypot(*errors_of_sum(self.sums.domain, self.sums.mechanism, self.survivors)) / (
            self.survivors
        )

    def _one(self, update: Any, entropy: Any) -> NDArray[np.int64]:
        flat, _ = flattened(update)
        if flat.size != self.dimension:
            raise wrong_value(
                "update", f"give {self.dimension:,} numbers, not {flat.size:,}, as was designed"
            )
        noise = create_noise(self.sums.mechanism)
        return quantize(flat, self.sums.domain, entropy).vector + noise.sample(flat.size, entropy)

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
) -> VectorDesign:
    """The least noise with which sums of vectors promise ``epsilon`` in every round.

    ``names``: one per coordinate, or how many coordinates there are. ``clip``: the largest
    ``norm`` ("l2", "l1" or "coordinate") of one device's vector. ``devices``: of a round, at most;
    it begins with four fifths of them, and ``drop_out`` of these may be lost. ``mode``: "default",
    "strict" or "helper" (docs/SECAGG.md).
    """
    labels, dimension = _names(names)
    if norm not in NORMS:
        raise wrong_value("norm", f"give one of {', '.join(NORMS)}")
    modes = {each.name.lower(): each for each in Mode}
    if mode not in modes:
        raise wrong_value("mode", f"give one of {', '.join(modes)}")
    most = LIMITS.helper_cohort if modes[mode] is Mode.HELPER else LIMITS.cohort
    if isinstance(devices, int) and most < devices <= LIMITS.helper_cohort:
        raise wrong_value(
            "devices", f"a round takes {most:,} at most: mode='helper' takes more (docs/SECAGG.md)"
        )
    ppm = int(share("honest_fraction", honest_fraction) * PPM)
    largest, allowed = positive("clip", clip), delta_of(delta)
    cohort = whole("devices", devices, 2, LIMITS.helper_cohort)
    lost = int(below_one("drop_out", drop_out) * PPM)
    target = positive("epsilon", epsilon)
    with about("clip"):
        Vector(dimension, NORMS[norm], largest, 1, labels, unit)
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
            clip=largest,
            noise="discrete_laplace" if NORMS[norm] is Norm.L1 else "skellam",
            mode=modes[mode],
            cohort_max=cohort,
            dropout_ppm=lost,
            honest_fraction_ppm=ppm,
            epsilon=target,
            delta=allowed,
            names=labels,
            unit=unit,
        )
    return VectorDesign(sums, ppm, allowed)


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
