"""Chooses mechanism and integers for the guarantee that holds *after* shuffling:
``plan(Request(...))``.

After shuffling the rules of local privacy mislead (randomizers that are best at a local epsilon of
1 throw away half of every count at one of 8), so every setting of every registered mechanism is
compared at its own largest epsilon0 for one and the same central guarantee. docs/PLANNER.md says
what is assumed and what the figures mean.
"""

from __future__ import annotations

from shoal.analyzer.planner.candidates import Candidate, Unsuited
from shoal.analyzer.planner.heaps import Heaped, heaped, hitting, of_numbers, with_levels
from shoal.analyzer.planner.predict import Errors
from shoal.analyzer.planner.quantiles import heaped_error
from shoal.analyzer.planner.question import (
    LEVELS,
    QUANTILE_LEVELS,
    Frequencies,
    Mean,
    Quantiles,
    Question,
    Request,
    Shape,
    Spread,
    Sum,
)
from shoal.analyzer.planner.result import Option, Plan, Repeated, Standing
from shoal.analyzer.planner.simulation.simulate import Simulation, simulate
from shoal.analyzer.planner.total import plan

__all__ = [
    "LEVELS",
    "QUANTILE_LEVELS",
    "Candidate",
    "Errors",
    "Frequencies",
    "Heaped",
    "Mean",
    "Option",
    "Plan",
    "Quantiles",
    "Question",
    "Repeated",
    "Request",
    "Shape",
    "Simulation",
    "Spread",
    "Standing",
    "Sum",
    "Unsuited",
    "heaped",
    "heaped_error",
    "hitting",
    "of_numbers",
    "plan",
    "simulate",
    "with_levels",
]
