"""The demo's people and questions: one simulated device per row of the bundled survey
(docs/DATA.md).
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from dataclasses import dataclass, replace
from importlib.resources import files

from shoal.analyzer.results.processed import MEANS
from shoal.arrays import NDArray, np
from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, design, serves
from shoal.mechanisms.categories.binary_rr import two_coin
from shoal.mechanisms.parts.sampling import uniform_below
from shoal.task import MechanismSpec

_LEVELS = 21  # visits 0..20
EPSILON0 = 3.0  # of one report about categories or the mean


@dataclass(frozen=True, slots=True)
class Question:
    """One task of the demo: its words, its randomizer, and the truth that the estimate is held
    against.
    """

    name: str
    question: str
    domain: Domain
    mechanism: MechanismSpec

    def values(self, visits: NDArray[np.int64]) -> list[int]:
        """What each device would answer: yes/no as 0 or 1, otherwise the number of visits."""
        answers: list[int] = (
            (visits > 0).astype(np.int64) if isinstance(self.domain, YesNo) else visits
        ).tolist()
        return answers

    def truth(self, visits: NDArray[np.int64]) -> dict[str, float]:
        """The exact answer per label of the estimate."""
        if isinstance(self.domain, Numeric):
            mean = float(np.clip(visits, self.domain.low, self.domain.high).mean())
            # everybody answers, so that every kind of mean is the same
            return {**dict.fromkeys(sorted(MEANS), mean), "no answer": 0.0}
        cells = [self.domain.encode(value) for value in self.values(visits)]
        counts = np.bincount(cells, minlength=self.domain.size)
        return {
            label: float(count) for label, count in zip(self.domain.labels, counts, strict=True)
        }


def questions(chosen: str = "", setting: str = "") -> tuple[Question, ...]:
    """Yes/no, categories, mean: three tasks over the same devices.

    ``chosen``: a registered mechanism that randomizes the question it is made for, the mean or the
    categories, else yes/no, at the question's own epsilon0, by ``setting`` ("": its first). Raises
    CONFIG that lists the names or settings.
    """
    categories = Categories(("0", "1", "2", "3-4", "5-9", "10+"), (0, 1, 2, 3, 5, 10))
    numeric = Numeric(0.0, 20.0, _LEVELS, clip=True, unit="visits")
    asked = (
        Question("any-visit", "Did you have any outpatient visit this year?", YesNo(), two_coin()),
        Question(
            "visit-groups",
            "How many outpatient visits did you have this year?",
            categories,
            design("krr", categories, EPSILON0),
        ),
        Question(
            "mean-visits",
            "How many outpatient visits this year (20 or more count as 20)?",
            numeric,
            design("kmean", numeric, EPSILON0),
        ),
    )
    if not chosen:
        if setting:
            raise ShoalError(
                Kind.CONFIG, "--setting goes with --mechanism: say which mechanism it is of"
            )
        return asked
    if chosen not in REGISTRY:
        raise ShoalError(
            Kind.CONFIG, f"--mechanism must be one of {', '.join(REGISTRY)}, got {chosen!r}"
        )
    fits = [each for each in (asked[1], asked[0], asked[2]) if serves(chosen, each.domain)]
    if not fits:
        raise ShoalError(
            Kind.CONFIG,
            f"--mechanism {chosen} fits no question of the demo's survey, which has no places: "
            "choose another, or play a task of your own with shoal load",
        )
    fitting = fits[0]
    known = [question.name for question in REGISTRY[chosen].settings(fitting.domain)]
    if setting and setting not in known:
        raise ShoalError(
            Kind.CONFIG, f"--setting of {chosen} must be one of {', '.join(known)}, got {setting!r}"
        )
    if fitting.mechanism.name == chosen and not setting:
        return asked
    epsilon0 = math.log(3.0) if fitting is asked[0] else EPSILON0
    chosen_question = replace(fitting, mechanism=design(chosen, fitting.domain, epsilon0, setting))
    return tuple(chosen_question if question is fitting else question for question in asked)


def load_visits(devices: int | None) -> NDArray[np.int64]:
    """int64[n]: outpatient visits per row; with ``devices`` given, that many rows drawn with
    replacement (bootstrap).
    """
    packed = files("shoal.cli.demo").joinpath("randhie.csv.gz").read_bytes()
    rows = list(csv.reader(io.StringIO(gzip.decompress(packed).decode())))
    column = rows[0].index("mdvis")
    visits = np.array([int(float(row[column])) for row in rows[1:]], dtype=np.int64)
    if devices is None or devices == len(visits):
        return visits
    return visits[uniform_below(len(visits), devices, SYSTEM).astype(np.int64)]
