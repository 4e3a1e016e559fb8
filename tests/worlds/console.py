"""What the console's tests look at: an analyzer's data with releases of several windows, made by
the analyzer's own code of random answers.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.core import BatchState
from shoal.analyzer.results.release import conclude, prepare
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.domain import Categories, Numeric
from shoal.mechanisms import Tally
from tests.worlds.services.analyzer import World, make_world

N = 600
EVIL = '<script>alert("1")</script>'


@cache
def visits() -> World:
    """Of categories, one of which a page must escape; seven windows."""
    domain = Categories(("none", "some", EVIL))
    return make_world(domain=domain, windows=7, min_batch=500)


@cache
def minutes() -> World:
    """A mean, two windows."""
    return make_world(name="minutes", domain=Numeric(0, 60, 31), mechanism="kmean", min_batch=500)


def release(store: AnalyzerStore, world: World, window: int, n: int = N) -> None:
    """Open a batch of ``n`` reports and release the window, withheld if they are too few."""
    manifest = world.batch([bytes(world.row_size())] * 2, window).manifest_bytes
    batch = store.accept(manifest)
    store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
    cells = world.task.domain.size
    shares = np.linspace(1.0, 2.0 + window / 3.0, cells)
    counts = np.floor(shares / shares.sum() * n).astype(np.int64)
    counts[0] += n - counts.sum()
    ready = prepare(world.served, batch, Opened(Tally(counts, n), {"duplicate": 3}))
    assert store.finish(batch, lambda earlier: conclude(ready, earlier, world.analyzer))


def write_data(folder: Path, windows: int = 4) -> tuple[Path, Path]:
    """An analyzer's data folder and its tasks folder: ``windows`` windows of visits, of which the
    third is withheld, and two of minutes.
    """
    data = folder / "data"
    data.mkdir(parents=True)
    for world in (visits(), minutes()):
        world.write(folder)
    store = AnalyzerStore(data / FILE_NAME)
    store.sign_with(visits().analyzer.public)
    store.sign_with(minutes().analyzer.public)
    for window in range(windows):
        release(store, visits(), window, 10 if window == 2 else N)
    for window in range(2):
        release(store, minutes(), window)
    store.close()
    return data, folder / "tasks"
