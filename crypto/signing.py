"""Ed25519 (RFC 8032) over bytes as received, never over a re-serialization, each signature bound to
what it is for.

The signed input is ``"shoal/v1/sign/" || context || 0x00 || data``: a signature over a manifest
can't be passed off as one over a task, whatever the bytes. Verification raises; it never returns
False, so it can't be ignored by mistake.

Whoever verifies many signatures, as in a round of secure aggregation, calls ``hasten`` first: where
PyNaCl is installed, libsodium verifies in half the time that OpenSSL takes. What it does not accept
is asked of OpenSSL, so the answer is the same with it and without: libsodium refuses some keys and
signatures of small order that OpenSSL accepts, and two devices of one round must not differ.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, unique
from typing import NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from shoal.errors import Kind, ShoalError

PUBLIC_SIZE = 32  # bytes
SIGNATURE_SIZE = 64  # bytes


@unique
class SigningContext(Enum):
    """What a signature is for."""

    TASK = "task"
    KEY_SCHEDULE = "key-schedule"
    ANALYZER_KEYS = "analyzer-keys"
    HOP_KEYS = "hop-keys"
    MANIFEST = "manifest"
    ACK = "ack"
    RELEASE = "release"
    DISCOVERY_STEP = "discovery-step"
    ENROLMENT = "enrolment"
    ADMISSION = "admission"
    REVOCATION = "revocation"  # a file, never on the wire
    ROUND_OFFER = "round-offer"
    ROUND_KEYS = "round-keys"
    ROUND_SHARES = "round-shares"
    ROUND_START = "round-start"
    ROUND_COMMIT = "round-commit"
    ROUND_ENDORSE = "round-endorse"
    TIME = "time"
    # between an analyzer and its workers on other machines
    WORKER_KEY = "worker-key"
    WORKER_SESSION = "worker-session"


def signed_input(context: SigningContext, data: bytes) -> bytes:
    """The bytes that Ed25519 signs: "shoal/v1/sign/" || context || 0x00 || data."""
    # No context is the beginning of another with its zero byte, so no signature can serve for two.
    return b"shoal/v1/sign/" + context.value.encode() + b"\x00" + data


class SigningKey:
    """An Ed25519 private key. It never shows itself: repr, str, format and vars hold no secret,
    pickling and copying raise.
    """

    __slots__ = ("_handle", "public")

    public: bytes

    def __init__(self, handle: Ed25519PrivateKey) -> None:
        self._handle = handle
        self.public = handle.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> SigningKey:
        """A fresh key from the operating system's CSPRNG."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, pem: bytes) -> SigningKey:
        """From unencrypted PKCS #8 PEM. Raises INVALID for anything else, and for a key of another
        type.
        """
        # every kind of key, SSH's too: not for a device, which only verifies
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            handle = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError):
            handle = None
        if not isinstance(handle, Ed25519PrivateKey):
            raise ShoalError(
                Kind.INVALID, "this is no Ed25519 private key in unencrypted PKCS #8 PEM"
            )
        return cls(handle)

    def to_pem(self) -> bytes:
        """PKCS #8 PEM, unencrypted: for a key file."""
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        return self._handle.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, context: SigningContext, data: bytes) -> bytes:
        """64 bytes; deterministic (RFC 8032 section 5.1.6)."""
        return self._handle.sign(signed_input(context, data))

    def secret_for(self, info: bytes) -> bytes:
        """32 bytes, the same whenever they are asked for: HKDF-SHA256 (RFC 5869), without salt, of
        the 32-byte private key (RFC 8032). To whoever lacks the key they look random, for each
        ``info`` by itself: never to be shown, and no ``info`` may serve for two things.
        """
        # 0.1 MB: only for devices that draw by their key
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), 32, salt=None, info=info).derive(self._handle.private_bytes_raw())

    def __repr__(self) -> str:
        return f"<SigningKey of public key {self.public.hex()}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("private keys are not pickled or copied: pass to_pem() on purpose")


class _Second:
    """What ``hasten`` found: libsodium's crypto_sign_open(signature || message, key), and what it
    raises.
    """

    open: Callable[[bytes, bytes], bytes] | None = None
    refused: tuple[type[Exception], ...] = ()


def hasten() -> bool:
    """Let ``verify`` ask libsodium first, in this process, from now on. False where PyNaCl is not
    installed: nothing changes then. Not called where few signatures are verified: it takes memory.
    """
    if _Second.open is None:
        try:
            from nacl.bindings import crypto_sign_open
            from nacl.exceptions import CryptoError
        except ImportError:
            return False
        _Second.refused = (CryptoError, ValueError)
        _Second.open = crypto_sign_open
    return True


def verify(public: bytes, context: SigningContext, data: bytes, signature: bytes) -> None:
    """Return if ``signature`` is that of ``public`` over ``data`` in this context; otherwise raise
    BAD_SIGNATURE.
    """
    message = signed_input(context, data)
    if (
        _Second.open is not None
        and len(public) == PUBLIC_SIZE
        and len(signature) == SIGNATURE_SIZE
        and _is_open(_Second.open, signature + message, public)
    ):
        return
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    # One answer for a wrong key and a wrong signature: which of them it was is nobody's business.
    except (InvalidSignature, ValueError):
        raise ShoalError(
            Kind.BAD_SIGNATURE,
            f"the {context.value} signature does not verify: refuse the {context.value} and tell "
            "its sender",
        ) from None


def is_signed(public: bytes, context: SigningContext, data: bytes, signature: bytes) -> bool:
    """Whether ``verify`` would return: for whoever goes on with another key, or reports it."""
    try:
        verify(public, context, data, signature)
    except ShoalError:
        return False
    return True


def _is_open(opened: Callable[[bytes, bytes], bytes], signed: bytes, public: bytes) -> bool:
    try:
        opened(signed, public)
    except _Second.refused:
        return False
    return True
