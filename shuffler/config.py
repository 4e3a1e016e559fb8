"""shuffler.toml: every key, its unit and its range. deploy/shuffler.toml is the commented
sample.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from shoal.crypto.keyfiles import load_private_pem
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mqtt.settings import BrokerSettings
from shoal.rpc.address import parse_address
from shoal.rpc.renewal import TlsFiles
from shoal.rpc.tls import read_pem
from shoal.services.settings import Address, RoleSettings, Section


class ServerTls(Section):
    """What devices and relays see: server authentication only, because a client certificate would
    name the device.
    """

    certificate: Path
    key: Path


class Analyzer(Section):
    """Where sealed batches go, over mutual TLS."""

    address: Address
    ca: Path
    certificate: Path
    key: Path

    def files(self) -> TlsFiles:
        """With what they hold, the analyzer's authorities as ``client_ca``. Raises KEY_FILE."""
        return TlsFiles("analyzer", self.certificate, self.key, self.ca, ca_name="ca")


class Mqtt(Section):
    """A broker that brings frames, beside gRPC. ``insecure``: without TLS, for a broker on a
    loopback address alone.
    """

    enabled: bool = True
    broker: Address
    ca: Path | None = None
    username: str = ""
    password_file: Path | None = None
    protocol: Literal["5", "3.1.1"] = "5"
    insecure: bool = False

    def settings(self) -> BrokerSettings:
        """With what the files hold. Raises CONFIG, KEY_FILE."""
        host, port = parse_address(self.broker, "mqtt.broker")
        return BrokerSettings(
            host=host.strip("[]"),
            port=port,
            ca=read_pem(self.ca) if self.ca else None,
            username=self.username,
            password=_password(self.password_file) if self.password_file else "",
            protocol=self.protocol,
            insecure=self.insecure,
        )


class Batches(Section):
    """An object store for sealed batches, beside the database. ``credentials_file``: TOML of
    obstore's names; what is not there is the environment's. ``ca``: of its server's certificate,
    instead of the system's.
    """

    url: Annotated[str, Field(pattern=r"^(s3|gs|az)://[^?#@\s]+$")]
    credentials_file: Path | None = None
    ca: Path | None = None


class StoreSection(Section):
    """Where windows and reports are kept: on this machine, or in a database that ``replicas``
    shufflers share. ``without_standby``: several share one that has no synchronous standby: what
    was acknowledged is lost with its machine. ``batches``: sealed ones go to an object store.
    """

    kind: Literal["sqlite", "postgresql"] = "sqlite"
    dsn_file: Path | None = None
    # pydantic's models have a method of the key's own name
    schema_name: Annotated[str, Field(alias="schema", pattern=r"^[a-z_][a-z0-9_]{0,62}$")] = "shoal"
    replicas: Annotated[int, Field(ge=1, le=256)] = 1
    without_standby: bool = False
    batches: Batches | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kind == "sqlite" and self.replicas > 1:
            raise ValueError('several replicas want kind = "postgresql" and one dsn_file')
        if self.kind == "sqlite" and self.batches is not None:
            raise ValueError('batches in an object store want kind = "postgresql"')
        if (self.dsn_file is not None) != (self.kind == "postgresql"):
            raise ValueError('dsn_file and kind = "postgresql" go together')
        return self


def _password(path: Path) -> str:
    """The one line of a file that nobody else may read. Raises CONFIG, KEY_FILE."""
    try:
        text = load_private_pem(path).decode()
    except UnicodeDecodeError:
        raise ShoalError(
            Kind.CONFIG, f"mqtt: {path} is no text: put the password there, on one line"
        ) from None
    password = text.rstrip("\r\n")
    if not password or "\n" in password:
        raise ShoalError(Kind.CONFIG, f"mqtt: {path} holds no password: put it there, on one line")
    return password


class ShufflerConfig(RoleSettings):
    """Settings of ``shoal shuffler serve``, from TOML and SHOAL_SHUFFLER_*. ``open_workers``:
    processes that open frames; 0: this one opens them; None: by the CPUs. ``commit_ms``: how long a
    commit waits for more reports.
    """

    model_config = SettingsConfigDict(env_prefix="SHOAL_SHUFFLER_")

    tls: ServerTls
    analyzer: Analyzer
    mqtt: Mqtt | None = None
    store: StoreSection = StoreSection()
    delivery_delay_max_s: Annotated[float, Field(ge=0, le=7 * 86_400)] = 600.0
    open_workers: Annotated[int, Field(ge=0, le=256)] | None = None
    commit_ms: Annotated[float, Field(ge=0, le=1_000)] = LIMITS.commit_ms
