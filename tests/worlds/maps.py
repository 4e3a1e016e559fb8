"""Maps with devices on them, and their releases."""

from __future__ import annotations

from typing import Any

from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.core import BatchState
from shoal.analyzer.results.release import Prepared, conclude, prepare
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.arrays import NDArray, np
from shoal.domain import Places
from shoal.entropy import Entropy
from shoal.mechanisms import Mechanism, Tally
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create_of_cells
from tests.unit.analyzer.results.test_release import batch_of
from tests.worlds.services.analyzer import World

MAP = Places(48_000_000, 11_300_000, 48_300_000, 11_800_000, 6, 5)


def town(places: Places, devices: int) -> NDArray[np.int64]:
    """int64[cells]: how many of the devices are in each: two heaps, nobody at the edges, a 20th
    elsewhere.
    """
    rows = np.linspace(-1.0, 1.0, places.rows)[:, None]
    columns = np.linspace(-1.0, 1.0, places.columns)[None, :]
    heap = np.exp(-((rows - 0.2) ** 2 + (columns + 0.3) ** 2) * 12.0)
    other = 0.5 * np.exp(-((rows + 0.6) ** 2 + (columns - 0.5) ** 2) * 30.0)
    weights = np.append(np.where(heap + other > 0.02, heap + other, 0.0).reshape(-1), 0.0)
    weights[-1] = weights.sum() / 19.0
    held = np.floor(weights / weights.sum() * devices).astype(np.int64)
    held[-1] += devices - held.sum()
    return np.asarray(held)


def tally_of(made: Mechanism | Several, held: NDArray[np.int64], entropy: Entropy) -> Tally:
    """Of a batch with so many devices in each cell."""
    values = np.repeat(np.arange(len(held)), held)
    if isinstance(made, Several):
        return made.tally(made.randomize(values, entropy).rows)
    reports = made.randomize(values, entropy)
    return made.tally(reports.reshape(-1, made.report_size))


def prepared_map(world: World, held: NDArray[np.int64], entropy: Entropy) -> Prepared:
    """What an analyzer makes of such a batch."""
    made, n = create_of_cells(world.task.mechanism, world.task.domain), int(held.sum())
    batch = world.batch([bytes(world.row_size())] * n, reports=n)
    taken = type(batch_of(world))(batch.manifest, batch.manifest_hash, BatchState.PROCESSING)
    return prepare(world.served, taken, Opened(tally_of(made, held, entropy), {}))


def released_map(world: World, held: NDArray[np.int64], entropy: Entropy) -> dict[str, Any]:
    """The same, signed, in its JSON shape."""
    ready = prepared_map(world, held, entropy)
    return to_json(decode_release(conclude(ready, [], world.analyzer).release))
