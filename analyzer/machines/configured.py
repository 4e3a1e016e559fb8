"""The engine that ``[opening]`` describes, where it is "dask"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.analyzer.machines.cluster import Cluster, ClusterSettings
from shoal.analyzer.machines.comms import MachineTls, over_tls
from shoal.analyzer.machines.engine import MachinesDelivery, MachinesExecutor
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError
from shoal.services.conditions import Source

if TYPE_CHECKING:
    from shoal.analyzer.config import OpeningSection


def cluster_of(opening: OpeningSection, signing_key: SigningKey) -> Cluster:
    """The workers of a configuration. Raises CONFIG."""
    ca, certificate, key = opening.ca, opening.certificate, opening.key
    if opening.scheduler is None or ca is None or certificate is None or key is None:
        raise ShoalError(Kind.CONFIG, "opening: scheduler, ca, certificate and key: name all four")
    settings = ClusterSettings(
        scheduler=over_tls(opening.scheduler),
        tls=MachineTls(ca, certificate, key),
        workers=frozenset(bytes.fromhex(key) for key in opening.workers),
        wait_s=opening.wait_s,
    )
    return Cluster(settings, signing_key)


def engine_of(
    opening: OpeningSection, signing_key: SigningKey
) -> tuple[MachinesExecutor, MachinesDelivery, Source]:
    """(executor, delivery, what to watch). Raises CONFIG."""
    cluster = cluster_of(opening, signing_key)
    executor = MachinesExecutor(cluster, opening.rows_per_task, shared=opening.shared_spool)
    return executor, MachinesDelivery(cluster), cluster.conditions
