"""What is wrong with a service now: one list, which /readyz, /status and /metrics read, so that
they always agree.

A part that can look at its own trouble registers a *source*, which is asked at every look. A part
that meets trouble in passing *sets* a condition and *clears* it when it has seen the trouble gone.
A condition says what is wrong and what to do about it, in one line, and holds nothing but public
ids: anybody who reaches the admin port may read it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from shoal.log import get_log

log = get_log("conditions")

# Every code there is, and what it means: metrics show each of them, also while it is 0, so that an
# alarm can be set on it.
CODES: dict[str, str] = {
    "stopping": "the service is going down",
    "clock": "the clock does not fit what was seen before: nothing irreversible is decided",
    "disk_full": "there is no room for what must be kept",
    "disk_read_only": "what must be kept cannot be written",
    "damage": "something stored is not what was written",
    "task": "a task cannot be served",
    "key": "a private key is missing or unreadable",
    "certificate": "a TLS certificate is over, or about to be",
    "analyzer": "the analyzer cannot be reached, or takes nothing",
    "database": "the database that shufflers share cannot be used, or keeps less than it promises",
    "replica": "the shufflers of one database do not fit one another, or one is away with keys",
    "worker": "workers on other machines cannot be used",
    "broker": "the MQTT broker cannot be reached",
    "stuck": "work on a window or a round fails again and again",
    "overload": "more comes in than can be done",
}


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    """One thing that is wrong.

    code: one of ``CODES``. subject: what it is about (a short task id, a file's name, a window);
    empty for the whole service. message: one line that says what is wrong and how to mend it.
    stops: whether the service is not ready because of it; if not, it is shown and counted, and the
    service goes on.
    """

    code: str
    subject: str
    message: str
    stops: bool = True

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError("a condition has one of the codes in shoal.services.conditions.CODES")
        if not self.message or "\n" in self.message:
            raise ValueError("a condition is told in one line")


Source = Callable[[], Iterable[Condition]]


class Conditions:
    """All that is wrong now. ``set`` and ``clear`` may be called from any thread."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._set: dict[tuple[str, str], Condition] = {}
        self._lock = threading.Lock()

    def watch(self, source: Source) -> None:
        """Ask ``source`` at every look. It must be cheap and must not raise."""
        self._sources.append(source)

    def set(self, condition: Condition) -> None:
        """Add a condition, or replace the one with its code and subject. Logged when it is new."""
        key = condition.code, condition.subject
        with self._lock:
            new = key not in self._set
            self._set[key] = condition
        if new:
            log.warning("a condition began", condition=condition.code)

    def clear(self, code: str, subject: str = "") -> None:
        """The trouble is gone; nothing happens if it was never there."""
        with self._lock:
            gone = self._set.pop((code, subject), None)
        if gone is not None:
            log.info("a condition ended", condition=code)

    def current(self) -> tuple[Condition, ...]:
        """Everything that is wrong, what stops the service first, then by code and subject."""
        with self._lock:
            conditions = set(self._set.values())
        for source in self._sources:
            conditions.update(source())
        return tuple(sorted(conditions, key=lambda condition: (not condition.stops, condition)))

    def ready(self) -> str | None:
        """None while nothing stops the service, otherwise the first line that says why not."""
        return next((condition.message for condition in self.current() if condition.stops), None)

    def json(self) -> list[dict[str, Any]]:
        """For /status: [{"code", "subject", "message", "stops"}]."""
        return [asdict(condition) for condition in self.current()]

    def counts(self) -> Iterator[tuple[str, bool, int]]:
        """For metrics: (code, whether it stops the service, how many), every code with both, also
        those that are not there.
        """
        conditions = Counter((condition.code, condition.stops) for condition in self.current())
        for code in CODES:
            for stops in (True, False):
                yield code, stops, conditions[code, stops]
