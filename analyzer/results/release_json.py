"""A stored release read back, and its stable shape for machines."""

from __future__ import annotations

import math
from typing import Any

from shoal.analyzer.results import discovered
from shoal.analyzer.results.maps.released import map_shown
from shoal.analyzer.results.processed import (
    distribution,
    processed,
    quantiles,
)
from shoal.analyzer.results.ranges import ranges_shown
from shoal.analyzer.results.records import (
    shown_record,
    shown_tables,
)
from shoal.analyzer.results.totals import array_json
from shoal.codec import VERSION, parse
from shoal.errors import Kind, ShoalError
from shoal.protos import release_pb2


def decode_release(data: bytes) -> release_pb2.Release:
    """Stored bytes back. Raises INVALID, also for a release of another version."""
    release = parse(release_pb2.Release, data, "release")
    if release.version != VERSION:
        raise ShoalError(
            Kind.INVALID,
            f"release: version {release.version} is not known here (this program reads version "
            f"{VERSION})",
        )
    return release


def to_json(release: release_pb2.Release) -> dict[str, Any]:
    """The stable machine shape. Other programs rely on these keys: change them only with a new
    version.

    ``damaged``: reports that were acknowledged and are missing, because a disk lost or changed
    them. ``processed`` (counts for readers), ``distribution``, ``quantiles`` and ``ranges`` are
    there where there is something to show (``processed``, ``ranges``), ``map`` of places,
    ``array`` of long vectors (``totals``), ``record`` and ``tables`` of a record (``records``).
    """
    privacy = release.privacy
    shown = {
        "processed": processed(release),
        "distribution": distribution(release),
        "quantiles": quantiles(release),
        "discovered": discovered.to_json(release),
        "ranges": ranges_shown(release),
        "map": map_shown(release),
        "array": array_json(release),
        "record": shown_record(release),
        "tables": shown_tables(release),
    }
    return {
        "task_id": release.task_id.hex(),
        "name": release.name,
        "window": release.window,
        "n": release.n,
        "rejected": {row.reason: row.count for row in release.rejected},
        "estimates": [
            {
                "label": row.label,
                "value": row.value,
                "stderr": row.stderr,
                "ci_low": row.ci_low,
                "ci_high": row.ci_high,
            }
            for row in release.estimates
        ],
        "privacy": {
            "epsilon0": _finite(privacy.epsilon0),
            "epsilon_upper": privacy.epsilon_upper,
            "epsilon_lower": privacy.epsilon_lower,
            "delta": privacy.delta,
            "n_certified": privacy.n_certified,
            "honest_fraction": privacy.honest_fraction,
            "relation": privacy.relation,
            "method": privacy.method,
            "assumptions": list(privacy.assumptions),
            "epsilon_at_received_n": _finite(privacy.epsilon_at_received_n),
            "unit": privacy.unit,
            "epsilon_cumulative_upper": _finite(privacy.epsilon_cumulative_upper),
            "delta_cumulative": privacy.delta_cumulative,
            "windows_composed": privacy.windows_composed,
            "tasks_composed": privacy.tasks_composed,
            **(
                {"memoized": _memoized_json(privacy.memoized)}
                if privacy.HasField("memoized")
                else {}
            ),
            **({"metric": _metric_json(privacy.metric)} if privacy.HasField("metric") else {}),
        },
        "damaged": release.damaged,
        "manifest_hash": release.manifest_hash.hex(),
        "withheld": release.withheld or None,
        **{name: value for name, value in shown.items() if value is not None},
        **({"rounds": _rounds_json(release.rounds)} if release.HasField("rounds") else {}),
    }


def _memoized_json(memoized: release_pb2.Memoized) -> dict[str, Any]:
    """Of a release of a memoized task alone."""
    return {"lifetime_epsilon": memoized.lifetime_epsilon, "windows": memoized.windows}


def _metric_json(metric: release_pb2.Metric) -> dict[str, Any]:
    """Of a release whose answers have distances alone."""
    return {
        "epsilon_per_km": metric.epsilon_per_km,
        "cell_diagonal_m": metric.cell_diagonal_m,
        "across_m": metric.across_m,
        "epsilon_elsewhere": metric.epsilon_elsewhere,
        "moves": [
            {
                "radius_m": move.radius_m,
                "epsilon0": move.epsilon0,
                "epsilon_upper": move.epsilon_upper,
            }
            for move in metric.moves
        ],
        "words": list(metric.words),
    }


def _rounds_json(rounds: release_pb2.RoundsReport) -> dict[str, Any]:
    """Of a release by secure aggregation alone."""
    return {
        "mode": rounds.mode,
        "rounds": rounds.rounds,
        "aborted": {row.reason: row.count for row in rounds.aborted},
        "noise_stderr": rounds.noise_stderr,
        "one_round_noise_stderr": rounds.one_round_noise_stderr,
        "rounding_stderr": rounds.rounding_stderr,
        "epsilon_analyzer": _finite(rounds.epsilon_analyzer),
        "epsilon_together": _finite(rounds.epsilon_together),
    }


def _finite(epsilon: float) -> float | None:
    """JSON has no infinity: null means that nothing is promised."""
    return epsilon if math.isfinite(epsilon) else None
