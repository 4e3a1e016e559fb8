"""A process that ends when its parent does: no killed command, test or service leaves children
behind.

    python -m shoal.services.parent PROGRAM ARGUMENT...

runs a program in this process, which is killed when the one that started it ends: for programs that
are not ours, where nothing may run between fork and exec.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1  # prctl(2)
_LOOK_S = 0.5  # between two looks at whether the parent lives


def signalled_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask the kernel for a signal when the *thread* that forked this process ends. On Linux alone;
    kept by exec. May be called between fork and exec.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """End this process when its parent goes. ``parent``: its process id, as it knows itself.

    Its id is watched, which is what is relied upon, on other systems too; the signal is only
    faster. Ctrl-C is left to the parent.
    """
    signalled_with_parent()
    # Ctrl-C reaches the whole group: the parent decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def main() -> None:
    """Become the program that the arguments name."""
    signalled_with_parent()
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - what whoever started this asked for


if __name__ == "__main__":
    main()
