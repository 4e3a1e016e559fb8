"""What makes a run of several shufflers fail. The benchmark itself runs in test_benchmarks.py."""

from __future__ import annotations

import pytest

from benchmarks import replicas


def test_all_that_was_acknowledged_is_counted_once() -> None:
    """Planted: ``rejected`` not compared -> the third passes, fails."""
    replicas.check(300, 300, 300, 0)
    for acknowledged, counted, rejected in ((299, 300, 0), (300, 299, 0), (300, 300, 1)):
        with pytest.raises(RuntimeError, match="lost or doubled"):
            replicas.check(300, acknowledged, counted, rejected)
