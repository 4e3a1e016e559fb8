"""Tasks of several messages per device, from the agent to the release: real services in processes
of their own, TLS, one deployment.

Most devices are simulated (with the code of real ones), one is an ``Agent`` whose owner said yes to
the task by name, and three are hostile: their messages are sealed as they should be, and are none
that the mechanism could have written. Every total lies within 9 of its standard errors of the
truth: for noise with the tails of a Laplace law a false alarm has a probability below 1e-5 each.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting.of_task import guarantee_of
from shoal.accounting.several_messages.liars import liar_words
from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.core import UNOPENABLE, WITHHELD_NOT_WHOLE
from shoal.analyzer.results.maps.released import rectangle_of
from shoal.analyzer.results.ranges import range_of
from shoal.cli.demo.workspace import Site, prepare
from shoal.cli.main import main
from shoal.clients.agent import Agent
from shoal.clients.core import Assignment, ReportState, assign, seal
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.plan import SimulationPlan
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import simulate
from shoal.clients.owner.policy import Policy
from shoal.clients.settings.config import AgentConfig
from shoal.clients.transports.grpc_transport import GrpcTransport
from shoal.crypto.envelope import NONCE_SIZE, HopContent, seal_frame, seal_report
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Categories, Domain, Numeric, Places, Value, YesNo
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.mechanisms.maps.blocks import MapBlocks
from shoal.mechanisms.several.events import empty_of
from shoal.mechanisms.several.protocol import Noisy, Several
from shoal.mechanisms.several.ranges import Ranges
from shoal.mechanisms.several.registry import create
from shoal.mechanisms.several.shuffler_noise import ShufflerNoise
from shoal.mechanisms.several.split_mix import SplitMix
from tests.integration.pipeline.test_mechanisms import DELTA, Asked, ask, releases
from tests.integration.pipeline.test_mechanisms import EPSILON0 as EPSILON
from tests.sizes import size
from tests.worlds.ports import free_port
from tests.worlds.services.releasing import running

SIMULATED = size(400, 10_000)
HOSTILE = 3
N = SIMULATED + 1  # and the agent
HONEST = N * 900_000 // 1_000_000
HOUR = 3_600
LABELS = Categories(tuple("abcdefg"), tuple(range(7)))
NUMBERS = Numeric(0.0, 7.0, 71)
BINS = Categories(tuple(map(str, range(40))), tuple(range(40)))
PLACES = Places(48_000_000, 11_000_000, 48_200_000, 11_300_000, 2, 3)
SPOILED = "spoiled"
# A tenth has no value: it is an answer like the others.
VALUES: tuple[Value, ...] = tuple(
    None if device % 10 == 0 else device * device % 7 for device in range(SIMULATED)
)
AGENTS = 1  # its value
COLLUDING = 6.0  # epsilon0 of those whose true message is randomized


def designs() -> list[tuple[str, Domain, Several]]:
    """Each as it is, and with a true message that is randomized."""
    found = list[tuple[str, Domain, Several]]()
    for name, domain in (("cancelling", LABELS), ("dummies", LABELS), ("signed_count", YesNo())):
        for kind, epsilon0 in ((name, None), (f"{name}_drawn", COLLUDING)):
            spec = design_several(
                name,
                domain,
                HONEST,
                EPSILON,
                DELTA,
                windows=1,
                epsilon0_if_colluding=epsilon0,
            )
            found.append((kind, domain, create(spec, domain)))
    spec = design_several("ranges", BINS, HONEST, EPSILON, DELTA, windows=1)
    found.append(("ranges", BINS, create(spec, BINS)))
    spec = design_several("blocks", PLACES, HONEST, EPSILON, DELTA, windows=1)
    found.append(("blocks", PLACES, create(spec, PLACES)))
    spec = design_several("split_mix", NUMBERS, HONEST, EPSILON, DELTA, windows=1, most=N + HOSTILE)
    found.append(("split_mix", NUMBERS, create(spec, NUMBERS)))
    spec = design_several("shuffler_noise", LABELS, HONEST, EPSILON, DELTA, windows=1)
    found.append(("shuffler_noise", LABELS, create(spec, LABELS)))
    # once more, for hostile devices that spoil it
    return [*found, (SPOILED, *found[-2][1:])]


async def send_hostile(site: Site, asked: list[Asked[Several]]) -> None:
    """Frames that open, of one message that opens, of bytes that are no message. Of a sum: shares
    of the least number, and where it is to be spoiled one of them that nobody can open.
    """
    transport = GrpcTransport(site.shuffler_address, site.ca)
    try:
        for one in asked:
            trusted = trust_task(one.signed_task, {site.authority.public})
            assignment = assign(trusted, trust_schedule(one.signed_schedule, trusted))
            for _ in range(HOSTILE):
                size_ = one.task.report_size
                summed = isinstance(one.mechanism, SplitMix)
                lie = (bytes(size_),) * one.task.messages if summed else (b"\xff" * size_,)
                if not summed:  # beside the first cell, or empty ones, where a report has several
                    lie += (beside(one.mechanism),) * (one.mechanism.fewest - 1)
                prepared = seal(assignment, 0, lie)
                frame, key = prepared.frame, prepared.ack_key
                if one.task.name == SPOILED:
                    frame = unopenable(assignment, key)
                await transport.submit(frame, key, 30.0)
    finally:
        await transport.close()


def beside(made: Several) -> bytes:
    """A message that is valid, and empty where there are such."""
    number = empty_of(made.noise) if isinstance(made, Noisy) and made.noise.full else 0
    return number.to_bytes(made.report_size, "big")


async def answer(site: Site, asked: list[Asked[Several]], folder: Path) -> None:
    """An agent whose owner says yes to each task by name, after none was answered without; and to
    all that keep as much as its limit, without a word.
    """
    policy = Policy(frozenset({site.authority.public}), COLLUDING, 10, {"tests": "allowed"})
    async with Agent(AgentConfig(site.folder / "tasks", folder / "outbox.db", policy)) as agent:
        for one in asked:
            finite = math.isfinite(one.mechanism.epsilon0)
            if not finite:
                with pytest.raises(ShoalError) as refused:
                    await agent.report(one.task.name, agents_of(one))
                assert refused.value.kind is Kind.REFUSED
                await agent.accept(one.task.name)
            told = "\n".join(await agent.explain(one.task.name))
            assert f"({one.task.mechanism.name})" in told
            assert ("epsilon0 = 6" in told) == finite
            outcome = await agent.report(one.task.name, agents_of(one))
            assert outcome.state is ReportState.ACKED, outcome


@pytest.mark.timeout(size(240, 3_000))
async def test_tasks_of_several_messages_from_agent_to_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Totals, the certificate of the law, and every hostile message counted as rejected, in one
    release per task, which says how far one device could move it; no device answers what keeps no
    epsilon0 without its owner's word.

    Planted: rows counted for devices at the shuffler -> the window closes early, fails; the signed
    count's n taken from messages -> fails.
    """
    site = prepare(tmp_path, free_port)
    asked = [ask(site, *design, N) for design in designs()]
    async with running(site):
        await send_hostile(site, asked)
        await answer(site, asked, tmp_path)
        tasks = tuple(
            SimulatedTask(one.signed_task, one.signed_schedule, values_of(one)) for one in asked
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
    asks_rectangle(site.analyzer_data, found, capsys)


def asks_rectangle(
    data: Path, found: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The command, on what the services released: the same as of the release itself."""
    (told,) = (one for one in found.values() if "map" in one)
    asked = ["results", "rectangle", f"{told['name']}:0", "--north", "48.1", "--data", str(data)]
    assert main([*asked, "--json"]) == 0
    counted = json.loads(capsys.readouterr().out)
    assert counted["value"] == pytest.approx(rectangle_of(told, north=48.1).value)
    assert main([*asked, "--west", "11.15"]) == 2
    assert "11.100000 or 11.200000" in capsys.readouterr().err


def values_of(one: Asked[Several]) -> tuple[Value, ...]:
    if isinstance(one.task.domain, YesNo):
        return tuple(value in (1, 2) for value in VALUES)
    if isinstance(one.task.domain, Places):
        return tuple(map(place_of, VALUES))
    return VALUES


def agents_of(one: Asked[Several]) -> Value:
    return place_of(AGENTS) if isinstance(one.task.domain, Places) else AGENTS


def place_of(value: Value) -> Value:
    """A place in the cell of that number; of others elsewhere."""
    if not isinstance(value, int):
        return value
    return PLACES.text_of(value) if value < PLACES.size - 1 else '{"lat": -1, "lon": 2.5e0}'


def unopenable(assignment: Assignment, ack_key: bytes) -> bytes:
    """A frame of shares, one of which is sealed for another task."""
    task, task_id, keys = assignment.task, assignment.task_id, assignment.keys
    ids = [task_id] * (task.messages - 1) + [TaskId(bytes(TaskId.SIZE))]
    analyzer, hop = keys.analyzer_keys[0], keys.hop_keys[0]
    sealed = tuple(
        seal_report(analyzer, one, 0, os.urandom(NONCE_SIZE), bytes(task.report_size))
        for one in ids
    )
    return seal_frame(hop, HopContent(task_id, 0, ack_key, analyzer.key_id, b"", sealed))


def check_sum(asked: Asked[Several], release: dict[str, Any]) -> None:
    """Hostile devices count as ones with the least number: nothing tells them from others."""
    assert (release["n"], release["withheld"], release["rejected"]) == (N + HOSTILE, None, {})
    answered = [3.5 if value is None else float(value) for value in (*VALUES, AGENTS)]
    mean = sum(answered) / (N + HOSTILE)
    (estimate,) = release["estimates"]
    error = asked.mechanism.expected_stderr(N + HOSTILE)
    assert abs(estimate["value"] - mean) < 9 * error, (estimate, mean, error)
    assert estimate["stderr"] == pytest.approx(error)
    assert release["privacy"]["method"] == guarantee_of(asked.task).method
    assert release["privacy"]["epsilon_upper"] <= EPSILON


def check(asked: Asked[Several], release: dict[str, Any]) -> None:
    mechanism, task = asked.mechanism, asked.task
    if task.name == SPOILED:
        assert release["withheld"] == WITHHELD_NOT_WHOLE
        assert release["rejected"] == {UNOPENABLE: HOSTILE}
        assert release["estimates"] == []
        return
    assert liar_words(mechanism) in release["privacy"]["assumptions"]
    if isinstance(mechanism, SplitMix):
        check_sum(asked, release)
        return
    assert (release["n"], release["withheld"]) == (N, None), task.name
    assert release["rejected"] == {"invalid value": HOSTILE}, release["rejected"]
    guarantee, privacy = guarantee_of(task), release["privacy"]
    drawn = math.isfinite(mechanism.epsilon0)
    assert privacy["epsilon0"] == (mechanism.epsilon0 if drawn else None)
    assert mechanism.epsilon0 <= COLLUDING or not drawn
    assert privacy["epsilon_upper"] == guarantee.epsilon_upper <= EPSILON
    assert privacy["method"] == guarantee.method
    cells = np.array([task.domain.encode(value) for value in (*values_of(asked), agents_of(asked))])
    counts = np.bincount(cells, minlength=task.domain.size)
    assert isinstance(mechanism, Noisy | ShufflerNoise)
    # each refused message is one of those that a report has on average
    heard = N + HOSTILE - math.floor(HOSTILE / mechanism.mean_messages)
    assert len(release["estimates"]) == len(counts)
    for estimate, total in zip(release["estimates"], counts.tolist(), strict=True):
        if isinstance(mechanism, ShufflerNoise):
            error = mechanism.expected_stderr(heard)
        else:
            error = mechanism.stderr_of(heard, total)
        if isinstance(mechanism, Ranges | MapBlocks):  # that of the cell which errs most
            assert estimate["stderr"] <= error * (1 + 1e-9)
            error = estimate["stderr"]
        assert abs(estimate["value"] - total) < 9 * error, (task.name, estimate, total, error)
        assert estimate["stderr"] == pytest.approx(error, rel=0.1 if drawn else 1e-6)
        assert estimate["ci_low"] < estimate["value"] < estimate["ci_high"]
    if isinstance(mechanism, Ranges):
        check_ranges(release, counts, heard)
    if isinstance(mechanism, MapBlocks):
        check_map(release, counts, heard)


def check_map(release: dict[str, Any], counts: NDArray[np.int64], heard: int) -> None:
    """Rectangles that are asked of the release afterwards. ``heard``: devices that estimates are
    of.
    """
    table = counts[:-1].reshape(2, 3)
    for bounds, truth in (
        ({}, table.sum()),
        ({"north": 48.1}, table[0].sum()),
        ({"west": 11.1, "east": 11.2, "south": 48.1}, table[1, 1]),
    ):
        found = rectangle_of(release, **bounds)
        assert abs(found.value - int(truth)) < 9 * found.stderr, (bounds, found, truth)
    assert sum(row["value"] for row in release["estimates"]) == pytest.approx(heard)


def check_ranges(release: dict[str, Any], counts: NDArray[np.int64], heard: int) -> None:
    """Ranges that are asked of the release afterwards, and the median. ``heard``: as for maps."""
    for low, high in ((0, 3), (2, 7), (1, None), (7, None)):
        found = range_of(release, low, high)
        truth = int(counts[low : len(counts) - 1 if high is None else high].sum())
        assert abs(found.value - truth) < 9 * found.stderr, (low, high, found, truth)
    assert sum(row["value"] for row in release["estimates"]) == pytest.approx(heard)
    answered = np.repeat(np.arange(len(counts) - 1), counts[:-1])
    middle = {row["share"]: row for row in release["quantiles"]}[0.5]
    assert middle["ci_low"] - 2 <= np.median(answered) <= middle["ci_high"] + 2
