"""How a round begins: the shuffler asks the analyzer for an offer, checks it, and signs it too.

Shuffler and analyzer each choose a secret nonce and first commit to it, so that neither can choose
its own after it has seen the other's: the order of the seats on the ring, which both nonces decide
later, is then in nobody's hand as long as one of the two is honest.
"""

from __future__ import annotations

from shoal.crypto.secagg import records
from shoal.crypto.secagg.records import Offer
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2


def open_request(terms: RoundTerms, nonce: bytes) -> pairwise_pb2.OpenRoundRequest:
    """What OpenRound is called with. ``nonce``: 32 random bytes of the shuffler, secret until
    StartRound. Raises INVALID.
    """
    return pairwise_pb2.OpenRoundRequest(
        task_id=terms.task_id.raw,
        window=terms.window,
        shuffler_commitment=records.nonce_commitment(nonce),
    )


def countersign(
    terms: RoundTerms, nonce: bytes, reply: pairwise_pb2.OpenRoundReply, signing_key: SigningKey
) -> pairwise_pb2.SignedOffer:
    """The offer with both signatures, once the analyzer's signature and every field have been
    checked.

    Raises BAD_SIGNATURE, INVALID, MISMATCH. An analyzer that hands back the shuffler's own
    commitment would reveal the shuffler's nonce as its own, without having chosen one: MISMATCH
    too.
    """
    verify(terms.analyzer_key, SigningContext.ROUND_OFFER, reply.offer, reply.analyzer_signature)
    offer = Offer.decode(reply.offer)
    own = records.nonce_commitment(nonce)
    expected = Offer(
        terms.task_id,
        terms.window,
        terms.analyzer_config.key_id,
        terms.schedule_hash,
        own,
        offer.analyzer_commitment,
    )
    if offer != expected or offer.analyzer_commitment == own:
        raise ShoalError(
            Kind.MISMATCH,
            "the analyzer offers another round than was asked for: compare task and key schedule "
            "of both",
        )
    return pairwise_pb2.SignedOffer(
        offer=reply.offer,
        shuffler_signature=signing_key.sign(SigningContext.ROUND_OFFER, reply.offer),
        analyzer_signature=reply.analyzer_signature,
    )
