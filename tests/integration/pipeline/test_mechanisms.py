"""Every registered mechanism from the agent to the release: real services in processes of their
own, TLS, one deployment of many tasks.

Most devices are simulated (with the code of real ones: each randomizes and seals by itself), one is
an ``Agent`` with its outbox, and three are hostile: their reports are sealed as they should be, and
hold bytes that the mechanism could not have written. Every total lies within 5 of its standard
errors of the truth; a normal error does not with probability 6e-7, that of 200 coins with one below
1e-5: for about 60 totals a false alarm in 1,600 runs at most.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pytest

from shoal.accounting.of_task import guaranteed
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.demo.workspace import Site, prepare
from shoal.clients.agent import Agent
from shoal.clients.core import ReportState, assign, seal
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.plan import SimulationPlan
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import simulate
from shoal.clients.owner.policy import Policy
from shoal.clients.settings.config import AgentConfig
from shoal.clients.transports.grpc_transport import GrpcTransport
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Categories, Domain, Numeric, Places, Value, Words, YesNo
from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.mechanisms import REGISTRY, Mechanism, create, design, serves
from shoal.mechanisms.parts.tables import MEAN_OF_ALL
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import fewest_messages
from shoal.mechanisms.vectors.protocol import VectorRandomizer
from shoal.privacy import epsilon0_upper
from shoal.task import Task, WindowPlan
from tests.sizes import size
from tests.worlds.services.releasing import running

SIMULATED = size(200, 4_000)
HOSTILE = 3
N = SIMULATED + 1  # and the agent
HOUR = 3_600
EPSILON0, DELTA = 2.0, 1e-6
DOMAINS: tuple[Domain, ...] = (
    Categories(tuple("abcdefgh"), tuple(range(8))),
    YesNo(),
    Numeric(0.0, 7.0, 8),
    Places(48_100_000, 11_500_000, 48_136_000, 11_608_000, 2, 4),
)
OPEN = Words(tuple("76543210"))  # the values as texts
# A tenth has no value: it is an answer like the others. Most of the rest share few cells.
VALUES: tuple[Value, ...] = tuple(
    None if device % 10 == 0 else device * device % 8 for device in range(SIMULATED)
)
AGENTS = 1  # its value


def answers(domain: Domain) -> tuple[Value, ...]:
    """The devices' values, the agent's last: on a map the places in the middles of these cells."""
    values = (*VALUES, AGENTS)
    if not isinstance(domain, Places):
        return values
    return tuple(domain.text_of(cell) if isinstance(cell, int) else cell for cell in values)


Made = TypeVar("Made", Mechanism, Several, VectorRandomizer)


@dataclass(frozen=True)
class Asked(Generic[Made]):
    """One task, signed and served."""

    mechanism: Made
    task: Task
    task_id: TaskId
    signed_task: bytes
    signed_schedule: bytes


def specs() -> list[tuple[str, str, Domain]]:
    """Every mechanism by its first setting, on the first domain that it serves; at full size every
    setting. An open vocabulary too.
    """
    found = []
    for name in sorted(REGISTRY):
        domain = next(domain for domain in DOMAINS if serves(name, domain))
        settings = REGISTRY[name].settings(domain)
        found += [(name, one.name, domain) for one in settings[: size(1, len(settings))]]
        found += [(name, "", OPEN)] if serves(name, OPEN) else []
    return found


def ask(site: Site, name: str, domain: Domain, mechanism: Made, devices: int) -> Asked[Made]:
    """A task of one window, for so many devices and the hostile ones."""
    task = Task(
        salt=os.urandom(16),
        name=name.replace("_", "-"),
        purpose="tests",
        question="How many?",
        domain=domain,
        mechanism=mechanism.spec,
        windows=WindowPlan(
            start_s=int(time.time()) - 60, length_s=HOUR, count=1, grace_s=0, skew_s=60
        ),
        min_batch=devices,
        max_batch=devices + HOSTILE,
        honest_fraction_ppm=900_000,
        delta=DELTA,
        target_epsilon=EPSILON0,
        key_authority=site.authority.public,
        shuffler_key=site.shuffler,
        analyzer_key=site.analyzer,
        shuffler_address=site.shuffler_address,
        shuffler_ca=site.ca,
        retention_s=3 * HOUR,
        report_size=mechanism.report_size,
        messages=mechanism.messages,
        fewest_messages=fewest_messages(mechanism),
    )
    return Asked(mechanism, task, *site.add(task))


def refused_bytes(mechanism: Mechanism) -> list[bytes]:
    """Messages of the right length that the mechanism says it could not have written."""
    rows = np.repeat(np.arange(256, dtype=np.uint8)[::-1, None], mechanism.report_size, axis=1)
    found: list[bytes] = [row.tobytes() for row in rows[~mechanism.valid(rows)]]
    return [found[number % len(found)] for number in range(HOSTILE)]


async def send_hostile(site: Site, asked: list[Asked[Mechanism]]) -> None:
    """Frames that open, of messages that open, of bytes that are no report: the shuffler can't tell
    and takes them.
    """
    transport = GrpcTransport(site.shuffler_address, site.ca)
    try:
        for one in asked:
            trusted = trust_task(one.signed_task, {site.authority.public})
            assignment = assign(trusted, trust_schedule(one.signed_schedule, trusted))
            for bad in refused_bytes(one.mechanism):
                prepared = seal(assignment, 0, (bad,) * one.task.messages)
                await transport.submit(prepared.frame, prepared.ack_key, 30.0)
    finally:
        await transport.close()


async def answer(site: Site, asked: list[Asked[Mechanism]], folder: Path) -> None:
    """An agent with a policy and an outbox answers every task."""
    policy = Policy(frozenset({site.authority.public}), EPSILON0, 10, {"tests": "allowed"})
    async with Agent(AgentConfig(site.folder / "tasks", folder / "outbox.db", policy)) as agent:
        for one in asked:
            told = "\n".join(await agent.explain(one.task.name))
            assert f"({one.task.mechanism.name})" in told
            assert "this device would answer it" in told
            outcome = await agent.report(one.task.name, answers(one.task.domain)[-1])
            assert outcome.state is ReportState.ACKED, outcome


async def releases(data: Path, count: int) -> dict[str, dict[str, Any]]:
    """By task id, once there are so many."""
    while True:
        await asyncio.sleep(0.2)
        try:
            store = AnalyzerStore(data / FILE_NAME, read_only=True)
        except (ShoalError, FileNotFoundError):
            continue
        try:
            found = [to_json(decode_release(stored.release)) for stored in store.releases()]
        finally:
            store.close()
        if len(found) == count:
            return {release["task_id"]: release for release in found}


def truth(domain: Domain, labels: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """(devices per cell, what each estimate of these labels should be)."""
    cells = np.array([domain.encode(value) for value in answers(domain)])
    counts = np.array([np.count_nonzero(cells == cell) for cell in domain.label_cells])
    if not isinstance(domain, Numeric):
        return counts, counts.astype(np.float64)
    answered = cells[cells < domain.levels]
    if labels == [MEAN_OF_ALL]:
        places = np.where(cells < domain.levels, cells, (domain.levels - 1) / 2)
        return counts, np.array([domain.low + domain.step * places.mean()])
    return counts, np.array([domain.low + domain.step * answered.mean(), float(counts[-1])])


@pytest.mark.timeout(size(240, 3_000))
async def test_every_registered_mechanism_from_agent_to_release(tmp_path: Path) -> None:
    """Totals, the certificate of the law, and every hostile report counted as rejected, in one
    release per task.

    Planted: the certificate of min_batch instead of its honest share; a tally of bitmaps with its
    cells in reverse; each reason of rejection counted once; a fleet whose hash is one quarter of
    the range off -> fails. (Of the one agent it would not show here.)
    """
    site = prepare(tmp_path)
    asked = [
        ask(
            site,
            f"{name}-{number}",
            domain,
            create(design(name, domain, EPSILON0, setting), domain),
            N,
        )
        for number, (name, setting, domain) in enumerate(specs())
    ]
    async with running(site):
        await send_hostile(site, asked)
        await answer(site, asked, tmp_path)
        tasks = tuple(
            SimulatedTask(one.signed_task, one.signed_schedule, answers(one.task.domain)[:-1])
            for one in asked
        )
        plan = SimulationPlan(
            tasks,
            authorities=frozenset({site.authority.public}),
            processes=1,
            way=Carrier.RELAY,
        )
        result = await simulate(plan)
        assert (result.acked, result.refused, result.unknown) == (SIMULATED * len(asked), {}, 0)
        found = await releases(site.analyzer_data, len(asked))
    for one in asked:
        check(one, found[one.task_id.hex])


def check(asked: Asked[Mechanism], release: dict[str, Any]) -> None:
    mechanism, task = asked.mechanism, asked.task
    assert (release["n"], release["withheld"]) == (N, None), task.name
    assert sum(release["rejected"].values()) == HOSTILE, (task.name, release["rejected"])
    law = mechanism.privacy()
    privacy = release["privacy"]
    assert privacy["epsilon0"] == epsilon0_upper(law) <= EPSILON0
    certificate = guaranteed(law, task.min_batch, task.honest_fraction, task.delta)
    assert (privacy["epsilon_upper"], privacy["method"]) == (
        certificate.epsilon_upper,
        certificate.method,
    )
    assert ("metric" in privacy) == isinstance(task.domain, Places)
    estimates = release["estimates"]
    counts, totals = truth(task.domain, [estimate["label"] for estimate in estimates])
    errors = mechanism.expected_stderr(counts)
    assert len(estimates) == len(totals)
    for estimate, total, error in zip(estimates, totals, errors, strict=True):
        assert abs(estimate["value"] - total) < 5 * error, (task.name, estimate, total, error)
        assert estimate["ci_low"] <= estimate["value"] <= estimate["ci_high"]
        assert estimate["ci_low"] < estimate["ci_high"]
