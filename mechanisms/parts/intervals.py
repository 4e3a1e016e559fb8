"""Score intervals: 95 % for numbers of devices, for cells that chance alone reports a few times as
well as for heavy ones.

**The quadratic.** A cell that x of n devices hold is counted Bin(x, p) + Bin(n - x, q) times: the
devices' values are held fixed, so that is a sum of two binomials and not Bin(n, x p / n + (n - x) q
/ n), whose variance is larger. The estimate v = (count - n q) / (p - q) then has the variance

    V(x) = (x p (1 - p) + (n - x) q (1 - q)) / (p - q)^2 = B + A x,      A = (1 - p - q) / (p - q),
    B = n q (1 - q) / (p - q)^2,

a line in x. Wald's interval takes it at x = v. The score interval (Wilson, "Probable inference, the
law of succession, and statistical inference", JASA 22, 1927, section "Probable inference", for one
binomial) asks of every x whether v would be likely *if x were true*: (v - x)^2 <= z^2 V(x), z =
1.96. That is a quadratic, with the ends

    v + z^2 A / 2 -+ z sqrt(V(v) + z^2 A^2 / 4),
    V(v) (p - q)^2 = count (1 - p)(1 - q) + (n - count) p q.

The right-hand side has no negative term, so there is a root for every count, also where v lies
below 0 or above n; and v, at which the quadratic is -z^2 V(v), lies between the roots.

**Skewness and steps.** Where the standard deviation s of the count is a few reports, its law is
neither symmetric nor smooth. Both shift the ends, by parts of a report:

- The upper and lower 2.5 % points of a law with third cumulant k3 both lie higher by (z^2 - 1) / 6
  * k3 / s^2 than z s says (Cornish and Fisher, "Moments and cumulants in the specification of
  distributions", Revue de l'Institut International de Statistique 5, 1938). For a Poisson law that
  is 0.47 of a report.
- Counts are whole. As x moves, an end passes over one count at a time, whose probability is about
  phi(z) / s, phi the normal density: what the interval covers jumps by as much, half of it above
  the aim and half below. Half a report of room at both ends ("continuity correction") never leaves
  it below the aim, but covers too much on average. As much room as keeps what is lost at each end
  below a half percent, ``LOSS``, is 1/2 - s ``LOSS`` / phi(z): nothing from s = 6 on. It is 0.55
  here for 1/2, since at one report of noise or less the approximation before is no better than
  that; the number was found by adding up the laws.

Both are taken where the end lies (s and k3 at the uncorrected end, moved into [0, n]).

**What comes out**, by adding up the laws (tests/unit/mechanisms/parts/test_intervals.py): of 11,520
laws (20 to 3,000 devices, four kinds of randomizers, light and heavy cells) it is never less than
94.1 %, and never more than 96 % where s is 6 or more; laws drawn at random from the same ranges,
20,000 of them, went down to 93.9 %. Below s = 6 more than 96 % is not avoidable: with 0.1 reports
by chance a count of 0 alone is 90.5 %, and of 0 or 1 it is 99.5 %. Wald's intervals, on the same
grid, go down to 22.6 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from shoal.arrays import NDArray, np
from shoal.mechanisms.base import Z

Moments: TypeAlias = (
    "Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]"
)

LOSS = 0.005  # of the probability, at each end
_ROOM = 0.55  # in steps
_FADE = LOSS * math.sqrt(2.0 * math.pi) * math.exp(Z * Z / 2.0)
_SKEW = (Z * Z - 1.0) / 6.0


def score(
    values: NDArray[np.float64],
    variance: NDArray[np.float64],
    slope: float | NDArray[np.float64],
    unit: float | NDArray[np.float64],
    moments: Moments,
    most: int,
    step: float = 1.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(low, high), float64[k] each, in devices: the interval of the module, low <= values <= high.

    ``values``: float64[k], estimates in devices. ``variance``: float64[k], the line V(x) at x =
    ``values``, in devices^2; ``slope``: A. ``unit``: devices per report counted, above 0; both of
    all cells, or float64[k]. ``moments(x)``: variance and third cumulant of the count, in reports,
    when x devices hold the cell; asked for x in [0, ``most``], ``most`` the number of devices.
    ``step``: how far apart counts are, in reports.
    """

    def end(side: float, shift: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """The root below (side -1) or above (1) the estimate, for a count that is smaller by
        ``shift`` reports.
        """
        moved = shift * unit
        square = np.maximum(variance - slope * moved + (Z * slope / 2.0) ** 2, 0.0)
        root: NDArray[np.float64] = (
            values - moved + Z * Z * slope / 2.0 + side * Z * np.sqrt(square)
        )
        return root

    def corrected(side: float) -> NDArray[np.float64]:
        return end(side, shift(side, *moments(np.clip(end(side, 0.0), 0.0, float(most))), step))

    return np.minimum(corrected(-1.0), values), np.maximum(corrected(1.0), values)


def shift(
    side: float, second: NDArray[np.float64], third: NDArray[np.float64], step: float = 1.0
) -> NDArray[np.float64]:
    """float64[k], in reports: by how much smaller a count is to be taken for the lower (side -1) or
    upper (1) end of its interval, of a count with this variance and third cumulant where that end
    lies; ``step`` as in ``score``.
    """
    skewed = _SKEW * np.clip(third / np.maximum(second, np.finfo(np.float64).tiny), -step, step)
    moved: NDArray[np.float64] = skewed - side * np.maximum(
        _ROOM * step - _FADE * np.sqrt(second), 0.0
    )
    return moved


def of_counts(
    counts: NDArray[np.float64], rows: int, p: float, q: float, gap: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(low, high), float64[k] each, in devices, around the estimates of ``cells.unbiased`` from the
    same arguments: ``counts`` is float64[k] >= 0, of ``rows`` reports; a device that holds the cell
    is counted with probability p, any other with q; gap = p - q > 0.
    """

    def moments(holders: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        own_part, other_part = holders * (p * (1.0 - p)), (rows - holders) * (q * (1.0 - q))
        return own_part + other_part, own_part * (1.0 - 2.0 * p) + other_part * (1.0 - 2.0 * q)

    values = (counts - rows * q) / gap
    variance = (
        counts * ((1.0 - p) * (1.0 - q)) + np.maximum(rows - counts, 0.0) * (p * q)
    ) / gap**2
    return score(values, variance, (1.0 - p - q) / gap, 1.0 / gap, moments, rows)


def of_weights(
    values: NDArray[np.float64],
    likely: NDArray[np.float64],
    second: NDArray[np.float64],
    third: NDArray[np.float64],
    units: NDArray[np.float64],
    seen: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(low, high), float64[k] each, in devices, for estimates that are sums of weights over the
    reports: of every output some, not of one output alone. ``values``: float64[k]; ``likely``:
    float64[k] >= 0, numbers of devices per cell that there may be; ``second``, ``third``:
    float64[k, k], variance and third cumulant that a device with cell x (row) adds to the estimate
    of v; ``units``: float64[k] > 0, the weight of the output that is v's own; ``seen``: float64[k],
    the variances as the reports tell them without bias, noisy.

    As ``of_counts``, with what the other devices add taken at their likely cells: V(x) = x
    second[v, v] + (n - x) (their average); or as the reports say, if that is more: where cells are
    hardly told apart, likely numbers of devices are none. The law is no lattice where weights
    differ; where those of other outputs are nearly alike (a cell as far from all others) it is one.
    """
    rows, own = float(likely.sum()), (np.diag(second), np.diag(third))
    others = np.where(rows - likely > 0.5, rows - likely, 0.0)[None, :] * np.ones_like(second)
    weights = likely[:, None] * (1.0 - np.eye(values.size))
    weights = np.where(
        others > 0.0,
        weights / np.maximum(others, 1.0),
        (1.0 - np.eye(values.size)) / max(1, values.size - 1),
    )
    beside = ((weights * second).sum(axis=0), (weights * third).sum(axis=0))

    def moments(holders: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        sums = [
            holders * mine + (rows - holders) * other
            for mine, other in zip(own, beside, strict=True)
        ]
        return sums[0] / units**2, sums[1] / units**3

    variance = np.maximum(np.maximum(values * own[0] + (rows - values) * beside[0], seen), 0.0)
    return score(values, variance, own[0] - beside[0], units, moments, round(rows))
