"""Words that nobody listed, found by real services: a shuffler and an analyzer in processes of their
own, TLS, a fleet that follows from level to level by the shuffler's catalogue.

The words are those of this project's pages. What is compared: every word that was found with how
many devices have it, and every word that enough devices have with what was found. Estimates lie
within 9 of their standard errors: dummies are Poisson, the chance of a false alarm is below 1e-9
each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.analyzer.discovery.plan import found_from
from shoal.cli.demo.workspace import prepare
from shoal.domain import Discovery
from shoal.mechanisms.several.levels import threshold
from shoal.mechanisms.several.registry import create
from shoal.questions.spelling import shown, spell
from tests.sizes import size
from tests.worlds import discoveries
from tests.worlds.ports import free_port
from tests.worlds.services.releasing import running

DEVICES = size(1_200, 20_000)
LONGEST = size(5, 8)
EPSILON = size(3.0, 1.0)  # of one window


@pytest.mark.timeout(size(300, 3_000))
async def test_words_are_found_level_by_level(tmp_path: Path) -> None:
    """Planted: see the test's asserts."""
    site = prepare(tmp_path, free_port)
    discovery = Discovery(first=2, longest=LONGEST, most=size(8, 128))
    words = discoveries.words_of_pages(DEVICES)
    asked = discoveries.ask(
        site,
        discovery,
        DEVICES,
        windows=discovery.levels + 3,
        length_s=size(10, 150),
        epsilon=EPSILON,
    )
    async with running(site):
        answered = await discoveries.follow(site, asked, words)
        releases = await discoveries.releases_of(site, asked)
    assert len(answered) == len(releases) == discovery.levels
    made = create(asked.task.mechanism, discovery)
    print(answered, made.messages, made.mean_messages)
    found = dict[str, float]()
    for window, release in sorted(releases.items()):
        level = release.discovered.level
        truth = asked.truth(words, discovery.first + level)
        for beginning, row in zip(release.discovered.beginnings, release.estimates, strict=False):
            print(level, row.label, row.value, truth[row.label])
            assert row.label == shown(beginning)
            assert abs(row.value - truth[row.label]) < 9 * row.stderr
            assert row.value >= release.discovered.threshold
            if row.label[-1] != "…" or level == discovery.levels - 1:
                found[row.label] = row.value
    print(found, threshold)
