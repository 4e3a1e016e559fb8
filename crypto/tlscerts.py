"""A small certificate authority for the demo, the tests and small deployments: ECDSA P-256, X.509
v3 (RFC 5280), fit for TLS 1.3.

Larger sites bring certificates of their own; nothing here is needed then. Keys are returned, never
written: see ``keyfiles.save_private_pem``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, NoReturn

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shoal.errors import Kind, ShoalError

_AUTHORITY_DAYS = 3650
_LONGEST_DAYS = 3650
# a certificate is valid from an hour ago on: the peers' clocks differ
_CLOCK_SKEW = timedelta(hours=1)


class Identity(NamedTuple):
    """A certificate and its private key, both PEM. Unpacks as (cert_pem, key_pem); the key does not
    print or pickle.
    """

    cert_pem: bytes
    key_pem: bytes

    def __repr__(self) -> str:
        return f"<certificate of {len(self.cert_pem)} bytes and its private key>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("private keys are not pickled or copied: pass the PEM on purpose")


def make_authority(name: str, days: int = _AUTHORITY_DAYS) -> Identity:
    """A self-signed authority that can issue end-entity certificates only (path length 0). Raises
    INVALID.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, days, key.public_key()).issuer_name(_name(name))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(authority=True), critical=True)
    return _finish(builder, key, key)


def issue(
    authority: tuple[bytes, bytes],
    common_name: str,
    san: Sequence[str],
    *,
    server: bool,
    client: bool,
    days: int,
) -> Identity:
    """A certificate for a service (``server``), for a caller (``client``) or for both, signed by
    ``authority``.

    ``san``: DNS names and IP addresses (what a client dials; a server needs at least one).
    ``days``: 1 to 3650. The certificate never outlives its authority. Raises INVALID for anything
    else.
    """
    if not (server or client):
        raise ShoalError(Kind.INVALID, "a certificate is for a server, for a client or for both")
    if server and not san:
        raise ShoalError(
            Kind.INVALID,
            "a server certificate needs the DNS names or IP addresses that clients dial",
        )
    issuer, issuer_key = _authority(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH] * server + [
        ExtendedKeyUsageOID.CLIENT_AUTH
    ] * client
    builder = _builder(common_name, days, key.public_key(), issuer.not_valid_after_utc).issuer_name(
        issuer.subject
    )
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(_usage(authority=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
    )
    if san:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(entry) for entry in san]), critical=False
        )
    return _finish(builder, key, issuer_key)


def _authority(
    authority: tuple[bytes, bytes],
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    cert_pem, key_pem = authority
    try:
        cert = x509.load_pem_x509_certificate(cert_pem)
        key = load_pem_private_key(key_pem, password=None)
        constraints = cert.extensions.get_extension_for_class(x509.BasicConstraints).value
        cert.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except (ValueError, TypeError, x509.ExtensionNotFound):
        raise ShoalError(
            Kind.INVALID, "the authority is a PEM certificate and its unencrypted PEM key"
        ) from None
    if (
        not isinstance(key, ec.EllipticCurvePrivateKey)
        or not constraints.ca
        or cert.public_key() != key.public_key()
    ):
        raise ShoalError(
            Kind.INVALID, "the authority's certificate may not issue, or the key is not its key"
        )
    return cert, key


def _name(text: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    except ValueError:
        raise ShoalError(Kind.INVALID, "a certificate's name is 1 to 64 characters long") from None


def _general_name(entry: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(entry))
    except ValueError:
        pass
    if (
        not entry
        or len(entry) > 253
        or not entry.isascii()
        or any(c.isspace() or c in "/:@" for c in entry)
    ):
        raise ShoalError(
            Kind.INVALID,
            "a subject alternative name is a DNS name (ASCII, without port) or an IP address",
        )
    return x509.DNSName(entry)


def _builder(
    name: str, days: int, public: ec.EllipticCurvePublicKey, latest: datetime | None = None
) -> x509.CertificateBuilder:
    if not 1 <= days <= _LONGEST_DAYS:
        raise ShoalError(Kind.INVALID, f"a certificate is valid for 1 to {_LONGEST_DAYS} days")
    now = datetime.now(UTC)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(end if latest is None else min(end, latest))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _finish(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
) -> Identity:
    cert = builder.sign(signer, SHA256())
    return Identity(
        cert.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
