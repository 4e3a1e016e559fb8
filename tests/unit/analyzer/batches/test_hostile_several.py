"""What one device that lies does to a batch of several messages, through opening and estimating:
its messages move a count by no more than owners and readers are told, and what it sends beyond
them is refused and counted. How many messages it may send at all is the shuffler's to bound
(tests/integration/services/test_several_refusals.py).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shoal.accounting.several_messages.liars import moved_by_liar
from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.core import (
    DUPLICATE,
    INVALID_VALUE,
    UNOPENABLE,
    WITHHELD_TOO_FEW,
    Batch,
    BatchState,
)
from shoal.analyzer.results.release import Prepared, prepare
from shoal.domain import Categories, Domain, YesNo
from shoal.entropy import SeededEntropy
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create, fewest_messages
from tests.cases import for_each
from tests.unit.analyzer.batches.test_opening import opened
from tests.worlds.services.analyzer import World, make_task

DEVICES = 60  # honest, and one that lies
FEW = Categories(("a", "b"))
DOMAINS: dict[str, Domain] = {"cancelling": FEW, "dummies": FEW, "signed_count": YesNo()}


def world_of(name: str) -> tuple[World, Several]:
    """A task with room for a liar's refused messages."""
    domain = DOMAINS[name]
    task = make_task(target_epsilon=4.0, min_batch=50)
    spec = design_several(name, domain, task.n_certified, 4.0, task.delta, windows=2)
    made = create(spec, domain)
    changed = replace(
        task,
        domain=domain,
        mechanism=made.spec,
        report_size=made.report_size,
        messages=made.messages,
        fewest_messages=fewest_messages(made),
    )
    return World(changed), made


def honest(made: Several) -> list[bytes]:
    """Every message of every honest device."""
    values = np.arange(DEVICES, dtype=np.int64) % 2
    return [row.tobytes() for row in made.randomize(values, SeededEntropy("honest")).rows]


async def released(folder: Path, world: World, sealed: list[bytes]) -> Prepared:
    """What all devices and the liar sent, opened and estimated."""
    batch = world.batch(sealed, reports=DEVICES + 1)
    found = await opened(folder, sealed, world)
    taken = Batch(batch.manifest, batch.manifest_hash, BatchState.PROCESSING)
    return prepare(world.served, taken, found)


@for_each("name", DOMAINS)
async def test_all_messages_in_one_cell_move_a_count_by_no_more_than_is_told(
    name: str, tmp_path: Path
) -> None:
    """Of every kind of message. Planted: one message more than a report may have -> fails."""
    world, made = world_of(name)
    sealed = [world.seal(row) for row in honest(made)]
    before = (await released(tmp_path, world, sealed)).estimate
    assert before is not None
    kinds = [kind for kind in range(256) if made.valid(np.array([[kind]], dtype=np.uint8))[0]]
    moved = list[float]()
    for kind in kinds[:4]:
        lies = [world.seal(bytes([kind])) for _ in range(made.messages)]
        after = await released(tmp_path, world, [*sealed, *lies])
        assert (after.n, after.opened.rejected) == (DEVICES + 1, {})
        assert after.estimate is not None
        moved.append(float(np.abs(after.estimate.values - before.values).max()))
    most = moved_by_liar(made)
    assert most == made.messages
    assert max(moved) <= most * (1.0 + 1e-12)
    assert max(moved) == pytest.approx(most / 2 if name == "signed_count" else most)


@for_each("name", DOMAINS)
async def test_what_is_no_message_is_refused_and_counted(name: str, tmp_path: Path) -> None:
    """The counts stay as they are; each refused row costs one report. Planted: refused rows
    counted as reports -> fails.
    """
    world, made = world_of(name)
    sealed = [world.seal(row) for row in honest(made)]
    before = await released(tmp_path, world, sealed)
    again = world.seal(bytes([0]))
    lies = [world.seal(b"\xff"), world.seal(b"\xff"), bytes(world.row_size()), again, again]
    after = await released(tmp_path, world, [*sealed, *lies])
    once = await released(tmp_path, world, [*sealed, again])
    assert after.opened.rejected == {INVALID_VALUE: 2, UNOPENABLE: 1, DUPLICATE: 1}
    assert after.n == DEVICES + 1 - 4
    assert after.estimate is not None
    assert (after.opened.tally.counts == once.opened.tally.counts).all()
    assert before.opened.rejected == {}


@for_each("name", DOMAINS)
async def test_so_many_refused_messages_withhold_a_window_and_move_nothing(
    name: str, tmp_path: Path
) -> None:
    """Planted: withheld by the reports that the shuffler counted -> fails."""
    world, made = world_of(name)
    sealed = [world.seal(row) for row in honest(made)]
    lies = [world.seal(b"\xff") for _ in range(DEVICES)]
    found = await released(tmp_path, world, [*sealed, *lies])
    assert (found.n, found.estimate, found.withheld) == (1, None, WITHHELD_TOO_FEW)
    assert found.opened.rejected == {INVALID_VALUE: DEVICES}
