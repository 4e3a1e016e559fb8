"""Read one source: whatever goes wrong is "no answer" and a short reason, never an exception and
never a wait without end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from shoal.clients.sources.command import run_command
from shoal.clients.sources.json_file import read_json_file, value_at
from shoal.clients.sources.own_thread import in_own_thread
from shoal.clients.sources.problem import SourceError
from shoal.clients.sources.spec import SourceSpec
from shoal.clients.sources.sqlite_query import query_sqlite
from shoal.domain import Value


@dataclass(frozen=True, slots=True)
class SourceReading:
    """What a source gave. ``value``: None for no answer. ``reason``: why there is none, or "";
    never anything that the source said.
    """

    value: Value = field(repr=False)
    reason: str = ""


async def read_source(spec: SourceSpec, most_s: float = math.inf) -> SourceReading:
    """The source's value now, within ``spec.timeout_s`` seconds, or ``most_s`` if that is less.
    Raises nothing but CancelledError.

    Late, missing and broken sources give None. A value that does not fit the task's domain is given
    as it is: the domain has a cell for it.
    """
    # no answer, whatever it was; its text may quote the value
    try:
        return SourceReading(await _read(spec, min(spec.timeout_s, most_s)))
    except SourceError as error:
        return SourceReading(None, str(error))
    except Exception as error:  # noqa: BLE001
        return SourceReading(None, f"failed ({type(error).__name__})")


async def _read(spec: SourceSpec, timeout_s: float) -> Value:
    if spec.kind == "command":
        return _text(await run_command(spec.argv, timeout_s), spec.pointer)
    return await in_own_thread(spec, timeout_s, lambda: _waiting(spec, timeout_s))


def _waiting(spec: SourceSpec, timeout_s: float) -> Value:
    """The kinds that wait in system calls."""
    match spec.kind:
        case "json" if spec.file is not None:
            return read_json_file(spec.file, spec.pointer)
        case "sqlite" if spec.file is not None:
            return query_sqlite(spec.file, spec.query, timeout_s)
        case "http":
            # 0.4 MB, http.client among it: only for who asks a service
            from shoal.clients.sources.loopback import fetch

            return _text(fetch(spec.url, timeout_s), spec.pointer)
    raise SourceError("no such kind of source")


def _text(data: bytes, pointer: str) -> Value:
    """What was said, stripped; with a pointer, what it names in it."""
    if pointer:
        return value_at(data, pointer)
    try:
        return data.decode().strip()
    except UnicodeDecodeError:
        raise SourceError("not a text in UTF-8") from None
