"""A process that makes processes: started once, it forks a warm child for every scenario, so that a
crash costs milliseconds.

Reads one JSON object per line, {"role", "folder", "failpoints"}, runs the role in a child and
answers {"pid"} at once and {"status"} when the child has ended (negative: killed by that signal).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import pytest

from shoal import failpoints, log
from shoal.cli.services.noise import DrawnNoise
from shoal.clocks.clock import FakeClock
from shoal.crypto.trust import ServedTask
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.mqtt import link
from shoal.services.process import DataFolder, run_service
from shoal.services.settings import load_settings
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.reports.lifecycle import Lifecycle
from shoal.shuffler.reports.noise import AddedNoise
from shoal.shuffler.service import serve
from shoal.shuffler.stores.joined import rows_of
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport, WindowRecord
from shoal.shuffler.stores.threaded import ThreadedStore
from shoal.shuffler.tasks import ShufflerTasks

GROUP = 4  # reports per commit in "life"
# Pauses of up to 30 s are meant for a broker that flaps for hours; here one is killed every second,
# and each kill would wait them out.
EAGER = replace(LIMITS, mqtt_retry_first_s=0.05, mqtt_retry_most_s=0.1)
_RETRY = (Kind.OVERLOADED, Kind.INTERNAL)


class FileSink:
    """An analyzer's end that keeps each batch in a file, whole or not at all, and insists that a
    batch never changes.
    """

    def __init__(self, folder: Path, store: ThreadedStore) -> None:
        self._folder, self._store = folder, store

    async def attempt(self, served: ServedTask, window: WindowId, record: WindowRecord) -> bool:
        failpoints.hit("sink.attempt")
        data = await self._store.read_rows(window, 0, record.rows)
        path = self._folder / f"delivered-{window.window}"
        if path.exists():
            assert path.read_bytes() == data
        else:
            path.with_suffix(".new").write_bytes(data)
            path.with_suffix(".new").rename(path)
        failpoints.hit("sink.answer")
        return True


async def life(folder: Path) -> None:
    """The whole life of a few windows: submit with retries, noting what was acknowledged; close,
    seal, deliver, shred.

    ``reports.json`` holds {"task", "windows": [[hex, ...], ...], "row", "devices": {hex: hex},
    "start", "deadline"}: reports of one or several messages of "row" bytes, and who sends each.
    """
    plan = json.loads((folder / "reports.json").read_text())
    config = load_settings(ShufflerConfig, folder / "shuffler.toml")
    task_id, clock = TaskId.parse(plan["task"]), FakeClock(plan["start"])
    with DataFolder(config.data_dir) as data, (folder / "acked").open("a", buffering=1) as acked:
        store, noise = ThreadedStore(SqliteStore(data), commit_ms=0), AddedNoise(DrawnNoise())
        book = ShufflerTasks(
            store,
            clock,
            config.tasks_dir,
            config.keys_dir,
            config.authority_keys,
            bytes.fromhex(plan["signer"]),
            noise=noise,
        )
        lifecycle = Lifecycle(book, store, FileSink(folder, store), clock, SYSTEM, 0.0, noise=noise)
        for window, reports in enumerate(plan["windows"]):
            for at in range(0, len(reports), GROUP):
                group = [
                    AdmittedReport(
                        WindowId(task_id, window),
                        rows_of(raw(one), plan["row"]),
                        raw(plan["devices"][one]),
                    )
                    for one in reports[at : at + GROUP]
                ]
                await _submit(store, group, acked)
        clock.time = plan["deadline"]
        for _ in range(40):
            try:
                await lifecycle.tick()
            except OSError:
                continue  # an armed failure outside of any window's work: the next tick tries again
            finally:
                await lifecycle.settle()
                clock.advance(60)
            if all(record.state is WindowState.SHREDDED for record in store.records().values()):
                break
        await store.close()


raw = bytes.fromhex


async def _submit(store: ThreadedStore, reports: list[AdmittedReport], acked: TextIO) -> None:
    """As a device does: the same bytes again until they are accepted or refused for good."""
    for _ in range(5):
        try:
            outcomes = await store.append(reports)
        except ShoalError as error:
            assert error.kind in _RETRY  # noqa: PT017 - no test function
            continue
        for report, outcome in zip(reports, outcomes, strict=True):
            if outcome is None:
                acked.write(f"{report.window.window} {b''.join(report.sealed).hex()}\n")
        if not any(outcome in _RETRY for outcome in outcomes):
            return


def recorded(folder: Path) -> None:
    """``life``, and which points it passed how often, as ``passed.json``."""
    passed = failpoints.record(True)
    asyncio.run(life(folder))
    (folder / "passed.json").write_text(json.dumps(dict(passed)))


def service(folder: Path) -> None:
    settings = load_settings(ShufflerConfig, folder / "shuffler.toml")
    log.configure("warning")
    run_service(lambda stop: serve(settings, stop))


def eager_service(folder: Path) -> None:
    """``service`` with the pauses of ``EAGER`` before a broker is tried again."""
    pytest.MonkeyPatch().setattr(link, "LIMITS", EAGER)  # for good: the child ends with it
    service(folder)


ROLES: dict[str, Callable[[Path], None]] = {
    "life": lambda folder: asyncio.run(life(folder)),
    "record": recorded,
    "serve": service,
    "serve eagerly": eager_service,
}


def main(roles: Mapping[str, Callable[[Path], None]] = ROLES) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                sys.stdin.close()
                failpoints.arm(order["failpoints"])
                roles[order["role"]](Path(order["folder"]))
                code = 0
            except ShoalError as error:
                sys.stderr.write(f"{error.kind.name}: {error}\n")
                code = 3
            except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _say(pid=child)
        _, status = os.waitpid(child, 0)
        _say(status=os.waitstatus_to_exitcode(status))


def _say(**answer: int) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
