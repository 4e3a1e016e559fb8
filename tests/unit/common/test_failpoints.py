"""Failpoints do nothing unless armed, and then exactly at the stated passing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shoal import failpoints


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    failpoints.arm("")
    yield
    failpoints.record(False)
    failpoints.arm("")


def test_off_is_off() -> None:
    for _ in range(10):
        failpoints.hit("store.commit")


@pytest.mark.parametrize(("action", "number"), [("eio", errno.EIO), ("enospc", errno.ENOSPC)])
def test_the_third_passing_fails(action: str, number: int) -> None:
    """Planted: comparing >= instead of == (failing ever after) -> this fails."""
    failpoints.arm(f"store.commit={action}@3")
    failpoints.hit("store.commit")
    failpoints.hit("other")
    failpoints.hit("store.commit")
    with pytest.raises(OSError, match=r"store\.commit") as caught:
        failpoints.hit("store.commit")
    assert caught.value.errno == number
    failpoints.hit("store.commit")


def test_arming_anew_counts_anew() -> None:
    failpoints.arm("a=eio@2,b=enospc")
    failpoints.hit("a")
    with pytest.raises(OSError, match="b"):
        failpoints.hit("b")
    failpoints.arm("a=eio@2")
    failpoints.hit("a")
    with pytest.raises(OSError, match="a"):
        failpoints.hit("a")


def test_recording_counts_passings() -> None:
    before = failpoints.record(True)["a.point"]
    failpoints.hit("a.point")
    failpoints.hit("a.point")
    assert failpoints.record(False)["a.point"] == before + 2


def test_a_child_process_dies_where_the_environment_says() -> None:
    code = (
        "from shoal import failpoints\nfor i in range(5):\n    print(i, flush=True)\n    "
        "failpoints.hit('loop')"
    )
    child = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"SHOAL_FAILPOINTS": "loop=exit@3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    assert child.stdout.split() == ["0", "1", "2"]


def test_a_child_process_stands_still_until_it_is_let_go() -> None:
    """Planted: the signal followed by OSError -> status 1, fails."""
    child = subprocess.Popen(
        [sys.executable, "-c", "from shoal import failpoints; failpoints.hit('step')"],
        env=os.environ | {"SHOAL_FAILPOINTS": "step=stop@1"},
    )
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    child.send_signal(signal.SIGCONT)
    assert child.wait(60) == 0
