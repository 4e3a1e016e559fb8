"""What the analyzer and a worker elsewhere say to one another, sealed from end to end.

Neither the scheduler that brings them together nor any other holder of a TLS certificate is trusted
with it. The two know one another by Ed25519 keys that their operator wrote into both
configurations. For each connection the worker makes an HPKE key pair in memory and signs its public
key over the analyzer's challenge; the analyzer seals two fresh AES keys to it, and signs that.
Every message after it is AES-256-GCM under a key of its direction, its nonce the count of messages:
what is left out, repeated, swapped or made up does not open. A window's key crosses inside, sealed
once more to the worker's HPKE key, and stays sealed there but while rows are opened with it.

The signed and bound bytes are of fixed lengths, so that no two sets of them are alike.
"""

from __future__ import annotations

import os
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shoal.crypto import hpke
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.crypto.suites import PublicKeyConfig, SuiteId, parse_config
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId

CHALLENGE_SIZE = LOAN_SIZE = 32  # bytes
# the hybrid, whatever a task's suite: a lent key is as safe from what is recorded as its reports
SUITE = SuiteId.MLKEM768_X25519_AES128
_KEY, _NONCE = 32, 12  # bytes, of AES-256-GCM
_SESSION, _LENT = b"shoal/v1/machines/session\0", b"shoal/v1/machines/lent-key\0"


class Channel:
    """One side of a connection whose keys both sides have. Not for several threads at once.

    ``analyzer``: whether this is the analyzer's side. It prints and pickles nothing of its keys.
    """

    __slots__ = ("_in", "_out", "_received", "_sent")

    def __init__(self, keys: bytes, *, analyzer: bool) -> None:
        first, second = AESGCM(keys[:_KEY]), AESGCM(keys[_KEY:])
        self._out, self._in = (first, second) if analyzer else (second, first)
        self._sent = self._received = 0

    def seal(self, message: bytes) -> bytes:
        """The next message to the other side."""
        nonce, self._sent = self._sent.to_bytes(_NONCE, "big"), self._sent + 1
        return self._out.encrypt(nonce, message, None)

    def open(self, sealed: bytes) -> bytes:
        """The next message from the other side. Raises BAD_SIGNATURE for anything else."""
        nonce = self._received.to_bytes(_NONCE, "big")
        try:
            message = self._in.decrypt(nonce, sealed, None)
        except (InvalidTag, ValueError):
            raise ShoalError(
                Kind.BAD_SIGNATURE,
                "a message between the analyzer and a worker was changed on its way, or is not the "
                "next one: see who else holds a certificate of theirs",
            ) from None
        self._received += 1
        return message

    def __repr__(self) -> str:
        return "<Channel>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a channel is never pickled: its keys are for one connection")


class WorkerHello:
    """The worker's side of a greeting: a key pair for this connection, and its signature."""

    def __init__(self, identity: SigningKey, challenge: bytes) -> None:
        self._identity, self._challenge = identity, challenge
        self._key = hpke.generate(SUITE)
        self.config = self._key.config.raw
        self.signature = identity.sign(SigningContext.WORKER_KEY, challenge + self.config)

    def accept(self, analyzer: bytes, sealed: bytes, signature: bytes) -> tuple[Channel, Lent]:
        """What the analyzer (its Ed25519 public key) answered. Raises BAD_SIGNATURE, INVALID."""
        bound = self._challenge + self.config
        verify(analyzer, SigningContext.WORKER_SESSION, bound + sealed, signature)
        keys = self._key.open(sealed, _SESSION + self._challenge + self._identity.public + analyzer)
        return Channel(keys, analyzer=False), Lent(self._key, self._challenge)


class Lent:
    """The keys of windows that a worker has on loan over one connection, each sealed to it."""

    def __init__(self, key: HpkePrivateKey, challenge: bytes) -> None:
        self._key: HpkePrivateKey | None = key
        self._challenge = challenge
        self._sealed: dict[bytes, tuple[bytes, bytes]] = {}

    def take(self, loan: bytes, key_id: bytes, sealed: bytes) -> None:
        """A window's key, sealed to this worker. Raises INVALID if it does not open."""
        self._sealed[loan] = key_id, sealed
        self.redeem(loan)

    def give_back(self, loan: bytes) -> None:
        """Forget a key. May be repeated."""
        self._sealed.pop(loan, None)

    def close(self) -> None:
        """Forget all of them, and the key pair that opens them."""
        self._sealed.clear()
        self._key = None

    def has(self, loan: bytes) -> bool:
        """Whether a loan is here."""
        return loan in self._sealed

    @property
    def any(self) -> bool:
        """Whether some loan is here."""
        return bool(self._sealed)

    def redeem(self, loan: bytes) -> bytes:
        """The raw private key. Raises UNAVAILABLE if it was taken back, INVALID."""
        key, there = self._key, self._sealed.get(loan)
        if key is None or there is None:
            raise ShoalError(Kind.UNAVAILABLE, "a window's key was taken back from this worker")
        return key.open(there[1], _lent_info(self._challenge, loan, there[0]))


class AnalyzerHello:
    """The analyzer's side of a greeting."""

    def __init__(self, signing_key: SigningKey) -> None:
        self._signing_key, self.challenge = signing_key, os.urandom(CHALLENGE_SIZE)
        self._config: PublicKeyConfig | None = None

    def accept(
        self, worker: bytes, config: bytes, signature: bytes
    ) -> tuple[Channel, bytes, bytes]:
        """(channel, what the worker is sent, our signature over it): ``worker`` is an Ed25519
        public key that the operator listed. Raises BAD_SIGNATURE, INVALID.
        """
        verify(worker, SigningContext.WORKER_KEY, self.challenge + config, signature)
        self._config = parse_config(config)
        if self._config.suite is not SUITE:
            raise ShoalError(Kind.INVALID, "a worker's key is of another suite: update the worker")
        keys, signer = os.urandom(2 * _KEY), self._signing_key
        info = _SESSION + self.challenge + worker + signer.public
        sealed = hpke.seal(self._config, keys, info)
        signed = signer.sign(SigningContext.WORKER_SESSION, self.challenge + config + sealed)
        return Channel(keys, analyzer=True), sealed, signed

    def lend(self, loan: bytes, key: HpkePrivateKey) -> bytes:
        """A window's private key, sealed to this worker for this connection and loan."""
        assert self._config is not None  # noqa: S101 - accept came before
        info = _lent_info(self.challenge, loan, key.config.key_id.raw)
        return hpke.seal(self._config, key.to_raw_secret(), info)


def _lent_info(challenge: bytes, loan: bytes, key_id: bytes) -> bytes:
    """The connection, and with the key's id its task and window: each window has its own key."""
    return _LENT + challenge + loan + KeyId(key_id).raw
