"""What the suites of stores share: stores in folders, reports, devices, claims."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Sequence
from itertools import chain, groupby
from pathlib import Path

import pytest

from shoal.crypto.hpke import generate
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind
from shoal.ids import Digest, TaskId
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.claims import Claim, OwnerId
from shoal.shuffler.stores.store import (
    AdmittedReport,
    AdmittedRows,
    SealedRows,
    Store,
    WindowRecord,
)

ROW = 60
TASK = TaskId(bytes(range(32)))
HASH = Digest(bytes(32))
HOUR = 3600.0
HOP_KEY = generate(SuiteId.X25519_AES128)
ME, OTHER = OwnerId(b"m" * 16), OwnerId(b"o" * 16)
OPEN_ENDED = Capacity(messages=1, distinct=0, rows=1_000_000)


def reports(count: int) -> list[bytes]:
    return [secrets.token_bytes(ROW) for _ in range(count)]


def submissions(sealed: Sequence[bytes], window: int = 0) -> list[AdmittedReport]:
    return [AdmittedReport(WindowId(TASK, window), (one,)) for one in sealed]


def devices(count: int) -> list[bytes]:
    """Public keys, as good as any: a store does not verify."""
    return [secrets.token_bytes(32) for _ in range(count)]


def of(device: bytes, sealed: bytes, window: int = 0) -> AdmittedReport:
    return AdmittedReport(WindowId(TASK, window), (sealed,), device)


def rows_of(group: Sequence[AdmittedReport], digests: bool) -> AdmittedRows:
    """Reports of one window as one bytes object, with their digests or without."""
    parts, sizes = [b"".join(one.sealed) for one in group], [len(one.sealed) for one in group]
    return AdmittedRows(
        group[0].window,
        b"".join(parts),
        len(group),
        tuple(report.device for report in group if report.device),
        b"".join(hashlib.sha256(one).digest() for one in parts) if digests else b"",
        tuple(sizes) if max(sizes) > 1 else (),
    )


def grouped(
    reports: Sequence[AdmittedReport], digests: bool, longest: int = 4
) -> list[AdmittedRows]:
    """The same reports in the same order; ``longest``: of one group."""
    groups = list[AdmittedRows]()
    for _, run in groupby(reports, lambda one: one.window):
        left = list(run)
        groups += [rows_of(left[at : at + longest], digests) for at in range(0, len(left), longest)]
    return groups


async def mine(store: Store, window: WindowId, owner: OwnerId = ME) -> Claim:
    """The owner's claim of the window, made anew."""
    claim = await store.claim(window, owner, HOUR)
    assert claim is not None
    return claim


async def seal(store: Store, window: int = 0) -> tuple[SealedRows, list[bytes]]:
    """Close and seal a window; its rows in delivered order."""
    one = WindowId(TASK, window)
    await store.close_intake(await mine(store, one))
    sealed = await store.seal(await mine(store, one))
    await store.advance(
        await mine(store, one),
        WindowState.CLOSING,
        WindowState.SEALED,
        sealed,
        sealed.reports,
        b"manifest",
    )
    await store.destroy_inbox(await mine(store, one))
    data = b"".join([await store.read_rows(one, first, 7) for first in range(0, sealed.rows, 7)])
    assert Digest.of(data) == sealed.rows_hash
    return sealed, [data[at : at + ROW] for at in range(0, len(data), ROW)]


class StoreHarness:
    """Opens stores for the suites and closes them. ``entry``: the way by which ``put`` gives them
    reports: "reports" one by one, "rows" as joined bytes, "digests" with their hashes.
    """

    entry: str = "reports"
    legible = True  # whether sealed messages lie on the disk as they came

    async def put(self, store: Store, submissions: Sequence[AdmittedReport]) -> list[Kind | None]:
        """What became of each report, whatever the way that it took."""
        if self.entry == "reports":
            return await store.append(submissions)
        groups = grouped(submissions, self.entry == "digests")
        outcomes = await store.append_rows(groups)
        assert [len(some) for some in outcomes] == [group.count for group in groups]
        return list(chain.from_iterable(outcomes))

    @pytest.fixture(autouse=True)
    async def _tidy(self) -> AsyncIterator[None]:
        """Stores that a test abandoned, as a crash does, are closed when it is over."""
        self._opened: list[Store] = []
        yield
        for store in self._opened:
            await store.close()

    async def make(self, folder: Path) -> Store:
        """The store in this folder, as a process finds it after a start (also after a crash:
        nothing was closed).
        """
        raise NotImplementedError

    async def entered(self, store: Store) -> None:
        """Wait for what ``adopt`` began, of a store that is behind a network."""

    async def read(self, folder: Path, window: WindowId) -> WindowRecord | None:
        """What somebody reads of a window beside the store, who has not opened it."""
        raise NotImplementedError

    def fork(self, folder: Path, copy: Path) -> None:
        """A second store with the same content, secrets of open windows included."""
        raise NotImplementedError

    def remains(self, folder: Path) -> bytes:
        """Every byte that the store holds on disk."""
        raise NotImplementedError

    def content(self, folder: Path) -> bytes:
        """What the store holds, however its disk is written: nothing of it changes by itself."""
        return self.remains(folder)

    async def open(self, folder: Path) -> Store:
        store = await self.make(folder)
        self._opened.append(store)
        return store

    async def adopted(self, folder: Path, capacity: Capacity = OPEN_ENDED) -> Store:
        store = await self.open(folder)
        store.adopt(TASK, HASH, capacity, ROW, lambda _: HOP_KEY)
        await self.entered(store)
        return store
