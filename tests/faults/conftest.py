"""The warm process that crashes are made of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.worlds.warm import warm_starts

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True, scope="module")
def _warm() -> Iterator[None]:
    with warm_starts():
        yield


class Forge:
    """``run`` a role to its end; ``start`` one and ``wait`` for it later."""

    def __init__(self, module: str = "tests.faults.shuffler_child") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, role: str, folder: Path, failpoints: str = "") -> int:
        """The pid of the child."""
        assert self._process.stdin is not None
        self._process.stdin.write(
            json.dumps({"role": role, "folder": str(folder), "failpoints": failpoints}) + "\n"
        )
        self._process.stdin.flush()
        return int(self._answer()["pid"])

    def wait(self) -> int:
        """Exit status of the child; -9 after SIGKILL."""
        return int(self._answer()["status"])

    def run(self, role: str, folder: Path, failpoints: str = "") -> int:
        self.start(role, folder, failpoints)
        return self.wait()

    def _answer(self) -> dict[str, int]:
        assert self._process.stdout is not None
        answer: dict[str, int] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@contextmanager
def memory() -> Iterator[Path]:
    """A folder in memory where the system has one: for crashes of the process, which test no fsync,
    thousands of them cost seconds.
    """
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="shoal-faults-", dir=shared if os.access(shared, os.W_OK) else None
    ) as folder:
        yield Path(folder)


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    with memory() as folder:
        yield folder


@pytest.fixture(scope="module")
def forge() -> Iterator[Forge]:
    one = Forge()
    yield one
    one.close()
