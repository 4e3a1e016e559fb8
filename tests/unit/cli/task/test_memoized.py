"""`memoized = true` in a task file: read, linted, signed, shown, and refused where it promises
nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.accounting.composition.memoized import PROMISE
from shoal.cli.main import main
from shoal.cli.task.file import read_task
from shoal.cli.task.sample import sample
from shoal.crypto.trust import trust_task

Capture = pytest.CaptureFixture[str]


def write(folder: Path, capsys: Capture, *settings: str, pairwise: bool = False) -> Path:
    keys = {}
    for role in ("authority", "shuffler", "analyzer"):
        assert main(["keys", "signing", "--out", str(folder / f"{role}.key")]) == 0
        keys[role] = capsys.readouterr().out.strip()
    (folder / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    named = [
        f"keys.{name}={keys[role]}"
        for name, role in (
            ("key_authority", "authority"),
            ("shuffler", "shuffler"),
            ("analyzer", "analyzer"),
        )
    ]
    enrolment = [f"keys.enrolment={keys['authority']}"] if pairwise else []
    path = folder / "visits.toml"
    path.write_text(sample([*named, *enrolment, *settings], pairwise=pairwise))
    return path


@pytest.mark.parametrize(
    ("settings", "memoized"),
    [((), False), (("memoized=false",), False), (("memoized=true",), True)],
)
def test_it_is_read_and_off_unless_said(
    tmp_path: Path, capsys: Capture, settings: tuple[str, ...], memoized: bool
) -> None:
    assert read_task(write(tmp_path, capsys, *settings)).memoized is memoized


def test_a_value_of_another_type_is_named(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, capsys)
    path.write_text(path.read_text().replace("memoized = false", "memoized = 1"))
    assert main(["task", "lint", str(path)]) == 2
    assert "memoized" in capsys.readouterr().err


def test_lint_sign_and_show_say_what_it_promises(tmp_path: Path, capsys: Capture) -> None:
    """Planted: the words left out of ``show`` -> this fails."""
    path = write(tmp_path, capsys, "memoized=true")
    assert main(["task", "lint", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "one window seen alone" in text
    assert PROMISE in text
    assert main(["task", "lint", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memoized"] == PROMISE
    signed = tmp_path / "visits.task"
    assert (
        main(
            [
                "task",
                "sign",
                str(path),
                "--key",
                str(tmp_path / "authority.key"),
                "--out",
                str(signed),
            ]
        )
        == 0
    )
    assert PROMISE in " ".join(capsys.readouterr().out.split())
    data = signed.read_bytes()
    authority = bytes.fromhex(json.loads(shown(signed, capsys))["authority"])
    assert trust_task(data, {authority}).task.memoized
    fields = json.loads(shown(signed, capsys))
    assert fields["memoized"] == PROMISE
    assert fields["lifetime_epsilon"] == fields["epsilon0"]


def test_a_task_that_is_not_memoized_says_nothing_of_it(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, capsys)
    assert main(["task", "lint", str(path), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == [
        "errors",
        "warnings",
        "certificate",
        "report_bytes",
        "frame_bytes",
    ]
    signed = tmp_path / "visits.task"
    assert (
        main(
            [
                "task",
                "sign",
                str(path),
                "--key",
                str(tmp_path / "authority.key"),
                "--out",
                str(signed),
            ]
        )
        == 0
    )
    assert "memoized" not in capsys.readouterr().out
    assert "memoized" not in shown(signed, capsys)


def test_a_sum_cannot_be_memoized(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, capsys, pairwise=True)
    path.write_text("memoized = true\n" + path.read_text())
    assert main(["task", "lint", str(path)]) == 2
    assert "a sum can't be memoized" in capsys.readouterr().err


def shown(signed: Path, capsys: Capture) -> str:
    assert main(["task", "show", str(signed), "--json"]) == 0
    return capsys.readouterr().out
