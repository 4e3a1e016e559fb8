"""Replay shoal_wire_v1.json: what must open, opens to what is written there; what must be refused,
is, with its kind.

Any other implementation is shown to be compatible by the same replay (docs/WIRE.md, last section).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shoal.crypto.admission.enrolled import ADMISSION_SIZE, prove, verify_proof
from shoal.crypto.admission.enrolment import (
    DeviceCertificate,
    DeviceIdentity,
    issue,
    verify_certificate,
)
from shoal.crypto.brokered import read_reply, reply_name
from shoal.crypto.envelope import (
    frame_header,
    frame_size,
    hop_info,
    open_frame,
    open_report,
    receipt_mac,
    report_info,
    seal_frame,
    sealed_size,
    verify_receipt,
)
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.signing import SigningContext, SigningKey, signed_input, verify
from shoal.crypto.suites import SuiteId, parse_config
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Domain, Value
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.mechanisms.registry import create
from shoal.privacy import FiniteLaw, KaryLaw
from shoal.protos import task_pb2
from shoal.questions import domain_codec
from shoal.shuffler.core import check_size
from shoal.task import MechanismSpec, Task
from tests.cases import for_each

ROOT = Path(__file__).resolve().parents[2]
VECTORS: dict[str, Any] = json.loads(
    (ROOT / "tests" / "vectors" / "shoal_wire_v1.json").read_text()
)
REFUSE = VECTORS["refuse"]
KEYS = {(entry["suite"], entry["role"]): entry for entry in VECTORS["keys"]}


def raw(entry: dict[str, Any], name: str) -> bytes:
    return bytes.fromhex(entry[name])


def private(suite: int, role: str) -> HpkePrivateKey:
    return HpkePrivateKey.from_raw_secret(SuiteId(suite), raw(KEYS[suite, role], "private_key"))


def named(entry: dict[str, Any]) -> str:
    return f"{entry['suite']}-{entry['name']}" if "suite" in entry else entry["name"]


@for_each("entry", VECTORS["keys"], ids=lambda e: f"{e['suite']}-{e['role']}")
def test_keys(entry: dict[str, Any]) -> None:
    config = private(entry["suite"], entry["role"]).config
    assert config.public_key == raw(entry, "public_key")
    assert config.raw == raw(entry, "configuration")
    assert config.raw[:6] == b"".join(
        entry[name].to_bytes(2, "big") for name in ("kem", "kdf", "aead")
    )
    assert (
        config.key_id
        == KeyId.parse(entry["key_id"])
        == KeyId(hashlib.sha256(config.raw).digest()[:8])
    )
    assert parse_config(config.raw) == config


@for_each("entry", VECTORS["reports"])
def test_reports(entry: dict[str, Any]) -> None:
    key = private(entry["suite"], "analyzer")
    info = report_info(TaskId.parse(entry["task_id"]), entry["window"], key.config.key_id)
    assert info == raw(entry, "info")
    assert open_report(key, info, raw(entry, "sealed")) == raw(entry, "nonce") + raw(
        entry, "report"
    )
    assert len(raw(entry, "sealed")) == sealed_size(
        SuiteId(entry["suite"]), len(raw(entry, "report"))
    )


@for_each("entry", VECTORS["frames"] + VECTORS["borders"])
def test_frames(entry: dict[str, Any]) -> None:
    key, frame = private(entry["suite"], "hop"), raw(entry, "frame")
    header = frame_header(frame)
    assert (header.suite, header.hop, header.key_id) == (
        entry["suite"],
        entry["hop"],
        key.config.key_id,
    )
    assert hop_info(entry["hop"], key.config.key_id) == raw(entry, "info")
    content = open_frame(key, frame, entry["hop"])
    assert (content.task_id.hex, content.window) == (entry["task_id"], entry["window"])
    assert (content.ack_key.hex(), content.analyzer_key_id.hex) == (
        entry["ack_key"],
        entry["analyzer_key_id"],
    )
    assert (content.admission.hex(), [message.hex() for message in content.sealed]) == (
        entry["admission"],
        entry["sealed"],
    )
    analyzer = private(entry["suite"], "analyzer")
    for message in content.sealed:
        report = open_report(
            analyzer, report_info(content.task_id, content.window, analyzer.config.key_id), message
        )[16:]
        assert report == b"\x01" * entry.get("report_size", 1)
    for receipt in entry["receipts"]:
        assert receipt_mac(content.ack_key, receipt["status"], frame).hex() == receipt["mac"]
        verify_receipt(content.ack_key, receipt["status"], frame, raw(receipt, "mac"))


def with_reports_of(report_size: int) -> Task:
    """The task of the documents, open to all, with a report of that size."""
    documents = VECTORS["documents"]
    return replace(
        trust_task(raw(documents, "signed_task"), {raw(documents, "authority")}).task,
        report_size=report_size,
    )


@for_each("entry", VECTORS["borders"], ids=lambda e: f"{e['report_size']}-{e['window']}")
def test_borders(entry: dict[str, Any]) -> None:
    """Planted: ``seal_frame`` without its look at window 0 -> a frame of another size than the
    task's, fails.
    """
    key, frame = private(entry["suite"], "hop"), raw(entry, "frame")
    assert (
        len(frame)
        == entry["size"]
        == frame_size(
            SuiteId(entry["suite"]), 1, sealed_size(SuiteId(entry["suite"]), entry["report_size"])
        )
    )
    assert len(seal_frame(key.config, open_frame(key, frame))) == entry["size"]
    check_size(with_reports_of(entry["report_size"]), len(frame))


@for_each("entry", VECTORS["signatures"], ids=lambda e: e["context"])
def test_signatures(entry: dict[str, Any]) -> None:
    context, data = SigningContext(entry["context"]), raw(entry, "data")
    assert signed_input(context, data) == raw(entry, "input")
    verify(raw(entry, "public_key"), context, data, raw(entry, "signature"))
    key = SigningKey(Ed25519PrivateKey.from_private_bytes(raw(entry, "private_key")))
    assert (key.public, key.sign(context, data)) == (
        raw(entry, "public_key"),
        raw(entry, "signature"),
    )


def messages(entry: dict[str, Any]) -> tuple[bytes, ...]:
    return tuple(bytes.fromhex(message) for message in entry["messages"])


@pytest.mark.parametrize("entry", VECTORS["admissions"], ids=lambda e: str(e["window"]))
def test_admissions(entry: dict[str, Any]) -> None:
    """Both ways: the same certificate and the same proof are made, and both are accepted."""
    root, key = (
        SigningKey(Ed25519PrivateKey.from_private_bytes(raw(entry, name)))
        for name in ("enrolment_private_key", "device_private_key")
    )
    assert (root.public, key.public) == (raw(entry, "enrolment_key"), raw(entry, "device_key"))
    certificate = DeviceCertificate(key.public, entry["not_before_s"], entry["not_after_s"])
    assert certificate.encode() == raw(entry, "certificate")
    signed = issue(root, key.public, entry["not_before_s"], entry["not_after_s"])
    assert signed == raw(entry, "signed_certificate")
    assert verify_certificate(signed, root.public, entry["now_s"]) == certificate
    report = (TaskId(raw(entry, "task_id")), entry["window"], messages(entry))
    proof = prove(DeviceIdentity(key, signed), *report)
    assert (proof, len(proof)) == (raw(entry, "proof"), ADMISSION_SIZE)
    assert verify_proof(proof, root.public, entry["now_s"], *report) == key.public


@pytest.mark.parametrize("entry", VECTORS["replies"], ids=["every status", "another frame"])
def test_replies(entry: dict[str, Any]) -> None:
    """Through a broker: made from hash and HMAC alone, as docs/WIRE.md says, by our shuffler's
    code, and read by our device's.

    Planted: another label, order, or half of the HMAC in ``crypto.brokered`` -> fails; a status
    that it does not try -> fails.
    """
    frame, ack_key = raw(entry, "frame"), raw(entry, "ack_key")
    digest = hashlib.sha256(frame).digest()
    assert (len(frame), digest) == (512, raw(entry, "digest"))
    for one in entry["replies"]:
        nonce, status = raw(one, "nonce"), one["status"]
        said = b"shoal/v1/reply\x00" + nonce + bytes([status]) + digest
        assert said == raw(one, "input")
        assert (
            raw(one, "reply")
            == digest[:16] + nonce + hmac.new(ack_key, said, "sha256").digest()[:16]
        )
        assert read_reply(raw(one, "reply"), frame, ack_key) == status
        assert reply_name(frame) == raw(one, "reply")[:16]


def test_replies_have_every_status() -> None:
    """Planted: a kind that is new in ``errors.py`` and not in the vectors -> this fails."""
    statuses = [one["status"] for one in VECTORS["replies"][0]["replies"]]
    assert statuses == [0, *(kind.value for kind in Kind)]


def test_documents() -> None:
    entry = VECTORS["documents"]
    trusted = trust_task(raw(entry, "signed_task"), {raw(entry, "authority")})
    assert trusted.task_id == TaskId.of(raw(entry, "task")) == TaskId.parse(entry["task_id"])
    schedule = trust_schedule(raw(entry, "signed_schedule"), trusted)
    assert schedule.digest.hex == entry["schedule_hash"]
    assert [key.key_id.hex for key in schedule.analyzer_keys] == entry["analyzer_key_ids"]
    assert [key.key_id.hex for key in schedule.hop_keys] == entry["hop_key_ids"]


def _domain(entry: dict[str, Any]) -> Domain:
    return domain_codec.decode_domain(task_pb2.Domain.FromString(raw(entry, "domain")))


@for_each("entry", VECTORS["domains"])
def test_domains(entry: dict[str, Any]) -> None:
    domain = _domain(entry)
    assert list(domain.labels) == entry["labels"]
    assert [str(domain.encode(_value(case))) for case in entry["cells"]] == [
        case["cell"] for case in entry["cells"]
    ]


@for_each("entry", VECTORS["records"])
def test_records(entry: dict[str, Any]) -> None:
    """Planted: a member that is there twice taken -> another number."""
    domain = _domain(entry)
    assert list(domain.labels) == entry["labels"]
    for case in entry["cells"]:
        assert str(domain.encode(_value(case))) == case["cell"], case


@for_each("entry", VECTORS["places"])
def test_places(entry: dict[str, Any]) -> None:
    """Planted: microdegrees of a double, or rounded toward 0 -> another cell."""
    domain = _domain(entry)
    for case in entry["cells"]:
        assert str(domain.encode(_value(case))) == case["cell"], case


def _value(case: dict[str, Any]) -> Value:
    if "integer" in case:
        return int(case["integer"])
    if "double" in case:
        (number,) = struct.unpack(">d", bytes.fromhex(case["double"]))
        return float(number)
    value: Value = case["text"] if "text" in case else case["value"]
    return value


@for_each("entry", VECTORS["mechanisms"], ids=lambda e: f"{e['name']}-{len(e['reports'])}")
def test_mechanisms(entry: dict[str, Any]) -> None:
    domain = _domain(entry)
    mechanism = create(
        MechanismSpec.of(
            entry["name"], **{name: int(value) for name, value in entry["parameters"].items()}
        ),
        domain,
    )
    assert (mechanism.report_size, mechanism.messages) == (entry["report_size"], entry["messages"])
    law, weights = mechanism.privacy(), entry["weights"]
    if "rows" in weights:
        rows = [[int(weight) for weight in row] for row in weights["rows"]]
        assert _matrix(law) == [[Fraction(weight, sum(row)) for weight in row] for row in rows]
    else:
        assert law == KaryLaw(domain.size, same=int(weights["same"]), other=int(weights["other"]))
    reports = np.array([list(bytes.fromhex(report)) for report in entry["reports"]], dtype=np.uint8)
    assert mechanism.valid(reports).all()
    assert np.flatnonzero(mechanism.tally(reports).counts).tolist() == sorted(
        {0, 1, domain.size - 1}
    )


def _matrix(law: Any) -> list[list[Fraction]]:
    if isinstance(law, FiniteLaw):
        return [[Fraction(weight, law.total) for weight in row] for row in law.rows]
    return [
        [Fraction(law.same if x == y else law.other, law.total) for y in range(law.k)]
        for x in range(law.k)
    ]


# --- what must be refused -------------------------------------------------------------------------


def kind_of(entry: dict[str, Any], error: ShoalError) -> None:
    assert error.kind is Kind[entry["kind"]], str(error)


@for_each("entry", REFUSE["configurations"], ids=named)
def test_refused_configurations(entry: dict[str, Any]) -> None:
    """Planted: the probe exchange removed -> the small-order points pass; the length check removed
    -> KeyError or worse.
    """
    with pytest.raises(ShoalError) as caught:
        parse_config(raw(entry, "configuration"))
    kind_of(entry, caught.value)


@for_each("entry", REFUSE["reports"], ids=named)
def test_refused_reports(entry: dict[str, Any]) -> None:
    with pytest.raises(ShoalError) as caught:
        open_report(private(entry["suite"], "analyzer"), raw(entry, "info"), raw(entry, "sealed"))
    kind_of(entry, caught.value)


@for_each("entry", REFUSE["frames"], ids=named)
def test_refused_frames(entry: dict[str, Any]) -> None:
    with pytest.raises(ShoalError) as caught:
        open_frame(private(entry["suite"], "hop"), raw(entry, "frame"), entry["hop"])
    kind_of(entry, caught.value)


@pytest.mark.parametrize("entry", REFUSE["borders"], ids=named)
def test_refused_borders(entry: dict[str, Any]) -> None:
    """They open: the size alone is another than the task's. Planted: ``check_size`` that takes any
    of the three -> fails.
    """
    frame = raw(entry, "frame")
    content = open_frame(private(entry["suite"], "hop"), frame)
    assert [len(one) for one in content.sealed] == [
        sealed_size(SuiteId(entry["suite"]), entry["report_size"])
    ]
    with pytest.raises(ShoalError) as caught:
        check_size(with_reports_of(entry["report_size"]), len(frame))
    kind_of(entry, caught.value)


@for_each("entry", REFUSE["receipts"], ids=named)
def test_refused_receipts(entry: dict[str, Any]) -> None:
    with pytest.raises(ShoalError) as caught:
        verify_receipt(
            raw(entry, "ack_key"), entry["status"], raw(entry, "frame"), raw(entry, "mac")
        )
    kind_of(entry, caught.value)


@for_each("entry", REFUSE["signatures"], ids=named)
def test_refused_signatures(entry: dict[str, Any]) -> None:
    with pytest.raises(ShoalError) as caught:
        verify(
            raw(entry, "public_key"),
            SigningContext(entry["context"]),
            raw(entry, "data"),
            raw(entry, "signature"),
        )
    kind_of(entry, caught.value)


@for_each("entry", REFUSE["admissions"], ids=named)
def test_refused_admissions(entry: dict[str, Any]) -> None:
    """Planted: each check of ``verify_proof`` and of what it calls taken away, one at a time -> one
    row or more fails.
    """
    with pytest.raises(ShoalError) as caught:
        verify_proof(
            raw(entry, "proof"),
            raw(entry, "enrolment_key"),
            entry["now_s"],
            TaskId(raw(entry, "task_id")),
            entry["window"],
            messages(entry),
        )
    kind_of(entry, caught.value)


@for_each("entry", REFUSE["replies"], ids=named)
def test_refused_replies(entry: dict[str, Any]) -> None:
    """No kind: to the device they are as if they had not come. Planted: the name not compared, all
    256 statuses tried, a part of the MAC compared -> one row or more fails each time.
    """
    assert hashlib.sha256(raw(entry, "frame")).digest() == raw(entry, "digest")
    assert read_reply(raw(entry, "reply"), raw(entry, "frame"), raw(entry, "ack_key")) is None


@for_each("entry", REFUSE["documents"], ids=named)
def test_refused_documents(entry: dict[str, Any]) -> None:
    with pytest.raises(ShoalError) as caught:
        trust_schedule(
            raw(entry, "signed_schedule"),
            trust_task(raw(entry, "signed_task"), {raw(entry, "authority")}),
        )
    kind_of(entry, caught.value)


# --- where they come from -------------------------------------------------------------------------

RANDOM = {"sealed", "frame", "mac"}  # fresh at every sealing


def _fixed(node: Any) -> Any:
    """The same tree without what differs from run to run."""
    if isinstance(node, dict):
        return {name: _fixed(value) for name, value in node.items() if name not in RANDOM}
    return [_fixed(value) for value in node] if isinstance(node, list) else node


def _write(path: Path) -> bytes:
    subprocess.run(
        [sys.executable, str(ROOT / "tools" / "vectors.py"), str(path)],
        check=True,
        capture_output=True,
    )
    return path.read_bytes()


def test_the_tool_still_makes_these_vectors(tmp_path: Path) -> None:
    """Names, keys, infos, documents, replies and signatures are those that tools/vectors.py makes
    today.

    So a change of the wire can't go unnoticed, nor a hand-edited vector. Planted: a task field
    added to the tool -> this fails.
    """
    assert _fixed(json.loads(_write(tmp_path / "new.json"))) == _fixed(VECTORS)


def test_the_file_is_what_the_tool_writes(tmp_path: Path) -> None:
    """Byte for byte, and nothing that was sealed once is sealed again. An entry that was changed by
    hand in anything else is made anew.

    Planted: a part that the tool doesn't write; other indentation; sealed bytes not kept -> fails.
    """
    shipped, copy = (
        (ROOT / "tests" / "vectors" / "shoal_wire_v1.json").read_bytes(),
        tmp_path / "copy.json",
    )
    copy.write_bytes(shipped)
    assert _write(copy) == shipped
    changed = json.loads(shipped)
    changed["reports"][0]["window"] += 1
    changed["replies"][0]["replies"][0]["reply"] = "00" * 48
    copy.write_text(json.dumps(changed))
    again = json.loads(_write(copy))
    assert _fixed(again) == _fixed(VECTORS)
    assert again["reports"][0]["sealed"] != VECTORS["reports"][0]["sealed"]
    assert again["reports"][1:] == VECTORS["reports"][1:]
    assert {**again, "reports": []} == {**VECTORS, "reports": []}
