"""Read one source: whatever goes wrong is "no answer" and a short reason, never an exception and
never a wait without end.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from shoal.clients.sources.command import run_command
from shoal.clients.sources.json_file import read_json_file, value_at
from shoal.clients.sources.problem import SourceError
from shoal.clients.sources.spec import SourceSpec
from shoal.clients.sources.sqlite_query import query_sqlite
from shoal.domain import Value

# sources whose last reading has not come back, however long ago its time was over
_hanging: set[SourceSpec] = set()


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
    return await _in_thread(spec, timeout_s, lambda: _waiting(spec, timeout_s))


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


async def _in_thread(spec: SourceSpec, timeout_s: float, step: Callable[[], Value]) -> Value:
    """Run a step in a thread that nobody waits for beyond the source's time: a dead network disk
    may hold it for ever.

    The threads that asyncio keeps for the outbox must not be spent on that, nor may the process
    have to wait for it at its end. A source that hangs is not asked again until it has come back,
    so that there is never more than one such thread for each.
    """
    if spec in _hanging:
        raise SourceError("the reading before has not come back")
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Value] = loop.create_future()

    def settle(value: Value, error: Exception | None) -> None:
        if result.done():
            return
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)

    def work() -> None:
        value: Value = None
        failure: Exception | None = None
        try:
            value = step()
        except Exception as error:  # noqa: BLE001 - raised again where somebody waits
            failure = error
        _hanging.discard(spec)
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits
            loop.call_soon_threadsafe(settle, value, failure)

    _hanging.add(spec)
    threading.Thread(target=work, name="source", daemon=True).start()
    try:
        async with asyncio.timeout(timeout_s):
            return await result
    except TimeoutError:
        raise SourceError("took too long") from None
