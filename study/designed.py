"""A question with its randomizer: what ``shoal.design`` makes, and all that is done with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shoal.analyzer.planner.simulation.simulate import MOST_RUNS
from shoal.analyzer.results.processed import quantiles_of
from shoal.arrays import np
from shoal.domain import Categories, Domain, Numeric, Words, YesNo
from shoal.entropy import SYSTEM, Entropy, SeededEntropy
from shoal.mechanisms import REGISTRY, create
from shoal.mechanisms import design as integers
from shoal.mechanisms.base import Mechanism, Tally
from shoal.privacy import epsilon0_upper
from shoal.study.arguments import (
    about,
    below_one,
    delta_of,
    positive,
    whole,
    wrong_type,
    wrong_value,
)
from shoal.study.audited import Audited, audited
from shoal.study.cells import cells_of
from shoal.study.columns import column_of
from shoal.study.domains import domain_of_question
from shoal.study.estimates import EstimateTable
from shoal.study.frames import Library, Table
from shoal.study.people import people_of
from shoal.study.promise import DELTA, HONEST_FRACTION, Promise, promise_of
from shoal.study.reports import Reports, tally_of
from shoal.study.simulated import Circumstances, Simulated, simulated
from shoal.task import MechanismSpec

TWO_COINS = 1.0986122886681098
"""ln 3: the local epsilon of randomized response with two coins, and of the sample task."""
_USUAL = ((YesNo, "binary_rr"), (Categories, "krr"), (Numeric, "kmean"), (Words, "count_sketch"))
MOST_AUDITED = 10_000  # reports of a batch that is attacked
_MOST_DEVICES = 10_000_000  # of a rehearsal: their cells are held in memory
_UNKNOWN = "give 'refuse', or 'missing' to count what is no answer as a missing one"


@dataclass(frozen=True, slots=True, repr=False)
class Design:
    """A question, and the randomizer with which each device answers it. Immutable.

    ``domain`` and ``mechanism`` are those that a task has: the same code randomizes on a device and
    estimates at an analyzer.
    """

    domain: Domain
    mechanism: Mechanism

    @property
    def epsilon0(self) -> float:
        """The local epsilon of one report, of the very integers that are drawn with; rounded up."""
        return epsilon0_upper(self.mechanism.privacy())

    @property
    def labels(self) -> tuple[str, ...]:
        """The answers that are counted, "no answer" among them; of a number its levels."""
        return self.domain.labels

    @property
    def spec(self) -> MechanismSpec:
        """The mechanism's name and its integers, as a task file has them."""
        return self.mechanism.spec

    def randomize(
        self,
        values: Iterable[object],
        *,
        unknown: str = "refuse",
        simulation_seed: int | None = None,
    ) -> Reports:
        """One report per value: a list, a NumPy array, or one column of a data frame. Values are
        answers as people give them, not numbers of cells; None and NaN are missing answers.

        Randomness is the operating system's. ``unknown``: "missing" counts what is no answer to the
        question as a missing one; otherwise it is refused. ``simulation_seed``: the same reports in
        every run, for made-up people alone: whoever knows the seed undoes the protection.
        """
        if unknown not in ("refuse", "missing"):
            raise wrong_value("unknown", _UNKNOWN)
        column = column_of(values)
        entropy = entropy_of(simulation_seed)
        cells = cells_of(self.domain, column, entropy, unknown_is_missing=unknown == "missing")
        array = self.mechanism.randomize(cells, entropy)
        array.setflags(write=False)
        return Reports(array, self.spec, self.domain, simulation_seed is not None, column.library)

    def tally(self, reports: Reports) -> Tally:
        """How often each output was reported. Tallies of several batches add with +."""
        if not isinstance(reports, Reports):
            raise wrong_type("reports", "give what randomize() returned")
        if reports.spec != self.spec or reports.domain != self.domain:
            raise wrong_value(
                "reports", "they are of another design: give what randomize() of this one returned"
            )
        return tally_of(self.mechanism, reports.array)

    def estimate(self, reports: Reports | Tally) -> EstimateTable:
        """Unbiased estimates with 95 % intervals: numbers of people per label, or the mean of a
        number. ``to_frame()`` of it is a data frame of the library that the values came from.
        """
        tally, library = self._counted(reports)
        unit = getattr(self.domain, "unit", "")
        estimate = self.mechanism.estimate(tally)
        return EstimateTable.of(estimate, self._people(tally), unit, library)

    def quantiles(self, reports: Reports | Tally) -> Table:
        """Of a number, or of ordered bins: the values that 5 % to 95 % of the people are at or
        below, with 95 % intervals. Raises where the mechanism tells none.
        """
        tally, library = self._counted(reports)
        found = quantiles_of(self.mechanism, self.domain, tally)
        if not found:
            raise wrong_value(
                "reports",
                f"{self.spec.name} tells no quantiles of this question: design it with low, high "
                "and mechanism='kmean', or with ordered bins (lower_bounds)",
            )
        return Table(
            ("share", "value", "ci_low", "ci_high"),
            [(each.share, each.value, each.low, each.high) for each in found],
            library=library,
        )

    def certify(
        self,
        n: int,
        *,
        delta: float = DELTA,
        honest_fraction: float = HONEST_FRACTION,
    ) -> Promise:
        """What a shuffled batch of ``n`` reports promises each person: the central epsilon at
        ``delta``, proven, where ``honest_fraction`` of the devices follow the protocol.
        """
        return promise_of(self.mechanism.privacy(), n, delta, honest_fraction)

    def simulate(
        self,
        n: int | None = None,
        *,
        values: Iterable[object] | None = None,
        shares: Sequence[float] | Mapping[str, float] | None = None,
        drop_out: float = 0.0,
        hostile: float = 0.0,
        min_batch: int | None = None,
        runs: int = 100,
        delta: float = DELTA,
        unknown: str = "refuse",
        simulation_seed: int | None = None,
    ) -> Simulated:
        """Play the deployment before it exists: ``n`` devices, of which a share drops out and a
        share of those that report is ``hostile``.

        The answers are ``values`` (stretched to ``n`` if both are given), or made up: by the
        ``shares`` of the labels, else all labels alike, and numbers in the shape of a bell.
        ``min_batch``: with fewer reports nothing is released. The promise is for the honest
        reports. 100,000 devices in 100 runs take a few seconds at most.
        """
        if unknown not in ("refuse", "missing"):
            raise wrong_value("unknown", _UNKNOWN)
        people = people_of(
            self.domain,
            None if n is None else whole("n", n, 2, _MOST_DEVICES),
            values,
            shares,
            unknown,
        )
        given = Circumstances(
            whole("runs", runs, 2, MOST_RUNS),
            below_one("drop_out", drop_out),
            below_one("hostile", hostile),
            0 if min_batch is None else whole("min_batch", min_batch, 2, people.n),
        )
        law = self.mechanism.privacy()
        return simulated(
            self.mechanism,
            people,
            given,
            entropy_of(simulation_seed),
            lambda batch, honest: promise_of(law, batch, delta, honest),
        )

    def audit(
        self,
        n: int = 100,
        *,
        delta: float = 1e-2,
        trials: int = 20_000,
        simulation_seed: int | None = None,
    ) -> Audited:
        """Attack the randomizer, alone and in a shuffled batch of ``n``: ``trials`` batches in
        which one person gives one answer, and as many in which that person gives the other. A small
        batch and a large ``delta`` show most. Seconds; ``shoal audit`` does more.
        """
        batch = whole("n", n, 1, MOST_AUDITED)
        return audited(
            self.mechanism,
            self.domain,
            batch,
            delta_of(delta),
            whole("trials", trials, 100, 10_000_000),
            entropy_of(simulation_seed),
        )

    def _counted(self, reports: Reports | Tally) -> tuple[Tally, Library]:
        if isinstance(reports, Tally):
            return reports, Library.NONE
        return self.tally(reports), reports.library

    def _people(self, tally: Tally) -> int:
        return tally.rows // self.mechanism.messages

    def __repr__(self) -> str:
        shown = ", ".join(self.labels[:6]) + (", ..." if len(self.labels) > 6 else "")
        integers_shown = ", ".join(f"{name}={value}" for name, value in self.spec.parameters)
        return (
            f"<Design: {shown}; {self.spec.name}, epsilon0 <= {self.epsilon0:.4g}, "
            f"{integers_shown}>"
        )


def design(
    labels: Iterable[object] | None = None,
    *,
    kind: str | None = None,
    low: float | None = None,
    high: float | None = None,
    levels: int | None = None,
    lower_bounds: Iterable[int] | None = None,
    clip: bool = True,
    unit: str = "",
    mechanism: str | None = None,
    setting: str = "",
    epsilon0: float = TWO_COINS,
) -> Design:
    """A question and the randomizer that answers it.

    ``labels``: the possible answers; or ``low`` and ``high`` of a number, cut into ``levels``; or
    nothing, for a yes or no. ``kind="words"``: any text is an answer, and the labels are those that
    are counted. ``lower_bounds``: numbers fall into the last label whose bound they reach.
    ``epsilon0``: how much one report may give away by itself. ``mechanism`` and ``setting`` are
    names of docs/MECHANISMS.md; ``shoal.plan`` chooses them, and epsilon0, for a guarantee.
    """
    domain = domain_of_question(
        labels,
        kind=kind,
        low=low,
        high=high,
        levels=levels,
        lower_bounds=lower_bounds,
        clip=clip,
        unit=unit,
    )
    name = _usual(domain) if mechanism is None else mechanism
    if not isinstance(name, str):
        raise wrong_type("mechanism", "give a name, as 'krr', or leave it out")
    if name not in REGISTRY:
        raise wrong_value("mechanism", f"give one of {', '.join(REGISTRY)}")
    if not isinstance(setting, str):
        raise wrong_type("setting", "give a name, as 'oue', or leave it out")
    asked = positive("epsilon0", epsilon0)
    with about("setting" if setting else "epsilon0" if mechanism is None else "mechanism"):
        return Design(domain, create(integers(name, domain, asked, setting), domain))


def entropy_of(simulation_seed: int | None) -> Entropy:
    """The system's randomness, or a reproducible stream for made-up people."""
    if simulation_seed is None:
        return SYSTEM
    if isinstance(simulation_seed, bool) or not isinstance(simulation_seed, int | np.integer):
        raise wrong_type("simulation_seed", "give a whole number, or leave it out")
    return SeededEntropy(int(simulation_seed))


def _usual(domain: Domain) -> str:
    return next(name for kind, name in _USUAL if isinstance(domain, kind))
