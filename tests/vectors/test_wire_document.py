"""docs/WIRE.md says what the code does: its tables and numbers are read from the page and
compared.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from pathlib import Path

from shoal.accounting.composition.memoized import PROMISE
from shoal.clients.core import ACTION_OF
from shoal.clients.rounds import exchange as sending
from shoal.clients.rounds import participation as rounds
from shoal.clients.rounds.exchange import FINAL_OF_CALL
from shoal.crypto.admission.enrolled import ADMISSION_SIZE
from shoal.crypto.admission.enrolment import CERTIFICATE_SIZE, SIGNED_CERTIFICATE_SIZE
from shoal.crypto.brokered import REPLY_SIZE, make_reply
from shoal.crypto.envelope import HEADER_SIZE, NONCE_SIZE, hop_info, report_info, sealed_size
from shoal.crypto.keyfiles import HPKE_LABEL
from shoal.crypto.secagg import exchange, pads, parameters, segments, shares
from shoal.crypto.secagg.primitives import shamir
from shoal.crypto.secagg.records import Reason, Start, Status
from shoal.crypto.secagg.ring import LEAF_SIZE
from shoal.crypto.signing import SigningContext
from shoal.crypto.suites import SuiteId
from shoal.domain import Norm
from shoal.entropy import SeededEntropy
from shoal.errors import RETRYABLE, STATUS_OF, Kind
from shoal.ids import Digest, KeyId, TaskId
from shoal.limits import KIB, LIMITS, MIB
from shoal.mechanisms import REGISTRY
from shoal.mechanisms.noise import polya, skellam
from shoal.mechanisms.noise.registry import REGISTRY as NOISES
from shoal.mechanisms.noise.width import TAIL_BITS
from shoal.mqtt import link, topics
from shoal.protos import pairwise_pb2
from shoal.rpc.status import KIND_KEY
from shoal.secagg import CHECK_WORDS, PairwisePlan
from shoal.shuffler import directory
from shoal.shuffler.reports import mqtt_bridge
from shoal.shuffler.stores import storage_keys
from tests.cases import for_each

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "WIRE.md").read_text()
PROSE = " ".join(PAGE.split())  # a statement may run over the end of a line


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
    """Every number, name, status and action. Planted: a row's status or action changed, or a
    kind added to the code -> this fails.
    """
    assert [(int(row[0]), row[1], row[2], row[4]) for row in table("no.")] == [
        (kind.value, kind.name, STATUS_OF[kind], ACTION_OF[kind].value) for kind in Kind
    ]
    assert f"`{KIND_KEY}`" in PROSE


def test_suites() -> None:
    ids = {
        suite: [f"0x{number:04x}" for number in (suite.kem, suite.kdf, suite.aead)]
        for suite in SuiteId
    }
    lengths = {
        suite: [str(suite.public_key_length), str(suite.enc_length), str(suite.overhead)]
        for suite in SuiteId
    }
    assert table("suite") == [
        [str(suite.value), *ids[suite], *lengths[suite], suite.words] for suite in SuiteId
    ]


def test_contexts_and_mechanisms() -> None:
    assert [row[0] for row in table("context")] == [context.value for context in SigningContext]
    rows = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[2])) for row in table("mechanism")}
    assert rows == {
        name: {parameter.name for parameter in family.parameters}
        for name, family in REGISTRY.items()
    }


def test_enrolment() -> None:
    """Planted: another length of a certificate or a proof, or another label of a tag, in the
    code -> this fails.
    """
    assert [(row[0].strip("`"), int(row[1])) for row in table("message")] == [
        ("Certificate", CERTIFICATE_SIZE),
        ("SignedCertificate", SIGNED_CERTIFICATE_SIZE),
        ("AdmissionProof", ADMISSION_SIZE),
    ]
    assert f'"{storage_keys._ADMITTED[:-1].decode()}" || 0x00 || device_key' in PAGE
    assert f"the {ADMISSION_SIZE} bytes of section 10" in PROSE


def test_layouts_and_limits() -> None:
    """Planted: another frame size, limit or info string in the code -> this fails."""
    assert f"**{', '.join(map(str, LIMITS.frame_sizes))}** bytes" in PROSE
    assert len(report_info(TaskId(bytes(32)), 0, KeyId(bytes(8)))) == 60
    assert len(hop_info(0, KeyId(bytes(8)))) == 22
    assert report_info(TaskId(bytes(32)), 0, KeyId(bytes(8))).startswith(b"shoal/v1/report\x00")
    assert f"makes {sealed_size(SuiteId.X25519_AES128, 1)} bytes" in PROSE
    assert f"{NONCE_SIZE} random bytes per message" in PROSE
    assert [row[0] for row in table("offset")] == [
        "0",
        "1",
        "2",
        "3",
        str(HEADER_SIZE),
        f"{HEADER_SIZE} + enc",
    ]
    assert f"`{HPKE_LABEL}`" in PROSE
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
        f"Labels and names 1 to {LIMITS.name_chars} characters, fewer than {LIMITS.cells:,} of "
        "them",
        f"({LIMITS.batch_bytes // MIB} MiB and 1 KiB at a shuffler)",
        f"Metadata beyond {LIMITS.metadata_bytes // KIB} KiB in all",
        f"min({LIMITS.retry_most_s / 3600:g} h, {LIMITS.retry_first_s:g} s * 2^(attempts - 1))",
    ):
        assert text in PROSE, text


# --- rounds of secure aggregation -----------------------------------------------------------------


def labels(header: str, column: int) -> list[str]:
    """The labels in one column of a table."""
    return [
        found
        for row in table(header)
        for found in re.findall(r'"shoal/v1/secagg/([a-z-]+)"', row[column])
    ]


def test_every_label_of_a_round_is_on_the_page_and_no_other() -> None:
    """Planted: a label renamed in the code, one added there, or one struck from the page ->
    this fails.
    """
    files = [
        *sorted((ROOT / "crypto" / "secagg").rglob("*.py")),
        ROOT / "analyzer" / "rounds" / "sum_release.py",
    ]
    source = "".join(path.read_text() for path in files)
    written = set(re.findall(r'b"shoal/v1/secagg/([a-z-]+)\\x00"', source)) | set(
        re.findall(r'_hash\(b?"([a-z-]+)"', source)
    )
    named = labels("hash label", 0) + labels("sealed", 1) + labels("key", 3)
    assert len(set(named)) == len(named)
    assert set(named) == written


def test_what_a_round_hashes_and_derives() -> None:
    """Inputs and lengths; the values are in the vectors. Planted: another length of a key or an
    info in the code -> this fails.
    """
    assert [row[4] for row in table("key")] == [
        str(size) for size in (shares.KEY_SIZE, *[pads.STREAM_KEY_SIZE] * 3)
    ]
    round_id, key_id, task_id = Digest(bytes(32)), KeyId(bytes(8)), TaskId(bytes(32))
    lengths = {"round_id": 32, "task_id": 32, "u32be(window)": 4, "key_id": 8}
    lengths |= {"row_id (16)": segments.ROW_ID_SIZE, "u32be(i)": 4, "u32be(m)": 4}
    made = {
        "exchange": exchange.exchange_info(key_id),
        "vector": exchange.vector_info(round_id, key_id),
        "segment": segments.segment_info(round_id, key_id, bytes(16), 0, 1),
        "shares": exchange.shares_info(round_id, key_id),
        "single": exchange.single_info(task_id, 0, key_id),
    }
    for row in table("sealed"):
        label, parts = row[1].split(": ")
        size = sum(lengths[part] for part in parts.split(r" \|\| "))
        assert len(made[label.strip('"').rsplit("/", 1)[1]]) == len(label.strip('"')) + 1 + size


def test_phases_reasons_and_statuses() -> None:
    """Planted: a reason or a phase added to the code, or another wording -> this fails."""
    phases = [
        name.removeprefix("PHASE_")
        for name in pairwise_pb2.Phase.keys()  # noqa: SIM118 - not a dict
        if name != "PHASE_UNSPECIFIED"
    ]
    assert [row[0] for row in table("phase")] == phases
    assert [row[0] for row in table("reason")] == [reason.value for reason in Reason]
    assert (Status.NEVER_SHARED, Status.DROPPED, Status.ALIVE) == (0, 1, 2)
    steps = {name for row in table("phase") for name in re.findall(r"`([A-Z]\w+)`", row[2])}
    fields = pairwise_pb2.Step.DESCRIPTOR.oneofs_by_name["step"].fields
    assert steps | {"Poll", "Single"} == {
        field.message_type.name for field in fields if field.message_type
    }
    answers = {name for row in table("phase") for name in re.findall(r"`(\w+)`", row[1])} - {"Ask"}
    assert answers | {"phase", "wait_ms"} == {
        field.name for field in pairwise_pb2.Answer.DESCRIPTOR.fields
    }


def test_what_a_device_does_when_refused() -> None:
    """The kinds that end a part and those that are sent again. Planted: a kind moved in the
    code -> this fails.
    """
    rows = table("refused")

    def kinds(text: str) -> set[Kind]:
        return {Kind[name] for name in re.findall(r"\b[A-Z_]{6,}\b", text)}

    assert kinds(rows[0][0]) == FINAL_OF_CALL - {Kind.CONFIG}  # which no shuffler says
    assert kinds(rows[1][0]) == RETRYABLE - {Kind.TOO_EARLY}
    assert kinds(rows[2][0]) == {Kind.TOO_EARLY}


def test_noise_and_norms() -> None:
    rows = {row[0].strip("`"): row[1] for row in table("noise")}
    assert {name: re.findall(r"`(\w+)`", text.split(":")[0]) for name, text in rows.items()} == {
        name: sorted(parameter.name for parameter in family.parameters)
        for name, family in NOISES.items()
    }
    assert 2 * skellam.MOST_RATE == 2**34
    assert (polya.LEAST_SCALE, polya.MOST_SCALE, polya.UNIT) == (4_096, 2**31, 65_536)
    assert {row[0] for row in table("norm")} == {norm.name for norm in Norm}


def test_sizes_and_constants_of_rounds() -> None:
    """Planted: another limit, sigma, prime or number of check words in the code -> this fails."""
    assert shamir.PRIME == 2**256 + 297
    assert CHECK_WORDS == {16: 4, 32: 2, 64: 2}
    assert [row[0] for row in table("place")] == [
        "0",
        "1",
        "2",
        str(exchange.HEADER_SIZE),
        f"{exchange.HEADER_SIZE} + enc",
    ]
    sigma = parameters.SIGMA
    for text in (
        f"sigma = {min(sigma.values())}, strict mode {max(sigma.values())}",
        f"- n > {parameters.COMPLETE_MOST}: the smallest even k",
        f"> k - t] <= 2^-{parameters.ETA}.",
        f"<= 2^-{TAIL_BITS} for some r > 0",
        f"w / 8 <= {LIMITS.vector_bytes:,}, with {CHECK_WORDS[16]} check words",
        f"1 <= d <= {LIMITS.vector_words:,}",
        f"`cohort_max` <= {LIMITS.cohort:,} (helper mode: {LIMITS.helper_cohort:,})",
        f"1 to {LIMITS.phase_s:,} each",
        f"at most {LIMITS.exchange_bytes // 1024 + 1} KiB.",
        f"The frame is at most {LIMITS.exchange_bytes // 1024} KiB.",
        f"`chunk` 1 to {LIMITS.upload_bytes:,} bytes",
        f"nonce ({exchange.NONCE_SIZE}, random)",
        f"{exchange.NONCE_SIZE + exchange.TAG_SIZE} bytes longer than it",
        f"A share ciphertext is {shares.CIPHERTEXT_SIZE} bytes",
        f"a share is {shamir.SHARE_SIZE} bytes, big-endian",
        f"The list of seats is {LEAF_SIZE} bytes each",
        f"waits `wait_ms` ({rounds._LEAST_WAIT_S:g} to {rounds._MOST_WAIT_S:g} s,",
        f"after {sending._RETRY.first_s:g} s, then twice as long each time up to "
        f"{sending._RETRY.most_s:g} s",
        f"at most {LIMITS.chunk_bytes // 1024} KiB in a chunk, `offset` in bytes of the whole",
        f"{shares.bundle_size(0)} + {shares.bundle_size(1) - shares.bundle_size(0)} k bytes",
    ):
        assert text in PROSE, text


@for_each(
    "name",
    [
        "join_s",
        "share_s",
        "mask_s",
        "unmask_s",
        "survivors_min",
        "cohort_min",
        "cohort_max",
        "dropout_ppm",
    ],
)
def test_the_plans_fields_are_on_the_page(name: str) -> None:
    assert name in PairwisePlan.__dataclass_fields__
    assert f"`{name}`" in PROSE


def test_the_vectors_table_names_what_the_file_holds() -> None:
    """Planted: a part of the vectors without a row -> this fails."""
    held = set(json.loads((ROOT / "tests" / "vectors" / "shoal_secagg_v1.json").read_text())) - {
        "provenance"
    }
    assert {name for row in table("in secagg") for name in re.findall(r"`(\w+)`", row[0])} == held


def test_the_list_of_vectors_names_what_the_file_holds() -> None:
    """Planted: a part of the vectors without a row -> this fails."""
    held = set(json.loads((ROOT / "tests" / "vectors" / "shoal_wire_v1.json").read_text())) - {
        "provenance"
    }
    assert {row[0].strip("`") for row in table("part")} == held


def test_the_largest_answer_fits_into_a_reply() -> None:
    """As many neighbours as a device can have, in the largest round: who everybody is. Planted:
    1,100 neighbours -> this fails.
    """
    one = pairwise_pb2.Neighbour(
        certificate=bytes(SIGNED_CERTIFICATE_SIZE),
        pad_key=bytes(32),
        share_key=bytes(32),
        signature=bytes(64),
    )
    start = Start(
        Digest(bytes(32)), LIMITS.cohort, Digest(bytes(32)), bytes(32), bytes(32), Digest(bytes(32))
    ).encode()
    record = pairwise_pb2.SignedRecord(
        record=start, shuffler_signature=bytes(64), analyzer_signature=bytes(64)
    )
    hashes = [bytes(32)] * (2 * LIMITS.cohort.bit_length())
    # a complete graph needs no proof; any other has an even number of neighbours
    for count, proof in ((LIMITS.neighbours, []), (LIMITS.neighbours - 1, hashes)):
        started = pairwise_pb2.Started(
            start=record, position=LIMITS.cohort - 1, neighbours=[one] * count, proof=proof
        )
        answer = pairwise_pb2.Answer(
            phase=pairwise_pb2.PHASE_SHARE, wait_ms=10_000, started=started
        )
        reply = pairwise_pb2.ExchangeReply(
            sealed=bytes(answer.ByteSize() + exchange.NONCE_SIZE + exchange.TAG_SIZE)
        )
        assert reply.ByteSize() <= LIMITS.reply_bytes
    assert (
        f"Replies are at most {LIMITS.reply_bytes // 1024} KiB (the largest brings "
        f"{LIMITS.neighbours:,} neighbours)" in PROSE
    )


def test_contents() -> None:
    """Every section is in the list at the top, under its number. Planted: a section without a
    place in the list -> this fails.
    """
    listed = re.findall(
        r"(\d+) [a-zA-Z]",
        PROSE[PROSE.index("Contents:") : PROSE.index(". A client of shuffled tasks")],
    )
    assert (
        listed
        == re.findall(r"^## (\d+)\.", PAGE, re.MULTILINE)
        == [str(number) for number in range(1, len(listed) + 1)]
    )


def test_mqtt() -> None:
    """Topics, sizes, the reply, computed from the page's words. Planted: the nonce after the
    status; another tag -> this fails.
    """
    tag, reply = topics.tag_of(bytes(32)), "0f" * 16
    assert tag == hashlib.sha256(b"shoal/v1/mqtt\x00" + bytes(32)).digest()[:8].hex()
    forms = {"<tag>": tag, "<reply>": reply, "<task id>": "00" * 32}
    printed = [row[0].strip("`") for row in table("topic")]
    for form, part in forms.items():
        printed = [one.replace(form, part) for one in printed]
    assert printed == [
        topics.up_topic(tag, reply),
        topics.down_topic(reply),
        topics.task_topic(TaskId(bytes(32))),
        topics.step_topic(TaskId(bytes(32))),
    ]
    frame, key = bytes(512), b"k" * 32
    digest = hashlib.sha256(frame).digest()
    sent = make_reply(frame, key, Kind.WINDOW_FULL.value, SeededEntropy(1))
    name, nonce, mac = sent[:16], sent[16:32], sent[32:]
    assert name == digest[:16]
    assert (
        mac
        == hmac.digest(
            key, b"shoal/v1/reply\x00" + nonce + bytes([Kind.WINDOW_FULL.value]) + digest, "sha256"
        )[:16]
    )
    for text in (
        f"always {REPLY_SIZE} bytes",
        f"client id of {link._ID_SIZE} random letters and digits",
        f"idle for {LIMITS.connection_idle_s // 60} minutes, and between frames one that is older "
        f"than {LIMITS.connection_age_s // 60}",
        f"multiples of {mqtt_bridge._STEP_S * 1000:g} ms",
        f"at most {LIMITS.bundle_bytes // KIB:,} KiB together",
        f"at most {LIMITS.catalogue_bytes // MIB} MiB in pages of at most "
        f"{directory.PAGE_BYTES // KIB} KiB",
    ):
        assert text in PROSE, text


@for_each("page", ["AGENT", "WIRE", "ACCOUNTING", "THREAT_MODEL"])
def test_the_promise_of_memoized_answers_has_one_wording(page: str) -> None:
    """Planted: "costs epsilon0 once per year" in docs/AGENT.md -> this fails."""
    text = (ROOT / "docs" / f"{page}.md").read_text().replace("\n> ", " ")
    assert PROMISE in " ".join(text.split())
