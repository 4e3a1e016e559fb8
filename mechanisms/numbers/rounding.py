"""How much rounding numbers to levels adds to the error of a mean, at most, given what the reports
tell of the levels.

A number that lies a share f of a step above a level is rounded up with probability f, so that its
level is right on average and has the variance f (1 - f) step^2: coins beside the randomizer's own.
Which f the devices have is in no report. What reports do tell is h(j), how many devices are
expected on level j, and that bounds the sum of f (1 - f): numbers between the levels j and j + 1
that add a to h(j) and b to h(j + 1) have at most a b / (a + b) of it, which is attained if they are
all equal. With m(j) >= 0 and m(j) + m(j + 1) >= 1 for every two neighbours,

    a b / (a + b) <= a m(j)^2 + b m(j + 1)^2,      so
    sum of f (1 - f) <= sum over the levels of h(j) m(j)^2.

Every such m proves a bound; the least of them is attained by some numbers (the problem is convex,
and this is its dual): it is what *the worst numbers with the same levels* need, and m = 1/2 shows
that it is never above a quarter of a device. Two neighbouring levels with shares p and 1 - p: p (1
- p). One level alone: 0. So an interval is no wider than some numbers with these levels need; where
numbers lie on levels (whole years, say, with a level for each) it covers with more than 95 %, and
nothing in the reports could tell that.

**Noise.** h is estimated. Every level is taken one standard error, and the sum two devices, too
high: then the bound errs upward. Where the reports don't tell the levels, it is the quarter.

**Memoized tasks** round once per device, at a point that it keeps (docs/AGENT.md): the same
rounding is in every window, so it does not average out over the windows, as the permanent
randomizing does not. An interval of one window holds; a mean over windows errs by as much.
"""

from __future__ import annotations

from functools import lru_cache

from shoal.arrays import NDArray, np
from shoal.mechanisms.parts.tables import ProbabilityTable

# m is looked for among multiples of its inverse: what is lost is below the room for noise
_GRID = 128
# beyond it a quarter of a step's square is nothing beside any randomizer's noise
_MOST_LEVELS = 2_048
_ROOM = 2.0  # devices
_EXACT = 1e-6  # of a device: how far numbers of devices per level may be off on average


def worst(levels: NDArray[np.float64]) -> float:
    """At least the largest sum of f (1 - f) of numbers with these expected levels, float64[levels]
    >= 0: at most a quarter of their sum.

    With n(j) = m(j) on even levels and 1 - m(j) on odd ones the condition orders neighbours, so
    that one pass along the levels with running minima finds the least sum over a grid of m.
    """
    quarter = float(levels.sum()) / 4.0
    if levels.size > _MOST_LEVELS:
        return quarter
    grid = np.linspace(0.0, 1.0, _GRID + 1)
    even, odd = grid**2, (1.0 - grid) ** 2
    least = levels[0] * even
    for at, level in enumerate(levels[1:].tolist(), 1):
        # On an odd level n is at most that of the level before, on an even one at least.
        least = (
            np.minimum.accumulate(least[::-1])[::-1] + level * odd
            if at % 2
            else np.minimum.accumulate(least) + level * even
        )
    return min(quarter, float(least.min()))


def bound(devices: NDArray[np.float64], errors: NDArray[np.float64], rows: int) -> float:
    """An upper estimate of the sum of f (1 - f), in devices, at most ``rows`` / 4: from unbiased
    numbers of devices per level, float64[levels], and their standard errors.
    """
    return min(worst(np.maximum(devices, 0.0) + errors) + _ROOM, rows / 4.0)


def of_reports(table: ProbabilityTable, counts: NDArray[np.float64]) -> float:
    """``bound`` from how often each output of a table was reported, float64[outputs]; the table's
    last cell is "no answer".
    """
    rows, scores = float(counts.sum()), level_scores(table)
    if scores is None:
        return rows / 4.0
    devices = counts @ scores
    squares = np.maximum(counts @ scores**2 - np.maximum(devices, 0.0), 0.0)
    return bound(devices, np.sqrt(squares), int(rows))


@lru_cache(maxsize=8)
def level_scores(table: ProbabilityTable) -> NDArray[np.float64] | None:
    """float64[outputs, levels], read-only: what each output counts for in the number of devices on
    each level, without bias and with the least variance when cells are alike; None where the
    outputs don't tell the levels apart (fewer outputs than levels, say).

    Where "no answer" is reported as some mixture of levels is, it adds to the numbers of those:
    more than there are is still a bound.
    """
    rows, levels = table.probabilities(), table.cells - 1
    for known in (table.cells, levels):
        if table.outputs < known:
            continue
        scale = np.sqrt(rows[:known].mean(axis=0))
        inverse = np.linalg.pinv(rows[:known] / scale, rcond=1e-13) / scale[:, None]
        inverse = inverse + inverse @ (np.eye(known) - rows[:known] @ inverse)
        scores: NDArray[np.float64] = inverse[:, :levels].copy()
        if (
            np.abs(rows[:known] @ inverse - np.eye(known)).max() <= _EXACT
            and (rows[levels] @ scores).min() >= -_EXACT
        ):
            scores.setflags(write=False)
            return scores
    return None
