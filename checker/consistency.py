"""What a release says beside its promise: that the part for readers is the signed one, and that its
numbers fit the signed task and manifest.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from shoal.checker.chain import Chain
from shoal.checker.findings import Outcome, Statement
from shoal.checker.questions.discovered import discovered, shown_level
from shoal.checker.totals import shown_array
from shoal.protos import release_pb2, task_pb2

_PRIVACY = (
    "epsilon_upper",
    "epsilon_lower",
    "delta",
    "n_certified",
    "honest_fraction",
    "relation",
    "method",
    "unit",
    "delta_cumulative",
    "windows_composed",
    "tasks_composed",
)
_MAYBE_INFINITE = ("epsilon0", "epsilon_at_received_n", "epsilon_cumulative_upper")
_SHOWN = frozenset(
    {
        *("task_id", "name", "window", "n", "rejected", "estimates", "privacy", "damaged"),
        *("manifest_hash", "withheld", "quantiles", "rounds", "ranges", "record", "discovered"),
        "map",
        "array",
    }
)
_TOLD = frozenset({*_PRIVACY, *_MAYBE_INFINITE, "assumptions", "memoized", "metric"})


def consistency(
    chain: Chain, shown: Mapping[str, Any], law: Mapping[str, Any]
) -> Iterator[Statement]:
    """``shown`` and ``law``: the parts of the file that people and programs read."""
    release, task, manifest = chain.release, chain.task, chain.manifest
    differences = [*_differences(shown, release), *_law_differences(law, task.mechanism)]
    yield _said(
        "what the file shows is what was signed",
        not differences,
        f"not so: {', '.join(differences[:5])}" if differences else "every field",
    )
    privacy = release.privacy
    terms = (
        release.name == task.name,
        release.window < task.windows.count,
        privacy.delta == task.delta,
        privacy.honest_fraction == task.honest_fraction_ppm / 1_000_000,
        privacy.relation == "replace-one",
    )
    yield _said(
        "name, window, delta, honest fraction and relation are the task's", all(terms), "compared"
    )
    sums = task.HasField("pairwise")
    if not sums:
        honest = task.min_batch * task.honest_fraction_ppm // 1_000_000
        yield _said(
            "the promise counts the honest of the smallest batch",
            privacy.n_certified == honest,
            f"{honest:,}",
        )
    yield from _numbers(release)
    yield from discovered(release, task)
    if release.withheld:
        shows = bool(release.estimates or release.quantiles or release.counts)
        shows = shows or release.HasField("distribution") or release.HasField("discovered")
        shows = shows or release.HasField("ranges") or release.HasField("record")
        shows = shows or release.HasField("map")
        shows = shows or release.HasField("array")
        yield _said("a release that is withheld shows nothing", not shows, release.withheld)
    else:
        asked = task.domain.record if task.domain.HasField("record") else None
        told = release.record if release.HasField("record") else None
        if asked is not None or told is not None:
            yield _said("the tables are those that were asked for", asked == told, "compared")
        box = task.domain.places if task.domain.HasField("places") else None
        drawn = release.map.places if release.HasField("map") else None
        if box is not None or drawn is not None:
            yield _said("the map is that which was asked for", box == drawn, "compared")
        yield _said(
            "no release below the smallest batch, or above the target epsilon",
            (sums or release.n >= task.min_batch) and privacy.epsilon_upper <= task.target_epsilon,
            f"n {release.n:,}, epsilon at most {task.target_epsilon:g}",
        )
    if chain.signed.manifest and not sums:
        yield _rows(chain)
        keys = {one.window: one for one in chain.schedule.windows}
        named = keys.get(release.window)
        yield _said(
            "the batch was sealed for this window's keys",
            named is not None
            and hashlib.sha256(named.analyzer_key).digest()[:8] == manifest.analyzer_key_id
            and hashlib.sha256(named.hop_key).digest()[:8] == manifest.hop_key_id,
            "key ids compared",
        )
        lost = manifest.damaged
        yield _said("lost reports are told", release.damaged == lost, f"{lost:,} lost")


def _numbers(release: release_pb2.Release) -> Iterator[Statement]:
    privacy = release.privacy
    values = [getattr(privacy, name) for name in (*_MAYBE_INFINITE, "epsilon_upper", "delta")]
    values += [privacy.epsilon_lower, privacy.delta_cumulative]
    sound = all(value >= 0 for value in values) and privacy.epsilon_lower <= privacy.epsilon_upper
    yield _said("every bound is a number, the lower one below the upper", sound, "looked at")


def _rows(chain: Chain) -> Statement:
    """Where a report has several messages, or the shuffler adds noise, each refused row counts as a
    report that is lost.
    """
    what, release = "reports and refused rows are those of the batch", chain.release
    refused, rows = sum(row.count for row in release.rejected), chain.manifest.rows
    if release.withheld and not release.n and not refused:
        return Statement(what, Outcome.OPEN, "withheld: the batch was not opened")
    plain = chain.task.messages <= 1 and chain.task.mechanism.name != "shuffler_noise"
    counted = rows if plain else chain.manifest.reports
    fits = release.n == max(0, counted - refused)
    return _said(what, fits, f"{release.n:,} reports, {refused:,} refused, of {rows:,} rows")


def _said(what: str, holds: bool, why: str) -> Statement:
    return Statement(what, Outcome.HOLDS if holds else Outcome.WRONG, why)


def _differences(shown: Mapping[str, Any], release: release_pb2.Release) -> Iterator[str]:
    privacy = shown.get("privacy")
    told = privacy if isinstance(privacy, Mapping) else {}
    pairs: list[tuple[str, Any, Any]] = [
        ("task_id", shown.get("task_id"), release.task_id.hex()),
        ("name", shown.get("name"), release.name),
        ("window", shown.get("window"), release.window),
        ("n", shown.get("n"), release.n),
        ("damaged", shown.get("damaged"), release.damaged),
        ("withheld", shown.get("withheld") or "", release.withheld),
        ("manifest_hash", shown.get("manifest_hash"), release.manifest_hash.hex()),
        ("rejected", shown.get("rejected"), {row.reason: row.count for row in release.rejected}),
        ("estimates", shown.get("estimates"), [_row(row) for row in release.estimates]),
        ("assumptions", told.get("assumptions"), list(release.privacy.assumptions)),
        *((f"{name}: unknown", name, "") for name in sorted(set(shown) - _SHOWN)),
        *((f"{name}: unknown", name, "") for name in sorted(set(told) - _TOLD)),
        ("quantiles", shown.get("quantiles") or [], _quantiles(release)),
        ("rounds", shown.get("rounds"), _rounds(release)),
        ("discovered", shown.get("discovered"), shown_level(release)),
        ("ranges", shown.get("ranges"), _ranges(release)),
        ("record", shown.get("record"), _record(release)),
        ("map", shown.get("map"), _map(release)),
        ("array", shown.get("array"), shown_array(release)),
        ("memoized", told.get("memoized"), _memoized(release.privacy)),
        ("metric", told.get("metric"), _metric(release.privacy)),
        *((name, told.get(name), getattr(release.privacy, name)) for name in _PRIVACY),
        *(
            (name, told.get(name), _finite(getattr(release.privacy, name)))
            for name in _MAYBE_INFINITE
        ),
    ]
    return (name for name, said, signed in pairs if said != signed)


def _quantiles(release: release_pb2.Release) -> list[dict[str, Any]]:
    if release.withheld:
        return []
    return [
        {
            "share": row.share,
            "value": row.value,
            "ci_low": row.ci_low,
            "ci_high": _finite(row.ci_high),
        }
        for row in release.quantiles
    ]


def _rounds(release: release_pb2.Release) -> dict[str, Any] | None:
    if not release.HasField("rounds"):
        return None
    rounds = release.rounds
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


def _ranges(release: release_pb2.Release) -> dict[str, Any] | None:
    if release.withheld or not release.HasField("ranges"):
        return None
    ranges = release.ranges
    return {
        "base": ranges.base,
        "levels": ranges.levels,
        "node_stderr": ranges.node_stderr,
        "starts": list(ranges.starts),
        "rounded": ranges.rounded,
    }


def _map(release: release_pb2.Release) -> dict[str, Any] | None:
    """Bounds in degrees."""
    if release.withheld or not release.HasField("map"):
        return None
    drawn, box = release.map, release.map.places
    return {
        **{name: getattr(box, name) / 1_000_000 for name in ("south", "west", "north", "east")},
        "rows": box.rows,
        "columns": box.columns,
        "side": drawn.side,
        "noise_stderr": drawn.noise_stderr,
        "kept": drawn.kept,
        "other": drawn.other,
    }


def _record(release: release_pb2.Release) -> dict[str, Any] | None:
    """Every attribute has "no answer" behind its answers."""
    if release.withheld or not release.HasField("record"):
        return None
    attributes = release.record.attributes
    names = dict(enumerate(one.name for one in attributes))
    return {
        "attributes": [
            {"name": one.name, "labels": [*one.answers.labels, "no answer"]} for one in attributes
        ],
        "marginals": [
            [names.get(at, "") for at in one.attributes] for one in release.record.marginals
        ],
    }


def _memoized(privacy: release_pb2.Privacy) -> dict[str, Any] | None:
    if not privacy.HasField("memoized"):
        return None
    memoized = privacy.memoized
    return {"lifetime_epsilon": memoized.lifetime_epsilon, "windows": memoized.windows}


def _metric(privacy: release_pb2.Privacy) -> dict[str, Any] | None:
    if not privacy.HasField("metric"):
        return None
    metric, names = privacy.metric, ("radius_m", "epsilon0", "epsilon_upper")
    return {
        **{
            name: getattr(metric, name)
            for name in ("epsilon_per_km", "cell_diagonal_m", "across_m", "epsilon_elsewhere")
        },
        "moves": [{name: getattr(move, name) for name in names} for move in metric.moves],
        "words": list(metric.words),
    }


def _row(row: release_pb2.Estimate) -> dict[str, Any]:
    return {
        "label": row.label,
        "value": row.value,
        "stderr": row.stderr,
        "ci_low": row.ci_low,
        "ci_high": row.ci_high,
    }


def _law_differences(law: Mapping[str, Any], mechanism: task_pb2.Mechanism) -> Iterator[str]:
    if law.get("mechanism") != mechanism.name:
        yield "mechanism"
    # Integers of 64 bits are texts in JSON: many readers would round them.
    said = {name: str(value) for name, value in (law.get("parameters") or {}).items()}
    if said != {one.name: str(one.value) for one in mechanism.parameters}:
        yield "parameters"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
