"""The page Releases: every question with its estimates, and how they went over the windows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from shoal.analyzer.results.maps.tree import PlaceMap, place_map, tree_picture
from shoal.analyzer.results.processed import MEANS
from shoal.analyzer.results.report_page import Estimates, ReportSection, section_of
from shoal.analyzer.results.word_tree import WordTree, word_tree
from shoal.console.operator.budget import versions
from shoal.console.operator.charts import HistogramBar, Line, bars, lines, strips
from shoal.console.operator.desk import Desk, window_of
from shoal.console.operator.downloads import offers
from shoal.console.operator.holdings import Release, ReleasedQuestion
from shoal.console.web import NavItem
from shoal.console.words import odds, share, span
from shoal.errors import ShoalError

NAVIGATION = NavItem("Releases", "/releases")
_PREVIEW = 4  # answers of a question on the list
_MOST_ROWS = 300  # of one table here: more are in the downloads
_MOST_LINES = 12
_MOST_POINTS = 200  # windows of a line: the last
_MOST_LISTED = 100  # windows of a list


def routes(desk: Desk) -> list[BaseRoute]:
    """The list, a question, and a window of one."""

    def overview(request: Request) -> Response:
        questions = desk.once(("cards",), lambda held: [_card(each) for each in held.questions])
        return desk.page(request, "releases.html.j2", questions=questions, offers=offers())

    def question(request: Request) -> Response:
        holdings = desk.holdings()
        chosen = holdings.question(request.path_params["task"])
        release = window_of(request, chosen)
        truth = holdings.truths.get(chosen.task_id, {}) if len(chosen.releases) == 1 else {}
        section = section_of(0, release, truth)
        shown = _listed(request, chosen, release)
        return desk.page(
            request,
            "question.html.j2",
            question=chosen,
            release=release,
            dates=dates(chosen, release["window"]),
            groups=[_group(estimates, release) for estimates in section.estimates],
            array=section.array,
            shape=section.shape,
            histogram=_bars(release),
            map=section.map,
            promise=section.words[0] if section.words else "",
            odds=odds(release["privacy"]["epsilon_upper"], release["privacy"]["delta"]),
            spent=_spent(desk, chosen),
            history=desk.once(("history", chosen.task_id), lambda _: _history(chosen)),
            drawn=min(len(chosen.releases), _MOST_POINTS),
            absent=_absent(chosen),
            tree=desk.once(("tree", chosen.task_id), lambda _: _tree(chosen)),
            tree_map=desk.once(("tree map", chosen.task_id), lambda _: _map(chosen)),
            offers=offers(_offered(request, chosen)),
            windows=[(row, dates(chosen, row["window"])) for row in shown],
            newer=shown[0] is not chosen.latest,
            older=shown[-1]["window"] if shown[-1] is not chosen.releases[0] else None,
            here=request.url.path,
        )

    def start(_: Request) -> Response:
        return RedirectResponse(NAVIGATION.path, 303)

    return [
        Route("/", start),
        Route(NAVIGATION.path, overview),
        Route(f"{NAVIGATION.path}/{{task}}", question),
        Route(f"{NAVIGATION.path}/{{task}}/{{window}}", question),
    ]


def _spent(desk: Desk, question: ReleasedQuestion) -> Mapping[str, Any] | None:
    """What all versions of the question spent together, as the page Budget has it."""
    rows = desk.once(("versions", question.name), lambda held: versions(held, question.name))
    return rows[0] if rows else None


def _offered(request: Request, question: ReleasedQuestion) -> str:
    """What the page's downloads are of: the window of its address, or the whole question."""
    window = request.path_params.get("window")
    return question.task_id if window is None else f"{question.task_id}/{window}"


def _listed(request: Request, question: ReleasedQuestion, release: Release) -> list[Release]:
    """A page of windows, the latest first: those before the one that the address names, or those
    around the one that is shown.
    """
    known = question.releases
    before = request.query_params.get("before", "")
    end = len(known)
    if before.isdecimal() and len(before) <= 9:
        end = bisect_left(known, int(before), key=lambda each: int(each["window"]))
    else:
        place = bisect_left(known, release["window"], key=lambda each: int(each["window"]))
        end = min(end, max(place + _MOST_LISTED // 2, end if end - place <= _MOST_LISTED else 0))
    end = max(end, min(len(known), 1))
    return list(reversed(known[max(0, end - _MOST_LISTED) : end]))


def _absent(question: ReleasedQuestion) -> str:
    """The windows between those that are released, as ranges: "3, 5 to 9"; "" for none."""
    known = sorted(release["window"] for release in question.releases)
    gaps = [(a + 1, b - 1) for a, b in pairwise([-1, *known]) if b - a > 1]
    told = [f"{a}" if a == b else f"{a} to {b}" for a, b in gaps[-_MOST_LINES:]]
    return ", ".join(told)


def dates(question: ReleasedQuestion, window: int) -> str:
    """When a window was, in words; empty where its task can't be read."""
    if question.task is None:
        return ""
    plan = question.task.windows
    return span(plan.start_of(window), plan.end_of(window))


def _card(question: ReleasedQuestion) -> dict[str, Any]:
    release = question.latest
    section = section_of(0, release, {})
    groups = [_group(estimates, release, _PREVIEW) for estimates in section.estimates]
    privacy = release["privacy"]
    return {
        "question": question,
        "release": release,
        "dates": dates(question, release["window"]),
        "group": groups[0] if groups else None,
        "quantile": _median(section),
        "odds": odds(privacy["epsilon_upper"], privacy["delta"]),
    }


def _median(section: ReportSection) -> tuple[str, float, Any] | None:
    if section.shape is None:
        return None
    return next((row for row in section.shape.quantiles if row[0] == "50%"), None)


def _group(estimates: Estimates, release: Release, most: int = _MOST_ROWS) -> dict[str, Any]:
    """Estimates that share an axis, with their places on it. Of a list that is cut the largest
    stay, in their order.
    """
    rows = list(estimates.rows)
    if len(rows) > most:
        largest = sorted(rows, key=lambda row: -row["value"])[:most]
        kept = {id(row) for row in largest}
        rows = [row for row in rows if id(row) in kept]
    counted = "rounds" not in release and not all(row["label"] in MEANS for row in rows)
    return {
        "title": estimates.title,
        "rows": [
            {**row, "share": share(row["value"], release["n"]) if counted else ""} for row in rows
        ],
        "plot": strips(rows),
        "counted": counted,
        "more": len(estimates.rows) - len(rows) + estimates.left_out,
        "truth": estimates.has_truth,
        "processed": estimates.processed,
        "notes": estimates.notes,
    }


def _bars(release: Release) -> list[HistogramBar]:
    shape = release.get("distribution")
    return [] if shape is None else bars(shape["edges"], shape["shares"])


def _tree(question: ReleasedQuestion) -> WordTree | None:
    """What a discovery found in all its windows; None of other questions."""
    try:
        return word_tree(question.releases)
    except ShoalError:  # no level of one
        return None


def _map(question: ReleasedQuestion) -> tuple[PlaceMap, str] | None:
    """Where a discovery of places found many devices in all its windows, and its picture; None of
    other questions.
    """
    try:
        found = place_map(question.releases)
    except ShoalError:  # no level of one
        return None
    return found, tree_picture(found, question.name)


def _history(question: ReleasedQuestion) -> list[Line]:
    """Over the windows, as shares of the devices, since their number changes; means and totals as
    they are. Nothing of a single window, nor of a discovery, whose windows ask different things.
    """
    if any("discovered" in release for release in question.releases):
        return []
    last = question.releases[-_MOST_POINTS:]
    shown = [release for release in last if release["estimates"]]
    if len(shown) < 2:
        return []
    latest: Sequence[Mapping[str, Any]] = shown[-1]["estimates"]
    means = [row["label"] for row in latest if row["label"] in MEANS]
    largest = sorted(latest, key=lambda row: -row["value"])[:_MOST_LINES]
    kept = {row["label"] for row in largest}
    labels = means or [row["label"] for row in latest if row["label"] in kept]
    series: dict[str, list[tuple[int, float, float, float]]] = {label: [] for label in labels}
    for release in shown:
        scale = 1.0 if means or "rounds" in release else 100.0 / max(1, release["n"])
        for row in release["estimates"]:
            if row["label"] in series:
                figures = (row[key] * scale for key in ("value", "ci_low", "ci_high"))
                series[row["label"]].append((release["window"], *figures))
    return lines(series, percent=not means and "rounds" not in shown[-1])
