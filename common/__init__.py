"""Shoal: statistics from fleets of devices in the shuffle model of differential privacy.

For an analyst ``import shoal`` has all of ``shoal.study``, loaded on first use: ``shoal.design``,
``shoal.plan``. A device that imports ``shoal`` loads none of it. The names stand in __init__.pyi,
for type checkers.
"""

__version__ = "0.1.0"

_ANALYST = frozenset(
    {
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
    }
)


def __getattr__(name: str) -> object:
    """What an analyst uses, from ``shoal.study``."""
    if name not in _ANALYST:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("shoal.study"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ANALYST})
