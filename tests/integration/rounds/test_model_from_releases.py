"""``shoal results model``: beside real services, whose agents learn, the model that follows from
the analyzer's store; with a round that is lost, and with releases that are not there.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.accounting.sums.windows import epsilon_of_task
from shoal.cli.main import main
from shoal.cli.results.learnt import FollowedModel, Learning, learnt
from shoal.clients.rounds.learning import follow
from shoal.errors import Kind, ShoalError
from shoal.protos.release_pb2 import SignedRelease
from shoal.questions.learning import begin_learning
from shoal.questions.plan_words import plan_of
from tests.integration.rounds.test_agent import NAME, agent_of, config
from tests.integration.rounds.test_learning import PLAN, LearningWorld, answered
from tests.worlds.rounds.services import Running, running
from tests.worlds.services.shuffler import GRACE, LENGTH, START

Capture = pytest.CaptureFixture[str]


def settings_of(one: Running) -> Path:
    """The analyzer's configuration as a file."""
    made, path = one.world.analyzer_config(), one.world.folder / "analyzer" / "analyzer.toml"
    # fmt: off
    path.write_text(
        f'listen = "127.0.0.1:1"\nadmin_listen = "127.0.0.1:0"\ndata_dir = "data"\n'
        f'tasks_dir = "{made.tasks_dir}"\nkeys_dir = "keys"\nsigning_key = "signing.key"\n'
        f"authorities = {json.dumps(made.authorities)}\n"
        f"allowed_shufflers = {json.dumps(made.allowed_shufflers)}\n"
        '[tls]\ncertificate = "tls.pem"\nkey = "tls.key"\nclient_ca = "ca.pem"\n'
    )
    # fmt: on
    return path


def signed_of(one: Running) -> dict[int, bytes]:
    return {
        stored.window: SignedRelease(
            release=stored.release, signature=stored.signature
        ).SerializeToString()
        for stored in one.store.releases()
    }


async def ask(capsys: Capture, path: Path, *more: str) -> dict[str, Any]:
    arguments = ["results", "model", NAME, "--config", str(path), "--json", *more]
    assert await asyncio.to_thread(main, arguments) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


async def test_the_model_follows_from_the_store(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first window it is the agents' own model, to the last bit; the second is lost, as
    nobody comes, and the model stays while its epsilon counts. Planted: a withheld round that is
    left out of the epsilon -> fails.
    """
    world = LearningWorld(tmp_path / "services", devices=8, survivors_min=6)
    async with running(world) as one:
        path, served = settings_of(one), one.world.published.served
        first = await ask(capsys, path)
        assert (first["rounds_over"], first["epsilon_so_far"]) == (0, 0.0)
        agents = [agent_of(one, config(one, tmp_path / f"{i}", world.device())) for i in range(8)]
        for agent in agents:
            await agent.__aenter__()
        await answered(agents, [begin_learning(PLAN) for _ in agents])
        for agent in agents:
            await agent.__aexit__(None, None, None)
        one.clock.advance(LENGTH + GRACE + 1)
        await one.until(lambda: one.store.released(served.task_id, 0))
        signed = signed_of(one)
        own = follow(PLAN, served.task, served.task_id, begin_learning(PLAN), signed[0])
        for _ in range(2):
            told = await ask(capsys, path)
            assert list(told["weights"]) == list(PLAN.names(("x", "y")))
            assert list(told["weights"].values()) == own.weights.tolist()
            assert (told["rounds_over"], told["rounds_used"]) == (1, 1)
            assert told["epsilon_so_far"] == epsilon_of_task(served.task, 1, served.task.delta)
        check_waiting(one, signed)
        one.clock.advance(LENGTH)
        await one.until(lambda: one.store.released(served.task_id, 1))
        out = tmp_path / "model.json"
        told = await ask(capsys, path, "--out", str(out))
        assert told == json.loads(out.read_text())
        assert (told["state"], told["rounds_over"], told["rounds_used"]) == ("over", 2, 1)
        assert list(told["weights"].values()) == own.weights.tolist()
        assert told["by_round"][1]["withheld"]
        assert told["by_round"][1]["devices"] == 0
        assert told["epsilon_so_far"] == epsilon_of_task(served.task, 2, served.task.delta)
        assert told["epsilon_so_far"] > told["by_round"][0]["epsilon_so_far"]
        watched = ["results", "model", NAME, "--config", str(path), "--watch"]
        assert await asyncio.to_thread(main, watched) == 0  # it ends, as all rounds are over
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(":")[0] for line in lines if line.startswith("round")] == [
            "round 1",
            "round 2",
        ]
        assert lines[-1] == "all 2 rounds are over."
        assert await asyncio.to_thread(main, [*watched, "--out", str(out)]) == 2  # it is there
        check_refused(one, signed_of(one))
        check_followed_once(one, signed_of(one), monkeypatch)
        mistyped = ["results", "model", "nosuch", "--config", str(path)]
        assert await asyncio.to_thread(main, mistyped) == 2
        assert f"there are {NAME}" in capsys.readouterr().err


def check_waiting(one: Running, signed: dict[int, bytes]) -> None:
    """What is waited for, at moments; and that a round whose release never comes ends it clearly,
    with the model so far.
    """
    served = one.world.published.served
    second = START + LENGTH
    kept = served.task.retention_s + served.task.windows.skew_s
    for now, stand, said in (
        (second - 1, Learning.GOING_ON, "not begun"),
        (second + 1, Learning.GOING_ON, "runs"),
        (second + LENGTH + GRACE + 1, Learning.GOING_ON, "waited for"),
        (second + kept - 1, Learning.GOING_ON, "waited for"),
        (second + kept, Learning.STOPPED, "the model follows from the 1 before"),
    ):
        found = learnt(served, signed, now)
        assert (found.stand, said in found.why) == (stand, True), found.why
        assert found.state.done == 1


def check_followed_once(
    one: Running, signed: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is the same. Planted: all releases followed at every look -> fails; one that became
    another kept -> fails.
    """
    asked = list[bytes]()

    def counted(*arguments: Any) -> Any:
        asked.append(arguments[4])
        return follow(*arguments)

    monkeypatch.setattr("shoal.cli.results.learnt.follow", counted)
    model = FollowedModel(one.world.published.served)
    first = model.look({0: signed[0]}, START)
    assert asked == [signed[0]]
    for _ in range(2):
        found = model.look(signed, START)
        assert asked == [signed[0], signed[1]]
        assert (found.state.done, len(found.rounds)) == (2, 2)
        assert found.rounds[:1] == first.rounds
    assert model.look({0: signed[0]}, START).state.done == 1
    with pytest.raises(ShoalError):
        model.look({0: signed[1]}, START)
    assert asked[2:] == [signed[0], signed[1]]


def check_refused(one: Running, signed: dict[int, bytes]) -> None:
    """A gap, a forged release, another window's."""
    served = one.world.published.served
    gap = learnt(served, {1: signed[1]}, START)
    assert (gap.stand, gap.state.done) == (Learning.STOPPED, 0)
    assert "window 0 is missing" in gap.why
    assert not np.any(gap.state.weights)
    message = SignedRelease.FromString(signed[0])
    forged = SignedRelease(release=message.release, signature=bytes(64)).SerializeToString()
    for wrong, kind in ((forged, Kind.BAD_SIGNATURE), (signed[1], Kind.MISMATCH)):
        with pytest.raises(ShoalError) as refused:
            learnt(served, {0: wrong}, START)
        assert refused.value.kind is kind
    assert plan_of(served.task) == PLAN
