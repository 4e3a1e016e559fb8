"""The page Promise: what a release guarantees every device, as odds, as a label, and as a matrix of
who would have to work together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shoal.accounting.meaning import best_guess, bound_text, percent_text, posterior
from shoal.accounting.routes import WHY
from shoal.analyzer.results.report_page import words_of
from shoal.console.operator.collusion import kind_of, matrix, meaning, numbers_tell, together
from shoal.console.operator.desk import Desk, asked, window_of
from shoal.console.operator.holdings import Release, ReleasedQuestion
from shoal.console.operator.releases import dates
from shoal.console.web import NavItem
from shoal.console.words import odds

NAVIGATION = NavItem("Promise", "/promise")
_COINS = 1.0986122886681098  # ln 3: randomized response with two coins, for comparison
_COINS_WORDS = "two coins, for comparison: heads, the truth; tails, what a second coin says"
_HELD = 10.0  # percent that a suspicion begins with, unless somebody says otherwise


@dataclass(frozen=True, slots=True)
class Guess:
    """How often somebody who would bet 50:50 is right at most, in one situation. ``at``: percent of
    the way from blind guessing to certainty; ``held``: the most that a suspicion can become.
    """

    who: str
    epsilon: float | None
    odds: str
    at: float
    held: str
    strong: bool = False


def routes(desk: Desk) -> list[BaseRoute]:
    """The promise of one question: the one that the address names, or the first."""

    def promise(request: Request) -> Response:
        holdings, fields = desk.holdings(), asked(request)
        name = fields.text("task") or (holdings.questions[0].task_id if holdings.questions else "")
        if not name:
            return desk.page(request, "promise.html.j2", questions=(), question=None)
        question = holdings.question(name)
        release = window_of(request, question)
        held = fields.number("held", 0.0, 100.0, _HELD)
        kind = kind_of(release)
        privacy = release["privacy"]
        return desk.page(
            request,
            "promise.html.j2",
            questions=holdings.questions,
            question=question,
            release=release,
            dates=dates(question, release["window"]),
            odds=odds(privacy["epsilon_upper"], privacy["delta"]),
            guesses=_guesses(release, held / 100.0),
            held=fields.text("held") or f"{held:g}",
            wrong=fields.wrong,
            label=_label(question, release),
            exception=bound_text(_exception(release, held / 100.0), digits=2),
            words=words_of(release),
            kind=kind,
            matrix=matrix(kind, tells=numbers_tell(question.task)),
            meaning=meaning(kind),
            together=together(release),
        )

    return [Route(NAVIGATION.path, promise)]


def _guesses(release: Release, prior: float) -> list[Guess]:
    privacy = release["privacy"]
    left, _ = together(release)
    delta, composed = privacy["delta"], privacy["delta_cumulative"]
    rows: list[tuple[str, float | None, float, bool]] = [("blind guessing", 0.0, 0.0, False)]
    rows.append(("who sees this release", privacy["epsilon_upper"], delta, True))
    if privacy["windows_composed"] > 1:
        who = "who sees all that was opened so far, if a device answered in all of it"
        rows.append((who, privacy["epsilon_cumulative_upper"], composed, False))
    rows.append((_COINS_WORDS, _COINS, 0.0, False))
    rows.append(("shuffler and analyzer together", left, delta, False))
    return [_guess(*row, prior=prior) for row in rows]


def _guess(who: str, epsilon: float | None, delta: float, strong: bool, *, prior: float) -> Guess:
    if epsilon is None or delta >= 1.0:
        return Guess(who, None, "always", 100.0, "anything", strong)
    right = best_guess(epsilon, delta)
    at_most = posterior(epsilon, delta, prior).at_most
    place = round(200.0 * (right - 0.5), 1)
    return Guess(who, epsilon, percent_text(right), place, percent_text(at_most), strong)


def _exception(release: Release, prior: float) -> float:
    """With what probability any of the figures of ``held`` may be surpassed."""
    privacy = release["privacy"]
    delta = min(max(privacy["delta"], privacy["delta_cumulative"]), 1.0 - 1e-12)
    return posterior(privacy["epsilon_upper"], delta, prior).except_with


def _label(question: ReleasedQuestion, release: Release) -> list[tuple[str, str]]:
    """What stands on the label: a name and a sentence a row, in words that want no other page."""
    privacy, rounds = release["privacy"], release.get("rounds")
    hiding = (
        f"at least {privacy['n_certified']:,} honest devices of each round add the noise together"
        if rounds is not None
        else f"at least {privacy['n_certified']:,} honest reports hide one another"
    )
    rows = [
        ("Who is protected", _unit(release)),
        ("Among how many", hiding),
        (
            "How strongly",
            f"epsilon at most {bound_text(privacy['epsilon_upper'])}: a guess between two answers "
            f"is right at most {odds(privacy['epsilon_upper'], privacy['delta'])} of the time, "
            "where 50 % is blind",
        ),
        ("But for a chance of", f"delta = {privacy['delta']:g} that less holds"),
        (
            "Proven by",
            f"{_method(privacy)}; no proof could bring it below "
            f"{bound_text(privacy['epsilon_lower'], up=False)}"
            if privacy["epsilon_lower"] > 0
            else _method(privacy),
        ),
        ("Never hidden", "that a device takes part"),
    ]
    if question.task is not None:
        rows.insert(0, ("Fields for", question.task.purpose))
    if release["withheld"]:
        rows.insert(0, ("Withheld", f"nothing is published of this window: {release['withheld']}"))
    return rows


def _method(privacy: Mapping[str, Any]) -> str:
    name = str(privacy["method"])
    return f"{name} ({WHY[name]})" if name in WHY else name


def _unit(release: Release) -> str:
    unit = str(release["privacy"]["unit"])
    return f"{unit}; neighbouring data differ in one answer ({release['privacy']['relation']})"
