"""Make our own test vectors: ``python tools/vectors.py [FILE]`` writes
tests/vectors/shoal_wire_v1.json.

Sealing draws fresh randomness, so sealed bytes are made once: where the file has an entry that
differs from the new one in nothing else, its sealed bytes stay, and a second run writes the same
file. The tests (here and in any other implementation) replay it: open what must open, refuse what
must be refused. Keys are SHA-256 of a label: public test keys, never to be used for anything else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from vectors_discovery import bad_steps, discoveries, fresh_windows, refused, steps
from vectors_enrolment import admissions, bad_admissions
from vectors_replies import bad_replies, replies
from vectors_signatures import bad_signatures, flipped, signatures
from vectors_tasks import (
    Json,
    bad_documents,
    documents,
    domains,
    fixed,
    hpke_key,
    mechanisms,
    places,
    records,
)

from shoal.crypto.envelope import (
    HEADER_SIZE,
    HopContent,
    frame_size,
    hop_info,
    receipt_mac,
    report_info,
    seal_frame,
    seal_report,
    sealed_size,
)
from shoal.crypto.hpke import seal
from shoal.crypto.suites import PublicKeyConfig, SuiteId
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.protos.submit_pb2 import HopPayload

PATH = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "shoal_wire_v1.json"
WINDOW = 7


TASK_ID = TaskId(fixed("task id"))
NONCE = fixed("nonce", 16)
ACK_KEY = fixed("ack key")


# --- keys and ids ---------------------------------------------------------------------------------


def keys() -> list[Json]:
    """Key material of both roles in every suite."""
    entries = []
    for suite in SuiteId:
        for role in ("analyzer", "hop"):
            key = hpke_key(suite, role)
            entries.append(
                {
                    "suite": suite.value,
                    "role": role,
                    "kem": suite.kem,
                    "kdf": suite.kdf,
                    "aead": suite.aead,
                    "private_key": key.to_raw_secret().hex(),
                    "public_key": key.config.public_key.hex(),
                    "configuration": key.config.raw.hex(),
                    "key_id": key.config.key_id.hex,
                }
            )
    return entries


def bad_configurations() -> list[Json]:
    """Key configurations that must be refused."""
    good = hpke_key(SuiteId.X25519_AES128, "analyzer").config
    hybrid = hpke_key(SuiteId.MLKEM768_X25519_AES128, "analyzer").config
    cases = {
        "empty": b"",
        "header alone": good.raw[:6],
        "one byte short": good.raw[:-1],
        "one byte long": good.raw + b"\x00",
        "unknown KEM": b"\x00\x10" + good.raw[2:],
        "unknown KDF": good.raw[:2] + b"\x00\x03" + good.raw[4:],
        "AEAD that no suite has": good.raw[:4] + b"\x00\x02" + good.raw[6:],
        "export-only AEAD": good.raw[:4] + b"\xff\xff" + good.raw[6:],
        "hybrid KEM with an X25519 key": hybrid.raw[:6] + good.public_key,
        "X25519 key with its top bit set": good.raw[:-1] + bytes([good.raw[-1] | 0x80]),
        "X25519 key of a number above the prime": good.raw[:6]
        + (2**255 - 19 + 9).to_bytes(32, "little"),
        "X25519 key of all ones": good.raw[:6] + b"\xff" * 32,
        "hybrid key with the top bit of its X25519 part set": hybrid.raw[:-1]
        + bytes([hybrid.raw[-1] | 0x80]),
        "X25519 point of order 1": good.raw[:6] + bytes(32),
        "X25519 point of order 8": good.raw[:6]
        + bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
        "hybrid with an ML-KEM coefficient above the modulus": hybrid.raw[:6]
        + b"\xff\xff\xff"
        + hybrid.public_key[3:],
        "hybrid with a zero X25519 half": hybrid.raw[:-32] + bytes(32),
    }
    return [
        {"name": name, "configuration": raw.hex(), "kind": "INVALID"} for name, raw in cases.items()
    ]


# --- inner layer ----------------------------------------------------------------------------------


def reports() -> list[Json]:
    """Sealed reports, of every suite."""
    entries = []
    for suite in SuiteId:
        key = hpke_key(suite, "analyzer")
        for window, report in ((0, b"\x01"), (WINDOW, b"\x02\x05"), (2**32 - 1, bytes(range(64)))):
            entries.append(
                {
                    "suite": suite.value,
                    "task_id": TASK_ID.hex,
                    "window": window,
                    "nonce": NONCE.hex(),
                    "report": report.hex(),
                    "info": report_info(TASK_ID, window, key.config.key_id).hex(),
                    "sealed": seal_report(key.config, TASK_ID, window, NONCE, report).hex(),
                }
            )
    return entries


def bad_reports() -> list[Json]:
    """Sealed for (task, WINDOW, key) unless the name says otherwise; all to be opened under that
    info.
    """
    entries = []
    for suite in SuiteId:
        config = hpke_key(suite, "analyzer").config
        info = report_info(TASK_ID, WINDOW, config.key_id)
        good = seal_report(config, TASK_ID, WINDOW, NONCE, b"\x01")
        other_config = hpke_key(suite, "hop").config
        cases = {
            "other task": seal_report(config, TaskId(fixed("other task")), WINDOW, NONCE, b"\x01"),
            "other window": seal_report(config, TASK_ID, WINDOW + 1, NONCE, b"\x01"),
            "info with another key id": seal(
                config, NONCE + b"\x01", report_info(TASK_ID, WINDOW, other_config.key_id)
            ),
            "empty info": seal(config, NONCE + b"\x01", b""),
            "for another key": seal_report(other_config, TASK_ID, WINDOW, NONCE, b"\x01"),
            "one byte short": good[:-1],
            "one byte long": good + b"\x00",
            "cut inside the encapsulated key": good[: suite.enc_length - 1],
            "empty": b"",
            "bit flipped in the encapsulated key, first byte": flipped(good, 0),
            "bit flipped in the encapsulated key, last byte": flipped(good, suite.enc_length - 1),
            "bit flipped in the ciphertext": flipped(good, suite.enc_length),
            "bit flipped in the tag": flipped(good, -1, 7),
            "plaintext shorter than a nonce": seal(config, NONCE[:15], info),
        }
        entries += [
            {
                "suite": suite.value,
                "name": name,
                "info": info.hex(),
                "sealed": sealed.hex(),
                "kind": "INVALID",
            }
            for name, sealed in cases.items()
        ]
    return entries


# --- hop layer ------------------------------------------------------------------------------------


def content_for(
    suite: SuiteId, window: int, messages: int, admission: bytes, report: bytes = b"\x01"
) -> HopContent:
    """What a hop opens: sealed messages of one report."""
    config = hpke_key(suite, "analyzer").config
    sealed = tuple(
        seal_report(config, TASK_ID, window, fixed(f"nonce {i}", 16), report)
        for i in range(messages)
    )
    return HopContent(TASK_ID, window, ACK_KEY, config.key_id, admission, sealed)


def frames() -> list[Json]:
    """Frames, of every suite."""
    entries = []
    shapes = ((0, 1, b"", 0), (WINDOW, 1, b"", 0), (WINDOW, 3, fixed("admission"), 1))
    for suite in SuiteId:
        config = hpke_key(suite, "hop").config
        for window, messages, admission, hop in shapes:
            entries.append(
                _frame_entry(config, content_for(suite, window, messages, admission), hop)
            )
    return entries


def _frame_entry(config: PublicKeyConfig, content: HopContent, hop: int = 0) -> Json:
    frame = seal_frame(config, content, hop)
    return {
        "suite": config.suite.value,
        "hop": hop,
        "info": hop_info(hop, config.key_id).hex(),
        "task_id": content.task_id.hex,
        "window": content.window,
        "ack_key": content.ack_key.hex(),
        "analyzer_key_id": content.analyzer_key_id.hex,
        "admission": content.admission.hex(),
        "sealed": [message.hex() for message in content.sealed],
        "frame": frame.hex(),
        "receipts": [
            {"status": status, "mac": receipt_mac(ACK_KEY, status, frame).hex()}
            for status in (0, 7, 255)
        ],
    }


BORDER_SUITE = SuiteId.X25519_AES128


def _largest() -> int:
    """Bytes of the largest report whose frames have the smallest size, in every window."""

    def fits(report_size: int) -> bool:
        return (
            frame_size(BORDER_SUITE, 1, sealed_size(BORDER_SUITE, report_size))
            == LIMITS.frame_sizes[0]
        )

    return max(size for size in range(1, LIMITS.frame_sizes[0]) if fits(size))


def borders() -> list[Json]:
    """The last report of one size and the first of the next, in window 0, whose number is not
    written, and in another one.
    """
    config, largest = hpke_key(BORDER_SUITE, "hop").config, _largest()
    return [
        {
            "report_size": size,
            "size": wanted,
            **_frame_entry(config, content_for(BORDER_SUITE, window, 1, b"", b"\x01" * size)),
        }
        for size, wanted in zip((largest, largest + 1), LIMITS.frame_sizes, strict=False)
        for window in (0, WINDOW)
    ]


def bad_borders() -> list[Json]:
    """Sealed correctly, but of another size than every frame of a task with reports of that
    size.
    """
    config, (small, middle, _), largest = (
        hpke_key(BORDER_SUITE, "hop").config,
        LIMITS.frame_sizes,
        _largest(),
    )
    cases = {
        "window 0, as small as what it holds": (0, largest + 1, small),
        "window 0, one size too large": (0, largest, middle),
        "another window, one size too large": (WINDOW, largest, middle),
    }
    return [
        {
            "suite": BORDER_SUITE.value,
            "hop": 0,
            "name": name,
            "report_size": report_size,
            "window": window,
            "frame": _frame_of(
                config, _with_length(_payload(window, b"\x01" * report_size)), size=size
            ).hex(),
            "kind": "INVALID",
        }
        for name, (window, report_size, size) in cases.items()
    ]


def _frame_of(
    config: PublicKeyConfig,
    plaintext: bytes,
    *,
    hop: int = 0,
    info: bytes | None = None,
    size: int = 512,
) -> bytes:
    """A frame around any plaintext at all, padded to ``size`` bytes in all where it is shorter."""
    plaintext = plaintext.ljust(size - HEADER_SIZE - config.suite.overhead, b"\x00")
    sealed = seal(config, plaintext, hop_info(hop, config.key_id) if info is None else info)
    return bytes((1, config.suite, hop)) + config.key_id.raw + sealed


def _payload(window: int = WINDOW, report: bytes = b"\x01", **changed: Any) -> bytes:
    content = content_for(SuiteId.X25519_AES128, window, 1, b"", report)
    fields: dict[str, Any] = {
        "task_id": content.task_id.raw,
        "window": content.window,
        "ack_key": content.ack_key,
        "analyzer_key_id": content.analyzer_key_id.raw,
        "admission": b"",
        "sealed": list(content.sealed),
    }
    return HopPayload(**(fields | changed)).SerializeToString()


def _with_length(payload: bytes, length: int | None = None) -> bytes:
    return (len(payload) if length is None else length).to_bytes(4, "big") + payload


def _damaged_frames(config: PublicKeyConfig, good: bytes) -> dict[str, tuple[bytes, str]]:
    """What anybody can do to a good frame on its way."""
    other = hpke_key(SuiteId.X25519_AES128, "analyzer").config
    enc_end = HEADER_SIZE + config.suite.enc_length
    return {
        "empty": (b"", "INVALID"),
        "one byte short": (good[:-1], "INVALID"),
        "one byte long": (good + b"\x00", "INVALID"),
        "header alone": (good[:HEADER_SIZE], "INVALID"),
        "padded outside to the next size": (good.ljust(4096, b"\x00"), "INVALID"),
        "version 0": (b"\x00" + good[1:], "INVALID"),
        "version 2": (b"\x02" + good[1:], "INVALID"),
        "unknown suite": (good[:1] + b"\x04" + good[2:], "INVALID"),
        "another suite": (good[:1] + b"\x02" + good[2:], "INVALID"),
        "another hop": (good[:2] + b"\x01" + good[3:], "INVALID"),
        "another key id": (good[:3] + other.key_id.raw + good[HEADER_SIZE:], "UNKNOWN_KEY"),
        "bit flipped in the encapsulated key": (flipped(good, HEADER_SIZE), "INVALID"),
        "bit flipped in the ciphertext": (flipped(good, enc_end), "INVALID"),
        "bit flipped in the padding": (flipped(good, -17), "INVALID"),
        "bit flipped in the tag": (flipped(good, -1), "INVALID"),
        "sealed correctly, but 600 bytes long": (
            _frame_of(config, _with_length(_payload()), size=600),
            "INVALID",
        ),
        "info of hop 1": (
            _frame_of(config, _with_length(_payload()), info=hop_info(1, config.key_id)),
            "INVALID",
        ),
        "info with another key id": (
            _frame_of(config, _with_length(_payload()), info=hop_info(0, other.key_id)),
            "INVALID",
        ),
    }


def _malformed_frames(config: PublicKeyConfig) -> dict[str, bytes]:
    """What a sender who seals correctly can still get wrong."""
    payload = _payload()
    room = 512 - HEADER_SIZE - config.suite.overhead
    sealed = content_for(SuiteId.X25519_AES128, WINDOW, 1, b"").sealed[0]
    plaintexts = {
        "padding not zero, first byte": _with_length(payload) + b"\x01",
        "padding not zero, last byte": _with_length(payload).ljust(room - 1, b"\x00") + b"\x01",
        "length beyond the end": _with_length(payload, room - 3),
        "length 2^32 - 1": _with_length(payload, 2**32 - 1),
        "length 0": _with_length(b"", 0),
        "length one too small": _with_length(payload, len(payload) - 1),
        "length one too large": _with_length(payload, len(payload) + 1),
        "no protobuf": _with_length(b"\xff" * 40),
        "unknown field": _with_length(payload + bytes.fromhex("7a0101")),
        "task id of 31 bytes": _with_length(_payload(task_id=TASK_ID.raw[:31])),
        "no task id": _with_length(_payload(task_id=b"")),
        "ack key of 16 bytes": _with_length(_payload(ack_key=ACK_KEY[:16])),
        "analyzer key id of 9 bytes": _with_length(_payload(analyzer_key_id=bytes(9))),
        "no sealed message": _with_length(_payload(sealed=[])),
        "an empty sealed message": _with_length(_payload(sealed=[b""])),
        "sealed messages of two lengths": _with_length(_payload(sealed=[sealed, sealed[:-1]])),
        "201 sealed messages": _with_length(_payload(sealed=[b"x"] * 201)),
    }
    return {name: _frame_of(config, plaintext) for name, plaintext in plaintexts.items()}


def bad_frames() -> list[Json]:
    """All to be opened as hop 0 with the hop key of suite 1."""
    config = hpke_key(SuiteId.X25519_AES128, "hop").config
    good = seal_frame(config, content_for(SuiteId.X25519_AES128, WINDOW, 1, b""))
    cases = _damaged_frames(config, good) | {
        name: (frame, "INVALID") for name, frame in _malformed_frames(config).items()
    }
    return [
        {"suite": 1, "hop": 0, "name": name, "frame": frame.hex(), "kind": kind}
        for name, (frame, kind) in cases.items()
    ]


def bad_receipts(frame: bytes) -> list[Json]:
    """Each claims to be the receipt of ``frame`` with ``status``."""
    good = receipt_mac(ACK_KEY, 0, frame)
    cases: dict[str, tuple[int, bytes]] = {
        "status changed": (5, good),
        "of another frame": (0, receipt_mac(ACK_KEY, 0, flipped(frame, -1))),
        "under another key": (0, receipt_mac(fixed("other ack key"), 0, frame)),
        "cut": (0, good[:-1]),
        "empty": (0, b""),
        "bit flipped": (0, flipped(good, 0)),
    }
    return [
        {
            "name": name,
            "ack_key": ACK_KEY.hex(),
            "status": status,
            "frame": frame.hex(),
            "mac": mac.hex(),
            "kind": "BAD_SIGNATURE",
        }
        for name, (status, mac) in cases.items()
    ]


def make() -> Json:
    """All vectors. Bytes are hexadecimal; 64-bit and larger integers are decimal text."""
    good_frames = frames()
    return {
        "provenance": (
            "Made once by tools/vectors.py; docs/WIRE.md explains every field. Test keys: SHA-256 "
            "of a label."
        ),
        "keys": keys(),
        "reports": reports(),
        "frames": good_frames,
        "borders": borders(),
        "signatures": signatures(),
        "admissions": admissions(),
        "replies": replies(),
        "documents": documents(),
        "domains": domains(),
        "discoveries": discoveries(),
        "discoveries_refused": refused(),
        "fresh_windows": fresh_windows(),
        "steps": steps(),
        "records": records(),
        "places": places(),
        "mechanisms": mechanisms(),
        "refuse": {
            "configurations": bad_configurations(),
            "reports": bad_reports(),
            "frames": bad_frames(),
            "borders": bad_borders(),
            "receipts": bad_receipts(bytes.fromhex(good_frames[0]["frame"])),
            "signatures": bad_signatures(),
            "admissions": bad_admissions(),
            "replies": bad_replies(),
            "documents": bad_documents(),
            "steps": bad_steps(),
        },
    }


RANDOM = frozenset({"sealed", "frame", "mac"})  # made anew at every sealing


def settled(node: Any) -> Any:
    """The same tree without what differs from run to run."""
    if isinstance(node, dict):
        return {name: settled(value) for name, value in node.items() if name not in RANDOM}
    return [settled(value) for value in node] if isinstance(node, list) else node


def kept(new: Any, old: Any) -> Any:
    """``new``, with the entries of ``old`` that say the same: only their sealed bytes are
    others.
    """
    if isinstance(new, dict) and isinstance(old, dict):
        return {name: kept(value, old.get(name)) for name, value in new.items()}
    if isinstance(new, list) and isinstance(old, list):
        known = {json.dumps(settled(entry), sort_keys=True): entry for entry in old}
        return [known.get(json.dumps(settled(entry), sort_keys=True), entry) for entry in new]
    return new


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PATH
    made = make()
    if target.is_file():
        made = kept(made, json.loads(target.read_text()))
    target.write_text(json.dumps(made, indent=1) + "\n")
    print(target)
