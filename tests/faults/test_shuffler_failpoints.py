"""Every durable step of the shuffler, made to die or to fail: nothing acknowledged is lost, nothing
counts twice, nothing is left.

A scenario lives through three windows (released, withheld, without a report). For every point that
it passes and every way to fail, it is broken there, in a process of its own, run again without
failures, and the outcome compared with what was acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.crypto.envelope import NONCE_SIZE, open_report, report_info
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.suites import SuiteId
from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.shuffler import core
from shoal.shuffler.stores.joined import rows_of
from shoal.task import MechanismSpec
from tests.faults.conftest import ROOT, Forge
from tests.faults.shuffler_child import life
from tests.sizes import FULL
from tests.worlds.services.shuffler import GRACE, LENGTH, START, World

FAILURES = ("eio", "enospc")
# exit statuses of a child; REFUSED: it did not start, with a typed error
SIGKILL, FINE, REFUSED = -9, 0, 3
REACH = 27  # of noise
_PLAN = (6, 2, 0)  # distinct reports per window; min_batch is 3


def prepare(folder: Path, *, kind: str = "single") -> dict[str, list[str]]:
    """A world with one task of three windows, its reports written down: the first of each window
    twice, and another one of its device. ``kind``: "several", they have one message, two, or three;
    "noise", the shuffler adds some.
    """
    world, several = World(folder), kind == "several"
    most: dict[str, Any] = {"messages": 3, "fewest_messages": 1} if several else {}
    if kind == "noise":
        most["mechanism"] = MechanismSpec.of("shuffler_noise", k=2, q=2605029350, reach=REACH)
    published = world.publish(count=3, max_batch=10, **most)
    size = core.row_size(published.task)

    def report(number: int) -> str:
        return secrets.token_hex(size * (1 + number % 3 if several else 1))

    windows = [[report(number) for number in range(count)] for count in _PLAN]
    owners = {report: secrets.token_hex(32) for reports in windows for report in reports}
    doubles = [[report(1)] * bool(reports) for reports in windows]
    owners |= {
        double[0]: owners[reports[0]]
        for double, reports in zip(doubles, windows, strict=True)
        if double
    }
    plan = {
        "task": published.task_id.hex,
        "signer": world.shuffler.public.hex(),
        "windows": [
            [*reports, *reports[:1], *double]
            for reports, double in zip(windows, doubles, strict=True)
        ],
        "row": size,
        "key": published.analyzer_keys[0].to_raw_secret().hex() if kind == "noise" else "",
        "devices": owners,
        "start": START + 2 * LENGTH,
        "deadline": START + 3 * LENGTH + GRACE,
    }
    (folder / "reports.json").write_text(json.dumps(plan))
    world.write_config()
    return {str(number): [*reports, *doubles[number]] for number, reports in enumerate(windows)}


def check(folder: Path, sent: dict[str, list[str]]) -> None:
    """The law: acknowledged => exactly once; sent => at most once, and whole; one per device; too
    few => never; and then nothing is left.
    """
    acked = (
        {tuple(line.split()) for line in (folder / "acked").read_text().splitlines()}
        if (folder / "acked").exists()
        else set()
    )
    data = (folder / "delivered-0").read_bytes() if (folder / "delivered-0").exists() else b""
    plan = json.loads((folder / "reports.json").read_text())
    rows, owners = without_noise(list(rows_of(data, plan["row"])), plan), plan["devices"]
    parts = {report: rows_of(bytes.fromhex(report), plan["row"]) for report in sent["0"]}
    there = [report for report, some in parts.items() if set(some) <= set(rows)]
    assert len(rows) == len(set(rows)) == sum(len(parts[report]) for report in there)
    assert {report for window, report in acked if window == "0"} <= set(there)
    assert len({owners[report] for report in there}) == len(there)
    assert not (folder / "delivered-1").exists()
    assert not (folder / "delivered-2").exists()
    left = {path.name for path in (folder / "data").iterdir()}
    assert left <= {".lock", "acknowledged", "state.db", "state.db-wal", "state.db-shm"}
    assert not list((folder / "keys").iterdir())


def without_noise(rows: list[bytes], plan: dict[str, Any]) -> list[bytes]:
    """Rows that do not open: what devices sent here is random. The others are the noise of one
    draw: no cell has more than that may be, under nonces of their own; and there is some (none has
    a chance of 1e-13).
    """
    if not plan["key"] or not rows:
        return rows
    key = HpkePrivateKey.from_raw_secret(SuiteId.of(1), bytes.fromhex(plan["key"]))
    info, sent, noise = report_info(TaskId.parse(plan["task"]), 0, key.config.key_id), [], []
    for row in rows:
        try:
            noise.append(open_report(key, info, row))
        except ShoalError:
            sent.append(row)
    counts = Counter(one[NONCE_SIZE:] for one in noise)
    assert 0 < max(counts.values()) <= 2 * REACH, counts
    assert len({one[:NONCE_SIZE] for one in noise}) == len(noise)
    return sent


@pytest.fixture(scope="module")
def passed(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Points that the scenario passes when nothing fails, and how often."""
    folder = tmp_path_factory.mktemp("record")
    return recorded(forge, folder, "single")


def recorded(forge: Forge, folder: Path, kind: str) -> dict[str, int]:
    sent = prepare(folder, kind=kind)
    assert forge.run("record", folder) == 0
    check(folder, sent)
    if kind == "single":
        assert len((folder / "delivered-0").read_bytes()) // (len(sent["0"][0]) // 2) == _PLAN[0]
    found: dict[str, int] = json.loads((folder / "passed.json").read_text())
    return found


def test_the_scenario_passes_every_point_of_the_store_and_the_writer(
    passed: dict[str, int],
) -> None:
    """A new durable step is swept without touching this file; one that the scenario doesn't reach
    is named here.

    Rounds of secure aggregation have no part in a window of sealed reports; their points (and
    egress's, and those of a store that several shufflers share) are swept by tests of their own.
    """
    names: set[str] = set()
    for path in (*(ROOT / "shuffler").rglob("*.py"), *(ROOT / "common" / "storage").rglob("*.py")):
        # its points are network steps: tests/unit/shuffler/reports/test_egress.py
        if path.name != "egress.py" and {"objects", "postgresql"}.isdisjoint(path.parts):
            names |= set(re.findall(r'failpoints\.hit\(f?"([^"]+)"\)', path.read_text()))
    names = {
        name
        for name in names
        # those of noise: ``test_sweep`` with noise, which asks for them
        if not name.startswith(("counts.", "noise.", "rounds.", "singles.", "vectors."))
    }
    patterns = [
        re.escape(name)
        .replace(r"\{after\.name\.lower\(\)\}", "[a-z]+")
        .replace(r"\{name\}", "[a-z]+")
        for name in names
    ]
    assert [
        pattern for pattern in patterns if not any(re.fullmatch(pattern, point) for point in passed)
    ] == []
    states = {point.split(".")[1] for point in passed if re.fullmatch(r"state\.[a-z]+", point)}
    assert states >= {
        "open",
        "closing",
        "sealed",
        "delivering",
        "acknowledged",
        "withheld",
        "shredded",
    }


def strikes(passed: dict[str, int]) -> Iterator[tuple[str, str, int]]:
    """Point, way to fail, and at which passing. Killed at the first and the last passing, and one
    failure at the first, mostly of the window that is released: EIO and ENOSPC take turns over the
    ordered points. Both at the commit of reports, where a device is told something else: INTERNAL
    by a failing disk, OVERLOADED by a full one.

    In full: every passing, and both failures.
    """
    for place, (point, count) in enumerate(sorted(passed.items())):
        every = range(1, count + 1)
        for at in every if FULL else sorted({1, count}):
            yield point, "exit", at
        both = FULL or point == "inbox.commit"
        for way in FAILURES if both else FAILURES[place % 2 :][:1]:
            for at in every if FULL else (1,):
                yield point, way, at


@pytest.mark.parametrize("kind", ["single", "several", "noise"])
@pytest.mark.timeout(1_800)
def test_sweep(forge: Forge, passed: dict[str, int], memory_folder: Path, kind: str) -> None:
    """Planted: SEALED recorded before the batch is renamed -> exit at seal.rename loses six
    reports. Planted: the inbox unlinked before the batch is renamed -> exit at seal.rename (between
    that and SEALED it does no harm: the finished batch is found). Planted: answering before the
    commit -> eio at inbox.commit. Planted: tags kept in memory alone, or written in a commit after
    the rows' -> exit at inbox.committed. Each fails here. Planted: messages of a report under keys
    of their own, in several commits -> half of a report, fails. With noise, planted: drawn into the
    inbox -> twice the noise in a batch, more than the law has, or noise that is lost, fails.
    """
    broken, runs, least = list[str](), 0, (3 if FULL else 2) * len(passed)
    if kind == "noise":
        passed = recorded(forge, memory_folder / "record", kind)
        assert {"noise.draw", "noise.drawn"} <= passed.keys()
    todo = list(strikes(passed))
    if kind == "noise":  # what differs is at the end of a window
        ends = ("noise.", "seal.", "state.", "batch.")
        todo = [one for one in todo if one[0].startswith(ends)]
        least = len(todo)
    if kind == "several":  # what differs is in the inbox, and in what is made of it
        todo = [one for one in todo if one[0].startswith(("inbox.", "seal."))]
        least = len(todo)
    for runs, (point, way, at) in enumerate(todo, 1):
        strike, folder = f"{point}={way}@{at}", memory_folder / f"{runs}"
        sent = prepare(folder, kind=kind)
        status = forge.run("life", folder, strike)
        if way == "exit" and status != SIGKILL:
            broken.append(f"{strike}: did not die ({status})")
        if way != "exit" and status not in (FINE, REFUSED):
            broken.append(f"{strike}: an untyped failure ({status})")
        try:
            asyncio.run(life(folder))
            check(folder, sent)
        except (AssertionError, OSError, ShoalError) as error:
            broken.append(f"{strike}, and the next start: {type(error).__name__}: {error}")
        shutil.rmtree(folder)
    assert broken == []
    assert runs >= least > 0
