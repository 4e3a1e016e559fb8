"""The ledger's form: one byte form per entry, and a chain that shows every change."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from itertools import permutations

import pytest

from shoal.clients.memory.ledger import (
    EMPTY,
    INFINITE,
    Head,
    LedgerEntry,
    LedgerEvent,
    Stored,
    chained,
    check,
)
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from tests.cases import for_each

TASK = TaskId(bytes(range(32)))


def entry(number: int = 0, **details: str | int | float | bool | None) -> LedgerEntry:
    return LedgerEntry(LedgerEvent.REPORTED, 1_800_000_000.25, TASK, "visits", number, details)


def chain(count: int) -> list[Stored]:
    rows, before = [], EMPTY.digest
    for number in range(1, count + 1):
        body = entry(number, source="given").body()
        before = chained(before, body)
        rows.append(Stored(number, body, before))
    return rows


def first_bad(rows: list[Stored], head: Head | None = None) -> int:
    with pytest.raises(ShoalError) as caught:
        check(rows, head)
    assert caught.value.kind is Kind.MISMATCH
    assert "\n" not in caught.value.message
    return int(caught.value.message.split("entry ")[1].split()[0])


def test_the_bytes_of_an_entry() -> None:
    """Written out. Planted: insertion order or spaces -> other bytes, and old ledgers don't verify
    any more.
    """
    made = entry(3, b=True, a=0.1, c=None, d=INFINITE, e="\u00e9\u2028", f=7)
    assert made.body() == (
        b'{"at_s":1800000000.25,"details":{"a":0.1,"b":true,"c":null,"d":"infinite","e":"\\u00e9\\u2028","f":7},"event":"reported",'
        b'"task":"visits","task_id":"' + TASK.hex.encode() + b'","window":3}'
    )
    assert LedgerEntry.parse(made.body()) == made
    about_nothing = LedgerEntry(LedgerEvent.PROBLEM, 5)
    assert (
        about_nothing.body()
        == b'{"at_s":5,"details":{},"event":"problem","task":"","task_id":null,"window":null}'
    )
    assert LedgerEntry.parse(about_nothing.body()) == about_nothing
    assert made.to_json() == json.loads(made.body())


def test_the_chain_is_the_stated_one() -> None:
    """Recomputed from the formula in the module's text alone."""
    rows = chain(3)
    before = bytes(32)
    for row in rows:
        before = hashlib.sha256(b"shoal/v1/ledger" + b"\x00" + before + row.body).digest()
        assert row.digest == before
    assert check(rows) == Head(3, before)
    assert check([]) == EMPTY


@for_each("bad", [math.nan, math.inf, -math.inf, [1], {"a": 1}, b"x", 1 << 20_000], ids=type)
def test_what_has_no_canonical_form_is_refused(bad: object) -> None:
    """Planted: json's own NaN and Infinity -> accepted here, and no other reader takes them."""
    with pytest.raises(ShoalError) as caught:
        entry(detail=bad).body()  # type: ignore[arg-type]
    assert caught.value.kind is Kind.INVALID
    for at_s in (math.nan, math.inf, True, "now"):
        with pytest.raises(ShoalError):
            replace(entry(), at_s=at_s)  # type: ignore[arg-type]


def test_an_entry_that_is_too_long_is_refused() -> None:
    with pytest.raises(ShoalError) as caught:
        entry(text="x" * (2 << 20)).body()
    assert caught.value.kind is Kind.INVALID


def test_details_do_not_change_afterwards() -> None:
    details: dict[str, str | int | float | bool | None] = {"a": 1}
    made = LedgerEntry(LedgerEvent.SEEN, 1, details=details)
    details["a"] = 2
    assert made.details == {"a": 1}
    with pytest.raises(TypeError):
        made.details["a"] = 2  # type: ignore[index]


@for_each(
    "body",
    [
        b"",
        b"{}",
        b"null",
        b"[" * 100_000,
        entry().body() + b" ",
        entry().body().replace(b'"window":0', b'"window": 0'),
        entry().body().replace(b"reported", b"imagined"),
        entry().body().replace(b"1800000000.25", b"NaN"),
        entry().body().replace(b"1800000000.25", b"1.80000000025e9"),
        entry().body().replace(TASK.hex.encode(), TASK.hex.upper().encode()),
        entry().body().replace(b'"details":{}', b'"details":{},"more":1'),
        b"\xff",
    ],
)
def test_bodies_that_are_no_entries(body: bytes) -> None:
    with pytest.raises(ShoalError) as caught:
        LedgerEntry.parse(body)
    assert caught.value.kind is Kind.INVALID


def test_every_change_of_a_chain_is_found_where_it_begins() -> None:
    """Every bit of every row, every order, every gap. Planted: the hash without the one before ->
    orders and gaps pass.
    """
    rows = chain(4)
    for at, row in enumerate(rows):
        for place in range(len(row.body)):
            body = bytearray(row.body)
            body[place] ^= 1
            assert (
                first_bad([*rows[:at], replace(row, body=bytes(body)), *rows[at + 1 :]]) == at + 1
            )
        for place in range(32):
            digest = bytearray(row.digest)
            digest[place] ^= 128
            assert (
                first_bad([*rows[:at], replace(row, digest=bytes(digest)), *rows[at + 1 :]])
                == at + 1
            )
    for order in permutations(range(4)):
        if order != (0, 1, 2, 3):
            renumbered = [replace(rows[old], number=new) for new, old in enumerate(order, 1)]
            wrong = next(at for at, old in enumerate(order, 1) if old != at - 1)
            assert first_bad(renumbered) == wrong
            assert first_bad([rows[old] for old in order]) == wrong
    for gap in range(3):
        assert first_bad(rows[:gap] + rows[gap + 1 :]) == gap + 1
    assert first_bad([rows[0], rows[0], *rows[1:]]) == 2


def test_a_body_that_is_no_entry_breaks_a_chain() -> None:
    """Whoever could compute the hashes again must still write entries."""
    rows = chain(2)
    body = b'{"anything": 1}'
    assert first_bad([*rows, Stored(3, body, chained(rows[-1].digest, body))]) == 3
    with pytest.raises(ShoalError) as caught:
        _ = Stored(3, body, bytes(32)).entry
    assert caught.value.kind is Kind.MISMATCH
    assert first_bad([*rows, Stored(3, "text", bytes(32))]) == 3  # type: ignore[arg-type]


def test_a_noted_head_lies_on_the_chain() -> None:
    """It may lag behind, and never lead. Planted: only ``>=`` of the counts compared -> another
    chain of the same length passes.
    """
    rows = chain(4)
    for count in range(5):
        noted = EMPTY if count == 0 else Head(count, rows[count - 1].digest)
        assert check(rows, noted) == Head(4, rows[-1].digest)
        for cut in range(count):
            assert first_bad(rows[:cut], noted) == cut + 1
    assert first_bad(rows, Head(2, rows[2].digest)) == 2
    assert first_bad(rows, Head(5, b"x" * 32)) == 5


def test_a_head_as_text() -> None:
    head = Head(12, bytes(range(32)))
    assert Head.parse(str(head)) == head == Head.parse(f" {head}\n")
    assert Head.parse(str(EMPTY)) == EMPTY
    for bad in (
        "",
        "12",
        "12:",
        "12:zz",
        f"-1:{'00' * 32}",
        f"0:{'11' * 32}",
        f"3:{'00' * 32}",
        f"{10**20}:{'11' * 32}",
        f"1:{'11' * 31}",
    ):
        with pytest.raises(ShoalError) as caught:
            Head.parse(bad)
        assert caught.value.kind is Kind.INVALID
