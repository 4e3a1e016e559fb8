"""What ``shoal plan`` shows: the ranked table, and the plan in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from shoal.accounting.meaning import bound_text
from shoal.accounting.memoized import PROMISE
from shoal.analyzer.planner import Errors, Frequencies, Option, Plan, Repeated, Simulation
from shoal.cli.figures import figure
from shoal.cli.output import console, say

_SHOWN = 10  # alternatives, unless all are asked for
# Above this a single report says next to nothing against its receiver; `shoal task lint` warns of it too.
_WEAK_EPSILON0 = 6.0
_USELESS = 0.5  # of all there is to estimate: an error beyond tells nothing


def show_plan(plan: Plan, *, everything: bool) -> None:
    console.print(_table(plan, everything))
    for line in sentences(plan):
        say(line)
    say("Why not the others (where even a larger epsilon0 than is proven would lose, it was searched to 2 % only):")
    others = plan.others if everything else plan.others[:_SHOWN]
    for option in others:
        say(f"  {option.candidate.title}: {option.reason}")
    if len(others) < len(plan.others):
        say(f"  and {len(plan.others) - len(others)} more, no better: --all shows them")
    if everything:
        for each in plan.unsuited:
            say(f"  {each.mechanism}, not tried: {each.reason}")


def _table(plan: Plan, everything: bool) -> Table:
    request = plan.request
    light, heavy = ("empty cell", _heavy(request.question)) if isinstance(request.question, Frequencies) else ("middle", "worst value")
    target = f"central epsilon <= {request.epsilon:g}" if request.epsilon is not None else f"error <= {request.error:g}"
    what = f"{request.question.domain.size} cells" if isinstance(request.question, Frequencies) else "mean"
    table = Table(title=f"{what}, {request.n:,} devices: {target} at delta = {request.delta:g}", title_justify="left")
    table.add_column("mechanism")
    wanted = ("epsilon0", *(("epsilon",) if request.epsilon is None else ()), "bytes", "error", light, heavy)
    for column in wanted:
        table.add_column(column, justify="right")
    for option in plan.options if everything else plan.options[: 1 + _SHOWN]:
        if option.errors is not None:
            table.add_row(option.candidate.title, *_cells(option, option.errors, request.epsilon is None))
    return table


def _heavy(question: Frequencies) -> str:
    return f"{100 * question.heavy:g} % cell"


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
        f"Chosen: {choice.candidate.title} ({choice.candidate.summary}): {integers}; {messages} of {choice.message_bytes:,} "
        f"byte{'' if choice.message_bytes == 1 else 's'}, sealed in a frame of {choice.frame_bytes:,} bytes."
    )
    yield _errors(plan, choice.errors)
    if choice.errors.ranked >= _USELESS * _whole(plan):
        yield "That is as good as no answer: ask more devices, or for a larger epsilon."
    certificate = plan.certificate
    yield (
        f"Guaranteed: epsilon <= {bound_text(certificate.epsilon_upper)} at delta = {certificate.delta:g} for every batch of at least "
        f"{certificate.n:,} reports, {certificate.n_honest:,} of them honest ({certificate.method})"
        + (f"; no accounting can go below {bound_text(certificate.epsilon_lower, up=False)}." if certificate.epsilon_lower > 0.0 else ".")
    )
    if plan.least_batch < request.min_batch:
        yield f"epsilon0 is at its limit: batches of {plan.least_batch:,} reports and more keep the target too."
    weak = choice.epsilon0 > _WEAK_EPSILON0
    yield (
        f"If shuffler and analyzer work together, epsilon0 = {bound_text(choice.epsilon0)} is what is left"
        + (": a report protects its device hardly at all then. --max-epsilon0 puts a limit on it, at the price of error." if weak else ".")
    )
    if plan.repeated is not None:
        yield _repeated(plan.repeated)


def _whole(plan: Plan) -> float:
    """What an estimate can be at most: all devices, or the width of the range."""
    question = plan.request.question
    return float(plan.request.n) if isinstance(question, Frequencies) else question.high - question.low


def _errors(plan: Plan, errors: Errors) -> str:
    request = plan.request
    question = request.question
    if isinstance(question, Frequencies):
        where = "with the shares given" if question.shares else "with all cells alike"
        return (
            f"Predicted standard error of a count: {figure(errors.ranked)} devices {where} ({100 * errors.ranked / request.n:.2g} % of "
            f"{request.n:,}), {figure(errors.light)} in a cell that nobody holds, {figure(errors.heavy)} in one that "
            f"{100 * question.heavy:g} % hold."
        )
    where = "at the worst value" if question.worst else "over all values of the range"
    where = where if question.value is None else f"beside {question.value:g}"
    unit = f" {question.unit}" if question.unit else ""
    return (
        f"Predicted standard error of the mean: {figure(errors.ranked)}{unit} {where}, {figure(errors.light)} in the middle of the range, "
        f"{figure(errors.heavy)} at its worst value; rounding to the levels is counted, and every device is expected to answer."
    )


def _repeated(repeated: Repeated) -> str:
    if repeated.memoized:
        return (
            f"Asked {repeated.windows:,} times, memoized: {PROMISE}. epsilon0 is {bound_text(repeated.lifetime_epsilon0)}; the "
            "central figure is about one window seen alone, and from the second one on nothing below epsilon0 is promised of all of them "
            "together."
        )
    return (
        f"Asked {repeated.windows:,} times with fresh randomness: all releases together are epsilon <= "
        f"{bound_text(repeated.central_epsilon)} at delta = {repeated.central_delta:g}; against shuffler and analyzer together the first "
        f"report costs {bound_text(repeated.first_epsilon0)}, all of them {bound_text(repeated.lifetime_epsilon0)}."
    )


def simulated(result: Simulation, n: int) -> str:
    """Predicted against observed, with what the simulation itself can tell."""
    width = (result.high - result.low) / 2.0 / result.observed if result.observed > 0.0 else 0.0
    verdict = (
        "the prediction lies inside" if result.agrees else "the prediction lies OUTSIDE, which happens to a right one in 5 % of simulations"
    )
    return (
        f"Simulated: {result.runs:,} batches of {n:,} devices: predicted {figure(result.predicted)}, observed {figure(result.observed)}; "
        f"so many runs fix the true error between {figure(result.low)} and {figure(result.high)} (95 % confidence, +-{100 * width:.2g} %): "
        f"{verdict}."
    )
