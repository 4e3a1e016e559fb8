"""PyTorch, an extra that is larger than everything else together: what wants it says so."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec

import pytest

LACKING = "install PyTorch: make network"
THERE = find_spec("torch") is not None
assert THERE or os.environ.get("SHOAL_NETWORK") != "1", LACKING

needs_pytorch = pytest.mark.skipif(not THERE, reason=LACKING)
"""Of a test: skipped without PyTorch, and says so. SHOAL_NETWORK=1 (as in ``.ci/run``) makes that a
failure.
"""


def one_thread() -> None:
    """For who differentiates many rows: threads of PyTorch beside those of other tests wait for one
    another, and take ten times as long.
    """
    import_module("torch").set_num_threads(1)
