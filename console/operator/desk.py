"""What every page of the operator's console works with: what is known now, and the site's frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from shoal.console.known import LastRead, Watched
from shoal.console.operator.holdings import Holdings, Release, ReleasedQuestion
from shoal.console.operator.limit import StandingLimit
from shoal.console.signin.gate import Gate
from shoal.console.web import Frame, NavItem
from shoal.console.words import ago
from shoal.errors import Kind, ShoalError

_OLD_S = 60.0  # from then on a page says how old what it shows is
_NOTHING = Holdings((), (), {}, {})
_MOST_MADE = 256  # pages that are kept worked out
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Notice:
    """A line above a page. ``bad``: something is wrong; otherwise it is only told."""

    text: str
    bad: bool = True


class Desk:
    """``holdings``: releases and what they cost. ``services``: /status of "analyzer" and
    "shuffler", as far as they are given. ``navigation``: the pages there are. ``now``: Unix
    seconds. ``gate``: who lets people in, and tells the audit; ``limit``: the one that holds.
    ``opened``: what is done with every page that is shown, in no time.
    """

    def __init__(
        self,
        holdings: Watched[Holdings],
        services: Mapping[str, Watched[dict[str, Any]]],
        navigation: tuple[NavItem, ...],
        now: Callable[[], float] = time.time,
        gate: Gate | None = None,
        limit: StandingLimit | None = None,
    ) -> None:
        self._holdings, self._services, self.now = holdings, services, now
        self._lock, self._made_of = Lock(), _NOTHING
        self._made: dict[tuple[object, ...], Future[Any]] = {}
        self.gate, self.limit = gate or Gate(None), limit or StandingLimit(None)
        self.opened: list[Callable[[], None]] = []
        self.site = Frame("Shoal", "shoal.console.operator", navigation, self._around)

    def _around(self, request: Request) -> Mapping[str, Any]:
        known = self._holdings.look()
        notices = [Notice(text) for text in _troubles("releases", known)]
        if known.value is not None:
            notices += [Notice(text) for text in known.value.notices]
        for name in self._services:
            notices += [Notice(text) for text in _troubles(name, self.status(name))]
        return {"notices": notices}

    def holdings(self) -> Holdings:
        """What was read last; nothing, if nothing ever was: a notice says why."""
        value = self._holdings.look().value
        return _NOTHING if value is None else value

    def once(self, key: tuple[object, ...], make: Callable[[Holdings], T]) -> T:
        """``make`` of what is held now, for everybody who asks for ``key`` until that changes: it
        is worked out once, however many look.
        """
        holdings = self.holdings()
        with self._lock:
            if holdings is not self._made_of or len(self._made) >= _MOST_MADE:
                self._made_of, self._made = holdings, {}
            made = self._made
            future, mine = made.get(key), False
            if future is None:
                future = made[key] = Future()
                mine = True
        if mine:
            try:
                future.set_result(make(holdings))
            except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
                made.pop(key, None)
                future.set_exception(error)
        result: T = future.result()
        return result

    def watches(self, service: str) -> bool:
        """Whether the console was told where "analyzer" or "shuffler" answers."""
        return service in self._services

    def status(self, service: str) -> LastRead[dict[str, Any]]:
        """What a service said last of itself; nothing, if nobody said where it answers."""
        watched = self._services.get(service)
        return LastRead(None, 0.0, None) if watched is None else watched.look()

    def page(self, request: Request, template: str, **values: Any) -> Response:
        """See ``Frame.page``."""
        for each in self.opened:
            each()
        return self.site.page(request, template, **values)


def _troubles(what: str, known: LastRead[Any]) -> list[str]:
    if known.trouble is None:
        return []
    if known.value is None:
        return [f"{what}: {known.trouble}"]
    return [f"{what}: {known.trouble}. What is shown was read {ago(known.age_s)}."]


@dataclass(frozen=True, slots=True)
class Fields:
    """What a form or an address asks for, and ``wrong``, which says by field what
    would be right: the rest of the page is shown all the same.
    """

    values: Mapping[str, str]
    wrong: dict[str, str] = field(default_factory=dict)

    def number(self, name: str, low: float, high: float, default: float) -> float:
        """A number from ``low`` to ``high``; ``default`` where nothing was given, and where it was
        wrong, which ``wrong`` then says.
        """
        text = self.values.get(name, "").strip()
        if not text:
            return default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            self.wrong[name] = f"give a number from {low:g} to {high:g}"
            return default
        return value

    def text(self, name: str) -> str:
        """What was typed, to show it again."""
        return self.values.get(name, "")


def asked(request: Request) -> Fields:
    """The fields of a form that was sent in the address."""
    return Fields(dict(request.query_params))


def window_of(request: Request, question: ReleasedQuestion) -> Release:
    """The release that an address names by ``window``, or the latest. Raises INVALID, NOT_FOUND."""
    text = request.path_params.get("window") or request.query_params.get("window")
    if text is None:
        return question.latest
    if not text.isdecimal() or len(text) > 9:
        raise ShoalError(Kind.INVALID, "a window is a whole number from 0 on, for example 0")
    return question.release_of(int(text))
