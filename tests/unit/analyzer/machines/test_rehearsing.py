"""Requests to simulate and their answers: what crosses, and what neither side takes."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoal.analyzer.machines import messages
from shoal.analyzer.machines.messages import AnswerKind, Ask, join_parts, split_parts
from shoal.analyzer.machines.rehearsing import (
    MOST_ORDER,
    order_of,
    read_order,
    rehearse,
    stretch_of,
    tallies_from,
)
from shoal.analyzer.planner.heaps import Heaped
from shoal.analyzer.planner.question import Mirrored, Shape
from shoal.analyzer.planner.simulation.crowd import AtValue, ByCounts, Crowd, Shaped
from shoal.analyzer.planner.simulation.stretches import Rehearsal, Stretch, tallies_of
from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.entropy import SYSTEM, Entropy, SeededEntropy, SystemEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally, create, design
from tests.cases import for_each

LEVELS = Numeric(0.0, 8.0, 5)
MANY = Categories(tuple(f"cell {i}" for i in range(300)))
SEED = SeededEntropy("across")
ALL = Stretch(range(2), range(900))


def of(crowd: Crowd, name: str, domain: Domain, entropy: Entropy = SEED) -> Rehearsal:
    return Rehearsal(create(design(name, domain, 2.0), domain), crowd, entropy)


YES = of(ByCounts(np.array([600, 300])), "binary_rr", YesNo())
CROWDS: list[tuple[Rehearsal, Domain]] = [
    (YES, YesNo()),
    (of(ByCounts(np.full(301, 3)), "unary", MANY), MANY),
    (of(AtValue(900, 1, (1 << 64) - 1, 5), "kmean", LEVELS), LEVELS),
    (of(Shaped(900, Shape.SKEWED, (5, 0)), "square_wave", LEVELS), LEVELS),
    (of(Shaped(900, Heaped((0.1, 0.7), (0.3, 0.2)), (5, 0)), "kmean", LEVELS), LEVELS),
]


@for_each("work, domain", CROWDS)
def test_a_worker_does_what_is_done_here(work: Rehearsal, domain: Domain) -> None:
    """Every kind of devices, with a seed. Planted: a crowd without its threshold, another seed, a
    shape without its heaps -> each fails.
    """
    stretch = replace(ALL, devices=range(work.crowd.n))
    answer = messages.answered(rehearse([order_of(work, domain), stretch_of(stretch)]))
    assert tallies_from(answer, work, stretch) == tallies_of(work, stretch)


def test_without_a_seed_a_worker_draws_from_its_system() -> None:
    """Planted: a seed of the order's own -> fails."""
    work = replace(YES, entropy=SYSTEM)
    assert isinstance(read_order(order_of(work, YesNo())).entropy, SystemEntropy)
    asked = [order_of(work, YesNo()), stretch_of(ALL)]
    assert len({rehearse(asked) for _ in range(5)}) > 1


class Tape:
    """An entropy that is on one machine alone."""

    def bytes(self, count: int) -> bytes:
        return bytes(count)

    def words(self, count: int) -> Any:
        return np.zeros(count, dtype=np.uint64)


def test_what_does_not_cross_is_refused_before_it_is_sent() -> None:
    """Planted: another entropy taken for the system's -> fails."""
    long = Categories(tuple(f"{i:05}" + 59 * "x" for i in range(60_000)))
    for work, domain, words in (
        (replace(YES, entropy=Tape()), YesNo(), "neither the system's nor seeded"),
        (of(Shaped(9, Mirrored(Shape.SKEWED), (5, 0)), "kmean", LEVELS), LEVELS, "this shape"),
        (of(ByCounts(np.full(long.size, 1)), "krr", long), long, "shorter labels"),
    ):
        with pytest.raises(ShoalError) as caught:
            order_of(work, domain)
        assert caught.value.kind is Kind.INVALID
        assert words in str(caught.value)


def changed(**fields: Any) -> bytes:
    """The order of ``YES`` with other fields."""
    header, counts = split_parts(order_of(YES, YesNo()))
    held = fields.pop("counts", counts)
    return join_parts(json.dumps({**json.loads(header), **fields}).encode(), held)


GOOD, STRETCH = order_of(YES, YesNo()), stretch_of(ALL)
FAR = struct.pack("!QQQQ", 0, 1 << 40, 0, 900)
PAIR = changed(counts=struct.pack("!qq", 1, 1))


@for_each(
    "parts, words",
    [
        ([], "an order and a stretch"),
        ([GOOD], "an order and a stretch"),
        ([GOOD, STRETCH, b""], "an order and a stretch"),
        ([b"", STRETCH], "another form"),
        ([bytes(MOST_ORDER + 1), STRETCH], "more than"),
        ([join_parts(b"[" * 100_000, b""), STRETCH], "another form"),
        ([changed(crowd=["counted", 1]), STRETCH], "another form"),
        ([changed(crowd=["function", "os", "system"]), STRETCH], "another form"),
        ([changed(crowd=["at", 9, 0, 0], counts=b""), STRETCH], "another form"),
        ([changed(crowd=["shaped", float("inf"), ["bell"]], counts=b""), STRETCH], "another form"),
        ([changed(counts=struct.pack("!qq", -1, 3)), STRETCH], "another form"),
        ([changed(counts=struct.pack("!qqq", 1, 1, 1)), STRETCH], "another form"),
        ([changed(counts=struct.pack("!qq", 0, 0)), STRETCH], "1 to 1000000000 devices"),
        ([changed(counts=struct.pack("!qq", 10**9, 1)), STRETCH], "1 to 1000000000 devices"),
        ([changed(seed="00"), STRETCH], "seed"),
        ([changed(domain=base64.b64encode(b"\xff").decode()), STRETCH], "another form"),
        ([changed(mechanism=["../evil", []]), STRETCH], "mechanism name"),
        ([changed(mechanism=["nobody", []]), STRETCH], "no mechanism of that name"),
        ([changed(mechanism=["binary_rr", [["keep", 1]]]), STRETCH], "binary_rr"),
        ([GOOD, b""], "another form"),
        ([GOOD, struct.pack("!QQQQ", 1, 1, 0, 900)], "not there"),
        ([GOOD, struct.pack("!QQQQ", 0, 1, 0, 901)], "not there"),
        ([GOOD, struct.pack("!QQQQ", 0, 1, 5, 900)], "not there"),
        ([GOOD, struct.pack("!QQQQ", 0, 2, 0, 800)], "all of their devices"),
        ([GOOD, FAR], "not there"),
        ([GOOD, struct.pack("!QQQQ", 0, 60_000, 0, 900)], "at a time"),
        ([PAIR, struct.pack("!QQQQ", 0, 100_000, 0, 2)], "at a time"),
    ],
)
def test_a_worker_refuses_by_name(parts: list[bytes], words: str) -> None:
    """Nothing is drawn for what is of another form or too much, and nothing ends the worker.
    Planted: a stretch's size, an order's, or the number of devices not looked at -> each fails.
    """
    told = rehearse(parts)
    assert told[0] == AnswerKind.REFUSED
    assert words in told[2:].decode()
    assert "bug" not in told[2:].decode()


def test_a_request_names_no_function() -> None:
    """It is of another kind than those that name one. Planted: run by ``messages.run`` -> fails."""
    order = messages.order(base64.b64decode, ())
    what, parts = messages.asked(messages.ask(Ask.SIMULATE, order, STRETCH))
    assert what is Ask.SIMULATE
    assert rehearse(parts)[0] == AnswerKind.REFUSED


def silent(cells: int, rows: int) -> Tally:
    return Tally(np.zeros(cells, dtype=np.int64), rows)


def honest() -> list[Tally]:
    return tallies_of(YES, ALL)


@for_each(
    "answer, words",
    [
        (None, "is none"),
        (True, "is none"),
        (b"x", "is none"),
        (bytes(10_000), "is none"),
        (join_parts(honest()[0].to_bytes()), "for 1 simulated batches"),
        (join_parts(honest()[0].to_bytes(), silent(2, 899).to_bytes()), "for 899 sim"),
        (join_parts(silent(2, 901).to_bytes(), honest()[0].to_bytes()), "for 901 sim"),
        (join_parts(*2 * [silent(1, 900).to_bytes()]), "other cells"),
    ],
)
def test_an_answer_for_other_devices_counts_nothing(answer: object, words: str) -> None:
    """Planted: a tally's rows not compared with the stretch, its cells not -> each fails."""
    with pytest.raises(ShoalError) as caught:
        tallies_from(answer, YES, ALL)
    assert caught.value.kind is Kind.MISMATCH
    assert words in str(caught.value)
