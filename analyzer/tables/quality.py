"""How good a synthetic table is, and what it can't answer, as far as a release alone tells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from shoal.analyzer.tables.consistent import ConsistentTables, consistent
from shoal.analyzer.tables.fitted import FittedLaw
from shoal.analyzer.tables.fitting import Progress, fit, independent, single_tables
from shoal.analyzer.tables.marginals import Names, NoisyMarginal, ReleasedTables
from shoal.arrays import np
from shoal.errors import ShoalError

_EVERY = 5  # one marginal in five is held out
_FEWEST = 4  # marginals of two attributes or more, below which none is
_NAMED = 12  # sets of attributes in one line
_LIKELY = 1.959964  # standard errors: 95 %


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One marginal that a fit did not see. All are half the sum of absolute differences over n: 0
    where two tables are the same, 1 where they have nothing in common.

    ``difference``: of the released marginal from the fit; ``noise``: what the noise of the release
    alone is expected to make of it; ``independent``: of the released marginal from the table in
    which attributes have nothing to do with each other. So a fit is good where ``difference`` is
    near ``noise``, and worth something where it is below ``independent``.
    """

    names: Names
    difference: float
    noise: float
    independent: float


def held_out(released: ReleasedTables, progress: Progress | None = None) -> tuple[HeldOut, ...]:
    """One marginal in five is left out of a fit of its own, and compared with it; none where there
    are few, or where an attribute would be left without any.
    """
    chosen = _chosen(released)
    if not chosen:
        return ()
    kept = released.without(one.names for one in chosen)
    law = fit(kept, progress=progress).law
    alone = independent(kept, single_tables(kept, consistent(kept, nonnegative=True).tables))
    return tuple(
        HeldOut(
            one.names,
            _distance(one, law, released.n),
            _noise(one, released.n),
            _distance(one, alone, released.n),
        )
        for one in chosen
    )


def _chosen(released: ReleasedTables) -> tuple[NoisyMarginal, ...]:
    several = [one for one in released.marginals if len(one.names) > 1]
    if len(several) < _FEWEST:
        return ()
    chosen = tuple(several[_EVERY // 2 :: _EVERY])
    try:
        released.without(one.names for one in chosen)
    except ShoalError:
        return ()
    return chosen


def _distance(one: NoisyMarginal, law: FittedLaw, n: int) -> float:
    return float(np.abs(one.values - law.marginal(one.names) * n).sum()) / (2.0 * n)


def _noise(one: NoisyMarginal, n: int) -> float:
    """Of a normal error the mean absolute value is sqrt(2 / pi) of its standard one."""
    return float(one.stderr.sum()) * math.sqrt(2.0 / math.pi) / (2.0 * n)


def unanswered(tables: ConsistentTables, rows: int) -> tuple[str, ...]:
    """What a table of so many rows can't tell, one sentence each."""
    released = tables.released
    least = _LIKELY * max(tables.stderr)
    return (
        *_not_released(released),
        f"counts below {math.ceil(least):,} of {released.n:,} devices: of the released tables an "
        "estimate that small may be noise alone, and rows here are drawn besides",
        f"rare combinations: all attributes together have {released.combinations:,}, and one that "
        f"is expected less than once in {rows:,} rows is there or not by chance",
        "single rows: each is drawn from the fitted law, and no row is a device",
        f"more than {released.n:,} devices said: more rows add nothing to that",
    )


def _not_released(released: ReleasedTables) -> list[str]:
    told = [set(one.names) for one in released.marginals]

    def known(names: Names) -> bool:
        return any(set(names) <= each for each in told)

    pairs = [pair for pair in combinations(released.names, 2) if not known(pair)]
    sentences = []
    if pairs:
        sentences.append(
            f"how these go together, whose tables were not released: {_listed(pairs)}; the fit "
            "takes as little connection between them as the other tables allow"
        )
    triples = list(combinations(released.names, 3))
    if triples and not all(map(known, triples)):
        larger = sorted({one.names for one in released.marginals if len(one.names) > 2})
        but = f", but for {_listed(larger)}" if larger else ""
        sentences.append(
            f"how three attributes or more go together{but}: no table of them was released, and "
            "the fit has only what follows from smaller ones"
        )
    return sentences


def _listed(sets: Sequence[Names]) -> str:
    shown = ", ".join(" x ".join(names) for names in sets[:_NAMED])
    more = len(sets) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown
