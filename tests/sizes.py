"""Two sizes of the same tests: ``make test`` runs the reduced counts, ``make test-full``
(SHOAL_FULL=1) the full ones.
"""

from __future__ import annotations

import os

FULL = os.environ.get("SHOAL_FULL") == "1"


def size(reduced: int, full: int) -> int:
    """The count to run: the full one under ``make test-full``."""
    return full if FULL else reduced
