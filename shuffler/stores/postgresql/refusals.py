"""Reports that could not be stored: told once in the log, and of a full disk in status."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from shoal.errors import ShoalError
from shoal.log import get_log
from shoal.services.complaints import Complaints
from shoal.services.conditions import Condition
from shoal.shuffler.stores.postgresql.failures import FULL, DatabaseError


class Refusals(Complaints):
    """By window. See ``Complaints``."""

    def __init__(self) -> None:
        super().__init__(get_log("shuffler"), "reports could not be stored")
        self._full: set[Hashable] = set()

    def failed(self, key: Hashable, error: ShoalError, **fields: object) -> None:
        """As ``Complaints.failed``."""
        super().failed(key, error, **fields)
        if isinstance(error, DatabaseError) and error.sqlstate == FULL:
            self._full.add(key)

    def ended(self, key: Hashable, **fields: object) -> None:
        """As ``Complaints.ended``."""
        super().ended(key, **fields)
        self._full.discard(key)

    def conditions(self) -> Iterator[Condition]:
        """It stops nothing: whether there is room again shows when a report comes."""
        if self._full:
            yield Condition(
                "disk_full",
                "database",
                "the database's disk is full: give it room; until then reports are refused, and "
                "devices send them again",
                stops=False,
            )
