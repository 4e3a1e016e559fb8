"""Messages that are refused: what estimates take them for, and what a device that lies gains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.accounting.several_messages.liars import moved_by_liar
from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.core import UNOPENABLE, Batch
from shoal.analyzer.results.release import devices_heard, prepare
from shoal.arrays import NDArray, np
from shoal.domain import Categories
from shoal.entropy import SeededEntropy
from shoal.mechanisms import Tally
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create
from tests.cases import for_each
from tests.unit.analyzer.results.test_release import batch_of
from tests.worlds.services.analyzer import World, make_world, several_world

DEVICES = 100
CELLS = Categories(tuple("abcdefg"))
WORLD = make_world()


def of_devices(reports: int, world: World = WORLD) -> Batch:
    batch = batch_of(world)
    manifest = replace(batch.manifest, rows=200_000, reports=reports)
    return Batch(manifest, batch.manifest_hash, batch.state)


def opened(made: Several, rows: NDArray[np.uint8], refused: int) -> Opened:
    return Opened(made.tally(rows), {UNOPENABLE: refused} if refused else {})


@for_each("epsilon0", [None, 4.0])
def test_refused_messages_buy_a_device_that_lies_nothing(epsilon0: float | None) -> None:
    """A small fleet, whose devices add several dummies to each cell. One device sends as many
    messages as a report may have: some of them are refused, the others name one cell. Against the
    batch without any of them no cell, and no sum of cells, moves by more than owners are told.

    Planted: each refused row a report that is lost (as in ``valid_reports``) -> every cell rises
    by 53, and all of them by 425, where 39 is said; rounded up -> one refused row is enough.
    """
    spec = design_several(
        "dummies", CELLS, DEVICES, 0.5, 1e-6, windows=1, epsilon0_if_colluding=epsilon0
    )
    made = create(spec, CELLS)
    values = np.arange(DEVICES - 1, dtype=np.int64) % CELLS.size
    honest = made.randomize(values, SeededEntropy("refused")).rows
    none = made.estimate(made.tally(honest), DEVICES).values
    most = moved_by_liar(made)
    for refused in range(made.messages + 1):
        same = np.zeros((made.messages - refused, made.report_size), dtype=np.uint8)
        batch = opened(made, np.concatenate([honest, same]), refused)
        heard = devices_heard(of_devices(DEVICES), batch, made)
        moved = made.estimate(batch.tally, heard).values - none
        sums = np.cumsum(np.sort(moved)[::-1])  # of the cells that rise most
        assert sums.max() <= most + 1e-9
        assert np.cumsum(np.sort(moved)).min() >= -most - 1e-9


def test_noise_of_refused_reports_is_not_taken_off() -> None:
    """Half of the devices' reports can't be opened: the other half's estimates are right. Five
    standard errors of a cell: wrong with probability 5e-6 over seeds, and the seed is fixed.

    Planted: no row taken off -> every cell is 43 devices too low; each row a report -> 15 above.
    """
    made = create(design_several("dummies", CELLS, 1_000, 1.0, 1e-6, windows=1), CELLS)
    values = np.arange(2_000, dtype=np.int64) % CELLS.size
    bundles = made.randomize(values, SeededEntropy("half"))
    half = int(bundles.sizes[:1_000].sum())
    batch = opened(made, bundles.rows[half:], half)
    heard = devices_heard(of_devices(2_000), batch, made)
    assert heard == pytest.approx(1_000, rel=0.05)
    off = made.estimate(batch.tally, heard).values - np.bincount(values[1_000:], minlength=8)
    assert np.abs(off).max() < 5.0 * made.expected_stderr(1_000)


def test_a_release_counts_each_refused_row_and_estimates_by_reports() -> None:
    """``n`` is never too many devices; estimates are of those that were heard. Planted: estimates
    of ``n`` -> fails.
    """
    world = several_world(min_batch=1_000)
    made = create(world.task.mechanism, world.task.domain)
    counts = np.full(made.tally(np.zeros((0, made.report_size), np.uint8)).counts.size, 900)
    taken = Opened(Tally(counts, int(counts.sum())), {UNOPENABLE: 200})
    prepared = prepare(world.served, of_devices(2_000, world), taken)
    assert prepared.n == 1_800
    lost = int(200 / made.mean_messages)
    assert 0 < lost < 200
    expected = made.estimate(taken.tally, 2_000 - lost)
    assert prepared.estimate is not None
    np.testing.assert_array_equal(prepared.estimate.values, expected.values)
