"""Reports of several messages: counted as reports, stored whole or not at all, sealed as rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path

from shoal.errors import Kind
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.store import AdmittedReport, AdmittedRows
from tests.conformance.store.harness import ROW, TASK, devices, mine, reports, seal
from tests.conformance.store.reading import ReadingSuite


class BundlesSuite(ReadingSuite):
    async def test_several_messages_to_a_report_are_rows(self, tmp_path: Path) -> None:
        """Reports are what is counted, however many messages each has; the rows are sealed one by
        one. Of those that find no place some are as likely as others, whatever they have
        (``tests/unit/shuffler/stores/test_distinct.py``). Planted: rows counted -> two are
        WINDOW_FULL, fails.
        """
        store = await self.adopted(tmp_path, Capacity(messages=5, distinct=3, rows=100))
        sent = [tuple(reports(count)) for count in (1, 5, 2, 3)]
        one = WindowId(TASK, 0)
        outcomes = await self.put(store, [AdmittedReport(one, report) for report in sent * 2])
        assert outcomes[:4] == outcomes[4:]
        assert Counter(outcomes[:4]) == {None: 3, Kind.WINDOW_FULL: 1}
        taken = [report for report, kind in zip(sent, outcomes, strict=False) if kind is None]
        assert store.distinct(one) == 3
        sealed, rows = await seal(store)
        assert (sealed.reports, sealed.rows) == (3, sum(map(len, taken)))
        assert sorted(rows) == sorted(message for report in taken for message in report)

    async def test_a_report_of_several_messages_is_there_whole_or_not_at_all(
        self, tmp_path: Path
    ) -> None:
        """A part of it, or it with one more, is another report; a message that two of them share is
        one row. Planted: a report that shares a message taken for a repeat -> fails.
        """
        store, one = await self.adopted(tmp_path, Capacity(5, 0, 100)), WindowId(TASK, 0)
        four = tuple(reports(4))
        some = [four[:3], four[:2], four, four[:3]]
        for _ in range(2):
            assert await self.put(store, [AdmittedReport(one, each) for each in some]) == [None] * 4
        assert store.distinct(one) == 3
        sealed, rows = await seal(store)
        assert (sealed.reports, sealed.damaged) == (3, 0)
        assert sorted(rows) == sorted(four)

    async def test_reports_that_share_their_messages_are_no_more_than_rows(
        self, tmp_path: Path
    ) -> None:
        """Three messages in every order, and one report more. Nothing of it is damage. Planted:
        reports counted as they are stored -> 7 in 4 rows, fails.
        """
        store, one = await self.adopted(tmp_path, Capacity(3, 0, 100)), WindowId(TASK, 0)
        shared, honest = tuple(reports(3)), tuple(reports(1))
        sent = [AdmittedReport(one, each) for each in [*permutations(shared), honest]]
        assert await self.put(store, sent) == [None] * 7
        assert store.distinct(one) == 7
        sealed, rows = await seal(store)
        assert (sealed.reports, sealed.rows, sealed.damaged) == (4, 4, 0)
        assert sorted(rows) == sorted([*shared, *honest])

    async def test_noise_is_rows_among_the_others_and_no_report(self, tmp_path: Path) -> None:
        """Sealed twice, as after a crash, with other noise: the last noise is there alone, in the
        order of keys as whatever was put. Half of the rows are noise; that all of them stand
        behind, or before, all others has a chance of 2^-74. Planted: noise kept in the inbox ->
        both draws, fails; counted as reports -> fails; written behind the reports -> fails.
        """
        store, one = await self.adopted(tmp_path, Capacity(1, 0, 100, added=40)), WindowId(TASK, 0)
        sent, first, second = reports(40), reports(30), reports(40)
        assert await self.put(store, [AdmittedReport(one, (each,)) for each in sent]) == [None] * 40
        assert store.distinct(one) == 40
        await store.close_intake(await mine(store, one))
        before = await store.seal(await mine(store, one), first)
        assert (before.reports, before.rows, before.damaged) == (40, 70, 0)
        sealed = await store.seal(await mine(store, one), second)
        states = WindowState.CLOSING, WindowState.SEALED
        claim = await mine(store, one)
        await store.advance(claim, *states, sealed, sealed.reports, b"manifest")
        data = await store.read_rows(one, 0, sealed.rows)
        rows = [data[at : at + ROW] for at in range(0, len(data), ROW)]
        assert (sealed.reports, sealed.rows, sealed.damaged) == (40, 80, 0)
        assert sorted(rows) == sorted([*sent, *second])
        noise = [row in set(second) for row in rows]
        assert noise not in ([False] * 40 + [True] * 40, [True] * 40 + [False] * 40)

    async def test_joined_reports_of_several_messages(self, tmp_path: Path) -> None:
        """As workers hand them over, beside single ones, with repeats, refusals and a wrong size.
        What is there after a start is what was acknowledged. Planted: sizes not looked at -> fails.
        """
        capacity, one = Capacity(messages=4, distinct=0, rows=4_000), WindowId(TASK, 0)
        store = await self.adopted(tmp_path, capacity)
        sent = [tuple(reports(count)) for count in (3, 1, 4, 2, 2)]

        def joined(some: list[tuple[bytes, ...]], *extra: int) -> AdmittedRows:
            flat = b"".join(message for report in some for message in report)
            sizes = (*map(len, some), *extra)
            return AdmittedRows(one, flat, len(some), sizes=sizes)

        groups = [
            joined(sent[:3]),
            joined([tuple(reports(5))]),
            joined(sent[3:4], 1),
            replace(joined(sent[3:4]), sealed=bytes(ROW)),
            joined([sent[0], sent[4]]),
        ]
        bad = [Kind.INTERNAL]
        assert await store.append_rows(groups) == [[None] * 3, bad, bad, bad, [None] * 2]
        assert await self.put(store, [AdmittedReport(one, sent[2])]) == [None]
        store = await self.adopted(tmp_path, capacity)
        assert store.distinct(one) == 4
        assert await store.append_rows([joined(sent)]) == [[None] * 5]
        sealed, rows = await seal(store)
        assert (sealed.reports, sealed.damaged) == (5, 0)
        assert sorted(rows) == sorted(message for report in sent for message in report)

    async def test_messages_of_one_report_are_not_neighbours_when_delivered(
        self, tmp_path: Path
    ) -> None:
        """The first of a report's two messages and the second: how often they lie next to each
        other is what chance says, 2 in 400 pairs on average; false alarm below 1e-8 (Poisson(2)
        above 14). Planted: rows sealed under the key of their report -> all of them, fails.
        """
        store = await self.adopted(tmp_path, Capacity(2, 0, 4_000))
        pairs = [tuple(reports(2)) for _ in range(400)]
        one = WindowId(TASK, 0)
        assert await self.put(store, [AdmittedReport(one, pair) for pair in pairs]) == [None] * 400
        _, rows = await seal(store)
        at = {row: place for place, row in enumerate(rows)}
        assert sum(abs(at[first] - at[second]) == 1 for first, second in pairs) <= 14

    async def test_several_messages_of_one_device_are_one_admission(self, tmp_path: Path) -> None:
        store, (one,) = (
            await self.adopted(tmp_path, Capacity(messages=3, distinct=0, rows=100)),
            devices(1),
        )
        first, second = tuple(reports(3)), tuple(reports(2))
        window = WindowId(TASK, 0)
        assert await self.put(store, [AdmittedReport(window, first, one)]) == [None]
        assert await self.put(
            store,
            [AdmittedReport(window, (*second, first[0]), one), AdmittedReport(window, first, one)],
        ) == [Kind.CONFLICT, None]
        assert sorted((await seal(store))[1]) == sorted(first)
