"""A failure that comes again and again is told once, and once when it is over."""

from __future__ import annotations

import logging

import pytest

from shoal.errors import Kind, ShoalError
from shoal.log import get_log
from shoal.services.complaints import Complaints


def test_a_line_at_the_change_and_one_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """Planted: a line for each failure -> 203 lines, fails; failures not counted -> fails; one
    thing's end taken for another's -> fails.
    """
    away, full = (ShoalError(kind, "mend it") for kind in (Kind.UNAVAILABLE, Kind.OVERLOADED))
    with caplog.at_level(logging.WARNING, logger="shoal.test"):
        complaints = Complaints(get_log("test"), "no reports")
        complaints.ended("a")
        for error in (away, full):
            for _ in range(100):
                complaints.failed("a", error, window=3)
        complaints.failed("b", away)
        complaints.ended("c")
        assert len(caplog.records) == 3
        complaints.ended("a", window=3)
        complaints.ended("a", window=3)
        complaints.failed("a", away)
    said = [record.__dict__["shoal"] for record in caplog.records]
    assert [line.get("count") for line in said] == [None, None, None, 200, None]
