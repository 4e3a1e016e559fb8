"""Three sizes of the same tests: ``make test`` runs the reduced counts, ``make test-full``
(SHOAL_FULL=1) the full ones, and ``make campaigns`` (SHOAL_CAMPAIGN=1) runs, at counts that take
hours, the tests that are marked ``campaign``.
"""

from __future__ import annotations

import os

CAMPAIGN = os.environ.get("SHOAL_CAMPAIGN") == "1"
FULL = CAMPAIGN or os.environ.get("SHOAL_FULL") == "1"


def size(reduced: int, full: int, campaign: int | None = None) -> int:
    """The count to run. ``campaign``: where it differs from ``full``; the test, or its file, is
    then marked ``campaign``.
    """
    if CAMPAIGN and campaign is not None:
        return campaign
    return full if FULL else reduced
