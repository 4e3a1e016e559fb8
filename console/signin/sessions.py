"""Sessions: kept here, known to the browser by a random word that says nothing.

Ages are measured by the clock that nobody sets. A console that is started again has none.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from threading import Lock

from shoal.console.signin.visitors import Visitor

IDLE_S = 1_800.0  # without a look by hand
WHOLE_S = 28_800.0  # then one signs in again, whatever one did
_MOST = 1_000  # at once; the one that was idle longest makes room


@dataclass(slots=True)
class _Session:
    visitor: Visitor
    began_s: float
    seen_s: float


class Sessions:
    """``clock``: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._open: OrderedDict[bytes, _Session] = OrderedDict()  # the longest idle one first

    def begin(self, visitor: Visitor) -> str:
        """A new one, always under a new word: one that was put into a browser before is never
        taken over.
        """
        token = secrets.token_urlsafe(32)
        key, now = _key(token), self._clock()
        with self._lock:
            while len(self._open) >= _MOST:
                self._open.popitem(last=False)
            self._open[key] = _Session(replace(visitor, session=key.hex()), now, now)
        return token

    def find(self, token: str, *, by_hand: bool) -> Visitor | None:
        """Whose word it is; None for one that is over or never was. ``by_hand``: somebody looked,
        and not the page by itself.
        """
        key = _key(token)
        with self._lock:
            session = self._open.get(key)
            if session is None:
                return None
            now = self._clock()
            if now - session.seen_s >= IDLE_S or now - session.began_s >= WHOLE_S:
                del self._open[key]
                return None
            if by_hand:
                session.seen_s = now
                self._open.move_to_end(key)
            return session.visitor

    def end(self, session: str) -> None:
        """``session``: of a visitor."""
        with self._lock:
            self._open.pop(bytes.fromhex(session), None)


def _key(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
