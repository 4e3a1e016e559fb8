"""TLS material as bytes, with the secret part hidden from repr and pickle."""

from __future__ import annotations

import binascii
import os
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    # 3 MB that a device without a CA file of its own never needs
    from cryptography import x509

# No base64 has a dash: a block without an end is left at the next one, and the search stays linear.
_BLOCK = re.compile(
    rb"-----BEGIN (?:X509 )?CERTIFICATE-----([^-]*)-----END (?:X509 )?CERTIFICATE-----"
)
_SEQUENCE = 0x30  # of DER


@dataclass(frozen=True, slots=True)
class TlsIdentity:
    """A certificate chain and its private key (PEM), and for a server the CA that client
    certificates must chain to.
    """

    certificate: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None = None

    def __post_init__(self) -> None:
        """Raises KEY_FILE: gRPC itself would only fail to bind, or to connect, and not say why."""
        # only for services: devices have no key for TLS
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        certificate = read_certificates(self.certificate, "the certificate")[0]
        try:
            public = load_pem_private_key(self.key, password=None).public_key()
        except (ValueError, TypeError):
            raise ShoalError(
                Kind.KEY_FILE, "the private key is not an unencrypted PEM key"
            ) from None
        if public != certificate.public_key():
            raise ShoalError(
                Kind.KEY_FILE,
                "the private key does not belong to the certificate: give the two files that were "
                "made together",
            )
        if certificate.not_valid_after_utc < datetime.now(UTC):
            raise ShoalError(
                Kind.KEY_FILE,
                f"the certificate ended on {certificate.not_valid_after_utc:%Y-%m-%d}: have a new "
                "one issued",
            )
        if self.client_ca is not None:
            read_certificates(self.client_ca, "client_ca")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a TLS identity holds a private key and is never pickled")

    @classmethod
    def load(cls, certificate: Path, key: Path, client_ca: Path | None = None) -> TlsIdentity:
        """Raises KEY_FILE naming the file, also when the key is readable by others."""
        data = (
            read_pem(certificate),
            read_pem(key, secret=True),
            read_pem(client_ca) if client_ca else None,
        )
        try:
            return cls(*data)
        except ShoalError as error:
            raise ShoalError(
                error.kind, f"{certificate.name}, {key.name}: {error.message}"
            ) from None


def read_certificates(data: bytes, what: str) -> list[x509.Certificate]:
    """The certificates of a PEM chain, at least one. Raises KEY_FILE."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError:
        raise _no_certificate(what) from None


def check_certificates(data: bytes, what: str) -> None:
    """Raises KEY_FILE unless these are PEM certificates by their form: whole blocks of base64, each
    one DER sequence of its own length.

    What is in them is left to whoever uses them. A device checks the authority that it gives to
    gRPC, which would only fail to connect and not say why; reading it as ``read_certificates`` does
    would cost an idle device 2 MB for good.
    """
    blocks: list[bytes] = _BLOCK.findall(data)
    if not blocks or 2 * len(blocks) != data.count(b"CERTIFICATE-----"):
        raise _no_certificate(what)
    for block in blocks:
        try:
            der = binascii.a2b_base64(b"".join(block.split()), strict_mode=True)
        except binascii.Error:
            raise _no_certificate(what) from None
        octets = der[1] & 0x7F if len(der) > 1 and der[1] & 0x80 else 0
        # no certificate is shorter than 128 bytes
        length = int.from_bytes(der[2 : 2 + octets], "big") if octets else 0
        if not octets or der[0] != _SEQUENCE or len(der) != 2 + octets + length:
            raise _no_certificate(what)


def _no_certificate(what: str) -> ShoalError:
    return ShoalError(Kind.KEY_FILE, f"{what} is not a PEM certificate")


def read_pem(path: Path, *, secret: bool = False) -> bytes:
    """A PEM file's bytes. ``secret``: refuse group or other permissions."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(1 << 20)
    except OSError as error:
        raise ShoalError(
            Kind.KEY_FILE, f"cannot read {path}: {error.strerror or 'unreadable'}"
        ) from None
    if secret and mode & 0o077:
        raise ShoalError(Kind.KEY_FILE, f"{path} can be read by others: run chmod 600 {path}")
    if b"-----BEGIN " not in data:
        raise ShoalError(
            Kind.KEY_FILE, f"{path} is not a PEM file{'' if data else ': it is empty'}"
        )
    return data
