"""An owner's console, put together. A page is a module with ``NAVIGATION`` and ``routes``, and a
line in ``PAGES``.
"""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from shoal.console.owner import answers, budget, ledger, memory, question, questions
from shoal.console.owner.desk import OwnDesk
from shoal.console.owner.door import OPENING, SPENT, Door
from shoal.console.signin.visitors import visitor_of
from shoal.console.web import Frame

PAGES = (questions, answers, budget, ledger, memory)
_FOOT = "This device's own pages: nobody else sees them, and looking sends nothing."


def owner_app(file: Path, address: str, door: Door) -> ASGIApp:
    """The console of the device whose agent.toml is ``file``, for who asks for it as ``address``
    (HOST:PORT) and came through ``door``. Raises CONFIG.
    """
    frame = Frame(
        "This device",
        "shoal.console.owner",
        [page.NAVIGATION for page in PAGES],
        lambda _: {},
        _FOOT,
    )
    desk = OwnDesk(file, frame, door)
    desk.config()
    routes = [route for page in PAGES for route in page.routes(desk)]

    start = PAGES[0].NAVIGATION.path

    def first(_: Request) -> Response:
        return RedirectResponse(start, 303)

    def opening(request: Request) -> Response:
        if door.open(request):
            # no redirection: a browser that came from elsewhere (a terminal, a file) sends no
            # strict cookie with one
            return door.let_in(frame.page(request, "opened.html.j2", first=start))
        if visitor_of(request) is not None:
            return RedirectResponse(start, 303)
        return frame.refusal(request, SPENT, 403, "")

    own = [Route("/", first), Route(OPENING, opening)]
    return frame.app([*own, *routes, *question.routes(desk)], address, frozenset(), door)
