"""ShoalError on the wire and back: a gRPC status, one line of text, and the kind's number as trailing metadata."""

from __future__ import annotations

import grpc

from shoal.errors import Kind, ShoalError

KIND_KEY = "shoal-kind"
MOST_TEXT = 300  # characters of a message that are sent and shown: longer ones would not fit the limit of headers

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


class Unnamed(ShoalError):  # noqa: N818 - it is a ShoalError that says a little more
    """A failure whose kind the peer did not name: gRPC itself, or something between here and the peer, spoke."""


def status_of(error: ShoalError) -> grpc.StatusCode:
    return grpc.StatusCode[error.status]


def from_rpc_error(error: grpc.aio.AioRpcError, what: str) -> ShoalError:
    """What a failed call means to the caller. ``what`` names the peer, e.g. "shuffler"."""
    kind = _KIND_OF.get(error.code(), Kind.INTERNAL)
    for key, value in error.trailing_metadata() or ():
        if key == KIND_KEY and isinstance(value, str) and value.isdecimal() and int(value) in _KINDS:
            return ShoalError(_KINDS[int(value)], _one_line(error.details()) or f"the {what} refused")
    if kind is Kind.UNAVAILABLE:
        return Unnamed(kind, f"the {what} can't be reached: check its address and certificate, and that it runs")
    if kind is Kind.DEADLINE:
        return Unnamed(kind, f"the {what} did not answer in time: try again")
    if kind is Kind.OVERLOADED and "larger than max" in (error.details() or ""):  # gRPC's own limits; retrying would never help
        return Unnamed(Kind.OVERSIZE, f"the message is too large for the {what}")
    if kind is Kind.OVERLOADED:
        return Unnamed(kind, f"the {what} is overloaded: try again later")
    return Unnamed(kind, f"the {what} answered {error.code().name}")


def _one_line(text: str | None) -> str:
    """A peer's message as it may be shown: printable, one line, short."""
    return "".join(character if character.isprintable() else " " for character in (text or "")[:MOST_TEXT]).strip()
