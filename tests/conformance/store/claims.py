"""The part of the suite that is about who may change a window: owners, claims, fences."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shoal.errors import Kind
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.claims import Claim, StaleClaimError
from shoal.shuffler.stores.store import SealedRows, Store
from tests.conformance.store.harness import (
    HOUR,
    ME,
    OTHER,
    TASK,
    StoreHarness,
    mine,
    reports,
    submissions,
)

Step = tuple[str, Callable[[Store, Claim], Awaitable[object]]]  # its name, and what it does


class ClaimSuite(StoreHarness):
    async def test_a_window_has_one_owner_at_a_time(self, tmp_path: Path) -> None:
        """Of two that ask, and after each other. Planted: the owner not looked at -> both get it;
        the fence not counted on -> equal, fails.
        """
        store, one = await self.adopted(tmp_path), WindowId(TASK, 0)
        first = await store.claim(one, ME, HOUR)
        assert first is not None
        assert (first.window, first.owner) == (one, ME)
        assert await store.claim(one, OTHER, HOUR) is None
        assert await store.claim(WindowId(TASK, 1), OTHER, HOUR) is not None
        await store.release(first)
        second = await store.claim(one, OTHER, HOUR)
        assert second is not None
        assert second.fence > first.fence
        await store.release(first)  # stale: nobody loses anything by it
        assert await store.claim(one, ME, HOUR) is None

    async def test_an_expired_claim_stands_until_somebody_takes_the_window(
        self, tmp_path: Path
    ) -> None:
        """Time alone decides nothing. Planted: the time looked at in every step -> the first one
        fails; not looked at when somebody claims -> None, fails.
        """
        store, one = await self.adopted(tmp_path), WindowId(TASK, 0)
        await store.append(submissions(reports(3)))
        late = await store.claim(one, ME, 0.0)
        assert late is not None
        await store.close_intake(late)
        await store.renew(late, HOUR)  # also one that has run out
        assert await store.claim(one, OTHER, HOUR) is None
        await store.renew(late, 0.0)
        taken = await store.claim(one, OTHER, HOUR)
        assert taken is not None
        with pytest.raises(StaleClaimError):
            await store.renew(late, HOUR)
        with pytest.raises(StaleClaimError):
            await store.seal(late)
        assert (await store.seal(taken)).rows == 3

    async def test_an_owner_that_claims_again_has_the_last_claim_alone(
        self, tmp_path: Path
    ) -> None:
        """A process may forget what it claimed; what it began before must not end after that.
        Planted: the fence left out of the comparison -> fails.
        """
        store, one = await self.adopted(tmp_path), WindowId(TASK, 0)
        await store.append(submissions(reports(3)))
        before, after = await mine(store, one), await mine(store, one)
        assert after.fence > before.fence
        with pytest.raises(StaleClaimError):
            await store.close_intake(before)
        await store.close_intake(after)

    async def test_a_window_that_was_taken_over_twice_has_one_owner(self, tmp_path: Path) -> None:
        """An owner that slept, lost the window, and got it back: what it was at before it slept
        must not go on. Planted: claims compared by their owner alone -> it does, fails.
        """
        store, one = await self.adopted(tmp_path), WindowId(TASK, 0)
        await store.append(submissions(reports(3)))
        claims = [await store.claim(one, owner, 0.0) for owner in (ME, OTHER, ME)]
        *stale, last = [claim for claim in claims if claim is not None]
        assert len(stale) == 2
        before = store.records()
        for claim in stale:
            with pytest.raises(StaleClaimError):
                await store.close_intake(claim)
            with pytest.raises(StaleClaimError):
                await store.renew(claim, HOUR)
            await store.release(claim)
        assert store.records() == before
        await store.close_intake(last)

    async def test_a_claim_ends_with_its_process(self, tmp_path: Path) -> None:
        """After a start everybody asks anew, and what the process before had claimed is stale.
        Planted: claims compared by their fence alone -> it is not, fails.
        """
        store, one = await self.adopted(tmp_path), WindowId(TASK, 0)
        await store.append(submissions(reports(3)))
        before = await mine(store, one)
        await store.close()
        store = await self.adopted(tmp_path)
        after = await mine(store, one, OTHER)
        with pytest.raises(StaleClaimError):
            await store.close_intake(before)
        await store.close_intake(after)

    async def test_of_windows_that_lapse_together_all_are_claimed_or_none_lapses(
        self, tmp_path: Path
    ) -> None:
        """Planted: the claims not looked at, or one of them alone -> windows lapse, fails. Planted:
        a window's turn waited for twice -> hangs.
        """
        store = await self.adopted(tmp_path)
        windows = [WindowId(TASK, number) for number in range(3)]
        old = [await mine(store, window) for window in windows]
        new = [await mine(store, window, ME) for window in windows]
        for stale in range(3):
            group = [*new[:stale], old[stale], *new[stale + 1 :]]
            for claims in (group, [*group, *new]):
                with pytest.raises(StaleClaimError):
                    await store.lapse(claims)
        assert store.records() == {}
        await store.lapse([*new, new[0]])
        assert [store.records()[window].state for window in windows] == [WindowState.SHREDDED] * 3

    async def test_a_stale_owner_changes_nothing_at_any_step(self, tmp_path: Path) -> None:
        """Every step of the three lives of a window, tried first by an owner whose window was taken
        over, then by the one that has it. Planted, for each method of ``ThreadedStore`` that takes
        a claim: the check left out -> its step is carried out, and this fails with its name.
        """
        state = WindowState
        found: list[SealedRows] = []

        async def seal_now(store: Store, claim: Claim) -> None:
            found[:] = [await store.seal(claim)]

        def to(before: WindowState, after: WindowState) -> Step:
            rows = found if before is state.CLOSING and after is not state.EXPIRED else [None]
            return (
                f"make it {after.name}",
                lambda store, claim: store.advance(claim, before, after, rows[0], 3, b"manifest"),
            )

        close: Step = ("close", lambda store, claim: store.close_intake(claim))
        seal_it: Step = ("seal", seal_now)

        shred: Step = ("shred", lambda store, claim: store.shred(claim))
        lives: list[list[Step]] = [
            [
                *(close, seal_it, to(state.CLOSING, state.SEALED)),
                ("destroy the inbox", lambda store, claim: store.destroy_inbox(claim)),
                ("mend", lambda store, claim: store.mend(claim)),
                to(state.SEALED, state.DELIVERING),
                to(state.DELIVERING, state.ACKNOWLEDGED),
                *(shred, to(state.ACKNOWLEDGED, state.SHREDDED)),
            ],
            [
                *(close, seal_it, to(state.CLOSING, state.WITHHELD)),
                *(shred, to(state.WITHHELD, state.SHREDDED)),
            ],
            [
                *(close, to(state.CLOSING, state.EXPIRED), shred),
                to(state.EXPIRED, state.SHREDDED),
            ],
            [("shred an open window", lambda store, claim: store.shred(claim))],
        ]
        for number, life in enumerate(lives):
            store, one = await self.adopted(tmp_path), WindowId(TASK, number)
            await store.append(submissions(reports(3), number))
            for name, step in life:
                stale = await store.claim(one, ME, 0.0)
                fresh = await store.claim(one, OTHER, 0.0)
                assert stale is not None
                assert fresh is not None
                before, remains = store.records(), self.content(tmp_path)
                kind = None
                try:
                    await step(store, stale)
                except StaleClaimError as error:
                    kind = error.kind
                assert kind is Kind.CONFLICT, f"a stale owner could {name}"
                assert store.records() == before, name
                assert self.content(tmp_path) == remains, name
                await step(store, fresh)
            await store.close()
