"""What ``shoal plan`` shows: the ranked table, and the plan in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from shoal.accounting.composition.memoized import PROMISE_KEPT, promised
from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner import (
    Errors,
    Frequencies,
    Mean,
    Option,
    Plan,
    Quantiles,
    Question,
    Repeated,
    Shape,
    Simulation,
    Standing,
    Sum,
    heaped_error,
)
from shoal.cli.figures import figure
from shoal.cli.output import say, say_table
from shoal.domain import Categories, Domain
from shoal.mechanisms import create

_SHOWN = 10  # alternatives, unless all are asked for
# Above this a single report says next to nothing against its receiver; `shoal task lint` warns of
# it too.
_WEAK_EPSILON0 = 6.0
_USELESS = 0.5  # of all there is to estimate: an error beyond tells nothing


def show_plan(plan: Plan, *, everything: bool) -> None:
    """The plan for people, on stdout. ``everything``: every candidate, not only the best few."""
    say_table(_table(plan, everything))
    for line in sentences(plan):
        say(line)
    if plan.others:
        say(
            "Why not the others (where even a larger epsilon0 than is proven would lose, it was "
            "searched to 2 % only):"
        )
    others = plan.others if everything else plan.others[:_SHOWN]
    for line in _reasons(others):
        say(f"  {line}")
    if len(others) < len(plan.others):
        say(f"  and {len(plan.others) - len(others)} more, no better: --all shows them")
    if everything:
        for each in plan.unsuited:
            say(f"  {each.mechanism}, not tried: {each.reason}")


def _reasons(options: tuple[Option, ...]) -> list[str]:
    """A line for each; one for all numbers of levels of a setting that were not tried for one
    reason.
    """
    alike: dict[tuple[str, ...], list[Option]] = {}
    for option in options:
        own = "" if option.standing is Standing.NOT_TRIED else option.candidate.title
        alike.setdefault(
            (option.candidate.mechanism, option.candidate.setting, own, option.reason), []
        ).append(option)
    return [_reason(same[0], len(same) - 1) for same in alike.values()]


def _reason(option: Option, others: int) -> str:
    more = f" (and {others} other numbers of levels)" if others else ""
    return f"{option.candidate.title}{more}: {option.reason}"


def _table(plan: Plan, everything: bool) -> Table:
    request = plan.request
    light, heavy = _columns(request.question)
    target = (
        f"central epsilon <= {request.epsilon:g}"
        if request.epsilon is not None
        else f"error <= {request.error:g}"
    )
    if plan.asked is not None:
        target = (
            f"central epsilon <= {plan.asked:g} over {request.rounds:,} releases together, "
            f"{bound_text(request.epsilon or 0.0)} in each,"
        )
    table = Table(
        title=(
            f"{request.question.what}, {request.n:,} devices: {target} at delta = {request.delta:g}"
        ),
        title_justify="left",
    )
    table.add_column("mechanism")
    wanted = (
        "epsilon0",
        *(("epsilon",) if request.epsilon is None else ()),
        "bytes",
        "error",
        light,
        heavy,
    )
    for column in wanted:
        table.add_column(column, justify="right")
    for option in plan.options if everything else plan.options[: 1 + _SHOWN]:
        if option.errors is not None:
            table.add_row(
                option.candidate.title, *_cells(option, option.errors, request.epsilon is None)
            )
    return table


def _columns(question: Question) -> tuple[str, str]:
    if isinstance(question, Frequencies):
        return "empty cell", f"{100 * question.heavy:g} % cell"
    return (
        ("best one", "worst one") if isinstance(question, Quantiles) else ("middle", "worst value")
    )


def _cells(option: Option, errors: Errors, with_epsilon: bool) -> Iterator[str]:
    yield bound_text(option.epsilon0)
    if with_epsilon:
        yield bound_text(option.epsilon_upper)
    yield f"{option.report_bytes:,}"
    for value in (errors.ranked, errors.light, errors.heavy):
        yield figure(value)


def sentences(plan: Plan) -> Iterator[str]:
    """The plan for people, a sentence or two per line."""
    request, choice = plan.request, plan.choice
    if choice.errors is None or choice.spec is None:
        raise TypeError("a choice has errors and integers")
    integers = ", ".join(f"{name} = {value}" for name, value in choice.spec.parameters)
    messages = "1 message" if choice.messages == 1 else f"{choice.messages} messages"
    yield (
        f"Chosen: {choice.candidate.title} ({choice.candidate.summary}): {integers}; {messages} of "
        f"{choice.message_bytes:,} "
        f"byte{'' if choice.message_bytes == 1 else 's'}, sealed in a frame of "
        f"{choice.frame_bytes:,} bytes."
    )
    yield _errors(plan, choice.errors)
    if choice.errors.ranked >= _USELESS * _whole(plan):
        yield "That is as good as no answer: ask more devices, or for a larger epsilon."
    guarantee = plan.guarantee
    yield (
        f"Guaranteed: epsilon <= {bound_text(guarantee.epsilon_upper)} at delta = "
        f"{guarantee.delta:g} for every batch of at least "
        f"{guarantee.n:,} reports, {guarantee.n_honest:,} of them honest ({guarantee.method})"
        + (
            f"; no accounting can go below {bound_text(guarantee.epsilon_lower, up=False)}."
            if guarantee.epsilon_lower > 0.0
            else "."
        )
    )
    if plan.least_batch < request.min_batch:
        yield (
            f"epsilon0 is at its limit: batches of {plan.least_batch:,} reports and more keep the "
            "target too."
        )
    weak = choice.epsilon0 > _WEAK_EPSILON0
    yield (
        f"If shuffler and analyzer work together, epsilon0 = {bound_text(choice.epsilon0)} is what "
        "is left"
        + (
            ": a report protects its device hardly at all then. --max-epsilon0 puts a limit on it, "
            "at the price of error."
            if weak
            else "."
        )
    )
    if plan.repeated is not None:
        yield _repeated(plan.repeated, promised(choice.candidate.build(choice.epsilon0))[0])


def _whole(plan: Plan) -> float:
    """What an estimate can be at most: all devices, or the width of the range, times n for a
    sum.
    """
    question, n = plan.request.question, plan.request.n
    if isinstance(question, Frequencies):
        return float(n)
    return (question.high - question.low) * (n if isinstance(question, Sum) else 1)


def _errors(plan: Plan, errors: Errors) -> str:
    request = plan.request
    question = request.question
    if isinstance(question, Frequencies):
        where = "with the shares given" if question.shares else "with all cells alike"
        return (
            f"Predicted standard error of a count: {figure(errors.ranked)} devices {where} "
            f"({100 * errors.ranked / request.n:.2g} % of "
            f"{request.n:,}), {figure(errors.light)} in a cell that nobody holds, "
            f"{figure(errors.heavy)} in one that "
            f"{100 * question.heavy:g} % hold."
        )
    unit = f" {question.unit}" if question.unit else ""
    if isinstance(question, Quantiles):
        return (
            f"Predicted error of the quantiles {', '.join(f'{share:g}' for share in question.at)}: "
            f"{figure(errors.ranked)}{unit} over all "
            f"of them, {figure(errors.light)} in the best one, {figure(errors.heavy)} in the worst "
            "one, of numbers that are spread like "
            f"{question.shape} ({100 * errors.spread:.0f} % of its square is bias); every device "
            "is expected to answer."
            f"{_heaped(plan, question, unit)}{_read(plan.choice.candidate.domain)}"
        )
    return _error_of_number(question, errors, request.n, unit)


def _heaped(plan: Plan, question: Quantiles, unit: str) -> str:
    """What it is if numbers have a heap that the shape says nothing of."""
    choice = plan.choice
    if choice.spec is None or not isinstance(question.shape, Shape):
        return ""
    domain = choice.candidate.domain
    error = heaped_error(question, create(choice.spec, domain), domain, plan.request.n)
    return (
        " It holds for that shape: with half of the devices on one number near the middle it "
        f"would be up to {figure(error)}{unit}. "
        "Real answers have such heaps: name them with --heaps, or give a --shape."
    )


def _read(domain: Domain) -> str:
    """What quantiles are read from where it is no level."""
    if not isinstance(domain, Categories):
        return ""
    return (
        f" The release counts the {len(domain.names)} bins, and has the quantiles with their "
        "intervals, which begin and end with bins."
    )


def _error_of_number(question: Mean, errors: Errors, n: int, unit: str) -> str:
    where = "at the worst value" if question.worst else "over all values of the range"
    where = where if question.value is None else f"beside {question.value:g}"
    if isinstance(question, Sum):
        return (
            f"Predicted standard error of the sum over all {n:,} devices: "
            f"{figure(errors.ranked)}{unit} {where}, {figure(errors.light)} "
            f"in the middle of the range, {figure(errors.heavy)} at its worst value; rounding to "
            f"the levels is counted. {_absent(question)}"
        )
    return (
        f"Predicted standard error of the mean: {figure(errors.ranked)}{unit} {where}, "
        f"{figure(errors.light)} in the middle of the range, "
        f"{figure(errors.heavy)} at its worst value; rounding to the levels is counted, and every "
        "device is expected to answer."
    )


def _absent(question: Sum) -> str:
    middle = (question.low + question.high) / 2
    return (
        f"The sum is mean x answers + {question.absent:g} x (n - answers), so a device without an "
        f"answer counts as {question.absent:g}. "
        f"(Mechanisms that can't tell it count it as the middle, {middle:g}: there the sum is n x "
        "mean.)"
    )


def _repeated(repeated: Repeated, promise: str) -> str:
    """What was asked for first, and what the other way would cost."""
    changes = "once" if repeated.changes == 1 else f"{repeated.changes:,} times"
    tasks = f" in each of {repeated.tasks:,} tasks" if repeated.tasks > 1 else ""
    asked = f"Asked {repeated.windows:,} time{'s' * (repeated.windows > 1)}{tasks}" + (
        f", the value changing {changes}," if repeated.changes else ""
    )
    fresh = (
        "with fresh randomness: all releases together are epsilon <= "
        f"{bound_text(repeated.fresh_central)} at delta = "
        f"{repeated.central_delta:g}; against shuffler and analyzer together the first report "
        "costs "
        f"{bound_text(repeated.first_epsilon0)}, all of them {bound_text(repeated.fresh_epsilon0)}."
    )
    if repeated.kept_epsilon0 is None:
        return f"{asked} {fresh} A report of several messages can't be memoized."
    values = "the one value costs" if repeated.values == 1 else f"{repeated.values:,} values cost"
    which = "the lifetime epsilon" if promise == PROMISE_KEPT else "epsilon0"
    kept = (
        f"memoized: {promise}. {which.removeprefix('the ')} is "
        f"{bound_text(repeated.permanent_epsilon0)}, so {values} "
        f"{bound_text(repeated.kept_epsilon0)} over all windows; the central figure is about one "
        "window seen alone, and from the second "
        f"one on nothing below {which} is promised of all of them together."
    )
    if repeated.memoized:
        return f"{asked}{'' if asked.endswith(',') else ','} {kept} Not memoized, {fresh}"
    return f"{asked} {fresh} If it were {kept}"


def simulated(result: Simulation, n: int, title: str = "") -> str:
    """Predicted against observed, with what the simulation itself can tell. ``title``: of what, if
    that has to be said.
    """
    of = f"Simulated {title}" if title else "Simulated"
    width = (result.high - result.low) / 2.0 / result.observed if result.observed > 0.0 else 0.0
    if result.observed == 0.0:
        return (
            f"{of}: {result.runs:,} batches of {n:,} devices: predicted "
            f"{figure(result.predicted)}, observed 0: no coin changed an "
            "answer in any of them, so they can't tell how rare that is."
        )
    verdict = (
        "the prediction lies inside"
        if result.agrees
        else "the prediction lies OUTSIDE, which happens to a right one in 5 % of simulations"
    )
    return (
        f"{of}: {result.runs:,} batches of {n:,} devices: predicted "
        f"{figure(result.predicted)}, observed {figure(result.observed)}; "
        f"so many runs fix the true error between {figure(result.low)} and {figure(result.high)} "
        f"(95 % confidence, +-{100 * width:.2g} %): "
        f"{verdict}."
    )
