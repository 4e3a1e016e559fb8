"""Shoal for an analyst, in Python and without services: what ``import shoal`` gives.

In the order in which they are used: ``plan`` chooses a randomizer for a guarantee, ``design`` takes
one by its name; a ``Design`` randomizes a column of answers, estimates from the reports, and says
what it promises. docs/PYTHON.md begins with ten lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.study.audited import Audited
    from shoal.study.designed import Design, design
    from shoal.study.estimates import EstimateTable
    from shoal.study.frames import Table
    from shoal.study.pictures import Picture
    from shoal.study.planning import Planned, plan
    from shoal.study.promise import Promise
    from shoal.study.releases import ReleaseTable, TotalsArray, read_release
    from shoal.study.reports import Reports
    from shoal.study.simulated import Simulated
    from shoal.study.tables import SyntheticTable
    from shoal.study.updates import Update, clip_update, send_update
    from shoal.study.vectors import VectorDesign, VectorMean, VectorPromise, design_vector

__all__ = [
    "Audited",
    "Design",
    "EstimateTable",
    "Picture",
    "Planned",
    "Promise",
    "ReleaseTable",
    "Reports",
    "Simulated",
    "SyntheticTable",
    "Table",
    "TotalsArray",
    "Update",
    "VectorDesign",
    "VectorMean",
    "VectorPromise",
    "clip_update",
    "design",
    "design_vector",
    "plan",
    "read_release",
    "send_update",
]

_HOME = {
    "Audited": "audited",
    "Design": "designed",
    "EstimateTable": "estimates",
    "Picture": "pictures",
    "Planned": "planning",
    "Promise": "promise",
    "ReleaseTable": "releases",
    "Reports": "reports",
    "Simulated": "simulated",
    "SyntheticTable": "tables",
    "Table": "frames",
    "TotalsArray": "releases",
    "Update": "updates",
    "VectorDesign": "vectors",
    "VectorMean": "vectors",
    "VectorPromise": "vectors",
    "clip_update": "updates",
    "design": "designed",
    "design_vector": "vectors",
    "plan": "planning",
    "read_release": "releases",
    "send_update": "updates",
}


def __getattr__(name: str) -> Any:
    """Loaded on first use: ``import shoal`` on a device loads nothing more."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
