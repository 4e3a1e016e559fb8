"""Whether an analyzer's workers on other machines can be used."""

from __future__ import annotations

from shoal.analyzer.config import OpeningSection
from shoal.analyzer.machines.configured import cluster_of
from shoal.cli.operations.findings import Findings
from shoal.crypto.signing import SigningKey


async def workers(findings: Findings, opening: OpeningSection, signing_key: SigningKey) -> None:
    """Greet them as the analyzer does: scheduler reachable, keys listed, versions equal."""
    cluster = cluster_of(opening, signing_key)
    async with cluster.looked():
        for condition in cluster.conditions():
            if condition.subject == "scheduler" or not cluster.size:
                findings.fail("workers", condition.message)
            else:
                findings.warn("workers", condition.message)
        if cluster.size:
            findings.ok("workers", f"{cluster.size} workers on other machines can be used")
        else:
            findings.fail(
                "workers",
                "no worker on another machine can be used: start `shoal analyzer worker` there; "
                "batches wait until then",
            )
