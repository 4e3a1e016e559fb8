"""Ctrl-C in the middle of a load: exit 130, no process left behind."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from shoal.errors import Kind, ShoalError
from tests.worlds.devices.clients import FarEnd, make_world
from tests.worlds.services.analyzer_service import tries

HOUR = 3_600


def processes() -> Iterator[tuple[int, int]]:
    """(pid, pid of its parent) of everything that runs and is no zombie."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, *_ = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if state != "Z":
            yield int(path.parent.name), int(parent)


def children_of(pid: int) -> list[int]:
    return [child for child, parent in processes() if parent == pid]


async def test_ctrl_c_cleans_up(tmp_path: Path) -> None:
    """Planted: leave out ``worker.end()`` and ``daemon=True`` -> the command waits for its children
    and hangs.
    """
    begun = asyncio.Event()

    def busy(_number: int, _frame: bytes) -> ShoalError:
        begun.set()
        return ShoalError(Kind.OVERLOADED, "busy")

    async with FarEnd([], busy).serving() as far:
        world = make_world(f"localhost:{far.port}", start=int(time.time()) - HOUR // 2, length=HOUR)
        world.write(tmp_path)
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "shoal.cli.main",
                "load",
                "--task",
                str(tmp_path / "visits.task"),
                "--devices",
                "50",
                "--processes",
                "2",
            ),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await begun.wait()
            children = await asyncio.to_thread(children_of, process.pid)
            assert len(children) >= 2
            process.send_signal(signal.SIGINT)
            out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 130
    assert b"until then" in out  # what was measured so far, by people and programs alike
    assert b"Traceback" not in err
    for _ in tries():  # the tracker of shared memory ends once the command has
        left = set(children) & {pid for pid, _ in await asyncio.to_thread(lambda: [*processes()])}
        if not left:
            break
        await asyncio.sleep(0.01)
    assert not left
