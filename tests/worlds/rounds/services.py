"""Rounds of secure aggregation between real services: shuffler and analyzer in this process, TLS on
real sockets, real devices.

``running`` starts both services over one clock that tests move by hand. Phases end because
everybody came, or because a test moves the clock; nothing here waits for time to pass, only for
what is going to happen (``until``).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.analyzer.config import AnalyzerConfig, MutualTls
from shoal.analyzer.rounds.sums import AnySum, SumStore, sum_form
from shoal.analyzer.service import AnalyzerService
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.clients.memory.rounds_ledger import MemoryLedger
from shoal.clients.rounds.exchange import RoundLine
from shoal.clients.rounds.participation import RoundOutcome, take_part
from shoal.clients.transports.rounds_transport import GrpcRoundTransport, RoundTransport
from shoal.clocks.clock import FakeClock
from shoal.clocks.readings import Readings
from shoal.crypto import keyfiles
from shoal.crypto.admission.enrolment import DeviceIdentity, issue
from shoal.crypto.secagg.exchange import open_reply, open_request, seal_request
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningKey
from shoal.domain import Norm, Vector
from shoal.entropy import SYSTEM
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode, PairwisePlan
from shoal.services.process import DataFolder
from shoal.shuffler.core import WindowId
from shoal.shuffler.rounds.window import WindowRounds
from shoal.shuffler.service import Shuffler
from shoal.task import Admission, Aggregator, MechanismSpec, Task
from tests.worlds.services.analyzer_service import shared_pool
from tests.worlds.services.shuffler import _ANALYZER as ANALYZER_IDENTITY
from tests.worlds.services.shuffler import CA, LENGTH, SHUFFLER_NAME, START, Published
from tests.worlds.services.shuffler import World as ShufflerWorld

DAY = 86_400
TICK_S = 0.02  # between two looks of the services at their clock
POLL_S = 0.01  # what a device's waits are cut to
PATIENCE_S = 90.0  # real seconds after which a test gives up waiting for what must happen
DIMENSION = 7


@dataclass
class Device:
    """One enrolled device. ``ledger`` outlives its processes."""

    identity: DeviceIdentity
    vector: NDArray[np.int64]
    ledger: MemoryLedger = field(default_factory=MemoryLedger)


class World:
    """A task that is summed in rounds, the folders of both services, and enrolled devices."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder, self.shuffler = folder, ShufflerWorld(folder / "shuffler")
        self.enrolment = SigningKey.generate()
        self.published: Published = self.shuffler.publish(self.task(**changes))
        home = folder / "analyzer"
        (home / "keys").mkdir(parents=True)
        for key in self.published.analyzer_keys:
            keyfiles.save_hpke_key(home / "keys" / f"{key.config.key_id.hex}.key", key)
        keyfiles.save_signing_key(home / "signing.key", self.shuffler.analyzer)
        (home / "tls.pem").write_bytes(ANALYZER_IDENTITY.cert_pem)
        keyfiles.save_private_pem(home / "tls.key", ANALYZER_IDENTITY.key_pem)
        (home / "ca.pem").write_bytes(CA.cert_pem)

    def task(
        self,
        *,
        devices: int = 12,
        cohort_min: int = 0,
        survivors_min: int = 0,
        mode: Mode = Mode.DEFAULT,
        dimension: int = DIMENSION,
        word_bits: int = 32,
        dropout_ppm: int = 250_000,
        honest_ppm: int = 900_000,
        target_epsilon: float = 50.0,
        segment_words: int = 0,
        **changes: Any,
    ) -> Task:
        """``devices``: cohort_max, so that a cohort that is complete begins at once."""
        least = cohort_min or devices
        survivors = survivors_min or max(3, least * 2 // 3)
        plan = PairwisePlan(
            mode, least, devices, survivors, dropout_ppm, word_bits, 30, 60, 120, 60, segment_words
        )
        domain = Vector(dimension, Norm.COORDINATE, 1.0, 16)
        spec = MechanismSpec.of("skellam", variance=4096, shares=plan.honest_survivors(honest_ppm))
        return self.shuffler.task(
            name="weights",
            domain=domain,
            mechanism=spec,
            min_batch=survivors,
            honest_fraction_ppm=honest_ppm,
            target_epsilon=target_epsilon,
            admission=Admission.ENROLLED,
            enrolment_key=self.enrolment.public,
            aggregator=Aggregator.PAIRWISE,
            pairwise=plan,
            report_size=plan.vector_bytes(dimension),
            **changes,
        )

    @property
    def terms(self) -> RoundTerms:
        return RoundTerms.served(self.published.served, 0)

    def device(self, vector: Sequence[int] | None = None, root: SigningKey | None = None) -> Device:
        """Enrolled for a year; by another root: a stranger."""
        key = SigningKey.generate()
        identity = DeviceIdentity(
            key, issue(root or self.enrolment, key.public, START - DAY, START + 365 * DAY)
        )
        values = (
            np.frombuffer(secrets.token_bytes(2 * self.terms.dimension), dtype="<i2")
            if vector is None
            else vector
        )
        return Device(identity, np.array(values, dtype=np.int64))

    def devices(self, count: int) -> list[Device]:
        return [self.device() for _ in range(count)]

    def analyzer_config(self, port: int = 0) -> AnalyzerConfig:
        return AnalyzerConfig(
            listen=f"127.0.0.1:{port}",
            admin_listen="127.0.0.1:0",
            data_dir=Path("data"),
            tasks_dir=self.shuffler.tasks_dir,
            keys_dir=Path("keys"),
            signing_key=Path("signing.key"),
            authorities=[self.shuffler.authority.public.hex()],
            allowed_shufflers=[SHUFFLER_NAME],
            tls=MutualTls(
                certificate=Path("tls.pem"), key=Path("tls.key"), client_ca=Path("ca.pem")
            ),
            open_workers=1,
            base_dir=self.folder / "analyzer",
        )


class Running:
    """Both services. ``restart_*`` end one and start it again from its folder, on the same port."""

    def __init__(self, world: World) -> None:
        self.world, self.clock = world, FakeClock(START + 1.0)
        self.clocks: dict[str, FakeClock] = {}  # of services that have one of their own, by name
        # of services that keep the time of a machine, by name
        self.machines: dict[str, Readings] = {}
        self._ends: dict[str, contextlib.AsyncExitStack] = {}
        self._transports: list[RoundTransport] = []
        self.analyzer_port = self.analyzer_admin_port = 0
        self.store: AnalyzerStore
        self.analyzer: AnalyzerService
        self.shuffler: Shuffler

    # --- services ---------------------------------------------------------------------------------

    async def start_analyzer(self) -> None:
        stack = self._ends["analyzer"] = contextlib.AsyncExitStack()
        config = self.world.analyzer_config(self.analyzer_port)
        data = stack.enter_context(DataFolder(config.data_dir))
        self.store = AnalyzerStore(data / FILE_NAME)
        stack.callback(self.store.close)
        self.analyzer = AnalyzerService(
            config,
            data,
            self.store,
            clock=self._clock_of("analyzer"),
            pool=shared_pool(),
            readings=self.machines.get("analyzer"),
        )
        stack.push_async_callback(self.analyzer.stop)
        self.analyzer_port, self.analyzer_admin_port = await self.analyzer.start()

    async def start_shuffler(self, port: int = 0) -> None:
        stack = self._ends["shuffler"] = contextlib.AsyncExitStack()
        config = self.world.shuffler.config(
            f"localhost:{self.analyzer_port}", listen=f"127.0.0.1:{port}"
        )
        readings = self.machines.get("shuffler")
        made = Shuffler(config, clock=self._clock_of("shuffler"), tick_s=TICK_S, readings=readings)
        self.shuffler = await stack.enter_async_context(made)

    def _clock_of(self, name: str) -> FakeClock | None:
        return None if name in self.machines else self.clocks.get(name, self.clock)

    async def stop(self, name: str) -> None:
        stack = self._ends.pop(name, None)
        if stack is not None:
            await stack.aclose()

    async def close(self) -> None:
        for transport in self._transports:
            await transport.close()
        await self.stop("shuffler")
        await self.stop("analyzer")

    # --- looking ----------------------------------------------------------------------------------

    def window(self, number: int = 0) -> WindowId:
        return WindowId(self.world.published.task_id, number)

    @property
    def rounds(self) -> WindowRounds:
        rounds = self.shuffler.rounds.window(self.window())
        assert rounds is not None
        return rounds

    def sums(self, window: int = 0) -> Sequence[AnySum]:
        published = self.world.published
        return SumStore(self.store).of(published.task_id, window, sum_form(published.served.task))

    def counts(self) -> dict[str, int]:
        """Of the one round under way."""
        live = list(self.rounds._under_way)  # to see how far it is
        return live[-1].coordinator.counts() if live else {}

    def phase(self) -> str:
        return next(iter(self.rounds.phases()), "")

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for what is going to happen."""
        async with asyncio.timeout(PATIENCE_S):
            while not happened():  # noqa: ASYNC110 - the services tell nobody how far they are
                await asyncio.sleep(TICK_S / 4)

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    # --- devices ----------------------------------------------------------------------------------

    def transport(self) -> GrpcRoundTransport:
        made = GrpcRoundTransport(f"localhost:{self.shuffler.port}", CA.cert_pem, private_pool=True)
        self._transports.append(made)
        return made

    def line(
        self,
        transport: RoundTransport | None = None,
        *,
        window: int = 0,
        deadline: float = START + LENGTH * 3.0,
    ) -> RoundLine:
        """A device's way to the shuffler; its pauses are cut short."""
        hop = self.world.published.served.keys.hop_keys[window]
        return RoundLine(
            hop,
            transport or self.transport(),
            self.clock,
            deadline,
            sleep=brief,
            send_deadline_s=5.0,
        )

    async def take_part(
        self, device: Device, transport: RoundTransport | None = None, **changes: Any
    ) -> RoundOutcome:
        """``changes``: of ``line``."""
        terms = RoundTerms.served(self.world.published.served, changes.get("window", 0))
        return await take_part(
            terms, device.identity, device.vector, device.ledger, self.line(transport, **changes)
        )

    def begin(
        self, devices: Sequence[Device], transport: RoundTransport | None = None
    ) -> list[asyncio.Task[RoundOutcome]]:
        shared = transport or self.transport()
        return [asyncio.create_task(self.take_part(device, shared)) for device in devices]


class Wire:
    """A transport that reads along (tests hold the hop key): ``kinds`` of steps that passed, and
    where this device falls silent.

    ``stop``: the kind of step from which nothing is heard of the device any more; ``after``: that
    step still arrives. ``twice``: every frame is sent twice, and both answers kept.
    """

    def __init__(
        self,
        inner: RoundTransport,
        world: World,
        stop: str = "",
        *,
        after: bool = False,
        twice: bool = False,
    ) -> None:
        self.inner, self.world, self.stop, self.after, self.twice = inner, world, stop, after, twice
        self.kinds: list[str] = []
        self.frames: list[bytes] = []
        self.answers: list[tuple[pairwise_pb2.Answer, pairwise_pb2.Answer]] = []
        self.silent = asyncio.Event()

    async def exchange(self, frame: bytes, deadline_s: float) -> bytes:
        data, key = open_request(self.world.published.hop, frame)
        kind = pairwise_pb2.Step.FromString(data).WhichOneof("step") or ""
        self.kinds.append(kind)
        self.frames.append(frame)
        if kind == self.stop and not self.after:
            await self._silence()
        sealed = await self.inner.exchange(frame, deadline_s)
        if self.twice:
            again = await self.inner.exchange(frame, deadline_s)
            first, second = (
                pairwise_pb2.Answer.FromString(open_reply(key, one)) for one in (sealed, again)
            )
            self.answers.append((first, second))
        if kind == self.stop:
            await self._silence()
        return sealed

    async def _silence(self) -> None:
        self.silent.set()
        await asyncio.Event().wait()

    async def close(self) -> None:
        await self.inner.close()


async def brief(seconds: float) -> None:
    """A device's pause, cut short."""
    await asyncio.sleep(min(seconds, POLL_S))


@asynccontextmanager
async def running(world: World) -> AsyncIterator[Running]:
    one = Running(world)
    try:
        await one.start_analyzer()
        await one.start_shuffler()
        await one.until(lambda: one.shuffler.rounds.window(one.window()) is not None)
        yield one
    finally:
        await one.close()


def total(devices: Sequence[Device]) -> list[int]:
    return np.sum([device.vector for device in devices], axis=0).tolist()  # type: ignore[no-any-return]


async def ask(one: Running, step: bytes | pairwise_pb2.Step) -> pairwise_pb2.Answer:
    """One step, sealed as a device seals it."""
    data = step if isinstance(step, bytes) else step.SerializeToString()
    request = seal_request(one.world.published.hop.config, data, SYSTEM)
    reply = open_reply(request.reply_key, await one.transport().exchange(request.frame, 5.0))
    return pairwise_pb2.Answer.FromString(reply)


def step(
    one: Running, session: bytes = bytes(16), window: int = 0, **kind: object
) -> pairwise_pb2.Step:
    return pairwise_pb2.Step(
        task_id=one.world.published.task_id.raw,
        window=window,
        session=session,
        **kind,  # type: ignore[arg-type]
    )
