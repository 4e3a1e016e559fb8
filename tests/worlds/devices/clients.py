"""What the device's tests stand on: an authority, signed tasks and schedules, and a shuffler's far
end that records frames.

The far end is a real gRPC server with TLS that opens real frames with the real hop key; only what
happens behind it (the disk) is left out, and its answers can be scripted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shoal import codec
from shoal.clients.transports.transport import Receipt
from shoal.codec import Signed
from shoal.crypto.envelope import (
    NONCE_SIZE,
    HopContent,
    open_frame,
    open_report,
    receipt_mac,
    report_info,
)
from shoal.crypto.hpke import HpkePrivateKey, generate
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.tlscerts import issue, make_authority
from shoal.domain import Categories, Domain, Vector
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.mechanisms import create, design
from shoal.mechanisms.base import Mechanism
from shoal.mechanisms.vectors import registry as vectors
from shoal.mechanisms.vectors.protocol import VectorRandomizer
from shoal.protos import submit_pb2
from shoal.rpc.call import Call
from shoal.rpc.server import Method, RpcServer, Service
from shoal.rpc.tls import TlsIdentity
from shoal.task import Task, WindowKeys, WindowPlan
from tests.worlds.schedules import schedule_bytes

START = 1_800_000_000  # Unix seconds at which window 0 of every test task begins
WEEK = 7 * 86_400
_AUTHORITY = make_authority("test authority")
_SERVER = issue(
    _AUTHORITY, "shuffler", ["localhost", "127.0.0.1"], server=True, client=False, days=30
)
CA = _AUTHORITY.cert_pem
TLS = TlsIdentity(_SERVER.cert_pem, _SERVER.key_pem)
VISITS = Categories(("0", "1", "2", "3-4", "5-9", "10+"), (0, 1, 2, 3, 5, 10))


@dataclass
class World:
    """An authority and one task: signed bytes, and every private key."""

    task: Task
    authority: SigningKey
    analyzer: HpkePrivateKey
    hop: HpkePrivateKey
    services: SigningKey  # signs for shuffler and analyzer
    task_bytes: bytes = b""
    signed_task: bytes = b""
    signed_schedule: bytes = b""

    def __post_init__(self) -> None:
        self.sign()

    def sign(self) -> None:
        self.task_bytes = codec.encode_task(self.task)
        self.signed_task = codec.encode_signed_task(
            Signed(
                self.task_bytes,
                self.authority.public,
                self.authority.sign(SigningContext.TASK, self.task_bytes),
            )
        )
        self.signed_schedule = self.schedule(self.hop)

    def schedule(
        self, hop: HpkePrivateKey, by: SigningKey | None = None, task_id: TaskId | None = None
    ) -> bytes:
        windows = tuple(
            WindowKeys(w, self.analyzer.config.raw, hop.config.raw)
            for w in range(self.task.windows.count)
        )
        data = schedule_bytes((task_id or self.task_id).raw, windows, self.services, self.services)
        signer = by or self.authority
        return codec.encode_signed_schedule(
            Signed(data, signer.public, signer.sign(SigningContext.KEY_SCHEDULE, data))
        )

    @property
    def task_id(self) -> TaskId:
        return TaskId.of(self.task_bytes)

    @property
    def authorities(self) -> frozenset[bytes]:
        return frozenset({self.authority.public})

    def write(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / f"{self.task.name}.task").write_bytes(self.signed_task)
        (folder / f"{self.task.name}.keys").write_bytes(self.signed_schedule)

    def reports(self, frame: bytes) -> list[bytes]:
        """The reports inside a frame."""
        return [plaintext[NONCE_SIZE:] for plaintext in self.opened(frame)]

    def opened(self, frame: bytes) -> list[bytes]:
        """nonce || report of every message of a frame, opened with both keys."""
        content = open_frame(self.hop, frame)
        info = report_info(content.task_id, content.window, content.analyzer_key_id)
        return [open_report(self.analyzer, info, sealed) for sealed in content.sealed]


def make_world(
    address: str = "127.0.0.1:1",
    *,
    name: str = "visits",
    domain: Domain = VISITS,
    mechanism: str = "krr",
    epsilon0: float = 3.0,
    start: int = START,
    length: int = WEEK,
    count: int = 4,
    authority: SigningKey | None = None,
    hop: HpkePrivateKey | None = None,
    purpose: str = "to plan clinics",
    min_batch: int = 1_000,
) -> World:
    made: Mechanism | VectorRandomizer
    if isinstance(domain, Vector):
        spec = vectors.design(mechanism, domain, epsilon0)
        made = vectors.create(spec, domain)
    else:
        spec = design(mechanism, domain, epsilon0)
        made = create(spec, domain)
    authority = authority or SigningKey.generate()
    services = SigningKey.generate()
    task = Task(
        salt=bytes(range(16)),
        name=name,
        purpose=purpose,
        question="How many visits?",
        domain=domain,
        mechanism=spec,
        windows=WindowPlan(start, length, count, min(3_600, length), min(300, length)),
        min_batch=min_batch,
        max_batch=0,
        honest_fraction_ppm=900_000,
        delta=1e-8,
        target_epsilon=1.0,
        key_authority=authority.public,
        shuffler_key=services.public,
        analyzer_key=services.public,
        shuffler_address=address,
        shuffler_ca=CA,
        retention_s=4 * WEEK,
        report_size=made.report_size,
        messages=made.messages,
    )
    return World(
        task,
        authority,
        generate(SuiteId.X25519_AES128),
        hop or generate(SuiteId.X25519_AES128),
        services,
    )


def accept(_number: int, _frame: bytes) -> None:
    """The script of a shuffler that takes everything."""


Script = Callable[[int, bytes], ShoalError | bytes | None]


@dataclass
class FarEnd:
    """The shuffler as devices meet it. ``script(number, frame)``: an error to answer with, another
    MAC, or None for a receipt.
    """

    hops: list[HpkePrivateKey]
    script: Script = accept
    frames: list[bytes] = field(default_factory=list)
    # by innermost sealed bytes: a retry merges
    contents: dict[bytes, HopContent] = field(default_factory=dict)
    port: int = 0

    def answer(self, frame: bytes) -> bytes:
        number = len(self.frames)
        self.frames.append(frame)
        scripted = self.script(number, frame)
        if isinstance(scripted, ShoalError):
            raise scripted
        key = next((hop for hop in self.hops if hop.config.key_id.raw == frame[3:11]), self.hops[0])
        content = open_frame(key, frame)
        self.contents[b"".join(content.sealed)] = content
        return receipt_mac(content.ack_key, 0, frame) if scripted is None else scripted

    async def submit(self, request: bytes, _: Call) -> bytes:
        frame = codec.parse(submit_pb2.SubmitRequest, request, "request").frame
        return submit_pb2.SubmitReply(mac=self.answer(frame)).SerializeToString()

    async def submit_batch(self, request: bytes, _: Call | None) -> bytes:
        receipts = []
        for frame in codec.parse(submit_pb2.SubmitBatchRequest, request, "request").frames:
            try:
                receipts.append(submit_pb2.Receipt(status=0, mac=self.answer(frame)))
            except ShoalError as error:
                content = open_frame(self.hops[0], frame)
                receipts.append(
                    submit_pb2.Receipt(
                        status=error.kind.value,
                        mac=receipt_mac(content.ack_key, error.kind.value, frame),
                    )
                )
        return submit_pb2.SubmitBatchReply(receipts=receipts).SerializeToString()

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[FarEnd]:
        methods = {
            "Submit": Method(LIMITS.submit_bytes, self.submit),
            "SubmitBatch": Method(LIMITS.batch_bytes, self.submit_batch),
        }
        server = RpcServer(f"127.0.0.1:{port}", [Service("shoal.v1.Ingress", methods)], TLS)
        self.port = await server.start()
        try:
            yield self
        finally:
            await server.stop(0.0)


class DirectTransport:
    """The same far end without a network. ``down``: nobody answers."""

    def __init__(self, far: FarEnd) -> None:
        self.far, self.down, self.closed = far, False, False

    async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
        if self.down or self.closed:
            raise ShoalError(Kind.UNAVAILABLE, "the shuffler can't be reached")
        return self.far.answer(frame)

    async def submit_batch(
        self, frames: Sequence[bytes], ack_keys: Sequence[bytes], deadline_s: float
    ) -> list[Receipt]:
        if self.down or self.closed:
            raise ShoalError(Kind.UNAVAILABLE, "the shuffler can't be reached")
        reply = await self.far.submit_batch(
            submit_pb2.SubmitBatchRequest(frames=frames).SerializeToString(), None
        )
        return [
            Receipt(r.status, r.mac) for r in submit_pb2.SubmitBatchReply.FromString(reply).receipts
        ]

    async def close(self) -> None:
        self.closed = True
