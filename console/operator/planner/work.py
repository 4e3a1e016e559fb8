"""Who works out the Planner's answers: two processes beside the console, one for first answers and
one that refines them; and what they found, for all who look.

A page asks for a question and gets what is known of it, at once or after a moment. A question that
nobody has looked at for a few seconds is given up between two mechanisms. A process that takes too
long is ended, and another one starts with the next question.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar, overload

from shoal.analyzer.planner.accuracy.answers import AccuracyAnswer, answers, request_for
from shoal.analyzer.planner.frontier.maps import MapRequest
from shoal.analyzer.planner.question import Frequencies, Mean, Quantiles, Request
from shoal.console.operator.planner.places import PlacesAnswer, places_answers
from shoal.console.operator.planner.several import (
    SeveralAnswer,
    SeveralQuestion,
    several_answers,
)
from shoal.console.operator.planner.vectors import (
    VectorsAnswer,
    VectorsQuestion,
    vectors_answers,
)
from shoal.console.operator.planner.words import WordsAnswer, WordsQuestion, words_answers
from shoal.domain import YesNo
from shoal.errors import ShoalError
from shoal.log import get_log
from shoal.services.parent import die_with_parent
from shoal.services.workers import deaf_to_interrupts

log = get_log("console")

Asked = Request | SeveralQuestion | WordsQuestion | MapRequest | VectorsQuestion
Answer = AccuracyAnswer | SeveralAnswer | WordsAnswer | PlacesAnswer | VectorsAnswer
Known = TypeVar("Known", AccuracyAnswer, SeveralAnswer, WordsAnswer, PlacesAnswer, VectorsAnswer)

_KEPT = 128  # answers
LIVE_S, _LEASE_S = 2.5, 30.0  # so long after a look a question is still worked at, by who looks
_AWAY_S = 1.5  # not looked at for so long, it gives way to another one
_MOST_S = 120.0  # of one question
_STEP_S = 30.0  # of one mechanism
_KINDER = 5  # beside the console's own: services come first
_TELL_S = 0.1  # between two answers that a process sends
_FIRST_S = 0.5  # a first answer takes no longer, even if it is none
_LOOK_S = 0.25  # between two looks at whether a question is still waited for
_END_S = 5.0  # for a thread or a process, when the console ends
_TOO_LONG = "working this out takes too long here: shoal plan has no limit"
_WAITING = 32  # questions; beyond them the oldest is dropped


@dataclass(slots=True)
class _Known:
    """``answer``: the latest, None before the first. ``trouble``: why there is none."""

    answer: Answer | None = None
    trouble: str | None = None
    looked_at: float = 0.0
    until: float = 0.0  # then nobody waits for it any more

    @property
    def over(self) -> bool:
        return self.trouble is not None or (self.answer is not None and self.answer.done)

    @property
    def shown(self) -> bool:
        """Whether there is something to see."""
        return self.over or (self.answer is not None and bool(self.answer.options))


@dataclass(frozen=True)
class Worked(Generic[Known]):
    """What is known of a question: an ``answer``, that may get better, or ``trouble`` in a line; or
    neither yet.
    """

    answer: Known | None
    trouble: str | None

    @property
    def over(self) -> bool:
        """Whether nothing more is to come."""
        return self.trouble is not None or (self.answer is not None and self.answer.done)


class Workshop:
    """Starts its processes when it is warmed, or with the first question. ``clock``: seconds that
    only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._known: OrderedDict[Asked, _Known] = OrderedDict()
        self._queues: dict[bool, list[Asked]] = {True: [], False: []}
        self._threads: list[threading.Thread] = []
        self._processes: dict[bool, BaseProcess] = {}
        self._closed = False

    @overload
    def look(
        self, request: Request, patience_s: float, lease_s: float = _LEASE_S
    ) -> Worked[AccuracyAnswer]: ...

    @overload
    def look(
        self, request: SeveralQuestion, patience_s: float, lease_s: float = _LEASE_S
    ) -> Worked[SeveralAnswer]: ...

    @overload
    def look(
        self, request: WordsQuestion, patience_s: float, lease_s: float = _LEASE_S
    ) -> Worked[WordsAnswer]: ...

    @overload
    def look(
        self, request: MapRequest, patience_s: float, lease_s: float = _LEASE_S
    ) -> Worked[PlacesAnswer]: ...

    @overload
    def look(
        self, request: VectorsQuestion, patience_s: float, lease_s: float = _LEASE_S
    ) -> Worked[VectorsAnswer]: ...

    def look(self, request: Asked, patience_s: float, lease_s: float = _LEASE_S) -> Worked[Any]:
        """What is known of ``request``; waits ``patience_s`` at most for a first answer. It is
        worked at for ``lease_s`` from now on; what went wrong is told once, and tried again then.
        """
        with self._changed:
            self._start()
            known = self._known.setdefault(request, _Known())
            self._known.move_to_end(request)
            known.looked_at = self._clock()
            known.until = max(known.until, known.looked_at + lease_s)
            self._queue(request, known)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
            self._changed.wait_for(lambda: known.shown, patience_s)
            if known.trouble is not None:
                self._known.pop(request, None)
            return Worked(known.answer, known.trouble)

    def _queue(self, request: Asked, known: _Known) -> None:
        """Line the question up where it is wanted and isn't yet: for a first answer, then for the
        whole one. The latest is taken first.
        """
        if known.over:
            return
        queue = self._queues[_first(request, known)]
        if request in queue:
            queue.remove(request)
        queue.append(request)
        del queue[:-_WAITING]
        self._changed.notify_all()

    def _line_up(self, request: Asked) -> None:
        """Behind all others, what is not over and still waited for."""
        with self._changed:
            known = self._known.get(request)
            if known is None or known.over or not self._fresh(known):
                return
            queue = self._queues[_first(request, known)]
            if request not in queue:
                queue.insert(0, request)
                self._changed.notify_all()

    def warm(self) -> None:
        """Start the processes, if they aren't running: the first question then waits for nothing
        else.
        """
        with self._changed:
            self._start()

    def processes(self) -> list[BaseProcess]:
        """Those that work now."""
        return list(self._processes.values())

    def close(self) -> None:
        """End the processes."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        ended = self.processes()
        for process in ended:
            process.kill()
        for thread in self._threads:
            thread.join(_END_S)
        for process in {*ended, *self.processes()}:  # one may have been starting meanwhile
            process.kill()
            process.join(_END_S)

    def _start(self) -> None:
        if self._closed or any(thread.is_alive() for thread in self._threads):
            return
        atexit.register(self.close)
        self._threads = [
            threading.Thread(target=self._serve, args=(brief,), name="planner", daemon=True)
            for brief in (True, False)
        ]
        for thread in self._threads:
            thread.start()

    def _serve(self, brief: bool) -> None:
        """One thread for one process, which ends with it: first answers, or whole ones."""
        end: Connection | None = None
        while not self._closed:
            if end is None:
                with contextlib.suppress(OSError):  # who asks is told if it goes on
                    end = self._spawn(brief)
            request = self._next(brief)
            if request is None:
                continue
            try:
                end = end or self._spawn(brief)
                going_on = self._work(end, request, brief)
            except (EOFError, OSError):
                self._tell(request, "trouble", "the process that works this out died: try again")
                going_on = False
            if not going_on:
                self._kill(brief)
                end = None
            else:
                self._line_up(request)

    def _kill(self, brief: bool) -> None:
        process = self._processes.pop(brief, None)
        if process is not None:
            process.kill()
            process.join()

    def _spawn(self, brief: bool) -> Connection:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_process, args=(theirs, os.getpid(), brief), name="planner", daemon=True
        )
        with deaf_to_interrupts():
            process.start()
        theirs.close()
        self._processes[brief] = process
        return ours

    def _next(self, brief: bool) -> Asked | None:
        """The question that was asked for last; None where nobody waits for it any more."""
        with self._changed:
            queue = self._queues[brief]
            self._changed.wait_for(lambda: bool(queue) or self._closed)
            while queue and not self._closed:
                request = queue.pop()
                known = self._known.get(request)
                if known is not None and not known.over and self._fresh(known):
                    return request
            return None

    def _work(self, end: Connection, request: Asked, brief: bool) -> bool:
        """Have the process work at the question. False if it must be ended. Raises EOFError,
        OSError where it died.
        """
        began = self._clock()
        told_to_stop_at: float | None = None
        end.send((request, brief))
        while True:
            if end.poll(_LOOK_S):
                kind, value = end.recv()
                if kind == "end":
                    return True
                self._tell(request, kind, value)
            now = self._clock()
            if told_to_stop_at is not None:
                if now - told_to_stop_at > _STEP_S:
                    self._tell(request, "trouble", _TOO_LONG)
                    return False
            elif (
                now - began > _MOST_S
                or not self._wanted(request)
                or self._gives_way(request, brief)
            ):
                if now - began > _MOST_S:
                    self._tell(request, "trouble", _TOO_LONG)
                end.send(None)  # heard between two mechanisms
                told_to_stop_at = now

    def _gives_way(self, request: Asked, brief: bool) -> bool:
        """Whether another question waits, and this one has a first answer that nobody looks at."""
        with self._changed:
            known = self._known.get(request)
            if known is None or not self._queues[brief]:
                return False
            return known.shown if brief else self._clock() - known.looked_at > _AWAY_S

    def _wanted(self, request: Asked) -> bool:
        with self._changed:
            known = self._known.get(request)
            return known is not None and not self._closed and self._fresh(known)

    def _fresh(self, known: _Known) -> bool:
        return self._clock() < known.until

    def _tell(self, request: Asked, kind: str, value: object) -> None:
        with self._changed:
            known = self._known.get(request)
            if known is None:
                return
            if isinstance(value, Answer):
                if known.answer is None or not known.answer.done:
                    known.answer = value
            else:
                known.trouble = str(value)
            self._changed.notify_all()


def _first(request: Asked, known: _Known) -> bool:
    """Whether a first answer is wanted; what takes seconds is never in the way of one."""
    return isinstance(request, Request) and not known.shown


def _process(end: Connection, parent: int, brief: bool) -> None:
    die_with_parent(parent)
    if brief:
        _practise(end)
    else:
        with contextlib.suppress(OSError):
            os.nice(_KINDER)
    while True:
        try:
            given = end.recv()
            if given is not None:
                _answer(end, *given)
        except (EOFError, OSError):
            return


def _practise(end: Connection) -> None:
    """What is loaded and computed once, before somebody waits for it: who asks already comes
    first.
    """
    for question in (
        Frequencies(YesNo(), heavy=1.0),
        Mean(0.0, 1.0),
        Quantiles(0.0, 1.0, (0.5,)),
    ):
        for answer in answers(request_for(question, 1_000, 0.2, 1e-6)):
            if answer.options or end.poll():
                break


def _answer(end: Connection, request: Asked, brief: bool) -> None:
    """Send better and better answers, until told to stop."""
    try:
        if isinstance(request, SeveralQuestion):
            _send_each(end, several_answers(request))
        elif isinstance(request, WordsQuestion):
            _send_each(end, words_answers(request))
        elif isinstance(request, MapRequest):
            _send_each(end, places_answers(request))
        elif isinstance(request, VectorsQuestion):
            _send_each(end, vectors_answers(request))
        else:
            _send(end, request, brief)
    except ShoalError as error:
        end.send(("trouble", str(error)))
    except Exception as error:  # noqa: BLE001 - a bug of one question must not end the process
        end.send(("trouble", f"unexpected {type(error).__name__}: a bug"))
    end.send(("end", None))


def _send(end: Connection, request: Request, brief: bool) -> None:
    """Until one with a curve if ``brief``."""
    latest, began, told_at, drawn_at = None, time.monotonic(), 0.0, 0
    for answer in answers(request):
        latest = answer
        drawn_at = drawn_at or (answer.tried if answer.curves else 0)
        if brief and (0 < drawn_at < answer.tried or time.monotonic() - began > _FIRST_S):
            break
        if end.poll():
            end.recv()
            break
        if time.monotonic() - told_at >= _TELL_S or answer.done:
            end.send(("answer", answer))
            latest, told_at = None, time.monotonic()
    if latest is not None:
        end.send(("answer", latest))


def _send_each(end: Connection, found: Iterable[Answer]) -> None:
    for answer in found:
        end.send(("answer", answer))
        if end.poll():
            end.recv()
            return
