"""The console's own configuration file: where it listens, who may look, and where that is audited.

``shoal console --config console.toml``; docs/CONSOLE.md explains every key.
"""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import SettingsConfigDict

from shoal.console.signin.certificates import PREFIXES
from shoal.console.signin.fetching import is_sound
from shoal.console.signin.visitors import Roles
from shoal.errors import Kind, ShoalError
from shoal.rpc.address import is_loopback, parse_address
from shoal.services.settings import Address, Section, ServiceSettings
from shoal.storage.private_files import read_private_line

Name = Annotated[str, Field(min_length=1, max_length=256)]
_NOBODY = "listen: beyond loopback people must sign in: add [tls], and [certificates] or [oidc]"


def _person(value: str) -> str:
    if not value.startswith(PREFIXES):
        raise ValueError(
            f'"{value[:64]}" does not say what it is: CN:Ada, email:ada@example, DNS:... or URI:...'
        )
    return value


def _provider(value: str) -> str:
    if not is_sound(value) or urllib.parse.urlsplit(value).query:
        raise ValueError("the issuer is an https:// address, for example https://login.example")
    return value


def _public(value: str) -> str:
    parts = urllib.parse.urlsplit(value)
    fits = parts.scheme in {"https", "http"} and parts.hostname and parts.path in {"", "/"}
    if value and not fits:
        raise ValueError(
            "this is what people type to get here, for example https://console.example:7450"
        )
    return value.rstrip("/")


class TlsSection(Section):
    """The console's own certificate, and its key."""

    certificate: Path
    key: Path


class CertificatesSection(Section):
    """Signing in by client certificates of ``client_ca``."""

    client_ca: Path
    operators: tuple[Annotated[Name, AfterValidator(_person)], ...] = ()
    viewers: tuple[Annotated[Name, AfterValidator(_person)], ...] = ()


class OidcSection(Section):
    """Signing in at an OpenID Connect provider. ``claim``: which of its claims has the names below.
    ``client_secret_file``: none for a public client. ``ca``: whom to trust for its TLS.
    """

    issuer: Annotated[Name, AfterValidator(_provider)]
    client_id: Name
    client_secret_file: Path | None = None
    ca: Path | None = None
    scopes: tuple[Name, ...] = ("openid", "email", "profile")
    claim: Name = "sub"
    operators: tuple[Name, ...] = ()
    viewers: tuple[Name, ...] = ()


class ConsoleConfig(ServiceSettings):
    """``address``: what people type to get here; its name is the one that requests must ask for.
    ``names``: others. ``audit``: the file; ``data_dir``: what the console itself keeps.
    """

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix="SHOAL_CONSOLE_", env_nested_delimiter="__"
    )

    listen: Address = "127.0.0.1:7450"
    address: Annotated[str, AfterValidator(_public)] = ""
    names: tuple[Name, ...] = ()
    data_dir: Path
    tls: TlsSection | None = None
    certificates: CertificatesSection | None = None
    oidc: OidcSection | None = None

    @model_validator(mode="after")
    def _who_may_look_is_known(self) -> Self:
        if self.certificates is not None and self.oidc is not None:
            raise ValueError("[certificates] and [oidc] are two ways to sign in: choose one")
        section = self.certificates or self.oidc
        if section is not None and not (section.operators or section.viewers):
            raise ValueError("nobody could look: name operators or viewers")
        if section is not None and self.tls is None:
            raise ValueError("signing in wants [tls] with certificate and key")
        if self.oidc is not None and not self.address.startswith("https://"):
            raise ValueError(
                "[oidc] wants address, where browsers come back to: https://console.example"
            )
        if section is None and not is_loopback(parse_address(self.listen, "listen")[0]):
            raise ValueError(_NOBODY)
        return self

    @property
    def signs_in(self) -> bool:
        """Whether people do."""
        return self.certificates is not None or self.oidc is not None

    def listening(self, address: str) -> Self:
        """The same elsewhere. Raises CONFIG for a place beyond loopback where nobody signs in."""
        if not self.signs_in and not is_loopback(parse_address(address, "--listen")[0]):
            raise ShoalError(Kind.CONFIG, f"--{_NOBODY}")
        return self.model_copy(update={"listen": address})

    @property
    def audit_file(self) -> Path:
        """Where everything that was done stands."""
        return self.data_dir / "audit.jsonl"

    @property
    def hosts(self) -> frozenset[str]:
        """Names under which the console is asked for, beside where it listens."""
        known = {name.lower() for name in self.names}
        host = urllib.parse.urlsplit(self.address).hostname
        return frozenset(known | ({host.lower()} if host else set()))

    @property
    def roles(self) -> Roles:
        """By the names of certificates, or by the values of a claim."""
        section = self.certificates or self.oidc
        if section is None:
            return Roles(frozenset(), frozenset())
        return Roles(frozenset(section.operators), frozenset(section.viewers))


def read_secret(path: Path | None) -> str:
    """The one line of a file that nobody else may read; "" for no file. Raises KEY_FILE."""
    if path is None:
        return ""
    secret = read_private_line(path)
    if not secret or not all(33 <= byte <= 126 for byte in secret):
        raise ShoalError(Kind.KEY_FILE, f"{path} holds no client secret: one line of plain letters")
    return secret.decode("ascii")
