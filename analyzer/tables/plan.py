"""Several answers together, planned: each device in one table or in all of them, by which
mechanism, and how far the counts will be off.

All ways are held to one (epsilon, delta) of a release, with as many honest devices as are sure. In
one table of h a count is h times that of the devices which drew it: the noise counts h-fold, and
the coins add N (h - 1) to the variance of a count of N. In all tables the noise of a cell grows
with sqrt(h) alone, and so do a device's messages with h. So all tables are better wherever a device
may send so many messages (measured: docs/TABLES.md).

Ways whose true messages are the value have no epsilon0, and owners are asked for consent to that by
name. Beside them stands a way of one message, k-ary randomized response over the cells of all
tables, for fleets whose owners refuse: it keeps an epsilon0 whoever works together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from shoal.accounting.certificate import count_honest
from shoal.accounting.several_messages.messages import certify_messages
from shoal.accounting.several_messages.of_domain import design_several
from shoal.accounting.several_messages.of_mechanism import protocol_of
from shoal.analyzer.planner import Frequencies, Request, plan
from shoal.analyzer.planner.question import MOST_DEVICES, wrong
from shoal.analyzer.tables.consistent import consistent
from shoal.analyzer.tables.of_record import released_of
from shoal.arrays import np
from shoal.domain import AnswerRecord, Categories
from shoal.errors import ShoalError
from shoal.mechanisms import Mechanism, create
from shoal.mechanisms.several.names import CANCELLING, DUMMIES, MARGINALS
from shoal.mechanisms.several.protocol import Noisy
from shoal.mechanisms.several.registry import create as create_several
from shoal.task import PPM, MechanismSpec

_WAYS = ((MARGINALS, True), (CANCELLING, False), (DUMMIES, False))
ONE_MESSAGE = "krr"


@dataclass(frozen=True, slots=True)
class TablesRequest:
    """``n``: devices of a release, at least, floor(``honest`` * n) of them honest; (``epsilon``,
    ``delta``): of one release. ``windows``: releases of the same devices for whose composition
    tails are cut off.
    """

    record: AnswerRecord
    n: int
    epsilon: float
    delta: float
    honest: Fraction = Fraction(1)
    windows: int = 1

    @property
    def n_honest(self) -> int:
        """Devices of a release that are assumed honest."""
        return count_honest(self.n, self.honest)


@dataclass(frozen=True, slots=True)
class TablesWay:
    """``record``: with ``together`` as the way has it; ``epsilon``: certified, an upper bound;
    ``noise``: standard error of the mechanism's count of a cell, in devices; ``error``: root mean
    square over all cells of all tables of what a release states, ``agreed``: of the consistent
    tables, where each cell has its share of ``n``. ``messages``: mean of a device; ``slots``: most.
    """

    request: TablesRequest
    record: AnswerRecord
    made: Mechanism | Noisy
    spec: MechanismSpec
    epsilon: float
    epsilon0: float
    noise: float
    error: float
    agreed: float
    messages: float
    slots: int

    @property
    def name(self) -> str:
        """The mechanism's."""
        return self.spec.name


@dataclass(frozen=True, slots=True)
class TablesPlan:
    """``ways``: the least ``agreed`` error first; ``unsuited``: (name, why not)."""

    request: TablesRequest
    ways: tuple[TablesWay, ...]
    unsuited: tuple[tuple[str, str], ...]

    @property
    def best(self) -> TablesWay:
        """The least error; its owners are asked whether their answers may be seen by both."""
        return self.ways[0]


def plan_tables(request: TablesRequest) -> TablesPlan:
    """Every way that fits. Raises CONFIG for bad numbers, and where none fits."""
    if not (math.isfinite(request.epsilon) and request.epsilon > 0.0 and 0.0 < request.delta < 1.0):
        raise wrong("tables want epsilon above 0, and delta between 0 and 1: 1e-6 or less is usual")
    if request.n_honest < 2 or request.n > MOST_DEVICES:
        raise wrong(
            f"tables want two honest devices or more, and {MOST_DEVICES:,} in all at most: give "
            "another n"
        )
    ways, unsuited = list[TablesWay](), list[tuple[str, str]]()
    for found in _every(request):
        if isinstance(found, TablesWay):
            ways.append(found)
        else:
            unsuited.append(found)
    if not ways:
        raise wrong(unsuited[0][1])
    ways.sort(key=lambda way: way.agreed)
    return TablesPlan(request, tuple(ways), tuple(unsuited))


def _every(request: TablesRequest) -> Iterator[TablesWay | tuple[str, str]]:
    for name, together in _WAYS:
        try:
            yield _several(request, name, together=together)
        except ShoalError as error:
            yield name, error.message
    try:
        yield _one_message(request)
    except ShoalError as error:
        yield ONE_MESSAGE, error.message


def _several(request: TablesRequest, name: str, *, together: bool) -> TablesWay:
    record = replace(request.record, together=together)
    spec = design_several(
        name, record, request.n_honest, request.epsilon, request.delta, windows=request.windows
    )
    made = create_several(spec, record)
    bound = certify_messages(protocol_of(made), request.n_honest, request.delta)
    if bound is None or not isinstance(made, Noisy):
        raise wrong(f"{name} has no account for so few devices: raise n")
    noise = made.expected_stderr(request.n)
    error, agreed = _errors(request, noise, together=together)
    return TablesWay(
        request,
        record,
        made,
        spec,
        bound.epsilon_upper,
        made.epsilon0,
        noise,
        error,
        agreed,
        float(made.mean_messages),
        made.messages,
    )


def _one_message(request: TablesRequest) -> TablesWay:
    """By the planner, of a question with as many cells."""
    record = replace(request.record, together=False)
    cells = Categories(tuple(f"c{cell}" for cell in range(record.cells - 1)))
    found = plan(
        Request(
            Frequencies(cells),
            n=request.n,
            epsilon=request.epsilon,
            delta=request.delta,
            honest_fraction=Fraction(int(request.honest * PPM), PPM),
            mechanisms=(ONE_MESSAGE,),
        )
    ).choice
    if found.spec is None:
        raise wrong(found.reason)
    made = create(found.spec, record)
    even = np.full(record.cells, request.n // record.cells, dtype=np.int64)
    even[: request.n - int(even.sum())] += 1
    noise = float(np.sqrt(np.mean(made.expected_stderr(even) ** 2)))
    error, agreed = _errors(request, noise, together=False)
    return TablesWay(
        request,
        record,
        made,
        found.spec,
        found.epsilon_upper,
        found.epsilon0,
        noise,
        error,
        agreed,
        1.0,
        1,
    )


def _errors(request: TablesRequest, noise: float, *, together: bool) -> tuple[float, float]:
    """Of what a release states, and of consistent tables."""
    record, n = request.record, float(request.n)
    h = 1 if together else len(record.marginals)
    sizes = [math.prod(record.shape(marginal)) for marginal in record.marginals]
    held = np.repeat([n / size for size in sizes], sizes)
    stderr = np.sqrt((h * noise) ** 2 + held * (h - 1))
    tables = consistent(released_of(record, held, stderr, request.n))
    agreed = [error**2 for error in tables.stderr]
    return float(np.sqrt(np.mean(stderr**2))), _mean_root(sizes, agreed)


def _mean_root(weights: list[int], variances: list[float]) -> float:
    total = math.fsum(w * v for w, v in zip(weights, variances, strict=True))
    return math.sqrt(total / sum(weights))
