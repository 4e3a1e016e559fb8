"""`shoal task publish`: both files verified first, folders that never hold two truths, and a
warning in the last window.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.cli.task import publish as task_publish
from shoal.crypto.hpke import generate
from shoal.crypto.keyfiles import save_hpke_key
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.task_folder import load_task_folder
from tests.flipped import last_bit_flipped
from tests.worlds.devices.clients import World, make_world

Capture = pytest.CaptureFixture[str]
AUTHORITY = SigningKey.generate()


def a_world(name: str = "visits", age: int = 100) -> World:
    """Three windows of an hour, the first of which began ``age`` seconds ago."""
    start = int(time.time()) - age  # not when this file was loaded: a whole run takes hours
    return make_world(authority=AUTHORITY, name=name, start=start, length=3_600, count=3)


class Desk:
    def __init__(self, folder: Path, capsys: Capture) -> None:
        self.folder, self.out, self._capsys = folder, folder / "out", capsys
        self.out.mkdir()

    def publish(
        self, *more: str, name: str = "visits", status: int = 0, where: bool = True
    ) -> tuple[str, str]:
        target = ["--dir", str(self.out)] if where else []
        code = main(["task", "publish", str(self.folder / f"{name}.task"), *target, *more])
        shown = self._capsys.readouterr()
        assert code == status, shown.err
        assert "Traceback" not in shown.err
        assert status == 0 or len(shown.err.strip().splitlines()) == 1
        return shown.out, " ".join(shown.err.split())

    @property
    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.out.iterdir())}


@pytest.fixture
def desk(tmp_path: Path, capsys: Capture) -> Desk:
    return Desk(tmp_path, capsys)


def test_a_folder_that_devices_and_services_read(desk: Desk) -> None:
    world = a_world()
    world.write(desk.folder)
    shown = json.loads(desk.publish("--json")[0])
    assert list(shown) == [
        "task_id",
        "name",
        "authority",
        "withdrawn",
        "mqtt",
        "topic",
        "dir",
        "last_window_ends",
        "warnings",
    ]
    assert (shown["task_id"], shown["mqtt"], shown["warnings"]) == (world.task_id.hex, None, [])
    assert list(load_task_folder(desk.out, world.authorities).served) == [world.task_id]
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in desk.out.iterdir())
    before = desk.files
    desk.publish()  # again: nothing changes
    assert desk.files == before
    assert "withdrawn from" in desk.publish("--withdraw")[0]
    assert desk.files == {}
    assert "is not this task" in desk.publish("--withdraw", status=2)[1]


@pytest.mark.parametrize("suffix", ["task", "keys"])
def test_nothing_is_published_that_does_not_verify(desk: Desk, suffix: str) -> None:
    """Planted: the key schedule not verified -> published, and this fails for it."""
    a_world().write(desk.folder)
    path = desk.folder / f"visits.{suffix}"
    data = path.read_bytes()
    path.write_bytes(last_bit_flipped(data))
    error = desk.publish(status=1)[1]
    assert path.name in error
    assert desk.files == {}
    path.unlink()
    assert path.name in desk.publish(status=2)[1]


def test_the_schedule_of_another_task_or_authority_is_refused(desk: Desk) -> None:
    a_world().write(desk.folder)
    a_world("steps").write(desk.folder)
    desk.publish("--keys", str(desk.folder / "steps.keys"), status=1)
    desk.publish("--trust", SigningKey.generate().public.hex(), status=1)
    assert desk.files == {}
    desk.publish("--trust", AUTHORITY.public.hex(), "--keys", str(desk.folder / "visits.keys"))


def test_a_folder_never_holds_two_schedules_or_one_task_twice(desk: Desk) -> None:
    """Planted: overwritten without a look -> two devices could get two schedules, and this
    fails.
    """
    world = a_world()
    world.write(desk.folder)
    desk.publish()
    before = desk.files
    other = desk.folder / "other.keys"
    other.write_bytes(world.schedule(generate(SuiteId.X25519_AES128)))
    assert "one for ever" in desk.publish("--keys", str(other), status=1)[1]
    (desk.folder / "second.task").write_bytes(world.signed_task)
    (desk.folder / "second.keys").write_bytes(world.signed_schedule)
    assert "holds this task already" in desk.publish(name="second", status=2)[1]
    made = a_world()
    (desk.folder / "visits.task").write_bytes(made.signed_task)
    (desk.folder / "visits.keys").write_bytes(made.signed_schedule)
    assert "another task" in desk.publish(status=2)[1]
    assert desk.files == before


def test_a_half_written_pair_is_mended(desk: Desk) -> None:
    a_world().write(desk.folder)
    desk.publish()
    (desk.out / "visits.keys").unlink()
    desk.publish()
    assert sorted(desk.files) == ["visits.keys", "visits.task"]


def test_the_last_window_is_warned_of_and_a_task_that_is_over_is_refused(desk: Desk) -> None:
    a_world("last", age=2 * 3_600 + 100).write(desk.folder)
    out, error = desk.publish("--json", name="last")
    assert "the last window of last ends at" in error
    assert json.loads(out)["warnings"]
    a_world("over", age=3 * 3_600 + 100).write(desk.folder)
    assert "nothing left to ask" in desk.publish(name="over", status=2)[1]
    (desk.out / "over.task").write_bytes((desk.folder / "over.task").read_bytes())
    desk.publish("--withdraw", name="over")  # that is always possible


def test_every_puts_files_back_until_it_is_told_to_stop(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_world().write(desk.folder)
    rounds = []
    real = task_publish._put

    def put(folder: Path, signed: task_publish.PublishedTask) -> None:
        real(folder, signed)
        rounds.append(len(desk.files))
        if len(rounds) == 3:
            os.kill(os.getpid(), 15)
        else:
            (desk.out / "visits.task").unlink()

    monkeypatch.setattr(task_publish, "_put", put)
    monkeypatch.setattr(task_publish, "_LEAST_EVERY_S", 0.001)
    desk.publish("--every", "0.01")
    assert rounds == [2, 2, 2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "say where to publish"),
        (("--mqtt", "broker"), "HOST:PORT"),
        (("--mqtt", "broker.example:0"), "HOST:PORT"),
        (("--mqtt", "broker.example:8883", "--protocol", "4"), "--protocol is 5 or 3.1.1"),
        (("--mqtt", "broker.example:1883", "--insecure"), "loopback"),
        (("--mqtt", "localhost:1", "--every", "0.5"), "--every"),
        (("--mqtt", "localhost:1", "--every", "nan"), "--every"),
        (("--mqtt", "localhost:1", "--every", "5", "--withdraw"), "--every"),
        (("--dir", "nowhere"), "no folder"),
        (("--mqtt", "localhost:1", "--ca", "none.pem"), "none.pem"),
        (("--mqtt", "localhost:1", "--password-file", "none", "--username", "a"), "none"),
    ],
)
def test_mistakes_are_one_line_each(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    a_world().write(desk.folder)
    monkeypatch.chdir(desk.folder)
    assert words in desk.publish(*arguments, status=2, where=False)[1]


def test_only_a_signed_task_is_published(desk: Desk) -> None:
    (desk.folder / "visits.toml").write_text("")
    assert main(["task", "publish", str(desk.folder / "visits.toml"), "--dir", str(desk.out)]) == 2


def test_a_broker_that_is_away_is_one_line(desk: Desk) -> None:
    """In a process of its own: only there nobody has configured logging. Planted: leave the link's
    log alone -> two lines.
    """
    a_world().write(desk.folder)
    program = "import sys; from shoal.cli.main import main; sys.exit(main(sys.argv[1:]))"
    arguments = [
        "task",
        "publish",
        str(desk.folder / "visits.task"),
        "--mqtt",
        "localhost:1",
        "--insecure",
    ]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("shoal: nobody listens")
    assert len(done.stderr.splitlines()) == 1


def test_keys_of_another_task_are_refused_where_they_would_be_published(desk: Desk) -> None:
    """The first window that is released would take them away from the other task. Planted: no look
    at the folder -> published, fails.
    """
    first = a_world()
    first.write(desk.folder)
    desk.publish()
    second = replace(a_world("steps"), analyzer=first.analyzer)
    second.write(desk.folder)
    assert "another task uses the same analyzer keys" in desk.publish(name="steps", status=2)[1]
    assert sorted(desk.files) == ["visits.keys", "visits.task"]


def test_what_no_analyzer_could_serve_is_not_published(desk: Desk) -> None:
    """Signed by another tool, for example. Planted: signatures alone looked at -> published,
    fails.
    """
    made = a_world()
    replace(made, task=replace(made.task, report_size=made.task.report_size + 1)).write(desk.folder)
    assert "report_size" in desk.publish(status=2)[1]
    assert desk.files == {}


def test_keys_that_their_owners_have_not_are_refused(desk: Desk) -> None:
    """Missing, unreadable, or another key. Planted: the analyzer's folder alone looked at -> fails
    for the shuffler's.
    """
    world = a_world()
    world.write(desk.folder)
    for role, key in (("analyzer", world.analyzer), ("shuffler", world.hop)):
        folder = desk.folder / role
        folder.mkdir(mode=0o700)
        option = (f"--{role}-keys", str(folder))
        path = folder / f"{key.config.key_id.hex}.key"
        assert path.name in desk.publish(*option, status=2)[1]
        save_hpke_key(path, generate(SuiteId.X25519_AES128))
        assert "another key" in desk.publish(*option, status=2)[1]
        path.unlink()
        save_hpke_key(path, key)
    assert desk.files == {}
    desk.publish(
        "--analyzer-keys",
        str(desk.folder / "analyzer"),
        "--shuffler-keys",
        str(desk.folder / "shuffler"),
    )
