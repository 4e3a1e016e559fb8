"""What a new user types: make finds a Python that really runs, or says in one line what to
install.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import for_each

ROOT = Path(__file__).resolve().parents[3]
WORKS = f'exec "{sys.executable}" "$@"'
BROKEN_SHIM = 'echo "version manager: command not found" >&2; exit 127'
TOO_OLD = "exit 1"  # what the version check of an older Python comes to


def without_ensurepip(version: str) -> str:
    """A Debian Python without its -venv package: it runs, and knows its version, but has no
    ensurepip.
    """
    return f'case "$2" in *version_info*) echo {version};; *) exit 1;; esac'


def pick(folder: Path, **pythons: str) -> tuple[int, str, str]:
    """Run tools/python.sh with nothing on PATH but these; names have _ for ".": status, what it
    printed, what it said.
    """
    for name, body in pythons.items():
        path = folder / name.replace("_", ".")
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    command = ["/bin/sh", str(ROOT / "tools" / "python.sh")]
    done = subprocess.run(
        command, env={"PATH": str(folder)}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_the_newest_that_works(tmp_path: Path) -> None:
    assert pick(tmp_path, python3_11=WORKS, python3_13=WORKS, python3=WORKS) == (
        0,
        str(tmp_path / "python3.13"),
        "",
    )


def test_names_that_fail_when_run_are_passed_over(tmp_path: Path) -> None:
    """Planted: ``command -v`` as the only check -> python3.13 is taken and this fails."""
    found = pick(
        tmp_path,
        python3_14=BROKEN_SHIM,
        python3_13=BROKEN_SHIM,
        python3_12=TOO_OLD,
        python3_11=WORKS,
    )
    assert found == (0, str(tmp_path / "python3.11"), "")


def test_one_that_cannot_make_environments_is_passed_over(tmp_path: Path) -> None:
    assert pick(tmp_path, python3_13=without_ensurepip("3.13"), python3_12=WORKS) == (
        0,
        str(tmp_path / "python3.12"),
        "",
    )


def test_a_plain_python3_will_do(tmp_path: Path) -> None:
    assert pick(tmp_path, python3=WORKS)[1] == str(tmp_path / "python3")


@pytest.mark.parametrize("version", ["3.11", "3.13"])
def test_the_missing_package_is_named(tmp_path: Path, version: str) -> None:
    """Plain Debian: one line, with the command that mends it."""
    status, out, said = pick(tmp_path, python3=without_ensurepip(version))
    assert (status, out) == (1, "")
    assert said.count("\n") == 0
    assert said.endswith(f"sudo apt-get install python{version}-venv")


def test_no_python_at_all(tmp_path: Path) -> None:
    status, out, said = pick(tmp_path, python3=TOO_OLD)
    assert (status, out) == (1, "")
    assert said.count("\n") == 0
    assert "Python 3.11 or later" in said


def make(
    *arguments: str, path: str | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
    }
    environment |= {"PATH": path} if path else {}
    return subprocess.run(
        ["make", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@for_each("target", ["demo", "test", "test-full", "lint"])
def test_every_target_installs_against_the_constraints(target: str) -> None:
    """Also where a user adds nothing: no version is left to the day. Dry run in a tree without
    .venv.
    """
    lines = make("-n", target, "VENV=.venv-that-is-not-there").stdout.splitlines()
    installs = [line for line in lines if "install" in line and "-m pip" in line]
    assert len(installs) == 2
    assert all("-c constraints.txt" in line for line in installs)
    extras = "'.[server]'" if target == "demo" else "'.[server,accounting,dev]'"
    assert installs[-1].endswith(f"--no-build-isolation -e {extras}")


@for_each("status, lines", [(0, 0), (3, 1), (130, 0)])
def test_a_failed_installation_ends_with_what_to_do(status: int, lines: int) -> None:
    """pip's last line without a network is of conflicting dependencies. Ctrl-C needs no advice.
    Planted: the status of the echo -> make goes on without packages.
    """
    command = [str(ROOT / "tools" / "installing.sh"), "sh", "-c", f"exit {status}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stderr.count("\n") == lines
    assert "is there a network?" in done.stderr or not lines


def test_make_says_what_to_install(tmp_path: Path) -> None:
    """From the top: in a folder without .venv, on a machine whose only Python lacks ensurepip."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "python.sh").write_bytes((ROOT / "tools" / "python.sh").read_bytes())
    (tmp_path / "tools" / "python.sh").chmod(0o755)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("sh", "make", "cksum", "cut", "touch", "sed", "env"):
        (bin_folder / name).symlink_to(Path("/usr/bin") / name)
    (bin_folder / "python3").write_text(f"#!/bin/sh\n{without_ensurepip('3.13')}\n")
    (bin_folder / "python3").chmod(0o755)
    done = make("demo", path=str(bin_folder), cwd=tmp_path)
    assert done.returncode != 0
    assert "sudo apt-get install python3.13-venv" in done.stderr
    assert not (tmp_path / ".venv").exists()
