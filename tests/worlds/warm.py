"""Programs of the project, forked from a warm process: at reduced size a test that starts many of
them doesn't pay for the same imports each time, which is most of what it would pay.

What comes of it is a process like any other: a child of whoever started it, with a number, a
folder, an environment, files and signals of its own, that runs the program's module as ``python
-m`` does and ends as Python ends. Only its imports were made before it was forked. A program that
starts others, services or workers, has a warm process of its own for these. At full size every
process is started as ever.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import inspect
import io
import json
import multiprocessing.util
import os
import pkgutil
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.sizes import FULL

ROOT = Path(__file__).parents[2]
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
COMMANDS = "shoal.cli.main"
_WARM = (  # modules that run warm
    COMMANDS,
    "tests.faults.",
    "tests.worlds.services.planted",
    "tests.worlds.rounds.quick",
    _CERTIFICATE := "shoal.clients.owner.guarantees",
)
_WORKER = "multiprocessing.spawn"
_STARTERS = {"demo", "trial", "load", "analyzer", "agent"}  # commands that start processes
_PRELOADED = (
    "shoal.accounting",
    "shoal.analyzer.service",
    "shoal.shuffler.service",
    "shoal.clients.agent",
    "shoal.clients.fleet.simulator",
    "shoal.clients.rounds.participation",
    "shoal.clients.rounds.single",
    "shoal.clients.service.runner",
    "shoal.clients.transports.configured",
    "shoal.cli.agent.command",
    "shoal.cli.task.command",
    "shoal.cli.demo.command",
    "shoal.cli.load.command",
    "shoal.cli.keys",
    "shoal.cli.services.shuffler",
    "shoal.cli.services.analyzer",
    "shoal.cli.results.command",
    "uvicorn.lifespan.off",  # by which names uvicorn finds its parts when a server starts
    "uvicorn.protocols.http.auto",
    "uvloop",
)
_AFRESH = "shoal.cli"  # looks at the environment and at the terminal when it is imported


@dataclass(frozen=True)
class Order:
    """What to run, and where. ``files``: these of the caller become these of the child. ``before``:
    a function that the child calls first, MODULE:NAME, or empty. ``deaf``: to Ctrl-C.
    """

    module: str
    arguments: list[str]
    files: dict[int, int]
    session: bool = False
    before: str = ""
    folder: str = field(default_factory=os.getcwd)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    deaf: bool = field(
        default_factory=lambda: signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    )


class Smith:
    """Asks a warm process, which reads from the other end of ``line``, for children of this one."""

    def __init__(self, line: socket.socket) -> None:
        self._line, self._lock = line, threading.Lock()

    def start(self, order: Order) -> int:
        """The number of the child."""
        targets, files = list(order.files), list(order.files.values())
        data = json.dumps({**asdict(order), "files": targets}).encode()
        with self._lock, _heir():
            self._line.sendall(len(data).to_bytes(8, "big"))
            socket.send_fds(self._line, [b"f"], files)
            self._line.sendall(data)
            answer = self._line.recv(8, socket.MSG_WAITALL)
        assert len(answer) == 8, "the warm process has ended"
        return int.from_bytes(answer, "big")


@contextlib.contextmanager
def _heir() -> Iterator[None]:
    """Meanwhile, children whose parent ends become this process's."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@functools.cache
def smith_of_tests() -> Smith:
    """One for all tests of this process."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.worlds.warm", str(theirs.fileno())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )

    def close() -> None:
        ours.close()
        process.wait(60)

    atexit.register(close)
    return Smith(ours)


@contextlib.contextmanager
def warm_starts() -> Iterator[None]:
    """Whatever is started by ``subprocess``, ``asyncio`` or ``multiprocessing`` meanwhile is warm,
    if it is one of ours. At full size, and where orphans can't be inherited, nothing is.
    """
    if FULL or sys.platform != "linux":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for place, name, function in _warmly(smith_of_tests):
            patch.setattr(place, name, function)
        yield


def _warmly(smith: Callable[[], Smith]) -> list[tuple[Any, str, Any]]:
    """In place of what starts processes: (where, its name, a function that asks ``smith`` where it
    can).
    """
    cold: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined] # its own seam
    cold_worker: Any = multiprocessing.util.spawnv_passfds
    names = inspect.signature(cold)

    def execute(self: Any, *arguments: Any) -> None:
        given = names.bind(self, *arguments).arguments
        if (order := _order(given)) is None:
            cold(self, *arguments)
            return
        self.pid = smith().start(order)
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))

    def spawn(path: Any, arguments: Sequence[Any], files: Sequence[int]) -> int:
        order = _worker_order([os.fsdecode(one) for one in arguments], files)
        return int(cold_worker(path, arguments, files)) if order is None else smith().start(order)

    return [
        (subprocess.Popen, "_execute_child", execute),
        (multiprocessing.util, "spawnv_passfds", spawn),
    ]


def _order(given: dict[str, Any]) -> Order | None:
    """Of ``Popen``'s own arguments; None: this one starts as ever."""
    arguments = given["args"] if isinstance(given["args"], (list, tuple)) else ()
    command = [os.fsdecode(one) for one in arguments]
    if command[1:] == ["-P", "-m", _CERTIFICATE]:
        del command[1]  # -P changes where modules are looked for; a warm process has them
    environment = dict(os.environ if given["env"] is None else given["env"])
    first = given["preexec_fn"]
    if (
        command[:2] != [sys.executable, "-m"]
        or not command[2].startswith(_WARM)
        or given["shell"]
        or given["pass_fds"]
        or _for_python(environment) != _for_python(dict(os.environ))
        or any(given.get(name) not in (None, -1) for name in _RARE)
        or "<" in getattr(first, "__qualname__", "")
    ):
        return None
    files = (given["p2cread"], given["c2pwrite"], given["errwrite"])
    return Order(
        command[2],
        command[3:],
        {usual: file if file != -1 else usual for usual, file in enumerate(files)},
        bool(given["start_new_session"]),
        f"{first.__module__}:{first.__qualname__}" if first else "",
        os.getcwd() if given["cwd"] is None else os.fsdecode(given["cwd"]),
        environment,
    )


_RARE = ("gid", "gids", "uid", "umask", "process_group")  # options of Popen that nobody here uses


def _for_python(environment: dict[str, str]) -> dict[str, str]:
    """What an interpreter reads when it starts, and can't be told later."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "OPENBLAS")) and name != "PYTHONUNBUFFERED"
    }


def _worker_order(command: list[str], files: Sequence[int]) -> Order | None:
    """Of what ``multiprocessing`` starts a worker with: its numbers of files stay the same."""
    if not any(_WORKER in one for one in command):
        return None
    pairs = [pair for one in command for pair in re.findall(r"(\w+_(?:fd|handle))=(\d+)", one)]
    return Order(
        _WORKER,
        [word for pair in pairs for word in pair],
        {file: file for file in (0, 1, 2, *files)},
    )


# --- the warm process -----------------------------------------------------------------------------


def _preload() -> None:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for name in _PRELOADED:
        importlib.import_module(name)
    for name in [*sys.modules]:
        if name.startswith(_AFRESH):
            del sys.modules[name]
    gc.collect()
    gc.freeze()


def _serve(line: socket.socket) -> Order | None:
    """In the warm process: None, at the end. In each of its children: what it has to do."""
    while size := line.recv(8, socket.MSG_WAITALL):
        files = array.array("i")
        _, control, _, _ = line.recvmsg(1, socket.CMSG_LEN(64 * files.itemsize))
        files.frombytes(control[0][2])
        data = json.loads(line.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
        ours, theirs = os.pipe()
        middle = os.fork()
        if middle == 0:
            middle = os.getpid()
            child = os.fork()
            if child:
                os.write(theirs, child.to_bytes(8, "big"))
                os._exit(0)
            os.close(ours)
            os.close(theirs)
            line.close()
            while os.getppid() == middle:
                time.sleep(0.0005)
            return Order(**{**data, "files": dict(zip(data["files"], files, strict=True))})
        os.close(theirs)
        child = int.from_bytes(os.read(ours, 8), "big")
        os.close(ours)
        os.waitpid(middle, 0)  # the child has its parent now
        for file in files:
            os.close(file)
        line.sendall(child.to_bytes(8, "big"))
    return None


def _become(order: Order) -> None:
    """Files, folder, environment and arguments, as Python would have found them."""
    high = {
        target: fcntl.fcntl(file, fcntl.F_DUPFD, 256 + max(order.files))
        for target, file in order.files.items()
    }
    for file in order.files.values():
        os.close(file)
    for target, file in high.items():
        os.dup2(file, target, inheritable=target <= 2)
        os.close(file)
    if order.session:
        os.setsid()
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    at_once = "PYTHONUNBUFFERED" in order.environment
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False))
    sys.stdout = io.TextIOWrapper(
        os.fdopen(1, "wb", 0 if at_once else -1, closefd=False),
        line_buffering=os.isatty(1),
        write_through=at_once,
    )
    sys.stderr = io.TextIOWrapper(
        os.fdopen(2, "wb", closefd=False), errors="backslashreplace", line_buffering=True
    )
    sys.argv = [order.module, *order.arguments]
    sys.path[0] = order.folder if order.module.startswith("shoal.") else str(ROOT)
    if order.before:
        pkgutil.resolve_name(order.before)()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not order.deaf:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _nested() -> Order | None:
    """A warm process for what this one will start. In a child of that: what it has to do."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        order = _serve(theirs)
        if order is None:
            os._exit(0)
        return order
    theirs.close()
    smith = Smith(ours)
    for place, name, function in _warmly(lambda: smith):
        setattr(place, name, function)
    return None


def _run(order: Order | None) -> None:
    while order is not None:
        _become(order)
        last, order = order, None
        if {*last.arguments[:1]} & _STARTERS:
            order = _nested()
    if last.module == _WORKER:
        from multiprocessing.spawn import spawn_main

        sys.argv = ["-c", "--multiprocessing-fork"]
        pairs = zip(last.arguments[::2], map(int, last.arguments[1::2]), strict=True)
        spawn_main(**dict(pairs))
    from shoal import failpoints

    failpoints.arm(last.environment.get("SHOAL_FAILPOINTS", ""))
    runpy.run_module(last.module, run_name="__main__", alter_sys=True)


def main() -> None:
    # Ctrl-C goes to the whole group: it is the test's, and waits in a child until that is ready.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    _preload()
    order = _serve(socket.socket(fileno=int(sys.argv[1])))
    if order is not None:
        _run(order)


if __name__ == "__main__":
    main()
