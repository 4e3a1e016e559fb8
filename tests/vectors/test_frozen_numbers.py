"""The way back: what today's programs store is what the newest frozen version can read.

Tables and rows are compared in ``test_frozen_services.py``, to the byte. Here is what no row of the
corpus may have had: every number and word that a column, a file or a signed message can hold. A new
one is read by no earlier version: then a new version is frozen, and docs/OPERATIONS.md says that
there is no way back over it. ``tools/rollback.py`` asks the earlier programs themselves.
"""

from __future__ import annotations

import json
from enum import Enum

from shoal.analyzer.core import BatchState
from shoal.clocks.timekeeping import Origin, Trouble
from shoal.crypto.secagg.shares import ShareKind
from shoal.crypto.suites import SuiteId
from shoal.domain import Norm
from shoal.errors import Kind
from shoal.secagg import Mode
from shoal.shuffler.core import WindowState
from shoal.task import Admission, Aggregator
from tests.vectors.frozen_corpus import FROZEN, VERSIONS

STORED: dict[str, type[Enum]] = {
    one.__name__: one
    for one in (
        *(WindowState, BatchState, Kind, Origin, Trouble, Admission, Aggregator, Mode, Norm),
        *(ShareKind, SuiteId),
    )
}


def test_every_number_and_word_that_is_stored_is_known_to_the_newest_version() -> None:
    """Planted: a state of windows, or a way of admission, beyond those that were -> fails."""
    frozen = json.loads((FROZEN / VERSIONS[-1] / "numbers.json").read_text())
    # of the reason why a clock is disputed its name is stored
    today = {
        name: list(kinds.__members__)
        if kinds is Trouble
        else {key: member.value for key, member in kinds.__members__.items()}
        for name, kinds in STORED.items()
    }
    assert today == frozen
