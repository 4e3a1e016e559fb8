"""Helper mode: one message per device, no neighbours. Private unless shuffler and analyzer work
together.

A device covers its vector with one pad and seals the vector to the analyzer, the pad's seed to the
shuffler::

    y = vector + check words + PRG(seed)  mod 2^w
    seed: 32 random bytes, in the same sealed session

The shuffler forwards the vectors in random order and then the sum of exactly their pads; the
analyzer subtracts it and verifies the check words. The analyzer sees uniform words but for the sum;
the shuffler sees seeds but nothing that they cover.

**One set of rows.** Pads of two different sets of rows would give two sums, and their difference a
single vector. So the analyzer says which rows it cannot use before it has seen any pad, the
shuffler fixes the set once, durably, and refuses one with fewer than survivors_min rows; every
repetition is about the same set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shoal.arrays import NDArray, np
from shoal.crypto import hpke
from shoal.crypto.admission.enrolled import prove, verify_proof, verify_proof_over
from shoal.crypto.admission.enrolment import DeviceIdentity
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.secagg import pads, words
from shoal.crypto.secagg.device.ledger import RoundLedger
from shoal.crypto.secagg.exchange import single_info
from shoal.crypto.secagg.records import Reason
from shoal.crypto.secagg.terms import SESSION_SIZE, RoundTerms
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode


def window_label(task_id: TaskId, window: int) -> Digest:
    """What stands where a round has its id: SHA-256("shoal/v1/secagg/singles" 0x00 task_id
    u32be(window)).
    """
    return Digest.of(b"shoal/v1/secagg/singles\x00" + task_id.raw + pads.u32(window, "window"))


@dataclass(frozen=True, slots=True, repr=False)
class Submission:
    """What a device sends, made once: ``session`` (16 bytes), the vector sealed to the analyzer,
    and the message with the seed.
    """

    session: bytes
    sealed: bytes
    single: pairwise_pb2.Single

    def __repr__(self) -> str:
        return "<Submission>"


def submit(
    terms: RoundTerms,
    identity: DeviceIdentity,
    vector: NDArray[np.int64],
    ledger: RoundLedger,
    entropy: Entropy = SYSTEM,
) -> Submission:
    """Mask and seal ``vector`` (int64[d], quantized and noised), once: every retry sends these
    bytes.

    The ledger is written before this returns. Raises INVALID for another mode or shape, CONFLICT
    from the ledger if the window was answered already; nothing may be sent then.
    """
    _check_mode(terms)
    label = window_label(terms.task_id, terms.window)
    if vector.shape != (terms.dimension,):
        raise ShoalError(Kind.INVALID, f"a vector of this task has {terms.dimension} coordinates")
    masked = words.append_checks(vector, _constants(terms), terms.plan.word_bits)
    seed = entropy.bytes(pads.SEED_SIZE)
    pads.apply(masked, pads.single_stream_key(seed, terms.task_id, terms.window), +1)
    config = terms.analyzer_config
    sealed = hpke.seal(
        config, masked.data.cast("B"), single_info(terms.task_id, terms.window, config.key_id)
    )
    ledger.masked(terms.task_id, terms.window, label, Digest.of(sealed))
    proof = prove(identity, terms.task_id, terms.window, [sealed])
    return Submission(
        entropy.bytes(SESSION_SIZE), sealed, pairwise_pb2.Single(proof=proof, seed=seed)
    )


def check_upload(terms: RoundTerms, upload: pairwise_pb2.Upload, now: float) -> bytes:
    """At the shuffler, before any byte of a vector is kept: the device key of who sends it. Raises
    INVALID, UNAUTHENTICATED.
    """
    _check_mode(terms)
    if len(upload.digest) != Digest.SIZE:
        raise ShoalError(
            Kind.INVALID, "the first chunk of a vector brings the vector's SHA-256 and its proof"
        )
    return verify_proof_over(
        upload.proof, terms.enrolment_key, now, terms.task_id, terms.window, upload.digest
    )


def check_single(
    terms: RoundTerms, single: pairwise_pb2.Single, sealed: bytes, now: float
) -> bytes:
    """At the shuffler: the device key of a submission whose proof and seed are in order. Raises
    INVALID, UNAUTHENTICATED.
    """
    _check_mode(terms)
    if len(sealed) != terms.sealed_vector_bytes:
        raise ShoalError(
            Kind.INVALID,
            f"a sealed vector of this task is {terms.sealed_vector_bytes} bytes long: upload all "
            "of it first",
        )
    if len(single.seed) != pads.SEED_SIZE:
        raise ShoalError(Kind.INVALID, f"a seed is {pads.SEED_SIZE} random bytes")
    return verify_proof(
        single.proof, terms.enrolment_key, now, terms.task_id, terms.window, [sealed]
    )


def sum_pads(terms: RoundTerms, seeds: Iterable[bytes]) -> bytes:
    """At the shuffler: the sum of these seeds' pads, as little-endian masked words of
    ``terms.vector_bytes`` bytes.
    """
    total = _zeros(terms)
    streams = [(pads.single_stream_key(seed, terms.task_id, terms.window), +1) for seed in seeds]
    pads.apply_all(total, streams)
    return total.tobytes()


class SingleSum:
    """At the analyzer: adds rows up, then takes the pads away. For one thread at a time; holds one
    vector, whatever n.
    """

    def __init__(self, terms: RoundTerms, key: HpkePrivateKey) -> None:
        """Raises INVALID for another mode, UNKNOWN_KEY if the key is not the window's."""
        _check_mode(terms)
        if key.config.key_id != terms.analyzer_config.key_id:
            raise ShoalError(Kind.UNKNOWN_KEY, "this is not the analyzer's key of the window")
        self._terms, self._key = terms, key
        self._info = single_info(terms.task_id, terms.window, key.config.key_id)
        self._total = _zeros(terms)
        self._rows = 0
        self.devices = 0
        self.unusable: list[int] = []

    def add(self, rows: Iterable[bytes]) -> None:
        """Open and add sealed rows; those that do not open, or have another length, are
        ``unusable``, by their number from 0.
        """
        for sealed in rows:
            try:
                plaintext = self._key.open(sealed, self._info)
            except ShoalError:
                plaintext = b""
            if len(plaintext) == self._terms.vector_bytes:
                self._total += np.frombuffer(plaintext, dtype=self._total.dtype)
                self.devices += 1
            else:
                self.unusable.append(self._rows)
            self._rows += 1

    def finish(self, pads_sum: bytes, devices: int) -> NDArray[np.int64]:
        """int64[d]: the sum of the vectors. Raises INVALID for another length; ABORTED if too few
        vectors could be used, or the sum does not check: nothing is taken away then, or nothing is
        shown.
        """
        if len(pads_sum) != self._terms.vector_bytes:
            raise ShoalError(
                Kind.INVALID, f"a sum of pads of this task is {self._terms.vector_bytes} bytes long"
            )
        if self.devices < self._terms.survivors(self._rows):
            raise Reason.TOO_FEW_VECTORS.error
        total = self._total - np.frombuffer(pads_sum, dtype=self._total.dtype)
        if devices != self.devices or not words.verify_checks(
            total, devices, _constants(self._terms)
        ):
            raise Reason.WRONG_SUM.error
        return words.decode_signed(total[: self._terms.dimension])


def _constants(terms: RoundTerms) -> NDArray[Any]:
    return words.check_constants(
        window_label(terms.task_id, terms.window).raw, terms.plan.word_bits
    )


def _zeros(terms: RoundTerms) -> NDArray[Any]:
    return pads.zeros(terms.dimension + terms.plan.check_words, pads.WORD[terms.plan.word_bits])


def _check_mode(terms: RoundTerms) -> None:
    if terms.plan.mode is not Mode.HELPER:
        raise ShoalError(
            Kind.INVALID,
            "this task is summed in rounds: single masked vectors belong to helper mode",
        )
