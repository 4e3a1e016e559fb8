"""Real services for load tests: tasks whose first window is over and whose second one is open, and
services with planted defects.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.cli.demo.processes import Process
from shoal.cli.demo.workspace import Site, prepare
from shoal.cli.keys.command import KeyRole, make_role_keys, sign_schedule
from shoal.cli.load.service_counts import Counted, Counter
from shoal.cli.task.command import sign_task
from shoal.clients.fleet.share import SimulatedTask
from shoal.clocks.timekeeper import Timekeeper
from shoal.codec import encode_task
from shoal.crypto.keyfiles import load_signing_key
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.domain import Domain, YesNo
from shoal.ids import TaskId
from shoal.mechanisms import create, design
from shoal.mqtt.settings import BrokerSettings
from shoal.task import Admission, MechanismSpec, Task, WindowPlan
from tests.worlds.mqtt.devices import table
from tests.worlds.ports import free_port

HOUR = 3_600
WINDOW = 1  # the open one
ROOT = Path(__file__).parents[3]
PLANTED = "tests.worlds.services.planted"


@dataclass(frozen=True, slots=True)
class LoadTask:
    """One task as ``shoal load`` and the simulator take it."""

    task: Task
    task_id: TaskId
    file: Path
    signed_task: bytes
    signed_schedule: bytes

    def simulated(self, devices: int) -> SimulatedTask:
        return SimulatedTask(
            self.signed_task,
            self.signed_schedule,
            tuple(index % 2 for index in range(devices)),
            WINDOW,
        )


def task_of(
    site: Site,
    name: str,
    domain: Domain,
    mechanism: MechanismSpec,
    windows: WindowPlan,
    least: int,
    most: int,
) -> Task:
    """A question to whoever reaches ``site``'s services; a window holds ``least`` to ``most``
    reports.
    """
    return Task(
        salt=os.urandom(16),
        name=name,
        purpose="load tests",
        question="Is this a test?",
        domain=domain,
        mechanism=mechanism,
        windows=windows,
        min_batch=least,
        max_batch=most,
        honest_fraction_ppm=900_000,
        delta=1e-8,
        target_epsilon=2.5,
        key_authority=site.authority.public,
        shuffler_key=site.shuffler,
        analyzer_key=site.analyzer,
        shuffler_address=site.shuffler_address,
        shuffler_ca=site.ca,
        retention_s=3 * HOUR,
        report_size=create(mechanism, domain).report_size,
    )


def yes_no_task(
    site: Site,
    name: str,
    windows: WindowPlan,
    least: int,
    most: int,
    root: SigningKey | None = None,
) -> Task:
    """A yes/no question. ``root``: for devices that it enrols alone."""
    task = task_of(site, name, YesNo(), design("binary_rr", YesNo(), 2.0), windows, least, most)
    return (
        task
        if root is None
        else replace(task, admission=Admission.ENROLLED, enrolment_key=root.public)
    )


@asynccontextmanager
async def services_of(
    site: Site, defects: dict[str, str] | None = None
) -> AsyncIterator[list[Killable]]:
    """[analyzer, shuffler], ready; stopped at the end. ``defects``: environment of
    ``planted.py``.
    """
    services: list[Killable] = [
        Killable("analyzer", site.analyzer_config, site.analyzer_admin),
        Killable("shuffler", site.shuffler_config, site.shuffler_admin),
    ]
    if defects is not None:
        services = [
            PlantedProcess(one.role, one.config, one.admin_port, defects) for one in services
        ]
    try:
        for one in services:
            one.start()
        for one in services:
            await one.ready()
        yield services
    finally:
        for one in reversed(services):
            one.stop()


def _believed(data_dir: Path) -> None:
    """A data folder of services that ran before: without a witness of their clock they tell late
    devices to try again, for ever.
    """
    data_dir.mkdir(mode=0o700)
    keeper = Timekeeper(data_dir, "nobody is asked")
    keeper.watch(lambda _: True)
    keeper.look()


@dataclass(frozen=True, slots=True)
class LoadSite:
    """Two configured services. ``add`` tasks before ``running``."""

    site: Site

    @classmethod
    def at(cls, folder: Path) -> LoadSite:
        folder.mkdir(exist_ok=True)
        made = cls(prepare(folder, free_port))
        for role in KeyRole:
            _believed(made.site.folder / role / "data")
        return made

    @property
    def authorities(self) -> frozenset[bytes]:
        return frozenset({self.site.authority.public})

    def add(self, name: str, most: int, root: SigningKey | None = None) -> LoadTask:
        """A yes/no question whose open window closes with ``most`` reports. ``root``: for devices
        that it enrols alone.
        """
        site = self.site
        windows = WindowPlan(
            start_s=int(time.time()) - HOUR - 120, length_s=HOUR, count=2, grace_s=0, skew_s=60
        )
        task = yes_no_task(site, name, windows, 2, most, root)
        signed_task = sign_task(task, site.authority)
        signers = {role: load_signing_key(site.folder / role / "signing.key") for role in KeyRole}
        keys, hops = (
            make_role_keys(
                SuiteId.X25519_AES128, 2, site.folder / role / "keys", role, signers[role]
            )
            for role in (KeyRole.analyzer, KeyRole.shuffler)
        )
        signed_schedule = sign_schedule(signed_task, keys, hops, site.authority)
        file = site.folder / "tasks" / f"{name}.task"
        file.write_bytes(signed_task)
        file.with_suffix(".keys").write_bytes(signed_schedule)
        return LoadTask(task, TaskId.of(encode_task(task)), file, signed_task, signed_schedule)

    def through(self, broker: BrokerSettings) -> None:
        """Let the shuffler take frames from this broker, too."""
        # JSON's strings and truth values are TOML's
        lines = (f"{key} = {json.dumps(value)}" for key, value in table(broker).items())
        with self.site.shuffler_config.open("a") as file:
            file.write("\n".join(("", "[mqtt]", *lines, "")))

    @property
    def urls(self) -> tuple[str, str]:
        """Admin addresses of analyzer and shuffler."""
        return (
            f"http://127.0.0.1:{self.site.analyzer_admin}",
            f"http://127.0.0.1:{self.site.shuffler_admin}",
        )

    def running(
        self, defects: dict[str, str] | None = None
    ) -> AbstractAsyncContextManager[list[Killable]]:
        """As ``services_of``."""
        return services_of(self.site, defects)


async def counts_of(site: LoadSite, task: LoadTask) -> Counted:
    """Once the open window is decided."""
    counter = Counter(*site.urls)
    while True:
        (found,) = await asyncio.to_thread(counter.read, [(task.task_id.hex, WINDOW)])
        if found is not None:
            return found
        await asyncio.sleep(0.1)


class Killable(Process):
    def kill(self) -> None:
        """SIGKILL, and wait: ``revive`` starts it again."""
        assert self._child is not None
        self._child.kill()
        self._child.wait()


class PlantedProcess(Killable):
    """A service whose code was made wrong on purpose."""

    def __init__(self, role: str, config: Path, admin_port: int, defects: dict[str, str]) -> None:
        super().__init__(role, config, admin_port)
        self._defects = defects

    def start(self) -> None:
        with (self.config.parent / f"{self.role}.log").open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", PLANTED, self.role, "serve", "--config", str(self.config)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self._defects},
            )
