"""docs/examples/javascript against the real services, and beside our own agent: two languages, one
set of cells.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.demo.workspace import Site, prepare
from shoal.clients import Agent, AgentConfig
from shoal.clients.core import ReportState
from shoal.clients.owner.policy import Policy
from shoal.domain import Categories, Domain, YesNo
from shoal.task import MechanismSpec, Task, WindowPlan
from tests.worlds.devices import javascript
from tests.worlds.ports import free_port
from tests.worlds.services.load import HOUR, services_of, task_of

ROOT = Path(__file__).resolve().parents[3]
VISITS = Categories(("0", "1", "2", "3-4", "5-9", "10+"), (0, 1, 2, 3, 5, 10))
# So little noise that a report is its cell, but for one in 2^64.
PLAIN = (
    (
        YesNo(),
        MechanismSpec.of("binary_rr", yes_if_no=1, yes_if_yes=2**64 - 1),
        ("yes", " TRUE\t", "no"),
    ),
    (VISITS, MechanismSpec.of("krr", k=7, uniform=1), ("+4", "1e1", "4.999")),
)


def asked(site: Site, domain: Domain, spec: MechanismSpec, reports: int) -> Task:
    """Of that many reports, whose tasks' epsilon nobody minds."""
    windows = WindowPlan(
        start_s=int(time.time()) - 60, length_s=HOUR, count=1, grace_s=0, skew_s=60
    )
    task = task_of(site, spec.name.replace("_", "-"), domain, spec, windows, reports, reports)
    return replace(task, honest_fraction_ppm=1_000_000, target_epsilon=100.0)


def words(site: Site, name: str, device: int, answer: str, *more: str) -> list[str]:
    """A command line of the client."""
    task = site.folder / "tasks" / f"{name}.task"
    owner = [
        "--authority",
        site.authority.public.hex(),
        "--allow",
        "load tests",
        "--most-epsilon0",
        "100",
        "--least-batch",
        "4",
    ]
    files = [
        "--task",
        str(task),
        "--keys",
        str(task.with_suffix(".keys")),
        "--memory",
        f"memory-{device}",
    ]
    return ["report.mjs", *files, *owner, *more, answer]


async def released(site: Site, count: int) -> dict[str, dict[str, Any]]:
    """Estimates by task, once there are so many releases."""
    while True:
        await asyncio.sleep(0.1)
        if not (site.analyzer_data / FILE_NAME).exists():
            continue
        store = AnalyzerStore(site.analyzer_data / FILE_NAME, read_only=True)
        try:
            found = [to_json(decode_release(one.release)) for one in store.releases()]
        finally:
            store.close()
        if len(found) == count:
            return {one["task_id"]: one for one in found}


async def test_the_vectors_are_the_same_in_two_languages(tmp_path: Path) -> None:
    """Cells, laws, draws, ids, signatures, sealing, receipts and refusals, as tests/vectors has
    them and our own tests replay them.

    Planted: ``trim()`` for the blanks, words read big-endian, the window's zero written, a role's
    signature over its keys or a key's form not looked at, biased draws taken -> fails each time.
    """
    folder = javascript.client(tmp_path / "client")
    status, said = await javascript.run(folder, "check.mjs", str(ROOT / "tests" / "vectors"))
    assert status == 0, said
    assert len(said.splitlines()) == 10


async def test_two_schedules_for_one_task_end_it(tmp_path: Path) -> None:
    """For good, also when the first one comes again, and though the report was sealed for its keys.
    Planted: the first schedule taken again after the second was seen -> it would be sent, fails.
    Planted: the hash not kept -> fails.
    """
    folder = javascript.client(tmp_path / "client")
    (tmp_path / "site").mkdir()
    site = prepare(tmp_path / "site", free_port)
    task = asked(site, *PLAIN[0][:2], 4)
    keys = [tmp_path / "first.keys", tmp_path / "second.keys"]
    for file in keys:
        file.write_bytes(site.add(task)[2])
    said = []
    for file in (keys[0], keys[1], keys[0]):
        said.append(
            await javascript.run(
                folder, *words(site, task.name, 0, "yes", "--keys", str(file), "--patience", "0")
            )
        )
    assert said[0][0] == 75, said
    assert [(status, text.split(":")[0]) for status, text in said[1:]] == [(1, "CONFLICT")] * 2


async def test_a_client_in_javascript_is_counted_by_the_real_services(tmp_path: Path) -> None:
    """Answers as people write them land in the cells where our own agent's land, and a report that
    could not be sent is sent later, byte for byte. What the owner or the task does not allow is
    refused, and leaves nothing behind.

    Planted: the report sealed anew at every run; the hop's info with the analyzer's key id; the
    system's authorities trusted for the task's; another ``ack_key`` in the frame than the receipt
    is verified by -> fails each time.
    """
    folder = javascript.client(tmp_path / "client")
    (tmp_path / "site").mkdir()
    site = prepare(tmp_path / "site", free_port)
    tasks = {
        spec.name.replace("_", "-"): asked(site, domain, spec, len(answers) + 1)
        for domain, spec, answers in PLAIN
    }
    ids = {name: site.add(task)[0] for name, task in tasks.items()}
    answers = {spec.name.replace("_", "-"): said for _, spec, said in PLAIN}

    for more, answer, kind in (
        ((), "maybe", "INVALID"),
        (("--least-batch", "5"), "yes", "REFUSED"),
        (("--most-epsilon0", "44"), "yes", "REFUSED"),
        (("--task", str(site.folder / "tasks" / "krr.task")), "yes", "MISMATCH"),
    ):
        status, said = await javascript.run(folder, *words(site, "binary-rr", 0, answer, *more))
        assert (status, said.split(":")[0]) == (1, kind), said
    memory = folder / "memory-0"
    assert [path.suffix for path in memory.iterdir()] == [".schedule"]
    status, said = await javascript.run(
        folder, *words(site, "binary-rr", 0, "yes", "--patience", "0")
    )
    assert status == 75, said
    (kept,) = memory.glob("*.json")
    frame = json.loads(kept.read_text())["frame"]
    assert len(frame) == 2 * 512

    async with services_of(site):
        runs = [
            words(site, name, device, answer)
            for name, said in answers.items()
            for device, answer in enumerate(said)
        ]
        for outcome in await asyncio.gather(*(javascript.run(folder, *one) for one in runs)):
            assert outcome[0] == 0, outcome
            assert "delivered, the shuffler has it on disk" in outcome[1]
        assert json.loads(kept.read_text()) | {"frame": frame, "state": "stored"} == json.loads(
            kept.read_text()
        )
        policy = Policy(frozenset({site.authority.public}), 100.0, 4, {"load tests": "allowed"})
        async with Agent(
            AgentConfig(site.folder / "tasks", tmp_path / "outbox.db", policy)
        ) as agent:
            for name, answer in (("binary-rr", "Yes"), ("krr", "4")):
                assert (await agent.report(name, answer)).state is ReportState.ACKED
        found = await released(site, len(tasks))
    expected = {"binary-rr": {"no": 1, "yes": 3}, "krr": {"3-4": 3, "10+": 1}}
    for name, counts in expected.items():
        release = found[ids[name].hex]
        assert (release["n"], release["withheld"], sum(release["rejected"].values())) == (
            4,
            None,
            0,
        )
        values = {one["label"]: round(one["value"]) for one in release["estimates"]}
        assert {label: value for label, value in values.items() if value} == counts
