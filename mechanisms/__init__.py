"""Local randomizers: one file each, one registry.

``create(spec, domain)`` builds a randomizer from a task's integers, ``design(name, domain,
epsilon0)`` chooses those integers. The package itself imports nothing: numpy is loaded with the
first name that is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.mechanisms.base import Estimate, Family, Mechanism, Tally
    from shoal.mechanisms.registry import REGISTRY, create, design, serves

__all__ = ["REGISTRY", "Estimate", "Family", "Mechanism", "Tally", "create", "design", "serves"]

_HOME = {"REGISTRY": "registry", "create": "registry", "design": "registry", "serves": "registry"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'base')}"), name)
