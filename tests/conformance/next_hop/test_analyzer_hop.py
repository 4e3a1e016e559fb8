"""The analyzer as a next hop, over mutual TLS to a scripted analyzer's end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal.ids import Digest
from shoal.rpc.channel import build_channel
from shoal.rpc.tls import TlsIdentity
from shoal.shuffler.reports.next_hop import AnalyzerHop
from tests.conformance.next_hop.suite import NextHopSuite, Site
from tests.worlds.services.shuffler import CA, AnalyzerEnd, World


class TestAnalyzerHop(NextHopSuite):
    @pytest.fixture
    async def make(self, tmp_path: Path) -> AsyncIterator[Site]:
        world = World(tmp_path)
        published = world.publish()
        end = AnalyzerEnd(world)
        own = TlsIdentity.load(tmp_path / "caller.pem", tmp_path / "caller.key")
        channel = build_channel(await end.start(), CA.cert_pem, client=own, private_pool=True)

        def held(digest: Digest) -> bytes:
            return bytes(end.received[digest.raw])

        yield Site(world, published, AnalyzerHop(channel), held, end.stop)
        await channel.close()
        await end.stop()
