"""Reports over MQTT: to a real broker, from there to a real shuffler, the verified reply back;
against the broker's own publish rate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import count as numbers
from pathlib import Path

import uvloop

from benchmarks import machine, wire
from benchmarks.bench import Bench
from benchmarks.driver import Drive
from benchmarks.figures import (
    MICROSECONDS,
    MILLISECONDS,
    RATE,
    Figure,
    Outcome,
    Sample,
    alternate,
    quantile,
    spread,
)
from benchmarks.site import Sealed, Site, started
from shoal.cli.demo.processes import Process
from shoal.crypto.envelope import verify_receipt
from shoal.services.workers import WorkerPool
from tests.worlds.mqtt.broker import Broker, mosquitto

TITLE = (
    "reports over MQTT, 200 in flight, on disk before the reply / bare QoS 1 publishes of the same "
    "size to one subscriber"
)
IN_FLIGHT = 200
_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Uplink:
    """What a device knows of broker and shuffler."""

    port: int
    ca: bytes | None
    protocol: str
    shuffler_key: bytes


def run(bench: Bench) -> Outcome:
    """How fast the shuffler takes frames from a broker, beside a bare consumer."""
    block, repetitions = bench.pick(60, 2_000, 6_000), bench.repetitions
    warm = block // 4
    # one more than is sent: the window stays open
    site = bench.fresh_site("mqtt", warm + block * repetitions + 1)
    sealed = site.frames(bench.pool, warm + block * repetitions)
    size = len(sealed.frames[0])
    caller, consumer = WorkerPool(1), WorkerPool(1)
    with _broker() as (broker, pid):
        place = wire.Place(broker.port, broker.settings.ca)
        uplink = Uplink(
            broker.port, broker.settings.ca, broker.settings.protocol, site.pair.task.shuffler_key
        )
        shuffler = shuffler_with(site, broker)
        try:
            started(shuffler)
            topics, blocks = numbers(), iter(range(repetitions))
            caller.submit(drive, uplink, sealed.frames[:warm], sealed.ack_keys[:warm]).result()

            def bare() -> Sample:
                name = f"bench/{next(topics)}"
                taken = consumer.submit(wire.consume, place, name, block, f"{name}/ready")
                caller.submit(wire.await_message, place, f"{name}/ready").result()
                before = broker_cpu_s(pid)
                done = caller.submit(wire.publish, place, name, size, block, IN_FLIGHT).result()
                taken.result()  # the last ones may come after their acknowledgement
                return Sample(
                    block,
                    done.wall,
                    broker_cpu_s(pid) - before,
                    {"caller_us": done.cpu / block * 1e6},
                )

            def real() -> Sample:
                first = warm + next(blocks) * block
                part = Sealed(
                    sealed.frames[first : first + block], sealed.ack_keys[first : first + block]
                )
                return _real(caller, uplink, part, (pid, shuffler.pid or 0))

            pairs = alternate(repetitions, bare, real)
        finally:
            shuffler.stop()
            caller.close()
            consumer.close()
    return Outcome(
        _figures(pairs.rates(), pairs.against(lambda s: s.cpu_us), pairs.limits, pairs.subjects),
        _notes(broker.kind, block, size),
    )


def _figures(
    rates: tuple[float, ...],
    broker_cpu: tuple[float, ...],
    limits: tuple[Sample, ...],
    subjects: tuple[Sample, ...],
) -> tuple[Figure, ...]:
    return (
        Figure("rate", rates),
        Figure("broker CPU per report", broker_cpu),
        spread("bare publishes: rate", limits, lambda sample: sample.rate, RATE),
        spread("reports over MQTT: rate", subjects, lambda sample: sample.rate, RATE),
        spread("bare publishes: broker CPU", limits, lambda sample: sample.cpu_us, MICROSECONDS),
        spread(
            "reports over MQTT: broker CPU", subjects, lambda sample: sample.cpu_us, MICROSECONDS
        ),
        spread(
            "reports over MQTT: shuffler CPU",
            subjects,
            lambda sample: sample.extra["shuffler_us"],
            MICROSECONDS,
        ),
        spread(
            "reports over MQTT: caller CPU",
            subjects,
            lambda sample: sample.extra["caller_us"],
            MICROSECONDS,
        ),
        spread(
            "bare publishes: caller CPU",
            limits,
            lambda sample: sample.extra["caller_us"],
            MICROSECONDS,
        ),
        spread(
            "reports over MQTT: latency p50",
            subjects,
            lambda sample: sample.extra["p50"],
            MILLISECONDS,
        ),
        spread(
            "reports over MQTT: latency p99",
            subjects,
            lambda sample: sample.extra["p99"],
            MILLISECONDS,
        ),
    )


def _notes(kind: str, block: int, size: int) -> tuple[str, ...]:
    return (
        f"{kind} with TLS; {block} frames of {size} bytes per run from one process over one "
        "connection",
        "a report passes the broker twice, as frame and as reply, and its reply waits for the disk "
        "and for the next multiple of 50 ms;"
        " a bare publish is done when the broker has acknowledged it, and a second process takes "
        "it and acknowledges it too",
    )


def has_broker() -> bool:
    """Whether this machine can run one."""
    return mosquitto() is not None or find_spec("amqtt") is not None


@contextmanager
def _broker() -> Iterator[tuple[Broker, int]]:
    if not has_broker():
        raise RuntimeError(
            "this benchmark wants a broker: install mosquitto, or amqtt into this environment"
        )
    with Broker() as broker:
        process = broker._process
        yield broker, process.pid if process else 0


def broker_cpu_s(pid: int) -> float:
    """Core-seconds of a process of one thread, to the nanosecond: a broker uses less than a tick of
    the clock.
    """
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def shuffler_with(site: Site, broker: Broker) -> Process:
    """The site's shuffler, with the broker in its configuration."""
    config = site.workspace.shuffler_config
    ca = config.with_name("broker.pem")
    ca.write_bytes(broker.settings.ca or b"")
    config.write_text(
        f'{config.read_text()}\n[mqtt]\nbroker = "127.0.0.1:{broker.port}"\nca = '
        f'"{ca.name}"\nprotocol = "{broker.settings.protocol}"\n'
    )
    return site.shuffler()


def _real(caller: WorkerPool, uplink: Uplink, part: Sealed, pids: tuple[int, int]) -> Sample:
    before = (broker_cpu_s(pids[0]), machine.cpu_s(pids[1]))
    done = caller.submit(drive, uplink, part.frames, part.ack_keys).result()
    broker, shuffler = broker_cpu_s(pids[0]) - before[0], machine.cpu_s(pids[1]) - before[1]
    for frame, ack_key, mac in list(zip(part.frames, part.ack_keys, done.replies, strict=True))[
        :200
    ]:
        verify_receipt(ack_key, 0, frame, mac)
    count = len(part.frames)
    extra = {
        "caller_us": done.cpu / count * 1e6,
        "shuffler_us": shuffler / count * 1e6,
        "p50": quantile(done.latencies_ms, 0.5),
        "p99": quantile(done.latencies_ms, 0.99),
    }
    return Sample(count, done.wall, broker, extra)


# --- in the calling process -----------------------------------------------------------------------


def drive(uplink: Uplink, frames: tuple[bytes, ...], ack_keys: tuple[bytes, ...]) -> Drive:
    """Submit each frame once over one transport. Any refusal raises. The replies are receipts'
    MACs.
    """
    return uvloop.run(_drive(uplink, frames, ack_keys))


async def _drive(uplink: Uplink, frames: tuple[bytes, ...], ack_keys: tuple[bytes, ...]) -> Drive:
    from shoal.clients.transports.mqtt_transport import MqttTransport
    from shoal.mqtt.settings import BrokerSettings

    settings = BrokerSettings("127.0.0.1", uplink.port, uplink.ca)
    transport = MqttTransport(
        replace(settings, protocol="5" if uplink.protocol == "5" else "3.1.1"), uplink.shuffler_key
    )
    latencies, macs = [0.0] * len(frames), [b""] * len(frames)
    left = iter(range(len(frames)))

    async def work() -> None:
        for index in left:
            sent = time.perf_counter()
            macs[index] = await transport.submit(frames[index], ack_keys[index], _DEADLINE_S)
            latencies[index] = (time.perf_counter() - sent) * 1000

    try:
        # connects; the second time merges at the shuffler
        macs[0] = await transport.submit(frames[0], ack_keys[0], _DEADLINE_S)
        begin, cpu = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(IN_FLIGHT, len(frames))):
                group.create_task(work())
        return Drive(time.perf_counter() - begin, time.process_time() - cpu, latencies, macs)
    finally:
        await transport.close()
