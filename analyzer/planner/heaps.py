"""Shapes with heaps: many devices with one and the same number, as answers of people have (forty
hours, fifty euros).

Rounding to levels and reading quantiles back in straight lines is right for smooth shapes, and off
by up to half a step beside a heap that lies between two levels. So a plan is made for a shape that
says where its heaps are, and their levels are among those that are tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from shoal.analyzer.planner.question import Quantiles, Shape, Spread, wrong
from shoal.arrays import NDArray, np

MOST_LEVELS = 256
_TRIED = 8  # numbers of levels that hit the heaps
HEAP = 0.02  # of the devices at one number: from here on a heap
HALF = 0.5  # of the devices, on heaps whose shares nobody says


@dataclass(frozen=True, slots=True)
class Heaped:
    """A shape in which some of the devices have one of a few numbers, and the others are spread as
    ``rest`` says.

    ``at``: places in the range, 0 to 1, increasing; ``shares``: of the devices, each above 0,
    adding up to at most 1. ``name``: as a plan states it. Raises CONFIG for anything else.
    """

    at: tuple[float, ...]
    shares: tuple[float, ...]
    rest: Shape = Shape.BELL
    name: str = "heaps"

    def __post_init__(self) -> None:
        if not self.at or len(self.at) != len(self.shares) or list(self.at) != sorted(set(self.at)):
            raise wrong("heaps are different numbers, each with its share of the devices")
        if not 0.0 <= self.at[0] <= self.at[-1] <= 1.0:
            raise wrong("heaps lie in the range of the numbers: --low to --high")
        if min(self.shares) <= 0.0 or math.fsum(self.shares) > 1.0 + 1e-9:
            raise wrong("shares of heaps are above 0 and add up to at most 1")

    def __str__(self) -> str:
        return self.name

    def quantiles(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64[n]: the places, 0 to 1, at or below which so large shares of the devices lie.
        ``shares``: float64[n], 0 to 1.
        """
        held, at = np.array(self.shares), np.array(self.at)
        others = max(0.0, 1.0 - float(held.sum()))
        before = np.append(0.0, np.cumsum(held))
        ends = others * self.rest.below(at) + before[1:]  # of the devices at or below each heap
        index = np.searchsorted(ends + 1e-12, shares, "left")
        heap = np.minimum(index, at.size - 1)
        inside = (index < at.size) & (shares > ends[heap] - held[heap])
        if others <= 1e-12:
            return np.asarray(at[heap])
        smooth = self.rest.quantiles(np.clip((shares - before[index]) / others, 0.0, 1.0))
        return np.asarray(np.where(inside, at[heap], smooth))


def heaped(text: str, rest: Shape, low: float, high: float) -> Heaped:
    """From "40,38,50", which hold half of the devices, or "40=0.47,50=0.09". Raises CONFIG naming
    --heaps.
    """
    share_at: dict[float, float | None] = {}
    for part in text.split(","):
        number, equals, share = part.partition("=")
        try:
            share_at[float(number)] = float(share) if equals else None
        except ValueError:
            raise wrong(
                "--heaps: numbers, or numbers with their shares, are wanted: 40,50 or "
                "40=0.47,50=0.09"
            ) from None
    shares = [share for share in share_at.values() if share is not None]
    if shares and len(shares) != len(share_at):
        raise wrong("--heaps: give a share for every heap, or for none")
    each = {
        number: HALF / len(share_at) if share is None else share
        for number, share in sorted(share_at.items())
    }
    if not all(low <= number <= high for number in each):
        raise wrong(
            f"--heaps: numbers from {low:g} to {high:g} are wanted, the range of the answers"
        )
    where = ", ".join(f"{share:.0%} at {number:g}" for number, share in each.items())
    return Heaped(
        tuple((number - low) / (high - low) for number in each),
        tuple(each.values()),
        rest,
        f"{rest} with {where}",
    )


def of_numbers(counts: dict[float, int], low: float, high: float, name: str) -> Heaped:
    """The shape of these numbers, those outside of the range moved to its ends. Raises CONFIG for
    fewer than two.
    """
    total = sum(counts.values())
    if total < 2:
        raise wrong(f"--shape {name}: at least two numbers are wanted")
    moved: dict[float, int] = {}
    for number, count in sorted(counts.items()):
        place = (min(max(number, low), high) - low) / (high - low)
        moved[place] = moved.get(place, 0) + count
    shares = tuple(count / total for count in moved.values())
    return Heaped(tuple(moved), shares, Shape.UNIFORM, f"the {total:,} numbers of {name}")


def hitting(spread: Spread, low: float, high: float) -> tuple[int, ...]:
    """Numbers of levels of which some lie on all heaps of the shape, or on the largest that this
    can be done for; none without heaps.
    """
    if not isinstance(spread, Heaped):
        return ()
    heaps = sorted(
        ((share, at) for share, at in zip(spread.shares, spread.at, strict=True) if share >= HEAP),
        reverse=True,
    )
    steps = 1
    for _, at in heaps:
        number = Fraction(low + at * (high - low)).limit_denominator(10**6)
        place = (number - Fraction(low).limit_denominator(10**6)) / Fraction(
            high - low
        ).limit_denominator(10**6)
        wanted = math.lcm(steps, place.denominator)
        steps = wanted if wanted < MOST_LEVELS else steps
    if steps == 1:
        return ()
    every = range(steps, MOST_LEVELS, steps)
    least = [each for each in every if each >= 3]
    return tuple(each + 1 for each in least[:: max(1, len(least) // _TRIED)])


def with_levels(levels: Iterable[int], more: Iterable[int]) -> tuple[int, ...]:
    """Both together, ascending, each once."""
    return tuple(sorted({*levels, *more}))


def worst_heaps(question: Quantiles, levels: int) -> tuple[Quantiles, ...]:
    """The question with half of the devices on one number: near the middle of the range, on a level
    and at three places beside it.
    """
    middle, top = (levels - 1) // 2, max(1, levels - 1)
    places = sorted({min(1.0, (middle + part) / top) for part in (0.0, 0.25, 0.5, 0.75)})
    return tuple(
        Quantiles(
            question.low,
            question.high,
            question.at,
            question.levels,
            Heaped((at,), (HALF,)),
            question.clip,
            question.unit,
        )
        for at in places
    )
