"""What a release says beside its promise: that the part for readers is the signed one, and that its
numbers fit the signed task and manifest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from shoal.checker.chain import Chain
from shoal.checker.findings import Outcome, Statement
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
    if not release.withheld:
        yield _said(
            "no release below the smallest batch, or above the target epsilon",
            (sums or release.n >= task.min_batch) and privacy.epsilon_upper <= task.target_epsilon,
            f"n {release.n:,}, epsilon at most {task.target_epsilon:g}",
        )
    if chain.signed.manifest and not sums:
        rows = release.n * max(1, task.messages) + sum(row.count for row in release.rejected)
        yield _said(
            "reports and refused rows are those of the batch",
            rows == manifest.rows,
            f"{rows:,} of {manifest.rows:,} rows",
        )


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
        *((name, told.get(name), getattr(release.privacy, name)) for name in _PRIVACY),
        *(
            (name, told.get(name), _finite(getattr(release.privacy, name)))
            for name in _MAYBE_INFINITE
        ),
    ]
    return (name for name, said, signed in pairs if said != signed)


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
