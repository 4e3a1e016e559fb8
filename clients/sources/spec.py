"""Where a device reads the value of one task from: what the owner wrote under
[sources.TASKNAME].
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from shoal.domain import NO_ANSWER
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS

KINDS = ("json", "sqlite", "command", "http")
DEFAULT_TIMEOUT_S = 5.0
_LEAST_TIMEOUT_S = 0.1
_MOST_ARGUMENTS = 256
_WANTS = {"json": ("file",), "sqlite": ("file", "query"), "command": ("argv",), "http": ("url",)}
_TAKES = {
    "json": ("file", "pointer"),
    "sqlite": ("file", "query"),
    "command": ("argv", "pointer"),
    "http": ("url", "pointer"),
}


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """One source of values. Only the owner's configuration names sources: a task can't.

    ``kind``:

    - json: ``file`` is read, ``pointer`` (RFC 6901, "" is the whole document) names the value in
      it.
    - sqlite: ``query`` runs over the database ``file``, opened for reading alone; first column of
      the first row.
    - command: ``argv`` is run, without a shell; standard output, stripped, is the value. With a
      ``pointer`` it is read as JSON.
    - http: ``url`` on this very machine (http to 127.0.0.0/8, [::1] or localhost) is fetched; as of
      a command.

    ``timeout_s``: seconds, 0.1 to LIMITS.source_s. ``task_id``: the first 8 to 64 hex digits of the
    id of the one task that may have the value, or "": any task of that name that the policy
    accepts. ``otherwise``: what a value counts as that is no answer to the question: "no answer",
    or a text that is an answer. ``releases``: for a task that learns a model, the folder of its
    signed releases: the value is this device's row then (docs/AGENT.md); None: none. Raises CONFIG
    naming the key.
    """

    kind: str
    timeout_s: float = DEFAULT_TIMEOUT_S
    file: Path | None = None
    pointer: str = ""
    query: str = ""
    argv: tuple[str, ...] = ()
    url: str = ""
    task_id: str = ""
    otherwise: str = NO_ANSWER
    releases: Path | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise _bad("kind", f"one of {', '.join(KINDS)}")
        if not _LEAST_TIMEOUT_S <= self.timeout_s <= LIMITS.source_s:
            raise _bad("timeout_s", f"{_LEAST_TIMEOUT_S:g} to {LIMITS.source_s:g} seconds")
        for key in ("file", "pointer", "query", "argv", "url"):
            present = bool(getattr(self, key))
            if present and key not in _TAKES[self.kind]:
                raise _bad(key, f"a source of kind {self.kind} has none: remove it")
            if not present and key in _WANTS[self.kind]:
                raise _bad(key, f"a source of kind {self.kind} needs it")
        if self.pointer and (
            not self.pointer.startswith("/") or re.search("~(?![01])", self.pointer)
        ):
            raise _bad(
                "pointer",
                'a JSON pointer starts with "/", as in "/counters/visits"; ~1 stands for a /, ~0 '
                "for a ~",
            )
        if (
            len(self.argv) > _MOST_ARGUMENTS
            or any("\0" in argument for argument in self.argv)
            or (self.argv and not self.argv[0])
        ):
            raise _bad("argv", f"a program and its arguments, at most {_MOST_ARGUMENTS} texts")
        if self.url:
            loopback_parts(self.url)
        if not self.otherwise.strip():
            raise _bad("otherwise", f'"{NO_ANSWER}", or what the task accepts as an answer')
        if self.task_id and not (
            8 <= len(self.task_id) <= 64 and set(self.task_id) <= set("0123456789abcdef")
        ):
            raise _bad("task_id", "8 to 64 lower-case hex digits")


def loopback_parts(url: str) -> tuple[str, int, str]:
    """Host, port and request target of a URL that stays on this machine. Raises CONFIG for every
    other one.
    """
    problem = _bad(
        "url", "http://127.0.0.1:8080/PATH, for example: a source is on this very machine"
    )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        raise problem from None
    if parts.scheme != "http" or "@" in parts.netloc or not _is_loopback(host):
        raise problem
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or not target.isprintable() or " " in target:
        raise _bad("url", "percent-encode everything in it that is not plain ASCII")
    return host, port, target


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (
        address in ipaddress.ip_network("127.0.0.0/8")
        if address.version == 4
        else address == ipaddress.IPv6Address("::1")
    )


def _bad(key: str, why: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, f"{key}: {why}")
