"""Traces of a service's own steps, for its own operator: OTLP as JSON over HTTP, off by default.

A span is of a step of a *window* (sealing, delivering, opening): never of a report, a call, a
device or a connection. So there is nothing to sample, and nothing in a trace counts an open window.
A trace is one window inside one process: its number is drawn here, taken from nobody and given to
nobody. No header is read or written on the wire (docs/decisions/services).

The moment at which a full window closes is that of its last report. So a span says in which minute
its step began, and is sent when that minute is over; how long the step took is told as it was.

What is sent waits in a bounded queue and is dropped when the collector is away: no step waits.
"""

from __future__ import annotations

import contextlib
import json
import queue
import secrets
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.log import get_log

log = get_log("tracing")
_WAITING = 1_000  # spans; a window has about five
_TOGETHER = 100  # in one call
_MINUTE_S = 60
_SEND_S = 10.0  # for the collector's answer
_WINDOWS = 10_000  # whose traces are continued
_INTERNAL, _ERROR = 1, 2  # of OTLP: SpanKind, StatusCode


class Tracer:
    """``endpoint``: http(s)://HOST:PORT of a collector; "": nothing is traced, and a span costs a
    comparison. Spans may be made in any thread; ``close`` sends what waits.
    """

    def __init__(self, service: str, endpoint: str = "") -> None:
        self._service, self._url = service, f"{endpoint.rstrip('/')}/v1/traces" if endpoint else ""
        self._spans: queue.Queue[dict[str, Any] | None] = queue.Queue(_WAITING)
        self._traces: dict[tuple[TaskId, int], str] = {}
        self._away = False
        self._thread: threading.Thread | None = None
        if self._url:
            # no proxy is asked, and no answer leads elsewhere: the operator's word is the address
            self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Here())
            self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
            self._thread.start()

    @contextmanager
    def span(self, step: str, task_id: TaskId, window: int) -> Iterator[None]:
        """Around a step of a window. A failure is told by its kind alone."""
        if not self._url:
            yield
            return
        began, since, kind = time.time(), time.perf_counter_ns(), ""
        try:
            yield
        except ShoalError as error:
            kind = error.kind.name
            raise
        except BaseException as error:
            kind = type(error).__name__
            raise
        finally:
            minute = int(began) // _MINUTE_S * _MINUTE_S * 1_000_000_000
            times = minute, minute + time.perf_counter_ns() - since
            self._put(step, task_id, window, times, kind)

    def _put(
        self, step: str, task_id: TaskId, window: int, times: tuple[int, int], kind: str
    ) -> None:
        if len(self._traces) >= _WINDOWS:
            self._traces.clear()
        trace = self._traces.setdefault((task_id, window), secrets.token_hex(16))
        words = {"shoal.task": task_id.short, "shoal.window": str(window)}
        made: dict[str, Any] = {
            "traceId": trace,
            "spanId": secrets.token_hex(8),
            "name": step,
            "kind": _INTERNAL,
            "startTimeUnixNano": str(times[0]),
            "endTimeUnixNano": str(times[1]),
            "attributes": _attributes(words | ({"shoal.failure": kind} if kind else {})),
            "status": {"code": _ERROR} if kind else {},
        }
        with contextlib.suppress(queue.Full):
            self._spans.put_nowait(made)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while (first := self._spans.get()) is not None:
            spans, ends, ending = [first], time.monotonic() + _rest_of_minute(), False
            with contextlib.suppress(queue.Empty):
                while not ending:
                    span = self._spans.get(timeout=max(0.0, ends - time.monotonic()))
                    if span is None:
                        ending = True
                    elif len(spans) < _WAITING:
                        spans.append(span)
            for place in range(0, len(spans), _TOGETHER):
                self._send(spans[place : place + _TOGETHER])
            if ending:
                return

    def _send(self, spans: list[dict[str, Any]]) -> None:
        named = _attributes({"service.name": f"shoal-{self._service}"})
        scope = {"scope": {"name": "shoal"}, "spans": spans}
        body = {"resourceSpans": [{"resource": {"attributes": named}, "scopeSpans": [scope]}]}
        request = urllib.request.Request(  # noqa: S310 - looked at by the configuration
            self._url, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with self._opener.open(request, timeout=_SEND_S) as reply:
                reply.read(1_024)
        except (OSError, ValueError) as error:
            if not self._away:
                log.warning("traces can't be sent: they are dropped until they can", error=error)
            self._away = True
        else:
            self._away = False

    def close(self) -> None:
        """Send what waits, and end. Blocks for ``_SEND_S`` at most."""
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._spans.put(None, timeout=_SEND_S)
            self._thread.join(_SEND_S)
            self._thread = None


def _rest_of_minute() -> float:
    return _MINUTE_S - time.time() % _MINUTE_S


class _Here(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """An answer that leads elsewhere is none."""


def _attributes(words: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in words.items()]


NO_TRACES = Tracer("none")
