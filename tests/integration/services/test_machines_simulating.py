"""``shoal plan --simulate`` over workers on other machines: the same figures, a worker that is
lost, one that lies, and what a worker still holds back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.analyzer.machines import simulating
from shoal.analyzer.machines.comms import over_tls, workers_of
from shoal.analyzer.machines.connection import WorkerConnection, open_connection
from shoal.analyzer.machines.messages import Ask, join_parts, split_parts
from shoal.analyzer.machines.rehearsing import order_of, stretch_of
from shoal.analyzer.machines.simulating import SimulatingMachines
from shoal.analyzer.planner import Frequencies, simulate
from shoal.analyzer.planner.simulation.crowd import ByCounts
from shoal.analyzer.planner.simulation.simulate import HERE
from shoal.analyzer.planner.simulation.stretches import (
    Engine,
    Rehearsal,
    Stretch,
    stretches_of,
    tallies_of,
)
from shoal.cli.main import main
from shoal.crypto.keyfiles import save_signing_key
from shoal.crypto.signing import SigningKey
from shoal.domain import YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally, create, design
from tests.worlds.machines import Machines, machines

MECHANISM = create(design("binary_rr", YesNo(), 2.0), YesNo())
N, RUNS = 2_000_000, 3
WORK = Rehearsal(MECHANISM, ByCounts(np.array([N, 0])), SeededEntropy("machines"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("machines")) as made:
        yield made


def engine_of(world: Machines) -> SimulatingMachines:
    return SimulatingMachines(world.cluster(), YesNo())


def test_workers_come_to_the_same_figures(world: Machines) -> None:
    """With one seed, in this process and on two others. Planted: a worker that draws from its
    system whatever the seed, a stretch whose number is not sent -> each fails.
    """

    def figures(engine: Engine) -> object:
        seeded = SeededEntropy("anywhere")
        question = Frequencies(YesNo())
        return simulate(question, MECHANISM, YesNo(), N, RUNS, entropy=seeded, engine=engine)

    assert figures(engine_of(world)) == figures(HERE)


async def test_the_stretches_of_a_lost_worker_start_over(
    world: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's connection ends while it has stretches. Planted: UNAVAILABLE let through; a
    stretch given up, or counted twice -> each fails.
    """
    ask, lost = WorkerConnection.ask, list[str]()

    async def once(self: WorkerConnection, what: Ask, *parts: bytes) -> object:
        if not lost:
            lost.append(self.name)
            self._line.abort()
        return await ask(self, what, *parts)

    monkeypatch.setattr(WorkerConnection, "ask", once)
    found: list[Stretch] = []
    total = Tally(np.zeros(2, dtype=np.int64), 0)
    async for stretch, tallies in engine_of(world).over(WORK, stretches_of(MECHANISM, N, RUNS)):
        found.append(stretch)
        for tally in tallies:
            total += tally
    expected = [each for stretch in found for each in tallies_of(WORK, stretch)]
    assert lost
    assert total == sum(expected, Tally(np.zeros(2, dtype=np.int64), 0))
    assert len(found) == len(set(found)) == len(list(stretches_of(MECHANISM, N, RUNS)))


async def test_a_worker_that_answers_for_other_devices_is_named(
    world: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One report more, and one fewer. Planted: ``tallies_from`` left out -> fails."""
    ask, liars = WorkerConnection.ask, set[str]()
    for more in (1, -1):

        async def lying(
            self: WorkerConnection, what: Ask, *parts: bytes, more: int = more
        ) -> object:
            answer: Any = await ask(self, what, *parts)
            liars.add(self.name)
            tallies = [Tally.from_bytes(each) for each in split_parts(answer)]
            wrong = [Tally(0 * each.counts, each.rows + more) for each in tallies]
            return join_parts(*(each.to_bytes() for each in wrong))

        monkeypatch.setattr(WorkerConnection, "ask", lying)
        with pytest.raises(ShoalError) as caught:
            await anext(engine_of(world).over(WORK, stretches_of(MECHANISM, N, RUNS)))
        assert caught.value.kind is Kind.MISMATCH
        assert any(name in str(caught.value) for name in liars)
        assert "simulated reports, asked for" in str(caught.value)


async def test_refusals_come_back_typed_and_end_no_connection(world: Machines) -> None:
    """Planted: what a worker refuses raised in its thread -> its
    connection is lost, fails.
    """
    cluster = world.cluster()
    async with cluster.used():
        worker = await cluster.reserve()
        with pytest.raises(ShoalError) as caught:
            await worker.ask(Ask.SIMULATE, b"no order")
        assert caught.value.kind is Kind.INVALID
        asked = order_of(WORK, YesNo()), stretch_of(Stretch(range(1), range(1000)))
        with pytest.raises(ShoalError) as caught:
            await worker.ask(Ask.SIMULATE, asked[0], asked[1] + b"x")
        assert "can't be done by a worker" in str(caught.value)
        answer = await worker.ask(Ask.SIMULATE, *asked)
        assert isinstance(answer, bytes)
        cluster.release(worker)


def test_the_command_uses_the_workers_of_a_file(
    world: Machines,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As an operator types it, with the figures of one process. Planted: --engine read and not used
    -> no worker is asked, fails.
    """
    save_signing_key(tmp_path / "signing.key", world.analyzer_key)
    file = tmp_path / "analyzer.toml"
    file.write_text(f'signing_key = "signing.key"\nopening = {world.opening()}\n')
    asked = 0
    over = simulating.SimulatingMachines.over

    def counted(self: SimulatingMachines, *given: Any) -> Any:
        nonlocal asked
        asked += 1
        return over(self, *given)

    monkeypatch.setattr(simulating.SimulatingMachines, "over", counted)
    common: tuple[str, ...] = (
        "plan",
        "yes_no",
        "--n",
        "300000",
        "--epsilon",
        "1",
        "--mechanism",
        "binary_rr",
    )
    common += ("--simulate", "9", "--seed", "4", "--json")
    found = []
    for more in ((), ("--engine", str(file))):
        assert main([*common, *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["simulation"])
    assert found[0] == found[1]
    assert asked == 1
    for arguments, words in (
        ((*common, "--engine", str(file), "--processes", "2"), "leave one of the two out"),
        ((*common, "--engine", str(tmp_path / "none.toml")), "none.toml"),
        ((*common[:8], "--engine", str(file)), "--engine goes with --simulate"),
    ):
        assert main(list(arguments)) == 2
        assert words in capsys.readouterr().err
    file.write_text('signing_key = "signing.key"\nopening = { engine = "processes" }\n')
    assert main([*common, "--engine", str(file)]) == 2
    assert 'those of "dask"' in capsys.readouterr().err


async def test_a_stranger_is_simulated_nothing(world: Machines) -> None:
    """Another analyzer's key: the worker ends the connection before it reads a request. Planted:
    the analyzer's signature not verified -> fails.
    """
    found = await workers_of(over_tls(world.address), world.tls.security())
    trusted = frozenset(world.identities)
    one = await open_connection(
        next(iter(found)), world.tls.security(), SigningKey.generate(), trusted
    )
    try:
        with pytest.raises(ShoalError) as caught:
            await one.ask(
                Ask.SIMULATE, order_of(WORK, YesNo()), stretch_of(Stretch(range(1), range(9)))
            )
        assert caught.value.kind is Kind.UNAVAILABLE
    finally:
        await one.close()
