"""The suite that the stores for sums inherit: subclass ``RoundsSuite``, give ``make`` and
``remains``, and name the class Test*.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.claims import Claim, OwnerId, StaleClaimError
from shoal.shuffler.stores.configured import ShufflerStorage
from shoal.shuffler.stores.rounds import StoredVector, VerifiedVector
from tests.conformance.store.harness import HOUR, ME, OTHER, TASK, devices

SIZE = 90  # bytes of a sealed vector
ONE, NEXT = WindowId(TASK, 0), WindowId(TASK, 1)


def vector(device: bytes, window: WindowId = ONE, most: int = 100) -> VerifiedVector:
    return VerifiedVector(window, most, device, secrets.token_bytes(SIZE), secrets.token_bytes(32))


async def mine(storage: ShufflerStorage, window: WindowId = ONE, owner: OwnerId = ME) -> Claim:
    """The owner's claim of the window, made anew."""
    claim = await storage.reports.claim(window, owner, HOUR)
    assert claim is not None
    return claim


class RoundsSuite:
    legible = True  # whether vectors and seeds lie on the disk as they came

    @pytest.fixture(autouse=True)
    async def _tidy(self) -> AsyncIterator[None]:
        """What a test abandoned, as a crash does, is closed when it is over."""
        self._opened: list[ShufflerStorage] = []
        yield
        for storage in self._opened:
            await storage.close()

    async def make(self, folder: Path) -> ShufflerStorage:
        """What is kept in this folder, as a process finds it after a start (also after a crash:
        nothing was closed).
        """
        raise NotImplementedError

    def remains(self, folder: Path) -> bytes:
        """Every byte that is held on disk."""
        raise NotImplementedError

    def content(self, folder: Path) -> bytes:
        """What is held, however its disk is written: nothing of it changes by itself."""
        return self.remains(folder)

    async def open(self, folder: Path) -> ShufflerStorage:
        storage = await self.make(folder)
        self._opened.append(storage)
        return storage

    # --- who answered -----------------------------------------------------------------------------

    async def test_a_device_has_answered_once_that_is_remembered(self, tmp_path: Path) -> None:
        """In its window alone, also after a start, however often it is said. Planted: nothing
        written, or one tag for all windows -> fails.
        """
        storage, (one, other) = await self.open(tmp_path), devices(2)
        assert not await storage.answered.answered(ONE, one)
        for _ in range(2):
            await storage.answered.remember(await mine(storage), one)
        for again in (storage, await self.open(tmp_path)):
            assert await again.answered.answered(ONE, one)
            assert not await again.answered.answered(ONE, other)
            assert not await again.answered.answered(NEXT, one)
            assert not list(again.answered.damage())

    async def test_who_answered_is_forgotten_with_the_window(self, tmp_path: Path) -> None:
        """And with no other. Planted: ``forget`` of all windows, or of none -> fails."""
        storage, (one,) = await self.open(tmp_path), devices(1)
        for window in (ONE, NEXT):
            await storage.answered.remember(await mine(storage, window), one)
        for _ in range(2):
            await storage.answered.forget(await mine(storage))
        for again in (storage, await self.open(tmp_path)):
            assert not await again.answered.answered(ONE, one)
            assert await again.answered.answered(NEXT, one)
            assert not list(again.answered.damage())

    # --- vectors of helper mode -------------------------------------------------------------------

    async def test_a_device_has_one_vector_in_a_window(self, tmp_path: Path) -> None:
        """The same one may come again, also after a start, and after the last. Planted: the digest
        not compared -> no CONFLICT; a repeat of a closed window refused -> fails.
        """
        storage, (one, other) = await self.open(tmp_path), devices(2)
        sent = vector(one)
        for again in (storage, await self.open(tmp_path)):
            assert await again.vectors.add(sent) is None
            assert await again.vectors.add(vector(one)) is Kind.CONFLICT
            assert await again.vectors.add(vector(one, NEXT)) in (None, Kind.CONFLICT)
        await again.vectors.take_no_more(await mine(again))
        for last in (again, await self.open(tmp_path)):
            assert await last.vectors.add(sent) is None
            assert await last.vectors.add(vector(other)) is Kind.WINDOW_CLOSED
            assert len(await last.vectors.rows(ONE)) == 1

    async def test_a_window_takes_as_many_vectors_as_its_words_are_made_for(
        self, tmp_path: Path
    ) -> None:
        """Planted: one more, or one less -> fails."""
        storage, who = await self.open(tmp_path), devices(4)
        sent = [vector(one, most=3) for one in who]
        outcomes = [await storage.vectors.add(one) for one in sent]
        assert outcomes == [None, None, None, Kind.WINDOW_FULL]
        assert await storage.vectors.add(sent[0]) is None

    async def test_what_was_acknowledged_can_be_read_after_a_start(self, tmp_path: Path) -> None:
        """Planted: the seed of another vector, or places that move -> fails."""
        sent = [vector(one) for one in devices(20)]
        for one in sent:
            assert await (await self.open(tmp_path)).vectors.add(one) is None
        storage = await self.open(tmp_path)
        await storage.vectors.take_no_more(await mine(storage))
        await storage.vectors.leave_out_damaged(await mine(storage), SIZE)
        rows = await storage.vectors.rows(ONE)
        found = {(await storage.vectors.read(ONE, row.place, SIZE), row.seed) for row in rows}
        assert found == {(one.sealed, one.seed) for one in sent}
        assert await storage.vectors.missing(ONE) == 0
        assert await storage.vectors.rows(NEXT) == []

    async def test_the_set_of_rows_is_decided_once(self, tmp_path: Path) -> None:
        """Of what was shown, after the window takes no more; also after a start. Planted: ``fix``
        without the look at either -> decided, fails.
        """
        storage = await self.open(tmp_path)
        for one in devices(4):
            assert await storage.vectors.add(vector(one)) is None
        shown = await storage.vectors.rows(ONE)
        with pytest.raises(ShoalError) as refused:  # a vector may still come
            await storage.vectors.fix(await mine(storage), shown, [])
        assert refused.value.kind is Kind.CONFLICT
        await storage.vectors.take_no_more(await mine(storage))
        other = StoredVector(shown[0].place, bytes(32), shown[0].digest)
        for wrong in (shown[1:], [other, *shown[1:]]):
            with pytest.raises(ShoalError) as refused:
                await storage.vectors.fix(await mine(storage), wrong, [])
            assert refused.value.kind is Kind.MISMATCH
            assert not await storage.vectors.is_fixed(ONE)
        await storage.vectors.fix(await mine(storage), shown, [shown[2].place])
        for again in (storage, await self.open(tmp_path)):
            assert await again.vectors.is_fixed(ONE)
            with pytest.raises(ShoalError) as refused:
                await again.vectors.fix(await mine(again), shown, [])
            assert refused.value.kind is Kind.CONFLICT
            assert await again.vectors.rows(ONE) == [*shown[:2], shown[3]]
        assert not await storage.vectors.is_fixed(NEXT)

    async def test_nothing_is_left_of_a_window_that_is_forgotten(self, tmp_path: Path) -> None:
        """Vectors and seeds, of this window alone; and it takes none any more. Planted: one of both
        left, or all windows forgotten -> fails.
        """
        storage = await self.open(tmp_path)
        gone, kept = vector(devices(1)[0]), vector(devices(1)[0], NEXT)
        for one in (gone, kept):
            assert await storage.vectors.add(one) is None
        for _ in range(2):
            await storage.vectors.forget(await mine(storage))
        remains = self.remains(tmp_path)
        assert gone.sealed not in remains
        assert gone.seed not in remains
        assert (kept.sealed in remains) is self.legible
        assert (kept.seed in remains) is self.legible
        assert await storage.vectors.add(gone) is Kind.WINDOW_CLOSED
        for again in (storage, await self.open(tmp_path)):
            assert await again.vectors.rows(ONE) == []
            assert len(await again.vectors.rows(NEXT)) == 1
            assert not list(again.vectors.damage())

    # --- who works on a window --------------------------------------------------------------------

    async def test_a_stale_owner_changes_nothing_of_sums(self, tmp_path: Path) -> None:
        """Every change of what is kept for sums, tried first by an owner whose window was taken
        over, and by the one before it that has the same name; then by the one that has it. Planted,
        for each method of ``ThreadedAnswers`` and ``ThreadedVectors`` that takes a claim: the check
        left out -> its change is carried out, and this fails with its name. Planted: claims of
        their own for sums -> what was claimed is unknown there, fails.
        """
        storage, (one, other) = await self.open(tmp_path), devices(2)
        answered, vectors = storage.answered, storage.vectors
        assert await vectors.add(vector(one)) is None
        assert await vectors.add(vector(other)) is None
        shown = await vectors.rows(ONE)
        changes: list[tuple[str, Callable[[Claim], Awaitable[object]]]] = [
            ("remember", lambda claim: answered.remember(claim, one)),
            ("remember another", lambda claim: answered.remember(claim, other)),
            ("forget who answered", answered.forget),
            ("take no more", vectors.take_no_more),
            ("leave out", lambda claim: vectors.leave_out_damaged(claim, SIZE + 1)),
            ("decide", lambda claim: vectors.fix(claim, shown[:0], [])),
            ("forget vectors", vectors.forget),
        ]
        for name, change in changes:
            claims = [await storage.reports.claim(ONE, owner, 0.0) for owner in (OTHER, ME, OTHER)]
            *stale, fresh = [claim for claim in claims if claim is not None]
            assert len(stale) == 2
            remains = self.content(tmp_path)
            for claim in stale:
                kind = None
                try:
                    await change(claim)
                except StaleClaimError as error:
                    kind = error.kind
                assert kind is Kind.CONFLICT, f"a stale owner could {name}"
                assert self.content(tmp_path) == remains, name
            await change(fresh)
            assert self.content(tmp_path) != remains, f"{name}: nothing to see"
