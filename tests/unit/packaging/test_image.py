"""tools/image.sh says what is missing, and fails where the image does not do what it should. The
engine here is a script that answers as one would: where a real one is, .ci/run builds with it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GOOD = {
    "info": "exit 0",
    "build": "exit 0",
    "rmi": "exit 0",
    "--version": "echo shoal $SHOAL_WANTED",
    "-u": "echo 10001",
    "-c": "exit 0",
    "demo": "echo '1,500 reports acknowledged, 1,500 counted, in 7 s.'",
}


def build(folder: Path, **other: str) -> tuple[int, str, list[str]]:
    """Run the script with an engine that answers as GOOD says, but for ``other``: its status, what
    it said last, and the engine's calls.
    """
    version = next(
        line.split('"')[1]
        for line in (ROOT / "pyproject.toml").read_text().splitlines()
        if line.startswith("version = ")
    )
    cases = "\n".join(
        f'*" {word} "*) {answer};;'
        for word, answer in {
            **GOOD,
            **{word.replace("_", "-"): a for word, a in other.items()},
        }.items()
    )
    engine = folder / "engine"
    engine.write_text(
        f'#!/bin/sh\necho "$*" >> {folder}/calls\ncase " $* " in\n{cases}\n*) exit 9;;\nesac\n'
    )
    engine.chmod(0o755)
    done = subprocess.run(
        [ROOT / "tools" / "image.sh"],
        env={**os.environ, "ENGINE": str(engine), "SHOAL_WANTED": version},
        capture_output=True,
        text=True,
        check=False,
    )
    said = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, said[-1] if said else "", (folder / "calls").read_text().splitlines()


def test_an_image_that_counts_every_report_passes(tmp_path: Path) -> None:
    """Every run has no network, no capabilities and nothing to write to; the image goes
    afterwards.
    """
    status, said, calls = build(tmp_path)
    assert (status, said.split(":")[0]) == (0, "the image builds and runs")
    runs = [call for call in calls if call.startswith("run ")]
    assert len(runs) == 4
    for call in runs:
        assert "--network none --read-only --cap-drop ALL" in call
    assert calls[-1].startswith("rmi ")


def test_without_an_engine_it_says_what_to_start(tmp_path: Path) -> None:
    status, said, calls = build(tmp_path, info="exit 1")
    assert status == 1
    assert said.startswith("no container engine answers")
    assert calls == ["info"]


def test_a_demo_that_lost_a_report_fails(tmp_path: Path) -> None:
    """Planted: no look at what the demo printed -> this passes."""
    lost = "echo '1,500 reports acknowledged, 1,499 counted, in 7 s.'"
    status, said, _ = build(tmp_path, demo=lost)
    assert (status, said) == (1, "the demo in the image did not count every report")


def test_an_image_of_root_fails(tmp_path: Path) -> None:
    status, said, _ = build(tmp_path, _u="echo 0")
    assert (status, said) == (1, "the image runs as root")


def test_another_version_fails(tmp_path: Path) -> None:
    status, said, _ = build(tmp_path, __version="echo shoal 0.0.1")
    assert status == 1
    assert said.startswith("the image is 'shoal 0.0.1', not shoal ")


def test_an_import_that_is_missing_fails(tmp_path: Path) -> None:
    assert build(tmp_path, _c="exit 1")[0] == 1
