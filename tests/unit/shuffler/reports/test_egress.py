"""Delivery over mutual TLS to a scripted analyzer's end: idempotent, resumed where it stopped,
ended by a signature alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from shoal import failpoints
from shoal.crypto.signing import SigningKey
from shoal.crypto.tlscerts import issue, make_authority
from shoal.errors import Kind, ShoalError
from shoal.rpc.channel import build_channel
from shoal.rpc.tls import TlsIdentity
from shoal.shuffler.core import Capacity, WindowId, WindowState, row_size
from shoal.shuffler.reports import egress
from shoal.shuffler.reports.egress import Egress, make_manifest
from shoal.shuffler.reports.next_hop import AnalyzerHop
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport, WindowRecord
from shoal.shuffler.stores.threaded import ThreadedStore
from tests.worlds.services.shuffler import CA, SHUFFLER_NAME, AnalyzerEnd, Published, World


class Link:
    """A sealed batch of ``count`` reports and the way to the analyzer's end."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.published: Published = self.world.publish(report_size=3_900)  # 66 rows to a chunk
        self.world.data_dir.mkdir()
        self.store = SqliteStore(self.world.data_dir)
        self.analyzer = AnalyzerEnd(self.world)
        self.channels: list[grpc.aio.Channel] = []
        self.window = WindowId(self.published.task_id, 0)

    def seal(self, count: int) -> None:
        task = self.published.task
        self.store.adopt(
            self.published.task_id,
            self.published.served.keys.digest,
            Capacity.of(task),
            row_size(task),
        )
        self.sent = [self.published.sealed() for _ in range(count)]
        self.store.append([AdmittedReport(self.window, (one,)) for one in self.sent])
        self.store.close_intake(self.window)
        sealed = self.store.seal(self.window)
        manifest = make_manifest(self.published.served, self.window, sealed)
        self.store.advance(
            self.window, WindowState.CLOSING, WindowState.SEALED, sealed, sealed.rows, manifest
        )

    async def connect(
        self, caller: TlsIdentity | None = None, key: SigningKey | None = None
    ) -> Egress:
        if not hasattr(self, "address"):
            self.address = await self.analyzer.start()
        own = TlsIdentity.load(self.world.folder / "caller.pem", self.world.folder / "caller.key")
        channel = build_channel(self.address, CA.cert_pem, client=caller or own, private_pool=True)
        self.channels.append(channel)
        return Egress(AnalyzerHop(channel), key or self.world.shuffler, ThreadedStore(self.store))

    async def attempt(self, sender: Egress) -> bool:
        return await sender.attempt(self.published.served, self.window, self.record)

    @property
    def record(self) -> WindowRecord:
        record = self.store.record(self.window)
        assert record is not None
        return record


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[Link]:
    one = Link(tmp_path)
    yield one
    failpoints.arm("")
    for channel in one.channels:
        await channel.close()
    await one.analyzer.stop()
    one.store.close()


@pytest.mark.parametrize("count", [3, 66, 67, 200])
async def test_the_whole_batch_arrives_and_a_second_attempt_changes_nothing(
    link: Link, count: int
) -> None:
    link.seal(count)
    sender = await link.connect()
    assert await link.attempt(sender) is True
    (rows,) = link.analyzer.delivered.values()
    assert sorted(rows) == sorted(link.sent)
    assert await link.attempt(sender) is True
    assert link.analyzer.calls == ["offer", "deliver", "offer", "offer"]


async def test_lost_answers_and_broken_streams_are_resumed_not_repeated(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: delivering from row 0 whatever the analyzer holds -> the end asserts on first_row,
    fails.
    """
    monkeypatch.setattr(egress, "_CHUNKS_PER_CALL", 2)
    link.seal(400)
    link.analyzer.script = [
        "fail",
        "drop",
        "",
        "short",
        "",
        "fail",
        "",
        "drop",
        "",
        "",
        "processing",
        "drop",
    ]
    sender, failures = await link.connect(), list[Kind]()
    for _ in range(12):
        try:
            if await link.attempt(sender):
                break
        except ShoalError as error:
            failures.append(error.kind)
    (rows,) = link.analyzer.delivered.values()
    assert sorted(rows) == sorted(link.sent)
    assert len(failures) >= 5
    # Now and then gRPC says INTERNAL of its own for a stream that the peer ended ("short") while it
    # was being written.
    assert {Kind.UNAVAILABLE} <= set(failures) <= {Kind.UNAVAILABLE, Kind.INTERNAL}
    assert failures.count(Kind.INTERNAL) <= 1


async def test_long_batches_go_in_several_calls(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "_CHUNKS_PER_CALL", 1)
    link.seal(200)
    assert await link.attempt(await link.connect()) is True
    assert link.analyzer.calls.count("deliver") == 4


@pytest.mark.parametrize(
    ("step", "kind"),
    [("forged", Kind.BAD_SIGNATURE), ("other", Kind.MISMATCH), ("newer", Kind.MISMATCH)],
)
async def test_an_acknowledgement_that_is_none_ends_nothing(
    link: Link, step: str, kind: Kind
) -> None:
    """Planted: no ``verify`` in ``_check``, no look at the version, or at the hash -> its case
    fails.
    """
    link.seal(5)
    link.analyzer.script = ["", "", step]
    with pytest.raises(ShoalError) as refused:
        await link.attempt(await link.connect())
    assert refused.value.kind is kind


async def test_an_analyzer_that_works_is_asked_again_later(link: Link) -> None:
    link.seal(5)
    link.analyzer.script = ["", "", "processing", "processing"]
    sender = await link.connect()
    assert [await link.attempt(sender) for _ in range(3)] == [False, False, True]


async def test_a_manifest_signed_by_somebody_else_is_refused_by_the_other_side(link: Link) -> None:
    link.seal(5)
    with pytest.raises(ShoalError) as refused:
        await link.attempt(await link.connect(key=SigningKey.generate()))
    assert refused.value.kind is Kind.BAD_SIGNATURE


async def test_the_wrong_client_certificate_is_refused(link: Link) -> None:
    link.seal(5)
    name = issue(CA, "mallory.test", ["mallory.test"], server=False, client=True, days=1)
    with pytest.raises(ShoalError) as refused:
        await link.attempt(await link.connect(TlsIdentity(name.cert_pem, name.key_pem)))
    assert refused.value.kind is Kind.FORBIDDEN
    stranger = issue(
        make_authority("strangers"),
        SHUFFLER_NAME,
        [SHUFFLER_NAME],
        server=False,
        client=True,
        days=1,
    )
    with pytest.raises(ShoalError) as refused:
        await link.attempt(await link.connect(TlsIdentity(stranger.cert_pem, stranger.key_pem)))
    assert refused.value.kind in (Kind.UNAVAILABLE, Kind.DEADLINE)
    assert not link.analyzer.received


async def test_a_disk_that_fails_in_mid_stream_is_a_typed_failure(link: Link) -> None:
    link.seal(200)
    failpoints.arm("egress.chunk=eio@2")
    with pytest.raises(OSError, match="failpoint"):
        await link.attempt(await link.connect())
    failpoints.arm("")
    (tmp,) = link.world.data_dir.glob("batch-*")
    moved = tmp.rename(tmp.with_name("moved"))
    with pytest.raises(ShoalError) as refused:
        await link.attempt(await link.connect())
    assert refused.value.kind is Kind.INTERNAL
    moved.rename(tmp)
    assert await link.attempt(await link.connect()) is True


async def test_nobody_there(link: Link) -> None:
    link.seal(5)
    sender = await link.connect()
    await link.analyzer.stop()
    with pytest.raises(ShoalError) as refused:
        await link.attempt(sender)
    assert refused.value.kind is Kind.UNAVAILABLE


def test_the_manifest_says_what_was_sealed(link: Link) -> None:
    from shoal.codec import decode_manifest

    link.seal(7)
    manifest, keys = decode_manifest(link.record.manifest), link.published.served.keys
    assert (manifest.task_id, manifest.window, manifest.rows) == (link.published.task_id, 0, 7)
    assert manifest.analyzer_key_id == keys.analyzer_keys[0].key_id
    assert manifest.hop_key_id == keys.hop_keys[0].key_id
    assert manifest.schedule_hash == keys.digest
