"""The engine that ``[opening]`` describes, where it is "dask": for a service that has all of its
configuration, and for a command that reads these parts of it alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from shoal.analyzer.config import OpeningSection
from shoal.analyzer.machines.cluster import Cluster, ClusterSettings
from shoal.analyzer.machines.comms import MachineTls, over_tls
from shoal.analyzer.machines.engine import MachinesDelivery, MachinesExecutor
from shoal.crypto.keyfiles import load_signing_key
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError
from shoal.services.conditions import Source
from shoal.services.validation import first_mistake
from shoal.storage.toml import read_toml


class EngineFile(BaseModel):
    """What is read of an analyzer.toml; or a file that has nothing else. Paths are relative to
    it.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    signing_key: Path
    opening: OpeningSection


def cluster_of_file(path: Path) -> Cluster:
    """The workers of an analyzer.toml, as its analyzer asks them. Raises CONFIG, KEY_FILE."""
    try:
        file = EngineFile.model_validate(read_toml(path))
    except ValidationError as error:
        raise ShoalError(Kind.CONFIG, f"{path.name}: {first_mistake(error, EngineFile)}") from None
    opening, folder = file.opening, path.resolve().parent
    if opening.engine != "dask":
        raise ShoalError(
            Kind.CONFIG,
            f'{path.name}: opening.engine is "{opening.engine}": workers on other machines are '
            'those of "dask"',
        )
    files: dict[str, Any] = {
        name: folder / named
        for name in ("ca", "certificate", "key")
        if (named := getattr(opening, name)) is not None
    }
    signing_key = load_signing_key(folder / file.signing_key)
    return cluster_of(opening.model_copy(update=files), signing_key)


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
