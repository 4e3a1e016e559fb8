"""A map, planned: by which mechanism, and how far cells and rectangles of cells will be off.

All ways are held to one (epsilon, delta) of a release, with as many honest devices as are sure. On
a *flat* grid a device names its cell alone; in *blocks* its cell and the square around it. Which
one errs less in a rectangle depends on the mechanism's noise and on the size of the map, so all are
computed; docs/PLACES.md has what came of it.

A way is one entry of ``WAYS``: a name, and what makes it of a request. A mechanism of one message
keeps an epsilon0 whoever works together; of the others owners are asked by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from shoal.accounting.accountant import simplest, upper_curve
from shoal.accounting.certificate import count_honest
from shoal.accounting.composition.compose import compose, release_law
from shoal.accounting.meaning import bound_text
from shoal.accounting.several_messages.messages import LARGEST_EPSILON, certify_messages
from shoal.accounting.several_messages.of_domain import design_several
from shoal.accounting.several_messages.of_mechanism import protocol_of
from shoal.accounting.several_messages.of_windows import epsilon_together
from shoal.analyzer.discovery.place_plan import paths_of, plan_places
from shoal.analyzer.discovery.plan import DiscoveryPlan, DiscoveryRequest
from shoal.analyzer.planner.question import MOST_DEVICES, Frequencies, Request, wrong
from shoal.analyzer.planner.task_file import ChosenTask, FileTerms, promise_of
from shoal.analyzer.planner.total import plan
from shoal.analyzer.results.maps.released import law_of_rectangles
from shoal.domain import Places
from shoal.errors import ShoalError
from shoal.mechanisms import Mechanism, create
from shoal.mechanisms.maps.block_squares import mean_length
from shoal.mechanisms.several.names import BLOCKS, CANCELLING, DUMMIES
from shoal.mechanisms.several.protocol import Noisy
from shoal.mechanisms.several.registry import create as create_several
from shoal.privacy import epsilon0_upper
from shoal.questions.place_paths import FIRST_ROWS
from shoal.task import PPM, MechanismSpec

KRR = "krr"
UnsuitedWay = tuple[str, str]
"""The name of a way, and why it does not fit."""


@dataclass(frozen=True, slots=True)
class MapRequest:
    """``n``: devices of a release, at least, floor(``honest`` * n) of them honest; (``epsilon``,
    ``delta``): of one release. ``windows``: releases of the same devices for whose composition
    tails are cut off.
    """

    places: Places
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
class MapWay:
    """``epsilon``: certified, an upper bound, of a release; ``together``: of all the windows that
    were asked for, at the same delta, infinite where nothing is proven. Errors in devices:
    ``cell`` of the cell that errs most (with one message: at an even share of the devices),
    ``rectangle`` the root of the mean square over all rectangles, devices spread evenly.
    ``messages``: mean of a device; ``slots``: most.
    """

    request: MapRequest
    made: Mechanism | Noisy
    spec: MechanismSpec
    epsilon: float
    epsilon0: float
    cell: float
    rectangle: float
    messages: float
    slots: int
    together: float

    @property
    def name(self) -> str:
        """The mechanism's."""
        return self.spec.name

    @property
    def shape(self) -> str:
        """What a device names."""
        side = dict(self.spec.parameters).get("side")
        return "cell" if side is None else f"cell, and its block of {side} x {side}"


@dataclass(frozen=True, slots=True)
class TreeWay:
    """A map whose parts are asked for where many devices are, in a window for each level, all of
    them within the request's epsilon (``analyzer.discovery``).
    """

    plan: DiscoveryPlan

    @property
    def rows(self) -> int:
        """Rows, and columns, of the smallest cells."""
        return int(paths_of(self.plan).across ** self.plan.discovery.longest)

    @property
    def levels(self) -> int:
        """Windows, each of which asks for a level."""
        return self.plan.discovery.levels

    @property
    def first_rows(self) -> int:
        """Rows, and columns, of level 0."""
        return int(paths_of(self.plan).across ** self.plan.discovery.first)

    @property
    def rectangle(self) -> float:
        """As ``MapWay.rectangle``, of cells that are fitted to the parts that they lie in: what the
        cells of level 0 alone err by, as far as devices are spread evenly in those that are not
        followed. (Measured within 4 % of that: benchmarks/place_trees.py.)
        """
        return self.plan.stderr * mean_length(self.first_rows)


@dataclass(frozen=True, slots=True)
class MapPlan:
    """``ways``: the least ``rectangle`` error first; ``unsuited``: (name, why not). ``tree``: the
    same map looked at part by part; None where it is so coarse that nothing would be followed, or
    where no device could send the messages.
    """

    request: MapRequest
    ways: tuple[MapWay, ...]
    unsuited: tuple[UnsuitedWay, ...]
    tree: TreeWay | None = None

    @property
    def best(self) -> MapWay:
        """The least error of rectangles."""
        return self.ways[0]

    def named(self, name: str | None) -> MapWay:
        """The way of that mechanism; None: the best. Raises CONFIG for one that is not here."""
        if name is None:
            return self.best
        for way in self.ways:
            if way.name == name:
                return way
        why = dict(self.unsuited).get(name)
        if why is not None:
            raise wrong(f"{name} does not fit here: {why}")
        fitting = ", ".join(way.name for way in self.ways)
        raise wrong(f"{name} is none of the ways that fit: choose {fitting}")


def plan_map(request: MapRequest) -> MapPlan:
    """Every way that fits. Raises CONFIG for bad numbers, and where none fits."""
    return map_plan(request, list(each_way(request)))


def each_way(request: MapRequest) -> Iterator[MapWay | UnsuitedWay]:
    """Of each entry of ``WAYS`` the way, or why not, one after another. Raises CONFIG for bad
    numbers.
    """
    if not (0.0 < request.epsilon <= LARGEST_EPSILON and 0.0 < request.delta < 1.0):
        raise wrong(
            f"a map wants epsilon above 0 and up to {LARGEST_EPSILON:g}, and delta between 0 and "
            "1: 1 and 1e-6 are usual"
        )
    if request.windows < 1:
        raise wrong("a map is asked in one window or more: give 1 or more (--windows)")
    if request.n_honest < 2 or request.n > MOST_DEVICES:
        raise wrong(
            "a map wants two honest devices or more, and "
            f"{MOST_DEVICES:,} in all at most: give another number (--n)"
        )
    for name, make in WAYS.items():
        try:
            yield make(request, name)
        except ShoalError as error:
            yield name, _in_words(error.message)


_NAMED = {
    "raise min_batch or the target": "give more devices or a larger epsilon",
    "give fewer answers to choose from": "fewer rows or columns",
    "give a smaller s, a larger size of floods, or a larger target": "give a larger epsilon",
    "a larger target": "a larger epsilon",
}


def _in_words(text: str) -> str:
    """A refusal of a design, by what was asked of a map: it has no settings of other questions."""
    for theirs, ours in _NAMED.items():
        text = text.replace(theirs, ours)
    return text


def map_plan(request: MapRequest, found: Sequence[MapWay | UnsuitedWay]) -> MapPlan:
    """Of all that ``each_way`` gave, with the tree beside them. Raises CONFIG where none fits."""
    ways = sorted((one for one in found if isinstance(one, MapWay)), key=lambda way: way.rectangle)
    unsuited = tuple(one for one in found if not isinstance(one, MapWay))
    if not ways:
        raise wrong(unsuited[0][1])
    return MapPlan(request, tuple(ways), unsuited, _tree(request))


def _tree(request: MapRequest) -> TreeWay | None:
    """With cells as small as the map's, or the next smaller ones that it can have."""
    places = request.places
    if max(places.rows, places.columns) <= FIRST_ROWS:
        return None
    box = replace(places, rows=1, columns=1)
    fine = min(places.cell_height_m, places.cell_width_m)
    asked = DiscoveryRequest(request.n, request.epsilon, request.delta, honest=request.honest)
    try:
        found = plan_places(asked, box, fine).plan
    except ShoalError:
        return None
    return TreeWay(found) if found.discovery.levels > 1 else None


def chosen_task(way: MapWay) -> tuple[ChosenTask, FileTerms]:
    """What a task file says of a way."""
    request = way.request
    chosen = ChosenTask(
        f"a map by {way.name}",
        way.spec,
        request.places,
        bound_text(way.epsilon, digits=6),
        promise_of(way.epsilon0),
    )
    terms = FileTerms(request.n, request.n, float(request.honest), request.delta, request.windows)
    return chosen, terms


def _several(request: MapRequest, name: str) -> MapWay:
    places, n = request.places, request.n
    spec = design_several(
        name, places, request.n_honest, request.epsilon, request.delta, windows=request.windows
    )
    made = create_several(spec, places)
    bound = certify_messages(protocol_of(made), request.n_honest, request.delta)
    if bound is None or not isinstance(made, Noisy):
        raise wrong(f"{name} has no account for so few devices: give more devices")
    return MapWay(
        request,
        made,
        spec,
        bound.epsilon_upper,
        made.epsilon0,
        made.expected_stderr(n),
        law_of_rectangles(made, n).mean_stderr(places, n),
        float(made.mean_messages),
        made.messages,
        bound.epsilon_upper
        if request.windows == 1
        else epsilon_together(made, request.n_honest, request.delta, request.windows),
    )


def _one_message(request: MapRequest, name: str) -> MapWay:
    places, n = request.places, request.n
    found = plan(
        Request(
            Frequencies(places),
            n=n,
            epsilon=request.epsilon,
            delta=request.delta,
            honest_fraction=Fraction(int(request.honest * PPM), PPM),
            mechanisms=(name,),
        )
    ).choice
    if found.spec is None:
        raise wrong(found.reason)
    made = create(found.spec, places)
    law = law_of_rectangles(made, n)
    return MapWay(
        request,
        made,
        found.spec,
        found.epsilon_upper,
        found.epsilon0,
        law.stderr(places, (0, 1), (0, 1), n, n / places.size),
        law.mean_stderr(places, n),
        1.0,
        1,
        _anew(made, request, found.epsilon_upper),
    )


def _anew(made: Mechanism, request: MapRequest, alone: float) -> float:
    """Epsilon of all windows, in each of which a report is drawn anew."""
    if request.windows == 1:
        return alone
    law = made.privacy()
    losses = release_law(upper_curve, simplest(law), request.n_honest, request.delta)
    found = compose([(losses, request.windows)], request.delta).epsilon_upper
    apart = math.nextafter(request.windows * epsilon0_upper(law), math.inf)
    return min(found, apart)


WAYS: Mapping[str, Callable[[MapRequest, str], MapWay]] = {
    CANCELLING: _several,
    DUMMIES: _several,
    BLOCKS: _several,
    KRR: _one_message,
}
