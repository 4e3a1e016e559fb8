"""Certificates and admission proofs: what holds, what does not, and that only the exact bytes do.
Vectors: tests/vectors.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial

import pytest

from shoal.crypto.admission import enrolment
from shoal.crypto.admission.enrolled import ADMISSION_SIZE, prove, verify_proof
from shoal.crypto.admission.enrolment import (
    SIGNED_CERTIFICATE_SIZE,
    DeviceCertificate,
    DeviceIdentity,
    issue,
    verify_certificate,
)
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.protos.pairwise_pb2 import AdmissionProof, Certificate
from tests.cases import for_each
from tests.sizes import size

ROOT, DEVICE = SigningKey.generate(), SigningKey.generate()
FROM, TO = 1_800_000_000, 1_800_086_400
SIGNED = issue(ROOT, DEVICE.public, FROM, TO)
IDENTITY = DeviceIdentity(DEVICE, SIGNED)
TASK, SEALED = TaskId(bytes(range(32))), (b"a" * 65, b"b" * 65)


def refused(work: Callable[[], object], kind: Kind = Kind.UNAUTHENTICATED) -> str:
    with pytest.raises(ShoalError) as caught:
        work()
    assert caught.value.kind is kind
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_certificate_holds_from_its_first_second_to_its_last() -> None:
    """Also when it was seen before: the memory knows of signatures, never of times. Planted: the
    whole answer remembered -> the last line is accepted, fails.
    """
    certificate = DeviceCertificate(DEVICE.public, FROM, TO)
    for _ in range(2):
        for now in (FROM, TO):
            assert verify_certificate(SIGNED, ROOT.public, now, remember=True) == certificate
        assert "clock" in refused(
            lambda: verify_certificate(SIGNED, ROOT.public, FROM - 0.001, remember=True)
        )
        assert "expired" in refused(
            lambda: verify_certificate(SIGNED, ROOT.public, TO + 0.001, remember=True)
        )


def test_a_certificate_holds_all_the_time_that_is_asked_for() -> None:
    """From now to the end, which may be long after. Planted: the end alone looked at where it is
    later -> the second line is accepted, fails. Planted: now alone -> the last one.
    """
    assert verify_certificate(SIGNED, ROOT.public, FROM, until=TO).device_key == DEVICE.public
    assert "clock" in refused(
        lambda: verify_certificate(SIGNED, ROOT.public, FROM - 1, until=FROM + 60)
    )
    assert "clock" in refused(
        lambda: verify_certificate(SIGNED, ROOT.public, FROM - 1, until=FROM - 60)
    )
    assert "expired" in refused(
        lambda: verify_certificate(SIGNED, ROOT.public, TO - 60, until=TO + 1)
    )


def test_one_layout_is_read_as_protobuf_reads_it() -> None:
    """Certificates are read from their places. Whatever is accepted, protobuf reads as the same,
    and writes as the same bytes. Planted: one tag, or the last byte of a time, not looked at ->
    fails.
    """
    certificate, _ = enrolment._split_certificate(SIGNED)
    for time in (1 << 28, (1 << 28) + 1, TO, (1 << 35) - 1):
        one = DeviceCertificate(DEVICE.public, 1 << 28, time)
        assert DeviceCertificate.decode(one.encode()) == one
    refused_bytes = 0
    for place in range(len(certificate)):
        for bit in range(8):
            changed = bytearray(certificate)
            changed[place] ^= 1 << bit
            try:
                found = DeviceCertificate.decode(bytes(changed))
            except ShoalError:
                refused_bytes += 1
                continue
            message = Certificate.FromString(bytes(changed))
            assert message.version == 1
            assert message.device_key == found.device_key
            assert (message.not_before_s, message.not_after_s) == (
                found.not_before_s,
                found.not_after_s,
            )
            assert found.encode() == changed
    # every bit of four tags, a length and the version; the high bits of ten bytes; a few times that
    # end before they begin, or begin before 1978
    assert refused_bytes >= 6 * 8 + 10
    for place in (0, 1, 50, 51):
        signed = bytearray(SIGNED)
        signed[place] ^= 4
        refused(partial(verify_certificate, bytes(signed), ROOT.public, FROM))


def test_a_certificate_is_not_remembered_unless_asked() -> None:
    """Who forgets to say is a shuffler. Planted: ``remember`` True by default -> fails."""
    size_before = enrolment._remembered.cache_info().currsize
    verify_certificate(issue(ROOT, SigningKey.generate().public, FROM, TO), ROOT.public, FROM)
    assert enrolment._remembered.cache_info().currsize == size_before


def test_a_certificate_is_remembered_for_the_key_that_signed_it() -> None:
    """Seen often, it costs no signature; under another key it is refused, seen or not. Planted: the
    memory keyed by the bytes alone -> fails.
    """
    signed = issue(ROOT, SigningKey.generate().public, FROM, TO)
    hits = enrolment._remembered.cache_info().hits
    for _ in range(3):
        verify_certificate(signed, ROOT.public, FROM, remember=True)
        assert "enrolment key" in refused(lambda: verify_certificate(signed, DEVICE.public, FROM))
    assert enrolment._remembered.cache_info().hits == hits + 2


def test_no_proof_leaves_a_memory_of_its_device() -> None:
    """A shuffler must not hold a list of who came lately. Planted: ``verify_proof`` with the
    remembering function -> fails.
    """
    other = SigningKey.generate()
    proof = prove(DeviceIdentity(other, issue(ROOT, other.public, FROM, TO)), TASK, 3, SEALED)
    size_before = enrolment._remembered.cache_info().currsize
    verify_proof(proof, ROOT.public, FROM, TASK, 3, SEALED)
    assert enrolment._remembered.cache_info().currsize == size_before


def test_every_certificate_and_every_proof_has_one_length() -> None:
    """So no frame's size tells devices apart."""
    for first, last in ((1 << 28, 1 << 28), (FROM, TO), ((1 << 35) - 1, (1 << 35) - 1)):
        signed = issue(ROOT, DEVICE.public, first, last)
        assert len(signed) == SIGNED_CERTIFICATE_SIZE
        assert len(prove(DeviceIdentity(DEVICE, signed), TASK, 0, SEALED)) == ADMISSION_SIZE


@for_each("first, last", [((1 << 28) - 1, TO), (FROM, 1 << 35), (0, TO), (-1, TO), (TO, FROM)])
def test_times_that_no_certificate_has(first: int, last: int) -> None:
    refused(lambda: issue(ROOT, DEVICE.public, first, last), Kind.INVALID)


def test_a_key_that_no_certificate_has() -> None:
    refused(lambda: issue(ROOT, DEVICE.public[:-1], FROM, TO), Kind.INVALID)


def test_a_proof_names_its_device() -> None:
    proof = prove(IDENTITY, TASK, 3, SEALED)
    assert verify_proof(proof, ROOT.public, FROM, TASK, 3, SEALED) == DEVICE.public
    assert proof == prove(IDENTITY, TASK, 3, list(SEALED))  # a retry's proof is the same


def test_a_proof_holds_for_nothing_else() -> None:
    """Task, window, each sealed message and their order. Planted: each left out of what is signed
    and verified -> one line fails.
    """
    proof = prove(IDENTITY, TASK, 3, SEALED)
    for task, window, sealed in (
        (TaskId(bytes(32)), 3, SEALED),
        (TASK, 4, SEALED),
        (TASK, 3, SEALED[:1]),
        (TASK, 3, SEALED[::-1]),
        (TASK, 3, (SEALED[0], b"c" * 65)),
        (TASK, 3, ()),
    ):
        refused(
            lambda task=task, window=window, sealed=sealed: verify_proof(  # type: ignore[misc]
                proof, ROOT.public, FROM, task, window, sealed
            )
        )


def test_no_certificate_lends_itself_to_another_device() -> None:
    """A stranger with a good certificate and a key of its own."""
    stranger = SigningKey.generate()
    good = AdmissionProof.FromString(prove(IDENTITY, TASK, 3, SEALED))
    data = TASK.raw + bytes((0, 0, 0, 3)) + bytes(32)
    forged = AdmissionProof(
        certificate=good.certificate, signature=stranger.sign(SigningContext.ADMISSION, data)
    ).SerializeToString()
    refused(lambda: verify_proof(forged, ROOT.public, FROM, TASK, 3, SEALED))
    own = issue(stranger, stranger.public, FROM, TO)
    refused(
        lambda: verify_proof(
            prove(DeviceIdentity(stranger, own), TASK, 3, SEALED),
            ROOT.public,
            FROM,
            TASK,
            3,
            SEALED,
        )
    )


def test_every_flipped_bit_of_a_proof_is_refused() -> None:
    """All 1,472 under the full size. Planted: any one signature not verified -> fails."""
    proof = prove(IDENTITY, TASK, 3, SEALED)
    for bit in range(0, 8 * ADMISSION_SIZE, size(7, 1)):
        changed = bytearray(proof)
        changed[bit // 8] ^= 1 << bit % 8
        refused(
            lambda changed=bytes(changed): verify_proof(changed, ROOT.public, FROM, TASK, 3, SEALED)  # type: ignore[misc]
        )


@for_each(
    "signed",
    [
        b"",
        SIGNED[:-1],
        SIGNED + b"\x00",
        SIGNED + bytes.fromhex("7a0101"),
        b"\xff" * 116,
        SIGNED[50:] + SIGNED[:50],
    ],
)
def test_no_other_bytes_are_a_certificate(signed: bytes) -> None:
    refused(lambda: verify_certificate(signed, ROOT.public, FROM))
    refused(lambda: DeviceIdentity(DEVICE, signed), Kind.INVALID)


def test_an_identity_is_a_key_with_its_own_certificate() -> None:
    message = refused(lambda: DeviceIdentity(SigningKey.generate(), SIGNED), Kind.INVALID)
    assert "another device key" in message


def test_an_identity_does_not_travel_by_mistake() -> None:
    """Its repr is short and public, pickling raises. Planted: the dataclass's own repr is fine too,
    but a pickle of the key is not.
    """
    assert repr(IDENTITY) == f"<DeviceIdentity of public key {DEVICE.public.hex()}>"
    with pytest.raises(TypeError):
        pickle.dumps(IDENTITY)


def test_a_window_that_is_no_uint32() -> None:
    refused(lambda: prove(IDENTITY, TASK, -1, SEALED), Kind.INVALID)
    refused(lambda: prove(IDENTITY, TASK, 1 << 32, SEALED), Kind.INVALID)
