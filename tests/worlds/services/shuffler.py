"""What the shuffler's tests stand on: signed tasks, keys and certificates in a folder, frames, and
a small analyzer's end.

Sealed reports are random bytes of the right length: the shuffler cannot tell. Everything else is
the production code.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal import codec
from shoal.codec import Signed
from shoal.crypto import keyfiles
from shoal.crypto.admission.enrolled import prove
from shoal.crypto.admission.enrolment import DeviceIdentity
from shoal.crypto.admission.enrolment import issue as certify
from shoal.crypto.envelope import HopContent, seal_frame
from shoal.crypto.hpke import HpkePrivateKey, generate
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.crypto.suites import SuiteId
from shoal.crypto.tlscerts import issue, make_authority
from shoal.crypto.trust import ServedTask, serve_task
from shoal.domain import YesNo
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, KeyId, TaskId
from shoal.protos import delivery_pb2, submit_pb2
from shoal.rpc.call import Call
from shoal.rpc.server import Method, RpcServer, Service
from shoal.rpc.tls import TlsIdentity
from shoal.shuffler import core
from shoal.shuffler.config import ShufflerConfig
from shoal.task import Admission, MechanismSpec, Task, WindowKeys, WindowPlan
from tests.worlds.schedules import schedule_bytes

START = 1_800_000_000  # Unix seconds at which window 0 of every test task begins
LENGTH = 3_600
GRACE = 600
SHUFFLER_NAME = "shuffler.test"
CA = make_authority("test services")
_ANALYZER = issue(CA, "analyzer", ["localhost", "127.0.0.1"], server=True, client=False, days=90)
_FRONT = issue(CA, "shuffler", ["localhost", "127.0.0.1"], server=True, client=False, days=90)
_CALLER = issue(CA, SHUFFLER_NAME, [SHUFFLER_NAME], server=False, client=True, days=90)


@dataclass(frozen=True)
class Published:
    """A task as it was signed, with the private halves that tests want."""

    served: ServedTask
    hop: HpkePrivateKey
    analyzer_keys: tuple[HpkePrivateKey, ...]

    @property
    def task(self) -> Task:
        return self.served.task

    @property
    def task_id(self) -> TaskId:
        return self.served.task_id

    def sealed(self) -> bytes:
        """Random bytes as long as a sealed message of this task."""
        return secrets.token_bytes(core.row_size(self.task))

    def content(self, sealed: bytes | None = None, window: int = 0, **changes: Any) -> HopContent:
        content = HopContent(
            task_id=self.task_id,
            window=window,
            ack_key=secrets.token_bytes(32),
            analyzer_key_id=self.served.keys.analyzer_keys[
                min(window, self.task.windows.count - 1)
            ].key_id,
            admission=b"",
            sealed=(sealed or self.sealed(),),
        )
        return replace(content, **changes)

    def frame(self, sealed: bytes | None = None, window: int = 0, **changes: Any) -> bytes:
        return seal_frame(self.hop.config, self.content(sealed, window, **changes))

    def bundle(self, sealed: tuple[bytes, ...], window: int = 0) -> bytes:
        """The frame of a report of several messages, as large as one of the task's most."""
        content = replace(self.content(window=window), sealed=sealed)
        return seal_frame(self.hop.config, content, messages=self.task.messages)

    def proven(
        self, device: DeviceIdentity, sealed: bytes | None = None, window: int = 0, **changes: Any
    ) -> HopContent:
        """``content`` with this device's admission proof."""
        content = self.content(sealed, window, **changes)
        return replace(
            content, admission=prove(device, content.task_id, content.window, content.sealed)
        )

    def proven_frame(
        self, device: DeviceIdentity, sealed: bytes | None = None, window: int = 0, **changes: Any
    ) -> bytes:
        return seal_frame(self.hop.config, self.proven(device, sealed, window, **changes))


def submit(frame: bytes) -> bytes:
    return submit_pb2.SubmitRequest(frame=frame).SerializeToString()


def submit_batch(frames: list[bytes]) -> bytes:
    return submit_pb2.SubmitBatchRequest(frames=frames).SerializeToString()


class World:
    """A folder with everything that a shuffler wants; more tasks are published into it as tests
    need them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority, self.shuffler, self.analyzer = (
            SigningKey.generate(),
            SigningKey.generate(),
            SigningKey.generate(),
        )
        self.root = SigningKey.generate()  # of enrolment
        self.tasks_dir, self.keys_dir, self.data_dir = (
            folder / "tasks",
            folder / "keys",
            folder / "data",
        )
        for one in (self.tasks_dir, self.keys_dir):
            one.mkdir(parents=True)
        keyfiles.save_signing_key(folder / "signing.key", self.shuffler)
        for name, identity in (("front", _FRONT), ("caller", _CALLER)):
            (folder / f"{name}.pem").write_bytes(identity.cert_pem)
            keyfiles.save_private_pem(folder / f"{name}.key", identity.key_pem)
        (folder / "ca.pem").write_bytes(CA.cert_pem)

    def task(self, **changes: Any) -> Task:
        """Two windows of an hour; min_batch 3, no max_batch."""
        plan = {"start_s": START, "length_s": LENGTH, "count": 2, "grace_s": GRACE, "skew_s": 60}
        plan.update({name: changes.pop(name) for name in list(changes) if name in plan})
        fields: dict[str, Any] = {
            "salt": secrets.token_bytes(16),
            "name": "test",
            "purpose": "testing",
            "question": "does it work?",
            "domain": YesNo(),
            "mechanism": MechanismSpec.of("binary_rr", truth=1 << 63),
            "windows": WindowPlan(**plan),
            "min_batch": 3,
            "max_batch": 0,
            "honest_fraction_ppm": 1_000_000,
            "delta": 1e-6,
            "target_epsilon": 1.0,
            "key_authority": self.authority.public,
            "shuffler_key": self.shuffler.public,
            "analyzer_key": self.analyzer.public,
            "shuffler_address": "127.0.0.1:7443",
            "shuffler_ca": CA.cert_pem,
            "retention_s": 30 * 86_400,
            "report_size": 1,
        }
        return Task(**{**fields, **changes})

    def enrolled(self, **changes: Any) -> Task:
        """``task`` for devices of ``device`` alone."""
        return self.task(admission=Admission.ENROLLED, enrolment_key=self.root.public, **changes)

    def device(
        self,
        not_before_s: int = START - 86_400,
        not_after_s: int = START + 86_400,
        root: SigningKey | None = None,
    ) -> DeviceIdentity:
        """A new enrolled device."""
        key = SigningKey.generate()
        return DeviceIdentity(
            key, certify(root or self.root, key.public, not_before_s, not_after_s)
        )

    def publish(
        self,
        task: Task | None = None,
        hop: HpkePrivateKey | None = None,
        name: str | None = None,
        shuffler: SigningKey | None = None,
        **changes: Any,
    ) -> Published:
        """Sign a task (by default ``self.task(**changes)``) with a fresh schedule and put both, and
        the hop key, into the folder.
        """
        of = shuffler or self.shuffler
        task = task or self.task(**{"shuffler_key": of.public, **changes})
        suite = SuiteId.of(task.suite)
        hop = hop or generate(suite)
        data = codec.encode_task(task)
        task_id = TaskId.of(data)
        keys = tuple(generate(suite) for _ in range(task.windows.count))
        signed_task = codec.encode_signed_task(
            Signed(data, self.authority.public, self.authority.sign(SigningContext.TASK, data))
        )
        signed_schedule = self.schedule(task_id, keys, hop, of)
        stem = name or task_id.short
        (self.tasks_dir / f"{stem}.task").write_bytes(signed_task)
        (self.tasks_dir / f"{stem}.keys").write_bytes(signed_schedule)
        path = self.keys_dir / f"{hop.config.key_id.hex}.key"
        if not path.exists():
            keyfiles.save_hpke_key(path, hop)
        return Published(
            serve_task(signed_task, signed_schedule, {self.authority.public}), hop, keys
        )

    def schedule(
        self,
        task_id: TaskId,
        keys: tuple[HpkePrivateKey, ...],
        hop: HpkePrivateKey,
        shuffler: SigningKey | None = None,
    ) -> bytes:
        windows = tuple(
            WindowKeys(window, key.config.raw, hop.config.raw) for window, key in enumerate(keys)
        )
        data = schedule_bytes(task_id.raw, windows, self.analyzer, shuffler or self.shuffler)
        return codec.encode_signed_schedule(
            Signed(
                data, self.authority.public, self.authority.sign(SigningContext.KEY_SCHEDULE, data)
            )
        )

    def values(self, analyzer_at: str = "127.0.0.1:9", **changes: Any) -> dict[str, Any]:
        """The keys of shuffler.toml."""
        values: dict[str, Any] = {
            "listen": "127.0.0.1:0",
            "admin_listen": "127.0.0.1:0",
            "data_dir": "data",
            "tasks_dir": "tasks",
            "keys_dir": "keys",
            "signing_key": "signing.key",
            "authorities": [self.authority.public.hex()],
            "tls": {"certificate": "front.pem", "key": "front.key"},
            "analyzer": {
                "address": analyzer_at,
                "ca": "ca.pem",
                "certificate": "caller.pem",
                "key": "caller.key",
            },
            "delivery_delay_max_s": 0.0,
            "open_workers": 0,
        }
        return {**values, **changes}

    def config(self, analyzer_at: str = "127.0.0.1:9", **changes: Any) -> ShufflerConfig:
        return ShufflerConfig(**self.values(analyzer_at, **changes), base_dir=self.folder)

    def write_config(self, analyzer_at: str = "127.0.0.1:9", **changes: Any) -> Path:
        """shuffler.toml with these values."""
        path = self.folder / "shuffler.toml"
        values = self.values(analyzer_at, **changes)
        tables = {key: value for key, value in values.items() if isinstance(value, dict)}
        lines = [f"{key} = {_toml(value)}" for key, value in values.items() if key not in tables]
        for table, entries in tables.items():
            lines += [f"[{table}]", *(f"{key} = {_toml(value)}" for key, value in entries.items())]
        path.write_text("\n".join(lines) + "\n")
        return path


def _toml(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


class AnalyzerEnd:
    """The analyzer's side of the wire, in memory: checks signatures and hashes, keeps rows,
    acknowledges.

    ``delivered``: rows of each acknowledged batch in the order of arrival. ``script``: one entry is
    taken per call: "fail" (UNAVAILABLE), "drop" (works, but the answer is lost), "processing",
    "forged" (signed by somebody else), "other" (acknowledges another manifest), "newer" (in a
    version that is not known here), "short" (keeps one chunk, then fails); when it is empty
    everything works.
    """

    def __init__(self, world: World, script: list[str] | None = None) -> None:
        self.world, self.script = world, script or []
        self.delivered: dict[tuple[TaskId, int], list[bytes]] = {}
        self.received: dict[bytes, bytearray] = {}
        self.manifests: dict[bytes, codec.Manifest] = {}
        self.calls: list[str] = []
        self.unserved: dict[TaskId, list[int]] = {}  # what it says that it can't take
        self.trouble = ""
        self.steps: list[bytes] = []  # of discoveries, as it says them
        self._server: RpcServer | None = None

    async def start(self, address: str = "127.0.0.1:0") -> str:
        """Listen over mutual TLS; returns the address."""
        methods = {
            "Offer": Method(64 * 1024, handler=self._offer),
            "Serves": Method(128 * 1024, handler=self._serves),
            "Deliver": Method(300 * 1024, stream_handler=self._deliver),
        }
        service = Service("shoal.v1.Delivery", methods, peers=frozenset({SHUFFLER_NAME}))
        self._server = RpcServer(
            address, [service], TlsIdentity(_ANALYZER.cert_pem, _ANALYZER.key_pem, CA.cert_pem)
        )
        return f"127.0.0.1:{await self._server.start()}"

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)

    def _next(self, name: str) -> str:
        self.calls.append(name)
        return self.script.pop(0) if self.script else ""

    async def _serves(self, request: bytes, call: Call) -> bytes:
        asked = delivery_pb2.ServesRequest.FromString(request).tasks
        reply = delivery_pb2.ServesReply(trouble=self.trouble, steps=self.steps)
        for one in asked:
            if (windows := self.unserved.get(TaskId(one.task_id))) is not None:
                reply.unserved.add(task_id=one.task_id, windows=windows)
        return reply.SerializeToString()

    async def _offer(self, request: bytes, call: Call) -> bytes:
        step = self._next("offer")
        if step == "fail":
            raise ShoalError(Kind.UNAVAILABLE, "scripted")
        message = delivery_pb2.SignedManifest.FromString(request)
        verify(
            self.world.shuffler.public, SigningContext.MANIFEST, message.manifest, message.signature
        )
        manifest = codec.decode_manifest(message.manifest)
        digest = hashlib.sha256(message.manifest).digest()
        self.manifests[digest] = manifest
        rows = self.received.setdefault(digest, bytearray())
        count = len(rows) // manifest.row_size
        if count < manifest.rows:
            reply = delivery_pb2.OfferReply(
                state=delivery_pb2.BATCH_STATE_RECEIVING, received_rows=count
            )
        elif step == "processing":
            reply = delivery_pb2.OfferReply(
                state=delivery_pb2.BATCH_STATE_PROCESSING, received_rows=count
            )
        else:
            reply = delivery_pb2.OfferReply(
                state=delivery_pb2.BATCH_STATE_DONE,
                received_rows=count,
                ack=self._ack(digest, step),
            )
            if step not in ("forged", "other", "newer"):
                self._count(manifest, bytes(rows))
        if step == "drop":
            raise ShoalError(Kind.UNAVAILABLE, "scripted")
        return reply.SerializeToString()

    def _ack(self, digest: bytes, step: str) -> delivery_pb2.SignedAck:
        key = SigningKey.generate() if step == "forged" else self.world.analyzer
        version, of = 2 if step == "newer" else 1, bytes(32) if step == "other" else digest
        ack = delivery_pb2.Ack(version=version, manifest_hash=of).SerializeToString()
        return delivery_pb2.SignedAck(ack=ack, signature=key.sign(SigningContext.ACK, ack))

    def _count(self, manifest: codec.Manifest, data: bytes) -> None:
        assert Digest.of(data) == manifest.rows_hash
        rows = [data[at : at + manifest.row_size] for at in range(0, len(data), manifest.row_size)]
        before = self.delivered.setdefault((manifest.task_id, manifest.window), rows)
        assert before == rows, "a second batch of one window"

    async def _deliver(self, messages: AsyncIterator[bytes], call: Call) -> bytes:
        step = self._next("deliver")
        if step == "fail":
            raise ShoalError(Kind.UNAVAILABLE, "scripted")
        rows, size = bytearray(), 1
        async for message in messages:
            chunk = delivery_pb2.Chunk.FromString(message)
            rows, size = (
                self.received[chunk.manifest_hash],
                self.manifests[chunk.manifest_hash].row_size,
            )
            assert chunk.first_row * size == len(rows)
            assert len(chunk.rows) % size == 0
            assert len(chunk.rows) <= 256 * 1024
            rows += chunk.rows
            if step == "short":
                raise ShoalError(Kind.UNAVAILABLE, "scripted")
        if step == "drop":
            raise ShoalError(Kind.UNAVAILABLE, "scripted")
        return delivery_pb2.DeliverReply(received_rows=len(rows) // size).SerializeToString()


def digest_of(folder: Path) -> dict[str, str]:
    """What is durable in a data folder: SHA-256 per file, logs and lock aside from their bytes'
    meaning. For "unchanged state".
    """
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if not path.name.endswith("-shm")
    }


def key_id_of(published: Published) -> KeyId:
    return published.hop.config.key_id
