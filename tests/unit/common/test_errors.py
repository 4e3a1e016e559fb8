"""One table between kinds and statuses, complete, and never UNKNOWN."""

from __future__ import annotations

import pickle

import grpc

from shoal.errors import RETRYABLE, STATUS_OF, USAGE, Kind, ShoalError
from shoal.limits import LIMITS, frame_size_for
from tests.cases import for_each


def test_every_kind_has_a_status_that_grpc_knows() -> None:
    """Planted: a new kind without a line in STATUS_OF, or one that travels as UNKNOWN -> this
    fails.
    """
    assert STATUS_OF.keys() == set(Kind)
    names = {code.name for code in grpc.StatusCode}
    assert set(STATUS_OF.values()) <= names - {"UNKNOWN", "OK", "CANCELLED", "UNIMPLEMENTED"}


def test_numbers_never_change() -> None:
    """They cross the wire in receipts and metadata: an old client must read a new server's
    refusals.
    """
    assert {kind.name: kind.value for kind in Kind} == {
        "INVALID": 1,
        "UNKNOWN_TASK": 2,
        "UNKNOWN_KEY": 3,
        "TOO_EARLY": 4,
        "WINDOW_CLOSED": 5,
        "WINDOW_FULL": 6,
        "OVERLOADED": 7,
        "OVERSIZE": 8,
        "UNAVAILABLE": 9,
        "DEADLINE": 10,
        "UNAUTHENTICATED": 11,
        "FORBIDDEN": 12,
        "BAD_SIGNATURE": 13,
        "CONFLICT": 14,
        "TOO_FEW": 15,
        "MISMATCH": 16,
        "CONFIG": 17,
        "KEY_FILE": 18,
        "REFUSED": 19,
        "PORT_IN_USE": 20,
        "INTERNAL": 21,
        "NOT_FOUND": 22,
        "ABORTED": 23,
    }


def test_what_may_be_sent_again() -> None:
    """Retrying what can't succeed is load for nothing; dropping what could succeed is a lost
    report.
    """
    assert {
        Kind.OVERLOADED,
        Kind.UNAVAILABLE,
        Kind.DEADLINE,
        Kind.INTERNAL,
        Kind.TOO_EARLY,
    } == RETRYABLE
    assert not RETRYABLE & {
        Kind.INVALID,
        Kind.OVERSIZE,
        Kind.WINDOW_CLOSED,
        Kind.WINDOW_FULL,
        Kind.CONFLICT,
        Kind.BAD_SIGNATURE,
    }
    assert ShoalError(Kind.OVERLOADED, "x").retryable
    assert not ShoalError(Kind.OVERSIZE, "x").retryable


def test_wrong_requests_are_not_failed_work() -> None:
    assert Kind.CONFIG in USAGE
    assert Kind.KEY_FILE in USAGE
    assert Kind.INTERNAL not in USAGE


def test_a_failure_survives_pickling() -> None:
    """Worker processes raise them. Planted: no ``__reduce__`` -> this fails."""
    # our own bytes
    one = pickle.loads(pickle.dumps(ShoalError(Kind.TOO_FEW, "withheld")))  # noqa: S301
    assert (type(one), one.kind, one.message) == (ShoalError, Kind.TOO_FEW, "withheld")


def test_the_text_is_the_message() -> None:
    error = ShoalError(Kind.WINDOW_FULL, "the window is full: drop the report")
    assert str(error) == error.message == "the window is full: drop the report"
    assert error.status == "FAILED_PRECONDITION"


@for_each(
    "payload, size",
    [(0, 512), (412, 512), (413, 4096), (3_996, 4096), (3_997, 32_768), (32_668, 32_768)],
)
def test_the_smallest_frame_that_holds_a_payload(payload: int, size: int) -> None:
    """Boundaries to the byte, with 100 bytes of header and HPKE. Planted: < for <= -> this
    fails.
    """
    assert frame_size_for(payload, 100) == size


def test_no_frame_is_large_enough() -> None:
    assert frame_size_for(32_669, 100) is None


def test_limits_fit_together() -> None:
    """A frame fits a Submit, a full batch of small frames fits a SubmitBatch, its receipts fit a
    reply.
    """
    assert max(LIMITS.frame_sizes) + 64 <= LIMITS.submit_bytes
    assert LIMITS.batch_frames * (min(LIMITS.frame_sizes) + 4) <= LIMITS.batch_bytes
    assert LIMITS.batch_frames * 48 <= LIMITS.reply_bytes
    assert list(LIMITS.frame_sizes) == sorted(set(LIMITS.frame_sizes))
    assert LIMITS.smallest_deadline_s < LIMITS.default_deadline_s
