"""docs/MECHANISMS.md: every registered mechanism has its row, and every error is the code's at the
epsilon0 that stands beside it.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from shoal.domain import Categories
from shoal.mechanisms import REGISTRY, Mechanism, create, design, serves
from tests.cases import for_each

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "MECHANISMS.md").read_text()
SIZES = (10_000, 1_000_000)
_ROW = re.compile(r"\| `(\w+)`(?: `([^`]+)`)? \|((?: [0-9.]+ \|){9})")
_LOCAL = re.compile(r"\| k = ([0-9,]+) \|((?: [0-9,]+ \|){7})")


def rows() -> list[tuple[int, str, str, tuple[float, ...]]]:
    """(k, mechanism, setting, bytes and twice epsilon0, alike, empty, half) of the two tables of
    errors.
    """
    found, k = [], 0
    for line in PAGE.splitlines():
        if head := re.match(r"\| k = ([0-9,]+) \| bytes", line):
            k = int(head[1].replace(",", ""))
        if match := _ROW.match(line):
            found.append(
                (
                    k,
                    match[1],
                    match[2] or "",
                    tuple(float(cell) for cell in match[3].split("|")[:-1]),
                )
            )
    return found


def built(k: int, name: str, setting: str, epsilon0: float) -> Mechanism:
    domain = Categories(tuple(f"c{i}" for i in range(k - 1)))
    return create(design(name, domain, epsilon0, setting), domain)


def alike(mechanism: Mechanism, k: int, n: int) -> float:
    counts = np.full(k, n // k)
    counts[: n % k] += 1
    return float(np.sqrt((mechanism.expected_stderr(counts) ** 2).mean()))


def one_cell(mechanism: Mechanism, k: int, n: int, held: int) -> float:
    """Standard error of the first cell, which ``held`` devices hold; the others share the rest."""
    counts = np.full(k, (n - held) // (k - 1))
    counts[: 1 + (n - held) % (k - 1)] += 1
    counts[0] = held
    return float(mechanism.expected_stderr(counts)[0])


@for_each("row", rows(), ids=lambda row: f"{row[0]} {row[1]} {row[2]}")
def test_every_error_is_the_codes(row: tuple[int, str, str, tuple[float, ...]]) -> None:
    """To 4 %: epsilon0 is printed to a hundredth. Planted: a figure of the table changed by a tenth
    -> this fails.
    """
    k, name, setting, (size, *figures) = row
    for n, (epsilon0, *errors) in zip(SIZES, (figures[:4], figures[4:]), strict=True):
        mechanism = built(k, name, setting, epsilon0)
        assert mechanism.report_size == size or setting == "olh"
        assert [
            alike(mechanism, k, n),
            one_cell(mechanism, k, n, 0),
            one_cell(mechanism, k, n, n // 2),
        ] == pytest.approx(errors, rel=0.04)


def test_the_errors_at_a_local_epsilon_of_1() -> None:
    names = (
        ("krr", ""),
        ("unary", "oue"),
        ("unary", "sue"),
        ("local_hash", "olh"),
        ("subset", ""),
        ("hadamard", ""),
        ("hadamard_response", ""),
    )
    found = _LOCAL.findall(PAGE)
    assert len(found) == 2
    for k, cells in found:
        shown = [int(cell.replace(",", "")) for cell in cells.split("|")[:-1]]
        size = int(k.replace(",", ""))
        assert [
            round(alike(built(size, *name, 1.0), size, 1_000_000)) for name in names
        ] == pytest.approx(shown, rel=0.002)


def test_every_registered_mechanism_has_its_row_and_every_setting_exists() -> None:
    """Errors stand there for all that count categories, but for the sketches: what collides is no
    coin, and in no column.

    Planted: one more registered -> this fails until the page says when to use it.
    """
    table = PAGE.split("## One by one")[1].split("## What they err")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(REGISTRY)
    counted = {name for name in REGISTRY if serves(name, Categories(("a", "b")))} - {
        "count_sketch",
        "hadamard_sketch",
    }
    assert {name for _, name, _, _ in rows()} == counted


def test_the_python_runs() -> None:
    block = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    scope: dict[str, object] = {}
    exec(block[1], scope)  # noqa: S102 - our own page
    assert isinstance(errors := scope["errors"], np.ndarray)
    assert errors.shape == (16,)
