"""Logs that can't tell on anybody: named events with allow-listed fields.

A field must be on the list below, and its value an integer, a float, a bool, a public id, or a
short word of ours. There is no way to log an address, a key, a value, a report or the text of a
foreign exception; a field that isn't listed is a programming error and raises. Standard library
only: devices use it too.

In a program that uses Shoal as a library these are ordinary records of the loggers below "shoal",
whose message is ``event field=value`` and whose attribute ``shoal`` has the same as a dict: what
becomes of them is that program's to configure, and without a configuration nothing is written.
Commands and services call ``configure``: one JSON object per line on stderr.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Collection
from enum import Enum
from typing import Final

from shoal.errors import ShoalError
from shoal.ids import Digest, KeyId, TaskId

FIELDS: Final = frozenset(
    {
        "attempt", "batch", "cause", "chunks", "committed", "condition", "count", "error",
        "incident", "kind", "manifest", "method", "n", "name", "pid", "port", "reason", "rejected",
        "rows", "seconds", "service", "state", "status", "task", "tasks", "where", "window",
        "windows", "workers", "key_id", "epsilon_upper", "signal",
    }
)  # fmt: skip
_WORD = 200  # characters of a text field
_SAID = frozenset({"level", "service", "event"})  # by the record itself

# Python writes warnings of loggers without any handler to stderr: not into somebody else's program.
logging.getLogger("shoal").addHandler(logging.NullHandler())


class Log:
    """``log.info("window sealed", task=task_id, window=3, n=20190)``."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._logger = logging.getLogger(f"shoal.{service}")

    def debug(self, event: str, **fields: object) -> None:
        """For who looks for a fault. Raises ValueError for a field or value that may not be
        logged.
        """
        self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Of ordinary work. Raises ValueError for a field or value that may not be logged."""
        self._emit(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """For what wants somebody to look. Raises ValueError for a field or value that may not be
        logged.
        """
        self._emit(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """For bugs and for what an operator must mend."""
        self._emit(logging.ERROR, event, fields)

    def _emit(self, level: int, event: str, fields: dict[str, object]) -> None:
        unknown = fields.keys() - FIELDS
        if unknown:
            raise ValueError(f"log fields not on the allow-list: {sorted(unknown)}")
        if self._logger.isEnabledFor(level):
            line: dict[str, object] = {
                "level": logging.getLevelName(level).lower(),
                "service": self._service,
                "event": event,
            }
            line.update({name: _plain(value) for name, value in fields.items()})
            self._logger.log(level, "%s", _text(event, line), extra={"shoal": line})


def _text(event: str, line: dict[str, object]) -> str:
    """On one line, whatever a field holds."""
    told = (f"{name}={json.dumps(value)}" for name, value in line.items() if name not in _SAID)
    return " ".join((event, *told))


def _plain(value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            return str(value)  # JSON has no infinity
        case None | bool() | int() | float():
            return value
        case TaskId() | KeyId() | Digest():
            return value.short
        case Enum():
            return value.name
        case ShoalError():
            return f"{value.kind.name}: {value.message}"[:_WORD]
        case BaseException():
            # never a foreign exception's text: it may quote what a peer sent
            return type(value).__name__
        case str():
            return value[:_WORD]
        case _:
            raise ValueError(f"a {type(value).__name__} may not be logged")


def get_log(service: str) -> Log:
    """The log of a service, or of a part of one: its lines carry this name."""
    return Log(service)


class _Lines(logging.Formatter):
    """One JSON object per record, with the time in UTC: in whole seconds, which order events and
    date no report.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = getattr(record, "shoal", None)
        if line is None:
            return super().format(record)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        return json.dumps({"time": at, **line})


def configure(level: str = "info", without: Collection[str] = ()) -> None:
    """Send Shoal's logs to stderr, one JSON object per line, and keep libraries quiet. Once per
    process, by commands and services alone.

    ``without``: services whose lines are left out.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines("%(message)s"))
    unwanted = {f"shoal.{service}" for service in without}
    handler.addFilter(lambda record: record.name not in unwanted)
    root = logging.getLogger("shoal")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
    # Nobody makes a record below WARNING: a library's may hold its live objects (gRPC's errors
    # crash when freed elsewhere).
    logging.getLogger().setLevel(logging.WARNING)
    for library in ("grpc", "asyncio", "uvicorn"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
