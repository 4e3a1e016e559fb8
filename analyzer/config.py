"""analyzer.toml: every key, its unit and its range. deploy/analyzer.toml is the commented
sample.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shoal.services.settings import RoleSettings, Section

Name = Annotated[str, Field(min_length=1, max_length=253)]


class MutualTls(Section):
    """Both sides show certificates: ours, and one of a shuffler (``client_ca``,
    ``allowed_shufflers``).
    """

    certificate: Path
    key: Path
    client_ca: Path


class AnalyzerConfig(RoleSettings):
    """Settings of ``shoal analyzer serve``, from TOML and SHOAL_ANALYZER_*. ``allowed_shufflers``:
    names in the client certificates that may deliver. ``open_workers``: processes, 1 to 256; None:
    see ``workers``.
    """

    model_config = SettingsConfigDict(env_prefix="SHOAL_ANALYZER_")

    allowed_shufflers: Annotated[list[Name], Field(min_length=1)]
    tls: MutualTls
    open_workers: Annotated[int, Field(ge=1, le=256)] | None = None

    @property
    def workers(self) -> int:
        """Processes that open reports: as asked, or one per CPU that this process may use."""
        return self.open_workers or min(len(os.sched_getaffinity(0)), 256)
