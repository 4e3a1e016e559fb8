"""``plan_vectors``: the ways to ask for a mean of vectors, at one central guarantee.

* ``privunit``: each device randomizes its whole vector, reports are shuffled. Its epsilon0 is the
  largest whose releases compose to the target.
* sums by secure aggregation, in each mode: the least noise for the target (``design_sum``), in as
  many rounds as n devices need. R rounds have R times the variance of one.

The least error wins; errors within 0.5 % are alike, and then what comes first in ``WAYS`` of sums:
fewer assumptions before fewer visits. What a limit rules out is listed with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from shoal.accounting.numerics.curve import QUICK_EFFORT
from shoal.accounting.of_task import guaranteed
from shoal.accounting.solving.solve import largest_epsilon0
from shoal.accounting.solving.solve_total import largest_epsilon0_of_rounds, total_epsilon
from shoal.accounting.sums.pairwise import certify_sum
from shoal.accounting.sums.sum_task import SumDesign, design_sum
from shoal.accounting.sums.windows import epsilon_of_windows
from shoal.analyzer.planner.reasons import ALIKE
from shoal.analyzer.planner.result import Standing
from shoal.analyzer.planner.vectors.asked import SUMS, WAYS, VectorRequest, wrong
from shoal.analyzer.planner.vectors.way import VectorPlan, VectorWay
from shoal.analyzer.rounds.sum_errors import errors_of_sum
from shoal.arrays import np
from shoal.domain import Norm, Vector
from shoal.errors import ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.base import Setting
from shoal.mechanisms.quantize import bounds
from shoal.mechanisms.vectors.registry import create, settings
from shoal.privacy import LocalPrivacy, epsilon0_upper
from shoal.secagg import Mode

TellWay = Callable[[int, int, str], None]
_GRID = 1 << 20  # steps of a vector that is randomized; written into the task file
_PHASES = 5  # calls of a device in a round with neighbours: join, share, check, mask, unmask
_STEP = 0.005  # by which an epsilon0 that is not proven is lowered
_DIGITS = 6


def plan_vectors(request: VectorRequest, tell: TellWay | None = None) -> VectorPlan:
    """The plan for a request; ``tell`` hears (done, of, title). Every figure of epsilon is proven,
    an upper bound, and at most the target. Raises CONFIG where nothing keeps the limits, saying
    what stands in the way of each.
    """
    ways: list[VectorWay] = []
    tried = tried_of(request)
    for done, name in enumerate(tried):
        if tell is not None:
            tell(done, len(tried), name)
        ways += ways_of(request, name)
    return vector_plan(request, ways)


def tried_of(request: VectorRequest) -> tuple[str, ...]:
    """The names of ``WAYS`` that a plan looks at."""
    return tuple(name for name in WAYS if not request.ways or name in request.ways)


def ways_of(request: VectorRequest, name: str) -> list[VectorWay]:
    """Every setting of one of ``WAYS``, those that are not possible with why."""
    return _summed(request, name) if name in SUMS else _randomized(request, name)


def vector_plan(request: VectorRequest, ways: Sequence[VectorWay]) -> VectorPlan:
    """The plan that compares them. Raises CONFIG where nothing keeps the limits, saying what stands
    in the way of each.
    """
    fit = [way for way in ways if way.possible]
    if not fit:
        why = "; ".join(f"{way.title}: {way.reason}" for way in ways)
        raise wrong(f"nothing can be planned within these limits: {why}")
    least = min(way.error for way in fit)
    chosen = next(way for way in _preferred(fit) if way.error <= least * (1.0 + ALIKE))
    others = sorted(
        (way for way in ways if way is not chosen),
        key=lambda way: (not way.possible, way.error if way.error == way.error else math.inf),
    )
    return VectorPlan(
        request,
        replace(chosen, standing=Standing.CHOSEN, reason="least error"),
        tuple(_lost(way, chosen) for way in others),
    )


def _preferred(fit: list[VectorWay]) -> list[VectorWay]:
    """Of sums the usual mode first, helper mode with its single message next; strict mode wants an
    enrolment that neither service controls, and is taken where it is asked for.
    """
    order = ("default", "helper", "strict")
    return sorted(fit, key=lambda way: order.index(way.name) if way.name in order else 3)


def _lost(way: VectorWay, chosen: VectorWay) -> VectorWay:
    if not way.possible:
        return way
    ratio = way.error / chosen.error
    reason = "as exact" if ratio <= 1.0 + ALIKE else f"its error is {ratio:.3g} times the choice's"
    return replace(way, standing=Standing.LOSES, reason=reason)


def _over(request: VectorRequest, way: VectorWay) -> VectorWay:
    """The same, or why it is over a limit."""
    reason = ""
    if way.epsilon0 > request.most_epsilon0:
        left = "the vector itself" if math.isinf(way.epsilon0) else f"{way.epsilon0:.4g}"
        reason = f"if shuffler and analyzer work together, epsilon0 is {left}"
    elif request.most_bytes is not None and way.report_bytes > request.most_bytes:
        reason = f"a report has {way.report_bytes:,} bytes"
    return replace(way, standing=Standing.OVER_LIMIT, reason=reason) if reason else way


def _impossible(name: str, title: str, why: str) -> VectorWay:
    return VectorWay(name, title, Standing.IMPOSSIBLE, why)


# --- reports that are shuffled --------------------------------------------------------------------


def _randomized(request: VectorRequest, name: str) -> list[VectorWay]:
    domain = Vector(
        request.dimension, request.norm, request.clip, _GRID, request.names, request.unit
    )
    try:
        every = settings(name, domain)
    except ShoalError as error:
        return [_impossible(name, name, error.message)]
    ways: list[VectorWay] = []
    start = math.nan
    for each in every:
        title = name if each is every[0] else f"{name} {each.name}"
        try:
            if math.isnan(start):
                start = _largest(request, each, domain)
            ways.append(_over(request, _of_setting(request, name, title, each, domain, start)))
        except ShoalError as error:
            ways.append(_impossible(name, title, error.message))
    return ways


def _largest(request: VectorRequest, setting: Setting, domain: Vector) -> float:
    """The largest epsilon0 of a setting that was found to keep the target."""

    def family(epsilon0: float) -> LocalPrivacy:
        return create(setting.design(domain, epsilon0), domain).privacy()

    batch, share = request.smallest_batch, request.honest
    if request.windows == 1:
        found, _ = largest_epsilon0(
            family, request.epsilon, request.delta, batch, honest_fraction=share,
            effort=QUICK_EFFORT,
        )  # fmt: skip
        return found
    return largest_epsilon0_of_rounds(
        family, request.epsilon, request.delta, batch, request.windows, honest_fraction=share
    )


def _of_setting(
    request: VectorRequest,
    name: str,
    title: str,
    setting: Setting,
    domain: Vector,
    start: float,
) -> VectorWay:
    """At ``start``, the largest epsilon0 of the first setting, or as little below it as is proven:
    with another number of candidates the largest differs by a few hundredths at most. What the
    task's lint computes decides.
    """
    epsilon0, step = min(start, request.most_epsilon0), 1e-9
    while True:
        made = create(setting.design(domain, epsilon0), domain)
        guarantee = guaranteed(
            made.privacy(), request.smallest_batch, request.honest, request.delta
        )
        together = guarantee.epsilon_upper
        if request.windows > 1:
            together = total_epsilon(
                made.privacy(), guarantee.n_honest, request.delta, request.windows
            )
        if together <= request.epsilon:
            break
        epsilon0, step = epsilon0 * (1.0 - step), _STEP
    squares = np.full(request.dimension, 1.0 / request.dimension)
    each = made.expected_stderr(request.n, squares)
    return VectorWay(
        name,
        title,
        Standing.LOSES,
        "",
        error=float(np.sqrt(np.mean(each * each))),
        epsilon=guarantee.epsilon_upper,
        together=together,
        epsilon0=epsilon0_upper(made.privacy()),
        target=_of_one(guarantee.epsilon_upper, request),
        report_bytes=made.report_size,
        domain=domain,
        spec=made.spec,
    )


def _of_one(epsilon: float, request: VectorRequest) -> float:
    """What a file says of one window, at or above ``epsilon``. A delta may hide a report as a whole
    (epsilon 0); a file wants more than 0, and all windows together keep the request's.
    """
    if request.windows == 1 or epsilon <= 0.0:
        return request.epsilon
    return _up(epsilon)


# --- sums by secure aggregation -------------------------------------------------------------------


def _summed(request: VectorRequest, name: str) -> list[VectorWay]:
    mode = Mode[name.upper()]
    title = f"sum, {name}"
    if not request.enrolled:
        return [_impossible(name, title, "devices of a sum have to be enrolled")]
    if not request.several_visits and mode is not Mode.HELPER:
        return [_impossible(name, title, "a device has to stay for a round of some minutes")]
    if mode is Mode.HELPER and request.dimension > LIMITS.whole_words:
        why = f"vectors of more than {LIMITS.whole_words:,} numbers go in segments, by rounds alone"
        return [_impossible(name, title, why)]
    try:
        return [_over(request, _of_mode(request, mode, title))]
    except ShoalError as error:
        return [_impossible(name, title, error.message)]


def _of_mode(request: VectorRequest, mode: Mode, title: str) -> VectorWay:
    most = LIMITS.helper_cohort if mode is Mode.HELPER else LIMITS.cohort
    rounds = -(-request.n // most)
    cohort = -(-request.n // rounds)
    design = _designed(request, mode, cohort, request.epsilon, request.windows)
    target, step = request.epsilon, 0.0
    if request.windows > 1:
        # A file names the epsilon of one window, in some digits: rounded down, for more noise.
        while True:
            epsilon = _certified(request, design)[0]
            target = _down(epsilon) * (1.0 - step)
            design = _designed(request, mode, cohort, target, 1)
            if _certified(request, design)[1] <= request.epsilon:
                break
            step = max(2.0 * step, 1e-6)
    epsilon, together, left = _certified(request, design)
    noise = math.hypot(*errors_of_sum(design.domain, design.mechanism, request.n))
    return VectorWay(
        mode.name.lower(),
        title,
        Standing.LOSES,
        "",
        error=noise / request.n,
        epsilon=epsilon,
        together=together,
        epsilon0=left,
        target=target,
        report_bytes=design.plan.vector_bytes(request.dimension),
        visits=1 if mode is Mode.HELPER else _PHASES,
        rounds=rounds,
        domain=design.domain,
        spec=design.mechanism,
        plan=design.plan,
    )


def _designed(
    request: VectorRequest, mode: Mode, cohort: int, epsilon: float, windows: int
) -> SumDesign:
    return design_sum(
        dimension=request.dimension,
        norm=request.norm,
        clip=request.clip,
        noise="discrete_laplace" if request.norm is Norm.L1 else "skellam",
        mode=mode,
        cohort_max=cohort,
        dropout_ppm=request.drop_out,
        honest_fraction_ppm=request.honest_ppm,
        epsilon=epsilon,
        delta=request.delta,
        names=request.names,
        unit=request.unit,
        phases=(60, 60, 120, 60),  # what a task file has where it says nothing
        windows=windows,
    )


def _certified(request: VectorRequest, design: SumDesign) -> tuple[float, float, float]:
    """(epsilon of one window, of all, what is left if both services work together)."""
    plan = design.plan
    bound = certify_sum(
        design.mechanism,
        bounds(design.domain),
        request.dimension,
        survivors=plan.survivors_min,
        honest_fraction=plan.honest_share(request.honest_ppm),
        delta=request.delta,
        mode=plan.mode,
    )
    together = bound.epsilon_upper
    if request.windows > 1:
        together = epsilon_of_windows(
            design.mechanism,
            bounds(design.domain),
            request.dimension,
            honest=bound.honest,
            windows=request.windows,
            delta=request.delta,
        )
    return bound.epsilon_upper, together, bound.remaining.together


def _down(value: float) -> float:
    return _digits(value, math.floor)


def _up(value: float) -> float:
    return _digits(value, math.ceil)


def _digits(value: float, to: Callable[[float], int]) -> float:
    places = _DIGITS - 1 - math.floor(math.log10(value))
    scale: float = 10.0**places
    return to(value * scale) / scale
