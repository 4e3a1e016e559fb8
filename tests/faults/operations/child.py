"""``shoal`` that does not wait: what services try again after seconds or minutes they try again at
once, so that lives with many kills stay short. Everything else is the command.
"""

from __future__ import annotations

import sys

import pytest

from shoal.analyzer.batches import processing
from shoal.cli.main import main
from shoal.clocks.backoff import Backoff
from shoal.shuffler.reports import lifecycle

AT_ONCE = Backoff(0.05, 0.2)

if __name__ == "__main__":
    patch = pytest.MonkeyPatch()  # for good: the process ends with it
    patch.setattr(lifecycle, "_RETRY", AT_ONCE)
    patch.setattr(processing, "_AGAIN", AT_ONCE)
    patch.setattr(processing, "_LOOK_S", 0.2)
    sys.exit(main())
