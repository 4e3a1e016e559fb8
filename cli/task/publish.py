"""``shoal task publish``: hand a signed task and its key schedule to devices, through a broker or
as files in a folder.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from shoal import codec
from shoal.accounting.lint.servable import check_servable
from shoal.cli.keys.checks import check_apart, check_held
from shoal.cli.output import emit_json, public_key, read_bytes, say, stderr
from shoal.cli.task import publish_options
from shoal.clocks.readings import Readings, SystemReadings
from shoal.codec import TaskBundle
from shoal.crypto.keyfiles import load_private_pem
from shoal.crypto.trust import (
    SCHEDULE_SUFFIX,
    TASK_SUFFIX,
    TrustedSchedule,
    TrustedTask,
    trust_schedule,
    trust_task,
)
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS, call_s
from shoal.mqtt.link import Link
from shoal.mqtt.settings import BrokerSettings
from shoal.mqtt.topics import task_topic
from shoal.task import split_address

_LEAST_EVERY_S = 1.0

HELP = """Publish a signed task with its key schedule, or withdraw it. Both are verified first, and
that an analyzer could serve them.

Where the services' private keys are at hand, name their folders with --analyzer-keys and
--shuffler-keys.

A key schedule covers every window of its task, so it can't run out before the task does: what
has to be refreshed in time is the task, and in its last window this command says so.

Example: shoal task publish tasks/visits.task --mqtt broker.example.org:8883 --ca ca.pem
--username authority --password-file pw

As files: shoal task publish tasks/visits.task --dir /srv/tasks

Shuffler and analyzer look at their tasks folders every reload_s seconds (default 10), and at
once on SIGHUP.
"""


@dataclass(frozen=True, slots=True)
class PublishedTask:
    """What is published: both files, verified. ``name``: of the files, without suffix. ``keys``:
    none of what is withdrawn.
    """

    trusted: TrustedTask
    bundle: TaskBundle
    name: str
    keys: TrustedSchedule | None = None

    @property
    def ends_s(self) -> int:
        """Unix seconds at which the last window is over."""
        plan = self.trusted.task.windows
        return plan.end_of(plan.count - 1)

    def warning(self, now: float) -> str | None:
        """In the last window: a task can't be made longer."""
        plan = self.trusted.task.windows
        if now < plan.start_of(plan.count - 1):
            return None
        return (
            f"the last window of {self.trusted.task.name} ends at {_utc(self.ends_s)}: sign and "
            "publish the task that follows it before"
        )


def publish(
    file: publish_options.FileArgument,
    keys: publish_options.KeysOption = None,
    mqtt: publish_options.MqttOption = "",
    ca: publish_options.CaOption = None,
    username: publish_options.UsernameOption = "",
    password_file: publish_options.PasswordFileOption = None,
    protocol: publish_options.ProtocolOption = "5",
    insecure: publish_options.InsecureOption = False,
    folder: publish_options.FolderOption = None,
    withdraw: publish_options.WithdrawOption = False,
    every: publish_options.EveryOption = None,
    trust: publish_options.TrustOption = "",
    analyzer_keys: publish_options.AnalyzerKeysOption = None,
    shuffler_keys: publish_options.ShufflerKeysOption = None,
    as_json: publish_options.JsonOption = False,
) -> None:
    """See ``HELP``."""
    if not mqtt and folder is None:
        raise ShoalError(
            Kind.CONFIG, "say where to publish: --mqtt HOST:PORT, --dir FOLDER, or both"
        )
    if every is not None and (withdraw or not every >= _LEAST_EVERY_S):
        raise ShoalError(
            Kind.CONFIG, f"--every is {_LEAST_EVERY_S:g} second or more, and not for --withdraw"
        )
    signed = _verified(file, keys or file.with_suffix(SCHEDULE_SUFFIX), trust, withdraw=withdraw)
    if not withdraw:
        _check_keys(signed, folder, analyzer_keys, shuffler_keys)
    settings = (
        _settings(mqtt, ca, username, password_file, protocol, insecure=insecure) if mqtt else None
    )
    if folder is not None:
        _remove(folder, signed) if withdraw else _put(folder, signed)
    if settings is not None and every is None:
        try:
            asyncio.run(_once(settings, signed, withdraw=withdraw))
        except ShoalError as error:
            raise ShoalError(error.kind, _as_option(error.message)) from None
    if as_json:
        emit_json(_shown(signed, mqtt, folder, withdraw=withdraw))
    else:
        where = " and ".join([*([mqtt] if mqtt else []), *([str(folder)] if folder else [])])
        done = (
            "withdrawn from"
            if withdraw
            else "published to"
            if every is None
            else f"published every {every:g} s to"
        )
        say(f"task {signed.trusted.task.name} ({signed.trusted.task_id.hex}) {done} {where}")
    if not withdraw and (warning := signed.warning(time.time())):
        stderr.print(f"warning: {warning}", markup=False, soft_wrap=True)
    if every is not None:
        asyncio.run(_again(settings, folder, signed, every))


def _verified(file: Path, keys: Path, trust: str, *, withdraw: bool) -> PublishedTask:
    """Raises what ``trust_task`` and ``trust_schedule`` raise, naming the file, and CONFIG for a
    task that is over.
    """
    if file.suffix != TASK_SUFFIX:
        raise ShoalError(
            Kind.CONFIG,
            f"{file.name}: a signed task is named NAME{TASK_SUFFIX}: `shoal task sign` makes it",
        )
    signed_task = read_bytes(file)
    try:
        authority = (
            public_key(trust, "--trust")
            if trust
            else codec.decode_signed_task(signed_task).authority
        )
        trusted = trust_task(signed_task, {authority})
    except ShoalError as error:
        raise ShoalError(error.kind, f"{file.name}: {error}") from None
    if withdraw:
        return PublishedTask(trusted, TaskBundle(signed_task, b""), file.stem)
    signed_schedule = read_bytes(keys)
    try:
        schedule = trust_schedule(signed_schedule, trusted)
    except ShoalError as error:
        raise ShoalError(error.kind, f"{keys.name}: {error}") from None
    check_servable(trusted.task)
    signed = PublishedTask(trusted, TaskBundle(signed_task, signed_schedule), file.stem, schedule)
    if time.time() >= signed.ends_s:
        raise ShoalError(
            Kind.CONFIG,
            f"{file.name}: its last window ended at {_utc(signed.ends_s)}: there is nothing left "
            "to ask",
        )
    return signed


def _check_keys(
    signed: PublishedTask, folder: Path | None, analyzer: Path | None, shuffler: Path | None
) -> None:
    """Raises CONFIG, KEY_FILE for keys that another task there uses, or that are not where they
    should be, of windows to come.
    """
    plan, now = signed.trusted.task.windows, time.time()
    if signed.keys is None:
        return
    if folder is not None:
        check_apart(signed.keys.schedule, folder)
    coming = [window for window in range(plan.count) if now < plan.deadline_of(window)]
    if analyzer is not None:
        check_held([signed.keys.analyzer_keys[window] for window in coming], analyzer, "analyzer")
    if shuffler is not None:
        check_held([signed.keys.hop_keys[window] for window in coming], shuffler, "shuffler")


def _settings(
    broker: str,
    ca: Path | None,
    username: str,
    password_file: Path | None,
    protocol: str,
    *,
    insecure: bool,
) -> BrokerSettings:
    address = split_address(broker)
    if address is None or address[1] == 0:
        raise ShoalError(Kind.CONFIG, "--mqtt is HOST:PORT, for example broker.example.org:8883")
    if protocol not in {"5", "3.1.1"}:
        raise ShoalError(Kind.CONFIG, "--protocol is 5 or 3.1.1")
    spoken: Literal["5", "3.1.1"] = "5" if protocol == "5" else "3.1.1"
    password = (
        load_private_pem(password_file).decode("utf-8", "replace").split("\n")[0].rstrip("\r")
        if password_file
        else ""
    )
    return BrokerSettings(
        address[0].strip("[]"),
        address[1],
        read_bytes(ca, 1 << 20) if ca else None,
        username=username,
        password=password,
        protocol=spoken,
        insecure=insecure,
    )


def _as_option(message: str) -> str:
    """What a link says of a key of a configuration file, for this command line."""
    return message.replace(" insecure", " --insecure")


async def _once(settings: BrokerSettings, signed: PublishedTask, *, withdraw: bool) -> None:
    async with Link(settings) as link:
        await link.connected(LIMITS.send_deadline_s)
        await _send(link, signed, withdraw=withdraw)


async def _send(link: Link, signed: PublishedTask, *, withdraw: bool = False) -> None:
    """Retained, QoS 1. An empty payload is MQTT's way to clear a retained message."""
    payload = b"" if withdraw else codec.encode_bundle(signed.bundle)
    await link.publish(
        task_topic(signed.trusted.task_id),
        payload,
        qos=1,
        retain=True,
        timeout_s=call_s(LIMITS.send_deadline_s, len(payload)),
    )


async def _again(
    settings: BrokerSettings | None, folder: Path | None, signed: PublishedTask, every: float
) -> None:
    """Until SIGINT, SIGTERM or the task's end. A broker that is away is one line, and then waited
    for.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    link = Link(settings) if settings is not None else None
    if link is None:
        return await _rounds(None, folder, signed, every, stop)
    async with link:
        return await _rounds(link, folder, signed, every, stop)


async def _rounds(
    link: Link | None,
    folder: Path | None,
    signed: PublishedTask,
    every: float,
    stop: asyncio.Event,
    readings: Readings | None = None,
) -> None:
    readings = readings or SystemReadings()
    began, trouble, warned = readings.read(), None, signed.warning(time.time())

    def over() -> bool:
        """By the wall clock and by the time that went by: a clock that jumps, or was wrong at the
        start, ends it late.
        """
        now = readings.read()
        return now.wall >= signed.ends_s and now.steady - began.steady >= signed.ends_s - began.wall

    while not stop.is_set() and not over():
        now = None
        try:
            if folder is not None:
                _put(folder, signed)
            if link is not None:
                await _send(link, signed)
        except ShoalError as error:
            now = _as_option(error.message)
        if now != trouble:
            stderr.print(
                f"not published: {now}" if now else "published again", markup=False, soft_wrap=True
            )
            trouble = now
        if (warning := signed.warning(time.time())) != warned:
            stderr.print(f"warning: {warning}", markup=False, soft_wrap=True)
            warned = warning
        try:
            await asyncio.wait_for(stop.wait(), every)
        except TimeoutError:
            continue
    if not stop.is_set():
        say(f"the last window of {signed.trusted.task.name} is over: no longer published")


# --- a folder of files ----------------------------------------------------------------------------


def _put(folder: Path, signed: PublishedTask) -> None:
    """NAME.keys, then NAME.task. Raises CONFIG for another task under that name, or this one under
    another; CONFLICT for other keys.
    """
    task, keys = folder / f"{signed.name}{TASK_SUFFIX}", folder / f"{signed.name}{SCHEDULE_SUFFIX}"
    if not folder.is_dir():
        raise ShoalError(Kind.CONFIG, f"{folder} is no folder: make it first")
    for path in sorted(folder.glob(f"*{TASK_SUFFIX}")):
        same = _id_of(path) == signed.trusted.task_id
        if same != (path == task):
            what = (
                "holds this task already: withdraw that one"
                if same
                else "holds another task: move it away, or rename this one"
            )
            raise ShoalError(Kind.CONFIG, f"{path} {what}")
    if keys.is_file() and task.is_file():
        there = codec.decode_signed_schedule(read_bytes(keys)).data
        if there != codec.decode_signed_schedule(signed.bundle.signed_schedule).data:
            raise ShoalError(
                Kind.CONFLICT,
                f"{keys} is another key schedule: a task has one for ever, and devices refuse a "
                "task with two",
            )
    _replace(keys, signed.bundle.signed_schedule)
    _replace(task, signed.bundle.signed_task)


def _remove(folder: Path, signed: PublishedTask) -> None:
    """Raises NOT_FOUND if the folder does not hold the task under that name."""
    task = folder / f"{signed.name}{TASK_SUFFIX}"
    if not task.is_file() or _id_of(task) != signed.trusted.task_id:
        raise ShoalError(
            Kind.NOT_FOUND, f"{task} is not this task: nothing was withdrawn from the folder"
        )
    for path in (task, task.with_suffix(SCHEDULE_SUFFIX)):
        path.unlink(missing_ok=True)


def _id_of(path: Path) -> TaskId | None:
    try:
        return TaskId.of(codec.decode_signed_task(read_bytes(path)).data)
    except ShoalError:
        return None


def _replace(path: Path, data: bytes) -> None:
    """Atomic; readable by everybody: nothing in it is secret."""
    staged = path.with_name(f".{path.name}.new")
    try:
        with staged.open("wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot write {path}: {error.strerror or 'unwritable'}"
        ) from None


def _shown(
    signed: PublishedTask, mqtt: str, folder: Path | None, *, withdraw: bool
) -> dict[str, Any]:
    warning = None if withdraw else signed.warning(time.time())
    return {
        "task_id": signed.trusted.task_id.hex,
        "name": signed.trusted.task.name,
        "authority": signed.trusted.authority.hex(),
        "withdrawn": withdraw,
        "mqtt": mqtt or None,
        "topic": task_topic(signed.trusted.task_id) if mqtt else None,
        "dir": str(folder) if folder else None,
        "last_window_ends": datetime.fromtimestamp(signed.ends_s, UTC).isoformat(),
        "warnings": [warning] if warning else [],
    }


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
