"""The part of our test vectors that is about enrolled devices: certificates and admission proofs.
See tools/vectors.py.

Nothing here is random: Ed25519 is deterministic, and the sealed messages are test bytes that nobody
could open.
"""

from __future__ import annotations

import hashlib

from vectors_tasks import Json, fixed, signing_key

from shoal.crypto.admission.enrolled import prove
from shoal.crypto.admission.enrolment import DeviceCertificate, DeviceIdentity, issue
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.ids import TaskId
from shoal.protos.pairwise_pb2 import AdmissionProof, SignedCertificate

NOT_BEFORE, NOT_AFTER = 1_800_000_000, 1_831_536_000
NOW = 1_800_100_000
WINDOW = 7
TASK_ID = TaskId(fixed("task id"))
MESSAGES = (
    fixed("sealed message 0") + fixed("more of it"),
    fixed("sealed message 1") + fixed("more of that"),
)


def identity(device: str = "device", root: str = "enrolment") -> DeviceIdentity:
    """An enrolled device, its key and certificate drawn from these names."""
    key = signing_key(device)
    return DeviceIdentity(key, issue(signing_key(root), key.public, NOT_BEFORE, NOT_AFTER))


def admissions() -> list[Json]:
    """Proofs that hold: in two windows, with one message and with two, on the first and on the last
    second of a certificate.
    """
    entries = []
    who = identity()
    for window, count, now in ((0, 1, NOT_BEFORE), (WINDOW, 2, NOW), (2**32 - 1, 1, NOT_AFTER)):
        messages = MESSAGES[:count]
        entries.append(
            {
                "enrolment_private_key": fixed("enrolment signing key").hex(),
                "enrolment_key": signing_key("enrolment").public.hex(),
                "device_private_key": fixed("device signing key").hex(),
                "device_key": who.key.public.hex(),
                "not_before_s": NOT_BEFORE,
                "not_after_s": NOT_AFTER,
                "certificate": DeviceCertificate(who.key.public, NOT_BEFORE, NOT_AFTER)
                .encode()
                .hex(),
                "signed_certificate": who.certificate.hex(),
                "now_s": now,
                "task_id": TASK_ID.hex,
                "window": window,
                "messages": [message.hex() for message in messages],
                "proof": prove(who, TASK_ID, window, messages).hex(),
            }
        )
    return entries


def bad_admissions() -> list[Json]:
    """Each claims to be a proof for (TASK_ID, WINDOW, both messages), under the enrolment key, at
    NOW unless the name says otherwise.
    """
    who = identity()
    good = prove(who, TASK_ID, WINDOW, MESSAGES)
    cases = _misused(who, good) | _bad_certificates(who) | _damaged(good)
    return [
        {
            "name": name,
            "enrolment_key": signing_key("enrolment").public.hex(),
            "now_s": now,
            "task_id": TASK_ID.hex,
            "window": WINDOW,
            "messages": [message.hex() for message in MESSAGES],
            "proof": proof.hex(),
            "kind": "UNAUTHENTICATED",
        }
        for name, (proof, now) in cases.items()
    ]


def _misused(who: DeviceIdentity, good: bytes) -> dict[str, tuple[bytes, int]]:
    """Well made, and for something else, or at another time."""
    return {
        "none": (b"", NOW),
        "certificate of another authority": (
            prove(identity(root="other enrolment"), TASK_ID, WINDOW, MESSAGES),
            NOW,
        ),
        "a second before the certificate holds": (good, NOT_BEFORE - 1),
        "a second after the certificate has expired": (good, NOT_AFTER + 1),
        "for another task": (prove(who, TaskId(fixed("other task")), WINDOW, MESSAGES), NOW),
        "for another window": (prove(who, TASK_ID, WINDOW + 1, MESSAGES), NOW),
        "for other sealed messages": (prove(who, TASK_ID, WINDOW, MESSAGES[:1] * 2), NOW),
        "for the messages in another order": (prove(who, TASK_ID, WINDOW, MESSAGES[::-1]), NOW),
        "for one of the messages": (prove(who, TASK_ID, WINDOW, MESSAGES[:1]), NOW),
        "signed by another device": (
            _proof(who.certificate, _signature(signing_key("other device"))),
            NOW,
        ),
        "signed in another context": (
            _proof(who.certificate, who.key.sign(SigningContext.ROUND_KEYS, _statement())),
            NOW,
        ),
    }


def _bad_certificates(who: DeviceIdentity) -> dict[str, tuple[bytes, int]]:
    return {
        "certificate without a signature": (
            _proof(SignedCertificate(certificate=_raw()).SerializeToString(), _signature(who.key)),
            NOW,
        ),
        "certificate signed by the device itself": (
            _proof(_signed(_raw(), who.key), _signature(who.key)),
            NOW,
        ),
        "certificate that holds until the year 3100": (
            _proof(_signed_by_root(_raw(not_after_s=35_659_000_000)), _signature(who.key)),
            NOW,
        ),
        "certificate of version 2": (
            _proof(_signed_by_root(b"\x08\x02" + _raw()[2:]), _signature(who.key)),
            NOW,
        ),
        "certificate with an unknown field": (
            _proof(_signed_by_root(_raw() + bytes.fromhex("7a0101")), _signature(who.key)),
            NOW,
        ),
        "certificate with its fields in another order": (
            _proof(_signed_by_root(_raw()[2:] + _raw()[:2]), _signature(who.key)),
            NOW,
        ),
        "certificate with a key of 31 bytes": (
            _proof(_signed_by_root(_short_key()), _signature(who.key)),
            NOW,
        ),
    }


def _damaged(good: bytes) -> dict[str, tuple[bytes, int]]:
    return {
        "with an unknown field": (good + bytes.fromhex("7a0101"), NOW),
        "signature first": (good[-66:] + good[:-66], NOW),
        "one byte short": (good[:-1], NOW),
        "one byte long": (good + b"\x00", NOW),
        "bit flipped in the certificate": (good[:20] + bytes((good[20] ^ 1,)) + good[21:], NOW),
        "bit flipped in the certificate's signature": (
            good[:80] + bytes((good[80] ^ 1,)) + good[81:],
            NOW,
        ),
        "bit flipped in the device's signature": (good[:-1] + bytes((good[-1] ^ 1,)), NOW),
    }


def _raw(not_after_s: int = NOT_AFTER) -> bytes:
    """A certificate's bytes; the end may be one that no certificate has."""
    data = DeviceCertificate(signing_key("device").public, NOT_BEFORE, NOT_AFTER).encode()
    return data[:-5] + _varint(not_after_s)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _short_key() -> bytes:
    data = _raw()
    return data[:2] + b"\x12\x1f" + data[4:35] + data[36:]


def _signed(certificate: bytes, key: SigningKey) -> bytes:
    return SignedCertificate(
        certificate=certificate, signature=key.sign(SigningContext.ENROLMENT, certificate)
    ).SerializeToString()


def _signed_by_root(certificate: bytes) -> bytes:
    return _signed(certificate, signing_key("enrolment"))


def _statement() -> bytes:
    return TASK_ID.raw + WINDOW.to_bytes(4, "big") + hashlib.sha256(b"".join(MESSAGES)).digest()


def _signature(key: SigningKey) -> bytes:
    return key.sign(SigningContext.ADMISSION, _statement())


def _proof(certificate: bytes, signature: bytes) -> bytes:
    return AdmissionProof(certificate=certificate, signature=signature).SerializeToString()
