"""A deployment before it exists: made-up or known people, the real randomizer, tally and estimate.

Each run, every device drops out or not by a coin of its own, whatever its answer is. Those that
stay randomize their answers; the estimates are held against the truth *of those that stay*. So the
simulated error is the randomizer's (and, of a number, that of rounding it to a level), as the
planner predicts it; that a share of the people is missing is another error, which nothing here
knows.

Hostile devices are looked at apart (``hostile``): how far they could move each estimate if all of
them sent the one report that moves it furthest, up or down.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from shoal.analyzer.planner import Simulation
from shoal.analyzer.results.processed import MEANS
from shoal.arrays import NDArray, np
from shoal.domain import NO_ANSWER, Domain, Numeric, Words
from shoal.entropy import Entropy
from shoal.mechanisms.base import Mechanism, Z
from shoal.mechanisms.parts.sampling import bernoulli
from shoal.mechanisms.parts.tables import MEAN_OF_ALL
from shoal.study.frames import Cell, Table, shown_cell
from shoal.study.hostile import HostileReach, reach_of
from shoal.study.people import People
from shoal.study.pictures import Picture, intervals
from shoal.study.promise import Promise
from shoal.study.reports import tally_of

_COLLISIONS = (
    "collisions of words are the same in every run: predicted is what they are on average over the "
    "choice of hash functions, as the standard errors of estimates say it"
)
_FEW_RUNS = 30  # below it the interval of the simulated error says little
COLUMNS = (
    "label",
    "truth",
    "predicted_error",
    "simulated_error",
    "covered",
    "hostile_down",
    "hostile_up",
)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """``drop_out``: of the devices, each by a coin of its own. ``hostile``: of the reports that
    come. ``min_batch``: with fewer nothing is released.
    """

    runs: int
    drop_out: Fraction
    hostile: Fraction
    min_batch: int


@dataclass(frozen=True, slots=True, repr=False)
class Simulated:
    """What was predicted, and what came out.

    ``table``: a row per label. ``predicted_error`` and ``simulated_error``: standard errors, by
    formula and over the runs; ``covered``: how often the 95 % interval held the truth;
    ``hostile_down`` and ``hostile_up``: how far all hostile devices together could move the
    estimate. ``errors``: over all labels, whether both agree. ``promise``: for the honest reports,
    of the smallest batch that is released. ``released``: the share of runs with enough reports.
    """

    table: Table
    errors: Simulation
    promise: Promise
    reports: float
    hostile_devices: int
    released: float
    unit: str
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """What happened, in a line."""
        errors = self.errors
        alike = errors.agrees or self.notes or errors.runs < _FEW_RUNS
        far = "" if alike else " (so far apart in 1 of 20 simulations by chance)"
        return (
            f"{errors.runs} runs of {self.reports:,.0f} reports: a standard error of "
            f"{shown_cell(errors.observed)} {self.unit} (95 %: {shown_cell(errors.low)} to "
            f"{shown_cell(errors.high)}), predicted: {shown_cell(errors.predicted)}{far}; "
            f"{100 * self.released:.0f} % of the batches released"
        )

    @property
    def _lines(self) -> list[str]:
        count = self.hostile_devices
        said = f"{count:,} hostile reports could move an estimate as far as the table says"
        return [self.headline, *([said] if count else []), *self.notes, self.promise.headline]

    def plot(self, title: str = "") -> Picture:
        """The truth of each label, with the band in which 95 % of the estimates are expected."""
        rows = []
        for row in self.table:
            truth, error = row["truth"], row["predicted_error"]
            if isinstance(truth, float) and isinstance(error, float):
                band = {"low": truth - Z * error, "high": truth + Z * error, "truth": truth}
                rows.append((str(row["label"]), band))
        means = [row for row in rows if row[0] in MEANS]
        said = title or f"Where estimates from {self.reports:,.0f} reports will lie"
        return intervals(said, self.unit, means or rows)

    def __repr__(self) -> str:
        return "\n".join([*self._lines, repr(self.table)])

    def _repr_html_(self) -> str:
        lines = "<br>".join(html.escape(line) for line in self._lines)
        return f"<p>{lines}</p>{self.table._repr_html_()}"


def simulated(
    mechanism: Mechanism,
    people: People,
    given: Circumstances,
    entropy: Entropy,
    promised: Callable[[int, Fraction], Promise],
) -> Simulated:
    """Play the deployment. ``promised``: the promise of so many reports, of which a share is
    honest.
    """
    played = _Played(mechanism, people, given, entropy)
    for _ in range(given.runs):
        played.run()
    means = any(label in MEANS for label in played.labels)
    kept = [i for i, label in enumerate(played.labels) if not means or label in MEANS]
    predicted = played.predicted()
    hostile = count_of(given.hostile, round(played.reports))
    batch = given.min_batch or max(1, math.floor(played.reports))
    return Simulated(
        table=played.table(
            predicted, reach_of(mechanism, people.domain, played.last, hostile, entropy)
        ),
        errors=_errors(played.squares[:, kept], predicted[kept]),
        promise=promised(batch, 1 - given.hostile),
        reports=played.reports,
        hostile_devices=hostile,
        released=played.released / given.runs,
        notes=(_COLLISIONS,) if isinstance(people.domain, Words) else (),
        unit=(people.domain.unit or "the number's unit") if means else "people",  # type: ignore[union-attr] # a mean is of a number
    )


def count_of(share: Fraction, n: int) -> int:
    """How many of n: rounded up, since what hostile devices can do is not made smaller here."""
    return -(-n * share.numerator // share.denominator)


class _Played:
    """The runs, and what is kept of them."""

    def __init__(
        self, mechanism: Mechanism, people: People, given: Circumstances, entropy: Entropy
    ) -> None:
        self._mechanism, self._people, self._given = mechanism, people, given
        self._entropy = entropy
        nothing = np.zeros((0, mechanism.report_size), dtype=np.uint8)
        self.labels = mechanism.estimate(mechanism.tally(nothing)).labels
        self.squares = np.zeros((given.runs, len(self.labels)))
        self._truths = np.zeros_like(self.squares)
        self._inside = np.zeros(len(self.labels), dtype=np.int64)
        self._reported = np.zeros(len(self.labels))
        self._total, self._done, self.released = 0, 0, 0
        self.last = mechanism.tally(nothing)

    @property
    def reports(self) -> float:
        """Of a run, on average."""
        return self._total / max(1, self._done)

    def run(self) -> None:
        """One deployment: drop-outs, reports, estimates, held against the truth of who stayed."""
        stays = self._stays()
        values, cells = self._people.taken(stays, self._entropy)
        array = self._mechanism.randomize(cells, self._entropy)
        self.last = tally_of(self._mechanism, array)
        estimate = self._mechanism.estimate(self.last)
        truth = truth_of(self.labels, self._people.domain, values, cells)
        at, self._done = self._done, self._done + 1
        self.squares[at] = (estimate.values - truth) ** 2
        self._truths[at] = truth
        self._reported += estimate.stderr**2
        self._inside += (estimate.ci_low <= truth) & (truth <= estimate.ci_high)
        self._total += cells.size
        self.released += cells.size >= max(1, self._given.min_batch)

    def _stays(self) -> NDArray[np.bool_] | None:
        """Who does not drop out: each decides by one word; None: all of them."""
        drop_out = self._given.drop_out
        if not drop_out:
            return None
        keep = np.uint64(min((1 << 64) - 1, math.floor((1 - drop_out) * (1 << 64))))
        stays = bernoulli(np.broadcast_to(keep, self._people.n), self._entropy)
        if not stays.any():
            stays[0] = True  # a batch of nobody estimates nothing
        return stays

    def predicted(self) -> NDArray[np.float64]:
        """Standard errors, by formula: of the randomizer, and of a mean's rounding to levels."""
        if isinstance(self._people.domain, Words):
            return np.asarray(np.sqrt(self._reported / self._done))
        share = self.reports / self._people.n
        counts, rounding = self._people.expected(share)
        errors = self._mechanism.expected_stderr(counts)
        if counts.size and errors.size == len(self.labels):
            answered = self.reports - (counts[-1] if counts.size > 2 else 0)
            for at, label in enumerate(self.labels):
                if label in MEANS:
                    people = self.reports if label == MEAN_OF_ALL else max(1.0, answered)
                    errors[at] = math.hypot(errors[at], math.sqrt(rounding) / people)
        return errors

    def table(self, predicted: NDArray[np.float64], reach: HostileReach) -> Table:
        """A row per label."""
        observed = np.sqrt(self.squares.mean(axis=0))
        columns = (
            self._truths.mean(axis=0),
            predicted,
            observed,
            self._inside / self._done,
            reach.down,
            reach.up,
        )
        rows: list[list[Cell]] = [
            [label, *(float(column[at]) for column in columns)]
            for at, label in enumerate(self.labels)
        ]
        unseen = () if self._given.hostile else ("hostile_down", "hostile_up")
        return Table(COLUMNS, rows, unseen=unseen)


def truth_of(
    labels: tuple[str, ...],
    domain: Domain,
    values: NDArray[np.float64] | None,
    cells: NDArray[np.int64],
) -> NDArray[np.float64]:
    """What each estimate is an estimate of: the mean of the values themselves, not of the levels
    that they are rounded to; of labels the people who hold them, of levels those who were rounded
    to them.
    """
    if values is not None and isinstance(domain, Numeric) and any(each in MEANS for each in labels):
        answered = values[np.isfinite(values)]
        middle, missing = (domain.low + domain.high) / 2, values.size - answered.size
        of_all = (float(answered.sum()) + middle * missing) / max(1, values.size)
        of_answers = float(answered.mean()) if answered.size else middle
        known = {NO_ANSWER: float(missing), MEAN_OF_ALL: of_all, "mean": of_answers}
        return np.array([known[each] for each in labels])
    places = np.array(domain.label_cells, dtype=np.int64)
    found, counts = np.unique(cells, return_counts=True)
    at = np.clip(np.searchsorted(found, places), 0, max(0, found.size - 1))
    return np.where(found[at] == places, counts[at], 0).astype(np.float64)


def _errors(squares: NDArray[np.float64], predicted: NDArray[np.float64]) -> Simulation:
    """Over all labels: the root of the mean square, and where infinitely many runs would put it."""
    each = squares.mean(axis=1)
    average = float(each.mean())
    reach = Z * float(each.std(ddof=1)) / math.sqrt(each.size)
    return Simulation(
        int(each.size),
        math.sqrt(float(np.mean(predicted**2))),
        math.sqrt(average),
        math.sqrt(max(0.0, average - reach)),
        math.sqrt(average + reach),
    )
