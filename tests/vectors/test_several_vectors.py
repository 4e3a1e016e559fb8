"""Reports of several messages as vectors: ours makes them, and so does a reader that was written
from docs/WIRE.md alone, in exact fractions.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from shoal.domain import AnswerRecord, Categories, Domain, Numeric, Places, YesNo
from shoal.mechanisms.several.registry import create
from shoal.questions.record import all_pairs
from shoal.task import MechanismSpec
from tests.worlds.modules import ROOT
from tests.worlds.tasks import ATTRIBUTES

PATH = ROOT / "tests" / "vectors" / "shoal_several_v1.json"
CASES: list[dict[str, Any]] = json.loads(PATH.read_text())["cases"]


class Read:
    """The random bytes of a vector, from the front."""

    def __init__(self, text: str) -> None:
        self.left = bytes.fromhex(text)

    def bytes(self, count: int) -> bytes:
        found, self.left = self.left[:count], self.left[count:]
        assert len(found) == count
        return found

    def words(self, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")


def domain_of(case: dict[str, Any]) -> Domain:
    if case["mechanism"] == "signed_count":
        return YesNo()
    if case["mechanism"] == "marginals":
        return AnswerRecord(ATTRIBUTES, all_pairs(3), together=True)
    if case["mechanism"] == "blocks":
        return Places(48_000_000, 11_000_000, 48_500_000, 11_700_000, 5, 7)
    if case["mechanism"] in ("split_mix", "ranges"):
        return Numeric(0.0, 1.0, case["cells"] - 1)
    return Categories(tuple(f"label {number}" for number in range(case["cells"] - 1)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_ours_makes_them(case: dict[str, Any]) -> None:
    """Planted: the sign's bit inverted; the kinds in another order -> fails."""
    numbers = {name: int(value) for name, value in case["parameters"].items()}
    made = create(MechanismSpec.of(case["mechanism"], **numbers), domain_of(case))
    assert (made.report_size, made.messages, made.fewest) == (
        case["report_size"],
        case["messages"],
        case["fewest_messages"],
    )
    for draw in case["draws"]:
        read = Read(draw["random"])
        messages = made.randomize_one(draw["cell"], read)
        assert [message.hex() for message in messages] == draw["messages"]
        assert read.left == b""


def test_the_file_is_what_the_tool_writes() -> None:
    """Planted: a vector changed by hand -> fails."""
    told = "import sys, vectors_several as made\nsys.stdout.write(made.text())"
    made = subprocess.run(
        [sys.executable, "-c", told],
        cwd=ROOT / "tools",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert made.stdout == PATH.read_text()


# --- a reader of docs/WIRE.md, which knows nothing of our code ------------------------------------


def weights(numbers: dict[str, int]) -> list[tuple[str, int, int]]:
    """(signs, size, weight) of every kind, in order."""

    def ceil(share: Fraction) -> int:
        return -((-share.numerator) // share.denominator)

    shares, unit = numbers["shares"], Fraction(1 << 64)
    if "dummies" in numbers:
        return [("+", 1, ceil(unit * numbers["dummies"] / (1 << 32) / shares))]
    q, floods = Fraction(numbers["q"], 1 << 32), Fraction(numbers["floods"], 1 << 32)
    singles = [
        (size, ceil(unit * q**size / (size * shares))) for size in range(1, numbers["longest"] + 1)
    ]
    flood = ceil(unit * floods / (numbers["largest"] * shares))
    scale = Fraction(numbers.get("empties", 0), (1 << 32) * shares * numbers.get("k", 1))
    empties = [
        (size, ceil(unit * scale / size**2)) for size in range(1, numbers.get("widest", 0) + 1)
    ]
    return [
        *(("+", size, weight) for size, weight in singles),
        *(("-", size, weight) for size, weight in singles),
        *(("+-", size, flood) for size in range(1, numbers["largest"] + 1)),
        *(("empty", size, weight) for size, weight in empties),
    ]


def events(read: Read, mean: Fraction) -> int:
    """The least n with w < 2^64 F(n), by a sum of 60 digits; the vectors meet no boundary."""
    word = int.from_bytes(read.bytes(8), "little")
    with mpmath.workdps(60):
        rate = mpmath.mpf(mean.numerator) / mean.denominator
        term = total = mpmath.exp(-rate)
        n = 0
        while word >= total * 2**64:
            assert abs(word - mpmath.floor(total * 2**64)) > 0
            n += 1
            term = term * rate / n
            total += term
    return n


def below(read: Read, bound: int) -> int:
    bits = (bound - 1).bit_length()
    if not bits:
        return 0
    while True:
        drawn = int.from_bytes(read.bytes(8 * -(-bits // 64)), "little") & ((1 << bits) - 1)
        if drawn < bound:
            return drawn


def drawn(read: Read, value: int, cells: int, uniform: int | None) -> int:
    """As ``krr`` draws: a coin of 64 bits, a cell of words of 32 by multiplication."""
    if uniform is None:
        return value
    coin = int.from_bytes(read.bytes(8), "little") < uniform
    while True:
        product = int.from_bytes(read.bytes(4), "little") * cells
        if product % (1 << 32) >= (1 << 32) % cells:
            return product >> 32 if coin else value


def polya(read: Read, shares: int, scale: int) -> int:
    """The least k with w < 2^64 F(k), F of NB(1 / shares, exp(-65536 / scale)), by its definition
    in 60 digits.
    """
    word = int.from_bytes(read.bytes(8), "little")
    with mpmath.workdps(60):
        p = mpmath.exp(-mpmath.mpf(65536) / scale)
        term = total = (1 - p) ** (mpmath.mpf(1) / shares)
        k = 0
        while word >= total * 2**64:
            term = term * p * (k * shares + 1) / (shares * (k + 1))
            total += term
            k += 1
    return k


def shares_of(case: dict[str, Any]) -> Iterator[list[str]]:
    numbers = {name: int(value) for name, value in case["parameters"].items()}
    levels, size = case["cells"] - 1, numbers["bytes"]
    for draw in case["draws"]:
        read = Read(draw["random"])
        number = 2 * draw["cell"] if draw["cell"] < levels else levels - 1
        number += polya(read, numbers["shares"], numbers["scale"])
        number -= polya(read, numbers["shares"], numbers["scale"])
        shares = [int.from_bytes(read.bytes(size), "little") for _ in range(numbers["slots"] - 1)]
        shares.append((number - sum(shares)) % (1 << 8 * size))
        assert read.left == b""
        yield [share.to_bytes(size, "big").hex() for share in shares]


def level_sizes(numbers: dict[str, int]) -> list[int]:
    """Nodes of each level of ``ranges``, from the cells on."""
    sizes = [numbers["k"]]
    for _ in range(numbers["levels"] - 1):
        sizes.append(-(-sizes[-1] // numbers["base"]))
    return sizes


def truths_of(case: dict[str, Any], value: int, numbers: dict[str, int]) -> list[int]:
    if case["mechanism"] == "signed_count":
        return [0 if value else 1]
    if case["mechanism"] == "ranges":
        sizes, base = level_sizes(numbers), numbers["base"]
        return [sum(sizes[:level]) + value // base**level for level in range(len(sizes))]
    if case["mechanism"] == "blocks":  # of 5 rows and 7 columns
        row, column, side = value // 7, value % 7, numbers["side"]
        across, last = -(-7 // side), 35 + 1 + -(-5 // side) * -(-7 // side)
        return [value, last if value == 35 else 36 + row // side * across + column // side]
    if case["mechanism"] == "marginals":
        return marginal_cells(value)
    return [2 * value if "q" in numbers else value]


def marginal_cells(number: int) -> list[int]:
    """Of the record with attributes of 3, 3 and 4 cells, in all pairs."""
    answers = number // 12, number // 4 % 3, number % 4
    first, second, third = answers
    return [3 * first + second, 9 + 4 * first + third, 21 + 4 * second + third]


def reports(case: dict[str, Any]) -> Iterator[list[str]]:
    if case["mechanism"] == "split_mix":
        yield from shares_of(case)
        return
    numbers = {name: int(value) for name, value in case["parameters"].items()}
    kinds, cells = weights(numbers), numbers.get("k", 1)
    if case["mechanism"] == "ranges":
        cells = sum(level_sizes(numbers))
    if case["mechanism"] == "blocks":
        cells = 36 + -(-5 // numbers["side"]) * -(-7 // numbers["side"]) + 1
    total, signed = sum(weight for _, _, weight in kinds), "q" in numbers
    for draw in case["draws"]:
        read, noise = Read(draw["random"]), list[int]()
        value = drawn(read, draw["cell"], case["cells"], numbers.get("uniform"))
        for _ in range(events(read, Fraction(cells * total, 1 << 64))):
            at, place = below(read, total), 0
            while at >= kinds[place][2]:
                at -= kinds[place][2]
                place += 1
            signs, size, _ = kinds[place]
            cell = below(read, cells)
            if signs == "empty":
                noise += [2 * cells] * size
                continue
            for sign in signs:
                noise += [2 * cell + (sign == "-") if signed else cell] * size
        truths = truths_of(case, value, numbers)
        messages = noise if len(noise) <= numbers["slots"] - len(truths) else []
        for truth in truths:
            before = below(read, len(messages) + 1)
            messages = [*messages[:before], truth, *messages[before:]]
        assert read.left == b""
        if "full" in numbers:
            messages += [2 * cells] * (numbers["slots"] - len(messages))
        yield [message.to_bytes(case["report_size"], "big").hex() for message in messages]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_reader_of_the_page_makes_the_same(case: dict[str, Any]) -> None:
    """Planted: rates rounded down in ours -> another number of events or another kind, fails in
    some case; the true message always first -> fails; the noise drawn before the true cell -> fails
    where that is randomized.
    """
    assert list(reports(case)) == [draw["messages"] for draw in case["draws"]]


def test_the_cases_meet_what_matters() -> None:
    """A report without noise, one of too much, several sizes, both signs, empty messages."""
    sizes = {case["name"]: [len(draw["messages"]) for draw in case["draws"]] for case in CASES}
    assert 1 in sizes["many cells"]
    assert max(sizes["many cells"]) > 3
    assert max(sizes["few slots"]) <= 4
    assert sizes["few slots"].count(1) > 3
    assert min(sizes["much noise"]) >= 1
    empty = {
        name: [draw["messages"].count(number) for draw in case["draws"]]
        for case in CASES
        for name, number in [(case["name"], f"{2 * case['cells']:0{2 * case['report_size']}x}")]
    }
    assert max(empty["empty ones"]) > 2
    assert 0 in empty["empty ones"]
    assert set(sizes["full"]) == {20}
    assert 19 in empty["full"]
    assert set(sizes["full yes/no"]) == {9}
    assert 3 <= min(sizes["ranges"]) < 6 < max(sizes["ranges"])
    assert sizes["ranges of few slots"].count(2) > 3
    assert 2 <= min(sizes["blocks"]) < 5 < max(sizes["blocks"])
    assert sizes["blocks of few slots"].count(2) > 3
    assert 3 <= min(sizes["marginals"]) < 6 < max(sizes["marginals"])
    assert sizes["marginals of few slots"].count(3) > 3
