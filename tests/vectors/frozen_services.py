"""Today's services on frozen folders, or on the same folders without what was kept there."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import numpy as np

from shoal import codec
from shoal.analyzer.config import AnalyzerConfig
from shoal.cli.main import main
from shoal.clients.agent import Agent
from shoal.clients.rounds.agent import RoundsAgent
from shoal.clients.settings.config import AgentConfig
from shoal.clients.transports.grpc_transport import GrpcTransport
from shoal.clients.transports.rounds_transport import GrpcRoundTransport
from shoal.crypto import keyfiles
from shoal.crypto.admission.enrolment import DeviceIdentity, issue
from shoal.crypto.signing import SigningKey
from shoal.crypto.trust import serve_task
from shoal.protos import delivery_pb2, directory_pb2
from shoal.rpc.channel import build_channel
from shoal.rpc.tls import TlsIdentity
from shoal.services.settings import load_settings
from shoal.shuffler.config import ShufflerConfig
from tests.worlds.rounds import services as rounds_world
from tests.worlds.rounds.services import Device, Running, brief
from tests.worlds.services import shuffler as shuffler_world

PACE_S = 2.5  # of the services' clock, between two looks


class Folders:
    """What ``Running`` wants of a world. Certificates are made anew: the frozen ones run out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shuffler = self
        for service, name, identity in (
            ("shuffler", "front", shuffler_world._FRONT),
            ("shuffler", "caller", shuffler_world._CALLER),
            ("analyzer", "tls", shuffler_world._ANALYZER),
        ):
            home = folder / service
            (home / f"{name}.pem").write_bytes(identity.cert_pem)
            (home / f"{name}.key").unlink()
            keyfiles.save_private_pem(home / f"{name}.key", identity.key_pem)
            (home / "ca.pem").write_bytes(shuffler_world.CA.cert_pem)

    def config(self, analyzer_at: str, listen: str) -> ShufflerConfig:
        frozen = load_settings(ShufflerConfig, self.folder / "shuffler" / "shuffler.toml")
        analyzer = frozen.analyzer.model_copy(update={"address": analyzer_at})
        return frozen.model_copy(update={"analyzer": analyzer, "listen": listen})

    def analyzer_config(self, port: int = 0) -> AnalyzerConfig:
        frozen = load_settings(AnalyzerConfig, self.folder / "analyzer" / "analyzer.toml")
        return frozen.model_copy(update={"listen": f"127.0.0.1:{port}"})

    @property
    def published(self) -> Any:
        """The task that is summed in rounds, for ``Running.take_part``."""
        signed, keys = (
            self.folder / "shuffler" / "tasks" / f"weights.{end}" for end in ("task", "keys")
        )
        signer = codec.decode_signed_task(signed.read_bytes()).authority
        return SimpleNamespace(served=serve_task(signed.read_bytes(), keys.read_bytes(), {signer}))

    def device(self) -> Device:
        """A new one, enrolled with the frozen root."""
        root, key = keyfiles.load_signing_key(self.folder / "root.key"), SigningKey.generate()
        task = self.published.served.task
        identity = DeviceIdentity(key, issue(root, key.public, task.windows.start_s, 1 << 32))
        return Device(identity, np.ones(task.domain.dimension, dtype=np.int64))

    def data(self, service: str) -> Path:
        return self.folder / service / "data"


class Services(Running):
    """``Running`` over ``folders``, at a time of a test's choice."""

    def __init__(self, folders: Folders, now: float) -> None:
        super().__init__(cast(Any, folders))
        self.folders, self.clock.time = folders, now

    async def shredded(self, *wanted: str) -> dict[str, str]:
        """Wait until these windows are."""
        return await self.reach("SHREDDED", *wanted)

    async def reach(self, state: str, *wanted: str) -> dict[str, str]:
        """Wait until windows are in a state; the services' time goes on: they pause before they ask
        again. Returns all windows that the shuffler lists: "visits:1": "SEALED"."""
        async with asyncio.timeout(rounds_world.PATIENCE_S):
            while True:
                found = await self.windows()
                if all(found.get(one) == state for one in wanted):
                    return found
                await asyncio.sleep(0.05)
                self.clock.advance(PACE_S)

    async def windows(self) -> dict[str, str]:
        tasks = json.loads(await self.status("shuffler"))["tasks"]
        return {f"{t['name']}:{w['window']}": w["state"] for t in tasks for w in t["shown"]}

    async def status(self, service: str) -> str:
        """What an operator is shown by ``--json``."""
        port = self.shuffler.admin_port if service == "shuffler" else self.analyzer_admin_port
        return await self.shown(service, "status", "--admin", f"127.0.0.1:{port}", "--json")

    async def shown(self, *command: str) -> str:
        """What a command prints that asks a service of this process."""

        def run() -> str:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                main(command)
            return out.getvalue()

        return await asyncio.to_thread(run)

    async def catalogue(self) -> bytes:
        """What the shuffler tells everybody who asks for tasks."""
        at, ca = f"localhost:{self.shuffler.port}", shuffler_world.CA.cert_pem
        channel = build_channel(at, ca, private_pool=True)
        try:
            page: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
            page = channel.unary_unary("/shoal.v1.Directory/Page")
            reply = directory_pb2.PageReply.FromString(await page(b"", timeout=30))
            assert len(reply.data) == reply.total
            return reply.data
        finally:
            await channel.close()

    async def deliver(self, manifest: bytes, rows: bytes, first: int) -> None:
        """As a shuffler does that was interrupted: offer, then the rows from ``first`` on."""
        client = TlsIdentity(shuffler_world._CALLER.cert_pem, shuffler_world._CALLER.key_pem)
        channel = build_channel(
            f"localhost:{self.analyzer_port}",
            shuffler_world.CA.cert_pem,
            client=client,
            private_pool=True,
        )
        try:
            offer: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                "/shoal.v1.Delivery/Offer"
            )
            reply = delivery_pb2.OfferReply.FromString(await offer(manifest, timeout=30))
            assert (reply.state, reply.received_rows) == (delivery_pb2.BATCH_STATE_RECEIVING, first)
            signed = delivery_pb2.SignedManifest.FromString(manifest).manifest
            digest = _digest(signed)
            size = len(rows) // 6
            chunk = delivery_pb2.Chunk(
                manifest_hash=digest, first_row=first, rows=rows[first * size :]
            )

            async def stream() -> AsyncIterator[bytes]:
                yield chunk.SerializeToString()

            deliver: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(
                "/shoal.v1.Delivery/Deliver"
            )
            done = delivery_pb2.DeliverReply.FromString(await deliver(stream(), timeout=30))
            assert done.received_rows == 6
        finally:
            await channel.close()

    def agent(self, folder: Path) -> Agent:
        """A device's, on the services' clock, to the port that was free."""
        at, ca = f"localhost:{self.shuffler.port}", shuffler_world.CA.cert_pem

        def making(config: AgentConfig, _: object, entropy: Any) -> RoundsAgent:
            def transport(*_: object) -> GrpcRoundTransport:
                return GrpcRoundTransport(at, ca, private_pool=True)

            return RoundsAgent(config, self.clock, entropy, transport, brief)

        return Agent(
            AgentConfig.load(folder / "agent.toml"),
            background=False,
            clock=self.clock,
            transports=lambda *_: GrpcTransport(at, ca, private_pool=True),
            rounds=making,
        )


def _digest(data: bytes) -> bytes:
    from shoal.ids import Digest

    return Digest.of(data).raw


@asynccontextmanager
async def serving(folders: Folders, now: float) -> AsyncIterator[Services]:
    """Nothing runs yet: ``start_analyzer``, ``start_shuffler``."""
    services = Services(folders, now)
    try:
        yield services
    finally:
        await services.close()


def schema(path: Path) -> list[str]:
    """What a SQLite file is: numbers in its head, every table, index and trigger, blanks aside."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        numbers = [
            f"{name} {db.execute(f'PRAGMA {name}').fetchone()[0]}"
            for name in ("user_version", "application_id")
        ]
        rows = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name")
        return [*numbers, *(" ".join(row[0].split()) for row in rows)]
    finally:
        db.close()


def rows(path: Path, table: str, columns: str = "*") -> list[list[str]]:
    """All rows of a table, in the order in which it gives them; bytes as hex."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        found = db.execute(f"SELECT {columns} FROM {table}").fetchall()  # noqa: S608 - a test's own words
        return [[one.hex() if isinstance(one, bytes) else str(one) for one in row] for row in found]
    finally:
        db.close()
