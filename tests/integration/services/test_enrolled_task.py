"""A shuffled task for enrolled devices, end to end: real services and device processes, TLS, and
the release that comes out.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoal.analyzer.results.release import ENROLLED_ADMISSION, OPEN_ADMISSION
from shoal.cli.demo.workspace import Site, prepare
from shoal.crypto import keyfiles
from shoal.crypto.signing import SigningKey
from shoal.task import Task, WindowPlan
from tests.sizes import size
from tests.worlds.ports import free_port
from tests.worlds.services.load import HOUR, services_of, yes_no_task

DEVICES = size(60, 5_000)  # reports that close the window


@dataclass
class Fleet:
    """Two running services, the enrolment authority, and ``shoal`` commands on them."""

    site: Site
    task: Task
    root: SigningKey
    folder: Path

    async def shoal(self, *arguments: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "shoal.cli.main", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        assert b"Traceback" not in err, err
        return process.returncode, out.decode(), err.decode()

    async def enrol(self, name: str, root: str = "enrolment.key") -> Path:
        """A device's folder, made by the authority's command; ``agent.toml`` names certificate and
        key.
        """
        device = self.folder / name
        code, _, err = await self.shoal(
            "keys", "enrol", "--root", str(self.folder / root), "--out", str(device), "--days", "2"
        )
        assert code == 0, err
        self.configure(device, '[enrolment]\ncertificate = "device.cert"\nkey = "device.key"\n')
        return device

    def configure(self, device: Path, enrolment: str = "") -> None:
        device.mkdir(exist_ok=True)
        (device / "agent.toml").write_text(
            f'tasks = "{self.site.folder / "tasks"}"\noutbox = "outbox.db"\n[policy]\n'
            f'authorities = ["{self.site.authority.public.hex()}"]\nmax_epsilon0 = '
            "4.0\nmin_batch_floor = 10\n"
            f'[policy.purposes]\n"{self.task.purpose}" = "allowed"\n{enrolment}'
        )

    async def report(self, device: Path, value: str = "yes") -> tuple[int, Any, str]:
        code, out, err = await self.shoal(
            "agent",
            "report",
            "--config",
            str(device / "agent.toml"),
            "--json",
            self.task.name,
            value,
        )
        return code, json.loads(out) if out else None, err


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    root = SigningKey.generate()
    (tmp_path / "site").mkdir()
    site = prepare(tmp_path / "site", free_port)
    windows = WindowPlan(
        start_s=int(time.time()) - 60, length_s=HOUR, count=1, grace_s=0, skew_s=60
    )
    task = yes_no_task(site, "certified", windows, DEVICES, DEVICES, root)
    site.add(task)
    keyfiles.save_signing_key(tmp_path / "enrolment.key", root)
    keyfiles.save_signing_key(tmp_path / "other.key", SigningKey.generate())
    async with services_of(site):
        yield Fleet(site, task, root, tmp_path)


@pytest.mark.timeout(300)
async def test_enrolled_devices_count_once_and_strangers_not_at_all(fleet: Fleet) -> None:
    """One device in a process of its own, the others simulated; in between a stranger, a device of
    another authority, and the first device's second report, from a folder that was copied (an
    outbox that forgot).

    The stranger and the foreign device are stopped by their own agents; that a shuffler stops them
    too is in test_shuffler_enrolled. Planted: tags not looked at -> the copy is acknowledged,
    fails. Planted: simulated devices that share one identity -> fails.
    """
    first = await fleet.enrol("first")
    code, outcome, err = await fleet.report(first)
    assert (code, outcome["state"], outcome["kind"]) == (0, "acked", None), err
    stranger = fleet.folder / "stranger"
    fleet.configure(stranger)
    code, outcome, err = await fleet.report(stranger)
    assert (code, outcome) == (2, None)
    assert "admits enrolled devices alone" in err
    foreign = await fleet.enrol("foreign", "other.key")
    code, outcome, err = await fleet.report(foreign)
    assert (code, outcome) == (2, None)
    assert "enrolment key" in err
    copy = fleet.folder / "copy"
    fleet.configure(
        copy,
        f'[enrolment]\ncertificate = "{first / "device.cert"}"\nkey = "{first / "device.key"}"\n',
    )
    code, outcome, _ = await fleet.report(copy, "no")
    assert (code, outcome["state"], outcome["kind"]) == (1, "refused", "CONFLICT")
    assert "this device has been admitted in this window" in outcome["message"]
    urls = ("--analyzer-status", f"http://127.0.0.1:{fleet.site.analyzer_admin}", "--wait", "7200")
    load = (
        "load",
        "--task",
        str(fleet.site.folder / "tasks" / "certified.task"),
        "--json",
        "--processes",
        "1",
    )
    code, out, err = await fleet.shoal(*load, "--devices", str(DEVICES - 1))
    assert (code, out) == (2, "")
    assert "--enrolment" in err
    code, out, err = await fleet.shoal(
        *load,
        "--devices",
        str(DEVICES - 1),
        "--enrolment",
        str(fleet.folder / "enrolment.key"),
        *urls,
    )
    result = json.loads(out)
    assert (result["acked"], result["refused"], result["unknown"]) == (DEVICES - 1, {}, 0)
    # the first device's report and those of the load
    assert result["tasks"][0]["counted"] == DEVICES
    assert result["tasks"][0]["rejected"] == 0
    code, out, err = await fleet.shoal(
        "results", "list", "--data", str(fleet.site.analyzer_data), "--json"
    )
    assert code == 0, err
    check_release(json.loads(out))


def check_release(releases: list[dict[str, Any]]) -> None:
    """One, with every report in it. Half of the answers are yes, but for chance: six standard
    errors, false alarms below 1e-8.
    """
    (release,) = releases
    assert (release["name"], release["n"], release["rejected"], release["withheld"]) == (
        "certified",
        DEVICES,
        {},
        None,
    )
    yes = next(one for one in release["estimates"] if one["label"] == "yes")
    assert abs(yes["value"] - DEVICES / 2) < 6 * math.hypot(yes["stderr"], math.sqrt(DEVICES) / 2)
    assert ENROLLED_ADMISSION in release["privacy"]["assumptions"]
    assert OPEN_ADMISSION not in release["privacy"]["assumptions"]
