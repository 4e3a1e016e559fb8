"""A release of places told to within a distance: the certificate says what it is and is not, on
every way out.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from shoal.accounting.metric import metric_of
from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.core import Batch, BatchState
from shoal.analyzer.results.release import conclude, prepare
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.results.report_page import words_of
from shoal.domain import Places
from shoal.mechanisms import Tally, create
from shoal.mechanisms.maps.planar import PlanarResponse
from tests.worlds.services.analyzer import make_world

TOWN = Places(48_100_000, 11_500_000, 48_136_000, 11_540_000, 4, 3)


def test_a_release_says_what_distance_buys_and_what_it_does_not() -> None:
    """In the signed message, as JSON, and in the words of the page. Planted: the metric of the
    received reports for that of the guaranteed ones -> fails.
    """
    world = make_world(
        name="where", domain=TOWN, mechanism="planar", min_batch=1_000, target_epsilon=3.0
    )
    made = world.batch([bytes(world.row_size())], window=0)
    batch = Batch(made.manifest, made.manifest_hash, BatchState.PROCESSING)
    counts = np.full(13, 100)
    ready = prepare(world.served, batch, Opened(Tally(counts, 1_300), {}))
    release = to_json(decode_release(conclude(ready, (), world.analyzer).release))
    shown = json.loads(json.dumps(release))["privacy"]["metric"]
    mechanism = create(world.task.mechanism, TOWN)
    assert isinstance(mechanism, PlanarResponse)
    found = metric_of(mechanism, ready.guarantee)
    assert found is not None
    assert shown["epsilon_per_km"] == found.epsilon_per_km
    assert shown["cell_diagonal_m"] == found.diagonal_m
    assert shown["epsilon_elsewhere"] == pytest.approx(release["privacy"]["epsilon0"], rel=1e-9)
    assert [move["epsilon_upper"] for move in shown["moves"]] == [
        move.epsilon_upper for move in found.moves
    ]
    assert all(move.epsilon_upper < ready.guarantee.epsilon_upper for move in found.moves[:1])
    assert set(shown["words"]) <= set(words_of(release))
    assert len(shown["words"]) >= 5


def test_other_releases_say_nothing_of_distances() -> None:
    """Planted: an empty metric for none -> fails."""
    world = make_world(name="where", domain=TOWN, min_batch=1_000, target_epsilon=3.0)
    made = world.batch([bytes(world.row_size())], window=0)
    batch = Batch(made.manifest, made.manifest_hash, BatchState.PROCESSING)
    ready = prepare(world.served, batch, Opened(Tally(np.full(13, 100), 1_300), {}))
    release = to_json(decode_release(conclude(ready, (), world.analyzer).release))
    assert "metric" not in release["privacy"]
