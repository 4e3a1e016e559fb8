"""``shoal agent run``: the agent as a service. It answers every task that has a source, in every
window, until it is told to stop.

Whatever goes wrong outside its own configuration (network, broker, disk, tasks, sources) costs at
most what it touches: the service goes on, and logs one line when something changes, not one per
try. SIGHUP reads the configuration again and keeps the old one if the new one is wrong. SIGTERM and
SIGINT end it: nothing more is measured, attempts under way get ten seconds, what waits is sent at
the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shoal.clients.agent import Agent, ReportOutcome
from shoal.clients.feeds.configured import open_feeds
from shoal.clients.feeds.feed import Feed
from shoal.clients.service.instance_lock import Hold
from shoal.clients.service.measuring import Measuring, SleepUntilWoken, source_of, unmatched
from shoal.clients.service.task_arrivals import TaskArrivals
from shoal.clients.settings.config import AgentConfig
from shoal.clocks.clock import DeviceClock
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import configure, get_log

log = get_log("agent")
# configuration, whether it sends in the background
AgentFactory = Callable[[AgentConfig, bool], Agent]
LOOK_S = 60.0  # between two looks at the folders of tasks, and at what feeds say of themselves
_AGAIN_S = 30.0  # before a full disk is tried again


async def run(
    path: Path, stop: asyncio.Event | None = None, once: bool = False
) -> list[ReportOutcome]:
    """Run the agent of a configuration file until ``stop``, or, without one, SIGTERM or SIGINT;
    ``once``: a single pass.

    A pass learns what there is to learn, answers every task that has a source and no answer in its
    current window (not sums: a round wants the device for longer), and makes one attempt for
    everything that waits: where each of these stands is returned. Raises CONFIG, KEY_FILE for what
    is wrong at the start, CONFIG also if another agent runs on the outbox. A pass waits for no
    disk: it raises OVERLOADED for one that is full, read-only or failing, and MISMATCH for a memory
    that was set back, when it has done what it could.
    """
    if stop is None:  # the process is this service's: nobody else can have arranged for these
        os.umask(0o077)
        configure()
    end, reload = stop or asyncio.Event(), asyncio.Event()
    with _signals(end if stop is None else None, reload):
        config = await asyncio.to_thread(AgentConfig.load, path)
        runner = Runner(path, end, reload)
        if once:
            return await runner.once(config)
        await runner.run(config)
        return []


@contextlib.contextmanager
def _signals(stop: asyncio.Event | None, reload: asyncio.Event) -> Iterator[None]:
    """SIGHUP sets ``reload``; SIGTERM and SIGINT set ``stop`` if it is given. Nothing outside the
    main thread.
    """
    loop = asyncio.get_running_loop()
    wanted = {signal.SIGHUP: reload}
    if stop is not None:
        wanted |= {signal.SIGTERM: stop, signal.SIGINT: stop}
    placed = []
    for number, event in wanted.items():
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            loop.add_signal_handler(number, event.set)
            placed.append(number)
    try:
        yield
    finally:
        for number in placed:
            loop.remove_signal_handler(number)


@dataclass(frozen=True, slots=True)
class _Open:
    """An agent under one configuration, with what feeds it."""

    agent: Agent
    arrivals: TaskArrivals
    feeds: list[Feed]

    @property
    def heard(self) -> set[str]:
        """Addresses of shufflers whose catalogue a feed reads."""
        return {shuffler.address for shuffler in self.agent.config.feeds.shufflers}


class Runner:
    """The service behind its seams. clock, entropy, sleep and agents: for tests."""

    def __init__(
        self,
        path: Path,
        stop: asyncio.Event,
        reload: asyncio.Event,
        *,
        clock: DeviceClock | None = None,
        entropy: Entropy = SYSTEM,
        sleep: SleepUntilWoken = asyncio.sleep,
        agents: AgentFactory | None = None,
    ) -> None:
        self._path, self._stop, self._reload = path, stop, reload
        self._clock, self._entropy, self._sleep = clock, entropy, sleep
        self._agents = agents or self._agent
        self._hold: Hold | None = None
        self._told: dict[str, str] = {}  # what was said last, by where

    def _agent(self, config: AgentConfig, background: bool) -> Agent:
        return Agent(
            config,
            background=background,
            gap_s=config.send_gap_s,
            clock=self._clock,
            entropy=self._entropy,
        )

    def tell(self, where: str, what: str, error: ShoalError | None = None) -> None:
        """Log what changed. That something works is worth a line only after it did not."""
        said = f"{what} {error.message}" if error is not None else what
        before = self._told.get(where)
        self._told[where] = said
        if before == said or (before is None and error is None):
            return
        if error is not None:
            log.warning(what, where=where, error=error)
        else:
            log.info(what, where=where)

    # --- opening ----------------------------------------------------------------------------------

    async def _opened(self, config: AgentConfig, once: bool = False) -> _Open | None:
        """Open an agent and its feeds. A disk that is full or busy is waited for, under the
        configuration of the last reload meanwhile.

        None: told to stop meanwhile. Raises CONFIG, KEY_FILE; ``once``: OVERLOADED too, nothing is
        waited for.
        """
        while not self._stop.is_set():
            try:
                self._take(config.outbox)
                agent = self._agents(config, not once)
                await agent.__aenter__()
                try:
                    arrivals = TaskArrivals(agent)
                    return _Open(
                        agent,
                        arrivals,
                        open_feeds(
                            config,
                            arrivals.offer,
                            self._entropy,
                            arrivals.pause,
                            arrivals.step,
                            arrivals.awaits,
                        ),
                    )
                except BaseException:
                    await agent.__aexit__(None, None, None)
                    raise
            except ShoalError as error:
                if once or error.kind is not Kind.OVERLOADED:
                    raise
                self.tell("memory", "the device's memory can't be opened", error)
                await self._pause(_AGAIN_S)
                if self._reload.is_set():  # else no pause would be one
                    config = await self._read_again() or config
        return None

    def _take(self, outbox: Path) -> None:
        """Be the one agent that runs on this outbox; through a reload too. Raises CONFIG if another
        one does, OVERLOADED.
        """
        before = self._hold
        if before is None or before.real != outbox.resolve():
            self._hold = Hold(outbox)
            if before is not None:
                before.release()

    def _release(self) -> None:
        if self._hold is not None:
            self._hold.release()
            self._hold = None

    async def _reopened(self, old: AgentConfig) -> _Open | None:
        """With the file as it is now, or, if that is wrong, with the configuration before."""
        new = await self._read_again()
        try:
            return await self._opened(new or old)
        except ShoalError as error:
            if new is None:
                raise
            log.error("the configuration can't be used: the old one stays", error=error)
            return await self._opened(old)

    async def _read_again(self) -> AgentConfig | None:
        """What ``reload`` asked for; None, and a line in the log: the file is wrong. A reload asked
        for meanwhile stays asked for.
        """
        self._reload.clear()
        try:
            config = await asyncio.to_thread(AgentConfig.load, self._path)
        except ShoalError as error:
            log.error("the configuration can't be used: the old one stays", error=error)
            return None
        log.info("configuration read again")
        return config

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not through ``stop`` or ``reload``."""
        ends = [
            asyncio.ensure_future(task)
            for task in (self._stop.wait(), self._reload.wait(), self._sleep(seconds))
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    # --- a service --------------------------------------------------------------------------------

    async def run(self, config: AgentConfig) -> None:
        """Until ``stop``. Raises CONFIG, KEY_FILE for the first configuration alone."""
        try:
            opened = await self._opened(config)
            log.info("agent runs", tasks=len(opened.agent.tasks.all()) if opened is not None else 0)
            while opened is not None:
                try:
                    await self._serve(opened)
                finally:
                    await opened.agent.__aexit__(None, None, None)
                opened = None if self._stop.is_set() else await self._reopened(opened.agent.config)
        finally:
            self._release()
        log.info("agent ended")

    async def _serve(self, opened: _Open) -> None:
        """Until ``stop`` or ``reload``: learn tasks, look at the folders, measure; then let what is
        under way come to its end.
        """
        over = asyncio.Event()
        # Feeds that were opened anew have asked nobody yet: their silence is no answer.
        self._told = {
            where: said for where, said in self._told.items() if not where.startswith("feed ")
        }
        measuring = Measuring(opened.agent, self._entropy, self._sleep, self.tell)
        feeding = [asyncio.create_task(feed.run(over)) for feed in opened.feeds]
        feeding.append(
            asyncio.create_task(
                opened.agent.pauses.run(over, opened.arrivals.pause, opened.heard, self._entropy)
            )
        )
        try:
            while not (self._stop.is_set() or self._reload.is_set()):
                await self._look(opened, measuring)
                await self._until_arrivals(opened.arrivals)
        finally:
            over.set()
            measuring.stop()
            for feed in feeding:
                feed.cancel()
            await asyncio.gather(*feeding, return_exceptions=True)
            await opened.agent.drain(LIMITS.drain_s)
            await measuring.close()

    async def _look(self, opened: _Open, measuring: Measuring) -> None:
        opened.arrivals.fresh.clear()
        for feed in opened.feeds:
            trouble = ShoalError(Kind.UNAVAILABLE, feed.trouble) if feed.trouble else None
            self.tell(
                f"feed {feed.origin}",
                "feed answers" if trouble is None else "feed brings nothing",
                trouble,
            )
        try:
            await asyncio.to_thread(opened.arrivals.prune)
            await asyncio.to_thread(opened.agent.look)
            tasks = await asyncio.to_thread(opened.agent.status)
            forgetful = await opened.agent.memory.run(opened.agent.memory.forgetful)
        except ShoalError as error:
            self.tell("tasks", "tasks can't be read", error)
            return
        self.tell("tasks", "tasks are read")
        self.tell(
            "set back",
            "the memory is whole"
            if forgetful is None
            else "this memory was set back: nothing is answered",
            forgetful,
        )
        for name, problem in opened.agent.tasks.problems.items():
            self.tell(f"task file {name}", "task file can't be used", problem)
        for status in tasks:
            refusal = ShoalError(Kind.REFUSED, status.refusal) if status.refusal else None
            self.tell(
                f"policy on {status.assignment.task_id.short}",
                "task accepted" if refusal is None else "task refused",
                refusal,
            )
        self._sources(opened.agent)
        await measuring.doubted()
        measuring.update(tasks)

    def _sources(self, agent: Agent) -> None:
        """Which of the owner's sources nothing is read from, as far as is known now."""
        idle = unmatched(agent)
        for name in agent.config.sources:
            trouble = ShoalError(Kind.UNKNOWN_TASK, idle[name]) if name in idle else None
            self.tell(
                f"source {name[:64]}",
                "source has a task" if trouble is None else "source is not read",
                trouble,
            )

    async def _until_arrivals(self, arrivals: TaskArrivals) -> None:
        fresh = asyncio.create_task(arrivals.fresh.wait())
        pause = asyncio.create_task(self._pause(LOOK_S))
        try:
            await asyncio.wait([fresh, pause], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in (fresh, pause):
                waiter.cancel()
            await asyncio.gather(fresh, pause, return_exceptions=True)

    # --- a single pass ----------------------------------------------------------------------------

    async def once(self, config: AgentConfig) -> list[ReportOutcome]:
        """Learn, answer, send: each once; what is wrong with one of them is logged and stops
        nothing. Returns where the reports stand.

        Raises, at the end, what the device's own memory or disk failed with first.
        """
        outcomes: list[ReportOutcome] = []
        try:
            opened = await self._opened(config, once=True)
            if opened is not None:
                await self._pass(opened, outcomes)
        finally:
            self._release()
        return outcomes

    async def _pass(self, opened: _Open, outcomes: list[ReportOutcome]) -> None:
        agent = opened.agent
        try:
            await asyncio.gather(*(self._fed(feed) for feed in opened.feeds))
            await asyncio.to_thread(agent.look)
            await agent.pauses.look(LIMITS.feed_once_s, opened.arrivals.pause, opened.heard)
            self._sources(agent)
            failures = [
                reason
                for reason in (
                    await agent.memory.run(agent.memory.forgetful),
                    await self._answered(agent),
                )
                if reason is not None
            ]
            for outcome in await agent.flush():
                outcomes.append(outcome)
                if outcome.message:
                    self.tell(
                        f"task {outcome.task}",
                        "not delivered",
                        ShoalError(outcome.kind or Kind.UNAVAILABLE, outcome.message),
                    )
            if failures:
                raise failures[0]
        finally:
            await agent.__aexit__(None, None, None)

    async def _answered(self, agent: Agent) -> ShoalError | None:
        """Answer what is due, and return what failed: the disk. The other tasks are not tried after
        that, but where rows of one task are damaged.
        """
        failed: ShoalError | None = None
        measuring = Measuring(agent, self._entropy, self._sleep, self.tell)
        try:
            for status in (
                [] if await measuring.doubted() else await asyncio.to_thread(agent.status)
            ):
                spec, window = source_of(agent, status.assignment), status.window
                if (
                    spec is None
                    or status.refusal
                    or window is None
                    or status.assignment.task.pairwise is not None
                ):
                    continue
                try:
                    if not await asyncio.to_thread(
                        agent.answered, status.assignment.task_id, window
                    ):
                        await measuring.measure(status.assignment, spec, window)
                except ShoalError as error:
                    if error.kind is not Kind.MISMATCH:
                        raise
                    failed = failed or error
        except ShoalError as error:
            return error
        return failed

    async def _fed(self, feed: Feed) -> None:
        try:
            await feed.once(LIMITS.feed_once_s)
        except ShoalError as error:
            self.tell(f"feed {feed.origin}", "feed brings nothing", error)
