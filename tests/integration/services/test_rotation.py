"""Keys and certificates change, and services restart, while devices send all the time: what is
acknowledged is counted, once, and no key outlives its window.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from shoal import codec
from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.results.release_json import decode_release
from shoal.analyzer.service import AnalyzerService
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.clocks.backoff import Backoff
from shoal.clocks.clock import FakeClock
from shoal.codec import Signed
from shoal.crypto import keyfiles
from shoal.crypto.envelope import seal_frame, seal_report
from shoal.crypto.hpke import HpkePrivateKey, generate
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.tlscerts import Identity, issue, make_authority
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.rpc.channel import build_channel, call
from shoal.services.process import DataFolder
from shoal.services.settings import load_settings
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.reports import lifecycle
from shoal.shuffler.service import Shuffler
from shoal.task import WindowKeys
from tests.sizes import size
from tests.worlds.operations import Site
from tests.worlds.schedules import schedule_bytes
from tests.worlds.services.analyzer_service import shared_pool
from tests.worlds.services.shuffler import CA, GRACE, LENGTH, SHUFFLER_NAME, START, submit

SUBMIT = "/shoal.v1.Ingress/Submit"
WINDOWS, SENDERS = 5, 3
REPORTS = size(12, 120)  # of each sender in each window, at least
NEW = make_authority("new")
_PATIENCE = 200  # attempts: a restart takes a few
_LATER = (Kind.UNAVAILABLE, Kind.OVERLOADED, Kind.DEADLINE)


class Rotating(Site):
    """A key of its own for every window, on both sides; its services go by ``clock``."""

    def __init__(self, folder: Path) -> None:
        self.hops: list[HpkePrivateKey] = []
        self.clock = FakeClock(START + GRACE + 100)
        super().__init__(folder)
        self.trusted = CA.cert_pem + NEW.cert_pem
        self.stacks: dict[str, AsyncExitStack] = {}
        self.shuffler_now: Shuffler
        self.analyzer_now: AnalyzerService
        self.store: AnalyzerStore

    def ask(self, **changes: Any) -> Any:
        plan = {"start_s": START, "length_s": LENGTH, "count": WINDOWS, "target_epsilon": 4.0}
        published = super().ask(**plan, **changes)
        (self.keys_dir / f"{published.hop.config.key_id.hex}.key").unlink()
        return published

    def schedule(
        self,
        task_id: TaskId,
        keys: tuple[HpkePrivateKey, ...],
        hop: HpkePrivateKey,
        shuffler: SigningKey | None = None,
    ) -> bytes:
        self.hops = [generate(SuiteId.X25519_AES128) for _ in keys]
        for one in self.hops:
            keyfiles.save_hpke_key(self.keys_dir / f"{one.config.key_id.hex}.key", one)
        pairs = zip(keys, self.hops, strict=True)
        windows = tuple(
            WindowKeys(window, key.config.raw, one.config.raw)
            for window, (key, one) in enumerate(pairs)
        )
        data = schedule_bytes(task_id.raw, windows, self.analyzer, self.shuffler)
        signature = self.authority.sign(SigningContext.KEY_SCHEDULE, data)
        return codec.encode_signed_schedule(Signed(data, self.authority.public, signature))

    def frame(self, window: int) -> bytes:
        """A report as a device of this window makes it: the analyzer can open it."""
        served, key = self.published.served, self.published.analyzer_keys[window]
        report = secrets.token_bytes(16)
        sealed = seal_report(key.config, served.task_id, window, report, b"\x01")
        return seal_frame(self.hops[window].config, self.published.content(sealed, window))

    def keys_left(self) -> tuple[list[int], list[int]]:
        """Windows whose private keys are there: the shuffler's, the analyzer's."""
        folders = (
            (self.keys_dir, self.hops),
            (
                self.analyzer_dir / "keys",
                self.published.analyzer_keys,
            ),
        )
        hop, own = (
            [w for w, key in enumerate(keys) if (at / f"{key.config.key_id.hex}.key").exists()]
            for at, keys in folders
        )
        return hop, own

    # --- the services -----------------------------------------------------------------------------

    async def start(self, service: str) -> None:
        stack = self.stacks[service] = AsyncExitStack()
        if service == "shuffler":
            config = load_settings(ShufflerConfig, self.root_dir / "shuffler" / "shuffler.toml")
            self.shuffler_now = await stack.enter_async_context(Shuffler(config, clock=self.clock))
            await self.shuffler_now.serving.look()
            return
        settings = load_settings(AnalyzerConfig, self.analyzer_dir / "analyzer.toml")
        folder = stack.enter_context(DataFolder(settings.data_dir))
        self.store = AnalyzerStore(folder / FILE_NAME)
        stack.callback(self.store.close)
        self.analyzer_now = AnalyzerService(
            settings, folder, self.store, clock=self.clock, pool=shared_pool()
        )
        stack.push_async_callback(self.analyzer_now.stop)
        await self.analyzer_now.start()

    async def restart(self, service: str) -> None:
        await self.stacks[service].aclose()
        await asyncio.sleep(0)
        await self.start(service)

    @asynccontextmanager
    async def both(self) -> AsyncIterator[None]:
        self.analyzer_toml()
        self.shuffler_toml()
        await self.start("analyzer")
        await self.start("shuffler")
        try:
            yield
        finally:
            await self.stacks["shuffler"].aclose()
            await self.stacks["analyzer"].aclose()

    async def renew(self, by: Identity) -> None:
        """Both ends of the link, and what devices see, by another authority, in the order of
        docs/OPERATIONS.md; the old one goes last.
        """

        def put(folder: Path, name: str, made: Identity) -> None:
            (folder / f"{name}.pem").write_bytes(made.cert_pem)
            (folder / f"{name}.key").write_bytes(made.key_pem)

        def trust(pem: bytes) -> None:
            for folder in (self.root_dir / "shuffler", self.analyzer_dir):
                (folder / "ca.pem").write_bytes(pem)

        async def look() -> None:
            assert self.shuffler_now.certificates.look() is not None
            await self.analyzer_now.reload()

        own = self.root_dir / "shuffler"
        trust(self.trusted)
        await look()
        put(own, "front", issue(by, "front", ["127.0.0.1"], server=True, client=False, days=90))
        names = [SHUFFLER_NAME]
        put(own, "caller", issue(by, SHUFFLER_NAME, names, server=False, client=True, days=90))
        put(
            self.analyzer_dir,
            "own",
            issue(by, "analyzer", ["127.0.0.1"], server=True, client=False, days=90),
        )
        await look()
        trust(by.cert_pem)
        await look()
        self.trusted = by.cert_pem  # devices of a task that names the new one alone


class Fleet:
    """Devices that send all the time, each report until it is acknowledged or refused for good."""

    def __init__(self, site: Rotating) -> None:
        self.site, self.acked, self.refused = site, Counter[int](), Counter[Kind]()
        self.window, self.stop, self.moved = 0, asyncio.Event(), asyncio.Event()
        self.retries = 0

    async def send(self) -> None:
        while not self.stop.is_set():
            window = self.window
            channel = build_channel(
                f"127.0.0.1:{self.site.ports[0]}", self.site.trusted, private_pool=True
            )
            for _ in range(4):
                await self._one(channel, window)
            await channel.close()

    async def _one(self, channel: grpc.aio.Channel, window: int) -> None:
        frame = submit(self.site.frame(window))
        for _ in range(_PATIENCE):
            try:
                await call(channel, SUBMIT, frame, 10)
            except ShoalError as error:
                if error.kind not in _LATER:
                    self.refused[error.kind] += 1
                    return
                self.retries += 1
                await asyncio.sleep(0.1)
                continue
            self.acked[window] += 1
            self.moved.set()
            return
        raise AssertionError("a report was never answered")

    async def until(self, window: int, part: float) -> None:
        """That part of the window's reports is acknowledged."""
        while self.acked[window] < part * SENDERS * REPORTS:
            self.moved.clear()
            await self.moved.wait()


async def test_keys_and_certificates_change_under_traffic_and_what_is_acknowledged_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five windows with keys of their own; in the midst of the second the certificates move to
    another authority, in the third the shuffler restarts, in the fourth the analyzer does. A window
    ends while its reports are still on their way: those are refused, and no one is lost.

    Planted: a renewal that nobody registered for -> nobody connects any more, fails. Planted: a
    window's key deleted with the one before -> its reports can't be opened, fails. Planted: a key
    that is kept -> fails.
    """
    monkeypatch.setattr(lifecycle, "_RETRY", Backoff(0.05, 0.05))
    site = Rotating(tmp_path)
    fleet = Fleet(site)
    events: dict[int, Callable[[], Awaitable[None]]] = {
        1: lambda: site.renew(NEW),
        2: lambda: site.restart("shuffler"),
        3: lambda: site.restart("analyzer"),
    }
    async with site.both(), asyncio.timeout(120):
        senders = [asyncio.create_task(fleet.send()) for _ in range(SENDERS)]
        for window in range(WINDOWS):
            fleet.window = window
            # the window before is over in this moment, while reports for it are on their way
            site.clock.time = START + window * LENGTH + GRACE + 100
            await fleet.until(window, 0.5)
            if window in events:
                await events[window]()
            await fleet.until(window, 1)
            if window:
                await released(site, window - 1)
                # nothing of a window that is over is left, and all of those to come
                wanted = list(range(window, WINDOWS))
                assert site.keys_left() == (wanted, wanted)
        fleet.stop.set()
        await asyncio.gather(*senders)
        site.clock.time = START + WINDOWS * LENGTH + GRACE + 100
        await released(site, WINDOWS - 1)
        assert site.keys_left() == ([], [])
        found = {one.window: decode_release(one.release) for one in site.store.releases()}
    assert {w: one.n for w, one in found.items()} == dict(fleet.acked)
    assert not any(one.withheld or one.rejected or one.damaged for one in found.values())
    assert set(fleet.refused) <= {Kind.WINDOW_CLOSED}
    assert fleet.retries > 0
    assert found[0].privacy.windows_composed == 1
    assert found[WINDOWS - 1].privacy.windows_composed == WINDOWS


async def released(site: Rotating, window: int) -> None:
    """Wait until the window is released, acknowledged and shredded, and its keys are gone."""
    which = WindowId(site.published.task_id, window)
    async with asyncio.timeout(60):
        while True:
            record = site.shuffler_now.store.record(which)
            over = record is not None and record.state is WindowState.SHREDDED
            if over and not any(window in left for left in site.keys_left()):
                return
            await asyncio.sleep(0.02)
            site.clock.advance(1)  # the services pause before they ask again
