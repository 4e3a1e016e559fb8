"""The example client in JavaScript, as tests run it: with the packages that ``make node`` installs.

Node.js is no part of what Shoal needs. Where it is missing its tests are skipped, and say so;
SHOAL_NODE=1 (as in ``.ci/run``) makes that a failure. Where it is there, its packages must be too.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "javascript"
_LEAST = 20  # Node.js's version
_PATIENCE_S = 120.0  # only a failing test waits so long


def missing() -> str | None:
    """What to install, in one line; None if nothing."""
    program = shutil.which("node")
    if program is None:
        return f"install Node.js {_LEAST} or newer and npm, then run: make node"
    said = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return (
        None
        if int(said.lstrip("v").split(".")[0]) >= _LEAST
        else f"this is Node.js {said}: install {_LEAST} or newer, then run: make node"
    )


def client(folder: Path) -> Path:
    """The example in ``folder``, ready to run. Skips or fails where something is missing, and says
    what to install.
    """
    lacking = missing()
    if lacking is not None and os.environ.get("SHOAL_NODE") != "1":
        pytest.skip(lacking)
    assert lacking is None, lacking
    modules = next(
        (
            one / "node_modules"
            for one in (ROOT / ".venv-node", EXAMPLE)
            if (one / "node_modules").is_dir()
        ),
        None,
    )
    assert modules is not None, (
        "the JavaScript example's packages are not installed: run: make node"
    )
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("node_modules"))
    (folder / "node_modules").symlink_to(modules)
    return folder


async def run(folder: Path, *words: str) -> tuple[int, str]:
    """``node WORDS`` there: its exit status, and what it said."""
    process = await asyncio.create_subprocess_exec(
        "node",
        *words,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), _PATIENCE_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, said.decode()
