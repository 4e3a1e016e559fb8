"""The half of our test vectors that is about tasks: keys, signed documents, domains, randomizers.
See tools/vectors.py.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from shoal import codec
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.schedules import sign_keys
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId, public_config
from shoal.domain import AnswerRecord, Categories, Domain, Numeric, Places, Words, YesNo
from shoal.ids import KeyId, TaskId
from shoal.mechanisms.registry import create
from shoal.questions import domain_codec
from shoal.questions.record import Attribute, all_pairs
from shoal.task import KeySchedule, MechanismSpec, Task, WindowKeys, WindowPlan

Json = dict[str, Any]
_NEWER = bytes.fromhex("a00601")  # field 100, a number


def fixed(label: str, size: int = 32) -> bytes:
    """Test bytes that anybody can make again: SHA-256("shoal test vector " || label), cut to
    ``size``.
    """
    return hashlib.sha256(b"shoal test vector " + label.encode()).digest()[:size]


def hpke_key(suite: SuiteId, role: str) -> HpkePrivateKey:
    """The key of a role, the same in every run."""
    return HpkePrivateKey.from_raw_secret(suite, fixed(f"{role} key of suite {suite.value}"))


def signing_key(role: str) -> SigningKey:
    """The key of a role, the same in every run."""
    return SigningKey(Ed25519PrivateKey.from_private_bytes(fixed(f"{role} signing key")))


# --- tasks, key schedules, domains ----------------------------------------------------------------


def example_ca() -> bytes:
    """PEM of a certificate of nobody, the same at every run: Ed25519 signatures are deterministic,
    and all else is fixed.
    """
    key = Ed25519PrivateKey.from_private_bytes(fixed("CA signing key"))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Shoal test vectors")])
    first = datetime.fromtimestamp(1_800_000_000, UTC)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), 1, first, first + timedelta(days=365)
    )
    authority = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return authority.sign(key, None).public_bytes(Encoding.PEM)


def example_task() -> Task:
    """The yes/no task that most vectors are about."""
    return Task(
        salt=fixed("salt", 16),
        name="doctor-visit",
        purpose="How many people see a doctor in a year",
        question="Did you see a doctor this year?",
        domain=YesNo(),
        mechanism=MechanismSpec.of("binary_rr", yes_if_yes=3 << 62, yes_if_no=1 << 62),
        windows=WindowPlan(
            start_s=1_800_000_000, length_s=86_400, count=2, grace_s=3_600, skew_s=300
        ),
        min_batch=1_000,
        max_batch=0,
        honest_fraction_ppm=900_000,
        delta=1e-8,
        target_epsilon=0.5,
        key_authority=signing_key("key authority").public,
        shuffler_key=signing_key("shuffler").public,
        analyzer_key=signing_key("analyzer").public,
        shuffler_address="shuffler.example:7443",
        shuffler_ca=example_ca(),
        retention_s=259_200,
        report_size=1,
        messages=1,
        suite=SuiteId.X25519_AES128.value,
    )


def vouched(task_id: bytes, windows: tuple[WindowKeys, ...]) -> KeySchedule:
    """A schedule whose key lists analyzer and shuffler have signed."""
    of_analyzer = sign_keys(
        signing_key("analyzer"), SigningContext.ANALYZER_KEYS, [w.analyzer_key for w in windows]
    )
    of_shuffler = sign_keys(
        signing_key("shuffler"), SigningContext.HOP_KEYS, [w.hop_key for w in windows]
    )
    return KeySchedule(task_id, windows, of_analyzer, of_shuffler)


def documents() -> Json:
    """A signed task and its signed key schedule, as they are handed to a device."""
    task = codec.encode_task(example_task())
    authority, key_authority = signing_key("task authority"), signing_key("key authority")
    windows = tuple(
        WindowKeys(
            window,
            HpkePrivateKey.from_raw_secret(
                SuiteId.X25519_AES128, fixed(f"analyzer key of window {window}")
            ).config.raw,
            hpke_key(SuiteId.X25519_AES128, "hop").config.raw,
        )
        for window in range(2)
    )
    schedule = codec.encode_schedule(vouched(TaskId.of(task).raw, windows))
    signed_task = codec.Signed(task, authority.public, authority.sign(SigningContext.TASK, task))
    signed_schedule = codec.Signed(
        schedule, key_authority.public, key_authority.sign(SigningContext.KEY_SCHEDULE, schedule)
    )
    return {
        "authority": authority.public.hex(),
        "task": task.hex(),
        "task_id": TaskId.of(task).hex,
        "signed_task": codec.encode_signed_task(signed_task).hex(),
        "schedule": schedule.hex(),
        "schedule_hash": hashlib.sha256(schedule).hexdigest(),
        "signed_schedule": codec.encode_signed_schedule(signed_schedule).hex(),
        "analyzer_key_ids": [KeyId.of(w.analyzer_key).hex for w in windows],
        "hop_key_ids": [KeyId.of(w.hop_key).hex for w in windows],
    }


def unvouched(kept: KeySchedule) -> dict[str, KeySchedule]:
    """Schedules with keys that analyzer or shuffler did not sign, as they stand there."""
    return {
        "schedule whose analyzer keys nobody signed": replace(kept, analyzer_signature=b""),
        "schedule whose hop keys nobody signed": replace(kept, hop_signature=b""),
        "schedule with the two signatures exchanged": replace(
            kept, analyzer_signature=kept.hop_signature, hop_signature=kept.analyzer_signature
        ),
        "schedule with the analyzer's keys in another order": replace(
            kept,
            windows=tuple(
                replace(w, analyzer_key=kept.windows[1 - w.window].analyzer_key)
                for w in kept.windows
            ),
        ),
        "schedule with a hop key of the key authority's own": replace(
            kept,
            windows=tuple(
                replace(w, hop_key=hpke_key(SuiteId.X25519_AES128, "stranger's hop").config.raw)
                for w in kept.windows
            ),
        ),
    }


def _signed(
    context: SigningContext, data: bytes, key: SigningKey, claimed: SigningKey | None = None
) -> str:
    envelope = codec.Signed(data, (claimed or key).public, key.sign(context, data))
    encode: Callable[[codec.Signed], bytes] = (
        codec.encode_signed_task
        if context in (SigningContext.TASK, SigningContext.MANIFEST)
        else codec.encode_signed_schedule
    )
    return encode(envelope).hex()


def bad_documents() -> list[Json]:
    """Pairs of documents of which at least one must be refused by a device that trusts
    ``authority`` alone.
    """
    good = documents()
    task, schedule = bytes.fromhex(good["task"]), bytes.fromhex(good["schedule"])
    keep_task, keep_schedule = good["signed_task"], good["signed_schedule"]
    cases = {
        name: (signed_task, keep_schedule, kind)
        for name, (signed_task, kind) in _bad_tasks(task).items()
    } | {
        name: (keep_task, signed_schedule, kind)
        for name, (signed_schedule, kind) in _bad_schedules(task, schedule).items()
    }
    return [
        {
            "name": name,
            "authority": good["authority"],
            "signed_task": signed_task,
            "signed_schedule": signed_schedule,
            "kind": kind,
        }
        for name, (signed_task, signed_schedule, kind) in cases.items()
    ]


def _bad_tasks(task: bytes) -> dict[str, tuple[str, str]]:
    """Signed tasks with the kind of their refusal."""
    authority, stranger = signing_key("task authority"), signing_key("stranger")
    return {
        "task by an authority that is not trusted": (
            _signed(SigningContext.TASK, task, stranger),
            "FORBIDDEN",
        ),
        "task that names a trusted authority, signed by another": (
            _signed(SigningContext.TASK, task, stranger, authority),
            "BAD_SIGNATURE",
        ),
        "task signed as a manifest": (
            _signed(SigningContext.MANIFEST, task, authority),
            "BAD_SIGNATURE",
        ),
        "task without a version": (_signed(SigningContext.TASK, task[2:], authority), "INVALID"),
        "task with a field of a newer version": (
            _signed(SigningContext.TASK, task + _NEWER, authority),
            "INVALID",
        ),
        "task cut": (_signed(SigningContext.TASK, task[:-1], authority), "INVALID"),
    }


def _bad_schedules(task: bytes, schedule: bytes) -> dict[str, tuple[str, str]]:
    """Signed key schedules with the kind of their refusal."""
    authority, key_authority, stranger = (
        signing_key("task authority"),
        signing_key("key authority"),
        signing_key("stranger"),
    )
    kept = codec.decode_schedule(schedule)
    other = codec.encode_schedule(vouched(fixed("other task"), kept.windows))
    short = codec.encode_schedule(vouched(TaskId.of(task).raw, kept.windows[:1]))
    context = SigningContext.KEY_SCHEDULE
    return {
        "schedule with a field of a newer version": (
            _signed(context, schedule + _NEWER, key_authority),
            "INVALID",
        ),
        "schedule by the task's authority": (_signed(context, schedule, authority), "FORBIDDEN"),
        "schedule signed by another": (
            _signed(context, schedule, stranger, key_authority),
            "BAD_SIGNATURE",
        ),
        "schedule of another task": (_signed(context, other, key_authority), "MISMATCH"),
        "schedule with too few windows": (_signed(context, short, key_authority), "MISMATCH"),
        **{
            name: (_signed(context, codec.encode_schedule(one), key_authority), "BAD_SIGNATURE")
            for name, one in unvouched(kept).items()
        },
        "schedule with a key of another suite": (
            _signed(context, _of_another_suite(task, kept), key_authority),
            "MISMATCH",
        ),
    }


def _of_another_suite(task: bytes, kept: KeySchedule) -> bytes:
    windows = tuple(
        WindowKeys(
            each.window,
            each.analyzer_key,
            public_config(SuiteId.X25519_CHACHA20, each.hop_key[6:]),
        )
        for each in kept.windows
    )
    return codec.encode_schedule(KeySchedule(TaskId.of(task).raw, windows))


_FAR: list[Any] = [10**30, "9" * 400, True, "true", 4.999999999999999]
_TEXTS = ("true", "4", "0.1", "1e-7", "1e+21", "-12", "True", "4.0")
# Values of each domain. Where a value falls between two cells none is here: a coin rounds it.
_ATTRIBUTES = (
    Attribute("age", Categories(("young", "old"), (0, 40))),
    Attribute("sex", Categories(("f", "m"))),
    Attribute("health", Categories(("good", "fair", "poor"))),
)
# fmt: off
_DOMAINS: list[tuple[Domain, list[Any]]] = [
    (YesNo(), [
        True, 1, 1.0, "yes", "Yes", " TRUE ", "1", False, 0, "no", "", None, 2, "maybe", "1.0",
        "\u00a0yes",
    ]),
    (Categories(("red", "green")), [
        "red", "green", "blue", "Red", None, " red", "green\t", "\u2003red",
    ]),
    (Categories(_TEXTS), [
        True, "true", "True", 4, 4.0, "4", "4.0", 0.1, 1e-7, "1e-07", 1e21, 1e-5, -12, -12.0, "-12",
        False, 10**30,
    ]),
    (Categories(("0", "1", "2", "3-4", "5-9", "10+"), (0, 1, 2, 3, 5, 10)), [
        0, 1, 2, 3, 4, 5, 9, 10, 10_000, "4", 2.5, -1, "many", None, " 4 ", "+4", "4.5", "1e1",
        "1_0", ".5", "5.", "inf", "\u0664", "\u00a04", *_FAR,
    ]),
    (Categories(("low", "high"), (2**53, 2**53 + 1)), [
        2**53, 2**53 + 1, "9007199254740993", "9007199254740993.0", 2.0**53,
    ]),
    (Numeric(0, 20, 21, clip=True), [
        0, 7, 20, 21, -5, "3", "x", None, " 7 ", "7.0", "7e0", "1e999", "0x7", "-0", True, 10**30,
    ]),
    (Numeric(-1, 1, 3, clip=False), [-1, 0, 1, 1.5, -2, None]),
    (Words(("flu", "caf\u00e9")), [
        "flu", "Flu", " flu ", "caf\u00e9", "cafe\u0301", "no answer", "\U0001f637", "long " * 500,
        7, 7.0, "7", True, "", " ", None,
    ]),
]
_RECORDS: list[tuple[Domain, list[Any]]] = [
    (AnswerRecord(_ATTRIBUTES, all_pairs(3), together=True), [
        '{"age": 41, "sex": "f", "health": "poor"}', ' {"health":"good","age":"39.5"}\n', "{}",
        '{"age": -1, "sex": "F", "health": null}', '{"age": true, "sex": ["f"]}', "[1]", None, 3,
        '{"age": 41, "age": 41}', '{"age": NaN, "sex": "f"}', '{"age": 41, "more": {"age": 1}}',
        '{"sex": "\\u0066", "health": "poor"} x', '{"sex": "\\u0066", "health": "poor"}',
        '{"age": 1e999, "sex": "f"}', '{"age": 01, "sex": "f"}', '{"age": ' + "1" * 400 + "}",
    ]),
    (AnswerRecord(_ATTRIBUTES, ((0, 1, 2), (2,)), together=True), ['{"health": "fair"}', None]),
]
_PLACES: list[tuple[Domain, list[Any]]] = [
    (Places(48_000_000, 11_300_000, 48_300_001, 11_800_000, 7, 3), [
        "48.137, 11.575", " 48.137,11.575\t", "48,11.3", "48.3,11.3", "48.30000099,11.3",
        "48.300001,11.3", "47.9999999,11.5", "48.1,11.8", "48.1,11.799999", "48.1,11.2999999",
        "+48.1,1.15e1", "481e-1,115E-1", "48.1 11.5", "48,1,11,5", "48.1,", "", None, 48, 48.1,
        True,
        "91,11.5", "48.1,191", "nan,11.5", "48.1,inf", ".5,11.5", "48.,11.5", "1e999,11.5",
        "48.042857,11.5", "48.042858,11.5", "48.085714,11.466666", "48.085715,11.466667",
        '{"latitude": 48.137, "longitude": 11.575}', '{"lat": "48.137", "lon": " 11.575 "}',
        '\n{"lon": 11.575, "lat": 4.8137e1, "accuracy": [1, {}]}', '{"lat": 48.1}',
        '{"lat": 48.1, "latitude": 48.1, "lon": 11.5}', '{"lat": 48.1, "longitude": 11.5}',
        '{"lat": true, "lon": 11.5}', '{"lat": NaN, "lon": 11.5}', '{"lat": null, "lon": 11.5}',
        '{"lat": 48.1, "lat": 48.1, "lon": 11.5}', '[48.1, 11.5]',
        '{"lat": 48.300000999999999999999999, "lon": 11.5}', '{"lat": "{}", "lon": 11.5}',
    ]),
    (Places(-1_000_000, -2_000_000, 1_000_000, 2_000_000, 2, 4), [
        "0,0", "-0,-0.0", "-0.0000001,0", "0,-1e-99999", "1e-99999,1e-7", "-1,-2", "1,2",
        "0.0000009,-0.0000010", "-1.0000001,0", "000.5,-00000001.5", "\u0664,0", "-0e5,0e99999",
    ]),
    (Places(-85_000_000, -180_000_000, 85_000_000, 180_000_000, 255, 257), [
        "85,0", "84.9999999,179.9999999", "-85,-180", "-85,180", "-85.0000001,0", "0,0", "90,0",
    ]),
]
# fmt: on


def domains() -> list[Json]:
    """Values and their cells, only where no rounding coin is needed."""
    return _cells(_DOMAINS)


def records() -> list[Json]:
    """The same of records that are answered in all marginals: a cell is the record's number."""
    return _cells(_RECORDS)


def places() -> list[Json]:
    """Values and their cells on maps; no labels, of which there may be too many."""
    entries = _cells(_PLACES)
    for entry in entries:
        del entry["labels"]
    return entries


def _cells(domains: list[tuple[Domain, list[Any]]]) -> list[Json]:
    return [
        {
            "domain": domain_codec.encode_domain(domain)
            .SerializeToString(deterministic=True)
            .hex(),
            "labels": list(domain.labels),
            "cells": [{**_said(value), "cell": str(domain.encode(value))} for value in values],
        }
        for domain, values in domains
    ]


def _said(value: Any) -> Json:
    """A value by its kind: JSON has one kind of number, and readers that lose whole numbers beyond
    2^53.
    """
    if isinstance(value, bool) or value is None:
        return {"value": value}
    if isinstance(value, str):
        return {"text": value}
    return (
        {"integer": str(value)}
        if isinstance(value, int)
        else {"double": struct.pack(">d", value).hex()}
    )


def mechanisms() -> list[Json]:
    """For each mechanism: report bytes per cell, and the integer weight of each report under each
    value.

    Row v, column r: P(report r | value v) = weight / (sum of the row).
    """
    words = 1 << 64
    visits = Categories(("0", "1", "2", "3-4", "5-9", "10+"), (0, 1, 2, 3, 5, 10))
    wide = Categories(tuple(str(i) for i in range(300)))
    entries = []
    for domain, spec in (
        (YesNo(), MechanismSpec.of("binary_rr", yes_if_yes=3 << 62, yes_if_no=1 << 62)),
        (YesNo(), MechanismSpec.of("binary_rr", yes_if_yes=words - 1, yes_if_no=5)),
        (visits, MechanismSpec.of("krr", k=7, uniform=1 << 61)),
        (wide, MechanismSpec.of("krr", k=301, uniform=1)),
        (Numeric(0, 20, 21), MechanismSpec.of("kmean", k=22, uniform=(1 << 63) + 1)),
    ):
        mechanism, k = create(spec, domain), domain.size
        if spec.name == "binary_rr":
            yes = [spec.get("yes_if_no"), spec.get("yes_if_yes")]
            law: dict[str, object] = {"rows": [[str(words - y), str(y)] for y in yes]}
        else:
            uniform = spec.get("uniform")
            law = {"same": str(k * (words - uniform) + uniform), "other": str(uniform)}
        entries.append(
            {
                "domain": domain_codec.encode_domain(domain)
                .SerializeToString(deterministic=True)
                .hex(),
                "name": spec.name,
                "parameters": {name: str(value) for name, value in spec.parameters},
                "report_size": mechanism.report_size,
                "messages": mechanism.messages,
                "weights": law,
                "reports": [
                    cell.to_bytes(mechanism.report_size, "big").hex() for cell in (0, 1, k - 1)
                ],
            }
        )
    return entries
