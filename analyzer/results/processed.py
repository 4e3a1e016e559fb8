"""What readers see beside the raw estimates of a release: counts that look like counts, and how a
number is distributed.

Counts are a function of the signed estimates, so they are made when a release is shown, and are not
in its bytes: whoever has the release can make them again, or others. A distribution is a function
of the tally, which is not published, so it is in the bytes. Both are post-processed: biased,
without errors, and never a part of a sum (``postprocess``). Of a withheld release there is neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from shoal.analyzer.results.postprocess import base_cut, largest_remainder, readable
from shoal.analyzer.results.word_tree import scale_words
from shoal.arrays import np
from shoal.domain import NO_ANSWER, AnswerRecord, Domain, Vector, Words
from shoal.errors import ShoalError
from shoal.mechanisms import Estimate, Mechanism, Tally
from shoal.mechanisms.numbers.distribution import Distributed, Distribution
from shoal.mechanisms.numbers.quantiles import Quantile
from shoal.mechanisms.numbers.quantiles import quantiles as tell
from shoal.mechanisms.parts.tables import MEAN_OF_ALL
from shoal.mechanisms.vectors.protocol import MEAN_OF_COORDINATE
from shoal.protos import release_pb2

ALL_CELLS, SOME_CELLS, NO_CELLS = "all cells", "some cells", "none"


class _Means(frozenset[str]):
    """Labels of means. Those of a vector's coordinates are too many to list, and end alike."""

    def __contains__(self, label: object) -> bool:
        return super().__contains__(label) or str(label).endswith(MEAN_OF_COORDINATE)


MEANS = _Means({"mean", MEAN_OF_ALL})
"""Labels of estimates in the domain's unit; the others are numbers of devices (or, with ``rounds``,
totals).
"""
QUANTILES = (0.25, 0.5, 0.75, 0.9)
SURPRISES = 0.05  # expected number of words that nobody has among those that are kept
_ALL = "norm-sub, then largest remainder"
_SOME = "base-cut, then largest remainder"
# The words of the JSON, which programs may have: they stay. People read ``readable_note``.
ALL_NOTE = (
    "non-negative whole numbers that add up to n, made from the estimates for reading: biased and "
    "without errors, so sums are made of the estimates"
)
SOME_NOTE = (
    "whole numbers, 0 where an estimate may be noise alone, made from the estimates for reading: "
    "biased and without errors, so sums are made of the estimates"
)
OUTSIDE = "95 % intervals: about 1 in 20 is expected not to hold the true figure"
"""Said beside tables with several intervals."""
DISTRIBUTION_NOTE = (
    "post-processed: biased, without errors, for reading; sums and means of several windows are "
    "made of the estimates"
)
_FOR_READERS = {
    ALL_NOTE: (
        "whole numbers that add up to n, for reading alone. They are biased and have no error "
        "bars: add up estimates, not these"
    ),
    SOME_NOTE: (
        "whole numbers for reading alone, 0 where an estimate may be nothing but noise. They are "
        "biased and have no error bars: add up estimates, not these"
    ),
    DISTRIBUTION_NOTE: (
        "post-processed, for reading alone: biased, and without error bars. For sums and means of "
        "several windows use the estimates"
    ),
}


def readable_note(processed_values: Mapping[str, Any]) -> str:
    """The note of what ``processed`` or ``distribution`` made, as people read it. Of a release of
    another version, its own words.
    """
    note = str(processed_values["note"])
    return _FOR_READERS.get(note, note)


def counted_cells(estimate: Estimate | None, domain: Domain) -> str:
    """What the estimates of a release are numbers of devices in: the signed word that ``processed``
    goes by.
    """
    if isinstance(domain, AnswerRecord | Vector):
        return NO_CELLS
    if estimate is None or estimate.labels != domain.labels:
        return NO_CELLS
    return SOME_CELLS if isinstance(domain, Words) else ALL_CELLS


def distribution_of(mechanism: Mechanism, tally: Tally) -> Distribution | None:
    """None where the mechanism tells none, or can't of this tally: what is for readers alone never
    keeps a batch from its release.
    """
    try:
        return mechanism.distribution(tally) if isinstance(mechanism, Distributed) else None
    except ShoalError:
        return None


def quantiles_of(mechanism: Mechanism, domain: Domain, tally: Tally) -> tuple[Quantile, ...]:
    """None where the mechanism tells none; as ``distribution_of`` they never keep a batch from its
    release.
    """
    try:
        return tell(mechanism, domain, tally)
    except ShoalError:
        return ()


def message(distribution: Distribution | None) -> release_pb2.Distribution | None:
    """The distribution as a signed release carries it; None: there is none."""
    if distribution is None:
        return None
    return release_pb2.Distribution(
        edges=distribution.edges.tolist(),
        shares=distribution.shares.tolist(),
        method=distribution.method,
        answered=distribution.answered,
    )


def processed(release: release_pb2.Release) -> dict[str, Any] | None:
    """Counts beside the estimates, in their order; None where there are none to be had: withheld, a
    mean, totals, no numbers of devices.
    """
    kind = release.counts or _before(release)
    if (
        release.withheld
        or not release.estimates
        or release.HasField("rounds")
        or kind not in {ALL_CELLS, SOME_CELLS}
    ):
        return None
    values = np.array([row.value for row in release.estimates], dtype=np.float64)
    try:
        if kind == ALL_CELLS:
            counts, method, note = readable(values, release.n), _ALL, ALL_NOTE
        else:
            errors = np.array([row.stderr for row in release.estimates], dtype=np.float64)
            multiple = NormalDist().inv_cdf(1.0 - SURPRISES / max(values.size, 2))
            counts, method, note = (
                largest_remainder(base_cut(values, errors, multiple)),
                _SOME,
                SOME_NOTE,
            )
    except ShoalError:  # figures that no mechanism of ours gives: shown as they are
        return None
    return {"method": method, "note": note, "total": int(counts.sum()), "counts": counts.tolist()}


def _before(release: release_pb2.Release) -> str:
    """What the estimates of a release without the word are: every frequency mechanism of that time
    had one estimate per cell.
    """
    return NO_CELLS if any(row.label in MEANS for row in release.estimates) else ALL_CELLS


def distribution(release: release_pb2.Release) -> dict[str, Any] | None:
    """The distribution with its quantiles; None of a release that has none, that is withheld, or
    whose figures are none.
    """
    if release.withheld or not release.HasField("distribution"):
        return None
    stored = release.distribution
    try:
        smoothed = Distribution(
            np.array(stored.edges, dtype=np.float64),
            np.array(stored.shares, dtype=np.float64),
            stored.method,
            stored.answered if stored.HasField("answered") else None,
        )
    except ShoalError:
        return None
    if not math.isfinite(stored.edges[-1] - stored.edges[0]):
        return None
    quantiles = {row.share: row.value for row in release.quantiles}
    return {
        "method": smoothed.method,
        "note": DISTRIBUTION_NOTE,
        "answered": smoothed.answered,
        "quantiles": {f"{q:g}": quantiles.get(q, smoothed.quantile(q)) for q in QUANTILES},
        "edges": smoothed.edges.tolist(),
        "shares": smoothed.shares.tolist(),
    }


def quantiles(release: release_pb2.Release) -> list[dict[str, float | None]] | None:
    """The quantiles with their intervals, in order; None of a release without any, a withheld one,
    or whose figures are none.

    ``ci_high`` is None where the quantile lies in a last bin, which has no upper end.
    """
    if release.withheld or not release.quantiles:
        return None
    for row in release.quantiles:
        if not (
            0.0 < row.share < 1.0
            and math.isfinite(row.value)
            and math.isfinite(row.ci_low)
            and row.ci_high >= row.value
        ):
            return None
    return [
        {
            "share": row.share,
            "value": row.value,
            "ci_low": row.ci_low,
            "ci_high": row.ci_high if math.isfinite(row.ci_high) else None,
        }
        for row in release.quantiles
    ]


def beside(release: Mapping[str, Any]) -> list[str]:
    """What is said under the estimates of a release in its JSON shape: how many of several
    intervals miss, of which devices numbers are where each answers one window, and what to read
    where a number of devices was estimated below 0. The estimates stay as they are.
    """
    rows = release["estimates"]
    sentences = [OUTSIDE] if len(rows) > 1 else []
    scale = scale_words(release.get("discovered", {}).get("draws_one_of", 0))
    sentences += [scale] if scale else []
    if "processed" in release:
        below = sum(row["value"] < 0.0 for row in rows)
        return (
            [*sentences, f"{below} estimated below 0, which is chance alone: read processed there"]
            if below
            else sentences
        )
    silent = [
        row
        for row in rows
        if row["label"] == NO_ANSWER and row["value"] < 0.0 and "rounds" not in release
    ]
    return [
        *sentences,
        *(
            f"{NO_ANSWER}: estimated below 0, which is chance alone: processed it is 0"
            for _ in silent
        ),
    ]
