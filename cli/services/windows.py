"""``shoal shuffler window`` and ``shoal analyzer window``: an operator's word that a window is
lost.

The commands write one line beside the store; the service does what follows from it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli.output import emit_json, plain_table, say, say_table
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.crypto.trust import ServedTask
    from shoal.ids import TaskId
    from shoal.services.given_up import GivenUp, TaskWindow
    from shoal.services.settings import RoleSettings

_TaskArgument = Annotated[str, typer.Argument(help="The task's name, or how its id begins.")]
_WindowArgument = Annotated[int, typer.Argument(help="The window's number, from 0 on.")]
_Config = Annotated[Path, typer.Option("--config", help="The service's configuration file.")]
_Reason = Annotated[str, typer.Option("--reason", help="Why, in one line: it is kept for ever.")]
_Yes = Annotated[bool, typer.Option("--yes", help="Ask nothing: for programs.")]
_Json = Annotated[bool, typer.Option("--json", help="For programs. Times are Unix seconds.")]


@dataclass(frozen=True, slots=True)
class WindowNow:
    """How a window is now. word: of its state. reports: how many are lost with it, where that is
    known. lost: what is lost, in a sentence. over: why there is nothing to give up, or "".
    """

    word: str
    lost: str = ""
    reports: int | None = None
    over: str = ""


# words for a window of which the store has no record
_NOT_BEGUN, _NOTHING_CAME = "not begun", "nothing came"
LookAtWindow = Callable[["RoleSettings", "ServedTask", int], WindowNow]
Elsewhere = Callable[["RoleSettings"], list[tuple["GivenUp", str]]]


def _nowhere_else(_config: RoleSettings) -> list[tuple[GivenUp, str]]:
    return []


def windows(
    service: str,
    load: Callable[[Path], RoleSettings],
    look: LookAtWindow,
    elsewhere: Elsewhere = _nowhere_else,
) -> typer.Typer:
    """The group for a service. ``look``: how a window of it stands. ``elsewhere``: what all its
    replicas say was given up, and at which of them.
    """
    part = typer.Typer(
        no_args_is_help=True, help="Give a window up that can't be delivered, opened or released."
    )
    line = f"shoal {service} window"

    @part.command(
        "abandon",
        help=_HELP + f"\n\nExample: {line} abandon visits 3 --config "
        f'{service}.toml --reason "its key is lost"',
    )
    def abandon(
        task: _TaskArgument,
        window: _WindowArgument,
        config: _Config,
        reason: _Reason,
        yes: _Yes = False,
        as_json: _Json = False,
    ) -> None:
        asked = (task, window, reason)
        _give_up(load(config), look, elsewhere, asked, yes=yes, as_json=as_json)

    @part.command(
        "skip",
        help=_SKIP + f"\n\nExample: {line} skip visits 7 --config "
        f'{service}.toml --reason "its key was stolen"',
    )
    def skip(
        task: _TaskArgument,
        window: _WindowArgument,
        config: _Config,
        reason: _Reason,
        yes: _Yes = False,
        as_json: _Json = False,
    ) -> None:
        asked = (task, window, reason)
        _give_up(load(config), look, elsewhere, asked, yes=yes, as_json=as_json, early=True)

    @part.command(
        "list",
        help="Windows that were given up, at any replica: who, when, why, and how they stand "
        f"now.\n\nExample: {line} list --config {service}.toml --json",
    )
    def listed(config: _Config, as_json: _Json = False) -> None:
        _list(load(config), look, elsewhere, as_json=as_json)

    return part


_HELP = (
    "Give a window up, for good: what is left of it here is deleted, and nothing of it is ever "
    "counted. Asks first.\n\nNo charge is undone: what devices and releases spent on it stays "
    "spent. The word is kept with who, when and why. A service that runs acts on it within a "
    "minute, a stopped one at its next start. The other service's operator decides there."
)
_SKIP = (
    "Give a window up that has not begun: devices are told not to answer it, and it never opens. "
    "Otherwise as abandon; a window that has begun is refused."
)


def _give_up(
    config: RoleSettings,
    look: LookAtWindow,
    elsewhere: Elsewhere,
    asked: tuple[str, int, str],
    *,
    yes: bool,
    as_json: bool,
    early: bool = False,
) -> None:
    from shoal.services import given_up

    name, window, reason = asked[0], asked[1], given_up.check_reason(asked[2])
    served = _task(config, name)
    _check_window(served, window, early)
    known, where = _line_of(config, elsewhere, (served.task_id, window))
    if known is None:
        standing = _standing(config, look, served, window, early=early)
        if not yes:
            _confirm(served, window, standing)
        entry = given_up.GivenUp(
            served.task_id.hex,
            window,
            int(time.time()),
            given_up.whoever_asks(),
            reason,
            standing.word,
            standing.reports,
        )

        def check() -> None:  # somebody may have typed for long
            if _standing(config, look, served, window, early=early) != standing:
                raise ShoalError(
                    Kind.CONFLICT,
                    f"window {window} of task {served.task.name} is not {standing.word} any more, "
                    "or has other reports: nothing was given up; run this again",
                )

        known = given_up.add(config.data_dir, entry, check)
    else:
        entry = known
    if as_json:
        emit_json(
            {**(known or entry).json(), "name": served.task.name, "before": known is not None}
        )
    elif known is not None:
        there = "" if where is None else f" at replica {where}"
        say(f"given up before: {_utc(known.at)}, by {known.by}{there}: {known.reason}")
    else:
        say("given up: the service acts on it within a minute if it runs, else at its next start")


def _line_of(
    config: RoleSettings, elsewhere: Elsewhere, window: TaskWindow
) -> tuple[GivenUp | None, str | None]:
    """Its line, and at which replica it was said; None: here, or nowhere."""
    from shoal.services import given_up

    for line in given_up.read(config.data_dir):
        if line.key == window:
            return line, None
    for line, replica in elsewhere(config):
        if line.key == window:
            return line, replica
    return None, None


def _lines(
    config: RoleSettings, elsewhere: Elsewhere
) -> dict[TaskWindow, tuple[GivenUp, str | None]]:
    """All lines, each with the replica where it was said; None: here. Of a database that can't be
    asked that is said, and what is known here is shown.
    """
    from shoal.services import given_up

    here = {line.key: (line, None) for line in given_up.read(config.data_dir)}
    there: dict[TaskWindow, tuple[GivenUp, str | None]] = {}
    try:
        there = {line.key: (line, replica) for line, replica in elsewhere(config)}
    except ShoalError as error:
        if error.kind is not Kind.UNAVAILABLE:
            raise
        sys.stderr.write(f"what other replicas gave up is not known: {error}\n")
    return {**there, **here}


def _task(config: RoleSettings, text: str) -> ServedTask:
    from shoal.crypto.task_folder import load_task_folder

    served = load_task_folder(config.tasks_dir, config.authority_keys).served.values()
    found = [one for one in served if one.task.name == text]
    found = found or [one for one in served if text and one.task_id.hex.startswith(text.lower())]
    if len(found) == 1:
        return found[0]
    names = ", ".join(sorted(f"{one.task.name} ({one.task_id.short})" for one in served))
    what = "several tasks have that name" if found else "no such task"
    raise ShoalError(
        Kind.CONFIG,
        f"{text}: {what} in {config.tasks_dir}: give one of: {names or 'none is there'}",
    )


def _check_window(served: ServedTask, window: int, early: bool) -> None:
    plan = served.task.windows
    if not 0 <= window < plan.count:
        raise ShoalError(
            Kind.CONFIG, f"task {served.task.name} has windows 0 to {plan.count - 1}: give one"
        )
    if early and time.time() >= plan.start_of(window) - plan.skew_s:
        raise _has_begun(served, window)


def _has_begun(served: ServedTask, window: int) -> ShoalError:
    return ShoalError(
        Kind.CONFLICT,
        f"window {window} of task {served.task.name} has begun: it can't be skipped any more; "
        "abandon gives it up",
    )


def _standing(
    config: RoleSettings, look: LookAtWindow, served: ServedTask, window: int, *, early: bool
) -> WindowNow:
    """How a window that may be given up stands. Raises CONFLICT.

    A record in the store outweighs this machine's clock: one that is behind must not end a window
    that devices answer.
    """
    _check_window(served, window, early)
    standing = look(config, served, window)
    if standing.over:
        raise ShoalError(
            Kind.CONFLICT, f"window {window} of task {served.task.name}: {standing.over}"
        )
    if early and standing.word not in (_NOT_BEGUN, _NOTHING_CAME):
        raise _has_begun(served, window)
    return standing


def _confirm(served: ServedTask, window: int, standing: WindowNow) -> None:
    """On stderr: what is lost, and a word that must be typed. Raises REFUSED."""
    task, word = served.task, f"{served.task.name}/{window}"
    start, end = task.windows.start_of(window), task.windows.end_of(window)
    for text in (
        f"window {window} of task {task.name} ({served.task_id.short}), {_utc(start)} to "
        f"{_utc(end)}: {standing.word}",
        f"  lost: {standing.lost}",
        "  stays: what its devices spent of their budgets, and what releases were charged",
        "  this can't be undone",
        f"type {word} to give it up: ",
    ):
        sys.stderr.write(text + ("" if text.endswith(": ") else "\n"))
    sys.stderr.flush()
    if sys.stdin.readline().strip() != word:
        raise ShoalError(Kind.REFUSED, f"{word} was not typed: nothing was given up")


def _list(config: RoleSettings, look: LookAtWindow, elsewhere: Elsewhere, *, as_json: bool) -> None:
    from shoal.crypto.task_folder import load_task_folder

    found = sorted(_lines(config, elsewhere).values(), key=lambda one: one[0].at)
    served = load_task_folder(config.tasks_dir, config.authority_keys).served
    standing = _now(config, look, served, [line for line, _ in found])
    rows = [(*one, *told) for one, told in zip(found, standing, strict=True)]
    if as_json:
        emit_json(
            [
                {**line.json(), "replica": where, "name": name, "now": now}
                for line, where, name, now in rows
            ]
        )
        return
    if not rows:
        say("no window was given up here")
        return
    table = plain_table("why", "task", "window", "when", "by", "was", "reports", "now")
    for line, where, name, now in rows:
        lost = "-" if line.reports is None else f"{line.reports:,}"
        shown, by = name or line.task_id[:8], line.by + (f" at {where}" if where else "")
        table.add_row(
            line.reason, shown, str(line.window), _utc(line.at), by, line.was, lost, now or "-"
        )
    say_table(table)


def _now(
    config: RoleSettings,
    look: LookAtWindow,
    served: Mapping[TaskId, ServedTask],
    lines: Sequence[GivenUp],
) -> Iterator[tuple[str | None, str | None]]:
    """Of each line the task's name and the window's state; None for a task whose files are gone,
    and for states while a database can't be asked, which is said once.
    """
    away = False
    for line in lines:
        one, word = served.get(line.key[0]), None
        if one is not None and not away:
            try:
                word = look(config, one, line.window).word
            except ShoalError as error:
                if error.kind is not Kind.UNAVAILABLE:
                    raise
                away = True
                sys.stderr.write(f"how windows stand now is not known: {error}\n")
        yield None if one is None else one.task.name, word


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


# --- how a window stands --------------------------------------------------------------------------


def at_shuffler(config: RoleSettings, served: ServedTask, window: int) -> WindowNow:
    """As the configured store says, beside services that run: of a database what any replica did.
    Raises CONFIG, KEY_FILE; where it can't be asked UNAVAILABLE, OVERLOADED.
    """
    from shoal.shuffler.config import ShufflerConfig
    from shoal.shuffler.core import WindowId, WindowState
    from shoal.shuffler.stores.configured import read_window

    assert isinstance(config, ShufflerConfig)  # noqa: S101 - ``shuffler_windows`` loads one
    task, now = served.task, time.time()
    begins, ends = (
        task.windows.start_of(window) - task.windows.skew_s,
        task.windows.deadline_of(window),
    )
    record = asyncio.run(read_window(config, WindowId(served.task_id, window)))
    if record is None:
        if now < begins:
            return WindowNow(_NOT_BEGUN, "nothing: no device has answered it")
        if task.pairwise is None:
            return WindowNow("open", "all that may come: it has no report so far")
        if now < ends:
            over = "its rounds are under way: give it up when it is over, or let it end"
            return WindowNow("under way", over=over)
        return WindowNow(
            "to be finished",
            "vectors that are here, and what the analyzer was not "
            "asked for; sums that it has it releases when retention ends",
        )
    state = record.state
    if state is WindowState.OPEN:
        return WindowNow("open", "all its reports; how many there are is told when it is over")
    if state is WindowState.CLOSING and not record.reports:  # a store may count when it seals
        return WindowNow("closing", "all its reports; how many there are is told when it is sealed")
    if state in (WindowState.CLOSING, WindowState.SEALED, WindowState.DELIVERING):
        late = (
            ""
            if state is not WindowState.DELIVERING
            else "; the analyzer may have all of them "
            "and release them: its operator gives the window up there"
        )
        return WindowNow(state.name.lower(), f"{record.reports:,} reports{late}", record.reports)
    outcome = (record.outcome or state).name.lower()
    return WindowNow(outcome, over=f"it is {outcome} already: there is nothing to give up")


def at_analyzer(config: RoleSettings, served: ServedTask, window: int) -> WindowNow:
    """As analyzer.db says, beside a running service. Raises NOT_FOUND, CONFIG, UNAVAILABLE."""
    from contextlib import closing

    from shoal.analyzer.core import BatchState
    from shoal.analyzer.store import FILE_NAME, AnalyzerStore

    if served.task.pairwise is not None:
        return WindowNow(
            "rounds",
            over="sums can't be given up here: they are released when the "
            "shuffler ends the window, or at the end of its retention",
        )
    with closing(AnalyzerStore(config.data_dir / FILE_NAME, read_only=True)) as store:
        batch = store.batch_of(served.task_id, window)
        published = store.released(served.task_id, window)
    if published:
        return WindowNow(
            "released or withheld",
            over="it is released or withheld already: there is nothing to give up",
        )
    key = "its private key, and with it all that was sealed for it"
    if batch is None:
        return WindowNow(_NOTHING_CAME, f"whatever may come, and {key}")
    reports = batch.manifest.counted(served.task)
    if batch.state is BatchState.RECEIVING:
        return WindowNow("receiving", f"a batch of {reports:,} reports, and {key}", reports)
    return WindowNow(
        "processing",
        f"{reports:,} reports, and {key}; the window ends withheld, and "
        "is charged as if it had been opened",
        reports,
    )


def shuffler_windows() -> typer.Typer:
    """``shoal shuffler window``."""

    def load(path: Path) -> Any:
        from shoal.services.settings import load_settings
        from shoal.shuffler.config import ShufflerConfig

        return load_settings(ShufflerConfig, path)

    return windows("shuffler", load, at_shuffler, _at_any_replica)


def _at_any_replica(config: RoleSettings) -> list[tuple[GivenUp, str]]:
    from shoal.shuffler.config import ShufflerConfig
    from shoal.shuffler.stores.configured import read_given_up

    assert isinstance(config, ShufflerConfig)  # noqa: S101 - ``shuffler_windows`` loads one
    return asyncio.run(read_given_up(config))


def analyzer_windows() -> typer.Typer:
    """``shoal analyzer window``."""

    def load(path: Path) -> Any:
        from shoal.analyzer.config import AnalyzerConfig
        from shoal.services.settings import load_settings

        return load_settings(AnalyzerConfig, path)

    return windows("analyzer", load, at_analyzer)
