"""From the tally of a discovery's window to what is told of it. Of words: the beginnings that
reached the threshold, and no others. Of places: all cells that were asked for, those that reached
the threshold named among them.

What is told is post-processing of a tally that keeps the promise. The threshold is there for
people: below it a beginning may be nothing but noise. Of a map everything is told, for a count that
is shown only where it is large is too large on average: all cells of a level together are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.arrays import np
from shoal.mechanisms.base import Estimate, Tally
from shoal.mechanisms.several.levels import (
    FoundBeginning,
    kept,
    level_of,
    of_level,
    threshold,
)
from shoal.mechanisms.several.protocol import Several
from shoal.protos import release_pb2
from shoal.questions.coordinates import MICRO
from shoal.questions.discovery import DiscoveryLevel
from shoal.questions.domain_codec import decode_paths, encode_paths
from shoal.questions.place_paths import PlacePaths
from shoal.questions.spelling import END


@dataclass(frozen=True, slots=True)
class LevelFindings:
    """What one window found. ``found``: the beginnings that are told, in order; ``told``: of what
    there are estimates, of words the same, of places all cells of the level; ``estimate``: of each
    of those, as people read it, and last of the rest; ``least``: devices that an estimate must come
    to; ``no_room``: beginnings that came to it and are not followed.
    """

    level: DiscoveryLevel
    found: tuple[FoundBeginning, ...]
    told: tuple[bytes, ...]
    estimate: Estimate
    least: int
    no_room: int

    @property
    def beginnings(self) -> tuple[bytes, ...]:
        """In symbols."""
        return tuple(one.symbols for one in self.found)

    def message(self, windows: int) -> release_pb2.DiscoveredLevel:
        """As a release carries it, of a task of so many windows."""
        discovery = self.level.discovery
        paths = discovery.alphabet if isinstance(discovery.alphabet, PlacePaths) else None
        return release_pb2.DiscoveredLevel(
            level=self.level.number,
            levels=discovery.levels,
            beginnings=self.beginnings,
            threshold=self.least,
            no_room=self.no_room,
            parts=None if paths is None else encode_paths(paths),
            asked=() if paths is None else self.told,
            drawn=windows if discovery.fresh else 0,
        )


def findings(made: Several, level: DiscoveryLevel, tally: Tally, reports: int) -> LevelFindings:
    """``made``: the task's mechanism; ``reports`` >= 1: devices that took part. Raises INVALID
    unless it is that of a discovery.
    """
    histogram = level_of(made, level)
    estimate = histogram.estimate(of_level(tally, level), reports)
    return found_in(level, estimate, threshold(histogram, level.discovery.levels, reports))


def found_in(level: DiscoveryLevel, estimate: Estimate, least: int) -> LevelFindings:
    """``estimate``: of all cells of a level."""
    found, no_room = kept(level, estimate, least)
    beginnings, alphabet = tuple(one.symbols for one in found), level.discovery.alphabet
    told = beginnings
    if isinstance(alphabet, PlacePaths):
        told = tuple(map(level.beginning, range(level.size - 1)))
    cells = np.array([*map(level.cell_of, told), level.size - 1], dtype=np.int64)
    shown = Estimate(
        (*map(alphabet.shown, told), alphabet.another),
        estimate.values[cells],
        estimate.stderr[cells],
        estimate.ci_low[cells],
        estimate.ci_high[cells],
    )
    return LevelFindings(level, tuple(found), told, shown, least, no_room)


def rows_of(estimate: Estimate) -> list[dict[str, Any]]:
    """As a release's JSON has them."""
    columns = (estimate.values, estimate.stderr, estimate.ci_low, estimate.ci_high)
    rows = zip(estimate.labels, *(column.tolist() for column in columns), strict=True)
    names = ("label", "value", "stderr", "ci_low", "ci_high")
    return [dict(zip(names, row, strict=True)) for row in rows]


def to_json(release: release_pb2.Release) -> dict[str, Any] | None:
    """For the machine shape of a release; None of one that is no level of a discovery."""
    return level_json(release.discovered) if release.HasField("discovered") else None


def level_json(found: release_pb2.DiscoveredLevel) -> dict[str, Any]:
    """``whole``: of each estimate but the last, whether it is a whole word; of places instead
    ``cells``, with their edges in degrees, and ``box``, that of the map. ``draws_one_of``: where
    each device answers one window alone: of how many.
    """
    shown = {
        "level": found.level,
        "levels": found.levels,
        "threshold": found.threshold,
        "no_room": found.no_room,
    }
    if found.drawn:
        shown["draws_one_of"] = found.drawn
    if found.HasField("parts"):
        return {**shown, **_map_of(found, decode_paths(found.parts))}
    return {**shown, "whole": [one[-1:] == bytes((END,)) for one in found.beginnings]}


def _map_of(found: release_pb2.DiscoveredLevel, paths: PlacePaths) -> dict[str, Any]:
    """``path``: the symbols of a cell as hexadecimal digits; ``reached``: whether it came to the
    threshold, and had room.
    """
    reached = frozenset(found.beginnings)
    return {
        "box": _degrees(paths.edges(b"")),
        "cells": [
            {
                "path": one.hex()[1::2],
                "reached": one in reached,
                **dict(zip(_SIDES, _degrees(paths.edges(one)), strict=True)),
            }
            for one in found.asked
        ],
    }


def _degrees(microdegrees: tuple[int, ...]) -> list[float]:
    return [one / MICRO for one in microdegrees]


_SIDES = ("south", "west", "north", "east")
