"""What one service says to the other of the time: signed, so that a word has one sender, and with a
nonce, so that it is of now.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from shoal import codec
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.errors import Kind, ShoalError
from shoal.protos import delivery_pb2

NONCE_SIZE = 16  # bytes


@dataclass(frozen=True, slots=True)
class TimeWord:
    """unix_s: by the sender's wall clock. vouched: whether that went on without a jump."""

    unix_s: float
    vouched: bool
    nonce: bytes = field(repr=False)
    reply: bool


def sign_word(word: TimeWord, key: SigningKey) -> bytes:
    """A serialized SignedTime."""
    data = delivery_pb2.TimeWord(
        version=codec.VERSION,
        unix_ms=max(round(word.unix_s * 1_000), 0),
        vouched=word.vouched,
        nonce=word.nonce,
        reply=word.reply,
    ).SerializeToString()
    signature = key.sign(SigningContext.TIME, data)
    return delivery_pb2.SignedTime(
        word=data, signer=key.public, signature=signature
    ).SerializeToString()


def read_word(data: bytes, signers: Collection[bytes], *, reply: bool) -> tuple[bytes, TimeWord]:
    """The signer, one of ``signers``, and what it says. Raises INVALID, FORBIDDEN (somebody else),
    BAD_SIGNATURE.
    """
    signed = codec.parse(delivery_pb2.SignedTime, data, "time")
    if signed.signer not in signers:
        raise ShoalError(
            Kind.FORBIDDEN,
            "time: not by a key that a task names: give both services the same tasks",
        )
    verify(signed.signer, SigningContext.TIME, signed.word, signed.signature)
    word = codec.parse(delivery_pb2.TimeWord, signed.word, "time")
    if word.version != codec.VERSION or len(word.nonce) != NONCE_SIZE or word.reply is not reply:
        raise ShoalError(
            Kind.INVALID,
            "time: not what was asked for: check that both services run the same version",
        )
    return signed.signer, TimeWord(word.unix_ms / 1_000, word.vouched, word.nonce, word.reply)
