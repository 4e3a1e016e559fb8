"""Named points at every durable or network step, where a test can make a process die or a call
fail.

Off (a dictionary look-up in an empty dictionary) unless a test sets one in this process, or
SHOAL_FAILPOINTS names one for a child process: ``name=exit@3`` kills the process with SIGKILL at
the third passing, ``name=stop@3`` stops it there (SIGSTOP) until somebody lets it go on,
``name=eio@1`` and ``name=enospc@1`` raise OSError. Each step calls ``hit("store.inbox.commit")``; a
test lists the names by running once with ``record``.
"""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter

_SIGNALS = {"exit": signal.SIGKILL, "stop": signal.SIGSTOP}
_actions: dict[str, tuple[str, int]] = {}
_passed: Counter[str] = Counter()
_recording = False


def hit(name: str) -> None:
    """Pass a point. Does nothing unless a test armed it."""
    if not _actions and not _recording:
        return
    _passed[name] += 1
    action, at = _actions.get(name, ("", 0))
    if not action or _passed[name] != at:
        return
    if action in _SIGNALS:
        os.kill(os.getpid(), _SIGNALS[action])
        return
    raise OSError({"eio": errno.EIO, "enospc": errno.ENOSPC}[action], f"failpoint {name}")


def arm(text: str) -> None:
    """``name=action@count``, several separated by commas; the empty text disarms."""
    _actions.clear()
    _passed.clear()
    for part in filter(None, text.split(",")):
        name, _, rest = part.partition("=")
        action, _, count = rest.partition("@")
        _actions[name] = (action, int(count or 1))


def record(on: bool) -> Counter[str]:
    """Count passings; returns what was passed so far."""
    global _recording  # noqa: PLW0603 - one switch per process, for tests
    _recording = on
    return _passed


arm(os.environ.get("SHOAL_FAILPOINTS", ""))
