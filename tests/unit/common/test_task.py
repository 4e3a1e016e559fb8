"""A task that is wrong can't be made: each bad field has its one line, and the boundaries are
exact.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import pytest

from shoal.domain import AnswerRecord, Categories, Norm, Numeric, Vector, YesNo
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.questions.layout import NamedShape
from shoal.secagg import Mode
from shoal.task import (
    Admission,
    Aggregator,
    KeySchedule,
    MechanismSpec,
    WindowKeys,
    honest,
    split_address,
)
from tests.cases import for_each
from tests.worlds.tasks import (
    DOMAINS,
    PAIRWISE,
    PLAN,
    TASK,
    WINDOWS,
    pairwise,
    pairwise_plan,
    task,
    window_plan,
)

WIDE = "x" * 2_001
BAD: list[tuple[dict[str, Any], str]] = [
    ({"salt": b""}, "salt"),
    ({"salt": bytes(15)}, "salt"),
    ({"salt": bytes(17)}, "salt"),
    ({"name": ""}, "name"),
    ({"name": "Visits"}, "name"),
    ({"name": "-visits"}, "name"),
    ({"name": "visits\n"}, "name"),
    ({"name": "x" * 65}, "name"),
    ({"name": "../visits"}, "name"),
    ({"purpose": ""}, "purpose"),
    ({"purpose": "  \t"}, "purpose"),
    ({"purpose": WIDE}, "purpose"),
    ({"question": ""}, "question"),
    ({"question": WIDE}, "question"),
    ({"question": "Do you smoke?\x1b[2K\rDo you swim?"}, "control characters"),
    ({"purpose": "for \u202eyou"}, "control characters"),
    ({"purpose": "line one\nline two"}, "control characters"),
    ({"domain": Categories(("a\x07", "b"))}, "control characters"),
    ({"domain": Numeric(0, 1, 2, unit="\x9b31m")}, "control characters"),
    ({"min_batch": 1}, "min_batch"),
    ({"min_batch": 0}, "min_batch"),
    ({"min_batch": LIMITS.batch_rows + 1}, "min_batch"),
    ({"max_batch": 999}, "max_batch"),
    ({"max_batch": -1}, "max_batch"),
    ({"max_batch": LIMITS.batch_rows + 1}, "max_batch"),
    ({"honest_fraction_ppm": 0}, "honest_fraction"),
    ({"honest_fraction_ppm": 1_000_001}, "honest_fraction"),
    ({"delta": 0.0}, "delta"),
    ({"delta": 1.0}, "delta"),
    ({"delta": math.nan}, "delta"),
    ({"target_epsilon": 0.0}, "target_epsilon"),
    ({"target_epsilon": -0.5}, "target_epsilon"),
    ({"target_epsilon": math.inf}, "target_epsilon"),
    ({"target_epsilon": math.nan}, "target_epsilon"),
    ({"key_authority": bytes(31)}, "key_authority"),
    ({"shuffler_key": b""}, "shuffler_key"),
    ({"analyzer_key": bytes(33)}, "analyzer_key"),
    ({"shuffler_address": "shuffler.example"}, "shuffler_address"),
    ({"shuffler_address": "shuffler.example:0"}, "shuffler_address"),
    ({"shuffler_address": "unix:/run/shoal.sock:1"}, "shuffler_address"),
    ({"shuffler_ca": bytes(64 * 1024 + 1)}, "shuffler_ca"),
    ({"suite": 0}, "suite"),
    ({"suite": 4}, "suite"),
    ({"reports_per_device": 0}, "reports_per_device"),
    ({"reports_per_device": 2}, "reports_per_device"),
    ({"admission": Admission.ENROLLED}, "admission"),
    ({"admission": Admission.TOKEN}, "admission"),
    ({"aggregator": Aggregator.PAIRWISE}, "aggregator"),
    ({"report_size": 0}, "report_size"),
    ({"report_size": LIMITS.report_bytes + 1}, "report_size"),
    ({"messages": 0}, "messages"),
    ({"messages": LIMITS.messages + 1}, "messages"),
    ({"retention_s": 7_799}, "retention_s"),
]


@for_each(
    "changes, named", BAD, ids=lambda part: next(iter(part)) if isinstance(part, dict) else None
)
def test_each_bad_field_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    """Planted: removing any one ``_require`` of Task -> its line of the table fails."""
    with pytest.raises(ShoalError) as caught:
        task(**changes)
    assert caught.value.kind is Kind.INVALID
    assert named in caught.value.message
    assert "\n" not in caught.value.message


GOOD: list[dict[str, Any]] = [
    {"name": "a"},
    {"name": "0" * 64},
    {"purpose": "Für die Stadt: Ärzte, 医師, 👩‍⚕️"},
    {"purpose": "x" * 2_000},
    {"min_batch": 2},
    {"max_batch": 1_000},
    {"max_batch": LIMITS.batch_rows},
    {"honest_fraction_ppm": 1},
    {"honest_fraction_ppm": 1_000_000},
    {"delta": 5e-324},
    {"shuffler_address": "127.0.0.1:1"},
    {"shuffler_address": "[::1]:65535"},
    {"suite": 3},
    {"report_size": LIMITS.report_bytes},
    {"messages": LIMITS.messages},
    {"retention_s": 7_800},
]


@for_each("changes", GOOD, ids=lambda part: next(iter(part)))
def test_the_last_good_value_is_taken(changes: dict[str, Any]) -> None:
    """The other side of each boundary: a law that refuses too much loses a user."""
    made = task(**changes)
    assert all(getattr(made, name) == value for name, value in changes.items())


@for_each(
    "changes",
    [
        {"start_s": -1},
        {"start_s": 1 << 40},
        {"length_s": 0},
        {"length_s": 10 * 366 * 86_400 + 1},
        {"count": 0},
        {"count": LIMITS.windows + 1},
        {"grace_s": -1},
        {"grace_s": 366 * 86_400 + 1},
        {"skew_s": -1},
        {"skew_s": 3_601},
    ],
)
def test_bad_windows(changes: dict[str, int]) -> None:
    with pytest.raises(ShoalError) as caught:
        window_plan(**changes)
    assert caught.value.kind is Kind.INVALID


def test_window_arithmetic() -> None:
    """Windows are half-open: the first second of window 1 is not in window 0. Planted: round for
    floor in ``current`` -> this fails.
    """
    start, length = WINDOWS.start_s, WINDOWS.length_s
    assert WINDOWS.start_of(2) == start + 2 * length
    assert WINDOWS.end_of(2) == WINDOWS.start_of(3)
    assert WINDOWS.deadline_of(2) == WINDOWS.end_of(2) + 600
    assert WINDOWS.current(start) == 0
    assert WINDOWS.current(start + length - 0.001) == 0
    assert WINDOWS.current(start + length) == 1
    assert WINDOWS.current(start - 0.001) is None
    assert WINDOWS.current(start + 24 * length - 1) == 23
    assert WINDOWS.current(start + 24 * length) is None


def test_the_certified_n_is_floored_in_integers() -> None:
    """floor(0.29 * 100) is 29 in exact arithmetic and 28 in floats. Planted: int(fraction * n) with
    a float -> this fails.
    """
    assert int(0.29 * 100) == 28
    assert honest(100, 290_000) == 29
    assert honest(999, 999_999) == 998
    assert task(min_batch=1_001, honest_fraction_ppm=900_000).n_certified == 900
    assert TASK.honest_fraction == Fraction(9, 10)


def test_mechanism_spec() -> None:
    spec = MechanismSpec.of("krr", same=7, k=3, other=2)
    assert spec.parameters == (("k", 3), ("other", 2), ("same", 7))
    assert spec.get("same") == 7
    with pytest.raises(ShoalError, match="lacks the parameter"):
        spec.get("missing")


@for_each(
    "name, parameters",
    [
        ("", ()),
        ("KRR", ()),
        ("krr;", ()),
        ("x" * 65, ()),
        ("krr", (("b", 1), ("a", 1))),
        ("krr", (("a", 1), ("a", 2))),
        ("krr", (("a", -1),)),
        ("krr", (("a", 1 << 64),)),
    ],
)
def test_bad_mechanism_specs(name: str, parameters: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(ShoalError) as caught:
        MechanismSpec(name, parameters)
    assert caught.value.kind is Kind.INVALID


@for_each(
    "address, parts",
    [
        ("127.0.0.1:7443", ("127.0.0.1", 7443)),
        ("localhost:0", ("localhost", 0)),
        ("shuffler_1.internal:65535", ("shuffler_1.internal", 65_535)),
        ("[::1]:7443", ("[::1]", 7443)),
        ("[fe80::1]:1", ("[fe80::1]", 1)),
    ],
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@for_each(
    "address",
    [
        "",
        ":",
        "host",
        "host:",
        ":1",
        "host:65536",
        "host:-1",
        "host:+1",
        "host: 1",
        "host:1 ",
        "ho st:1",
        "host:1\n",
        "host:٣",
        "host:1e3",
        "::1:7443",
        "[::1]",
        "[::1:7443",
        "dns:///host:1",
        "unix:/run/x:1",
        "ipv4:10.0.0.1:1",
        "host/path:1",
        "a@b:1",
        "x" * 300 + ":1",
    ],
)
def test_anything_else_is_no_address(address: str) -> None:
    """gRPC would take schemes, socket files and resolver plug-ins: a task must not choose those.
    Planted: no host check -> this fails.
    """
    assert split_address(address) is None


def test_no_key_serves_both_roles() -> None:
    """Not even in different windows. Planted: comparing keys within a window only -> this fails."""
    for pairs in ([(b"k", b"k")], [(b"a", b"h"), (b"h", b"i")]):
        with pytest.raises(ShoalError, match="one key to shuffler and analyzer") as caught:
            KeySchedule(
                bytes(32),
                tuple(WindowKeys(w, analyzer, hop) for w, (analyzer, hop) in enumerate(pairs)),
            )
        assert caught.value.kind is Kind.INVALID


def test_key_schedules_list_every_window_once() -> None:
    keys = tuple(WindowKeys(w, b"a", b"h") for w in range(3))
    assert KeySchedule(bytes(32), keys).windows == keys
    for windows in ((), keys[1:], (keys[0], keys[0]), (keys[1], keys[0]), (keys[0], keys[2])):
        with pytest.raises(ShoalError) as caught:
            KeySchedule(bytes(32), windows)
        assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError, match="32-byte"):
        KeySchedule(bytes(31), keys)


def test_a_task_never_changes() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TASK.min_batch = 2  # type: ignore[misc]  # that is the point
    assert hash(TASK) == hash(task())


# --- tasks that are summed ------------------------------------------------------------------------

HUGE = Vector(LIMITS.vector_words, Norm.L2, 1.0, 1_000)
BAD_SUMS: list[tuple[dict[str, Any], str]] = [
    ({"pairwise": None}, "settings of its rounds"),
    ({"domain": YesNo()}, "vector domain"),
    ({"aggregator": Aggregator.SHUFFLED}, "pairwise alone"),
    ({"aggregator": Aggregator.SHUFFLED, "pairwise": None}, "aggregator pairwise, or randomized"),
    ({"aggregator": Aggregator.SHUFFLED, "domain": YesNo()}, "pairwise alone"),
    ({"admission": Admission.OPEN, "enrolment_key": b""}, "admission enrolled"),
    ({"admission": Admission.OPEN}, "enrolment_key"),
    ({"enrolment_key": b""}, "enrolment_key"),
    ({"enrolment_key": bytes(31)}, "enrolment_key"),
    ({"report_size": PAIRWISE.report_size + 1}, f"{PAIRWISE.report_size} bytes"),
    ({"report_size": 12}, f"{PAIRWISE.report_size} bytes"),
    ({"messages": 2}, "one per report"),
    ({"max_batch": 1_000}, "max_batch must be 0"),
    ({"min_batch": 79}, "min_batch is at least survivors_min"),
    ({"windows": window_plan(length_s=200, grace_s=129, skew_s=0)}, "330 seconds"),
    ({"domain": Vector(3, Norm.L2, 10.0, 1_000, ("a", "b\x1b", "c"))}, "control characters"),
    ({"domain": Vector(3, Norm.L2, 10.0, 1_000, unit="\u202e")}, "control characters"),
    (
        {
            "domain": Vector(LIMITS.whole_words + 1, Norm.L2, 1.0, 1_000),
            "report_size": PLAN.vector_bytes(LIMITS.whole_words + 1),
        },
        "segment_words",
    ),
    ({"pairwise": dataclasses.replace(PLAN, segment_words=2)}, "leave names out"),
    (
        {
            "domain": Vector(LIMITS.whole_words + 1, Norm.L2, 1.0, 1_000),
            "pairwise": dataclasses.replace(PLAN, mode=Mode.HELPER),
            "report_size": PLAN.vector_bytes(LIMITS.whole_words + 1),
        },
        "take mode default or strict, or send fewer",
    ),
    (
        {
            "domain": Vector(3, Norm.L2, 1.0, 1_000, layout=(NamedShape("a", (3,)),)),
            "pairwise": dataclasses.replace(PLAN, mode=Mode.HELPER),
        },
        "take mode default or strict, or leave layout out",
    ),
    ({"domain": Vector(3, Norm.L2, 1.0, 1_000, layout=(NamedShape("a", (3,)),))}, "or leave lay"),
]


@for_each(
    "changes, named",
    BAD_SUMS,
    ids=lambda part: next(iter(part)) if isinstance(part, dict) else None,
)
def test_each_bad_field_of_a_sum_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    """Planted: removing any one ``_require`` of ``_check_aggregator``, or the names from the texts
    that are shown -> its line fails.
    """
    with pytest.raises(ShoalError) as caught:
        pairwise(**changes)
    assert caught.value.kind is Kind.INVALID
    assert named in caught.value.message
    assert "\n" not in caught.value.message


def test_the_last_good_sums_are_taken() -> None:
    """A round that just fits its window, the smallest min_batch, the widest vector that fits a
    report.
    """
    pairwise(windows=window_plan(length_s=200, grace_s=130, skew_s=0))
    pairwise(min_batch=80)
    for dimension in (1, LIMITS.whole_words):
        size = PLAN.vector_bytes(dimension)
        assert (
            pairwise(domain=Vector(dimension, Norm.L1, 1.0, 1_000), report_size=size).report_size
            == size
        )
    widest = dataclasses.replace(PLAN, word_bits=64, segment_words=LIMITS.segment_words)
    assert (
        pairwise(
            domain=HUGE, pairwise=widest, report_size=widest.vector_bytes(HUGE.dimension)
        ).domain.size
        == LIMITS.vector_words
    )


def test_settings_of_rounds_change_the_task() -> None:
    """Every setting is part of equality, and so of what is remembered by task. Planted:
    ``compare=False`` on a field -> this fails.
    """
    others = [
        pairwise_plan(**{name: value})
        for name, value in {
            "mode": PLAN.mode.__class__(2),
            "cohort_min": 101,
            "cohort_max": 121,
            "survivors_min": 79,
            "dropout_ppm": 1,
            "word_bits": 64,
            "join_s": 31,
            "share_s": 31,
            "mask_s": 31,
            "unmask_s": 31,
        }.items()
    ]
    assert len({PAIRWISE, *others}) == 11


def test_a_record_is_never_memoized() -> None:
    """In one marginal or in all: the first is drawn anew in every window, so another cell would be
    randomized. Planted: the check taken out -> fails.
    """
    for domain in DOMAINS[-2:]:
        assert isinstance(domain, AnswerRecord)
        task(domain=domain)
        with pytest.raises(ShoalError, match="drawn anew") as refused:
            task(domain=domain, memoized=True)
        assert refused.value.kind is Kind.INVALID
