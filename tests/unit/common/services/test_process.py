"""How a service runs: it stops when asked, once, and shares its folder with nobody."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.services.process import DataFolder, Reloading, fsync_folder, run_service
from tests.cases import for_each

SERVICE = """
import asyncio, signal, sys
from shoal.services.process import run_service

async def main(stop):
    print("running", flush=True)
    await stop.wait()
    print("stopped", flush=True)
    if sys.argv[1] == "fail":
        raise KeyError("after stop")
    if sys.argv[1] == "slow":
        sys.stdin.readline()

run_service(main)
print("returned", flush=True)
if sys.argv[1] == "slow":
    sys.stdin.readline()
    print("closed", flush=True)
"""


def start(folder: Path, mode: str) -> subprocess.Popen[str]:
    script = folder / "service.py"
    script.write_text(SERVICE)
    return subprocess.Popen(
        [sys.executable, str(script), mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


def serve(folder: Path, mode: str, number: signal.Signals) -> tuple[int, str]:
    child = start(folder, mode)
    assert child.stdout is not None
    first = child.stdout.readline()
    child.send_signal(number)
    out, _ = child.communicate(timeout=60)
    return child.returncode, first + out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """Exit status 0, and what follows the stop is done. Planted: no handler for SIGTERM -> this
    fails.
    """
    assert serve(tmp_path, "ok", number) == (0, "running\nstopped\nreturned\n")


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_impatience_does_not_cut_it_short(tmp_path: Path, first: signal.Signals) -> None:
    """More signals, at once, while stopping, and after the loop is gone, change nothing: what is
    open is still finished.

    The child waits for a line wherever the next signals come. Planted: handlers of the loop, which
    go with it -> exit -15.
    """
    child = start(tmp_path, "slow")
    assert child.stdout is not None
    assert child.stdin is not None
    seen = []
    for _ in range(3):  # running, stopped, returned
        seen.append(child.stdout.readline())
        for number in (first, signal.SIGTERM, signal.SIGINT):
            child.send_signal(number)
        if len(seen) > 1:
            child.stdin.write("\n")
            child.stdin.flush()
    out, errors = child.communicate(timeout=60)
    assert (child.returncode, "".join(seen) + out) == (0, "running\nstopped\nreturned\nclosed\n"), (
        errors
    )


def test_signals_are_as_before_if_nobody_asked_it_to_stop() -> None:
    """A caller whose service could not start keeps its Ctrl-C. Planted: handlers left in place ->
    this fails.
    """

    async def nothing(stop: asyncio.Event) -> None:
        assert not stop.is_set()

    before, mask = (
        [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)],
        os.umask(0),
    )
    try:
        run_service(nothing)
    finally:
        os.umask(mask)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_failures_pass_through(tmp_path: Path) -> None:
    status, out = serve(tmp_path, "fail", signal.SIGTERM)
    assert status == 1
    assert "returned" not in out


def test_the_folder_is_private_and_made(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with DataFolder(tmp_path / "a" / "b") as folder:
            assert folder.stat().st_mode & 0o777 == 0o700
            assert (folder / ".lock").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def test_two_processes_never_share_a_folder(tmp_path: Path) -> None:
    """Also after a crash: the lock is the kernel's. Planted: no flock -> this fails."""
    code = (
        "from pathlib import Path\nfrom shoal.services.process import "
        f"DataFolder\nDataFolder(Path({str(tmp_path)!r})).__enter__()"
    )
    with DataFolder(tmp_path):
        child = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert child.returncode == 1
        assert "another process uses it" in child.stderr
    with DataFolder(tmp_path):
        pass
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with DataFolder(tmp_path):
        pass


@for_each("mode", [0o755, 0o750, 0o701, 0o777])
def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path, mode: int) -> None:
    """While a window is open its file shows the order of commits: nobody else may read it. Planted:
    no mode check -> this fails.
    """
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(ShoalError, match="chmod 700") as caught:
        DataFolder(folder).__enter__()
    assert caught.value.kind is Kind.CONFIG
    assert not list(folder.iterdir())
    assert folder.stat().st_mode & 0o777 == mode


def test_a_file_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("")
    with pytest.raises(ShoalError, match="data_dir") as caught:
        DataFolder(path).__enter__()
    assert caught.value.kind is Kind.CONFIG


def test_fsync_folder(tmp_path: Path) -> None:
    fsync_folder(tmp_path)
    with pytest.raises(OSError, match="Not a directory"):
        fsync_folder(Path(__file__))


# --- looking at a folder again --------------------------------------------------------------------


async def test_a_reload_comes_by_itself_and_at_once_when_asked() -> None:
    """By the interval alone; by SIGHUP alone, also one that came before anybody waited; never again
    after the stop.

    Planted: no timeout -> the first part waits for ever; the handler set in ``run`` -> SIGHUP ends
    the process, and no test is left.
    """
    stop = asyncio.Event()
    seen: list[str] = []

    async def reload() -> None:
        seen.append("again")
        if len(seen) >= 2:
            stop.set()

    await asyncio.wait_for(Reloading(0.001).run(reload, stop), 60)
    assert seen == ["again"] * 2

    stop.clear()
    rare = Reloading(86_400)
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.wait_for(rare.run(reload, stop), 60)
    assert seen == ["again"] * 3
    await asyncio.wait_for(rare.run(reload, stop), 60)  # stopped: it only returns
    assert seen == ["again"] * 3
    asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


async def test_a_stop_ends_the_waiting_for_a_reload() -> None:
    """Planted: waiting for SIGHUP alone -> a service that is stopped hangs for a day."""
    stop = asyncio.Event()

    async def never() -> None:
        raise AssertionError

    running = asyncio.create_task(Reloading(86_400).run(never, stop))
    await asyncio.sleep(0)
    stop.set()
    await asyncio.wait_for(running, 60)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
