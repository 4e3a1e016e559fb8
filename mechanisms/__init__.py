"""Local randomizers: one file each, one registry.

``create(spec, domain)`` builds a randomizer from a task's integers, ``design(name, domain,
epsilon0)`` chooses those integers. A randomizer's own file is loaded when its name is asked for.
"""

from __future__ import annotations

from shoal.mechanisms.base import Estimate, Family, Mechanism, Tally
from shoal.mechanisms.registry import REGISTRY, create, design, serves

__all__ = ["REGISTRY", "Estimate", "Family", "Mechanism", "Tally", "create", "design", "serves"]
