"""The running analyzer: configuration in, gRPC and the admin port out, everything in between put
together and taken down.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from shoal.analyzer.batches.executor import Executor, ProcessExecutor
from shoal.analyzer.batches.ingest import Ingest
from shoal.analyzer.batches.key_delivery import InMemoryDelivery, KeyDelivery
from shoal.analyzer.batches.manifest_signatures import FOLDER as SIGNATURES
from shoal.analyzer.batches.manifest_signatures import ManifestSignatures
from shoal.analyzer.batches.processing import Processor
from shoal.analyzer.batches.shredding import Shredder
from shoal.analyzer.batches.spool import Spools
from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.discovery.steps import DiscoverySteps
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.metrics import registry_of, status_of
from shoal.analyzer.missing_keys import MissingKeys
from shoal.analyzer.peer_clock import TimeAnswers
from shoal.analyzer.results.totals import FOLDER as ARRAYS
from shoal.analyzer.rounds.collection import CollectionService
from shoal.analyzer.rounds.sum_release import conclude_sums
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.clock import SureClock
from shoal.clocks.readings import Readings
from shoal.clocks.timekeeper import Timekeeper
from shoal.crypto.keyfiles import load_signing_key
from shoal.crypto.signing import SigningKey
from shoal.crypto.step_folder import STEPS_FOLDER
from shoal.errors import Kind, ShoalError
from shoal.log import get_log
from shoal.rpc.admin import Admin
from shoal.rpc.renewal import TlsFiles, TrustFile
from shoal.rpc.server import RpcServer
from shoal.rpc.tls import TlsIdentity
from shoal.services.certificates import Certificates
from shoal.services.conditions import Conditions, Source
from shoal.services.given_up import GivenUpWindows
from shoal.services.machine import Machine
from shoal.services.process import DataFolder, Reloading, make_folder, run_service
from shoal.services.tracing import Tracer
from shoal.services.watching import watch_disk
from shoal.services.workers import WorkerPool

log = get_log("analyzer")
SPOOL_FOLDER = "spool"


class AnalyzerService:
    """``data_folder`` is locked by the caller, and the store outlives the event loop, so that no
    thread meets a closed one.

    Workers come from ``pool``, or are started here and stopped with the service. Raises on
    construction whatever is wrong with tasks, keys or addresses; nothing listens then.
    """

    def __init__(
        self,
        config: AnalyzerConfig,
        data_folder: Path,
        store: AnalyzerStore,
        *,
        clock: SureClock | None = None,
        pool: WorkerPool | None = None,
        readings: Readings | None = None,
    ) -> None:
        signing_key = load_signing_key(config.signing_key)
        _check_folder(config.keys_dir)
        tls = TlsFiles("tls", config.tls.certificate, config.tls.key, config.tls.client_ca)
        self._data_folder = data_folder
        spool_folder = data_folder / SPOOL_FOLDER
        make_folder(spool_folder)
        self._spools = Spools(spool_folder)
        self._store = store
        store.sign_with(signing_key.public)
        store.releases()  # each is verified once, so that what is damaged is told from the start
        self._keys = KeyFolder(config.keys_dir)
        self._clock = clock or Timekeeper(data_folder, "shoal analyzer clock", readings)
        self._tasks = AnalyzerTasks(config.tasks_dir, config.authority_keys, signing_key.public)
        self._given_up = GivenUpWindows(data_folder)
        self._missing = MissingKeys(store, self._tasks, self._keys, self._clock, self._given_up)
        self._missing.look()
        self._own_pool = pool is None and config.opening.engine == "processes"
        self._pool = WorkerPool(config.workers) if self._own_pool else pool
        shredder = Shredder(
            store=store,
            tasks=self._tasks,
            keys=self._keys,
            spools=self._spools,
            clock=self._clock,
            given_up=self._given_up,
        )
        self._tracer = Tracer("analyzer", config.tracing.endpoint)
        self._machines: Source | None = None
        self._steps = self._make_steps(signing_key)
        self._processor = self._make_processor(config, signing_key, shredder)
        self._rounds = CollectionService(
            store=store,
            tasks=self._tasks,
            keys=self._keys,
            signing_key=signing_key,
            conclude=partial(conclude_sums, arrays=store.folder / ARRAYS),
            shred=shredder.summed,
            clock=self._clock,
        )
        disk = watch_disk(data_folder)
        self._server = self._make_server(config, signing_key, disk, tls.identity)
        tls.on_renewal(self._server.renew)
        admin_files = config.admin.files()
        self.certificates = _certificates(config, tls, admin_files)
        self.conditions = self._watched(disk)
        self._server.health.ready = self.conditions.ready
        self._machine = Machine(data_folder, self.certificates, self._clock)
        registry = registry_of(store, self._rounds.counts, self._given_up)
        registry.register(self._machine)
        self._admin = Admin(
            config.admin_listen, self.conditions, self._status, registry, config.admin.access()
        )
        if admin_files is not None:
            admin_files.on_renewal(lambda _: self._admin.renew())
        self._working: list[asyncio.Task[None]] = []
        self._keep_time(shredder)

    def _make_steps(self, signing_key: SigningKey) -> DiscoverySteps:
        return DiscoverySteps(
            self._data_folder / STEPS_FOLDER,
            self._store,
            self._tasks,
            signing_key,
            self._clock,
            lambda task_id: [line.window for line in self._given_up.of(task_id)],
        )

    def _make_processor(
        self, config: AnalyzerConfig, signing_key: SigningKey, shredder: Shredder
    ) -> Processor:
        executor, delivery = self._make_engine(config, signing_key)
        return Processor(
            store=self._store,
            tasks=self._tasks,
            keys=self._keys,
            spools=self._spools,
            executor=executor,
            delivery=delivery,
            signing_key=signing_key,
            shredder=shredder,
            given_up=self._given_up,
            tracer=self._tracer,
            level=self._steps.level_of,
        )

    def _make_engine(
        self, config: AnalyzerConfig, signing_key: SigningKey
    ) -> tuple[Executor, KeyDelivery]:
        """Where batches are opened: in this machine's processes, which get a window's key in
        memory, or by workers elsewhere.
        """
        if config.opening.engine == "processes":
            assert self._pool is not None  # noqa: S101 - given, or made for this engine
            return ProcessExecutor(self._pool), InMemoryDelivery()
        from shoal.analyzer.machines.configured import engine_of  # the extra [dask]

        executor, delivery, self._machines = engine_of(config.opening, signing_key)
        return executor, delivery

    def _make_server(
        self, config: AnalyzerConfig, signing_key: SigningKey, disk: Source, tls: TlsIdentity
    ) -> RpcServer:
        """Deliveries of batches and rounds, for the shufflers that the configuration names."""
        ingest = Ingest(
            store=self._store,
            tasks=self._tasks,
            keys=self._keys,
            spools=self._spools,
            clock=self._clock,
            complete=self._processor.add,
            clean=self._processor.clean,
            missing=self._missing,
            trouble=lambda: next((condition.message for condition in disk()), ""),
            given_up=self._given_up,
            signatures=ManifestSignatures(self._data_folder / SIGNATURES),
            step=self._steps.last,
        )
        shufflers = frozenset(config.allowed_shufflers)
        peer = TimeAnswers(self._tasks, signing_key, self._clock)
        services = [ingest.service(shufflers, Time=peer.method()), self._rounds.service(shufflers)]
        return RpcServer(config.listen, services, tls)

    def _watched(self, disk: Source) -> Conditions:
        conditions = Conditions()
        known = (self._tasks.conditions, self._missing.conditions, self._processor.conditions)
        conditions.watch(self._given_up.conditions)
        if self._machines is not None:
            conditions.watch(self._machines)
        steps = self._steps.conditions
        for source in (disk, self.certificates.conditions, *known, steps, self._store.damage):
            conditions.watch(source)
        return conditions

    def _keep_time(self, shredder: Shredder) -> None:
        """Look at the clock for the first time: ``start`` goes on with it."""
        if isinstance(self._clock, Timekeeper):
            self._clock.watch(shredder.nothing_over)
            self._clock.look()
            self.conditions.watch(self._clock.conditions)

    def _status(self) -> dict[str, Any]:
        """For /status, to which the admin port adds ``ready`` and ``conditions``."""
        return {
            "service": "analyzer",
            **status_of(self._store, self._tasks.all(), self._given_up),
            "rounds": self._rounds.counts(),
            **self._machine.status(),
        }

    async def start(self) -> tuple[int, int]:
        """Serve; returns the ports of gRPC and admin. Raises PORT_IN_USE, KEY_FILE."""
        if self._pool is not None:
            await asyncio.to_thread(self._pool.warm)
        admin_port = await self._admin.start()
        await self._processor.resume()
        self._working = [
            asyncio.create_task(work)
            for work in (
                self._processor.run(),
                self._processor.sweep_forever(),
                self._rounds.sweep_forever(),
                self._steps.run_forever(),
            )
        ]
        if isinstance(self._clock, Timekeeper):
            self._working.append(asyncio.create_task(self._clock.run(asyncio.Event())))
        port = await self._server.start()
        workers = 0 if self._pool is None else self._pool.processes
        log.info("serving", port=port, tasks=len(self._tasks.all()), workers=workers)
        return port, admin_port

    async def reload(self) -> None:
        """Look at the tasks folder, and read it if it changed; look at keys and TLS files. What is
        wrong there is a condition and stops nothing.
        """
        await asyncio.to_thread(self._tasks.refresh)
        await asyncio.to_thread(self._missing.look)
        self.certificates.look()

    async def stop(self) -> None:
        """No new calls, let open ones finish, leave the batch at hand where it is: the next start
        opens it again.
        """
        await self._server.stop()
        for work in self._working:
            work.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        await self._rounds.stop()
        await self._admin.stop()
        if isinstance(self._clock, Timekeeper):
            await asyncio.to_thread(self._clock.keep)
        await asyncio.to_thread(self._tracer.close)
        if self._own_pool and self._pool is not None:
            await asyncio.to_thread(self._pool.close)
        log.info("stopped")


def _check_folder(keys: Path) -> None:
    if not keys.is_dir():
        raise ShoalError(Kind.CONFIG, f"keys_dir: {keys} does not exist: make it with `shoal keys`")


def _certificates(
    config: AnalyzerConfig, tls: TlsFiles, admin_files: TlsFiles | None
) -> Certificates:
    readers = config.admin.client_ca
    return Certificates(
        [tls] if admin_files is None else [tls, admin_files],
        [] if readers is None else [TrustFile("admin.client_ca", readers)],
    )


def serve(config: AnalyzerConfig) -> None:
    """Run until SIGTERM or SIGINT. Raises ShoalError for whatever keeps it from starting.

    The tasks folder is looked at every ``reload_s`` seconds, at once on SIGHUP, and when the
    shuffler offers what is unknown here.
    """

    async def main(stop: asyncio.Event) -> None:
        reloading = Reloading(config.reload_s)
        service = AnalyzerService(config, folder, store)
        try:
            await service.start()
            await reloading.run(service.reload, stop)
        finally:
            await service.stop()

    with DataFolder(config.data_dir) as folder:
        store = AnalyzerStore(folder / FILE_NAME)
        try:
            run_service(main)
        finally:
            store.close()
