"""A vector that every device randomizes by itself, from the agent to the release: real services in
processes of their own, TLS.

One task is written by hand; the other is what ``shoal plan vectors --emit`` wrote. Most devices are
simulated (with the code of real ones), one is an ``Agent`` that is given a list,
and three are hostile: their reports name a direction that no seed has. Every coordinate of the mean
lies within 5.5 of its standard errors of the truth: a normal error does not with probability 4e-8,
that of 200 bounded summands with one below 1e-6; of 303 coordinates a false alarm in 3,000 runs.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.accounting.of_task import guaranteed
from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.results.checkable import checkable
from shoal.analyzer.results.processed import MEANS
from shoal.analyzer.results.report_page import section_of
from shoal.checker.check import check_releases
from shoal.checker.findings import Outcome
from shoal.cli.demo.workspace import Site, prepare
from shoal.cli.main import main
from shoal.cli.task.file import read_task
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
from shoal.domain import Norm, Value, Vector
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.vectors.protocol import VectorRandomizer
from shoal.mechanisms.vectors.registry import create, design
from shoal.privacy import epsilon0_upper
from shoal.services.settings import load_settings
from shoal.task import WindowPlan
from tests.integration.pipeline.test_mechanisms import (
    DELTA,
    EPSILON0,
    HOSTILE,
    Asked,
    ask,
    releases,
)
from tests.sizes import size
from tests.worlds.ports import free_port
from tests.worlds.services.releasing import running

SIMULATED = size(200, 4_000)
N = SIMULATED + 1  # and the agent
NAMES = ("x", "y", "z")
DOMAIN = Vector(3, Norm.L2, 2.0, 1 << 20, NAMES, "km")
MOST_EPSILON0 = 8.0  # of the owner's policy
PLANNED = 2.0  # the central epsilon of what is planned
UNNAMED = Vector(size(300, 4_000), Norm.L2, 1.0, 1 << 20)
AGENTS = [1.0, -2.0, 0.5]  # longer than the clip


def given(device: int, dimension: int) -> list[float] | None:
    """A tenth has no vector; the others point two ways, and one coordinate is larger for all."""
    if device % 10 == 0:
        return None
    vector = [0.0] * dimension
    vector[0] = 0.3 if device % 3 else -0.6
    vector[1] = 0.5
    return vector


def texts(domain: Vector) -> tuple[Value, ...]:
    found = (given(device, domain.dimension) for device in range(SIMULATED))
    return tuple(None if one is None else json.dumps(one) for one in found)


def planned(site: Site, folder: Path) -> Asked[VectorRandomizer]:
    """The task that ``shoal plan vectors --emit`` writes, with its window moved to now."""
    # fmt: off
    options = (
        "plan", "vectors", "--labels", ",".join(NAMES), "--clip", "2", "--unit", "km", "--n",
        str(N), "--epsilon", str(PLANNED), "--delta", str(DELTA), "--honest-fraction", "0.9",
        "--one-visit", "--not-enrolled", "--max-batch", str(N + HOSTILE), "--question", "How far?",
        "--name", "moves", "--purpose", "tests", "--shuffler", site.shuffler_address, "--ca",
        str(folder / "ca.pem"), "--authority", site.authority.public.hex(), "--shuffler-key",
        site.shuffler.hex(), "--analyzer-key", site.analyzer.hex(), "--emit",
        str(folder / "moves.toml"),
    )
    # fmt: on
    (folder / "ca.pem").write_bytes(site.ca)
    assert main(list(options)) == 0
    task = read_task(folder / "moves.toml")
    assert task.domain == DOMAIN
    now = WindowPlan(start_s=int(time.time()) - 60, length_s=3_600, count=1, grace_s=0, skew_s=60)
    task = replace(task, windows=now, retention_s=3 * 3_600)
    return Asked(create(task.mechanism, task.domain), task, *site.add(task))


async def send_hostile(site: Site, asked: list[Asked[VectorRandomizer]]) -> None:
    transport = GrpcTransport(site.shuffler_address, site.ca)
    try:
        for one in asked:
            trusted = trust_task(one.signed_task, {site.authority.public})
            assignment = assign(trusted, trust_schedule(one.signed_schedule, trusted))
            for _ in range(HOSTILE):
                made = seal(assignment, 0, (b"\xff" * one.task.report_size,))
                await transport.submit(made.frame, made.ack_key, 30.0)
    finally:
        await transport.close()


async def answer(site: Site, asked: list[Asked[VectorRandomizer]], folder: Path) -> None:
    """What is no vector of the task is refused before anything is charged; then a list is taken."""
    policy = Policy(frozenset({site.authority.public}), MOST_EPSILON0, 10, {"tests": "allowed"})
    async with Agent(AgentConfig(site.folder / "tasks", folder / "outbox.db", policy)) as agent:
        for one in asked:
            told = "\n".join(await agent.explain(one.task.name))
            assert "(privunit)" in told, told
            assert f"{one.mechanism.domain.dimension:,} numbers" in told
            right = [0.0] * one.mechanism.domain.dimension
            for wrong in (right[1:], [*right[1:], math.nan], "[1, 2", "flu", 3.0):
                with pytest.raises(ShoalError) as refused:
                    await agent.report(one.task.name, wrong)
                assert refused.value.kind is Kind.INVALID, wrong
            values: Any = AGENTS if one.mechanism.domain == DOMAIN else np.zeros(UNNAMED.dimension)
            outcome = await agent.report(one.task.name, values)
            assert outcome.state is ReportState.ACKED, outcome
            again = await agent.report(one.task.name, right)
            assert again.state is ReportState.ACKED


@pytest.mark.timeout(size(240, 3_000))
async def test_vectors_from_agent_to_release(tmp_path: Path) -> None:
    """Means with their errors, the certificate of the law, hostile reports counted as rejected; and
    ``shoal verify`` confirms each release, and both together.

    Planted: the last coordinate of what is lengthened tallied as the first -> fails.
    """
    site = prepare(tmp_path, free_port)
    made = create(design("privunit", UNNAMED, EPSILON0, "K=64"), UNNAMED)
    asked = [planned(site, tmp_path), ask(site, "gradient", UNNAMED, made, N)]
    async with running(site):
        await send_hostile(site, asked)
        await answer(site, asked, tmp_path)
        plan = SimulationPlan(
            tuple(
                SimulatedTask(one.signed_task, one.signed_schedule, texts(one.mechanism.domain))
                for one in asked
            ),
            authorities=frozenset({site.authority.public}),
            processes=1,
            way=Carrier.RELAY,
        )
        result = await simulate(plan)
        assert (result.acked, result.refused, result.unknown) == (SIMULATED * len(asked), {}, 0)
        found = await releases(site.analyzer_data, len(asked))
    for one in asked:
        check(one, found[one.task_id.hex])
    files = [data for _, data in checkable(load_settings(AnalyzerConfig, site.analyzer_config))]
    verified = list(check_releases(files, [site.authority.public]))
    assert [one.outcome for one in verified] == [Outcome.HOLDS] * len(asked), verified


def check(asked: Asked[VectorRandomizer], release: dict[str, Any]) -> None:
    mechanism, task = asked.mechanism, asked.task
    domain = mechanism.domain
    assert (release["n"], release["withheld"]) == (N, None), release
    assert release["rejected"] == {"invalid value": HOSTILE}
    law = mechanism.privacy()
    privacy, guarantee = release["privacy"], guaranteed(law, N, task.honest_fraction, DELTA)
    most = EPSILON0 if domain is UNNAMED else MOST_EPSILON0
    assert privacy["epsilon0"] == epsilon0_upper(law) <= most
    assert privacy["epsilon_upper"] == guarantee.epsilon_upper
    assert domain is UNNAMED or guarantee.epsilon_upper <= PLANNED
    rows = [
        given(device, domain.dimension) or [0.0] * domain.dimension for device in range(SIMULATED)
    ]
    own = (
        np.array(AGENTS) * 2.0 / np.linalg.norm(AGENTS)
        if domain == DOMAIN
        else np.zeros(UNNAMED.dimension)
    )
    truth = (np.sum(rows, axis=0) + own) / N
    labels = [row["label"] for row in release["estimates"]]
    assert labels == [f"{name}: mean, no answer as 0" for name in domain.labels]
    assert all(label in MEANS for label in labels)
    assert "processed" not in release  # no numbers of devices
    assert [one.title for one in section_of(0, release, {}).estimates] == ["Mean"]
    errors = mechanism.expected_stderr(N, np.full(domain.dimension, 0.1))
    for row, true, error in zip(release["estimates"], truth, errors, strict=True):
        assert abs(row["value"] - true) < 5.5 * row["stderr"], (row, true)
        assert row["stderr"] == pytest.approx(error, rel=0.25)
        assert row["ci_low"] < row["value"] < row["ci_high"]
