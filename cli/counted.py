"""What the services say that they counted in a window: from their admin pages on loopback."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from shoal.errors import Kind, ShoalError


@dataclass(frozen=True, slots=True)
class Counted:
    """Reports of a decided window. ``rejected``: rows that reached the analyzer and did not count, None where it never saw them."""

    n: int
    rejected: int | None


class Counter:
    """Reads /status of the analyzer (released or withheld there) and of the shuffler (withheld before delivery). URLs or None."""

    def __init__(self, analyzer: str | None, shuffler: str | None) -> None:
        self._analyzer, self._shuffler = analyzer, shuffler

    def check(self, patience_s: float = 0.0) -> None:
        """Before anything is sent: raises CONFIG if another service answers, UNAVAILABLE if none does within ``patience_s``.

        A service that was started in the line before needs a few seconds.
        """
        deadline = time.monotonic() + patience_s
        for url, service in ((self._analyzer, "analyzer"), (self._shuffler, "shuffler")):
            if url is not None and (answer := _patiently(url, service, deadline)).get("service") != service:
                raise ShoalError(
                    Kind.CONFIG, f"--{service}-status: a {answer.get('service', 'stranger')} answers at {url}: check admin_listen"
                )

    def read(self, windows: list[tuple[str, int]]) -> list[Counted | None]:
        """For each (task id in hex, window): what was counted, or None while that is not decided or a service is down."""
        ended = self._ended()
        return [ended.get(one) for one in windows]

    def _ended(self) -> dict[tuple[str, int], Counted]:
        found: dict[tuple[str, int], Counted] = {}
        try:
            if self._shuffler is not None:
                for task in _fetch(self._shuffler, "shuffler")["tasks"]:
                    for row in task["shown"]:
                        if row.get("outcome") == "WITHHELD" and "reports" in row:
                            found[task["task_id"], row["window"]] = Counted(row["reports"], None)
            if self._analyzer is not None:
                for task in _fetch(self._analyzer, "analyzer")["tasks"]:
                    for row in task["ended"]:
                        found[task["task_id"], row["window"]] = Counted(row["n"], row["rejected"])
        except ShoalError:
            return found  # restarting, perhaps: asked again
        return found


def _patiently(url: str, service: str, deadline: float) -> dict[str, Any]:
    """The service's answer, asked again until ``deadline`` (monotonic seconds) while nobody listens."""
    while True:
        try:
            return _fetch(url, service)
        except ShoalError as error:
            if error.kind is not Kind.UNAVAILABLE or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _fetch(url: str, service: str) -> dict[str, Any]:
    if not url.startswith("http://"):
        raise ShoalError(Kind.CONFIG, f"--{service}-status: an address like http://127.0.0.1:7446")
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/status", timeout=20) as reply:  # noqa: S310 - http alone, checked above
            answer: dict[str, Any] = json.load(reply)
    except (urllib.error.URLError, OSError, ValueError):
        raise ShoalError(Kind.UNAVAILABLE, f"no {service} answers at {url}: check admin_listen, and that it runs") from None
    return answer
