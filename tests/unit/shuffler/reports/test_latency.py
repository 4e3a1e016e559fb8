"""Times of answers: shown when their window is over, and not before."""

from __future__ import annotations

from shoal.errors import Kind
from shoal.ids import TaskId
from shoal.shuffler.core import WindowId
from shoal.shuffler.reports.latency import HELD, AnswerTimes

FIRST, SECOND = (WindowId(TaskId(bytes(32)), number) for number in (0, 1))


def samples(times: AnswerTimes) -> dict[str, float]:
    return {
        sample.labels.get("le", sample.name.rpartition("_")[2]): sample.value
        for sample in times.metric().samples
    }


def test_nothing_is_shown_of_an_open_window() -> None:
    """A count that grows with every call tells when each came. Planted: counts added to what is
    shown at once -> the first look shows them: fails. Planted: those of a window that is over left
    in place -> counted again by the next look: fails.
    """
    over: set[WindowId] = set()
    times = AnswerTimes(lambda window: window not in over)
    times.add_call([FIRST], 0.004)
    times.add_call([FIRST, SECOND, SECOND, Kind.INVALID], 0.3)
    times.add_call([Kind.WINDOW_FULL], 0.3)
    assert set(samples(times).values()) == {0.0}
    over.add(FIRST)
    for _ in range(2):
        shown = samples(times)
        assert (shown["0.01"], shown["0.25"], shown["0.5"], shown["+Inf"]) == (1, 1, 2, 2)
        assert (shown["count"], shown["sum"]) == (2, 0.304)
    over.add(SECOND)
    assert samples(times)["+Inf"] == 3


def test_what_is_kept_aside_is_bounded_though_nobody_asks() -> None:
    """A service whose metrics nobody reads, for years of windows; and windows that never end.
    Planted: room made by a look at the metric alone -> more and more is held: fails. Planted: the
    windows that are over dropped with the others -> fewer calls are shown: fails.
    """
    over: set[WindowId] = set()
    times = AnswerTimes(lambda window: window not in over)
    for number in range(2 * HELD):
        window = WindowId(TaskId(bytes(32)), number)
        times.add_call([window], 0.004)
        over.add(window)
        assert len(times._held) <= HELD
    assert samples(times)["count"] == 2 * HELD
    for number in range(2 * HELD):
        times.add_call([WindowId(TaskId(bytes([1] * 32)), number)], 0.004)
        assert len(times._held) <= HELD
    assert samples(times)["count"] == 2 * HELD
