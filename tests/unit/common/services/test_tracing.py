"""Traces: what a span holds, and what it never holds up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.services import tracing
from shoal.services.tracing import Tracer
from tests.cases import for_each
from tests.worlds.services.collector import collecting, words
from tests.worlds.services.shuffler import World

TASK, OTHER = TaskId(bytes(range(32))), TaskId(bytes(32))


def test_a_window_is_a_trace_of_its_steps_and_a_failure_is_a_word() -> None:
    """Planted: the text of a failure among its attributes -> fails. Planted: a trace for each step
    -> fails.
    """
    with collecting() as collector:
        tracer = Tracer("shuffler", collector.endpoint + "/")
        with tracer.span("seal", TASK, 3):
            pass
        with pytest.raises(ShoalError), tracer.span("deliver", TASK, 3):
            raise ShoalError(Kind.UNAVAILABLE, "10.1.2.3 does not answer")
        with pytest.raises(OSError), tracer.span("seal", OTHER, 3):
            raise OSError("/var/lib/shoal: no room")
        tracer.close()
        tracer.close()
    seal, deliver, other = collector.spans
    assert {path for path, _, _ in collector.calls} == {"/v1/traces"}
    assert seal["traceId"] == deliver["traceId"] != other["traceId"]
    assert len({len(one["traceId"]) for one in collector.spans} | {32}) == 1
    assert [one["name"] for one in collector.spans] == ["seal", "deliver", "seal"]
    assert [words(one).get("shoal.failure") for one in collector.spans] == [
        None,
        "UNAVAILABLE",
        "OSError",
    ]
    assert words(seal) == {"shoal.task": TASK.short, "shoal.window": "3"}
    sent = str(collector.calls)
    assert "10.1.2.3" not in sent
    assert "/var/lib" not in sent


def test_spans_tell_no_moment_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full window closes with its last report. Planted: the wall clock's own time as a span's
    begin -> fails. Planted: its end by the wall clock -> 20 s seem 51, fails. Planted: a hundred
    spans sent as soon as there are so many -> fails.
    """
    noon = 1_800_000_000 // 60 * 60
    wall, ticks = iter([noon + 31.25, noon + 59.9]), iter([5, 5 + 20 * 10**9, 7, 8])
    sent = list[tuple[bool, dict[str, Any]]]()
    closing = False
    tracer = Tracer("shuffler", "http://127.0.0.1:1")
    monkeypatch.setattr(tracer, "_send", lambda spans: sent.extend((closing, s) for s in spans))
    with monkeypatch.context() as patch:
        patch.setattr(tracing, "_rest_of_minute", lambda: 3_600.0)
        with monkeypatch.context() as clocks:
            clocks.setattr("shoal.services.tracing.time.time", lambda: next(wall))
            clocks.setattr("shoal.services.tracing.time.perf_counter_ns", lambda: next(ticks))
            for window in (0, 1):
                with tracer.span("seal", TASK, window):
                    pass
        for window in range(2, 250):
            with tracer.span("seal", TASK, window):
                pass
        while tracer._spans.qsize():
            pass
        closing = True
        tracer.close()
    assert [late for late, _ in sent] == [True] * 250
    times = [[int(span[f"{end}TimeUnixNano"]) for end in ("start", "end")] for _, span in sent[:2]]
    assert times == [
        [noon * 10**9, noon * 10**9 + 20 * 10**9],
        [noon * 10**9, noon * 10**9 + 1],
    ]


def test_a_collector_that_is_away_or_refuses_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """More spans than may wait are dropped. Planted: ``put`` instead of ``put_nowait`` -> this
    waits for ever.
    """
    monkeypatch.setattr(tracing, "_rest_of_minute", lambda: 0.0)
    with collecting() as collector:
        collector.status = 503
        tracer = Tracer("analyzer", collector.endpoint)
        for window in range(3 * tracing._WAITING):
            with tracer.span("open", TASK, window):
                pass
        tracer.close()
        assert [one.getMessage() for one in caplog.records].count(
            'traces can\'t be sent: they are dropped until they can error="HTTPError"'
        ) in (0, 1)
        endpoint = collector.endpoint
    assert collector.calls
    gone = Tracer("analyzer", endpoint)  # nobody listens there any more
    with gone.span("open", TASK, 0):
        pass
    gone.close()


def test_without_an_endpoint_there_is_no_thread_and_no_trace() -> None:
    tracer = Tracer("shuffler")
    with tracer.span("seal", TASK, 0):
        pass
    assert (tracer._thread, tracer._traces, tracer._spans.qsize()) == (None, {}, 0)
    tracer.close()


@for_each(
    "endpoint",
    [
        "127.0.0.1:4318",
        "http://collector.example:4318",
        "ftp://127.0.0.1:4318",
        "http://127.0.0.1",
        "http://127.0.0.1:4318@collector.example:80",
        "http://127.0.0.1:4318/v1/traces",
        "https://collector.example:4318?x=1",
    ],
)
def test_what_is_no_collector_is_refused_in_one_line(tmp_path: Path, endpoint: str) -> None:
    """Planted: plain HTTP to anybody -> fails."""
    folder = tmp_path / str(abs(hash(endpoint)))
    with pytest.raises(ValueError, match="a collector is https"):
        World(folder).config(tracing={"endpoint": endpoint})
