"""A small discovery in process: a task with all its keys, and honest devices' messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from shoal import codec
from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.core import UNOPENABLE, Batch, BatchState
from shoal.analyzer.records import Spending
from shoal.analyzer.results.release import Prepared, conclude, prepare
from shoal.analyzer.store import AnalyzerStore
from shoal.crypto.discovery_steps import DiscoveryStep, SignedStep, sign_step
from shoal.domain import Discovery
from shoal.entropy import SeededEntropy
from shoal.ids import Digest
from shoal.mechanisms.several.levels import level_of
from shoal.mechanisms.several.registry import create, fewest_messages
from shoal.questions.discovery import DiscoveryLevel
from shoal.storage.checksums import row_digest
from tests.worlds.services.analyzer import World, make_task

SMALL = Discovery(first=1, longest=3, most=4)
DEVICES = 400
RELEASE = Digest.of(b"a release")


def words_world(
    discovery: Discovery = SMALL,
    windows: int = 6,
    devices: int = DEVICES,
    epsilon0: float | None = None,
) -> World:
    """A task whose windows are an hour each. ``epsilon0``: if shuffler and analyzer collude."""
    task = make_task(name="words", target_epsilon=4.0, min_batch=devices, windows=windows)
    spec = design_several(
        "dummies",
        discovery,
        task.n_certified,
        4.0,
        task.delta,
        windows=windows,
        epsilon0_if_colluding=epsilon0,
    )
    made = create(spec, discovery)
    return World(
        replace(
            task,
            domain=discovery,
            mechanism=spec,
            report_size=made.report_size,
            messages=made.messages,
            fewest_messages=fewest_messages(made),
        )
    )


def step_of(
    world: World,
    window: int,
    level: DiscoveryLevel | None,
    release: Digest | None = RELEASE,
) -> SignedStep:
    """Signed by the world's analyzer."""
    assert isinstance(world.task.domain, Discovery)
    step = DiscoveryStep(world.task_id, window, level, release)
    return sign_step(step, world.task.domain, world.analyzer)


def found_in(
    world: World,
    level: DiscoveryLevel,
    words: Iterable[str],
    window: int,
    seed: str = "words",
    asked: bytes = b"",
    refused: int = 0,
) -> Prepared:
    """A batch of one honest report for each word, tallied and prepared. ``asked``: as the shuffler
    names it. ``refused``: messages of the last reports that can't be opened.
    """
    made = create(world.task.mechanism, world.task.domain)
    cells = np.array([level.encode(word) for word in words], dtype=np.int64)
    bundles = level_of(made, level).randomize(cells, SeededEntropy(seed))
    tally = made.tally(bundles.rows[: len(bundles.rows) - refused])
    batch = world.batch([b""] * len(bundles.rows), window, reports=len(cells), asked=asked)

    taken = Batch(batch.manifest, batch.manifest_hash, BatchState.PROCESSING)
    opened = Opened(tally, {UNOPENABLE: refused} if refused else {})
    return prepare(world.served, taken, opened, level)


def release_of(world: World, prepared: Prepared) -> bytes:
    """The bytes of a release."""
    return conclude(prepared, [], world.analyzer).release


def store_release(
    store: AnalyzerStore, world: World, prepared: Prepared, earlier: Sequence[Spending] = ()
) -> bytes:
    """As an analyzer writes it, without the batch that it came of; the bytes of the release."""
    manifest = prepared.batch.manifest
    window, digest = manifest.window, prepared.batch.manifest_hash.raw
    outcome = conclude(prepared, earlier, world.analyzer)
    with store.transaction() as db:
        row = (world.task_id.raw, window, codec.encode_manifest(manifest), digest, 3)
        db.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)", (*row, row_digest(*row)))
        store.write_release(world.task_id, window, outcome)
    store.write_release_count()
    return outcome.release
