"""ShoalError on the wire and back: a gRPC status, one line of text, and the kind's number as
trailing metadata.
"""

from __future__ import annotations

import grpc

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS

KIND_KEY = "shoal-kind"
# Milliseconds to wait before the next attempt. gRPC's own name for it (gRFC A6): a library whose
# retries are on obeys by itself.
RETRY_KEY = "grpc-retry-pushback-ms"
# characters of a message that are sent and shown: longer ones would not fit the limit of headers
MOST_TEXT = 300

# Statuses that come from gRPC itself, or from a peer that sent no kind.
_KIND_OF: dict[grpc.StatusCode, Kind] = {
    grpc.StatusCode.UNAVAILABLE: Kind.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: Kind.DEADLINE,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Kind.OVERLOADED,
    grpc.StatusCode.CANCELLED: Kind.UNAVAILABLE,
    grpc.StatusCode.ABORTED: Kind.UNAVAILABLE,
    grpc.StatusCode.INVALID_ARGUMENT: Kind.INVALID,
    grpc.StatusCode.NOT_FOUND: Kind.UNKNOWN_TASK,
    grpc.StatusCode.ALREADY_EXISTS: Kind.CONFLICT,
    grpc.StatusCode.PERMISSION_DENIED: Kind.FORBIDDEN,
    grpc.StatusCode.UNAUTHENTICATED: Kind.UNAUTHENTICATED,
    grpc.StatusCode.FAILED_PRECONDITION: Kind.WINDOW_CLOSED,
    grpc.StatusCode.DATA_LOSS: Kind.MISMATCH,
    grpc.StatusCode.UNIMPLEMENTED: Kind.INVALID,
}
_KINDS = {kind.value: kind for kind in Kind}


_UNCONNECTED = "failed to connect"  # in the library's text, before why an attempt to connect failed
_TOO_LONG = (
    f"connecting took more than {LIMITS.connect_s:g} s: check its address and what lies between, "
    "or try again later"
)
# What the library says of a failed attempt to connect, and what a person may do about it; the first
# that is found. Its own text holds addresses and a peer's words, and is never shown; a version that
# says something else gets ``_UNKNOWN``.
_WHY: tuple[tuple[str, str], ...] = (
    ("connection refused", "nobody listens at its address: check the port, and that it runs"),
    (
        "certificate_verify_failed",
        "its certificate does not verify: check its CA, its name, and this machine's clock",
    ),
    (
        "peer name",
        "its certificate is for another name: use the name in its certificate as its address",
    ),
    (
        "hostname verification",
        "its certificate is for another name: use the name in its certificate as its address",
    ),
    ("wrong_version_number", "its port speaks no TLS: check the port"),
    ("ssl_error_ssl", "TLS with it failed: check its certificate, and ours if it wants one"),
    ("http1", "its port speaks another protocol: check the port"),
    ("parsing http/2", "its port speaks another protocol: check the port"),
    (
        "resolving",
        "its name has no address: check it, or try again when this machine has a network",
    ),
    ("dns", "its name has no address: check it, or try again when this machine has a network"),
    ("unreachable", "this machine has no way to its address: try again when it has a network"),
    ("timed out", _TOO_LONG),
    ("timeout", _TOO_LONG),
    ("endpoint closing", _TOO_LONG),
    (
        "handshake",
        "the connection ended before TLS was done: try again, and if it stays so check the port",
    ),
    (
        "closed",
        "it ended the connection at once: check the port, and our certificate if it wants one",
    ),
)
# The library tells of the last address alone, and a name like localhost mostly has both kinds.
_REFUSED_SIX = (
    "nobody listens at its IPv6 address, and if it has another, that failed too: check the port, "
    "that it runs, and its certificate"
)
_UNKNOWN = "check its address and certificate, and that it runs"


class Unnamed(ShoalError):  # noqa: N818 - it is a ShoalError that says a little more
    """A failure whose kind the peer did not name: gRPC itself, or something between here and the
    peer, spoke.
    """


def status_of(error: ShoalError) -> grpc.StatusCode:
    """The gRPC status of an error, by its kind."""
    return grpc.StatusCode[error.status]


def from_rpc_error(error: grpc.aio.AioRpcError, what: str) -> ShoalError:
    """What a failed call means to the caller. ``what`` names the peer, e.g. "shuffler"."""
    kind, retry = _KIND_OF.get(error.code(), Kind.INTERNAL), 0.0
    named: Kind | None = None
    for key, value in error.trailing_metadata() or ():
        if not isinstance(value, str) or not value.isascii() or not value.isdecimal():
            continue
        if key == KIND_KEY and int(value[:9]) in _KINDS:
            named = _KINDS[int(value[:9])]
        elif key == RETRY_KEY:
            retry = min(int(value[:12]) / 1000, LIMITS.retry_most_s)
    if named is not None:
        return ShoalError(
            named, _one_line(error.details()) or f"the {what} refused", retry_after_s=retry
        )
    if kind is Kind.UNAVAILABLE:
        text = _unreached(error.details() or "", what)
    elif kind is Kind.DEADLINE:
        text = (
            f"the {what} did not answer in time: try again, over a slow link with a longer deadline"
        )
    elif kind is Kind.OVERLOADED and "larger than max" in (
        error.details() or ""
    ):  # gRPC's own limits; retrying would never help
        return Unnamed(Kind.OVERSIZE, f"the message is too large for the {what}")
    elif kind is Kind.OVERLOADED:
        text = f"the {what} is overloaded: try again later"
    else:
        text = f"the {what} answered {error.code().name}"
    return Unnamed(kind, text, retry_after_s=retry)


def _unreached(details: str, what: str) -> str:
    """``details``: the library's text, of which nothing is repeated."""
    said = details.lower()
    if _UNCONNECTED not in said and "resolving" not in said and "dns" not in said:
        return f"the connection to the {what} ended before the answer came: try again"
    why = next((why for sign, why in _WHY if sign in said), _UNKNOWN)
    if "connection refused" in said and "ipv6:" in said:
        why = _REFUSED_SIX
    return f"the {what} can't be reached: {why}"


def _one_line(text: str | None) -> str:
    """A peer's message as it may be shown: printable, one line, short."""
    return "".join(
        character if character.isprintable() else " " for character in (text or "")[:MOST_TEXT]
    ).strip()
