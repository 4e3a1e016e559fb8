"""The Planner of the console as somebody moves a slider: how long a first answer takes, and the
final one; how much larger the first one's epsilon is; processes cold and warm.
"""

from __future__ import annotations

import statistics
import time

from benchmarks.bench import Bench
from benchmarks.figures import MILLISECONDS, RATIO, SECONDS, Figure, Goal, Outcome
from shoal.accounting.accountant import simplest, upper_bound
from shoal.analyzer.planner.accuracy.answers import answers, request_for
from shoal.analyzer.planner.question import Frequencies, Mean, Quantiles, Question, Request, Sum
from shoal.console.operator.planner.work import Workshop
from shoal.domain import Categories, YesNo

TITLE = "the console's Planner as a slider moves: first answer, and final one"
_DELTA = 1e-8
_PATIENCE_S, _LOOK_S = 60.0, 0.05
_READING_S = 5.0
_LIVE = Goal(at_most=300.0)
# percent of the devices, or of the range, in the order in which the slider passes them
_STOPS = (5.0, 3.0, 2.0, 1.5, 1.0)


def run(bench: Bench) -> Outcome:
    """Every question at every stop: by processes beside this one, then in it, for the CPU."""
    n = bench.pick(1_000, 10_000, 10_000)
    stops = _STOPS[: bench.pick(2, 2, 5)]
    names = bench.pick(("yes/no",), ("yes/no", "50 categories", "mean"), tuple(_questions()))
    few = bench.pick(("binary_rr", "krr"), (), ())
    questions = {name: _questions()[name] for name in names}
    asked = [_asked(question, n, stop, few) for question in questions.values() for stop in stops]
    cold, firsts, finals, ratios = _by_processes(asked)
    figures = [
        Figure("epsilon of the first answer over the final one's", tuple(ratios), RATIO),
        Figure("first answer, processes running, wall", tuple(firsts), MILLISECONDS, _LIVE),
        Figure("first answer, processes not started yet, wall", (cold,), MILLISECONDS),
        Figure(
            "very first answer, another page was opened before, wall",
            (_warmed(asked[0]),),
            MILLISECONDS,
            _LIVE,
        ),
        Figure("final answer, wall", tuple(finals), SECONDS),
    ]
    for title, question in questions.items():
        firsts_cpu = [_first(_asked(question, n, stop, few)) for stop in stops]
        one = statistics.median(_certificate(_asked(question, n, stop, few)) for stop in stops)
        figures += [
            Figure(
                f"{title}: CPU of a first answer over that of one certificate",
                tuple(first / one for first in firsts_cpu),
            ),
            Figure(
                f"{title}: CPU of a first answer",
                tuple(1e3 * first for first in firsts_cpu),
                MILLISECONDS,
            ),
            Figure(
                f"{title}: CPU of a final answer",
                (_whole(_asked(question, n, stops[0], few)),),
                SECONDS,
            ),
        ]
    return Outcome(
        tuple(figures),
        (
            f"{n:,} devices, delta = {_DELTA:g}, off by {', '.join(f'{stop:g}' for stop in stops)} "
            "percent of the devices or of the range",
            "wall: from the look at a question to something to show; a page is rendered on top in "
            "a few ms",
        ),
    )


def _questions() -> dict[str, Question]:
    return {
        "yes/no": Frequencies(YesNo(), heavy=1.0),
        "5 categories": Frequencies(_named(5)),
        "50 categories": Frequencies(_named(50)),
        "mean": Mean(0.0, 200_000.0),
        "sum": Sum(0.0, 50.0),
        "median": Quantiles(0.0, 200_000.0, (0.5,)),
    }


def _named(count: int) -> Categories:
    return Categories(tuple(f"category {i + 1}" for i in range(count)))


def _asked(question: Question, n: int, percent: float, few: tuple[str, ...]) -> Request:
    whole = float(n)
    if not isinstance(question, Frequencies):
        whole = (question.high - question.low) * (n if isinstance(question, Sum) else 1)
    return request_for(question, n, percent / 100.0 * whole, _DELTA, mechanisms=few)


def _by_processes(
    asked: list[Request],
) -> tuple[float, list[float], list[float], list[float]]:
    """ms of the very first answer and of the others, s of final ones, first epsilon / final one."""
    workshop = Workshop()
    firsts: list[float] = []
    finals: list[float] = []
    ratios: list[float] = []
    try:
        for request in asked:
            begin = time.perf_counter()
            first = workshop.look(request, _PATIENCE_S).answer
            firsts.append(1e3 * (time.perf_counter() - begin))
            while not (worked := workshop.look(request, 0.0)).over:
                time.sleep(_LOOK_S)
            finals.append(time.perf_counter() - begin)
            final = worked.answer
            if first is not None and first.options and final is not None and final.options:
                ratios.append(first.options[0].epsilon_upper / final.options[0].epsilon_upper)
    finally:
        workshop.close()
    return firsts[0], firsts[1:] or firsts, finals, ratios or [1.0]


def _warmed(request: Request) -> float:
    """ms, of processes that were started as any page of the console starts them, while somebody
    reads it.
    """
    workshop = Workshop()
    try:
        workshop.warm()
        time.sleep(_READING_S)
        begin = time.perf_counter()
        workshop.look(request, _PATIENCE_S)
        return 1e3 * (time.perf_counter() - begin)
    finally:
        workshop.close()


def _first(request: Request) -> float:
    """Core-seconds until there is something to show."""
    begin = time.process_time()
    next(answer for answer in answers(request) if answer.options or answer.done)
    return time.process_time() - begin


def _whole(request: Request) -> float:
    """Core-seconds until the end."""
    begin = time.process_time()
    for _ in answers(request):
        pass
    return time.process_time() - begin


def _certificate(request: Request) -> float:
    """Core-seconds of one bound, of the law that the first answer has."""
    first = next(answer for answer in answers(request) if answer.options or answer.done)
    if not first.options:
        return 1.0
    option = first.options[0]
    law = simplest(option.candidate.build(option.epsilon0).privacy())
    begin = time.process_time()
    upper_bound(law, request.n_honest, _DELTA / 1.0001)  # the last ones are kept
    return max(time.process_time() - begin, 1e-6)
