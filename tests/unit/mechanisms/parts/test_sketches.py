"""What the two sketches share: the permutation of cells, tables of functions, the second moment,
shapes, and what is refused.
"""

from __future__ import annotations

import numpy as np
import pytest

from shoal.domain import Categories, Domain, Numeric, Words, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms import create, design
from shoal.mechanisms.base import Tally
from shoal.mechanisms.parts.sketches import (
    MOST_COUNTS,
    Sketch,
    second_moment,
    shapes,
    spread,
    spread_many,
)
from shoal.mechanisms.registry import REGISTRY
from shoal.task import MechanismSpec

BOTH = pytest.mark.parametrize("name", ["count_sketch", "hadamard_sketch"])
OPEN = Words(("flu", "cold"))
ENDS = (0, 1, (1 << 31) - 1, 1 << 31, (1 << 62) - 1)


def spec(name: str, **changed: int) -> MechanismSpec:
    return MechanismSpec.of(name, **{"flip": 1 << 62, "h": 4, "m": 4, "seed": 1, **changed})


def unspread(x: int) -> int:
    """Back, step by step."""

    def unshift(value: int, by: int) -> int:
        found = value
        for _ in range(62 // by):
            found = value ^ found >> by
        return found

    x = unshift(x, 31) * pow(0x14D049BB133111EB, -1, 1 << 62) % (1 << 62)
    x = unshift(x, 27) * pow(0x1F58476D1CE4E5B9, -1, 1 << 62) % (1 << 62)
    return unshift(x, 30)


def test_cells_are_permuted_alike_one_by_one_and_many() -> None:
    """Planted: an even multiplier; another shift in one of the two; 64 bits for 62 -> fails."""
    cells = [*ENDS, *(int(word) >> 2 for word in SeededEntropy(1).words(200))]
    spreads = [spread(cell) for cell in cells]
    assert spread_many(np.array(cells)).tolist() == spreads
    assert [unspread(value) for value in spreads] == cells
    assert all(0 <= value < 1 << 62 for value in spreads)


def test_hashes_are_alike_one_by_one_and_many() -> None:
    """Of devices and of labels. Planted: a function's number one off in one of them -> fails."""
    sketch = Sketch.of(OPEN, 7, 8, 16)
    cells = np.array([*ENDS, *OPEN.label_cells])
    for index in range(8):
        ones = [sketch.hashed(index, cell) for cell in cells.tolist()]
        assert sketch.hash_many(np.full(len(cells), index, dtype=np.uint32), cells).tolist() == ones
        assert sketch.label_hashes(slice(None))[index].tolist() == ones[len(ENDS) :]


def test_the_second_moment_of_a_table_without_noise() -> None:
    """8,192 devices, a function each of 256, three cells: 4,096, 2,048, 2,048 of them. Not below,
    and above by a fifth of n^2 / m at most.

    Planted: n_j^2 / m not added back; m / (m - 1) left out; pairs of a device with itself counted
    -> fails.
    """
    h, m, held = 256, 64, (4_096, 2_048, 2_048)
    rows = np.frombuffer(SeededEntropy(3).bytes(sum(held)), dtype=np.uint8)
    sketch, cells = Sketch.of(OPEN, 5, h, m), np.repeat(np.array([11, 12, 13]), held)
    table = np.zeros((h, m))
    np.add.at(table, (rows, sketch.hash_many(rows.astype(np.uint32), cells)), 1.0)
    true, n = sum(count**2 for count in held), sum(held)
    found = second_moment(table, np.bincount(rows, minlength=h), 1.0)
    assert true <= found < true + 0.2 * n**2 / m
    assert second_moment(np.zeros((4, 4)), np.zeros(4, dtype=np.int64), 1.0) == 0.0
    assert second_moment(np.eye(4), np.ones(4, dtype=np.int64), 1.0) == 16.0, (
        "no two in a row: nothing is known"
    )


@BOTH
def test_one_device_and_none(name: str) -> None:
    """Finite, and a device that is alone is not surely anything."""
    for count in (0, 1, 2):
        mechanism = create(spec(name), OPEN)
        tally = mechanism.tally(
            mechanism.randomize(np.full(count, OPEN.label_cells[0]), SeededEntropy(1))[:, 0]
        )
        assert np.isfinite(mechanism.estimate(tally).stderr).all()


@BOTH
def test_a_batch_of_many_blocks_is_counted_whole(name: str) -> None:
    """Planted: rows that are in two blocks of the tally counted once (= for +=) -> fails."""
    mechanism = create(spec(name, h=2, m=64), OPEN)
    reports = mechanism.randomize(np.full(70_000, 5), SeededEntropy(2))[:, 0]
    parts = [mechanism.tally(part) for part in np.array_split(reports, 7)]
    total = Tally(np.zeros_like(parts[0].counts), 0)
    for part in parts:
        total += part
    assert mechanism.tally(reports) == total


@BOTH
def test_of_many_labels_collisions_are_averaged(name: str) -> None:
    """Above 256 labels ``expected_stderr`` takes each pair's collisions as 1 of m: within 5 % of
    what was counted for the first labels.
    """
    held = np.zeros(257, dtype=np.int64)
    held[:200] = 50
    many, few = (Categories(tuple(map(str, range(count)))) for count in (256, 255))
    rough = create(spec(name, h=64, m=32), many).expected_stderr(held)
    assert np.allclose(
        rough[:256], create(spec(name, h=64, m=32), few).expected_stderr(held[:256]), rtol=0.05
    )


def test_shapes_follow_the_labels() -> None:
    """Reports of the default fit the smallest frame, and every table is within its bound. Planted:
    m from the domain's size -> fails.
    """
    for count in (1, 15, 16, 200, LIMITS.cells - 1):
        words = Words(tuple(f"w{i}" for i in range(count)))
        found = shapes(words)
        assert len(set(found)) == len(found) > 1
        assert all(h * m <= MOST_COUNTS for h, m in found)
        assert found[0] == (1_024, min(max(16, 1 << count.bit_length()), 1_024))
        assert create(design("count_sketch", words, 1.0), words).report_size <= 130


@BOTH
@pytest.mark.parametrize(
    "changed",
    [
        {"h": 3},
        {"m": 12},
        {"m": 1},
        {"h": 1 << 17},
        {"h": 1 << 11, "m": 1 << 10},
        {"flip": 1 << 63},
        {"flip": 0},
    ],
)
def test_wrong_integers_are_refused(name: str, changed: dict[str, int]) -> None:
    with pytest.raises(ShoalError) as caught:
        create(spec(name, **changed), OPEN)
    assert caught.value.kind is Kind.INVALID
    assert any(
        f'"{key}"' in caught.value.message or f" {key} " in f"{caught.value.message} "
        for key in changed
    )


@BOTH
@pytest.mark.parametrize("domain", [YesNo(), Numeric(0, 1, 5)])
def test_other_domains_are_refused(name: str, domain: Domain) -> None:
    for act in (
        lambda: create(spec(name), domain),
        lambda: REGISTRY[name].settings(domain),
        lambda: design(name, domain, 1.0),
    ):
        with pytest.raises(ShoalError, match="words or categories") as caught:
            act()
        assert caught.value.kind is Kind.INVALID


def test_a_report_fits_the_longest_that_is_allowed() -> None:
    """Planted: m up to 2^15 -> 4,098 bytes, and this fails."""
    assert create(spec("count_sketch", h=64, m=1 << 14), OPEN).report_size <= LIMITS.report_bytes
    with pytest.raises(ShoalError, match='"m"'):
        create(spec("count_sketch", h=1, m=1 << 15), OPEN)
