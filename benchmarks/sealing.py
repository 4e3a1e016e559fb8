"""What a load generator can seal: reports drawn and sealed in both layers as the simulator does;
against the two seals alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from benchmarks.bench import Bench
from benchmarks.figures import MICROSECONDS, RATE, Figure, Goal, Outcome, Pairs, alternate, spread
from benchmarks.raw import Layer, Processes, Work, seal_layers
from benchmarks.site import WINDOW
from shoal.clients.core import Assignment, assign, seal
from shoal.clients.drawing import messages_of, prepare, randomize
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.share import Share, SimulatedTask
from shoal.clients.fleet.simulated import FleetSimulation
from shoal.clients.transports.transport import Receipt
from shoal.crypto.envelope import HEADER_SIZE, NONCE_SIZE, hop_info, report_info
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.errors import Kind, ShoalError

DRAWN = 256  # devices whose reports the simulator draws in one call (clients/fleet/reporter.py)
TITLE = (
    "reports drawn and sealed by the simulator / two bare HPKE seals per report in as many "
    "processes"
)


def run(bench: Bench) -> Outcome:
    """What a simulated device costs, beside its two seals alone."""
    reports, repetitions = bench.pick(100, 6_000, 20_000), bench.repetitions
    site = bench.fresh_site("sealing", reports)
    simulated = SimulatedTask(site.pair.signed_task, site.pair.signed_schedule, ())
    authorities = frozenset({site.workspace.authority})
    analyzer, hop, task = (
        site.served.keys.analyzer_keys[WINDOW],
        site.served.keys.hop_keys[WINDOW],
        site.pair.task,
    )
    frame = len(site.frames(bench.pool, 1).frames[0])
    layers = (
        Layer(
            analyzer.raw,
            report_info(site.served.task_id, WINDOW, analyzer.key_id),
            NONCE_SIZE + task.report_size,
        ),
        Layer(hop.raw, hop_info(0, hop.key_id), frame - HEADER_SIZE - hop.suite.overhead),
    )
    processes = Processes(bench.cores)
    share = reports // bench.cores
    try:
        processes.run(draw_and_seal, simulated, authorities, 10)  # imports
        prepared = alternate(
            repetitions,
            lambda: processes.run(seal_layers, layers, share),
            lambda: processes.run(draw_and_seal, simulated, authorities, share),
        )
        alone = alternate(
            bench.pick(1, 1, 3),
            lambda: processes.run(seal_layers, layers, share // 2),
            lambda: processes.run(prepare_alone, simulated, authorities, share // 2),
        )
        devices = alternate(
            bench.pick(1, 1, 3),
            lambda: processes.run(seal_layers, layers, share // 2),
            lambda: processes.run(whole_devices, simulated, authorities, share // 2),
        )
    finally:
        processes.close()
    return _outcome(prepared, alone, devices, bench.cores)


def _outcome(prepared: Pairs, alone: Pairs, devices: Pairs, cores: int) -> Outcome:
    """Each beside the bare seals that ran in turn with it."""
    return Outcome(
        (
            Figure("encode, randomize and seal: rate", prepared.rates(), goal=Goal(at_least=0.92)),
            Figure(
                "encode, randomize and seal: CPU", prepared.against(lambda sample: sample.cpu_us)
            ),
            Figure("a lone device's prepare, one value at a time: rate", alone.rates()),
            Figure("whole device, also verifying task and keys: rate", devices.rates()),
            spread(
                "bare seals, two per report: rate",
                prepared.limits,
                lambda sample: sample.rate,
                RATE,
            ),
            spread(
                "encode, randomize and seal: rate",
                prepared.subjects,
                lambda sample: sample.rate,
                RATE,
            ),
            spread("whole device: rate", devices.subjects, lambda sample: sample.rate, RATE),
            spread(
                "bare seals, two per report: CPU",
                prepared.limits,
                lambda sample: sample.cpu_us,
                MICROSECONDS,
            ),
            spread(
                "encode, randomize and seal: CPU",
                prepared.subjects,
                lambda sample: sample.cpu_us,
                MICROSECONDS,
            ),
            spread(
                "whole device: CPU", devices.subjects, lambda sample: sample.cpu_us, MICROSECONDS
            ),
        ),
        (
            f"{cores} processes; every report is its own draw and its own two seals; nothing "
            "is sent",
            "a whole simulated device verifies two Ed25519 signatures of its own, keeps an outbox "
            "and judges the answer",
        ),
    )


# --- in a process ---------------------------------------------------------------------------------


def _assignment(simulated: SimulatedTask, authorities: frozenset[bytes]) -> Assignment:
    trusted = trust_task(simulated.signed_task, authorities)
    return assign(trusted, trust_schedule(simulated.signed_schedule, trusted))


def draw_and_seal(simulated: SimulatedTask, authorities: frozenset[bytes], count: int) -> Work:
    """As in the simulator: draws of many devices in one call, every report sealed by itself."""
    assignment = _assignment(simulated, authorities)
    begin = time.process_time()
    for first in range(0, count, DRAWN):
        for report in randomize(assignment, range(first, min(first + DRAWN, count))):
            seal(assignment, WINDOW, messages_of(report))
    return count, time.process_time() - begin


def prepare_alone(simulated: SimulatedTask, authorities: frozenset[bytes], count: int) -> Work:
    """As on a device: one value, one draw, two seals."""
    assignment = _assignment(simulated, authorities)
    begin = time.process_time()
    for value in range(count):
        prepare(assignment, WINDOW, value)
    return count, time.process_time() - begin


class _Closed:
    """The shortest way to a final answer: without a server there is no receipt, so the window is
    said to be over.
    """

    async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
        raise ShoalError(Kind.WINDOW_CLOSED, "the window is over: drop the report")

    async def submit_batch(
        self, frames: Sequence[bytes], ack_keys: Sequence[bytes], deadline_s: float
    ) -> list[Receipt]:
        raise ShoalError(Kind.WINDOW_CLOSED, "the window is over: drop the report")

    async def close(self) -> None:
        return None


def whole_devices(simulated: SimulatedTask, authorities: frozenset[bytes], count: int) -> Work:
    """Simulated devices from value to frame, nothing sent; and the CPU seconds they took."""
    task = SimulatedTask(simulated.signed_task, simulated.signed_schedule, range(count), WINDOW)
    share = Share(
        tasks=(task,),
        authorities=authorities,
        first=0,
        step=1,
        in_flight=64,
        way=Carrier.GRPC,
        arrivals=None,
        patience_s=1.0,
        deadline_s=1.0,
    )
    begin = time.process_time()
    result = asyncio.run(FleetSimulation(share, [_Closed()]).run())
    if result.refused.total() + result.unknown != count:
        raise RuntimeError("a simulated device of the benchmark did not get its answer")
    return count, time.process_time() - begin
