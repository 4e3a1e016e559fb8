"""How a number is distributed among the devices: shares of bins, and quantiles, beside the raw
estimates.

A ``Distribution`` is post-processed: its shares are made non-negative and sum to 1, so they are
biased (empty bins come out too full) and carry no standard errors (quantiles with intervals are in
``quantiles``). It is for a reader, or a plot. Totals and means over several batches are made from
the raw, unbiased ``Estimate``, never from this. It costs no privacy, since it looks at nothing but
the tally.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from shoal.arrays import NDArray, np
from shoal.mechanisms.base import Mechanism, Tally, invalid
from shoal.mechanisms.parts.simplex import norm_sub

if TYPE_CHECKING:
    from shoal.domain import Numeric
    from shoal.errors import ShoalError

NORM_SUB = "norm-sub"
_SUM = 1e-9  # how far from 1 the shares may sum: rounding of 65,536 of them is below 1e-11


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Shares of the devices that answered, bin by bin.

    ``edges``: float64[bins + 1], read-only, in the domain's unit, increasing, finite with finite
    differences: bin i is from edges[i] to edges[i + 1]. ``shares``: float64[bins], read-only, >= 0,
    sums to 1. ``method``: what made it, in a few words to show ("EMS", "norm-sub"). ``answered``:
    which share of all devices answered, 0 to 1, as estimated; None where it is not known.
    ``of_levels``: the bins are those of ``level_edges``, and a share is what is on a level after
    rounding numbers to the two beside them; then ``quantile`` knows more. Raises INVALID for
    anything else.
    """

    edges: NDArray[np.float64]
    shares: NDArray[np.float64]
    method: str
    answered: float | None = None
    of_levels: bool = False

    def __post_init__(self) -> None:
        edges, shares = (
            np.array(self.edges, dtype=np.float64),
            np.array(self.shares, dtype=np.float64),
        )
        if shares.ndim != 1 or not shares.size or edges.shape != (shares.size + 1,):
            raise invalid("a distribution has one share per bin, and one edge more than bins")
        with np.errstate(over="ignore", invalid="ignore"):
            widths = edges[1:] - edges[:-1]
        if not np.isfinite(edges).all() or not ((widths > 0.0) & (widths < math.inf)).all():
            raise invalid(
                "the edges of a distribution's bins are finite and increasing, with finite widths"
            )
        if not (shares >= 0.0).all() or not abs(math.fsum(shares.tolist()) - 1.0) <= _SUM:
            raise invalid("the shares of a distribution are 0 or more and sum to 1")
        if not self.method or (self.answered is not None and not 0.0 <= self.answered <= 1.0):
            raise invalid(
                "a distribution names its method, and the share that answered is 0 to 1, or None"
            )
        for name, array in (("edges", edges), ("shares", shares)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def quantile(self, q: float) -> float:
        """The value, in the domain's unit, that a share ``q`` of the answering devices is at or
        below.

        Linear inside a bin, as if the bin's devices were spread evenly over it. Where empty bins
        leave a choice it is the lowest such value; quantile(0) is the lower edge of the first bin
        that is not empty. Non-decreasing in q. Of levels it is moved to the nearest number that can
        be the quantile of any numbers with these levels (``between``): a heap of equal numbers is
        then read near where it is, and not anywhere in its bin. Raises INVALID unless 0 <= q <= 1.
        """
        return self.quantiles((q,))[0]

    def quantiles(self, at: Sequence[float]) -> list[float]:
        """``quantile`` of each, to the bit. The sums that they share are made once."""
        if not all(0.0 <= q <= 1.0 for q in at):  # NaN too
            raise invalid("a quantile is asked for a share from 0 to 1: 0.5 for the median")
        shares = self.shares.tolist()
        total = math.fsum(shares)
        filled = [bin_ for bin_, share in enumerate(shares) if share > 0.0]
        sums = list(accumulate((shares[bin_] for bin_ in filled), initial=0.0))
        evenly = [self._even(q, filled, sums, total) for q in at]
        if not self.of_levels:
            return evenly
        up = self._up()
        return [
            min(max(value, low), high)
            for value, (low, high) in zip(
                evenly,
                (self._between(q, up) if 0.0 < q < 1.0 else (-math.inf, math.inf) for q in at),
                strict=True,
            )
        ]

    def between(self, q: float) -> tuple[float, float]:
        """The least and the greatest number that can be the quantile, 0 < q < 1, if these are the
        exact shares of levels that numbers are rounded to. With H(j) the share up to level j: at s
        steps above level j it wants s H(j - 1) + (1 - s) q <= H(j) <= s q + (1 - s) H(j + 1)
        (``quantiles``), which is solved where H passes q.
        """
        return self._between(q, self._up())

    def _up(self) -> NDArray[np.float64]:
        """float64[bins + 1]: H(j) at j + 1."""
        up = np.append(0.0, np.cumsum(self.shares) / math.fsum(self.shares.tolist()))
        up[-1] = 1.0
        return up

    def _between(self, q: float, up: NDArray[np.float64]) -> tuple[float, float]:
        top = self.shares.size - 1
        step = (float(self.edges[-1]) - float(self.edges[0])) / top
        reached, passed = (
            int(np.searchsorted(up[1:], q, "left")),
            int(np.searchsorted(up[1:], q, "right")),
        )
        low = high = float(top)
        if reached == 0:
            low = 0.0
        else:
            before = float(up[reached - 1]) if reached > 1 else 0.0
            low = reached - 1 + (q - float(up[reached])) / (q - before)
        if passed < top:
            high = passed + (float(up[passed + 2]) - float(up[passed + 1])) / (
                float(up[passed + 2]) - q
            )
        return float(self.edges[0]) + min(low, high) * step, float(self.edges[0]) + high * step

    def _even(self, q: float, filled: list[int], sums: list[float], total: float) -> float:
        """As if the bin's devices were spread evenly over it. ``sums``: of the shares of the bins
        that are ``filled``, before each of them and of all.
        """
        target = q * total
        place = bisect_left(sums, target, 1) - 1 if q < 1.0 else len(filled)
        if place == len(filled):
            return float(self.edges[filled[-1] + 1])
        bin_ = filled[place]
        share, reached = float(self.shares[bin_]), sums[place]
        low, high = float(self.edges[bin_]), float(self.edges[bin_ + 1])
        return min(low + max(target - reached, 0.0) / share * (high - low), high)


@runtime_checkable
class Distributed(Mechanism, Protocol):
    """A mechanism whose reports tell how a number is distributed, and not only its mean."""

    def distribution(self, tally: Tally) -> Distribution:
        """Post-processed, biased, without errors: for readers and plots, never for sums. The same
        floats for the same tally, on one machine and numpy.

        Raises INVALID for a tally of another number of cells, or of no reports.
        """
        ...


def level_edges(domain: Numeric) -> NDArray[np.float64]:
    """float64[levels + 1]: each level's bin reaches halfway to its neighbours, and the outer ones
    end at low and high.

    A number that is spread evenly over the domain, and rounded at random to a level without bias,
    falls on the outer levels half as often as on the others: with these bins, evenly again.
    """
    places = np.clip(np.arange(domain.levels + 1, dtype=np.float64) - 0.5, 0.0, domain.levels - 1.0)
    edges = np.asarray(domain.low + places * domain.step, dtype=np.float64)
    edges[-1] = domain.high
    return edges


def of_devices(domain: Numeric, devices: NDArray[np.float64], rows: int) -> Distribution:
    """From unbiased numbers of devices per cell, float64[levels + 1] with "no answer" last, of
    ``rows`` reports: by ``simplex.norm_sub``.

    All cells are projected together, so that those without an answer take part. Raises INVALID for
    no reports.
    """
    if not rows:
        raise no_reports()
    return of_shares(domain, norm_sub(devices, float(rows)), NORM_SUB)


def of_shares(domain: Numeric, shares: NDArray[np.float64], method: str) -> Distribution:
    """From what each cell has of any total above 0, float64[levels + 1] >= 0 with "no answer" last.

    Where nothing is left to the levels, nothing is known but the domain: they get equal shares, and
    ``answered`` is 0.
    """
    levels = shares[:-1] / shares.max()  # no quotient below overflows or underflows
    answered = math.fsum(levels.tolist())
    if not answered:
        return Distribution(
            level_edges(domain), np.full(levels.size, 1.0 / levels.size), method, 0.0
        )
    everybody = answered + float(shares[-1] / shares.max())
    return Distribution(
        level_edges(domain),
        levels / answered,
        method,
        min(answered / everybody, 1.0),
        method == NORM_SUB,
    )


def no_reports() -> ShoalError:
    """The refusal to make a distribution of nothing."""
    return invalid("there are no reports to make a distribution of: wait for a batch")
