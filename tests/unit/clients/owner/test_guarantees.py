"""What certificates guarantee: computed by a child, remembered while the code stays the same,
computed here where no child can.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from shoal import codec
from shoal.accounting.of_task import guarantee_of
from shoal.clients.core import Assignment, assign
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.owner import guarantees
from shoal.clients.owner.guarantees import Guarantees, computed_apart, revision
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import YesNo
from shoal.errors import Kind, ShoalError
from shoal.task import Task
from tests.unit.clients.owner.device_of_an_owner import Device
from tests.worlds.devices.clients import make_world
from tests.worlds.devices.owner import owner_at

HERE, THERE = 0.125, 0.25  # what this process computes, and what a child does, in tests without one


def assignment_of(change: Callable[[Task], Task] = lambda task: task) -> Assignment:
    world = make_world()
    world.task = change(world.task)
    world.sign()
    trusted = trust_task(world.signed_task, world.authorities)
    return assign(trusted, trust_schedule(world.signed_schedule, trusted))


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children, as everywhere but in this process of tests."""
    monkeypatch.setattr(guarantees, "_interpreter", lambda: sys.executable)


class Count:
    """In the place of children and of this process's own computation: how often each was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there, self.here = 0, 0
        self.answer: tuple[float | None, str] = THERE, revision()
        monkeypatch.setattr(guarantees, "computed_apart", self._apart)
        monkeypatch.setattr(guarantees, "_epsilon", self._here)

    def _apart(self, _: Task, __: object) -> tuple[float | None, str] | None:
        self.there += 1
        return self.answer

    def _here(self, *_: object) -> float | None:
        self.here += 1
        return HERE


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    return Count(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Where a file may be. Nothing else is left beside it."""
    yield tmp_path / "outbox.db.certificates"
    assert {file.name for file in tmp_path.iterdir()} <= {"outbox.db.certificates"}


# --- the child ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("child")
def test_a_child_computes_what_this_process_would() -> None:
    """To the last bit. Planted: another delta in the child; ``epsilon_lower`` -> fails."""
    for world in (
        make_world(),
        make_world(mechanism="binary_rr", domain=YesNo(), epsilon0=1.0, min_batch=500),
    ):
        expected = guarantee_of(world.task).epsilon_upper
        assert computed_apart(world.task) == (expected, revision())


@pytest.mark.usefixtures("child")
def test_what_can_not_be_certified_is_an_answer_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typed refusal: remembered, and not computed here again. Planted: a child that fails by it
    -> this process computes, and fails.
    """
    assignment = assignment_of(lambda task: replace(task, delta=1e-101))
    assert computed_apart(assignment.task) == (None, revision())
    monkeypatch.setattr(guarantees, "_epsilon", lambda *_: pytest.fail("computed here"))
    assert Guarantees(path).epsilon(assignment) is None
    monkeypatch.setattr(guarantees, "computed_apart", lambda *_: pytest.fail("computed again"))
    assert Guarantees(path).epsilon(assignment) is None


@pytest.mark.usefixtures("child")
def test_no_module_of_the_working_folder_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: no -P -> the folder's json.py is imported, and the child fails."""
    (tmp_path / "json.py").write_text("raise SystemExit(1)")
    (tmp_path / "shoal.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert computed_apart(make_world().task) is not None


def test_the_child_looks_for_modules_where_this_process_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: -P alone -> it reads a PYTHONPATH that this process was told to leave alone."""
    for flags, expected in (
        ((0, 0, 0), ["-P"]),
        ((0, 1, 1), ["-P", "-E", "-s"]),
        ((1, 1, 1), ["-I"]),
    ):
        named = dict(zip(("isolated", "ignore_environment", "no_user_site"), flags, strict=True))
        monkeypatch.setattr(
            "shoal.clients.owner.guarantees.sys", SimpleNamespace(flags=SimpleNamespace(**named))
        )
        assert guarantees._flags() == expected


FAILURES = {
    "no program": None,
    "fails": "exit 1",
    "says nothing": "exit 0",
    "babbles": "echo hello",
    "is no number": """echo '{"epsilon": "0.1", "revision": "ab"}'""",
    "is NaN": """echo '{"epsilon": NaN, "revision": "ab"}'""",
    "is infinite": """echo '{"epsilon": Infinity, "revision": "ab"}'""",
    "is below 0": """echo '{"epsilon": -0.1, "revision": "ab"}'""",
    "is true": """echo '{"epsilon": true, "revision": "ab"}'""",
    "lacks the epsilon": """echo '{"revision": "ab"}'""",
    "lacks the revision": """echo '{"epsilon": 0.1}'""",
    "is a list": "echo '[]'",
    "fails after its answer": """echo '{"epsilon": 0.1, "revision": "ab"}'; exit 3""",
    "hangs": "exec sleep 60",
}


@pytest.mark.parametrize("script", FAILURES.values(), ids=FAILURES)
def test_where_a_child_fails_this_process_computes(
    script: str | None, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not remember it: its code may be older than its files. Planted: a failing child
    taken for a refusal; the range unchecked.
    """
    program = path.with_name("python3")
    if script is not None:
        program.write_text(f"#!/bin/sh\ncat > /dev/null\n{script}\n")
        program.chmod(0o700)
    monkeypatch.setattr(guarantees, "_interpreter", lambda: str(program))
    monkeypatch.setattr(guarantees, "_epsilon", lambda *_: HERE)
    if script and "sleep" in script:
        monkeypatch.setattr(guarantees, "CHILD_S", 0.05)
    assert Guarantees(path).epsilon(assignment_of()) == HERE
    assert not path.exists()
    program.unlink(missing_ok=True)


async def test_an_agent_that_ends_waits_for_no_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM would take a minute, and more where this process went on by itself. Planted: no
    ``close`` in ``__aexit__``, or no kill -> waits until the time limit; a child that was killed
    taken for one that failed -> this process computes.
    """
    monkeypatch.setattr(guarantees, "_epsilon", lambda *_: pytest.fail("computed here"))
    device, program, began = (
        Device(tmp_path, make_world()),
        tmp_path / "python3",
        tmp_path / "began",
    )
    program.write_text(
        f"#!/bin/sh\necho $$ > {began}.new\nmv {began}.new {began}\nexec sleep 100\n"
    )
    program.chmod(0o700)
    monkeypatch.setattr(guarantees, "_interpreter", lambda: str(program))
    monkeypatch.setattr(guarantees, "CHILD_S", 100.0)
    async with device.agent() as agent:
        asking = asyncio.create_task(agent.report("visits", 3))
        while not began.exists():
            await asyncio.to_thread(lambda: None)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()  # as the end of the program does
    with pytest.raises(ProcessLookupError):
        os.kill(int(began.read_text()), 0)
    with pytest.raises(ShoalError) as caught:
        agent._guarantees.epsilon(agent.tasks.find("visits"))
    assert caught.value.kind is Kind.UNAVAILABLE
    assert device.entries(LedgerEvent.REPORTED) == []


def test_a_child_whose_parent_was_killed_ends_by_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGALRM ends it. Planted: no alarm -> fails."""
    alarms, task = list[int](), make_world().task
    monkeypatch.setattr(
        "shoal.clients.owner.guarantees.signal", SimpleNamespace(alarm=alarms.append)
    )
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(codec.encode_task(task))))
    guarantees.main()
    assert json.loads(capsys.readouterr().out)["revision"] == revision()
    assert alarms == [60]


@pytest.mark.parametrize(
    ("executable", "frozen", "starts"),
    [
        ("/usr/bin/python3.11", False, True),
        ("/opt/pypy3", False, True),
        ("/usr/bin/python3", True, False),
        ("", False, False),
        (None, False, False),
        ("/usr/sbin/uwsgi", False, False),
    ],
)
def test_only_a_plain_python_is_started(
    executable: str | None, frozen: bool, starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program would be started anew, agent and all. Planted: sys.frozen left out; any
    program's name -> fails.
    """
    monkeypatch.undo()  # the tests' own replacement
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    assert guarantees._interpreter() == (executable if starts else None)


# --- what is remembered ---------------------------------------------------------------------------


def test_a_restart_computes_nothing(count: Count, path: Path) -> None:
    """Planted: nothing written; keyed by something else than the task's id -> fails."""
    one, other = assignment_of(), assignment_of()
    assert one.task_id != other.task_id
    known = Guarantees(path)
    assert one.task_id not in known
    assert [known.epsilon(one), known.epsilon(one)] == [THERE, THERE]
    assert one.task_id in known
    assert Guarantees(path).epsilon(one) == THERE
    assert (count.there, count.here) == (1, 0)
    count.answer = (None, revision())
    assert Guarantees(path).epsilon(other) is None
    assert [Guarantees(path).epsilon(other), Guarantees(path).epsilon(one)] == [None, THERE]
    assert (count.there, count.here) == (2, 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_other_code_computes_all_of_it_anew(
    count: Count, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the revision left out of the comparison; old entries kept under the new revision ->
    fails.
    """
    one, other = assignment_of(), assignment_of()
    for assignment in (one, other):
        assert Guarantees(path).epsilon(assignment) == THERE
    monkeypatch.setattr(guarantees, "revision", lambda: "the next")
    count.answer = (0.5, "the next")
    assert Guarantees(path).epsilon(one) == 0.5
    stored = json.loads(path.read_text())
    assert stored == {"revision": "the next", "epsilons": {one.task_id.hex: 0.5}}
    assert Guarantees(path).epsilon(other) == 0.5


@pytest.mark.parametrize(
    ("said", "believed"), [("", THERE), ("of another Shoal on this machine", HERE)]
)
def test_what_a_child_of_other_code_says_is_not_remembered(
    count: Count, path: Path, said: str, believed: float
) -> None:
    """ "" where the files changed under the child. Planted: written under this process's own
    revision -> the next start believes it; any
    revision believed -> what an older accountant says is charged.
    """
    count.answer = (THERE, said)
    assignment = assignment_of()
    for times in (1, 2):
        assert Guarantees(path).epsilon(assignment) == believed
        assert count.there == times
    assert not path.exists()


def test_an_upgrade_while_the_child_runs_is_seen(
    count: Count, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the child's revision compared with the one before it was started -> computed here,
    of code that is half old.
    """
    revisions = iter(["before", *["after"] * 9])
    monkeypatch.setattr(guarantees, "revision", lambda: next(revisions))
    count.answer = (THERE, "after")
    assert Guarantees(path).epsilon(assignment_of()) == THERE
    assert json.loads(path.read_text())["revision"] == "after"


def test_without_sources_nothing_is_remembered(
    count: Count, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarantees, "revision", lambda: "")
    count.answer = (THERE, "")
    assert Guarantees(path).epsilon(assignment_of()) == THERE
    assert not path.exists()


DAMAGED = (
    b"",
    b"{",
    b"[]",
    b'"x"',
    b"\xff",
    b"[" * 5_000,
    b'{"epsilons": {}}',
    b'{"revision": "%s", "epsilons": []}',
)


@pytest.mark.parametrize(
    "content",
    [
        *DAMAGED,
        b'{"revision": "%s", "epsilons": {"%t": NaN}}',
        b'{"revision": "%s", "epsilons": {"%t": -1.0}}',
    ],
)
def test_a_damaged_file_is_written_anew(count: Count, path: Path, content: bytes) -> None:
    """Planted: the stored number taken unchecked -> NaN is charged."""
    assignment = assignment_of()
    path.write_bytes(
        content.replace(b"%s", revision().encode()).replace(b"%t", assignment.task_id.hex.encode())
    )
    assert [Guarantees(path).epsilon(assignment) for _ in range(2)] == [THERE, THERE]
    assert count.there == 1


@pytest.mark.parametrize("who", ["others may write", "another user", "a link", "a pipe"])
def test_a_file_that_others_may_have_written_is_not_believed(
    count: Count, path: Path, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of everybody's anybody can lay one down first. Planted: each of the four checks
    left out -> its number is charged, and the pipe is waited for.
    """
    assignment, away = assignment_of(), path.with_name("away")
    content = json.dumps({"revision": revision(), "epsilons": {assignment.task_id.hex: 1e-9}})
    path.write_text(content)
    path.chmod(0o600)
    assert Guarantees(path).epsilon(assignment) == 1e-9
    if who == "others may write":
        path.chmod(0o620)
    elif who == "another user":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    elif who == "a link":
        path.rename(away)
        path.symlink_to(away)
    else:
        path.unlink()
        os.mkfifo(path)
    assert Guarantees(path).epsilon(assignment) == THERE
    away.unlink(missing_ok=True)


def test_a_folder_that_can_not_be_written_is_no_failure(count: Count, tmp_path: Path) -> None:
    path = tmp_path / "gone" / "outbox.db.certificates"
    assert Guarantees(path).epsilon(assignment_of()) == THERE
    assert count.there == 1


def test_the_file_stays_small(count: Count, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first. Planted: the newest go -> fails."""
    monkeypatch.setattr(guarantees, "_MOST_TASKS", 3)
    assignments = [assignment_of() for _ in range(5)]
    for assignment in assignments:
        Guarantees(path).epsilon(assignment)
    assert list(json.loads(path.read_text())["epsilons"]) == [
        one.task_id.hex for one in assignments[2:]
    ]
    assert count.there == 5
    # an id of 64 digits, a number, signs between; x 1,000 tasks
    assert guarantees._MOST_BYTES > 100 * 1_000 + 200


def test_threads_compute_a_task_once(count: Count, path: Path) -> None:
    known, assignment = Guarantees(path), assignment_of()
    threads = [threading.Thread(target=known.epsilon, args=(assignment,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count.there == 1


def test_a_sum_states_its_own(count: Count, path: Path) -> None:
    assert Guarantees(path).epsilon(replace(assignment_of(), epsilon_apart=0.75)) == 0.75
    assert (count.there, count.here) == (0, 0)


# --- the revision ---------------------------------------------------------------------------------


def test_the_revision_changes_with_the_version_of_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which computes with the accountant. Planted: left out -> fails."""
    before = revision()
    (tmp_path / "version.py").write_text("version = '1'")
    monkeypatch.setattr(guarantees, "_version_of_numpy", lambda: tmp_path / "version.py")
    assert revision() not in {before, ""}
    monkeypatch.undo()
    assert guarantees._version_of_numpy().is_file()


# --- in an agent ----------------------------------------------------------------------------------


def test_the_file_is_free_while_a_certificate_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program writes meanwhile, as nothing else is left to wait for. The second report of a
    device computes nothing.

    Planted: the certificate computed inside the transaction (``Terms.central`` calling ``epsilon``)
    -> the write waits in vain, and fails.
    """
    owner, asked = owner_at(tmp_path, capsys), []

    def computed(task: Task, _: object) -> tuple[float | None, str]:
        asked.append(task.name)
        store = AgentStore(owner.outbox)
        with store.write() as db:
            db.execute("UPDATE report SET attempts = attempts")
        store.close()
        return THERE, revision()

    monkeypatch.setattr(guarantees, "computed_apart", computed)
    owner.write(consent="allowed")
    assert owner.run("report", "visits", "3", "--queue")[0] == 0
    (entry,) = [one for one in owner.json("ledger")["entries"] if one["event"] == "reported"]
    assert entry["details"]["epsilon_central"] == THERE
    assert owner.run("report", "visits", "3", "--queue")[0] == 0
    assert asked == ["visits"]
    assert (tmp_path / "outbox.db.certificates").is_file()
