"""Bytes to objects and back: what a peer sends gives an object or one typed error, whatever it is,
and never anything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import codec
from shoal.codec import Manifest, Signed
from shoal.domain import Domain, Norm, Vector
from shoal.entropy import SeededEntropy, uniform_below
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, KeyId, TaskId
from shoal.limits import LIMITS
from shoal.protos import delivery_pb2, keys_pb2, task_pb2
from shoal.secagg import Mode, PairwisePlan
from shoal.task import Admission, KeySchedule, MechanismSpec, Task, WindowKeys
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.tasks import DOMAINS, PAIRWISE, TASK, pairwise, task

SCHEDULE = KeySchedule(
    bytes(range(32)), tuple(WindowKeys(w, bytes([w]) * 38, b"hop" * 12) for w in range(4))
)
MANIFEST = Manifest(
    TaskId(bytes(32)),
    3,
    20_190,
    80,
    KeyId(bytes(8)),
    KeyId(bytes(8)),
    Digest(bytes(32)),
    Digest(bytes([7]) * 32),
)
SIGNED = Signed(b"data", bytes(32), bytes(64))
DECODERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "task": (codec.decode_task, codec.encode_task(TASK)),
    "pairwise task": (codec.decode_task, codec.encode_task(PAIRWISE)),
    "schedule": (codec.decode_schedule, codec.encode_schedule(SCHEDULE)),
    "manifest": (codec.decode_manifest, codec.encode_manifest(MANIFEST)),
    "signed task": (codec.decode_signed_task, codec.encode_signed_task(SIGNED)),
    "signed schedule": (codec.decode_signed_schedule, codec.encode_signed_schedule(SIGNED)),
}
ALLOWED = {Kind.INVALID, Kind.OVERSIZE}


def decode(name: str, data: bytes) -> object | None:
    """What the decoder makes of it; None for a refusal of a kind that a peer's bytes may cause."""
    try:
        return DECODERS[name][0](data)
    except ShoalError as error:
        refused = error
    assert refused.kind in ALLOWED, refused.kind
    assert "\n" not in refused.message
    return None


@for_each("domain", DOMAINS, ids=lambda d: type(d).__name__)
def test_tasks_round_trip(domain: Domain) -> None:
    """Every field, of every domain. Planted: leaving max_batch out of encode_task -> this fails."""
    one = task(
        domain=domain,
        mechanism=MechanismSpec.of("krr", k=3, other=1, same=(1 << 64) - 1),
        max_batch=5_000,
        delta=1e-300,
        suite=3,
        messages=2,
        report_size=9,
    )
    data = codec.encode_task(one)
    assert codec.decode_task(data) == one
    assert codec.encode_task(codec.decode_task(data)) == data


@for_each("mode", Mode)
@for_each("norm", Norm)
def test_tasks_of_sums_round_trip(mode: Mode, norm: Norm) -> None:
    """Every field of domain and rounds has a value of its own here. Planted: two of the seconds
    exchanged in decode_pairwise -> fails.
    """
    plan = PairwisePlan(mode, 103, 121, 87, 150_001, 64, 31, 62, 123, 64)
    domain = Vector(2, norm, 1 / 3, (1 << 48) - 1, ("first", "Größe"), "m")
    one = pairwise(
        domain=domain,
        pairwise=plan,
        report_size=plan.vector_bytes(2),
        enrolment_key=bytes(range(32)),
    )
    data = codec.encode_task(one)
    made = codec.decode_task(data)
    assert made == one
    assert made.pairwise == plan
    assert made.domain == domain
    assert codec.encode_task(made) == data


def test_ids_tell_settings_of_rounds_apart() -> None:
    """The id is the hash of the bytes: no two tasks that differ share one. Planted: dropout left
    out of encode_pairwise -> fails.
    """
    plan = PAIRWISE.pairwise
    assert plan is not None
    plans = [
        replace(plan, **{f.name: getattr(plan, f.name) + 1})
        for f in fields(plan)
        if f.name not in {"mode", "word_bits", "segment_words"}
    ]
    plans += [replace(plan, mode=Mode.STRICT)]
    ids = {TaskId.of(codec.encode_task(pairwise(pairwise=one))) for one in [plan, *plans]}
    assert len(ids) == 10
    nameless = replace(PAIRWISE, domain=Vector(3, Norm.L2, 10.0, 1_000))
    made = [
        codec.decode_task(codec.encode_task(replace(nameless, pairwise=one)))
        for one in (plan, replace(plan, segment_words=2), replace(plan, segment_words=3))
    ]
    assert len({TaskId.of(codec.encode_task(one)) for one in made}) == 3
    assert [one.pairwise.segment_words for one in made if one.pairwise] == [0, 2, 3]
    enrolled = task(admission=Admission.ENROLLED, enrolment_key=bytes([9]) * 32)
    other = task(admission=Admission.ENROLLED, enrolment_key=bytes([8]) * 32)
    assert codec.decode_task(codec.encode_task(enrolled)) == enrolled
    assert codec.encode_task(enrolled) != codec.encode_task(other)


def test_every_field_of_the_wire_is_carried() -> None:
    """A field added to the .proto and forgotten in the codec would be signed and ignored."""
    names = {field.name for field in task_pb2.Task.DESCRIPTOR.fields}
    ours = set(Task.__dataclass_fields__) | {"version"}
    assert names == ours
    assert {f.name for f in task_pb2.Pairwise.DESCRIPTOR.fields} == {
        f.name for f in fields(PairwisePlan)
    }
    assert {f.name for f in task_pb2.Vector.DESCRIPTOR.fields} == {f.name for f in fields(Vector)}
    assert {f.name for f in delivery_pb2.Manifest.DESCRIPTOR.fields} == set(
        Manifest.__dataclass_fields__
    ) | {"version"}
    assert {f.name for f in keys_pb2.KeySchedule.DESCRIPTOR.fields} == set(
        KeySchedule.__dataclass_fields__
    ) | {"version"}


def test_the_others_round_trip() -> None:
    assert codec.decode_schedule(codec.encode_schedule(SCHEDULE)) == SCHEDULE
    assert codec.decode_manifest(codec.encode_manifest(MANIFEST)) == MANIFEST
    assert codec.decode_signed_task(codec.encode_signed_task(SIGNED)) == SIGNED
    assert codec.decode_signed_schedule(codec.encode_signed_schedule(SIGNED)) == SIGNED


@for_each("name", DECODERS)
@given(data=st.binary(max_size=512))
def test_any_bytes(name: str, data: bytes) -> None:
    decode(name, data)


@for_each("name", DECODERS)
def test_mutations_of_valid_bytes(name: str) -> None:
    """Flip, cut, double and splice: near misses reach further than noise. Planted: letting
    DecodeError pass -> this fails.
    """
    valid = DECODERS[name][1]
    entropy = SeededEntropy(f"mutations of {name}")
    refused = 0
    for _ in range(size(3_000, 300_000)):
        data = bytearray(valid)
        for _ in range(1 + uniform_below(4, entropy)):
            where = uniform_below(len(data), entropy) if data else 0
            match uniform_below(5, entropy):
                case 0 if data:
                    data[where] ^= 1 << uniform_below(8, entropy)
                case 1:
                    del data[where:]
                case 2:
                    data[where:where] = entropy.bytes(1 + uniform_below(9, entropy))
                case 3:
                    other = uniform_below(len(valid), entropy)
                    data[where : where + 8] = valid[other : other + 8]
                case _:
                    data += data[where:]
        refused += decode(name, bytes(data)) is None
    assert refused > 0


@pytest.mark.parametrize("name", ["task", "pairwise task"])
def test_no_prefix_of_a_task_is_a_task(name: str) -> None:
    """Every field of the message is needed, so a torn file is seen."""
    for cut in range(len(DECODERS[name][1])):
        assert decode("task", DECODERS[name][1][:cut]) is None, cut


def wire_task(one: Task = TASK) -> task_pb2.Task:
    message = task_pb2.Task()
    message.ParseFromString(codec.encode_task(one))
    return message


def refusal(message: task_pb2.Task) -> str:
    with pytest.raises(ShoalError) as caught:
        codec.decode_task(message.SerializeToString())
    assert caught.value.kind is Kind.INVALID
    return caught.value.message


def test_versions() -> None:
    """An unknown version is refused by number, never read as the known one."""
    for version in (0, 2, 2**32 - 1):
        message = wire_task()
        message.version = version
        assert f"version {version}" in refusal(message)


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
def test_versions_of_the_others(version: int) -> None:
    """Planted: ``_version`` left out of ``decode_schedule``, and of ``decode_manifest`` -> its line
    fails.
    """
    schedule = keys_pb2.KeySchedule.FromString(codec.encode_schedule(SCHEDULE))
    manifest = delivery_pb2.Manifest.FromString(codec.encode_manifest(MANIFEST))
    schedule.version = manifest.version = version
    with pytest.raises(ShoalError, match=f"key schedule: version {version} ") as caught:
        codec.decode_schedule(schedule.SerializeToString())
    assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError, match=f"manifest: version {version} ") as caught:
        codec.decode_manifest(manifest.SerializeToString())
    assert caught.value.kind is Kind.INVALID


def test_unknown_enumerations_and_domains() -> None:
    for number in (0, 4, 99):
        message = wire_task()
        message.admission = task_pb2.Admission.ValueType(number)
        assert "admission" in refusal(message)
    message = wire_task()
    message.aggregator = task_pb2.Aggregator.ValueType(0)
    assert "aggregator" in refusal(message)
    message = wire_task()
    message.ClearField("domain")
    assert "domain" in refusal(message)


def test_unknown_norms_and_modes() -> None:
    """Of a newer version, or none: refused, never taken for a known one. Planted: ``default`` for
    an unknown number -> this fails.
    """
    for number in (0, 4, -1):
        message = wire_task(PAIRWISE)
        message.domain.vector.norm = task_pb2.Norm.ValueType(number)
        assert "norm" in refusal(message)
        message = wire_task(PAIRWISE)
        message.pairwise.mode = task_pb2.PairwiseMode.ValueType(number)
        assert "mode" in refusal(message)
    message = wire_task(PAIRWISE)
    message.ClearField("pairwise")
    assert "settings of its rounds" in refusal(message)
    message = wire_task()
    # a shuffled task with rounds is neither
    message.pairwise.CopyFrom(wire_task(PAIRWISE).pairwise)
    assert "pairwise alone" in refusal(message)


def test_vectors_with_clips_that_are_none() -> None:
    for value in (math.nan, math.inf, -math.inf, 0.0, -1.0):
        message = wire_task(PAIRWISE)
        message.domain.vector.clip = value
        assert "clip" in refusal(message)


@for_each("value", [math.nan, math.inf, -math.inf, -0.0])
@for_each("field", ["delta", "target_epsilon"])
def test_numbers_that_are_none(field: str, value: float) -> None:
    message = wire_task()
    setattr(message, field, value)
    assert refusal(message)


@for_each(
    "low, high",
    [(math.nan, 1.0), (0.0, math.nan), (-math.inf, 1.0), (0.0, math.inf), (1.0, 1.0), (2.0, 1.0)],
)
def test_numeric_domains_that_are_none(low: float, high: float) -> None:
    message = wire_task()
    message.domain.numeric.CopyFrom(task_pb2.Numeric(low=low, high=high, levels=5))
    assert "numeric domain" in refusal(message)


def test_text_that_is_not_utf8() -> None:
    """proto3 strings are UTF-8; the parser refuses, and we say INVALID."""
    data = codec.encode_task(TASK).replace(b"Did you see", b"Did\xff\xfeyou s")
    with pytest.raises(ShoalError) as caught:
        codec.decode_task(data)
    assert caught.value.kind is Kind.INVALID


def test_oversize_is_refused_before_parsing() -> None:
    """A length, not a parse: megabytes of nested messages cost nothing. Planted: parsing first ->
    INVALID instead, and this fails.
    """
    for name, most in (
        ("task", LIMITS.task_bytes),
        ("schedule", LIMITS.schedule_bytes),
        ("signed task", LIMITS.task_bytes + 1024),
        ("signed schedule", LIMITS.schedule_bytes + 1024),
    ):
        with pytest.raises(ShoalError) as caught:
            DECODERS[name][0](b"\xff" * (most + 1))
        assert caught.value.kind is Kind.OVERSIZE
        assert str(most) in caught.value.message


def test_deep_nesting_is_no_crash() -> None:
    """Groups nested 100,000 deep (wire type 3): the parser's own limit answers."""
    assert decode("task", b"\x33" * 100_000) is None


NEWER = b"\xfa\x3f\x03new"  # field 1023, three bytes


def nested(outer: int, inner: bytes) -> bytes:
    """A part of a message, as field ``outer`` below 16, with one field more than this version
    knows.
    """
    return bytes([outer << 3 | 2, len(inner) + len(NEWER)]) + inner + NEWER


@for_each(
    "name, more",
    [
        ("task", NEWER),
        ("task", b"\x4a\x01x"),  # min_batch as bytes: another type is another field
        ("task", nested(6, b"\x0a" + bytes([len(NEWER)]) + NEWER)),  # in Task.domain.yes_no
        ("task", nested(7, b"")),
        ("task", nested(8, b"")),
        ("schedule", NEWER),
        ("schedule", nested(3, b"\x08\x04\x12\x01a\x1a\x01b")),  # in a fifth window
    ],
)
def test_fields_of_a_newer_version_are_refused(name: str, more: bytes) -> None:
    """At any depth: an authority's newer task is not half obeyed. Planted: _known() left out, or
    looking at the top alone -> this fails.
    """
    decoder, valid = DECODERS[name]
    with pytest.raises(ShoalError, match="made by a newer version") as caught:
        decoder(valid + more)
    assert caught.value.kind is Kind.INVALID


@for_each(
    "field, value",
    [
        ("rows", 0),
        ("rows", LIMITS.batch_rows + 1),
        ("row_size", 0),
        ("row_size", LIMITS.report_bytes + 2049),
        ("window", LIMITS.windows),
        ("task_id", bytes(31)),
        ("analyzer_key_id", b""),
        ("hop_key_id", bytes(9)),
        ("schedule_hash", bytes(16)),
        ("rows_hash", b""),
        ("version", 2),
    ],
)
def test_bad_manifests(field: str, value: object) -> None:
    message = delivery_pb2.Manifest()
    message.ParseFromString(codec.encode_manifest(MANIFEST))
    setattr(message, field, value)
    with pytest.raises(ShoalError) as caught:
        codec.decode_manifest(message.SerializeToString())
    assert caught.value.kind is Kind.INVALID
