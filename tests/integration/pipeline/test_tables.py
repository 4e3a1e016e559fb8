"""Several answers together, from the agent to a synthetic table: real services in processes of
their own, TLS, one deployment.

Two tasks of the same record: each device in one marginal (``krr``), and in all of them
(``marginals``). Most devices are simulated, one is an ``Agent``. Every total lies within 6 of its
standard errors of the truth, which normal errors do not with probability 2e-9 and Poisson ones of
these sizes with less than 1e-6: for 66 totals a false alarm in 10,000 runs at most.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.accounting.of_task import guarantee_of
from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.results.records import sentences
from shoal.cli.demo.workspace import prepare
from shoal.cli.main import main
from shoal.clients.agent import Agent
from shoal.clients.core import ReportState
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.plan import SimulationPlan
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import simulate
from shoal.clients.owner.policy import Policy
from shoal.clients.settings.config import AgentConfig
from shoal.domain import AnswerRecord, Value
from shoal.mechanisms import create, design
from shoal.mechanisms.several.registry import create as create_several
from shoal.questions.record import all_pairs
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
from tests.worlds.tasks import ATTRIBUTES

SIMULATED = size(400, 8_000)
N = SIMULATED + 1  # and the agent
LEAST = N - HOSTILE  # nobody is hostile here: the window is full with the last honest one
HONEST = LEAST * 900_000 // 1_000_000
TOTAL = "epsilon of all releases so far, together"  # here also of a release by krr
ONE = AnswerRecord(ATTRIBUTES, all_pairs(3))
ALL = AnswerRecord(ATTRIBUTES, all_pairs(3), together=True)
AGENTS = '{"age": 44, "sex": "f", "health": "poor"}'


def value(device: int) -> Value:
    """Health goes with age; one in ten says nothing."""
    if device % 10 == 0:
        return None
    old = device % 3 == 0
    health = "poor" if old or device % 7 == 0 else "good"
    return json.dumps({"age": 60 if old else 20, "sex": "fm"[device % 2], "health": health})


VALUES = tuple(map(value, range(SIMULATED)))


async def answer(agent: Agent, asked: list[Asked[Any]]) -> None:
    for one in asked:
        if one.task.domain == ALL:
            await agent.accept(one.task.name)
        told = "\n".join(await agent.explain(one.task.name))
        assert "It is several answers together: age (" in told
        assert ("all of 3 tables" in told) == (one.task.domain == ALL)
        outcome = await agent.report(one.task.name, AGENTS)
        assert outcome.state is ReportState.ACKED, outcome


@pytest.mark.timeout(size(240, 2_000))
async def test_records_from_agent_to_synthetic_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Totals of the whole batch in both ways, the certificate of the law, tables that agree, rows.

    Planted: counts of the devices that drew a marginal not multiplied -> fails; the record's
    number sent as a cell -> rejected rows, fails; the checker without ``marginals`` -> open, fails.
    """
    site = prepare(tmp_path, free_port)
    krr = create(design("krr", ONE, EPSILON0), ONE)
    spec = design_several("marginals", ALL, HONEST, EPSILON0, DELTA, windows=1)
    asked: list[Asked[Any]] = [
        ask(site, "in-one", ONE, krr, LEAST),
        ask(site, "in-all", ALL, create_several(spec, ALL), LEAST),
    ]
    policy = Policy(frozenset({site.authority.public}), 10.0, 20, {"tests": "allowed"})
    async with running(site):
        async with Agent(AgentConfig(site.folder / "tasks", tmp_path / "out.db", policy)) as agent:
            await answer(agent, asked)
        plan = SimulationPlan(
            tuple(SimulatedTask(one.signed_task, one.signed_schedule, VALUES) for one in asked),
            authorities=frozenset({site.authority.public}),
            processes=1,
            way=Carrier.RELAY,
        )
        result = await simulate(plan)
        assert (result.acked, result.refused, result.unknown) == (2 * SIMULATED, {}, 0)
        found = await releases(site.analyzer_data, 2)
    for one in asked:
        check(one, found[one.task_id.hex])
    files, config = tmp_path / "files", str(site.analyzer_config)
    export = ["results", "export", "--format", "release", "--out", str(files)]
    assert main([*export, "--config", config]) == 0
    authority = ["--authority", site.authority.public.hex()]
    capsys.readouterr()
    assert main(["verify", str(files), "--accept-open", "--json", *authority]) == 0
    checked = {
        report["name"]: {one["what"]: one["outcome"] for one in report["checked"]}
        for report in json.loads(capsys.readouterr().out)
    }
    assert checked["in-all"]["the tables are those that were asked for"] == "holds"
    promises = {what: told for what, told in checked["in-all"].items() if "epsilon" in what}
    assert [what for what, told in promises.items() if told != "holds"] in ([], [TOTAL])
    out = tmp_path / "rows.csv"
    arguments = ["--out", str(out), "--rows", "300", "--data", str(site.analyzer_data)]
    assert main(["results", "synthesize", "in-all:0", *arguments]) == 0
    assert "it can't answer:" in capsys.readouterr().out
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 300
    assert {*rows[0]} == {"age", "sex", "health"}


def check(asked: Asked[Any], release: dict[str, Any]) -> None:
    assert (release["n"], release["withheld"], release["rejected"]) == (N, None, {})
    guarantee, privacy = guarantee_of(asked.task), release["privacy"]
    assert privacy["epsilon_upper"] == guarantee.epsilon_upper <= EPSILON0
    assert privacy["method"] == guarantee.method
    domain = asked.task.domain
    assert isinstance(domain, AnswerRecord)
    assert [line for line in sentences(domain) if line not in privacy["assumptions"]] == []
    truth = np.zeros(domain.cells)
    for each in (*VALUES, AGENTS):
        for at in range(3):
            truth[domain.cell_of(at, domain.answers_of(each))] += 1.0
    for row, label, true in zip(release["estimates"], domain.labels, truth.tolist(), strict=True):
        assert row["label"] == label
        assert abs(row["value"] - true) < 6 * row["stderr"], (asked.task.name, row, true)
        assert row["ci_low"] < row["value"] < row["ci_high"]
    tables = [np.array(one["values"]) for one in release["tables"]["tables"]]
    assert np.allclose(tables[0].sum(axis=1), tables[1].sum(axis=1))
    assert np.allclose(tables[0].sum(), N)
