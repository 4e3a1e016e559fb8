"""The page Planner: say how far off a figure may be, and see what that costs; then take the task
file away, to sign it.
"""

from __future__ import annotations

import time
from typing import Any, overload
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shoal.analyzer.planner.accuracy.answers import AccuracyAnswer
from shoal.analyzer.planner.frontier.maps import MapRequest
from shoal.analyzer.planner.question import Request as Asked
from shoal.analyzer.planner.result import Plan
from shoal.analyzer.planner.vectors.way import VectorPlan
from shoal.console.operator.desk import Desk
from shoal.console.operator.planner.form import CHOICES, KINDS, PlannerForm
from shoal.console.operator.planner.places import (
    WAY_NAMES,
    PlacesAnswer,
    chosen_way,
    places_view,
)
from shoal.console.operator.planner.several import (
    SeveralAnswer,
    SeveralQuestion,
    chosen_line,
    several_view,
)
from shoal.console.operator.planner.task import (
    CA_FILE,
    DAYS,
    check_words,
    pattern,
    places_written,
    vectors_written,
    words_written,
    written,
)
from shoal.console.operator.planner.vector_form import LEARNT, NORMS, vectors_of
from shoal.console.operator.planner.vectors import (
    VECTOR_WAYS,
    VectorsAnswer,
    VectorsQuestion,
    chosen_plan,
    lacking_way,
    vectors_view,
)
from shoal.console.operator.planner.view import AGAIN_MS, view
from shoal.console.operator.planner.words import WordsAnswer, WordsQuestion, words_view
from shoal.console.operator.planner.work import LIVE_S, Worked, Workshop
from shoal.console.web import NavItem
from shoal.errors import Kind, ShoalError
from shoal.task import Task

NAVIGATION = NavItem("Planner", "/planner")
_PATIENCE_S = 0.25  # for a first answer; a page that comes back for a better one has one already
_WHOLE_S = 60.0  # for a final one, before a task file can be written
# below what the audit calls taking something away
AnyAsked = Asked | WordsQuestion | MapRequest | VectorsQuestion
_TASK, _CA = "/download/planned.toml", f"/download/{CA_FILE}"


def routes(desk: Desk) -> list[BaseRoute]:
    """One page, which scripts ask again for its parts as somebody types; and the files."""
    workshop = Workshop()
    desk.opened.append(workshop.warm)  # with the first page of all: here somebody waits already

    def page(request: Request, form: PlannerForm, asked: AnyAsked | None) -> Response:
        workshop.warm()
        # a page that a script asked for comes back; one that somebody opened may not
        opened = request.headers.get("sec-fetch-mode", "navigate") == "navigate"
        answer = _answer(workshop, form, asked, () if opened else (LIVE_S,))
        return desk.page(
            request,
            "planner.html.j2",
            typed=form.typed,
            wrong=form.wrong,
            kinds=KINDS,
            choices=CHOICES,
            ways=WAY_NAMES,
            norms=NORMS,
            learnt=LEARNT,
            vector_ways=VECTOR_WAYS,
            sliders=form.sliders(),
            answer=answer,
            days=DAYS,
            model=pattern(desk.holdings()),
            address=_address(request),
        )

    def planner(request: Request) -> Response:
        form = PlannerForm.of(dict(request.query_params))
        return page(request, form, _asked(form))

    def task(request: Request) -> Response:
        form = PlannerForm.of(dict(request.query_params))
        asked = _asked(form)
        mended = not form.wrong
        check_words(form)
        if asked is None or form.wrong:
            return page(request, form, asked if mended else None)
        found = _task_file(workshop, asked, form, desk)
        if found is None:
            return page(request, form, asked)
        name, text = found
        return _file(text.encode(), f"{name}.toml", "application/toml")

    def ca(_: Request) -> Response:
        return _ca(pattern(desk.holdings()))

    return [Route(NAVIGATION.path, planner), Route(_TASK, task), Route(_CA, ca)]


def _asked(form: PlannerForm) -> AnyAsked | None:
    """What the form asks; None where something is wrong with it."""
    if form.kind == "words":
        return form.words()
    if form.kind == "vectors":
        return vectors_of(form)
    return form.places() if form.kind == "places" else form.request()


def _task_file(
    workshop: Workshop, asked: AnyAsked, form: PlannerForm, desk: Desk
) -> tuple[str, str] | None:
    """(name, text) of what is planned; None where it does not have what was chosen, which ``wrong``
    then says.
    """
    if isinstance(asked, WordsQuestion):
        words = _whole(workshop, asked).plan
        assert words is not None  # noqa: S101 - it is whole
        return words_written(words, form, pattern(desk.holdings()), desk.now())
    if isinstance(asked, MapRequest):
        found = _whole(workshop, asked).plan
        assert found is not None  # noqa: S101 - it is whole
        form.check_way(found)
        if form.wrong:
            return None
        way = chosen_way(found, form.typed["way"])
        return places_written(way, form, pattern(desk.holdings()), desk.now())
    if isinstance(asked, VectorsQuestion):
        vectors = _whole(workshop, asked).plan
        assert vectors is not None  # noqa: S101 - it is whole
        if not _has_way(vectors, form):
            return None
        taken = chosen_plan(vectors, form.typed["means"])
        return vectors_written(taken, asked.learning, form, pattern(desk.holdings()), desk.now())
    plan, several = _final(workshop, asked), None
    if form.several:
        several_known = _whole(workshop, SeveralQuestion(asked))
        line = chosen_line(several_known.beside(plan), form.typed["choose"])
        if line is None:
            form.wrong["choose"] = "the table has no such line: choose one that it has"
            return None
        several = line.several
    return written(plan, form, pattern(desk.holdings()), desk.now(), several)


def _has_way(plan: VectorPlan, form: PlannerForm) -> bool:
    """Whether the plan has what was chosen; else ``form.wrong`` says why not."""
    why = lacking_way(plan, form.typed["means"])
    if why is not None:
        form.wrong["means"] = why
    return why is None


def _ca(model: Task | None) -> Response:
    if model is None:
        raise ShoalError(
            Kind.NOT_FOUND,
            "no signed task is known here: shoal keys ca makes a certificate authority",
        )
    return _file(model.shuffler_ca, CA_FILE, "application/x-pem-file")


def _answer(
    workshop: Workshop,
    form: PlannerForm,
    asked: AnyAsked | None,
    lease: tuple[float, ...],
) -> dict[str, Any] | None:
    """What the page shows of what is known by now; None where nothing can be asked."""
    if asked is None:
        return None
    if isinstance(asked, WordsQuestion):
        known = workshop.look(asked, _PATIENCE_S, *lease)
        return words_view(asked, known.answer, known.trouble)
    if isinstance(asked, MapRequest):
        found = workshop.look(asked, _PATIENCE_S, *lease)
        if found.answer is not None and found.answer.plan is not None:
            form.check_way(found.answer.plan)
        return places_view(asked, found.answer, found.trouble, form.typed["way"])
    if isinstance(asked, VectorsQuestion):
        vectors = workshop.look(asked, _PATIENCE_S, *lease)
        if vectors.answer is not None and vectors.answer.plan is not None:
            _has_way(vectors.answer.plan, form)
        return vectors_view(asked, vectors.answer, vectors.trouble, form.typed["means"])
    worked = workshop.look(asked, _PATIENCE_S, *lease)
    answer = view(asked, worked)
    if form.several and worked.over:
        answer |= _several(workshop, asked, worked, lease)
    return answer


def _final(workshop: Workshop, asked: Asked) -> Plan:
    """Waits for it. Raises UNAVAILABLE, INVALID where there is none."""
    until = time.monotonic() + _WHOLE_S
    while True:
        worked = workshop.look(asked, _PATIENCE_S)
        answer = worked.answer
        if answer is not None and answer.plan is not None:
            return answer.plan
        if worked.over:
            raise ShoalError(
                Kind.INVALID,
                worked.trouble or "that accuracy is not to be had: the Planner says what is",
            )
        if time.monotonic() > until:
            raise ShoalError(Kind.UNAVAILABLE, "still being worked out: try again in a minute")
        time.sleep(_PATIENCE_S)


@overload
def _whole(workshop: Workshop, question: SeveralQuestion) -> SeveralAnswer: ...


@overload
def _whole(workshop: Workshop, question: WordsQuestion) -> WordsAnswer: ...


@overload
def _whole(workshop: Workshop, question: MapRequest) -> PlacesAnswer: ...


@overload
def _whole(workshop: Workshop, question: VectorsQuestion) -> VectorsAnswer: ...


def _whole(
    workshop: Workshop, question: SeveralQuestion | WordsQuestion | MapRequest | VectorsQuestion
) -> SeveralAnswer | WordsAnswer | PlacesAnswer | VectorsAnswer:
    """Waits for it. Raises UNAVAILABLE, INVALID where there is none."""
    until = time.monotonic() + _WHOLE_S
    while True:
        worked: Worked[Any] = workshop.look(question, _PATIENCE_S)
        answer: SeveralAnswer | WordsAnswer | PlacesAnswer | VectorsAnswer | None = worked.answer
        if answer is not None and answer.done:
            return answer
        if worked.trouble is not None:
            raise ShoalError(Kind.INVALID, worked.trouble)
        if time.monotonic() > until:
            raise ShoalError(Kind.UNAVAILABLE, "still being worked out: try again in a minute")
        time.sleep(_PATIENCE_S)


def _several(
    workshop: Workshop, asked: Asked, worked: Worked[AccuracyAnswer], lease: tuple[float, ...]
) -> dict[str, Any]:
    """What the page shows of several messages, once one message is planned; and when to come back
    for more. Waits for nothing.
    """
    if worked.answer is None or worked.answer.plan is None:
        return {}
    known = workshop.look(SeveralQuestion(asked), 0.0, *lease)
    return {
        "several": several_view(known.answer or SeveralAnswer(), worked.answer.plan),
        "several_trouble": known.trouble,
        "several_over": known.over,
        "again_ms": None if known.over else AGAIN_MS,
    }


def _file(content: bytes, name: str, media_type: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=media_type, headers=headers)


def _address(request: Request) -> str:
    """The question alone, for a link: without the places of sliders."""
    fields: list[tuple[str, Any]] = request.query_params.multi_items()
    return urlencode([(name, text) for name, text in fields if not name.endswith(("_at", "_was"))])
