"""A map as a picture: cells in a few shades by how many devices they have, and cells that may have
none marked as such. Plain rectangles: nothing is fetched, and no streets are behind them.

A cell is *clear* where its estimate is 2 standard errors or more; of cells that nobody is in, one
in 44 looks so. All others are hatched: their estimates are mostly noise, and shades of noise would
be read as places.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shoal.analyzer.results.maps.released import RectangleLaw, law_shown, places_of
from shoal.domain import Places
from shoal.questions.coordinates import degrees
from shoal.questions.places import metres

CLEAR = 2.0
"""Standard errors from which on a cell is shown as one that has devices."""
SHADES = 6
_WIDTH, _HEIGHT = 560.0, 520.0  # of the cells, at most
_LEFT, _TOP, _BELOW = 78.0, 14.0, 52.0
_MOST_NAMED = 2_500  # cells that are drawn one by one, each with its figures
_MOST_COLUMNS, _MOST_ROWS = 48, 36  # of a text
MOST_LISTED = 40  # cells beside a picture
_TEXT = ".:+*%#@"  # hatched, and the shades


@dataclass(frozen=True, slots=True)
class DrawnCells:
    """One cell, or neighbours of one shade: a rectangle. ``shade``: 0 hatched, 1 to SHADES."""

    x: float
    y: float
    width: float
    height: float
    shade: int
    title: str

    @property
    def opacity(self) -> float:
        """How much of the colour it has, 0 to 1."""
        return opacity(self.shade)


@dataclass(frozen=True, slots=True)
class MapFrame:
    """Where a map lies in a picture, and what is written around it. ``bar``, ``bar_words``: a
    length on the ground. Sizes in the picture's own unit.
    """

    width: float
    height: float
    left: float
    top: float
    right: float
    bottom: float
    south: str
    west: str
    north: str
    east: str
    bar: float
    bar_words: str


@dataclass(frozen=True, slots=True)
class MapPicture(MapFrame):
    """``legend``: shade, opacity and words of each that there is. ``rectangles``: whether any of
    them can be asked.
    """

    cells: tuple[DrawnCells, ...]
    legend: tuple[tuple[int, float, str], ...]
    words: str
    elsewhere: str
    rectangles: bool


def frame_of(places: Places) -> MapFrame:
    """Of a map in its own proportions."""
    across, up = places.columns * places.cell_width_m, places.rows * places.cell_height_m
    scale = min(_WIDTH / across, _HEIGHT / up)
    width, height = across * scale, up * scale
    bar = _round_length(across / 3.0)
    south, west, north, east = map(_short, (places.south, places.west, places.north, places.east))
    return MapFrame(
        width=_LEFT + max(width, 120.0) + 20.0,
        height=_TOP + height + _BELOW,
        left=_LEFT,
        top=_TOP,
        right=_LEFT + width,
        bottom=_TOP + height,
        south=south,
        west=west,
        north=north,
        east=east,
        bar=round(bar * scale, 2),
        bar_words=metres(bar),
    )


def shades_of(values: Sequence[float], errors: Sequence[float]) -> tuple[list[int], list[float]]:
    """(shade of each cell, the least value of each shade): 0 for cells that are not clear. Shades
    grow by a common factor from the smallest to the largest clear estimate.
    """
    clear = [_is_clear(v, e) for v, e in zip(values, errors, strict=True)]
    shown = [value for value, seen in zip(values, clear, strict=True) if seen]
    if not shown:
        return [0] * len(values), []
    low, high = min(shown), max(shown)
    steps = SHADES if high > low * 1.05 else 1
    factor = (high / low) ** (1.0 / steps)
    starts = [low * factor**at for at in range(steps)]

    def shade(value: float) -> int:
        place = 0 if steps == 1 else math.log(value / low) / math.log(factor)
        return min(int(place), steps - 1) + 1

    return [shade(v) if c else 0 for v, c in zip(values, clear, strict=True)], starts


def opacity(shade: int) -> float:
    """How much of the colour a shade has, 0 to 1."""
    return round(0.12 + 0.88 * shade / SHADES, 2)


def largest(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the cells of a map those with the largest estimates, and elsewhere: what a list shows
    beside the picture.
    """
    listed = sorted(rows[:-1], key=lambda row: -float(row["value"]))[:MOST_LISTED]
    return [*listed, rows[-1]] if rows else []


def _is_clear(value: float, error: float) -> bool:
    return value > 0.0 and value >= CLEAR * error


def picture_of(release: Mapping[str, Any]) -> MapPicture | None:
    """Of a release in its JSON shape; None of one without a map."""
    shown = release.get("map")
    if not shown:
        return None
    places, law = places_of(shown), law_shown(shown)
    rows = release["estimates"]
    values, errors = ([float(row[key]) for row in rows[:-1]] for key in ("value", "stderr"))
    shades, starts = shades_of(values, errors)
    frame = frame_of(places)
    return MapPicture(
        **asdict(frame),
        cells=tuple(_drawn(places, shades, rows, frame)),
        legend=tuple((one, opacity(one), words) for one, words in _legend(shades, starts)),
        words=_words(places, shades),
        elsewhere=f"{rows[-1]['label'].capitalize()}: {_figures(rows[-1])}",
        rectangles=law.kept > law.other,
    )


def _words(places: Places, shades: Sequence[int]) -> str:
    clear = sum(shade > 0 for shade in shades)
    return (
        f"{places.described}. In {clear:,} of {len(shades):,} cells the estimate is {CLEAR:g} "
        "standard errors or more; the others are hatched"
    )


def _drawn(
    places: Places,
    shades: Sequence[int],
    rows: Sequence[Mapping[str, Any]],
    frame: MapFrame,
) -> Iterator[DrawnCells]:
    one_by_one = len(shades) <= _MOST_NAMED
    step = (frame.right - frame.left) / places.columns
    rise = (frame.bottom - frame.top) / places.rows
    for row in range(places.rows):
        first = row * places.columns
        start = 0
        for column in range(places.columns):
            last = column + 1 == places.columns
            if not (one_by_one or last or shades[first + column] != shades[first + column + 1]):
                continue
            told = rows[first + column]
            yield DrawnCells(
                x=round(_LEFT + start * step, 2),
                y=round(_TOP + (places.rows - 1 - row) * rise, 2),
                width=round((column + 1 - start) * step, 2),
                height=round(rise, 2),
                shade=shades[first + column],
                title=f"{told['label']}: {_figures(told)}" if one_by_one else "",
            )
            start = column + 1


def _figures(row: Mapping[str, Any]) -> str:
    return f"{row['value']:,.4g} (95 %: {row['ci_low']:,.4g} to {row['ci_high']:,.4g})"


def _legend(shades: Sequence[int], starts: Sequence[float]) -> Iterator[tuple[int, str]]:
    if 0 in shades:
        yield 0, f"below {CLEAR:g} standard errors: perhaps nobody"
    for at, start in enumerate(starts):
        if at + 1 == len(starts):
            yield at + 1, f"{start:,.3g} and more"
        else:
            yield at + 1, f"{start:,.3g} to {starts[at + 1]:,.3g}"


def _short(microdegrees: int) -> str:
    return degrees(microdegrees).rstrip("0").rstrip(".") + "°"


def _round_length(most: float) -> float:
    """The largest of 1, 2, 5 times a power of ten metres that is not longer."""
    power = 10.0 ** math.floor(math.log10(most))
    return max(times * power for times in (1.0, 2.0, 5.0) if times * power <= most)


def text_of(release: Mapping[str, Any]) -> list[str]:
    """The map in letters, the north on top, each cell two letters wide; cells of a large one are
    put together, where it is known how much they err. Then what the letters mean. Empty of a
    release without a map.
    """
    shown = release.get("map")
    if not shown:
        return []
    places, law = places_of(shown), law_shown(shown)
    by = max(-(-places.columns // _MOST_COLUMNS), -(-places.rows // _MOST_ROWS))
    if by > 1 and law.kept <= law.other:
        return [f"map: {places.described}; too large for a terminal: shoal results report draws it"]
    values, errors, across = _together(release, places, law, by)
    shades, starts = shades_of(values, errors)
    lines = [f"map: {places.described}, the north on top"]
    for first in reversed(range(0, len(shades), across)):
        lines.append(
            "|" + "".join(_TEXT[each] * 2 for each in shades[first : first + across]) + "|"
        )
    if by > 1:
        lines.append(f"a letter pair is {by} x {by} cells")
    meanings = (f'"{_TEXT[shade]}" {words}' for shade, words in _legend(shades, starts))
    return [*lines, "; ".join(meanings)]


def _together(
    release: Mapping[str, Any], places: Places, law: RectangleLaw, by: int
) -> tuple[list[float], list[float], int]:
    """(values, standard errors, columns) of squares of ``by`` x ``by`` cells."""
    rows = release["estimates"]
    own = [float(row["value"]) for row in rows]
    if by == 1:
        return own[:-1], [float(row["stderr"]) for row in rows[:-1]], places.columns
    values, errors = list[float](), list[float]()
    for bottom in range(0, places.rows, by):
        for left in range(0, places.columns, by):
            high = (bottom, min(bottom + by, places.rows))
            wide = (left, min(left + by, places.columns))
            found = math.fsum(
                own[row * places.columns + column]
                for row in range(*high)
                for column in range(*wide)
            )
            values.append(found)
            errors.append(law.stderr(places, high, wide, int(release["n"]), found))
    return values, errors, -(-places.columns // by)
