"""The suite that a store inherits: subclass ``StoreSuite``, give ``make``, ``fork`` and
``remains``, and name the class Test*.
"""

from __future__ import annotations

import secrets
from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.store import AdmittedReport, AdmittedRows
from tests.conformance.store.bundles import BundlesSuite
from tests.conformance.store.harness import (
    HASH,
    OPEN_ENDED,
    ROW,
    TASK,
    devices,
    grouped,
    mine,
    of,
    reports,
    seal,
    submissions,
)
from tests.searched import any_within
from tests.sizes import size


class StoreSuite(BundlesSuite):
    orders = 4_800  # windows at full counts whose order is looked at

    @pytest.fixture(autouse=True, params=["reports", "rows", "digests"])
    def _entry(self, request: pytest.FixtureRequest) -> None:
        """All promises hold whichever way a report takes."""
        self.entry = request.param

    # --- once -------------------------------------------------------------------------------------

    async def test_every_report_is_sealed_once_however_often_it_came(self, tmp_path: Path) -> None:
        """Planted: ``distinct_sorted`` yielding equal neighbours -> 110 rows, this fails."""
        store, sent = await self.adopted(tmp_path), reports(50)
        assert await self.put(store, submissions([*sent, *sent[:5]])) == [None] * 55
        assert await self.put(store, submissions(sent[::-1])) == [None] * 50
        sealed, rows = await seal(store)
        assert sealed.rows == 50
        assert sorted(rows) == sorted(sent)

    async def test_rows_of_another_size_are_never_cut_into_rows(self, tmp_path: Path) -> None:
        """60 of 59 bytes have the length of 59 of 60. They are refused, and nothing else is.
        Planted: the length of all of them looked at alone -> taken, fails.
        """
        store, window, sent = await self.adopted(tmp_path), WindowId(TASK, 0), reports(2)
        short = [AdmittedReport(window, (secrets.token_bytes(ROW - 1),)) for _ in range(ROW)]
        assert await store.append([*submissions(sent[:1]), *short, *submissions(sent[1:])]) == [
            None
        ] + [Kind.INTERNAL] * ROW + [None]
        assert sorted((await seal(store))[1]) == sorted(sent)

    async def test_rows_that_do_not_fit_their_count_are_refused(self, tmp_path: Path) -> None:
        """As many bytes, digests and devices as the count says, or none of the group is taken; the
        groups beside it are. Planted: one of the lengths not looked at -> taken, or the rest
        suffers, fails.
        """
        store, sent, (who,) = await self.adopted(tmp_path), reports(6), devices(1)
        window, joined = WindowId(TASK, 0), b"".join(sent[1:3])
        wrong = [
            AdmittedRows(window, joined, 1),
            AdmittedRows(window, joined, 3),
            AdmittedRows(window, joined[:-1], 2),
            AdmittedRows(window, joined, 2, (who,)),
            AdmittedRows(window, joined, 2, (), bytes(33)),
        ]
        good = [AdmittedRows(window, one, 1) for one in (sent[0], sent[5])]
        outcomes = await store.append_rows([good[0], *wrong, good[1]])
        assert outcomes == [[None], *([Kind.INTERNAL] * group.count for group in wrong), [None]]
        assert await store.append_rows([AdmittedRows(window, joined, 2, (who,))]) == [
            [Kind.INTERNAL] * 2
        ]
        assert sorted((await seal(store))[1]) == sorted([sent[0], sent[5]])

    async def test_both_ways_are_one(self, tmp_path: Path) -> None:
        """A report that came alone is known among many, and the other way round. Planted: other
        digests than of the message -> 9 rows, fails.
        """
        store, sent = await self.adopted(tmp_path), reports(6)
        assert await store.append(submissions(sent[:3])) == [None] * 3
        for digests in (False, True):
            groups = grouped(submissions(sent), digests)
            assert await store.append_rows(groups) == [[None] * 4, [None] * 2]
        assert await store.append(submissions(sent)) == [None] * 6
        assert (await seal(store))[0].rows == 6

    async def test_duplicates_merge_across_a_restart(self, tmp_path: Path) -> None:
        """Planted: drawing a new secret when an inbox is opened again -> 40 rows, this fails."""
        sent = reports(20)
        await self.put(await self.adopted(tmp_path), submissions(sent))
        store = await self.adopted(tmp_path)
        await self.put(store, submissions(sent))
        assert (await seal(store))[0].rows == 20

    async def test_windows_do_not_mix(self, tmp_path: Path) -> None:
        store, sent = await self.adopted(tmp_path), reports(20)
        assert (
            await self.put(store, [*submissions(sent[:10], 0), *submissions(sent[10:], 1)])
            == [None] * 20
        )
        assert sorted((await seal(store, 1))[1]) == sorted(sent[10:])
        assert sorted((await seal(store, 0))[1]) == sorted(sent[:10])

    # --- durable ----------------------------------------------------------------------------------

    async def test_what_was_acknowledged_is_there_after_a_start_without_a_close(
        self, tmp_path: Path
    ) -> None:
        sent = reports(30)
        for one in sent:
            assert await self.put(await self.adopted(tmp_path), submissions([one])) == [None]
        assert sorted((await seal(await self.adopted(tmp_path)))[1]) == sorted(sent)

    async def test_states_and_counts_survive(self, tmp_path: Path) -> None:
        store, one = await self.adopted(tmp_path), WindowId(TASK, 0)
        await self.put(store, submissions(reports(4)))
        await store.lapse([await mine(store, WindowId(TASK, 5))])
        await seal(store)
        for before, after in (
            (WindowState.SEALED, WindowState.DELIVERING),
            (WindowState.DELIVERING, WindowState.ACKNOWLEDGED),
        ):
            store = await self.adopted(tmp_path)
            record = store.record(one)
            assert record is not None
            assert (
                record.state,
                record.reports,
                record.rows,
                record.row_size,
                record.manifest,
            ) == (before, 4, 4, ROW, b"manifest")
            await store.advance(await mine(store, one), before, after)
        await store.shred(await mine(store, one))
        await store.advance(await mine(store, one), WindowState.ACKNOWLEDGED, WindowState.SHREDDED)
        records = (await self.adopted(tmp_path)).records()
        assert {window.window: record.state for window, record in records.items()} == {
            0: WindowState.SHREDDED,
            5: WindowState.SHREDDED,
        }
        assert (records[one].outcome, records[one].manifest) == (WindowState.ACKNOWLEDGED, b"")

    async def test_sealing_again_after_a_crash_gives_the_same_bytes(self, tmp_path: Path) -> None:
        store, one = await self.adopted(tmp_path), WindowId(TASK, 0)
        await self.put(store, submissions(reports(30)))
        await store.close_intake(await mine(store, one))
        first = await store.seal(await mine(store, one))
        for _ in range(2):
            store = await self.adopted(tmp_path)
            assert await store.seal(await mine(store, one)) == first

    # --- closed is closed -------------------------------------------------------------------------

    async def test_a_closing_window_takes_nothing(self, tmp_path: Path) -> None:
        """Planted: ``append`` not looking at the state -> the late report is acknowledged and lost,
        this fails.
        """
        store, sent, one = await self.adopted(tmp_path), reports(5), WindowId(TASK, 0)
        await self.put(store, submissions(sent))
        await store.close_intake(await mine(store, one))
        assert (
            await self.put(store, submissions([*reports(2), sent[0]])) == [Kind.WINDOW_CLOSED] * 3
        )
        assert await self.put(await self.adopted(tmp_path), submissions(reports(1))) == [
            Kind.WINDOW_CLOSED
        ]
        assert (await store.seal(await mine(store, one))).rows == 5

    @pytest.mark.parametrize(("count", "kind"), [(3, Kind.WINDOW_FULL), (2, Kind.WINDOW_CLOSED)])
    async def test_a_decided_window_says_whether_it_was_full(
        self, tmp_path: Path, count: int, kind: Kind
    ) -> None:
        """From its closing on, and after a start. Planted: the count recorded at sealing alone ->
        CLOSED while it closes.
        """
        capacity = Capacity(messages=1, distinct=3, rows=100)
        store, one = await self.adopted(tmp_path, capacity), WindowId(TASK, 0)
        await self.put(store, submissions(reports(count)))
        await store.close_intake(await mine(store, one))
        assert await self.put(store, submissions(reports(1))) == [kind]
        store = await self.adopted(tmp_path, capacity)
        record = store.record(one)
        assert record is not None
        assert (record.state, record.reports) == (WindowState.CLOSING, count)
        assert await self.put(store, submissions(reports(1))) == [kind]

    async def test_states_change_only_from_the_expected_one(self, tmp_path: Path) -> None:
        store, one = await self.adopted(tmp_path), WindowId(TASK, 0)
        await self.put(store, submissions(reports(1)))
        for state in (WindowState.CLOSING, WindowState.SEALED, WindowState.ACKNOWLEDGED):
            with pytest.raises(ShoalError) as refused:
                await store.advance(await mine(store, one), state, WindowState.SHREDDED)
            assert refused.value.kind is Kind.INTERNAL
        with pytest.raises(ShoalError):
            await store.advance(
                await mine(store, WindowId(TASK, 1)), WindowState.OPEN, WindowState.CLOSING
            )
        assert store.records().keys() == {one}

    async def test_a_lapsed_window_takes_nothing_and_an_open_one_cannot_lapse(
        self, tmp_path: Path
    ) -> None:
        store = await self.adopted(tmp_path)
        await self.put(store, submissions(reports(2), 1))
        await store.lapse([await mine(store, WindowId(TASK, number)) for number in (0, 1)])
        assert await self.put(store, submissions(reports(1), 0)) == [Kind.WINDOW_CLOSED]
        assert (await seal(store, 1))[0].rows == 2

    async def test_a_second_schedule_is_a_conflict_also_after_a_start(self, tmp_path: Path) -> None:
        await self.adopted(tmp_path)
        await self.adopted(tmp_path)
        with pytest.raises(ShoalError) as refused:
            (await self.open(tmp_path)).adopt(TASK, Digest(bytes([1] * 32)), OPEN_ENDED, ROW)
        assert refused.value.kind is Kind.CONFLICT

    # --- max_batch --------------------------------------------------------------------------------

    @pytest.mark.parametrize("restart", [False, True])
    async def test_max_batch_counts_distinct_reports_and_takes_retries_of_accepted_ones(
        self, tmp_path: Path, restart: bool
    ) -> None:
        """Boundary n-1, n, n+1, within one commit and across them. Planted: counting rows instead
        -> fails at the first retry.
        """
        capacity = Capacity(messages=1, distinct=10, rows=40)
        store, sent, one = await self.adopted(tmp_path, capacity), reports(12), WindowId(TASK, 0)
        assert await self.put(store, submissions([*sent[:8], *sent[:8]])) == [None] * 16
        if restart:
            store = await self.adopted(tmp_path, capacity)
        assert store.distinct(one) == 8
        assert await self.put(store, submissions([sent[8], sent[8]])) == [None, None]
        assert store.distinct(one) == 9
        coming = [sent[9], sent[10], sent[0], sent[9], sent[11]]
        outcomes = await self.put(store, submissions(coming))
        stored = {report for report, kind in zip(coming, outcomes, strict=True) if kind is None}
        left = [report for report in sent[9:] if report not in stored]
        assert (len(left), outcomes[2]) == (2, None)
        assert all(
            kind is (Kind.WINDOW_FULL if report in left else None)
            for report, kind in zip(coming, outcomes, strict=True)
        )
        if restart:
            store = await self.adopted(tmp_path, capacity)
        assert store.distinct(one) == 10
        assert await self.put(store, submissions([left[0], sent[3]])) == [Kind.WINDOW_FULL, None]
        sealed, rows = await seal(store)
        assert sealed.rows == 10
        assert sorted(rows) == sorted({*sent} - {*left})

    @pytest.mark.parametrize("distinct", [0, 5])
    @pytest.mark.parametrize("restart", [False, True])
    async def test_repeats_take_no_room_and_are_acknowledged_for_ever(
        self, tmp_path: Path, restart: bool, distinct: int
    ) -> None:
        """Within a commit, across commits, after a start. Planted: repeats written again -> 405
        rows; counted against the capacity -> OVERLOADED; fewer than whole keys rebuilt after a
        start -> fails.
        """
        capacity = Capacity(messages=1, distinct=distinct, rows=5)
        store, sent, one = await self.adopted(tmp_path, capacity), reports(6), WindowId(TASK, 0)
        for _ in range(100):
            assert await self.put(store, submissions(sent[:1] * 4)) == [None] * 4
        if restart:
            store = await self.adopted(tmp_path, capacity)
        assert store.distinct(one) == 1
        assert await self.put(store, submissions(sent[:5] * 2)) == [None] * 10
        full = Kind.WINDOW_FULL if distinct else Kind.OVERLOADED
        assert await self.put(store, submissions(sent)) == [None] * 5 + [full]
        assert store.distinct(one) == 5
        await store.close_intake(await mine(store, one))
        assert await store.held(one) == 5
        assert (await store.seal(await mine(store, one))).rows == 5

    # --- admitted devices -------------------------------------------------------------------------

    @pytest.mark.parametrize("restart", [False, True])
    async def test_a_device_has_one_report_in_a_window(self, tmp_path: Path, restart: bool) -> None:
        """A retry gets the reply of the first, another report is a conflict; in one commit, across
        commits, after a crash.

        Planted: the tag not written -> the conflict after the start is taken, fails. Planted: the
        tag written in a commit of its own and that one lost -> tests/faults. Planted: the tags not
        kept in memory -> fails without a start.
        """
        store, (first, second, third), (one, other) = (
            await self.adopted(tmp_path),
            reports(3),
            devices(2),
        )
        assert await self.put(store, [of(one, first), of(one, second), of(one, first)]) == [
            None,
            Kind.CONFLICT,
            None,
        ]
        if restart:
            store = await self.adopted(tmp_path)
        assert await self.put(store, [of(one, second)]) == [Kind.CONFLICT]
        assert await self.put(
            store, [of(one, first), of(other, third), of(one, third), of(other, second)]
        ) == [None, None, None, Kind.CONFLICT]
        if restart:
            store = await self.adopted(tmp_path)
        assert await self.put(store, [of(one, second), of(other, first), of(other, third)]) == [
            Kind.CONFLICT,
            None,
            None,
        ]
        assert store.distinct(WindowId(TASK, 0)) == 2
        assert sorted((await seal(store))[1]) == sorted([first, third])

    async def test_a_device_is_admitted_in_every_window_anew(self, tmp_path: Path) -> None:
        store, sent, (one,) = await self.adopted(tmp_path), reports(3), devices(1)
        assert (
            await self.put(store, [of(one, report, window) for window, report in enumerate(sent)])
            == [None] * 3
        )
        assert [(await seal(store, window))[1] for window in range(3)] == [
            [report] for report in sent
        ]

    @pytest.mark.parametrize("restart", [False, True])
    async def test_a_report_that_finds_no_room_admits_nobody(
        self, tmp_path: Path, restart: bool
    ) -> None:
        """Room is there again in another process with a larger capacity: the same device, another
        report.

        Planted: the tag kept whatever became of the report -> fails.
        """
        store, (first, second, third), (one, other) = (
            await self.adopted(tmp_path, Capacity(1, 0, 1)),
            reports(3),
            devices(2),
        )
        assert await self.put(store, [of(one, first)]) == [None]
        assert await self.put(store, [of(other, second)]) == [Kind.OVERLOADED]
        assert await self.put(store, [of(other, second), of(one, second)]) == [
            Kind.OVERLOADED,
            Kind.CONFLICT,
        ]
        if restart:
            store = await self.adopted(tmp_path)
        else:
            store.adopt(TASK, HASH, OPEN_ENDED, ROW)
        assert await self.put(store, [of(other, third), of(other, second)]) == [None, Kind.CONFLICT]
        assert sorted((await seal(store))[1]) == sorted([first, third])

    async def test_no_device_key_is_ever_on_disk(self, tmp_path: Path) -> None:
        """Planted: the tag table with the key beside the tag -> fails."""
        store, sent, who = await self.adopted(tmp_path), reports(20), devices(20)
        assert (
            await self.put(store, [of(one, report) for one, report in zip(who, sent, strict=True)])
            == [None] * 20
        )
        remains = self.remains(tmp_path)
        assert not any_within((one[:16] for one in who), remains)

    # --- order ------------------------------------------------------------------------------------

    async def orders_for_two_arrivals(
        self, folder: Path, count: int
    ) -> tuple[list[bytes], list[bytes]]:
        """Delivered orders of the same reports under the same secret, which arrived in two orders
        and groupings.
        """
        first, second = folder / "first", folder / "second"
        first.mkdir(parents=True)
        sent = reports(count)
        await self.put(await self.adopted(first), submissions(sent[:1]))
        self.fork(first, second)
        one, other = await self.adopted(first), await self.adopted(second)
        for at in range(0, count, 10):
            await self.put(one, submissions(sent[at : at + 10]))
        for report in sent[::-1]:
            await self.put(other, submissions([report]))
        return (await seal(one))[1], (await seal(other))[1]

    async def test_delivered_order_does_not_depend_on_arrival_order(self, tmp_path: Path) -> None:
        """Planted (and kept as a test in test_sqlite): reading in insertion order -> fails."""
        one, other = await self.orders_for_two_arrivals(tmp_path, 60)
        assert one == other

    @pytest.mark.timeout(1_800)
    async def test_every_order_is_equally_likely(self, tmp_path: Path) -> None:
        """Chi-square over the 4! orders of four reports, each window with its own secret; false
        alarm below 1e-5.

        Planted: one secret for all windows of a store, or sorting by the sealed bytes, -> fails.
        """
        store = await self.adopted(tmp_path)
        windows, sent = size(24, self.orders), reports(4)
        seen: Counter[tuple[int, ...]] = Counter()
        for window in range(windows):
            await self.put(store, submissions(sent, window))
            seen[tuple(sent.index(row) for row in (await seal(store, window))[1])] += 1
        expected = windows / 24
        chi_square = sum(
            (seen[order] - expected) ** 2 / expected for order in permutations(range(4))
        )
        # P(>= 77) is 8.5e-6 at 24 windows, exactly; 23 degrees of freedom: < 1e-7 in the limit of
        # many. One order always gives 23 times the windows.
        assert chi_square < 77.0

    # --- what is left -----------------------------------------------------------------------------

    async def test_a_window_that_is_never_sealed_can_be_counted_and_destroyed(
        self, tmp_path: Path
    ) -> None:
        """Planted: ``reports`` recorded only with ``sealed`` -> fails."""
        store, sent, one = await self.adopted(tmp_path), reports(40), WindowId(TASK, 0)
        await self.put(store, submissions(sent))
        await store.close_intake(await mine(store, one))
        assert await store.held(one) == 40
        assert await store.held(WindowId(TASK, 1)) == 0
        await store.advance(
            await mine(store, one), WindowState.CLOSING, WindowState.EXPIRED, reports=40
        )
        await store.shred(await mine(store, one))
        await store.advance(await mine(store, one), WindowState.EXPIRED, WindowState.SHREDDED)
        record = (await self.adopted(tmp_path)).record(one)
        assert record is not None
        assert (record.state, record.outcome, record.reports, record.rows) == (
            WindowState.SHREDDED,
            WindowState.EXPIRED,
            40,
            0,
        )
        remains = self.remains(tmp_path)
        assert not any_within((report[:16] for report in sent), remains)

    async def test_nothing_of_a_shredded_window_is_left(self, tmp_path: Path) -> None:
        """Planted: not unlinking the log -> fails."""
        store, sent, one = await self.adopted(tmp_path), reports(40), WindowId(TASK, 0)
        await self.put(store, submissions(sent))
        assert (sent[0] in self.remains(tmp_path)) == self.legible
        await seal(store)
        assert (sent[0] in self.remains(tmp_path)) == self.legible
        await store.advance(await mine(store, one), WindowState.SEALED, WindowState.DELIVERING)
        await store.advance(
            await mine(store, one), WindowState.DELIVERING, WindowState.ACKNOWLEDGED
        )
        await store.shred(await mine(store, one))
        await store.advance(await mine(store, one), WindowState.ACKNOWLEDGED, WindowState.SHREDDED)
        remains = self.remains(tmp_path)
        assert not any_within((report[:16] for report in sent), remains)
