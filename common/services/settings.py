"""A service's configuration: a TOML file, environment overrides, every mistake one line that names
the key.

For services alone (pydantic); a device's configuration is read with the standard library in
``shoal.clients``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, SettingsError

from shoal.errors import Kind, ShoalError
from shoal.rpc.access import Access
from shoal.rpc.address import is_loopback
from shoal.rpc.renewal import TlsFiles
from shoal.services.validation import first_mistake
from shoal.storage.toml import no_such_key, read_toml
from shoal.task import split_address


def _address(value: str) -> str:
    if split_address(value) is None:
        raise ValueError(f'"{value[:64]}" is not HOST:PORT, for example 127.0.0.1:7443')
    return value


def _public_key(value: str) -> str:
    if len(value) != 64 or any(digit not in "0123456789abcdefABCDEF" for digit in value):
        raise ValueError(
            "each authority is an Ed25519 public key: 64 hex digits, as `shoal keys` prints them"
        )
    return value


Address = Annotated[str, AfterValidator(_address)]
PublicKey = Annotated[str, AfterValidator(_public_key)]


class Section(BaseModel):
    """A table inside a configuration file; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ServiceSettings(BaseSettings):
    """A configuration file; an unknown key is an error. Relative paths are relative to the file.

    Subclasses set ``model_config = SettingsConfigDict(env_prefix="SHOAL_SHUFFLER_", ...)``; then an
    environment variable SHOAL_SHUFFLER_LISTEN overrides the key ``listen``, and
    SHOAL_SHUFFLER_TLS__KEY the key ``key`` of the table ``tls``.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_nested_delimiter="__")

    base_dir: Path = Path()  # the folder of the file; set by load_settings

    @model_validator(mode="after")
    def _absolute(self) -> Self:
        _anchor(self, self.base_dir)
        return self


def _anchor(model: BaseModel, base: Path) -> None:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            _anchor(value, base)
        elif isinstance(value, Path) and name != "base_dir" and not value.is_absolute():
            object.__setattr__(model, name, base / value)


class AdminSection(Section):
    """Who may read the admin pages; see ``shoal.rpc.access``."""

    hosts: list[Annotated[str, Field(min_length=1, max_length=253)]] = []
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None

    def access(self) -> Access:
        """With what the files hold. Raises CONFIG, KEY_FILE."""
        return Access.load(
            frozenset(self.hosts), self.token_file, self.certificate, self.key, self.client_ca
        )

    def files(self) -> TlsFiles | None:
        """Its certificate and key, to be looked at again; None: no TLS. Raises KEY_FILE."""
        if self.certificate is None or self.key is None:
            return None
        return TlsFiles("admin", self.certificate, self.key)


class TracingSection(Section):
    """``[tracing]``: where traces of this service's own steps go."""

    endpoint: str = ""

    @field_validator("endpoint")
    @classmethod
    def _a_collector(cls, value: str) -> str:
        found = re.fullmatch(r"(https?)://([^/@?#]+)/?", value)
        parts = split_address(found[2]) if found else None
        if value and (
            found is None or parts is None or (found[1] == "http" and not is_loopback(parts[0]))
        ):
            raise ValueError(
                "a collector is https://collector.example:4318, or http://127.0.0.1:4318 on this "
                "machine"
            )
        return value


class RoleSettings(ServiceSettings):
    """What shuffler and analyzer configure alike: where they listen, what they keep, whom they
    trust, how loudly they log.
    """

    listen: Address
    admin: AdminSection = AdminSection()
    admin_listen: Address
    tracing: TracingSection = TracingSection()
    data_dir: Path
    tasks_dir: Path
    keys_dir: Path
    signing_key: Path
    authorities: Annotated[list[PublicKey], Field(min_length=1)]
    reload_s: Annotated[float, Field(ge=1, le=86_400)] = 10.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("admin_listen")
    @classmethod
    def _readers_are_known(cls, value: str, info: ValidationInfo) -> str:
        admin, parts = info.data.get("admin", AdminSection()), split_address(value)
        if (
            parts is not None
            and not is_loopback(parts[0])
            and admin.token_file is None
            and admin.client_ca is None
        ):
            raise ValueError(
                "only a loopback address is allowed, for example 127.0.0.1:7444, unless [admin] "
                "has token_file or client_ca"
            )
        return value

    @property
    def authority_keys(self) -> frozenset[bytes]:
        """Ed25519 public keys, 32 bytes each."""
        return frozenset(bytes.fromhex(key) for key in self.authorities)


S = TypeVar("S", bound=ServiceSettings)


def load_settings(cls: type[S], path: Path) -> S:
    """Read and check ``path``. Raises CONFIG: "shuffler.toml: listen: ..."."""
    values = read_toml(path)
    if "base_dir" in values:
        raise ShoalError(Kind.CONFIG, f"{path.name}: base_dir: no such key")
    _known_variables(cls)
    try:
        overrides = EnvSettingsSource(cls)()
        return cls(**{**_merged(values, overrides), "base_dir": path.resolve().parent})
    except (
        SettingsError
    ) as error:  # a list or a table from the environment; the text names the field, not the value
        field = re.search(r'field "(\w+)"', str(error))
        name = (
            f"{cls.model_config.get('env_prefix') or ''}{field[1]}".upper()
            if field is not None
            else "a list or a table"
        )
        raise ShoalError(
            Kind.CONFIG,
            f'environment: {name}: not JSON: write a list as ["a", "b"], a table as {{"key": '
            '"value"}',
        ) from None
    except ValidationError as error:
        mistake = first_mistake(error, cls)
        variable = _variable(cls, overrides, mistake)
        where = f"environment: {variable}" if variable else path.name
        raise ShoalError(Kind.CONFIG, f"{where}: {mistake}") from None


def _variable(cls: type[ServiceSettings], overrides: dict[str, Any], mistake: str) -> str:
    """The environment variable that a mistake came from, "" if it is the file's."""
    path, there = list[str](), overrides
    for part in mistake.partition(":")[0].split("."):
        if not isinstance(there, dict):
            break  # within a list
        if part not in there:
            return ""
        path.append(part)
        there = there[part]
    return f"{cls.model_config.get('env_prefix') or ''}{'__'.join(path)}".upper()


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        merged[key] = (
            _merged(base[key], value)
            if isinstance(value, dict) and isinstance(base.get(key), dict)
            else value
        )
    return merged


def _known_variables(cls: type[ServiceSettings]) -> None:
    """A misspelt override must not be ignored in silence. Raises CONFIG naming the variable."""
    prefix = str(cls.model_config.get("env_prefix") or "")
    for name in sorted(os.environ):
        key = name.removeprefix(prefix).lower().split("__")[0]
        if (
            prefix
            and name.startswith(prefix)
            and (key == "base_dir" or key not in cls.model_fields)
        ):
            reason = no_such_key(key, set(cls.model_fields) - {"base_dir"}).replace(
                "remove", "unset"
            )
            raise ShoalError(Kind.CONFIG, f"environment: {name}: {reason}")
