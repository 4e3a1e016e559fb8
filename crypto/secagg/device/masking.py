"""A device's vector under its pads, and the one share per neighbour that it gives back later.

What leaves the device is the vector plus its self pad, plus or minus the pad of every neighbour
that shared: uniform words to everybody who lacks one of them (docs/SECAGG.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.arrays import NDArray
from shoal.crypto import hpke
from shoal.crypto.secagg import pads, words
from shoal.crypto.secagg.device.dealing import open_dealt
from shoal.crypto.secagg.device.secrets import AfterShare
from shoal.crypto.secagg.exchange import vector_info
from shoal.crypto.secagg.records import Status
from shoal.crypto.secagg.segments import seal_row
from shoal.crypto.secagg.shares import Item, ShareKind, SharePair
from shoal.crypto.secagg.terms import RoundTerms
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError


def held_shares(known: AfterShare, ciphertexts: Sequence[bytes]) -> tuple[SharePair | None, ...]:
    """What each neighbour dealt to this device, in ring order; None where it did not share.

    Raises ABORTED if one does not open: its neighbour would count as having shared, and without
    this device's share of its secrets the round might end without a sum, after the vector is out.
    """
    held = tuple(
        open_dealt(key, ciphertext, known.circle, peer.position) if ciphertext else None
        for key, ciphertext, peer in zip(
            known.inbound, ciphertexts, known.circle.peers, strict=True
        )
    )
    if any(ciphertext and pair is None for ciphertext, pair in zip(ciphertexts, held, strict=True)):
        raise ShoalError(
            Kind.ABORTED,
            "what a neighbour shared does not open: the round is given up, and nothing was sent",
        )
    return held


def seal_masked(
    terms: RoundTerms,
    known: AfterShare,
    ciphertexts: Sequence[bytes],
    vector: NDArray[Any],
    entropy: Entropy,
) -> bytes:
    """The vector with its check words under its pads, sealed for the analyzer: in one piece, or in
    segments where the task says so.

    The pads are the self pad and those with exactly the neighbours that shared: a pad with one that
    did not share would stay in the sum, because nobody could take it out again.
    """
    shared = [pad for pad, text in zip(known.pads, ciphertexts, strict=True) if text]
    streams = [(known.self_pad, 1), *shared]
    round_id, config, bits = known.circle.round_id, terms.analyzer_config, terms.plan.word_bits
    constants = words.check_constants(round_id.raw, bits)
    if terms.plan.segmented:
        return seal_row(terms.plan, config, round_id, vector, constants, streams, entropy)
    masked = words.append_checks(vector, constants, bits)
    pads.apply_all(masked, streams)
    # its own memory: a copy of a long vector would be one more
    return hpke.seal(config, masked.data.cast("B"), vector_info(round_id, config.key_id))


def share_to_release(status: int, pair: SharePair | None) -> Item:
    """The one share of a neighbour that its status allows: of its self mask's seed if it is in the
    sum, of its pad key if it is lost, none else. Both together would open its vector.
    """
    if pair is None or status == Status.NEVER_SHARED:
        return ShareKind.NONE, b""
    return (ShareKind.SELF_SEED, pair.b) if status == Status.ALIVE else (ShareKind.PAD_KEY, pair.s)
