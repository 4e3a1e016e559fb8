"""How far devices that lie can move an estimate.

A hostile device may send any report that is valid; nothing tells that it is a lie. What it can do
is bounded by what one report weighs. Here it is looked for among all valid reports where these are
few, else among the first, the last and many that honest devices with each answer send: for every
estimate the report that moves it furthest. What is found is a shift that is possible, so it is
never larger than what a cleverer device might reach.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.mechanisms.base import Mechanism, Tally

_MOST = 1_024  # reports that are looked at
_FEW_BYTES = 2  # reports so short are listed


@dataclass(frozen=True, slots=True)
class HostileReach:
    """How far all hostile devices together move each estimate: ``down`` <= 0 <= ``up``."""

    down: NDArray[np.float64]
    up: NDArray[np.float64]


def reach_of(
    mechanism: Mechanism, domain: Domain, honest: Tally, hostile: int, entropy: Entropy
) -> HostileReach:
    """Of ``hostile`` devices, each with one report, beside these honest reports: ``hostile`` of
    these are replaced.
    """
    before = mechanism.estimate(honest).values
    if not hostile:
        return HostileReach(np.zeros_like(before), np.zeros_like(before))
    rest = _without(honest, hostile, mechanism.messages)
    shifts = []
    for report in candidates(mechanism, domain, entropy):
        lie = mechanism.tally(report)
        lies = Tally(lie.counts * hostile, lie.rows * hostile)
        shifts.append(mechanism.estimate(rest + lies).values - before)
    moved = np.array(shifts)
    return HostileReach(np.minimum(moved.min(axis=0), 0.0), np.maximum(moved.max(axis=0), 0.0))


def candidates(mechanism: Mechanism, domain: Domain, entropy: Entropy) -> list[NDArray[np.uint8]]:
    """Reports that are worth a look: uint8[messages, report_size] each."""
    size, messages = mechanism.report_size, mechanism.messages
    found: list[NDArray[np.uint8]] = []
    if messages == 1 and size <= _FEW_BYTES:
        numbers = np.arange(1 << 8 * size, dtype=">u4").view(np.uint8).reshape(-1, 4)
        every = np.ascontiguousarray(numbers[:, 4 - size :])
        every = every[mechanism.valid(every)]
        if len(every) <= _MOST:
            return [row[None, :] for row in every]
        found = [row[None, :] for row in (*every[: _MOST // 4], *every[-_MOST // 4 :])]
    places = np.array(domain.label_cells, dtype=np.int64)
    drawn = mechanism.randomize(np.resize(places, max(_MOST // 2, 4 * places.size)), entropy)
    return [*found, *np.unique(drawn, axis=0)]


def _without(tally: Tally, hostile: int, messages: int) -> Tally:
    """The tally of the honest rest: each count in proportion, rounded."""
    rows = max(0, tally.rows - hostile * messages)
    counts = np.rint(tally.counts * (rows / max(1, tally.rows))).astype(np.int64)
    return Tally(np.minimum(counts, rows), rows)
