"""What a device pays for its agent: time to import it, memory while it waits, CPU per report;
against the libraries that it stands on.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import echo
from benchmarks.bare import LIBRARIES
from benchmarks.bench import Bench
from benchmarks.figures import (
    MEGABYTES,
    MICROSECONDS,
    MILLISECONDS,
    SECONDS,
    Figure,
    Goal,
    Outcome,
    Pairs,
    Sample,
    alternate,
    spread,
)
from benchmarks.idle import Memory, compiled, of_agent, of_bare
from benchmarks.mqtt import shuffler_with
from benchmarks.raw import Processes, Work
from benchmarks.site import Site, started
from benchmarks.unary import echo_server
from shoal import codec
from shoal.clients import Agent, AgentConfig
from shoal.clients.core import assign
from shoal.clients.drawing import prepare
from shoal.clients.transports.transport import Transport
from shoal.clocks.clock import FakeClock
from shoal.codec import Signed
from shoal.crypto.envelope import receipt_mac
from shoal.crypto.hpke import generate
from shoal.crypto.schedules import sign_keys
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.trust import SCHEDULE_SUFFIX, TASK_SUFFIX, trust_schedule, trust_task
from shoal.ids import TaskId
from shoal.task import KeySchedule, Task, WindowKeys, WindowPlan
from tests.worlds.mqtt.broker import Broker

TITLE = (
    "import, idle memory and CPU per report of a device's agent / the bare libraries that it "
    "stands on"
)
_IMPORT_S, _IDLE_MB, _BEYOND_MS = 0.4, 55.0, 1.5
_ROOT = Path(__file__).resolve().parents[1]
_HOUR = 3_600
_START = 1_800_000_000
_WINDOWS = 1_500  # reports that one agent can make: one per window
_PACKAGE, _API = "import shoal.clients", "from shoal.clients import Agent, AgentConfig"
_FIRST = (
    f"{_API}; import shoal.clients.transports.grpc_transport, shoal.clients.memory.outbox_sqlite; "
    "from shoal.mechanisms import create"
)
_BARE = f"{LIBRARIES}; import grpc"


def run(bench: Bench) -> Outcome:
    """What one report, one start and an idle agent cost a device."""
    site = bench.fresh_site("agent", 300)
    bytecode = bench.folder / "bytecode"
    environment = compiled(bench.pick(None, bytecode, bytecode))
    idle = _idle(site, environment)
    imports = {
        code: tuple(_import_s(code, environment) for _ in range(bench.pick(1, 5, 11)))
        for code in (_BARE, _PACKAGE, _API, _FIRST)
    }
    one, place = Processes(1), _place(bench.folder / "agent-cpu", site.pair.task)
    few = bench.pick(3, 100, 100)  # 12 times so many windows, at most
    windows = iter(range(0, _WINDOWS, few + 1))
    try:
        one.run(reports, place, next(windows), 0)  # imports
        pairs = alternate(
            bench.repetitions,
            lambda: one.run(crypto_alone, place, few),
            lambda: one.run(reports, place, next(windows), few),
        )
        firsts = [one.run(first_report, place, next(windows)) for _ in range(bench.repetitions)]
    finally:
        one.close()
    return Outcome(
        (
            Figure(
                "idle over gRPC: resident memory",
                (idle["agent grpc"].resident / idle["bare grpc"].resident,),
            ),
            Figure(
                "idle over MQTT: resident memory",
                (idle["agent mqtt"].resident / idle["bare mqtt"].resident,),
            ),
            Figure(
                "all that a first report loads: time to import",
                tuple(a / b for a, b in zip(imports[_FIRST], imports[_BARE], strict=True)),
            ),
            Figure("a report through the agent: CPU", pairs.against(lambda sample: sample.cpu_us)),
            *_idle_figures(idle),
            *_import_figures(imports),
            *_report_figures(pairs, firsts),
        ),
        (
            "idle: `shoal agent run` after one report over TLS; the bare process has loaded the "
            "same libraries and made one call",
            "CPU: the report is charged, entered in the ledger, on disk before and after it is "
            "sent; its receipt is verified; no network",
        ),
    )


def _idle_figures(idle: dict[str, Memory]) -> tuple[Figure, ...]:
    return (
        Figure(
            "idle over gRPC, the agent: resident",
            (idle["agent grpc"].resident,),
            MEGABYTES,
            Goal(at_most=_IDLE_MB),
        ),
        Figure(
            "idle over gRPC, bare libraries: resident", (idle["bare grpc"].resident,), MEGABYTES
        ),
        Figure(
            "idle over gRPC, the agent: of it private, written to",
            (idle["agent grpc"].anonymous,),
            MEGABYTES,
        ),
        Figure(
            "idle over gRPC, bare libraries: of it private, written to",
            (idle["bare grpc"].anonymous,),
            MEGABYTES,
        ),
        Figure("idle over MQTT, the agent: resident", (idle["agent mqtt"].resident,), MEGABYTES),
        Figure(
            "idle over MQTT, bare libraries: resident", (idle["bare mqtt"].resident,), MEGABYTES
        ),
        Figure(
            "idle over MQTT, the agent: of it private, written to",
            (idle["agent mqtt"].anonymous,),
            MEGABYTES,
        ),
    )


def _import_figures(imports: dict[str, tuple[float, ...]]) -> tuple[Figure, ...]:
    return (
        Figure("import shoal.clients", imports[_PACKAGE], SECONDS, Goal(at_most=_IMPORT_S)),
        Figure("import Agent and AgentConfig", imports[_API], SECONDS, Goal(at_most=_IMPORT_S)),
        Figure("import all that a first report loads", imports[_FIRST], SECONDS),
        Figure("import the bare libraries", imports[_BARE], SECONDS),
    )


def _report_figures(pairs: Pairs, firsts: list[Sample]) -> tuple[Figure, ...]:
    """CPU of reports; ``pairs``: randomizing and sealing alone, beside the whole of it."""
    around = [
        (a.cpu_us + b.cpu_us) / 2 for a, b in zip(pairs.limits, pairs.limits[1:], strict=False)
    ]
    beyond = tuple(
        (subject.cpu_us - limit) / 1000
        for subject, limit in zip(pairs.subjects, around, strict=True)
    )
    return (
        Figure(
            "CPU per report beyond randomizing and sealing",
            beyond,
            MILLISECONDS,
            Goal(at_most=_BEYOND_MS),
        ),
        spread(
            "first report after a start, certificate remembered: CPU",
            firsts,
            lambda sample: sample.cpu_us / 1000,
            MILLISECONDS,
        ),
        spread(
            "a report through the agent: CPU",
            pairs.subjects,
            lambda sample: sample.cpu_us,
            MICROSECONDS,
        ),
        spread(
            "randomize one value and seal it twice: CPU",
            pairs.limits,
            lambda sample: sample.cpu_us,
            MICROSECONDS,
        ),
    )


# --- import ---------------------------------------------------------------------------------------


def _import_s(code: str, environment: Mapping[str, str]) -> float:
    """Core-seconds in a fresh process, where everything is compiled and in the page cache: on a
    quiet machine, seconds of a clock.
    """
    timed = f"import time; begin = time.process_time()\n{code}\nprint(time.process_time() - begin)"
    done = subprocess.run(
        [sys.executable, "-c", timed],
        capture_output=True,
        text=True,
        check=True,
        cwd=_ROOT,
        env=environment,
    )
    return float(done.stdout)


# --- idle memory ----------------------------------------------------------------------------------


def _idle(site: Site, environment: Mapping[str, str]) -> dict[str, Memory]:
    """Of "agent" and "bare", over "grpc" and "mqtt"."""
    task, pair, found = site.pair.task, site.pair, {}
    ca = site.folder / "idle-ca.pem"
    ca.write_bytes(site.ca)
    with echo_server(site) as target:
        found["bare grpc"] = of_bare(environment, "grpc", target.address, str(ca), echo.METHOD)
    with Broker() as broker:
        shuffler, broker_ca = shuffler_with(site, broker), site.folder / "broker-ca.pem"
        broker_ca.write_bytes(broker.settings.ca or b"")
        found["bare mqtt"] = of_bare(environment, "mqtt", str(broker.port), str(broker_ca))
        uplink = (
            f'[mqtt]\nbroker = "127.0.0.1:{broker.port}"\nca = "{broker_ca}"\nprotocol = '
            f'"{broker.settings.protocol}"\nuplink = true\n'
        )
        try:
            started(shuffler)
            for way, first in (("grpc", ""), ("mqtt", uplink)):
                folder = site.folder / f"device-{way}"
                tables = (
                    f"{first}[send]\ngap_s = 0.0\n[measure]\nmean_s = "
                    f'0.001\n[sources.{task.name}]\nkind = "json"\nfile = "value.json"\n'
                )
                config = write_agent(
                    folder,
                    site.workspace.authority,
                    task,
                    pair.signed_task,
                    pair.signed_schedule,
                    tables,
                )
                (folder / "value.json").write_text("1")
                found[f"agent {way}"] = of_agent(environment, config)
        finally:
            shuffler.stop()
    return found


def write_agent(
    folder: Path,
    authority: bytes,
    task: Task,
    signed_task: bytes,
    signed_schedule: bytes,
    tables: str = "",
) -> Path:
    """agent.toml of a device whose owner allows the task."""
    (folder / "tasks").mkdir(parents=True)
    (folder / "tasks" / f"{task.name}{TASK_SUFFIX}").write_bytes(signed_task)
    (folder / "tasks" / f"{task.name}{SCHEDULE_SUFFIX}").write_bytes(signed_schedule)
    config = folder / "agent.toml"
    config.write_text(
        'tasks = "tasks"\noutbox = "outbox.db"\n[policy]\nauthorities = '
        f'["{authority.hex()}"]\nmax_epsilon0 = 8.0\n'
        f'min_batch_floor = 2\n[policy.purposes]\n"{task.purpose}" = "allowed"\n{tables}'
    )
    return config


# --- CPU per report -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A device with a task of many windows, all begun by nobody but its own clock."""

    config: Path
    signed_task: bytes
    signed_schedule: bytes
    authority: bytes


def _place(folder: Path, like: Task) -> Place:
    authority, plan = (
        SigningKey.generate(),
        WindowPlan(start_s=_START, length_s=_HOUR, count=_WINDOWS, grace_s=0, skew_s=60),
    )
    services = SigningKey.generate()
    task = replace(
        like,
        windows=plan,
        key_authority=authority.public,
        analyzer_key=services.public,
        shuffler_key=services.public,
    )
    data = codec.encode_task(task)
    analyzer, hop = (generate(SuiteId.X25519_AES128).config.raw for _ in range(2))
    windows = tuple(WindowKeys(w, analyzer, hop) for w in range(_WINDOWS))
    of_analyzer = sign_keys(services, SigningContext.ANALYZER_KEYS, [analyzer])
    schedule = codec.encode_schedule(
        KeySchedule(
            TaskId.of(data).raw,
            windows,
            of_analyzer,
            sign_keys(services, SigningContext.HOP_KEYS, [hop]),
        )
    )
    signed = (
        codec.encode_signed_task(
            Signed(data, authority.public, authority.sign(SigningContext.TASK, data))
        ),
        codec.encode_signed_schedule(
            Signed(
                schedule, authority.public, authority.sign(SigningContext.KEY_SCHEDULE, schedule)
            )
        ),
    )
    return Place(write_agent(folder, authority.public, task, *signed), *signed, authority.public)


class _Prompt:
    """A shuffler that has every report on disk at once: all that is left of it is the receipt."""

    async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
        return receipt_mac(ack_key, 0, frame)

    async def close(self) -> None:
        return None


def _prompt(*_: object) -> Transport:
    return _Prompt()


def reports(place: Place, first: int, count: int) -> Work:
    """One report in window ``first``, and then against the clock one in each of the next ``count``
    windows, through one agent.
    """
    return asyncio.run(_reports(place, range(first, first + 1 + count), 1))


def first_report(place: Place, window: int) -> Work:
    """The agent started, and its first report."""
    return asyncio.run(_reports(place, range(window, window + 1), 0))


async def _reports(place: Place, windows: Sequence[int], skipped: int) -> Work:
    clock = FakeClock(_START)
    begin = time.process_time()
    async with Agent(
        AgentConfig.load(place.config), background=False, clock=clock, transports=_prompt
    ) as agent:
        (status,) = agent.status()
        for done, window in enumerate(windows):
            if done == skipped and skipped:
                begin = time.process_time()
            clock.time = _START + _HOUR * window + 1
            outcome = await agent.report(status.assignment.task.name, window % 7)
            if outcome.state.value != "acked" or outcome.window != window:
                raise RuntimeError(
                    f"the report of the benchmark is {outcome.state.value}: {outcome.message}"
                )
        return len(windows) - skipped, time.process_time() - begin


def crypto_alone(place: Place, count: int) -> Work:
    """What a report can't do without: one draw, two seals."""
    trusted = trust_task(place.signed_task, {place.authority})
    assignment = assign(trusted, trust_schedule(place.signed_schedule, trusted))
    begin = time.process_time()
    for value in range(count):
        prepare(assignment, 0, value % 7)
    return count, time.process_time() - begin
