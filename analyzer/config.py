"""analyzer.toml: every key, its unit and its range. deploy/analyzer.toml is the commented
sample.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from shoal.services.settings import Address, PublicKey, RoleSettings, Section

Name = Annotated[str, Field(min_length=1, max_length=253)]


class MutualTls(Section):
    """Both sides show certificates: ours, and one of a shuffler (``client_ca``,
    ``allowed_shufflers``).
    """

    certificate: Path
    key: Path
    client_ca: Path


class OpeningSection(Section):
    """``[opening]``: where the rows of a batch are opened. "processes": this machine's. "dask":
    workers elsewhere, met at a ``scheduler``, HOST:PORT, over TLS (``ca``, ``certificate``,
    ``key``) and known by their keys (``workers``, Ed25519).

    ``rows_per_task``: 256 to 1,048,576. ``shared_spool``: they read the spool folder themselves.
    ``wait_s``: for a first worker, 1 to 3,600 seconds.
    """

    engine: Literal["processes", "dask"] = "processes"
    scheduler: Address | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    workers: tuple[PublicKey, ...] = ()
    rows_per_task: Annotated[int, Field(ge=256, le=1 << 20)] = 65_536
    shared_spool: bool = False
    wait_s: Annotated[float, Field(ge=1, le=3_600)] = 30.0

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.engine == "dask" and not (
            self.scheduler and self.ca and self.certificate and self.key and self.workers
        ):
            raise ValueError('engine "dask" wants scheduler, ca, certificate, key and workers')
        return self


class AnalyzerConfig(RoleSettings):
    """Settings of ``shoal analyzer serve``, from TOML and SHOAL_ANALYZER_*. ``allowed_shufflers``:
    names in the client certificates that may deliver. ``open_workers``: processes, 1 to 256; None:
    see ``workers``.
    """

    model_config = SettingsConfigDict(env_prefix="SHOAL_ANALYZER_")

    allowed_shufflers: Annotated[list[Name], Field(min_length=1)]
    tls: MutualTls
    open_workers: Annotated[int, Field(ge=1, le=256)] | None = None
    opening: OpeningSection = OpeningSection()

    @property
    def workers(self) -> int:
        """Processes that open reports: as asked, or one per CPU that this process may use."""
        return self.open_workers or min(len(os.sched_getaffinity(0)), 256)
