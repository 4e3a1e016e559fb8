"""What is shown beside the raw estimates: a function of the signed bytes, absent where there is
nothing, and never in their place.
"""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.results.postprocess import readable
from shoal.analyzer.results.processed import (
    ALL_CELLS,
    NO_CELLS,
    SOME_CELLS,
    counted_cells,
    distribution_of,
    readable_note,
)
from shoal.analyzer.results.release import conclude, prepare
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.domain import Categories, Numeric, Words
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Estimate, Tally, create, design
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.numbers.distribution import Distribution
from shoal.mechanisms.parts.tables import MEAN_OF_ALL
from shoal.protos import release_pb2
from tests.cases import for_each
from tests.unit.analyzer.results.test_release import batch_of
from tests.worlds.services.analyzer import World, make_world

N = 1_500
CELLS = make_world(min_batch=1_000, domain=Categories(("a", "b", "c", "mean")))
NUMBER = make_world(min_batch=1_000, domain=Numeric(0, 20, 5), mechanism="kmean")


def made(world: World, n: int = N) -> release_pb2.Release:
    """Uneven, with cells below chance: raw estimates below 0."""
    cells = world.task.domain.size
    counts = np.zeros(cells, dtype=np.int64)
    counts[:2] = 2 * n // 3, n - 2 * n // 3
    ready = prepare(world.served, batch_of(world), Opened(Tally(counts, n), {}))
    return decode_release(conclude(ready, [], world.analyzer).release)


def test_counts_are_whole_and_add_up_and_the_estimates_stay() -> None:
    """Planted: n - 1 for n -> this fails; estimates replaced by counts -> this fails."""
    release = made(CELLS)
    assert release.counts == ALL_CELLS
    shown = to_json(release)
    raw = np.array([row["value"] for row in shown["estimates"]])
    assert raw.min() < 0
    assert raw.tolist() == [row.value for row in release.estimates]
    processed = shown["processed"]
    assert min(processed["counts"]) >= 0
    assert sum(processed["counts"]) == processed["total"] == N
    assert processed["counts"] == readable(raw, N).tolist()
    assert "norm-sub" in processed["method"]
    assert "sums are made of the estimates" in processed["note"]
    assert "add up estimates" in readable_note(processed)
    assert readable_note({"note": "of a later version"}) == "of a later version"
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown


def test_releases_from_before_have_counts_too() -> None:
    """Without the word: cells, but for means. Planted: nothing for an empty word -> this fails."""
    old = made(make_world(min_batch=1_000))
    old.ClearField("counts")
    assert sum(to_json(old)["processed"]["counts"]) == N
    mean = made(NUMBER)
    mean.ClearField("counts")
    mean.ClearField("distribution")
    assert {"processed", "distribution"}.isdisjoint(to_json(mean))


def test_a_distribution_survives_the_bytes() -> None:
    mechanism = create(NUMBER.task.mechanism, NUMBER.task.domain)
    tally = Tally(np.array([1_000, 500, 0, 0, 0, 0]), N)
    expected = distribution_of(mechanism, tally)
    assert expected is not None
    shown = to_json(made(NUMBER))
    assert shown["distribution"]["shares"] == expected.shares.tolist()
    assert shown["distribution"]["edges"] == expected.edges.tolist()
    assert shown["distribution"]["quantiles"] == {
        f"{q:g}": expected.quantile(q) for q in (0.25, 0.5, 0.75, 0.9)
    }
    assert shown["distribution"]["answered"] == expected.answered
    assert made(NUMBER).counts == NO_CELLS
    assert "processed" not in shown
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown


@pytest.mark.parametrize("world", [CELLS, NUMBER], ids=["cells", "number"])
def test_nothing_of_a_withheld_release(world: World) -> None:
    """Neither in the bytes nor shown; not even of one that says withheld and has figures all the
    same. Planted: the check of ``withheld`` left out, here or in ``prepare`` -> this fails.
    """
    release = made(world, 999)
    assert release.withheld
    assert not release.estimates
    assert not release.HasField("distribution")
    assert release.counts == ""
    forged = made(world)
    forged.withheld = "too few"
    for shown in (to_json(release), to_json(forged)):
        assert {"processed", "distribution"}.isdisjoint(shown)


def test_words_that_may_be_noise_are_zero() -> None:
    """An open vocabulary: what is listed is not all, so nothing is made to add up to n. Planted:
    ``readable`` for some cells -> fails.
    """
    words = Words(("tea", "coffee", "milk"))
    estimate = Estimate.wald(words.labels, np.array([400.2, 44.0, -3.0, 10.0]), np.full(4, 20.0))
    assert counted_cells(estimate, words) == SOME_CELLS
    assert counted_cells(estimate, Categories(("tea", "coffee", "milk"))) == ALL_CELLS
    release = release_pb2.Release(n=2_000, counts=SOME_CELLS)
    release.estimates.extend(
        release_pb2.Estimate(label=label, value=value, stderr=20.0)
        for label, value in zip(words.labels, estimate.values, strict=True)
    )
    processed = to_json(release)["processed"]
    # one of four words that nobody has passes 2.24 errors, 44.8, in one of twenty releases
    assert processed["counts"] == [400, 0, 0, 0]
    assert processed["total"] == 400
    assert "base-cut" in processed["method"]


@for_each("value", [math.nan, math.inf, -math.inf, 1e308])
@for_each("word", [ALL_CELLS, SOME_CELLS, ""])
def test_figures_that_no_mechanism_gives_are_shown_as_they_are(value: float, word: str) -> None:
    """A release of a strange analyzer, and a total that floats can't hold: no error, and counts
    only if they add up.
    """
    release = release_pb2.Release(n=2**64 - 1, counts=word)
    release.estimates.extend(
        [
            release_pb2.Estimate(label="a", value=value),
            release_pb2.Estimate(label="b", value=1.0, stderr=math.nan),
        ]
    )
    assert "processed" not in to_json(release)
    release = made(CELLS)
    release.counts = "cells of another planet"
    assert "processed" not in to_json(release)


@for_each(
    "hostile",
    [
        {"edges": [0.0, 1.0], "shares": [], "method": "m"},
        {"edges": [0.0, 1.0], "shares": [0.5], "method": "m"},
        {"edges": [1.0, 0.0], "shares": [1.0], "method": "m"},
        {"edges": [0.0, math.nan], "shares": [1.0], "method": "m"},
        {"edges": [-1.7e308, 0.0, 1.7e308], "shares": [0.5, 0.5], "method": "m"},
        {"edges": [0.0, 1.0], "shares": [1.0], "method": ""},
        {"edges": [0.0, 1.0], "shares": [1.0], "method": "m", "answered": 2.0},
        {},
    ],
)
def test_a_distribution_that_is_none_is_left_out(hostile: dict[str, object]) -> None:
    release = made(NUMBER)
    # any of the fields
    release.distribution.CopyFrom(release_pb2.Distribution(**hostile))  # type: ignore[arg-type]
    assert "distribution" not in to_json(release)


@dataclasses.dataclass(frozen=True, slots=True)
class Moody(KaryResponse):
    def distribution(self, tally: Tally) -> Distribution:
        raise ShoalError(Kind.INVALID, "not today")


def test_a_distribution_that_fails_keeps_no_batch_from_its_release() -> None:
    """Planted: the refusal let through -> the batch could never be finished, and this fails."""
    domain = Categories(("a", "b"))
    spec = design("krr", domain, 1.0)
    assert (
        distribution_of(Moody(domain.labels, spec.get("uniform")), Tally(np.array([1, 1, 1]), 3))
        is None
    )
    # tells none
    assert distribution_of(create(spec, domain), Tally(np.array([1, 1, 1]), 3)) is None


def test_what_the_word_is() -> None:
    cells, other = Categories(("a", "b")), Estimate.wald((MEAN_OF_ALL,), np.zeros(1), np.ones(1))
    assert counted_cells(None, cells) == NO_CELLS
    assert counted_cells(other, Numeric(0, 1, 2)) == NO_CELLS


def test_sums_of_devices_are_not_touched() -> None:
    """Totals by secure aggregation have no cells. Planted: the check of ``rounds`` left out -> this
    fails.
    """
    release = made(CELLS)
    release.rounds.rounds = 1
    assert "processed" not in to_json(release)


def test_readable_refuses_what_floats_cannot_add() -> None:
    """From 2^53 on, and below where the floats' rounding adds up to a device. Planted: the sum not
    checked -> this fails.
    """
    total = (1 << 52) + 1
    for values, many in (
        (np.array([1.0, 2.0]), 1 << 53),
        (np.array([total / 3, total / 7, total / 11]), total),
    ):
        with pytest.raises(ShoalError) as error:
            readable(values, many)
        assert error.value.kind is Kind.INVALID
