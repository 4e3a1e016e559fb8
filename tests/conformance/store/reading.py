"""The part of the suite of stores that looks at windows from outside."""

from __future__ import annotations

from pathlib import Path

from shoal.shuffler.core import WindowId, WindowState
from tests.conformance.store.claims import ClaimSuite
from tests.conformance.store.harness import TASK, mine, reports, seal, submissions


class ReadingSuite(ClaimSuite):
    async def test_a_window_is_read_beside_the_store(self, tmp_path: Path) -> None:
        """While the store is open, in every state. Planted: another store asked, or its rows of
        before -> another state, fails.
        """
        window, other = WindowId(TASK, 0), WindowId(TASK, 1)
        assert await self.read(tmp_path, window) is None
        store = await self.adopted(tmp_path)

        async def check(*states: WindowState) -> None:
            for one, state in zip((window, other), states, strict=True):
                seen, known = await self.read(tmp_path, one), store.record(one)
                assert seen is not None
                assert known is not None
                assert seen.state is state is known.state
                assert (seen.outcome, seen.reports, seen.rows, seen.manifest) == (
                    *(known.outcome, known.reports, known.rows, known.manifest),
                )

        sent = reports(4)
        await self.put(store, [*submissions(sent, 0), *submissions(sent, 1)])
        await check(WindowState.OPEN, WindowState.OPEN)
        await store.close_intake(await mine(store, window))
        await check(WindowState.CLOSING, WindowState.OPEN)
        await seal(store, 1)
        await check(WindowState.CLOSING, WindowState.SEALED)
        for before, after in (
            (WindowState.SEALED, WindowState.DELIVERING),
            (WindowState.DELIVERING, WindowState.ACKNOWLEDGED),
            (WindowState.ACKNOWLEDGED, WindowState.SHREDDED),
        ):
            await store.advance(await mine(store, other), before, after)
            await check(WindowState.CLOSING, after)
