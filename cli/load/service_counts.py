"""What the services say that they counted in a window, and what they take of the machine: from
their admin pages on loopback.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.errors import Kind, ShoalError
from shoal.rpc.admin_pages import json_object, read_page

_AGAIN_S = 0.2  # before a service that does not answer yet is asked again


@dataclass(frozen=True, slots=True)
class Counted:
    """Reports of a decided window. ``rejected``: rows that reached the analyzer and did not count,
    None where it never saw them.
    """

    n: int
    rejected: int | None


@dataclass(frozen=True, slots=True)
class ServiceUsage:
    """What a service took while somebody watched. ``cpu_s``: whole seconds, workers included;
    ``memory_bytes``: the most that was seen.
    """

    cpu_s: float
    memory_bytes: int
    restarts: int


class Watch:
    """Looks at /metrics of services now and then. One that is down, or says nothing of itself, has
    no figures. One thread at a time.
    """

    def __init__(self, urls: dict[str, str | None]) -> None:
        """``urls``: admin addresses by the name of the service."""
        self._urls = {name: url for name, url in urls.items() if url is not None}
        # the last look, and the sum so far
        self._seen: dict[str, tuple[dict[str, float], ServiceUsage]] = {}
        self.nobody = ""  # why the load had nobody to send to, if it had nobody

    def look(self) -> frozenset[str]:
        """Returns who did not answer."""
        silent = set[str]()
        for name, url in self._urls.items():
            try:
                now = _process(_read(url, name, "metrics").decode("utf-8", "replace"))
            except ShoalError:
                silent.add(name)
                continue
            if len(now) == len(_PROCESS):
                self._seen[name] = (now, _after(self._seen.get(name), now))
        return frozenset(silent)

    def figures(self) -> dict[str, ServiceUsage]:
        """What each service that was seen has taken so far, by its name."""
        return {name: usage for name, (_, usage) in sorted(self._seen.items())}


_CPU, _MEMORY, _START = _PROCESS = (
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
)


def _process(text: str) -> dict[str, float]:
    """The samples about the process, from Prometheus's text format."""
    rows = (line.split(" ") for line in text.splitlines())
    return {row[0]: float(row[1]) for row in rows if row[0] in _PROCESS and len(row) == 2}


def _after(
    before: tuple[dict[str, float], ServiceUsage] | None, now: dict[str, float]
) -> ServiceUsage:
    if before is None:
        return ServiceUsage(0.0, int(now[_MEMORY]), 0)
    last, usage = before
    restarted = last[_START] != now[_START]
    spent = now[_CPU] if restarted else now[_CPU] - last[_CPU]
    return ServiceUsage(
        usage.cpu_s + max(0.0, spent),
        max(usage.memory_bytes, int(now[_MEMORY])),
        usage.restarts + restarted,
    )


class Counter:
    """Reads /status of the analyzer (released or withheld there) and of the shuffler (withheld
    before delivery). URLs or None.
    """

    def __init__(self, analyzer: str | None, shuffler: str | None) -> None:
        self._analyzer, self._shuffler = analyzer, shuffler

    def check(
        self, patience_s: float = 0.0, waiting: Callable[[str], None] = lambda _: None
    ) -> None:
        """Before anything is sent: raises CONFIG if another service answers, UNAVAILABLE if none
        does within ``patience_s``.

        A service that was started in the line before needs a few seconds: ``waiting`` is told once
        for each that does not answer at once.
        """
        deadline = time.monotonic() + patience_s
        for url, service in ((self._analyzer, "analyzer"), (self._shuffler, "shuffler")):
            if (
                url is not None
                and (answer := _patiently(url, service, deadline, waiting)).get("service")
                != service
            ):
                raise ShoalError(
                    Kind.CONFIG,
                    f"--{service}-status: a {answer.get('service', 'stranger')} answers at {url}: "
                    "check admin_listen",
                )

    def read(self, windows: list[tuple[str, int]]) -> list[Counted | None]:
        """For each (task id in hex, window): what was counted, or None while that is not decided or
        a service is down.
        """
        ended = self._ended()
        return [ended.get(window) for window in windows]

    def _ended(self) -> dict[tuple[str, int], Counted]:
        ended: dict[tuple[str, int], Counted] = {}
        try:
            if self._shuffler is not None:
                for task in _fetch(self._shuffler, "shuffler")["tasks"]:
                    for row in task["shown"]:
                        if row.get("outcome") == "WITHHELD" and "reports" in row:
                            ended[task["task_id"], row["window"]] = Counted(row["reports"], None)
            if self._analyzer is not None:
                for task in _fetch(self._analyzer, "analyzer")["tasks"]:
                    for row in task["ended"]:
                        ended[task["task_id"], row["window"]] = Counted(row["n"], row["rejected"])
        except ShoalError:
            return ended  # restarting, perhaps: asked again
        return ended


def _patiently(
    url: str, service: str, deadline: float, waiting: Callable[[str], None]
) -> dict[str, Any]:
    """The service's answer, asked again until ``deadline`` (monotonic seconds) while nobody
    listens; ``waiting`` is told once.
    """
    told = False
    while True:
        try:
            return _fetch(url, service)
        except ShoalError as error:
            if error.kind is not Kind.UNAVAILABLE or time.monotonic() > deadline:
                raise
            if not told:
                waiting(
                    f"waiting up to {deadline - time.monotonic():.0f} s for the {service} at {url}"
                )
                told = True
            time.sleep(_AGAIN_S)


def _fetch(url: str, service: str) -> dict[str, Any]:
    try:
        return json_object(_read(url, service, "status"))
    except ValueError:
        raise ShoalError(Kind.UNAVAILABLE, _silence(url, service)) from None


def _read(url: str, service: str, page: str) -> bytes:
    if not url.startswith("http://"):
        raise ShoalError(Kind.CONFIG, f"--{service}-status: an address like http://127.0.0.1:7446")
    return read_page(f"{url.rstrip('/')}/{page}", _silence(url, service))


def _silence(url: str, service: str) -> str:
    return (
        f"no {service} answers at {url}: check admin_listen, and that it runs (its log says why it "
        "ended)"
    )
