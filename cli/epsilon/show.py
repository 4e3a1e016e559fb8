"""The tables of ``shoal epsilon``, for people. Upper bounds are shown rounded up, lower bounds
down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rich.table import Table

from shoal.accounting.accountant import RouteValue
from shoal.accounting.certificate import Certificate
from shoal.accounting.meaning import best_guess, bound_text, percent_text, sentences
from shoal.accounting.reference.published import PublishedBound
from shoal.accounting.several_messages.liars import liar_words
from shoal.cli.epsilon.several import Mixture, typed
from shoal.cli.epsilon.subjects import Bound
from shoal.cli.figures import counted, figure
from shoal.cli.output import say, say_table
from shoal.domain import Numeric

_WAYS = {
    "pld": "privacy loss distributions, convolved: the figure to use",
    "renyi": "Renyi divergences of the same rounds, best order",
    "optimal": "the best that follows from each round's (epsilon, delta) alone",
    "advanced": "advanced composition",
    "basic": "epsilons added, each round at its share of delta",
}


def show_bound(bound: Bound) -> None:
    """The certificate as a table, in sentences, with what it stands on and what rounding cost."""
    table = Table(title="what shuffling buys", title_justify="left")
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    local = (
        "against shuffler and analyzer together"
        if math.isfinite(bound.epsilon0)
        else "the values are sent as they are: no local guarantee"
    )
    what = "shuffled reports" if isinstance(bound, Certificate) else "devices"
    rows: Mapping[str, tuple[object, str]] = {
        "epsilon_upper": (bound.epsilon_upper, "proven: the central epsilon is at most this"),
        "epsilon_lower": (
            bound.epsilon_lower,
            "refuted: no accounting can go below this"
            if bound.epsilon_lower > 0.0
            else "nothing is refuted: the true epsilon may be far below the proven one",
        ),
        "epsilon0": (bound.epsilon0, local),
        "delta": (bound.delta, "probability with which epsilon may fail"),
        "n": (bound.n, f"{what}, {bound.n_honest} of them assumed honest"),
        "relation": (bound.relation, "neighbouring datasets"),
        "method": (bound.method, "see docs/ACCOUNTING.md"),
    }
    for key, (value, meaning) in rows.items():
        shown = (
            bound_text(value, up=key != "epsilon_lower", digits=6)
            if isinstance(value, float)
            else str(value)
        )
        table.add_row(key, shown, meaning)
    say_table(table)
    for line in sentences(bound) if isinstance(bound, Certificate) else _in_words(bound):
        say(line)
    say("Assumed: " + "; ".join(bound.assumptions) + ".")
    if isinstance(bound, Certificate) and bound.error_budget:
        say("Rounding, contained in both epsilons already: " + "; ".join(bound.error_budget) + ".")


def _in_words(bound: Bound) -> list[str]:
    guess = percent_text(best_guess(bound.epsilon_upper, bound.delta))
    return [
        "Somebody who sees all messages, knows everybody else's answers and holds two answers of a "
        "device equally likely "
        f"guesses the right one at most {guess} of the time (blind guessing: 50 %).",
        "If shuffler and analyzer worked together, nothing would remain: they would see the value "
        "itself."
        if math.isinf(bound.epsilon0)
        else f"If shuffler and analyzer worked together, epsilon0 = {bound_text(bound.epsilon0)} "
        "would remain.",
    ]


def designed_sentence(
    name: str, integers: Mapping[str, int], target: float, rounds: int | None
) -> str:
    """What --target found, in the form in which it can be asked for again."""
    what = "" if rounds is None else f" over {rounds} rounds together"
    return f"{name} for epsilon <= {target:g}{what}: --parameters {typed(integers)}"


def show_mixture(mixture: Mixture, n: int) -> None:
    """What a device sends, and how much is known in the end."""
    made = mixture.known
    what = (
        "of a mean of numbers from 0 to 1"
        if isinstance(mixture.domain, Numeric)
        else "of each count, in devices"
    )
    number = f"{float(made.mean_messages):.3g} messages on average, {made.messages} at most"
    if made.fewest == made.messages:
        number = counted(made.messages, "message")
    say(
        f"A device sends {number}, of {counted(made.report_size, 'byte')} each. Standard error "
        f"with {n:,} devices, {what}: {figure(made.expected_stderr(n))}."
    )
    say(f"What is sent can't be checked: {liar_words(made)}.")


def show_composed(rounds: int, delta: float, composed: Mapping[str, float]) -> None:
    """All rounds together, by every way of composing them, the best first."""
    table = Table(
        title=f"{rounds} rounds together, at delta = {delta:g} for all of them",
        title_justify="left",
    )
    for column in ("composition", "epsilon ≤", "what it is"):
        table.add_column(column, justify="right" if "≤" in column else "left")
    for theorem, value in sorted(composed.items(), key=lambda item: item[1]):
        table.add_row(theorem, bound_text(value, digits=6), _WAYS[theorem])
    say_table(table)


def show_routes(routes: Iterable[RouteValue], published: Iterable[PublishedBound]) -> None:
    """Every route of this accountant, then what papers give, marked where it is no bound here."""
    table = Table(title="every route, and what has been published", title_justify="left")
    for column in ("bound", "epsilon ≤", "applies", "why"):
        table.add_column(column, justify="right" if "≤" in column else "left")
    for route in routes:
        table.add_row(
            route.method, _value(route.epsilon, route.applies), _word(route.applies), route.why
        )
    table.add_section()
    for bound in published:
        table.add_row(
            f"{bound.name}\n{bound.citation}",
            _value(bound.epsilon, bound.applies),
            _word(bound.applies),
            bound.why,
        )
    say_table(table)


def _value(epsilon: float | None, applies: bool) -> str:
    """A figure that is no bound is shown in brackets."""
    if epsilon is None:
        return ""
    shown = bound_text(epsilon, digits=6)
    return shown if applies else f"({shown})"


def _word(applies: bool) -> str:
    return "yes" if applies else "no"
