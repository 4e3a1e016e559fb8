"""The device as its owner runs it: real processes, TLS, SIGKILL between queueing, sending and the
receipt.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import Kind, ShoalError
from tests.worlds.devices.clients import FarEnd, World, make_world

HOUR = 3_600


@dataclass
class Owner:
    """A device's folder, and ``shoal agent`` on it."""

    folder: Path
    world: World

    def __post_init__(self) -> None:
        self.world.write(self.folder / "tasks")
        self.consent("allowed")

    def consent(self, answer: str) -> None:
        (self.folder / "agent.toml").write_text(
            'tasks = "tasks"\noutbox = "outbox.db"\n[policy]\nauthorities = '
            f'["{self.world.authority.public.hex()}"]\n'
            "max_epsilon0 = 4.0\nmin_batch_floor = "
            f'100\n[policy.purposes]\n"{self.world.task.purpose}" = "{answer}"\n'
        )

    async def run(
        self, command: str, *arguments: str, failpoints: str = "", typed: bytes = b""
    ) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "shoal.cli.main",
                "agent",
                command,
                "--config",
                str(self.folder / "agent.toml"),
                *arguments,
            ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "SHOAL_FAILPOINTS": failpoints},
        )
        out, err = await process.communicate(typed)
        assert process.returncode is not None
        assert b"Traceback" not in err
        return process.returncode, out.decode(), err.decode()

    async def json(self, command: str, *arguments: str) -> Any:
        _, out, _ = await self.run(command, "--json", *arguments)
        return json.loads(out)


def now() -> int:
    import time

    return int(time.time())


def owner_of(folder: Path, far: FarEnd, world: World | None = None) -> Owner:
    world = world or make_world(f"localhost:{far.port}", start=now() - HOUR // 2, length=HOUR)
    far.hops[:] = [world.hop]
    return Owner(folder, world)


async def test_a_report_over_the_command_line(tmp_path: Path) -> None:
    """Delivered once; a second one in the window is ignored and says so; the value can come from
    standard input.
    """
    async with FarEnd([]).serving() as far:
        owner = owner_of(tmp_path, far)
        code, out, err = await owner.run("report", "visits", "-", typed=b"3\n")
        assert (code, err) == (0, "")
        assert out == "task visits, window 0: delivered, the shuffler has it on disk\n"
        again = await owner.json("report", "visits", "9")
        assert (again["state"], again["fresh"], again["window"], again["kind"]) == (
            "acked",
            False,
            0,
            None,
        )
        code, out, _ = await owner.run("report", "visits", "9")
        assert code == 0
        assert "answered before, this value was ignored" in out
        assert await owner.json("flush") == []
        status = await owner.json("status")
        assert [report["state"] for report in status["reports"]] == ["acked"]
        (task,) = status["tasks"]
        assert (task["consent"], task["refusal"], task["window"]) == ("allowed", None, 0)
        code, out, _ = await owner.run("status")
        assert code == 0
        assert owner.world.task.purpose in out
    assert len(far.frames) == 1


@pytest.mark.parametrize("point", ["client.send=exit", "client.receipt=exit"])
async def test_kill_9_between_queueing_and_the_receipt_and_the_same_bytes_go_again(
    tmp_path: Path, point: str
) -> None:
    """Killed before anything was sent, and killed after the shuffler had it. Planted: no fsync'd
    row before sending, or a fresh sealing at the restart -> no frame, or another one; two entries
    at the far end.
    """
    async with FarEnd([]).serving() as far:
        owner = owner_of(tmp_path, far)
        code, _, _ = await owner.run("report", "visits", "3", failpoints=point)
        assert code == -signal.SIGKILL
        (held,) = (await owner.json("status"))["reports"]
        assert (held["state"], held["attempts"]) == ("queued", 1)
        (outcome,) = await owner.json("flush")
        assert (outcome["state"], outcome["attempts"]) == ("acked", 2)
    assert len(far.frames) == (1 if point == "client.send=exit" else 2)
    assert len(set(far.frames)) == 1
    assert len(far.contents) == 1


async def test_kill_9_before_the_commit_leaves_nothing(tmp_path: Path) -> None:
    async with FarEnd([]).serving() as far:
        owner = owner_of(tmp_path, far)
        await owner.run("status")  # the task's schedule is remembered
        code, _, _ = await owner.run("report", "visits", "3", failpoints="outbox.commit=exit")
        assert code == -signal.SIGKILL
        assert (await owner.json("status"))["reports"] == []
        assert far.frames == []
        assert (await owner.json("report", "visits", "3"))["fresh"]


async def test_kill_9_before_the_outcome_is_kept_and_the_same_bytes_go_again(
    tmp_path: Path,
) -> None:
    """The second commit of a report, and its last. Planted: acknowledged in memory alone, the bytes
    gone -> nothing to flush.
    """
    async with FarEnd([]).serving() as far:
        owner = owner_of(tmp_path, far)
        await owner.run("status")  # the task's schedule is remembered
        code, _, _ = await owner.run("report", "visits", "3", failpoints="outbox.commit=exit@2")
        assert code == -signal.SIGKILL
        assert len(far.frames) == 1
        (held,) = (await owner.json("status"))["reports"]
        assert (held["state"], held["attempts"]) == ("queued", 1)
        (outcome,) = await owner.json("flush")
        assert (outcome["state"], outcome["attempts"]) == ("acked", 2)
    assert len(far.frames) == 2
    assert len(set(far.frames)) == len(far.contents) == 1


async def test_offline_then_online(tmp_path: Path) -> None:
    """Nobody listens: queued, exit 0; flush says what is wrong, exit 1; then it is delivered."""
    far = FarEnd([])
    async with far.serving():
        port = far.port
    owner = owner_of(tmp_path, far)
    code, out, _ = await owner.run("report", "visits", "3")
    assert code == 0
    assert "queued, not sent yet" in out
    code, out, _ = await owner.run("flush")
    assert code == 1
    assert "can't be reached" in out
    async with far.serving(port):
        (outcome,) = await owner.json("flush")
    assert outcome["state"] == "acked"
    assert len(far.frames) == 1


async def test_a_forged_receipt_is_not_believed(tmp_path: Path) -> None:
    async with FarEnd([], lambda number, _: bytes(32) if number == 0 else None).serving() as far:
        owner = owner_of(tmp_path, far)
        outcome = await owner.json("report", "visits", "3")
        assert (outcome["state"], outcome["kind"]) == ("queued", "BAD_SIGNATURE")
        (outcome,) = await owner.json("flush")
        assert outcome["state"] == "acked"
    assert len(set(far.frames)) == 1


async def test_a_final_refusal_is_told_and_exits_1(tmp_path: Path) -> None:
    async with FarEnd(
        [], lambda _n, _f: ShoalError(Kind.WINDOW_FULL, "the window has its reports")
    ).serving() as far:
        owner = owner_of(tmp_path, far)
        code, out, _ = await owner.run("report", "visits", "3")
        assert code == 1
        assert out == "task visits, window 0: refused: the window has its reports\n"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["visits"], 2, "give either a VALUE"),
        (["visits", "3", "--no-answer"], 2, "give either a VALUE"),
        (["nonesuch", "3"], 1, "known are visits"),
    ],
)
async def test_wrong_requests_are_one_line(
    tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    owner = owner_of(tmp_path, FarEnd([]), make_world("127.0.0.1:1", start=now() - 10))
    found, out, err = await owner.run("report", *arguments)
    assert (found, out) == (code, "")
    assert err.startswith("shoal: ")
    assert text in err
    assert err.count("\n") == 1


async def test_a_denied_purpose_sends_nothing(tmp_path: Path) -> None:
    async with FarEnd([]).serving() as far:
        owner = owner_of(tmp_path, far)
        owner.consent("denied")
        code, _, err = await owner.run("report", "visits", "3")
        assert code == 1
        assert "denied" in err
        assert (await owner.json("status"))["reports"] == []
    assert far.frames == []


async def test_a_broken_configuration_is_named(tmp_path: Path) -> None:
    owner = owner_of(tmp_path, FarEnd([]), make_world("127.0.0.1:1", start=now() - 10))
    (tmp_path / "agent.toml").write_text("outboxes = 3\n")
    code, _, err = await owner.run("report", "visits", "3")
    assert code == 2
    assert err == "shoal: agent.toml: policy: required, but missing\n"
    assert owner.folder == tmp_path
