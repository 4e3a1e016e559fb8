"""Named arrays of a long vector: their text, what is refused, and where they are read from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.codec import decode_task, encode_task
from shoal.domain import Norm, Vector
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.questions.layout import NamedShape, check_layout, named_shape, spans
from tests.cases import for_each
from tests.worlds.tasks import PAIRWISE, PLAN, TASK

LAYOUT = (NamedShape("layer1.weight", (4, 3)), NamedShape("layer1/bias", ()))


@for_each(
    "text, wanted",
    [
        ("w[3]", NamedShape("w", (3,))),
        ("layer1.weight[256,64]", NamedShape("layer1.weight", (256, 64))),
        ("dense/kernel[2, 3,4]", NamedShape("dense/kernel", (2, 3, 4))),
        ("scale[]", NamedShape("scale", ())),
        ("a-b_c.0[10000000]", NamedShape("a-b_c.0", (10_000_000,))),
    ],
)
def test_text_and_array(text: str, wanted: NamedShape) -> None:
    """Planted: a shape read backwards -> fails."""
    assert named_shape(text) == wanted
    assert str(wanted) == text.replace(" ", "")


@for_each(
    "text",
    [
        *("", "w", "w[", "[3]", "w[3]x", "w[-1]", "w[0]", "w[3,]", "w[1.5]", "w[a]", "w[3][4]"),
        *("../w[3]", "/w[3]", "w//v[3]", ".w[3]", "a/../w[3]", "-w[3]", "a\\b[3]", "w\n[3]"),
        *("w w[3]", "w\u202e[3]", f"{'w' * 97}[3]", "w[1,1,1,1,1,1,1,1,1]", "w[10000001]"),
        "w[\u0663]",
    ],
)
def test_what_is_no_array(text: str) -> None:
    """In one line. A name that leads out of the folder into which somebody unpacks a file is none.
    Planted: parts of a name not looked at -> fails.
    """
    with pytest.raises(ShoalError) as caught:
        named_shape(text)
    assert caught.value.kind is Kind.INVALID
    assert "\n" not in caught.value.message


def test_a_layout_holds_all_numbers_once() -> None:
    check_layout((), 5)
    check_layout(LAYOUT, 13)
    assert spans(LAYOUT) == {"layer1.weight": slice(0, 12), "layer1/bias": slice(12, 13)}
    twice = (NamedShape("w", (1,)), NamedShape("W", (1,)))
    many = tuple(NamedShape(f"w{at}", ()) for at in range(LIMITS.arrays + 1))
    for layout, dimension in ((LAYOUT, 12), (LAYOUT, 14), (twice, 2), (many, len(many))):
        with pytest.raises(ShoalError) as caught:
            check_layout(layout, dimension)
        assert caught.value.kind is Kind.INVALID
    check_layout(many[:-1], len(many) - 1)


def task(segment_words: int, **changes: Any) -> Any:
    plan = replace(PLAN, segment_words=segment_words)
    domain = Vector(13, Norm.L2, 10.0, 1_000, layout=LAYOUT)
    return replace(
        PAIRWISE, domain=domain, pairwise=plan, report_size=plan.vector_bytes(13), **changes
    )


def test_it_is_signed_with_the_task() -> None:
    """Planted: left out of the message -> fails."""
    made = task(4)
    again = decode_task(encode_task(made))
    assert again.domain == made.domain
    other = replace(made.domain, layout=tuple(reversed(LAYOUT)))
    assert encode_task(replace(made, domain=other)) != encode_task(made)


def test_only_totals_in_an_array_are_read_by_name() -> None:
    """Planted: no look at segments -> a layout that nobody reads: fails."""
    with pytest.raises(ShoalError) as caught:
        task(0)
    assert "segment_words" in caught.value.message
    with pytest.raises(ShoalError):
        replace(TASK, domain=Vector(13, Norm.L2, 10.0, 1_000, layout=LAYOUT))
