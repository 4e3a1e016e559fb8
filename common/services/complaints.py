"""Failures that come again and again, told once: while a database or a disk is away, every call
meets it, and a line for each would bury what else is said.
"""

from __future__ import annotations

from collections.abc import Hashable

from shoal.errors import Kind, ShoalError
from shoal.log import Log


class Complaints:
    """``event``: what fails. Of each thing that fails a line when it begins, one when its kind of
    failure changes, and one when it is over, which says how often it failed. For one thread.
    """

    def __init__(self, log: Log, event: str) -> None:
        self._log, self._event = log, event
        self._now: dict[Hashable, tuple[Kind, int]] = {}

    def failed(self, key: Hashable, error: ShoalError, **fields: object) -> None:
        """``key``: what failed. ``fields``: see ``shoal.log``."""
        kind, count = self._now.get(key, (None, 0))
        self._now[key] = error.kind, count + 1
        if kind is not error.kind:
            self._log.error(self._event, error=error, **fields)

    def ended(self, key: Hashable, **fields: object) -> None:
        """It went well. Says so after failures alone."""
        if self._now:
            _, count = self._now.pop(key, (None, 0))
            if count:
                self._log.warning(f"over: {self._event}", count=count, **fields)
