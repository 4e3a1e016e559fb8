"""From the tally of a discovery's window to what is told of it: the beginnings that reached the
threshold, and no others.

What is told is post-processing of a tally that keeps the promise. The threshold is there for
people: below it a beginning may be nothing but noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.arrays import np
from shoal.mechanisms.base import Estimate, Tally
from shoal.mechanisms.several.levels import kept, level_of, of_level, threshold
from shoal.mechanisms.several.protocol import Several
from shoal.protos import release_pb2
from shoal.questions.discovery import ANOTHER, DiscoveryLevel
from shoal.questions.spelling import END, shown


@dataclass(frozen=True, slots=True)
class LevelFindings:
    """What one window found. ``levels``: of the discovery. ``beginnings``: in symbols and in order;
    ``estimate``: of each, as people read it, and last of ``ANOTHER``; ``least``: devices that an
    estimate must come to; ``no_room``: beginnings that came to it and are not followed.
    """

    level: int
    levels: int
    beginnings: tuple[bytes, ...]
    estimate: Estimate
    least: int
    no_room: int

    def message(self) -> release_pb2.DiscoveredLevel:
        """As a release carries it."""
        return release_pb2.DiscoveredLevel(
            level=self.level,
            levels=self.levels,
            beginnings=self.beginnings,
            threshold=self.least,
            no_room=self.no_room,
        )


def findings(made: Several, level: DiscoveryLevel, tally: Tally, reports: int) -> LevelFindings:
    """``made``: the task's mechanism; ``reports`` >= 1: devices that took part. Raises INVALID
    unless it is that of a discovery.
    """
    histogram = level_of(made, level)
    estimate = histogram.estimate(of_level(tally, level), reports)
    least = threshold(histogram, level.discovery.levels, reports)
    found, no_room = kept(level, estimate, least)
    beginnings = tuple(one.symbols for one in found)
    cells = np.array([*map(level.cell_of, beginnings), level.size - 1], dtype=np.int64)
    told = Estimate(
        (*map(shown, beginnings), ANOTHER),
        estimate.values[cells],
        estimate.stderr[cells],
        estimate.ci_low[cells],
        estimate.ci_high[cells],
    )
    return LevelFindings(level.number, level.discovery.levels, beginnings, told, least, no_room)


def to_json(release: release_pb2.Release) -> dict[str, Any] | None:
    """For the machine shape of a release; None of one that is no level of a discovery.
    ``whole``: of each estimate but the last, whether it is a whole word.
    """
    if not release.HasField("discovered"):
        return None
    found = release.discovered
    return {
        "level": found.level,
        "levels": found.levels,
        "threshold": found.threshold,
        "no_room": found.no_room,
        "whole": [beginning[-1:] == bytes((END,)) for beginning in found.beginnings],
    }
