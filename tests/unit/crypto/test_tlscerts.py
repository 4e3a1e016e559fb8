"""Certificates that really carry a mutually authenticated TLS 1.3 handshake (in memory, no
sockets).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from shoal.crypto.tlscerts import Identity, issue, make_authority
from shoal.errors import Kind, ShoalError
from tests.cases import for_each

AUTHORITY = make_authority("test authority")
NAMES = ["localhost", "127.0.0.1", "::1"]


def refused(act: Callable[[], object], words: str) -> None:
    with pytest.raises(ShoalError) as caught:
        act()
    assert caught.value.kind is Kind.INVALID
    assert words in str(caught.value)


def _context(
    folder: Path, identity: Identity | None, trusted: bytes, *, server: bool
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=trusted.decode())
    if identity is not None:
        path = folder / f"{'server' if server else 'client'}.pem"
        path.write_bytes(identity.cert_pem + identity.key_pem)
        context.load_cert_chain(path)
    return context


def handshake(
    folder: Path, server: Identity, client: Identity | None, trusted: tuple[bytes, bytes], name: str
) -> str | None:
    """The TLS version agreed on. Raises ssl.SSLError as the refusing side would. ``trusted``: (by
    the server, by the client).
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = _context(folder, server, trusted[0], server=True).wrap_bio(
        to_server, to_client, server_side=True
    )
    theirs = _context(folder, client, trusted[1], server=False).wrap_bio(
        to_client, to_server, server_hostname=name
    )
    done: set[str] = set()
    for _ in range(10):
        for label, side in (("client", theirs), ("server", ours)):
            if label not in done:
                try:
                    side.do_handshake()
                    done.add(label)
                except ssl.SSLWantReadError:
                    pass
    assert done == {"client", "server"}
    return theirs.version()


def both(
    *, days: int = 30, authority: Identity = AUTHORITY, san: Sequence[str] = NAMES
) -> tuple[Identity, Identity]:
    return (
        issue(authority, "shuffler", san, server=True, client=False, days=days),
        issue(authority, "analyzer", [], server=False, client=True, days=days),
    )


@pytest.mark.parametrize("name", NAMES)
def test_mutual_tls_1_3(tmp_path: Path, name: str) -> None:
    """Planted: subject alternative names left out -> this fails."""
    server, client = both()
    assert (
        handshake(tmp_path, server, client, (AUTHORITY.cert_pem, AUTHORITY.cert_pem), name)
        == "TLSv1.3"
    )


def test_another_name_is_refused(tmp_path: Path) -> None:
    server, client = both()
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname"):
        handshake(
            tmp_path, server, client, (AUTHORITY.cert_pem, AUTHORITY.cert_pem), "elsewhere.example"
        )


def test_another_authority_is_refused(tmp_path: Path) -> None:
    """The same name on another authority's certificate counts for nothing."""
    stranger = make_authority("test authority")
    server, client = both(authority=stranger)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, server, client, (stranger.cert_pem, AUTHORITY.cert_pem), "localhost")


def test_a_server_certificate_is_no_client_certificate(tmp_path: Path) -> None:
    """Planted: both purposes in every certificate -> this fails."""
    server, client = both()
    with pytest.raises(ssl.SSLError):
        handshake(tmp_path, server, server, (AUTHORITY.cert_pem, AUTHORITY.cert_pem), "localhost")
    with pytest.raises(ssl.SSLError):
        handshake(tmp_path, client, client, (AUTHORITY.cert_pem, AUTHORITY.cert_pem), "localhost")


def test_an_end_entity_can_not_issue() -> None:
    """Planted: the ``constraints.ca`` check removed -> this fails."""
    server, _ = both()
    refused(lambda: issue(server, "x", ["x"], server=True, client=False, days=1), "may not issue")


def test_extensions() -> None:
    """RFC 5280: critical basic constraints and key usage; P-256; identifiers chain; it ends with
    its authority.
    """
    authority = x509.load_pem_x509_certificate(make_authority("short", days=2).cert_pem)
    assert authority.extensions.get_extension_for_class(
        x509.BasicConstraints
    ).value == x509.BasicConstraints(ca=True, path_length=0)
    root = make_authority("short", days=2)
    cert = x509.load_pem_x509_certificate(
        issue(root, "svc", ["svc.example"], server=True, client=True, days=100).cert_pem
    )
    assert isinstance(cert.public_key(), ec.EllipticCurvePublicKey)
    constraints = cert.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = cert.extensions.get_extension_for_class(x509.KeyUsage)
    assert constraints.critical
    assert not constraints.value.ca
    assert usage.critical
    assert usage.value.digital_signature
    assert not usage.value.key_cert_sign
    assert (
        cert.not_valid_after_utc
        == x509.load_pem_x509_certificate(root.cert_pem).not_valid_after_utc
    )
    assert cert.issuer == x509.load_pem_x509_certificate(root.cert_pem).subject


def test_unpacks_as_a_pair() -> None:
    cert_pem, key_pem = make_authority("pair")
    assert cert_pem.startswith(b"-----BEGIN CERTIFICATE-----")
    assert key_pem.startswith(b"-----BEGIN PRIVATE KEY-----")


@pytest.mark.parametrize("days", [0, -1, 3651])
def test_days_out_of_range(days: int) -> None:
    refused(lambda: both(days=days), "1 to 3650 days")


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_names_out_of_range(name: str) -> None:
    refused(lambda: make_authority(name), "1 to 64 characters")


@for_each(
    "entry", ["", "host:7443", "https://host", "a b", "häuschen.example", "me@host", "x" * 254]
)
def test_bad_alternative_names(entry: str) -> None:
    refused(lambda: both(san=[entry]), "DNS name")


def test_bad_purposes() -> None:
    refused(
        lambda: issue(AUTHORITY, "x", ["x"], server=False, client=False, days=1),
        "for a server, for a client",
    )
    refused(
        lambda: issue(AUTHORITY, "x", [], server=True, client=False, days=1), "needs the DNS names"
    )


def test_bad_authorities() -> None:
    other = make_authority("other")
    for pair, words in (
        ((b"", b""), "PEM"),
        ((AUTHORITY.cert_pem, b"no key"), "PEM"),
        ((AUTHORITY.cert_pem, other.key_pem), "not its key"),
    ):
        refused(partial(issue, pair, "x", ["x"], server=True, client=False, days=1), words)
