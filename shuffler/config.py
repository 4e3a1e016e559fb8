"""shuffler.toml: every key, its unit and its range. deploy/shuffler.toml is the commented sample."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shoal.limits import LIMITS
from shoal.settings import Address, RoleSettings, Section


class Tls(Section):
    """What devices and relays see: server authentication only, because a client certificate would name the device."""

    certificate: Path
    key: Path


class Analyzer(Section):
    """Where sealed batches go, over mutual TLS."""

    address: Address
    ca: Path
    certificate: Path
    key: Path


class ShufflerConfig(RoleSettings):
    model_config = SettingsConfigDict(env_prefix="SHOAL_SHUFFLER_")

    tls: Tls
    analyzer: Analyzer
    delivery_delay_max_s: Annotated[float, Field(ge=0, le=7 * 86_400)] = 600.0
    open_workers: Annotated[int, Field(ge=0, le=256)] | None = None
    reload_s: Annotated[float, Field(ge=1, le=86_400)] = 10.0
    commit_ms: Annotated[float, Field(ge=0, le=1_000)] = LIMITS.commit_ms
