"""What `shoal console --config` says: where it listens, and who may look."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.cli.extras import need
from shoal.errors import Kind, ShoalError
from shoal.services.settings import load_settings

if TYPE_CHECKING:
    from shoal.console.serving import Tls
    from shoal.console.signin.audit import Audit
    from shoal.console.signin.config import ConsoleConfig
    from shoal.console.signin.gate import Gate


@dataclass(frozen=True)
class ConsoleAccess:
    """``gate``: None where everybody who reaches this machine's loopback may look, and nothing is
    kept. ``kept``: the console's own folder. ``address``: what people type; "" for where it
    listens.
    """

    listen: str
    address: str = ""
    hosts: frozenset[str] = frozenset()
    tls: Tls | None = None
    gate: Gate | None = None
    kept: Path | None = None
    signs_in: bool = False

    @property
    def secure(self) -> str:
        """What "http" lacks for its address."""
        return "" if self.tls is None else "s"


@contextmanager
def access(config: Path | None, listen: str | None) -> Iterator[ConsoleAccess]:
    """``listen``: instead of the configuration's. The audit is closed at the end. Raises CONFIG,
    KEY_FILE, CONFLICT.
    """
    if config is None:
        from shoal.console.serving import check_address

        check_address(listen or "")
        yield ConsoleAccess(listen or "")
        return
    from shoal.console.serving import Tls
    from shoal.console.signin.audit import Audit
    from shoal.console.signin.config import ConsoleConfig

    read = load_settings(ConsoleConfig, config)
    if listen is not None:
        read = read.listening(listen)
    people = None if read.certificates is None else read.certificates.client_ca
    tls = None if read.tls is None else Tls(read.tls.certificate, read.tls.key, people)
    audit = Audit(read.audit_file)
    try:
        gate = _gate(read, audit)
        yield ConsoleAccess(
            read.listen, read.address, read.hosts, tls, gate, read.data_dir, read.signs_in
        )
    finally:
        audit.close()


def _gate(read: ConsoleConfig, audit: Audit) -> Gate:
    from shoal.console.signin import gate
    from shoal.console.signin.config import read_secret

    if read.certificates is not None:
        return gate.CertificateGate(audit, read.roles)
    if read.oidc is None:
        return gate.Gate(audit)
    need("oidc")
    from shoal.console.signin.fetching import Fetcher
    from shoal.console.signin.oidc import Client, Provider
    from shoal.console.signin.sessions import Sessions

    section = read.oidc
    if "openid" not in section.scopes:
        raise ShoalError(Kind.CONFIG, 'oidc.scopes: "openid" is not among them: add it')
    client = Client(
        issuer=section.issuer,
        client_id=section.client_id,
        secret=read_secret(section.client_secret_file),
        redirect=f"{read.address}{gate.SIGNED_IN}",
        scopes=" ".join(section.scopes),
        claim=section.claim,
        roles=read.roles,
    )
    fetcher = Fetcher.trusting(section.issuer, section.ca)
    return gate.OidcGate(audit, Provider(client, fetcher), Sessions())
