"""``shoal`` with defects, for tests that must see them. Each is bound to one task by its id (hex)
in an environment variable:

SHOAL_PLANT_LOSS    the shuffler acknowledges this task's third report and does not store it
SHOAL_PLANT_DOUBLE  the analyzer counts one report of this task twice
SHOAL_PLANT_YES     (any value) the shuffler acknowledges whatever does not open
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.analyzer.batches import processing
from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.results.release import prepare
from shoal.cli.main import main
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally
from shoal.protos import submit_pb2
from shoal.shuffler.reports.ingress import Ingress
from shoal.shuffler.stores.joined import Admitted, reports_of
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport, AdmittedRows


def lose(task_id: str) -> None:
    """The third report of the task, alone or joined with others, is acknowledged and not stored."""
    append, seen = SqliteStore.append, [0]

    def planted(self: SqliteStore, submissions: Sequence[Admitted]) -> list[Kind | None]:
        kept, at, missing = list[Admitted](), 0, list[int]()
        for one in submissions:
            count, before = reports_of(one), seen[0]
            if one.window.task_id.hex == task_id:
                seen[0] += count
            if before < 3 <= seen[0]:
                missing.append(at + 2 - before)
                one = _without(one, 2 - before)  # noqa: PLW2901 - what is left of it
            at += count
            if reports_of(one):
                kept.append(one)
        outcomes = append(self, kept) if kept else []
        for place in missing:
            outcomes.insert(place, None)
        return outcomes

    SqliteStore.append = planted  # type: ignore[method-assign,assignment] # planted


def _without(one: Admitted, place: int) -> Admitted:
    if isinstance(one, AdmittedReport):
        return AdmittedRows(one.window, b"", 0)
    size = len(one.sealed) // one.count
    left = one.sealed[: place * size] + one.sealed[(place + 1) * size :]
    return AdmittedRows(one.window, left, one.count - 1)


def double(task_id: str) -> None:
    def planted(served: Any, batch: Any, opened: Opened, *more: Any) -> Any:
        if served.task_id.hex == task_id:
            counts = np.array(opened.tally.counts)
            counts[0] += 1
            opened = dataclasses.replace(opened, tally=Tally(counts, opened.tally.rows + 1))
        return prepare(served, batch, opened, *more)

    setattr(processing, "prepare", planted)  # noqa: B010 - planted


def say_yes() -> None:
    submit = Ingress.submit

    async def planted(self: Ingress, request: bytes, call: Any) -> bytes:
        try:
            return await submit(self, request, call)
        except ShoalError as error:
            if error.kind is Kind.INVALID:
                return submit_pb2.SubmitReply(mac=bytes(32)).SerializeToString()
            raise

    Ingress.submit = planted  # type: ignore[method-assign] # planted


if __name__ == "__main__":
    if "SHOAL_PLANT_LOSS" in os.environ:
        lose(os.environ["SHOAL_PLANT_LOSS"])
    if "SHOAL_PLANT_DOUBLE" in os.environ:
        double(os.environ["SHOAL_PLANT_DOUBLE"])
    if "SHOAL_PLANT_YES" in os.environ:
        say_yes()
    sys.exit(main())
