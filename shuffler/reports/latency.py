"""How long devices waited for their acknowledgements, told when their windows are over.

A histogram that grows with every call would be the arrival times of an open window's reports to
whoever looks often enough. So each window's counts are kept aside until the window is decided, and
only then added to what is shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

from prometheus_client.core import HistogramMetricFamily

from shoal.errors import Kind
from shoal.shuffler.core import WindowId

# seconds; a commit waits for some milliseconds, and nobody waits for longer than a minute
BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# windows whose counts are kept aside; more are open only where thousands of questions are served
HELD = 4_096


class AnswerTimes:
    """``open_window``: whether a window may still take reports. For one thread: the event loop's
    (``add_call``); ``metric`` is called there too.
    """

    def __init__(self, open_window: Callable[[WindowId], bool]) -> None:
        self._open = open_window
        self._held: dict[WindowId, list[float]] = {}
        self._shown = _nothing()

    def add_call(self, judged: Iterable[WindowId | Kind], seconds: float) -> None:
        """A call was answered after so long. ``judged``: the windows of its reports, and why others
        were refused, which does not count.
        """
        for window in {one for one in judged if isinstance(one, WindowId)}:
            self.add_answers(window, (seconds,))

    def add_answers(self, window: WindowId, seconds: Iterable[float]) -> None:
        """Calls with a report of this window each were answered after so long."""
        counts = self._held.get(window)
        for one in seconds:
            if counts is None:
                self._make_room()
                counts = self._held[window] = _nothing()
            counts[bisect_left(BOUNDS, one)] += 1
            counts[-1] += one

    def metric(self) -> HistogramMetricFamily:
        """Of windows that are over."""
        self._take_over()
        buckets, total = list[tuple[str, float]](), 0.0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self._shown[:-1], strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(
            "shoal_shuffler_answer_seconds",
            "Seconds until calls with reports were answered, of windows that are over",
            buckets=buckets,
            sum_value=round(self._shown[-1], 3),
        )

    def _take_over(self) -> None:
        """What was kept aside of windows that are over joins what is shown."""
        for window in [window for window in self._held if not self._open(window)]:
            counts = self._held.pop(window)
            self._shown = [shown + more for shown, more in zip(self._shown, counts, strict=True)]

    def _make_room(self) -> None:
        """Also where nobody ever asks for ``metric``. Where all are open the oldest quarter is
        forgotten: their calls so far are never shown.
        """
        if len(self._held) >= HELD:
            self._take_over()
        if len(self._held) >= HELD:
            for window in list(self._held)[: HELD // 4]:
                del self._held[window]


def _nothing() -> list[float]:
    """Calls up to each bound, those beyond the last, and the sum of their seconds."""
    return [0.0] * (len(BOUNDS) + 2)
