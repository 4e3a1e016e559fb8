"""A shuffler's store on a shared database, in a process that a test kills: sends reports until all
are answered for good, and notes every answer.

``plan.json`` of the folder above: {"dsn", "full", "count", "devices"}. ``answers`` gets a line for
each answer: the report's number and its kind, 0 for None.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from pathlib import Path
from typing import Any

from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind
from shoal.shuffler.core import Capacity, WindowId
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.store import PostgresStore, open_reports
from shoal.shuffler.stores.store import AdmittedReport
from tests.conformance.store.harness import HASH, ROW, TASK
from tests.faults import shuffler_child

WINDOW = WindowId(TASK, 0)
GROUP = 3
_HOP = HpkePrivateKey.from_raw_secret(SuiteId.X25519_AES128, bytes(range(32)))
_ELSEWHERE = 0.16  # of the reports that another replica takes: their senders try this one, too
_FOR_GOOD = (None, Kind.WINDOW_FULL, Kind.CONFLICT)


def report(number: int, part: int = 0) -> bytes:
    """The sealed bytes of a report, or of one of its messages."""
    return hashlib.shake_256(b"report %d %d" % (number, part)).digest(ROW)


def messages(number: int, plan: dict[str, Any]) -> tuple[bytes, ...]:
    """Of a report: one, or where the plan has "several" one, two or three."""
    count = 1 + number % 3 if plan.get("several") else 1
    return tuple([report(number, part) for part in range(count)])


def submission(number: int, plan: dict[str, Any]) -> AdmittedReport:
    """Of enrolled devices each has two reports, of which one may count: n and n + count / 2."""
    if not plan["devices"]:
        return AdmittedReport(WINDOW, messages(number, plan))
    device = hashlib.sha256(b"device %d" % (number % (plan["count"] // 2))).digest()
    return AdmittedReport(WINDOW, messages(number, plan), device)


async def opened(folder: Path, plan: dict[str, Any]) -> PostgresStore:
    """The replica of this folder."""
    database = await Database.open(plan["dsn"], b"\x07" * 32)
    store = await open_reports(database, folder, commit_ms=0)
    capacity = Capacity(3 if plan.get("several") else 1, plan["full"], 1_000_000)
    store.adopt(TASK, HASH, capacity, ROW, lambda _: _HOP)
    return store


async def _send(folder: Path) -> None:
    plan = json.loads((folder.parent / "plan.json").read_text())
    mine, choices = int(folder.name.rpartition("-")[2]), random.Random()  # noqa: S311 - a test's choices
    numbers = [
        number
        for number in range(plan["count"])
        if number % 3 == mine or choices.random() < _ELSEWHERE
    ]
    choices.shuffle(numbers)
    store = await opened(folder, plan)
    groups = [numbers[at : at + GROUP] for at in range(0, len(numbers), GROUP)]
    with (folder / "answers").open("a", buffering=1) as answers:

        async def client(begin: int) -> None:
            for group in groups[begin::2]:
                left = group
                while left:
                    kinds = await store.append([submission(number, plan) for number in left])
                    answers.writelines(
                        f"{number} {kind.value if kind else 0}\n"
                        for number, kind in zip(left, kinds, strict=True)
                    )
                    left = [
                        number
                        for number, kind in zip(left, kinds, strict=True)
                        if kind not in _FOR_GOOD
                    ]

        await asyncio.gather(client(0), client(1))
    await store.close()


def send(folder: Path) -> None:
    """The role."""
    asyncio.run(_send(folder))


if __name__ == "__main__":
    shuffler_child.main({"send": send})
