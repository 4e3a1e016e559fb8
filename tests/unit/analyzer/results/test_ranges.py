"""Ranges that are asked of a release afterwards: in bytes, JSON, Python and on the terminal."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

import shoal
from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.core import BatchState
from shoal.analyzer.results.ranges import mean_stderr, range_of, ranges_message
from shoal.analyzer.results.release import conclude, prepare
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.arrays import NDArray, np
from shoal.cli.main import main
from shoal.domain import Categories, Domain, Numeric
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally
from shoal.mechanisms.base import Z
from shoal.mechanisms.noise.exact import SmallSampler
from shoal.mechanisms.noise.skellam import Poisson
from shoal.mechanisms.several.noise_law import RATE_BITS
from shoal.mechanisms.several.ranges import Ranges
from shoal.mechanisms.several.registry import create
from tests.cases import for_each
from tests.sizes import size
from tests.unit.analyzer.results.test_release import batch_of
from tests.unit.analyzer.results.test_release_files import WRONG, _places, write
from tests.worlds.services.analyzer import World, several_world
from tests.worlds.tapes import Poured

Capture = pytest.CaptureFixture[str]
N = 2_000
BINS = Categories(tuple(f"from {at}" for at in range(0, 390, 10)), tuple(range(0, 390, 10)))
LEVELS = Numeric(0.0, 1.0, 39)  # steps of 0.0263158


def world_of(domain: Domain) -> World:
    return several_world("ranges", domain=domain, min_batch=1_500)


def mechanism_of(world: World) -> Ranges:
    made = create(world.task.mechanism, world.task.domain)
    assert isinstance(made, Ranges)
    return made


def tally_of(made: Ranges) -> tuple[Tally, NDArray[np.int64]]:
    """Of N devices, with the mean of the noise in each node but one of the second level; and how
    many are in each cell.
    """
    held = np.bincount(np.arange(N) * 7 % 53 % made.tree.cells, minlength=made.tree.cells)
    rate = made.noise.rates()[0].weight * N / 2**64
    counts = np.full(made.tree.nodes, round(rate))
    for cell, count in enumerate(held.tolist()):
        counts[list(made.tree.path(cell))] += count
    counts[made.tree.cells + 2] += 40
    return Tally(counts, int(counts.sum())), held


def released(world: World) -> dict[str, Any]:
    tally, _ = tally_of(mechanism_of(world))
    ready = prepare(world.served, sized(world), Opened(tally, {}))
    return to_json(decode_release(conclude(ready, [], world.analyzer).release))


def sized(world: World) -> Any:
    """A batch of N reports."""
    rows = [bytes(world.row_size())] * N
    store_batch = world.batch(rows, reports=N)
    return type(batch_of(world))(
        store_batch.manifest, store_batch.manifest_hash, BatchState.PROCESSING
    )


@for_each("domain", [BINS, LEVELS])
def test_a_range_is_the_sum_of_its_cells_and_errs_as_the_mechanism_says(domain: Domain) -> None:
    """Every range, from the JSON alone, against the mechanism with its tally. Planted: an end
    counted that is not in it; standard errors of the cells in place of the whole's -> fails; of
    levels the last one left out -> fails.
    """
    world = world_of(domain)
    made, release = mechanism_of(world), released(world)
    starts, values = release["ranges"]["starts"], [row["value"] for row in release["estimates"]]
    assert len(starts) == len(values) - 1
    assert sum(values) == pytest.approx(N)
    rounded = isinstance(domain, Numeric)
    for first, end in [(0, 5), (3, 4), (7, 31), (0, len(starts)), (20, len(starts))]:
        high = starts[end - 1] if rounded else None if end == len(starts) else starts[end]
        found = range_of(release, starts[first], high)
        assert found.value == pytest.approx(sum(values[first:end]))
        at, to = (np.array([each], dtype=np.int64) for each in (first, end))
        noise = float(made.stderr_of_ranges(N, at, to)[0])
        near = [values[edge - 1] + values[edge] for edge in (first, end) if 0 < edge < len(starts)]
        drawn = sum(near) / 4 if rounded else 0.0
        assert found.stderr == pytest.approx(math.sqrt(noise**2 + drawn))
        assert found.ci_high - found.value == pytest.approx(Z * found.stderr)
        assert (found.low, found.high) == (starts[first], high)
    assert mean_stderr(release["ranges"]) == pytest.approx(made.range_stderr(N))
    whole = range_of(release, starts[0], None)
    assert whole.value == pytest.approx(sum(values[:-1]))


def test_what_rounding_adds_covers_numbers_between_levels() -> None:
    """All of 500 devices half way between the last level of a range and the next: the count in it
    has a variance of 125, and all that is on both levels is 500. Planted: nothing added -> fails.
    """
    release = released(world_of(LEVELS))
    for row in release["estimates"]:
        row["value"] = 0.0
    release["estimates"][8]["value"], release["estimates"][9]["value"] = 230.0, 270.0
    release["ranges"]["node_stderr"] = 0.0
    starts = release["ranges"]["starts"]
    assert range_of(release, starts[0], starts[8]).stderr == pytest.approx(math.sqrt(125.0))
    assert range_of(release, starts[0], starts[20]).stderr == 0.0


def test_intervals_over_levels_hold_numbers_between_them() -> None:
    """The answers stay, rounding and noise are drawn anew in each batch: intervals of ranges hold
    what lies in them, numbers beside an end counted by how near they are, in 94 % or more; with so
    many devices near an end that rounding is most of the error. False alarm 1e-6 (a binomial number
    of the ranges of one kind). Planted: nothing added for rounding -> fails.
    """
    world = world_of(LEVELS)
    made, entropy = mechanism_of(world), Poured(SeededEntropy("between"))
    quiet = replace(made, noise=replace(made.noise, dummies=Fraction(1, 1 << 12)))
    places = np.where(np.arange(N) % 4 == 0, np.arange(N) % 38 + 0.25, 8.5)
    rate = Fraction(quiet.noise.rates()[0].weight * N, 1 << RATE_BITS)
    sampler, held, runs = SmallSampler(Poisson(rate)), dict.fromkeys((8, 20), 0), size(80, 800)
    for _ in range(runs):
        cells = np.floor(places).astype(np.int64)
        up = np.asarray(entropy.words(N), dtype=np.uint64) < ((places - cells) * 2.0**64).astype(
            np.uint64
        )
        counts = np.zeros(quiet.tree.nodes, dtype=np.int64)
        for cell, count in enumerate(np.bincount(cells + up, minlength=40).tolist()):
            counts[list(quiet.tree.path(cell))] += count
        counts += np.array([sampler.draw(entropy) for _ in counts])
        estimate = quiet.estimate(Tally(counts, int(counts.sum())), N)
        message = ranges_message(quiet, N)
        starts = list(message.starts)
        shown = {
            "name": "x",
            "window": 0,
            "estimates": [
                {"label": label, "value": value}
                for label, value in zip(estimate.labels, estimate.values.tolist(), strict=True)
            ],
            "ranges": {
                "base": message.base,
                "levels": message.levels,
                "node_stderr": message.node_stderr,
                "starts": starts,
                "rounded": True,
            },
        }
        for last in held:
            found = range_of(shown, starts[0], starts[last])
            truth = float(np.clip(last + 1.0 - places, 0.0, 1.0).sum())
            held[last] += found.ci_low <= truth <= found.ci_high
    assert min(held.values()) >= stats.binom.ppf(1e-6, runs, 0.94), held


def test_ends_are_found_as_people_type_them() -> None:
    """As a label shows a level, or in fewer digits than it has. Planted: equality wanted -> fails;
    the nearest one taken, however far -> fails.
    """
    release = released(world_of(LEVELS))
    starts = release["ranges"]["starts"]
    for typed in (0.0263158, 0.0263, float(release["estimates"][1]["label"])):
        assert range_of(release, typed, None).low == starts[1]
    with pytest.raises(ShoalError, match=r"begins at one of the 39 cells .* give 0.0263157.* or 0"):
        range_of(release, 0.03, None)
    with pytest.raises(ShoalError, match=r"ends at one of the 39 cells .*got 7: give 0.97.* or 1"):
        range_of(release, 0.0, 7.0)


def test_what_cannot_be_asked_is_refused() -> None:
    """Planted: each of the conditions left out -> its line fails."""
    release = released(world_of(BINS))
    with pytest.raises(ShoalError, match="a range ends above its beginning, got 30 to 20"):
        range_of(release, 30, 20)
    with pytest.raises(ShoalError, match="a range begins at a number"):
        range_of(release, math.nan, 20)
    with pytest.raises(ShoalError, match="got 35: give 30 or 40"):
        range_of(release, 0, 35)
    bare = {key: value for key, value in release.items() if key != "ranges"}
    with pytest.raises(ShoalError, match="no ranges can be asked of it") as caught:
        range_of(bare, 0, 20)
    assert caught.value.kind is Kind.CONFIG
    with pytest.raises(ShoalError, match="an estimate for every cell"):
        range_of({**release, "estimates": release["estimates"][1:]}, 0, 20)


def test_a_release_tells_its_quantiles_and_withheld_it_tells_nothing() -> None:
    """Planted: quantiles of bins left out -> fails; ranges of a withheld release -> fails."""
    for domain in (BINS, LEVELS):
        world = world_of(domain)
        release = released(world)
        assert [row["share"] for row in release["quantiles"]][3] == 0.5
        assert ("distribution" in release) == isinstance(domain, Numeric)
        tally, _ = tally_of(mechanism_of(world))
        ready = prepare(world.served, batch_of(world), Opened(tally, {}))
        message = decode_release(conclude(ready, [], world.analyzer).release)
        small = to_json(message)
        assert small["withheld"]
        assert not message.HasField("ranges")
        assert not {"ranges", "quantiles", "distribution"} & set(small)


@pytest.fixture
def data(tmp_path: Path) -> str:
    """An analyzer's folder with one release."""
    world = world_of(BINS)
    store = AnalyzerStore(tmp_path / FILE_NAME)
    finish(store, world, 0)
    store.close()
    return str(tmp_path)


def finish(store: AnalyzerStore, world: World, window: int) -> None:
    rows = [bytes(world.row_size())] * N
    batch = store.accept(world.batch(rows, window, reports=N).manifest_bytes)
    store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
    ready = prepare(world.served, batch, Opened(tally_of(mechanism_of(world))[0], {}))
    assert store.finish(batch, lambda earlier: conclude(ready, earlier, world.analyzer))


def test_of_several_windows_one_is_named(tmp_path: Path, capsys: Capture) -> None:
    """Planted: the first one taken -> fails."""
    world, store = world_of(BINS), AnalyzerStore(tmp_path / FILE_NAME)
    for window in (0, 1):
        finish(store, world, window)
    store.close()
    assert main(["results", "range", "visits", "100", "--data", str(tmp_path)]) == 2
    assert "visits has several windows (0, 1): give one, as visits:0" in capsys.readouterr().err
    assert main(["results", "range", "visits:1", "100", "--data", str(tmp_path)]) == 0
    assert "visits, window 1: " in capsys.readouterr().out


def test_the_command_and_python_say_the_same(data: str, tmp_path: Path, capsys: Capture) -> None:
    """Of a store, and of an exported file. Planted: the first window taken whatever was asked ->
    fails; the interval of the first cell -> fails.
    """
    assert main(["results", "range", "visits:0", "100", "200", "--data", data, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["window"], told["n"]) == ("visits", 0, N)
    assert (told["low"], told["high"]) == (100.0, 200.0)
    file = tmp_path / "a.json"
    assert main(["results", "export", "--data", data, "--out", str(file)]) == 0
    capsys.readouterr()
    for where in (data, file):
        found = shoal.read_release(where).range("visits", 100, 200)
        assert found.to_json() == {
            key: told[key] for key in ("low", "high", "value", "stderr", "ci_low", "ci_high")
        }
    assert main(["results", "range", "visits", "100", "--data", data]) == 0
    shown = capsys.readouterr().out
    assert "visits, window 0: from 100 on: " in shown
    assert f"of {N:,} devices, standard error " in shown
    assert main(["results", "show", "visits", "--data", data]) == 0
    assert "shoal results range visits:0 0 380 asks for any" in capsys.readouterr().out
    assert main(["results", "range", "visits:1", "0", "--data", data]) != 0
    assert main(["results", "range", "visits:0", "105", "--data", data]) == 2
    assert "give 100 or 110" in capsys.readouterr().err
    with pytest.raises(shoal.study.arguments.ArgumentValueError, match="range: a range begins at"):
        shoal.read_release(data).range("visits", 105)
    with pytest.raises(TypeError, match="low: "):
        shoal.read_release(data).range("visits", "105")  # type: ignore[arg-type] # on purpose


def test_no_wrong_value_of_a_file_reaches_a_range(tmp_path: Path) -> None:
    """Each value of the part replaced by something else, or left out: refused in one line when the
    file is read, or good enough. Planted: ``levels`` not looked at -> a hierarchy that there is
    not, fails.
    """
    release = released(world_of(BINS))
    for at in range(len(_places(release["ranges"]))):
        for wrong in [*WRONG[:-1], 10**9, 0]:
            changed = json.loads(json.dumps(release))
            parent, key = _places(changed["ranges"])[at]
            parent[key] = wrong
            read_or_refused(write(tmp_path, changed))
        missing = json.loads(json.dumps(release))
        parent, key = _places(missing["ranges"])[at]
        if isinstance(parent, dict):
            del parent[key]
            read_or_refused(write(tmp_path, missing))


def read_or_refused(file: Path) -> None:
    try:
        table = shoal.read_release(file)
    except ShoalError as error:
        told = str(error)
    else:
        told = "ranges"
        table.range("visits:0", table.releases[0]["ranges"]["starts"][0])
    assert "ranges" in told
    assert "\n" not in told
