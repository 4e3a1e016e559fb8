"""The shuffler as a process: ``shoal shuffler serve``. Wires the parts together and takes them
apart in the right order.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

from prometheus_client import CollectorRegistry

from shoal.clocks.clock import SureClock
from shoal.clocks.readings import Readings
from shoal.clocks.timekeeper import Timekeeper
from shoal.crypto.keyfiles import load_signing_key
from shoal.crypto.signing import SigningKey
from shoal.crypto.step_folder import STEPS_FOLDER
from shoal.entropy import SYSTEM, Entropy
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.mqtt.settings import BrokerSettings
from shoal.mqtt.topics import tag_of
from shoal.rpc.admin import Admin
from shoal.rpc.channel import CallsPeer
from shoal.rpc.renewal import RenewableChannel, TlsFiles, TrustFile
from shoal.rpc.server import RpcServer
from shoal.services.certificates import Certificates
from shoal.services.conditions import Conditions
from shoal.services.given_up import GivenUpWindows
from shoal.services.machine import Machine
from shoal.services.process import DataFolder, Reloading, spare_collector
from shoal.services.tracing import Tracer
from shoal.services.watching import watch_disk
from shoal.shuffler.analyzer_capacity import Serving, asking
from shoal.shuffler.asked_steps import AskedSteps
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.core import WindowId
from shoal.shuffler.directory import Directory
from shoal.shuffler.peer_clock import AnalyzerClock
from shoal.shuffler.reports.egress import Egress
from shoal.shuffler.reports.ingress import Ingress
from shoal.shuffler.reports.lifecycle import Lifecycle
from shoal.shuffler.reports.mqtt_bridge import MqttBridge, broker_link
from shoal.shuffler.reports.next_hop import AnalyzerHop
from shoal.shuffler.reports.noise import AddedNoise, NoiseSource
from shoal.shuffler.reports.opening import Opener
from shoal.shuffler.revocations import Revocations
from shoal.shuffler.rounds.collection import GrpcCollection
from shoal.shuffler.rounds.driver import RoundDriver
from shoal.shuffler.rounds.ingress import RoundsIngress
from shoal.shuffler.rounds.live_round import TICK_S
from shoal.shuffler.rounds.parts import RoundParts
from shoal.shuffler.rounds.singles import Singles
from shoal.shuffler.status import StatusPage
from shoal.shuffler.step_announcer import StepAnnouncer
from shoal.shuffler.stores.claims import Claim, HeldClaims, OwnerId
from shoal.shuffler.stores.configured import ShufflerStorage, open_store
from shoal.shuffler.stores.store import Store
from shoal.shuffler.tasks import ShufflerTasks

log = get_log("shuffler")


def default_workers() -> int:
    """Worker processes for batches: one per CPU; none on a machine with a single one."""
    count = os.cpu_count() or 1
    return count if count > 1 else 0


class Shuffler:
    """One running shuffler. ``async with Shuffler(config) as shuffler``: serving inside, drained
    and closed after.

    Raises CONFIG, KEY_FILE, PORT_IN_USE, CONFLICT and what loading tasks raises, before anything is
    served.
    """

    def __init__(
        self,
        config: ShufflerConfig,
        *,
        clock: SureClock | None = None,
        entropy: Entropy = SYSTEM,
        tick_s: float = TICK_S,
        readings: Readings | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        """``tick_s``: seconds between two looks of an open round at the clock. Without ``clock`` a
        timekeeper of ``readings``, this machine's where there are none. ``noise``: for tasks whose
        shuffler adds it; without one they are refused.
        """
        self._noise = AddedNoise(noise, entropy)
        self._tick_s = tick_s
        self._config, self._given_clock, self._readings, self._entropy = (
            config,
            clock,
            readings,
            entropy,
        )
        self._clock: SureClock
        self._owner = OwnerId.draw()
        self._stack = AsyncExitStack()
        self._stopping = False
        self.conditions = Conditions()
        self.port = 0
        self.admin_port = 0
        self.tasks: ShufflerTasks
        self.lifecycle: Lifecycle
        self.rounds: RoundDriver
        self.store: Store
        self.registry: CollectorRegistry
        self.certificates: Certificates
        self._given_up: GivenUpWindows
        self.revocations: Revocations
        self._admin_files: TlsFiles | None = None

    async def __aenter__(self) -> Shuffler:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def reload(self) -> None:
        """Look at the tasks folder and the TLS files again. Tasks are the event loop's; a long list
        of revoked devices is read and verified beside it.
        """
        await asyncio.to_thread(self.revocations.look)
        before = set(self.tasks.served)
        self.tasks.refresh()
        if self.tasks.served.keys() - before:
            self.revocations.look()  # before anybody answers a new task: its list may have come too
        self.certificates.look()

    async def stop(self) -> None:
        """Refuse new calls, answer open ones, commit, close. Deliveries go on at the next start."""
        self._stopping = True
        await self._stack.aclose()

    async def _start(self) -> None:
        config = self._config
        signing_key = load_signing_key(config.signing_key)
        tls = TlsFiles("tls", config.tls.certificate, config.tls.key)
        to_analyzer = config.analyzer.files()
        broker = config.mqtt.settings() if config.mqtt is not None and config.mqtt.enabled else None
        # What is entered last is left first: server, lifecycle, store, folder.
        folder = self._stack.enter_context(DataFolder(config.data_dir))
        self._clock = self._given_clock or Timekeeper(
            folder, "shoal shuffler clock", self._readings
        )
        self._given_up = GivenUpWindows(folder)
        self.conditions.watch(self._given_up.conditions)
        storage = await open_store(config, self._entropy)
        self._stack.push_async_callback(storage.close)
        if storage.watch is not None and isinstance(self._clock, Timekeeper):
            storage.watch.tell_clock(self._clock)  # before anything is decided by ours
        self.store = storage.reports
        self.tasks = self._make_tasks(signing_key)
        opener = Opener(
            config.keys_dir,
            default_workers() if config.open_workers is None else config.open_workers,
        )
        self._stack.callback(opener.close)
        channel = RenewableChannel(config.analyzer.address, to_analyzer.identity)
        to_analyzer.on_renewal(channel.renew)
        self._stack.push_async_callback(channel.close)
        egress = Egress(AnalyzerHop(channel), signing_key, self.store)
        self.steps = steps = AskedSteps(
            self.tasks, self._clock, folder / STEPS_FOLDER, storage.steps
        )
        self.lifecycle = self._make_lifecycle(egress, opener)
        self._keep_time(channel, signing_key)
        self.serving = Serving(self.tasks, asking(channel), steps)
        self.revocations = Revocations(config.tasks_dir, folder)
        self.conditions.watch(self.revocations.conditions)
        ingress = Ingress(
            self.tasks,
            self.store,
            opener,
            self._clock,
            self.serving.refuses,
            self.revocations,
            steps.find,
        )
        rounds = self._make_rounds(storage, GrpcCollection(channel), signing_key)
        bridge = self._bridge(broker, ingress, tag_of(signing_key.public))
        self._watch(folder, [tls, to_analyzer])
        admin = self._pages(
            Machine(folder, self.certificates, self._clock), ingress, rounds, bridge
        )
        self.conditions.watch(storage.damage)
        await self._join(storage)
        directory = Directory(self.tasks, self._clock, self._unanswered, steps.listed)
        server = RpcServer(
            config.listen, [ingress.service(), rounds.service(), directory.service()], tls.identity
        )
        tls.on_renewal(server.renew)
        server.health.ready = self.conditions.ready
        await asyncio.to_thread(opener.warm)
        await self._begin(admin, server, bridge)
        log.info("serving", port=self.port, tasks=len(self.tasks.served), workers=opener.workers)

    def _pages(
        self, machine: Machine, ingress: Ingress, rounds: RoundsIngress, bridge: MqttBridge | None
    ) -> Admin:
        """What operators read, and the conditions that are seen there alone."""
        page = StatusPage(
            self.tasks,
            self.store,
            self.lifecycle,
            ingress,
            lambda: self._stopping,
            self.rounds,
            rounds,
            bridge,
            machine.status,
            self._clock.now,
            self._given_up,
        )
        self.registry = CollectorRegistry()
        self.registry.register(page)
        self.registry.register(machine)
        self.conditions.watch(page.conditions)
        config, files = self._config, self._admin_files
        admin = Admin(
            config.admin_listen, self.conditions, page.status, self.registry, config.admin.access()
        )
        if files is not None:
            files.on_renewal(lambda _: admin.renew())
        return admin

    async def _join(self, storage: ShufflerStorage) -> None:
        """The others of a database that several share are known before a device is served."""
        if storage.fellows is not None:
            tasks = self.tasks
            await storage.fellows.start(
                self._owner.raw,
                lambda: tasks.schedules(waiting=False),
                lambda: tasks.schedules(waiting=True),
                self._given_up,
            )
        await self.steps.look()

    def _tracing(self, config: ShufflerConfig) -> Tracer:
        tracer = Tracer("shuffler", config.tracing.endpoint)
        self._stack.push_async_callback(asyncio.to_thread, tracer.close)
        return tracer

    def _make_lifecycle(self, egress: Egress, opener: Opener) -> Lifecycle:
        return Lifecycle(
            self.tasks,
            self.store,
            egress,
            self._clock,
            self._entropy,
            self._config.delivery_delay_max_s,
            opener.forget_keys,
            self._owner,
            self._given_up,
            self._tracing(self._config),
            self._noise,
            self._asked,
        )

    def _asked(self, window: WindowId) -> bytes:
        """The name of what the reports of a window answer: as it was when they came, also where
        another shuffler took them.
        """
        record = self.store.record(window)
        if record is not None and record.asked is not None:
            return record.asked
        return self.steps.named(window)

    def _unanswered(self) -> dict[TaskId, frozenset[int]]:
        """Windows that no device should answer: the analyzer can't take them, or they are given
        up. An empty set: all of a task.
        """
        paused = dict(self.serving.paused)
        for task_id, window in self._given_up:
            listed = paused.get(task_id)
            if listed is None or listed:
                paused[task_id] = (listed or frozenset()) | {window}
        return paused

    def _make_tasks(self, signing_key: SigningKey) -> ShufflerTasks:
        config = self._config
        return ShufflerTasks(
            self.store,
            self._clock,
            config.tasks_dir,
            config.keys_dir,
            config.authority_keys,
            signing_key.public,
            config.delivery_delay_max_s,
            self._noise,
        )

    async def _begin(self, admin: Admin, server: RpcServer, bridge: MqttBridge | None) -> None:
        """What goes on beside the calls of devices, then those."""
        end = asyncio.Event()
        self._stack.push_async_callback(_end, end, asyncio.create_task(self.lifecycle.run(end)))
        self._stack.push_async_callback(_end, end, asyncio.create_task(self.rounds.run(end)))
        self._stack.push_async_callback(_end, end, asyncio.create_task(self.steps.run(end)))
        if bridge is not None:
            announcer = StepAnnouncer(self.steps.announced, bridge.announce)
            self._stack.push_async_callback(_end, end, asyncio.create_task(announcer.run(end)))
        self._stack.push_async_callback(_cancel, asyncio.create_task(self.serving.run(end)))
        self.admin_port = await admin.start()
        self._stack.push_async_callback(admin.stop)
        await self._open(server, bridge)

    def _watch(self, folder: Path, own: list[TlsFiles]) -> None:
        """Disk, certificates, tasks and the analyzer, for /status and readiness."""
        broker = self._config.mqtt
        self._admin_files = self._config.admin.files()
        if self._admin_files is not None:
            own = [*own, self._admin_files]
        trusted = (
            [TrustFile("mqtt.ca", broker.ca)]
            if broker is not None and broker.enabled and broker.ca is not None
            else []
        )
        if self._config.admin.client_ca is not None:
            trusted.append(TrustFile("admin.client_ca", self._config.admin.client_ca))
        self.certificates = Certificates(own, trusted)
        self.conditions.watch(watch_disk(folder))
        self.conditions.watch(self.certificates.conditions)
        self.conditions.watch(self.tasks.conditions)
        self.conditions.watch(self.serving.conditions)

    def _keep_time(self, channel: CallsPeer, signing_key: SigningKey) -> None:
        """Look at the clock once a second, and compare it with the analyzer's."""
        keeper = self._clock
        if not isinstance(keeper, Timekeeper):
            return
        keeper.watch(self.tasks.nothing_over)
        keeper.look()
        self.conditions.watch(keeper.conditions)
        tasks = self.tasks
        peer = AnalyzerClock(
            channel,
            signing_key,
            keeper,
            self._entropy,
            lambda: {served.task.analyzer_key for served in tasks.served.values()},
        )
        end = asyncio.Event()
        self._stack.push_async_callback(_end, end, asyncio.create_task(keeper.run(end)))
        self._stack.push_async_callback(_cancel, asyncio.create_task(peer.run(end)))

    def _make_rounds(
        self, storage: ShufflerStorage, collection: GrpcCollection, signing_key: SigningKey
    ) -> RoundsIngress:
        """Everything of secure aggregation, behind the service that devices call."""
        singles = Singles(storage.vectors, self._entropy)

        async def decide(claim: Claim) -> None:
            await self.store.lapse([claim])
            self.tasks.decided(claim.window)

        parts = RoundParts(
            collection, signing_key, storage.scratch, self._clock, self._entropy, self._tick_s
        )
        held = HeldClaims(self.store, self._owner)
        self.rounds = RoundDriver(
            self.tasks, parts, storage.answered, singles, decide, held, self._given_up
        )
        return RoundsIngress(
            self.tasks,
            self.rounds,
            singles,
            self._clock,
            self._entropy,
            self.serving.refuses,
            self.revocations,
        )

    async def _open(self, server: RpcServer, bridge: MqttBridge | None) -> None:
        """Begin to take reports; both ways are drained together. A broker that can't be reached is
        waited for while calls are served.
        """
        self.port = await server.start()
        self._stack.push_async_callback(_drain, server, bridge)
        if bridge is not None:
            await bridge.start()

    def _bridge(
        self, broker: BrokerSettings | None, ingress: Ingress, tag: str
    ) -> MqttBridge | None:
        if broker is None:
            return None
        shared = self._config.store.replicas > 1
        link = broker_link(broker, tag, self._entropy, shared=shared)
        return MqttBridge(ingress.take, link, tag, self._entropy)


async def _drain(server: RpcServer, bridge: MqttBridge | None) -> None:
    await asyncio.gather(
        server.stop(LIMITS.drain_s), *([bridge.stop()] if bridge is not None else [])
    )


async def _end(stop: asyncio.Event, task: asyncio.Task[None]) -> None:
    stop.set()
    await task


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def serve(
    config: ShufflerConfig, stop: asyncio.Event, noise: NoiseSource | None = None
) -> None:
    """Run until ``stop``; ``noise``: see ``Shuffler``. SIGHUP looks at the tasks folder and the TLS
    files again at once; otherwise every ``reload_s`` seconds.
    """
    reloading = Reloading(config.reload_s)
    async with Shuffler(config, noise=noise) as shuffler:
        spare_collector()
        await reloading.run(shuffler.reload, stop)
        log.info("stopping: no new reports are taken, what was taken is on disk")
    log.info("stopped")
