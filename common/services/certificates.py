"""Every TLS file of a service: looked at for replacements, and shown before it ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from shoal.rpc.renewal import Ending, TlsFiles, TrustFile
from shoal.services.conditions import Condition

_DAY_S = 86_400
SOON_DAYS = 30  # before its end a certificate is shown


class Certificates:
    """``own``: taken up anew when they are replaced; ``trusted``: read at the start alone."""

    def __init__(
        self,
        own: list[TlsFiles],
        trusted: list[TrustFile] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._own, self._trusted, self._now = own, trusted or [], now

    def look(self) -> bool:
        """Take up what was replaced; whether there was anything. Never raises."""
        return sum(files.look() for files in self._own) > 0

    def endings(self) -> list[Ending]:
        """Of all files, in the order of their roles."""
        looked_at = [ending for files in self._own for ending in files.endings()]
        read_once = [ending for files in self._trusted for ending in files.endings()]
        return sorted(looked_at + read_once)

    def days_left(self, ending: Ending) -> int:
        """Whole days until then, rounded down: -1 on the first day after it."""
        return math.floor((ending.not_after - self._now()) / _DAY_S)

    def status(self) -> list[dict[str, Any]]:
        """For /status: [{"file", "role", "days_left", "not_after"}]; not_after as
        "2026-01-31T12:00:00Z".
        """
        return [
            {
                "file": ending.file,
                "role": ending.role,
                "days_left": self.days_left(ending),
                "not_after": f"{datetime.fromtimestamp(ending.not_after, UTC):%Y-%m-%dT%H:%M:%SZ}",
            }
            for ending in self.endings()
        ]

    def conditions(self) -> Iterator[Condition]:
        """For ``Conditions.watch``. A certificate is shown 30 days before its end; from the end on
        it stops the service: nobody takes its word any more.
        """
        read_once = {ending.role for files in self._trusted for ending in files.endings()}
        for ending in self.endings():
            left = ending.not_after - self._now()
            if left < SOON_DAYS * _DAY_S:
                date = datetime.fromtimestamp(ending.not_after, UTC)
                yield Condition(
                    "certificate",
                    ending.role,
                    f"{ending.role} ({ending.file}) {'ended' if left < 0 else 'ends'} on "
                    f"{date:%Y-%m-%d}: {_mend(ending, ending.role in read_once)}",
                    stops=left < 0,
                )
        for files in self._own:
            if files.trouble:
                yield Condition(
                    "certificate",
                    f"{files.section} (new files)",
                    f"new files of {files.section} are not taken up: {files.trouble}; the old "
                    "ones go on",
                    stops=False,
                )


def _mend(ending: Ending, restart: bool) -> str:
    if ending.authority:
        what = "add the new authority's certificate to the file"
    else:
        what = "have a new one issued, put it and its key in the files' places"
    return f"{what}{' and restart' if restart else '; no restart is needed'}"
