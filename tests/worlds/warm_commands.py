"""``shoal`` on the PATH of a script, run warm (see ``warm.py``): a command that asks this process
for a child, lends it streams, folder and environment, passes signals on, and ends as it ends.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.sizes import FULL
from tests.worlds.warm import COMMANDS, Order, smith_of_tests

# -I -S: it imports nothing of ours, and nothing that takes time.
_COMMAND = """#!{python} -IS
import json, os, signal, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({address!r})
order = [sys.argv[1:], os.getcwd(), dict(os.environ)]
socket.send_fds(line, [b"f"], [0, 1, 2])
line.sendall(json.dumps(order).encode() + b"\\n")
child = int.from_bytes(line.recv(8, socket.MSG_WAITALL), "big")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(child, number))
status = int.from_bytes(line.recv(8, socket.MSG_WAITALL), "big", signed=True)
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@contextlib.contextmanager
def shoal_on_path() -> Iterator[str]:
    """Folders for the front of the PATH, with ``shoal`` and ``python`` in them; whatever still runs
    at the end is killed. At full size ``shoal`` is the one that is installed.
    """
    installed = str(Path(sys.executable).parent)
    if FULL or sys.platform != "linux":
        yield installed
        return
    # a short path: an address of this kind holds about 100 bytes
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        address, command, alive = f"{folder}/line", Path(folder, "shoal"), set[int]()
        command.write_text(_COMMAND.format(python=sys.executable, address=address))
        command.chmod(0o755)
        listener.bind(address)
        listener.listen(64)
        threading.Thread(target=_take, args=(listener, alive), daemon=True).start()
        try:
            yield f"{folder}:{installed}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends the thread's accept
            for child in [*alive]:
                os.kill(child, signal.SIGKILL)


def _take(listener: socket.socket, alive: set[int]) -> None:
    with contextlib.suppress(OSError):
        while True:
            line, _ = listener.accept()
            threading.Thread(target=_run, args=(line, alive), daemon=True).start()


def _run(line: socket.socket, alive: set[int]) -> None:
    """One command, until it ends."""
    with line, contextlib.suppress(OSError), line.makefile("rb") as text:
        files = array.array("i")
        _, control, _, _ = line.recvmsg(1, socket.CMSG_LEN(3 * files.itemsize))
        files.frombytes(control[0][2])
        arguments, here, environment = json.loads(text.readline())
        streams = dict(enumerate(files))
        child = smith_of_tests().start(
            Order(COMMANDS, arguments, streams, folder=here, environment=environment)
        )
        for file in files:
            os.close(file)
        alive.add(child)
        with contextlib.suppress(OSError):  # whoever asked may be gone
            line.sendall(child.to_bytes(8, "big"))
        _, status = os.waitpid(child, 0)
        alive.discard(child)
        line.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "big", signed=True))
