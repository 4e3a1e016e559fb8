"""docs/WIRE.md says what the code does: its tables and numbers are read from the page and compared."""

from __future__ import annotations

import re
from pathlib import Path

from shoal.clients.core import ACTION_OF
from shoal.crypto.enrolment import ADMISSION_SIZE, CERTIFICATE_SIZE, SIGNED_CERTIFICATE_SIZE
from shoal.crypto.envelope import HEADER_SIZE, NONCE_SIZE, hop_info, report_info, sealed_size
from shoal.crypto.keyfiles import HPKE_LABEL
from shoal.crypto.signing import SigningContext
from shoal.crypto.suites import SuiteId
from shoal.errors import STATUS_OF, Kind
from shoal.ids import KeyId, TaskId
from shoal.limits import LIMITS
from shoal.mechanisms import REGISTRY
from shoal.rpc.status import KIND_KEY
from shoal.shuffler import inbox

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "WIRE.md").read_text()


def table(first_header: str) -> list[list[str]]:
    """The rows of the table whose header begins with this cell."""
    lines = PAGE.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first_header} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def test_kinds() -> None:
    """Every number, name, status and action. Planted: a row's status or action changed, or a kind added to the code -> this fails."""
    assert [(int(row[0]), row[1], row[2], row[4]) for row in table("no.")] == [
        (kind.value, kind.name, STATUS_OF[kind], ACTION_OF[kind].value) for kind in Kind
    ]
    assert f"`{KIND_KEY}`" in PAGE


def test_suites() -> None:
    ids = {suite: [f"0x{number:04x}" for number in (suite.kem, suite.kdf, suite.aead)] for suite in SuiteId}
    lengths = {suite: [str(suite.public_key_length), str(suite.enc_length), str(suite.overhead)] for suite in SuiteId}
    assert table("suite") == [[str(suite.value), *ids[suite], *lengths[suite], suite.words] for suite in SuiteId]


def test_contexts_and_mechanisms() -> None:
    assert [row[0] for row in table("context")] == [context.value for context in SigningContext]
    rows = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[2])) for row in table("mechanism")}
    assert rows == {name: {parameter.name for parameter in family.parameters} for name, family in REGISTRY.items()}


def test_enrolment() -> None:
    """Planted: another length of a certificate or a proof, or another label of a tag, in the code -> this fails."""
    assert [(row[0].strip("`"), int(row[1])) for row in table("message")] == [
        ("Certificate", CERTIFICATE_SIZE),
        ("SignedCertificate", SIGNED_CERTIFICATE_SIZE),
        ("AdmissionProof", ADMISSION_SIZE),
    ]
    assert f'"{inbox._ADMITTED[:-1].decode()}" || 0x00 || device_key' in PAGE
    assert f"the {ADMISSION_SIZE} bytes of section 10" in PAGE


def test_layouts_and_limits() -> None:
    """Planted: another frame size, limit or info string in the code -> this fails."""
    assert f"**{', '.join(map(str, LIMITS.frame_sizes))}** bytes" in PAGE
    assert len(report_info(TaskId(bytes(32)), 0, KeyId(bytes(8)))) == 60
    assert len(hop_info(0, KeyId(bytes(8)))) == 22
    assert report_info(TaskId(bytes(32)), 0, KeyId(bytes(8))).startswith(b"shoal/v1/report\x00")
    assert f"makes {sealed_size(SuiteId.X25519_AES128, 1)} bytes" in PAGE
    assert f"{NONCE_SIZE} random bytes per message" in PAGE
    assert [row[0] for row in table("offset")] == ["0", "1", "2", "3", str(HEADER_SIZE), f"{HEADER_SIZE} + enc"]
    assert f"`{HPKE_LABEL}`" in PAGE
    for text in (
        f"at most {LIMITS.batch_frames:,} frames and {LIMITS.batch_bytes // 2**20} MiB",
        f"at most {LIMITS.submit_bytes // 1024} KiB. It returns OK",
        f"at most {LIMITS.chunk_bytes // 1024} KiB of them",
        f"at least {LIMITS.smallest_deadline_s:g} s is needed; {LIMITS.send_deadline_s:g} s",
        f"at most {LIMITS.task_bytes // 1024} KiB + 1 KiB",
        f"at most {LIMITS.schedule_bytes // 2**20} MiB + 1 KiB",
        f"2 <= `min_batch` <= {LIMITS.batch_rows:,}",
        f"1 <= `report_size` <= {LIMITS.report_bytes:,}",
        f"1 <= `messages` <= {LIMITS.messages}",
        f"1 <= `windows.count` <= {LIMITS.windows:,}",
        f"1 to {LIMITS.text_chars:,} characters",
        f"min({LIMITS.retry_most_s / 3600:g} h, {LIMITS.retry_first_s:g} s * 2^(attempts - 1))",
    ):
        assert text in PAGE, text
