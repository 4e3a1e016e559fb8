"""Memoized tasks at the analyzer: the ordinary figure for one window, epsilon0 for all of them from
the second on, never a composed one.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.accounting import guaranteed
from shoal.accounting.accountant import FRESH
from shoal.accounting.composition.compose import compose, compose_memoized
from shoal.accounting.composition.losses import pure_law
from shoal.accounting.composition.memoized import (
    ALONE,
    ALONE_KEPT,
    FORGOTTEN,
    PROMISE,
    PROMISE_KEPT,
    REPEATED,
    REPEATED_KEPT,
)
from shoal.accounting.lint import servable
from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.core import Batch, BatchState
from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.results.cumulative import COMPOSED, COMPOSED_MEMOIZED, compose_spendings
from shoal.analyzer.results.release import (
    MEMOIZED_UNIT,
    OPEN_ADMISSION,
    Prepared,
    conclude,
    prepare,
    prepare_expired,
)
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.results.report_page import render_report
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.approximate import GaussianLaw
from shoal.cli.main import main
from shoal.entropy import SeededEntropy
from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.mechanisms import Tally, create, design
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.privacy import epsilon0_upper
from tests.cases import for_each
from tests.worlds.services.analyzer import World, make_task

MIN, WINDOWS = 1_000, 4
WORLD = World(replace(make_task(min_batch=MIN, target_epsilon=2.0, windows=WINDOWS), memoized=True))
FRESH_WORLD = World(make_task(name="anew", min_batch=MIN, target_epsilon=2.0, windows=WINDOWS))
LAW = WORLD.mechanism.privacy()
ALONE_EPSILON = guaranteed(LAW, MIN, Fraction(9, 10), WORLD.task.delta).epsilon_upper
EPSILON0 = guaranteed(LAW, MIN, Fraction(9, 10), WORLD.task.delta).epsilon0


def batch_of(world: World, window: int) -> Batch:
    made = world.batch([bytes(world.row_size())], window=window)
    return Batch(made.manifest, made.manifest_hash, BatchState.PROCESSING)


def prepared(window: int = 0, n: int = MIN, world: World = WORLD) -> Prepared:
    counts = np.bincount(np.arange(n) % 7, minlength=7)
    return prepare(world.served, batch_of(world, window), Opened(Tally(counts, n), {}))


def outcome(window: int, earlier: Sequence[Spending] = (), **more: Any) -> WindowOutcome:
    one = prepared(window, **more)
    return conclude(one, earlier, WORLD.analyzer)


def shown(made: WindowOutcome) -> dict[str, Any]:
    return to_json(decode_release(made.release))


def in_order(*steps: tuple[World, int, int]) -> list[dict[str, Any]]:
    """Releases of (world, window, n), each after all before it."""
    earlier: list[Spending] = []
    found = []
    for world, window, n in steps:
        made = outcome(window, earlier, n=n, world=world)
        earlier.append(made.spending)
        found.append(shown(made))
    return found


def test_one_window_has_the_ordinary_figure_and_says_what_will_become_of_it() -> None:
    privacy = in_order((WORLD, 2, MIN))[0]["privacy"]
    assert privacy["epsilon_upper"] == privacy["epsilon_cumulative_upper"] == ALONE_EPSILON
    assert privacy["delta_cumulative"] == WORLD.task.delta
    assert privacy["memoized"] == {"lifetime_epsilon": EPSILON0, "windows": 1}
    assert privacy["unit"] == MEMOIZED_UNIT
    for line in (REPEATED, ALONE, PROMISE, FORGOTTEN, COMPOSED, COMPOSED_MEMOIZED):
        assert line in privacy["assumptions"]
    assert FRESH not in privacy["assumptions"]


@pytest.mark.parametrize("n", [MIN, MIN - 1, 1])
def test_from_the_second_window_on_it_is_epsilon0_for_ever(n: int) -> None:
    """Also if a window was withheld: it was opened. Planted: the windows' own laws composed -> a
    figure far below epsilon0, this fails.
    """
    releases = in_order((WORLD, 0, n), (WORLD, 1, MIN), (WORLD, 2, MIN), (WORLD, 3, n))
    assert 2 * ALONE_EPSILON < EPSILON0
    for number, release in enumerate(releases[1:], start=2):
        privacy = release["privacy"]
        assert privacy["epsilon_cumulative_upper"] == privacy["epsilon0"] == EPSILON0
        assert (
            privacy["epsilon_cumulative_upper"]
            == compose_memoized(EPSILON0, (), WORLD.task.delta).epsilon_upper
        )
        assert privacy["delta_cumulative"] == 0.0
        assert privacy["memoized"] == {"lifetime_epsilon": EPSILON0, "windows": number}
        assert (privacy["windows_composed"], privacy["tasks_composed"]) == (number, 1)
        # of this window alone, which the unit says
        assert privacy["epsilon_upper"] == ALONE_EPSILON
        assert "seen alone" in privacy["unit"]


def test_a_window_that_expired_unopened_counts_as_a_window() -> None:
    """Planted: ``lifetime`` left out of expired batches -> the next window would look like the
    first, and this fails.
    """
    first = prepare_expired(WORLD.served, batch_of(WORLD, 0)).charge
    privacy = shown(outcome(1, [first]))["privacy"]
    assert privacy["epsilon_cumulative_upper"] == EPSILON0
    assert privacy["memoized"]["windows"] == 2


@pytest.mark.parametrize("n", [0, MIN - 1])
def test_windows_of_a_fresh_task_that_end_withheld_add_up(n: int, tmp_path: Path) -> None:
    """Each window drew anew: expired ones (n = 0) and small ones are charged each, as the store has
    them, not once for all.

    Planted: the lifetime of a task that is not memoized in ``prepare_expired``, or in ``prepare``
    -> two windows compose to one epsilon0, and this fails.
    """
    store = AnalyzerStore(tmp_path / FILE_NAME)
    charges: list[Spending] = []
    for window in range(3):
        made = FRESH_WORLD.batch([bytes(FRESH_WORLD.row_size())], window=window)
        batch = store.accept(made.manifest_bytes)
        store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
        one = prepared(window, n, FRESH_WORLD) if n else prepare_expired(FRESH_WORLD.served, batch)
        charges.append(one.charge)
        assert store.finish(
            batch,
            lambda earlier, one=one: conclude(one, earlier, FRESH_WORLD.analyzer),  # type: ignore[misc]
        )
    privacy = to_json(decode_release(store.releases()[-1].release))["privacy"]
    assert [spending.lifetime for spending in (*charges, *store.spendings())] == [None] * 6
    assert privacy["delta_cumulative"] == pytest.approx(3 * FRESH_WORLD.task.delta)
    together = compose(
        [(pure_law(one.epsilon_upper, one.delta), 1) for one in charges],
        privacy["delta_cumulative"],
    )
    wanted = min(sum(one.epsilon_upper for one in charges), together.epsilon_upper)
    assert privacy["epsilon_cumulative_upper"] == pytest.approx(wanted)
    assert privacy["epsilon_cumulative_upper"] > 2 * charges[0].epsilon_upper
    assert "memoized" not in privacy
    assert COMPOSED_MEMOIZED not in privacy["assumptions"]
    store.close()


@for_each("memoized", [True, False])
@for_each("expired", [True, False])
def test_which_assumptions_a_release_stands_on(memoized: bool, expired: bool) -> None:
    """All of them, and no others: what is said of a memoized task is said of every window, and of
    no task that draws anew.

    Planted: any of ALONE, PROMISE, FORGOTTEN or admission left out; FRESH kept beside REPEATED; the
    certificate's own lines dropped; the memoized lines for every task -> each fails.
    """
    world = WORLD if memoized else FRESH_WORLD
    one = prepare_expired(world.served, batch_of(world, 0)) if expired else prepared(world=world)
    found = shown(conclude(one, [], world.analyzer))["privacy"]["assumptions"]
    own = [REPEATED if memoized and line == FRESH else line for line in one.guarantee.assumptions]
    assert expired or {REPEATED, FRESH} & set(own) == {REPEATED if memoized else FRESH}
    wanted = [*own, OPEN_ADMISSION, COMPOSED]
    if memoized:
        wanted += [ALONE, PROMISE, FORGOTTEN, COMPOSED_MEMOIZED]
    assert sorted(found) == sorted(wanted)


def test_across_tasks_epsilon0_enters_once_and_other_tasks_as_ever() -> None:
    """Planted: the memoized task left out of the others' releases -> below; its epsilon0 once per
    window -> above: this fails.
    """
    other = prepared(0, world=FRESH_WORLD).charge
    releases = in_order(
        (FRESH_WORLD, 0, MIN),
        (WORLD, 0, MIN),
        (WORLD, 1, MIN),
        (FRESH_WORLD, 1, MIN),
        (WORLD, 2, MIN),
    )
    last = releases[3]["privacy"]  # of the task that is not memoized
    assert "memoized" not in last
    assert last["unit"] != MEMOIZED_UNIT
    assert COMPOSED_MEMOIZED in last["assumptions"]
    assert PROMISE not in last["assumptions"]
    assert (
        EPSILON0
        < last["epsilon_cumulative_upper"]
        <= (EPSILON0 + 2 * other.epsilon_upper) * (1 + 1e-12)
    )
    assert last["delta_cumulative"] == pytest.approx(2 * FRESH_WORLD.task.delta, rel=1e-12)
    # Another window of the memoized task adds nothing.
    assert releases[4]["privacy"]["epsilon_cumulative_upper"] == last["epsilon_cumulative_upper"]
    assert releases[4]["privacy"]["memoized"]["windows"] == 3
    assert (
        releases[4]["privacy"]["windows_composed"],
        releases[4]["privacy"]["tasks_composed"],
    ) == (5, 2)


def test_two_memoized_tasks_add_up() -> None:
    one, two = (Spending(TaskId(bytes([i]) * 32), 0.1, 1e-6, None, 1.0 + i) for i in (1, 2))
    composed = compose_spendings([one, two, one, two, two])
    assert composed.epsilon_upper == 5.0
    assert composed.delta == 0.0
    assert composed.count == 5
    # With a task that has a delta their losses compose, and never to more than the sum, nor to less
    # than the larger.
    third = Spending(TaskId(bytes(32)), 0.5, 1e-6)
    with_delta = compose_spendings([one, two, one, two, third]).epsilon_upper
    laws = [(pure_law(2.0), 1), (pure_law(3.0), 1), (pure_law(0.5, 1e-6), 1)]
    assert with_delta == min(5.5, compose(laws, 1e-6).epsilon_upper)
    assert 3.0 < with_delta <= 5.5


def test_the_order_of_windows_and_tasks_changes_nothing() -> None:
    memoized = [Spending(WORLD.task_id, 0.1 * i, 1e-6, None, 2.5) for i in (1, 2)]
    single = Spending(TaskId(bytes([9]) * 32), 0.3, 1e-7, None, 4.0)
    fresh = Spending(TaskId(bytes(32)), 0.2, 1e-6)
    found = {
        compose_spendings(order) for order in itertools.permutations([*memoized, single, fresh])
    }
    assert {round(one.epsilon_upper, 9) for one in found} == {
        round(compose_spendings([*memoized, single, fresh]).epsilon_upper, 9)
    }
    # the one window of ``single`` at its own figure
    assert max(one.epsilon_upper for one in found) <= (2.5 + 0.3 + 0.2) * (1 + 1e-12)


def test_deltas_that_add_up_to_one_keep_epsilon0_in_the_sum() -> None:
    spendings = [Spending(WORLD.task_id, 0.1, 1e-6, None, 2.5)] * 2 + [
        Spending(TaskId(bytes(32)), 0.1, 0.6)
    ] * 2
    composed = compose_spendings(spendings)
    assert composed.delta == 1.0
    assert composed.epsilon_upper == pytest.approx(2.7)


# --- the store ------------------------------------------------------------------------------------


def test_a_restart_forgets_nothing_of_it(tmp_path: Path) -> None:
    """The task's file is not needed. Planted: the column not read -> two windows composed as fresh
    ones, and this fails.
    """
    path = tmp_path / FILE_NAME
    for window in (0, 1):
        store = AnalyzerStore(path)
        made = WORLD.batch([bytes(WORLD.row_size())], window=window)
        batch = store.accept(made.manifest_bytes)
        store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
        one = prepared(window)
        assert store.finish(batch, lambda earlier, one=one: conclude(one, earlier, WORLD.analyzer))  # type: ignore[misc]
        store.close()
    store = AnalyzerStore(path)
    spendings = store.spendings()
    assert [spending.lifetime for spending in spendings] == [EPSILON0, EPSILON0]
    assert compose_spendings(spendings).epsilon_upper == EPSILON0
    last = to_json(decode_release(store.releases()[-1].release))
    assert last["privacy"]["epsilon_cumulative_upper"] == EPSILON0
    store.close()


def test_a_store_of_the_version_before_is_brought_up_to_date(tmp_path: Path) -> None:
    """What it holds was fresh randomness, and stays so, byte for byte."""
    path = tmp_path / FILE_NAME
    store = AnalyzerStore(path)
    store.close()
    db = sqlite3.connect(path)
    db.execute(
        "INSERT INTO releases (task_id, window, release, signature, epsilon, delta) VALUES (?, 0, "
        "?, ?, 0.25, 1e-6)",
        (bytes(32), b"r", bytes(64)),
    )
    for table in ("batches", "releases", "tallies", "acks", "sums", "aborted_rounds"):
        db.execute(f"ALTER TABLE {table} DROP COLUMN digest")
    db.execute("DROP TABLE signer")
    db.execute("ALTER TABLE sums DROP COLUMN head")
    db.execute("ALTER TABLE releases DROP COLUMN lifetime")
    db.execute("PRAGMA user_version = 2")
    db.commit()
    db.close()
    with pytest.raises(ShoalError, match="another version"):
        AnalyzerStore(path, read_only=True)
    store = AnalyzerStore(path)
    assert store.damage() == []
    assert store.spendings() == [Spending(TaskId(bytes(32)), 0.25, 1e-6)]
    assert store.releases()[0].release == b"r"
    store.close()


# --- refusals -------------------------------------------------------------------------------------


def test_the_analyzer_refuses_a_task_that_cannot_be_memoized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the check left out of the tasks folder -> served, and this fails."""
    WORLD.write(tmp_path)
    authorities = {WORLD.authority.public}
    assert len(AnalyzerTasks(tmp_path / "tasks", authorities, WORLD.analyzer.public).all()) == 1

    class Unbounded:
        name, messages, report_size = "unbounded", 1, WORLD.task.report_size

        def privacy(self) -> Any:
            return GaussianLaw(1.0, 1.0)

    monkeypatch.setattr(servable, "create_any", lambda *_: Unbounded())
    tasks = AnalyzerTasks(tmp_path / "tasks", authorities, WORLD.analyzer.public)
    assert not tasks.all()
    assert ["no finite epsilon0" in one.message for one in tasks.conditions()] == [True]


# --- what people read -----------------------------------------------------------------------------


def write_store(folder: Path, windows: int) -> None:
    store = AnalyzerStore(folder / FILE_NAME)
    for window in range(windows):
        made = WORLD.batch([bytes(WORLD.row_size())], window=window)
        batch = store.accept(made.manifest_bytes)
        store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
        one = prepared(window)
        store.finish(batch, lambda earlier, one=one: conclude(one, earlier, WORLD.analyzer))  # type: ignore[misc]
    store.close()


def test_results_show_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``list`` has one number: no window of several is shown with its own. Planted: epsilon_upper
    there -> this fails.
    """
    write_store(tmp_path, 2)
    assert main(["results", "show", "visits:1", "--data", str(tmp_path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "seen alone: central epsilon <=" in text
    assert PROMISE in text
    assert "the 2 windows opened so far promise epsilon <= 3" in text
    assert main(["results", "list", "--data", str(tmp_path)]) == 0
    rows = [
        line.split()
        for line in capsys.readouterr().out.splitlines()
        if WORLD.task_id.hex[:8] in line
    ]
    assert [(row[5], row[6]) for row in rows] == [("3", "3")] * 2


def test_results_of_one_window_show_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_store(tmp_path, 1)
    assert main(["results", "list", "--data", str(tmp_path)]) == 0
    row = next(
        line.split()
        for line in capsys.readouterr().out.splitlines()
        if WORLD.task_id.hex[:8] in line
    )
    assert float(row[5]) < 1.0


def test_the_page_says_it_before_the_rest() -> None:
    releases = in_order((WORLD, 0, MIN), (WORLD, 1, MIN))
    page = render_report(releases)
    assert "memoized: windows opened" in page
    assert PROMISE in page
    assert "together epsilon &le; 3 for an unchanged value" in page
    assert "each\nfurther distinct value of one adds its epsilon0" in page
    assert "memoized" not in render_report(in_order((FRESH_WORLD, 0, MIN)))


@pytest.mark.parametrize("name", ["l_unary", "dbitflip"])
def test_releases_of_a_mechanism_with_a_memory_state_both_epsilons(name: str) -> None:
    """One window: the figures of one report. Two: the lifetime epsilon for all of them, also of a
    batch that was never opened.

    Planted: the lifetime of an expired batch by ``privacy()``; PROMISE for PROMISE_KEPT -> fails.
    """
    made = make_task(name="kept", min_batch=MIN, target_epsilon=2.0, windows=WINDOWS)
    spec = design(name, made.domain, 1.0)
    mechanism = create(spec, made.domain)
    assert isinstance(mechanism, Longitudinal)
    world = World(replace(made, mechanism=spec, memoized=True, report_size=mechanism.report_size))
    one, lifetime = epsilon0_upper(mechanism.privacy()), epsilon0_upper(mechanism.permanent())
    rows = mechanism.randomize(np.arange(MIN) % 7, SeededEntropy(1)).reshape(MIN, -1)
    first = prepare(world.served, batch_of(world, 0), Opened(mechanism.tally(rows), {}))
    assert first.lifetime == prepare_expired(world.served, batch_of(world, 1)).lifetime == lifetime
    privacy = shown(conclude(first, (), WORLD.analyzer))["privacy"]
    assert privacy["epsilon0"] == one
    assert privacy["memoized"] == {"lifetime_epsilon": lifetime, "windows": 1}
    assert (
        privacy["epsilon_cumulative_upper"]
        == guaranteed(mechanism.privacy(), MIN, Fraction(9, 10), made.delta).epsilon_upper
    )
    assert {REPEATED_KEPT, ALONE_KEPT, PROMISE_KEPT} <= set(privacy["assumptions"])
    second = prepare(world.served, batch_of(world, 1), Opened(mechanism.tally(rows), {}))
    privacy = shown(conclude(second, [first.charge], WORLD.analyzer))["privacy"]
    assert (privacy["epsilon_cumulative_upper"], privacy["delta_cumulative"]) == (lifetime, 0.0)
