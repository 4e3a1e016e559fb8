"""Words of operators that are killed half said, beside services that are killed: a window is given
up, and told, or it is untouched. Of every other window what was acknowledged is counted.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from shoal.services import given_up
from tests.faults.operations.deployment import Deployment
from tests.faults.operations.fleet import PATIENCE_S
from tests.sizes import size

LIVES, WORDS = size(1, 6), size(4, 8)
_POINTS = ["given_up.rename", "given_up.renamed", ""]


@pytest.mark.parametrize("life", range(LIVES))
@pytest.mark.timeout(600)
async def test_a_window_is_given_up_and_told_or_untouched(tmp_path: Path, life: int) -> None:
    """Planted: the line written in place, not whole -> a damaged file, fails. Planted: services
    that don't look at the lines -> a window that was given up is released, fails.
    """
    site, rng = Deployment(tmp_path), random.Random(life)  # noqa: S311 - when to kill
    words = list[tuple[str, int]]()
    async with site.serving() as fleet:
        trouble = asyncio.create_task(site.trouble(fleet, rng, WORDS))
        for number in range(WORDS):
            await fleet.reach(fleet.acks + rng.randrange(1, 14))
            service = ("shuffler", "analyzer")[number % 2]
            # one that has not begun, or one that takes reports now
            early = rng.random() < 0.5
            window = site.now() + rng.randrange(2, 5) if early else site.now()
            verb = "skip" if early else "abandon"
            word = (service, "window", verb, "test", str(window), "--yes", "--reason", "a test")
            say = (*word, "--config", str(site.configs[service]))
            words.append((service, window))
            dies = rng.choice(_POINTS)
            await site.shoal(*say, dies=dies, after_s=0.0 if dies else rng.uniform(0.05, 0.6))
            if rng.random() < 0.7:  # said again, and again killed or not
                await site.shoal(*say, dies=rng.choice(_POINTS))
        async with asyncio.timeout(PATIENCE_S):
            await trouble
        said = {
            service: given_up.read(config.parent / "data")
            for service, config in site.configs.items()
        }
        lines = {service: {line.window for line in ones} for service, ones in said.items()}
        gone = lines["shuffler"] | lines["analyzer"]
        await fleet.reach(fleet.acks + 2 * 14)
        fleet.stopping = True
        wanted = fleet.full() - gone
        released = await site.released(wanted)
        told = {
            service: await site.shoal(service, "window", "list", "--config", config)
            for service, config in site.configs.items()
        }
    assert lines["shuffler"] <= {w for service, w in words if service == "shuffler"}
    assert {service: {line["window"] for line in shown} for service, shown in told.items()} == lines
    assert gone
    assert len(wanted) >= WORDS // 2
    fleet.check({window: one for window, one in released.items() if window not in gone})
    never = {line.window for ones in said.values() for line in ones if line.was == "not begun"}
    assert not never & released.keys()
    for window in gone & released.keys():  # it was whole at the analyzer by then, or ends withheld
        one = released[window]
        assert one.withheld or (window in lines["shuffler"] and one.n >= fleet.acked[window])
