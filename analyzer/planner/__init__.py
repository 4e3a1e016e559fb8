"""Chooses mechanism and integers for the guarantee that holds *after* shuffling: ``plan(Request(...))``.

After shuffling the rules of local privacy mislead (randomizers that are best at a local epsilon of 1 throw away half of every count at one
of 8), so every setting of every registered mechanism is compared at its own largest epsilon0 for one and the same central guarantee.
docs/PLANNER.md says what is assumed and what the figures mean.
"""

from __future__ import annotations

from shoal.analyzer.planner.candidates import Candidate, Unsuited
from shoal.analyzer.planner.predict import Errors
from shoal.analyzer.planner.question import LEVELS, QUANTILE_LEVELS, Frequencies, Mean, Quantiles, Question, Request, Shape, Sum
from shoal.analyzer.planner.result import Option, Plan, Repeated, Standing
from shoal.analyzer.planner.simulate import Simulation, simulate
from shoal.analyzer.planner.total import plan

__all__ = [
    "LEVELS",
    "QUANTILE_LEVELS",
    "Candidate",
    "Errors",
    "Frequencies",
    "Mean",
    "Option",
    "Plan",
    "Quantiles",
    "Question",
    "Repeated",
    "Request",
    "Shape",
    "Simulation",
    "Standing",
    "Sum",
    "Unsuited",
    "plan",
    "simulate",
]
