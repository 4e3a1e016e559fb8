"""Many reports per call, as relays send them: a real shuffler against opening the same frames and
doing nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks import machine
from benchmarks.bench import Bench
from benchmarks.driver import drive
from benchmarks.figures import (
    MICROSECONDS,
    RATE,
    Figure,
    Goal,
    Outcome,
    Pairs,
    Sample,
    alternate,
    spread,
)
from benchmarks.raw import Opening, Processes, open_held
from benchmarks.site import Sealed, Site, started
from shoal.cli.demo.processes import Process
from shoal.crypto.envelope import HEADER_SIZE, hop_info, verify_receipt
from shoal.protos import submit_pb2
from shoal.services.workers import WorkerPool

TITLE = (
    "SubmitBatch, 500 reports per call, 8 calls in flight / opening the same frames in as many "
    "processes as it has workers"
)
IN_FLIGHT = 8
SUBMIT_BATCH = "/shoal.v1.Ingress/SubmitBatch"


def run(bench: Bench) -> Outcome:
    """With a core left to event loop, writer and caller; and, beside it, with a worker on every
    core.
    """
    spare, every = max(1, bench.cores - 1), bench.cores
    pairs = {
        workers: _measure(bench, workers)
        for workers in sorted(bench.pick({spare}, {spare, every}, {spare, every}))
    }
    figures = []
    for workers, measured in pairs.items():
        figures += [
            Figure(
                f"{workers} workers: rate",
                measured.rates(),
                goal=Goal(at_least=0.9 if workers == spare else 0.8),
            ),
            Figure(
                f"{workers} workers: CPU, shuffler with its workers",
                measured.against(lambda sample: sample.cpu_us),
            ),
        ]
    for workers, measured in pairs.items():
        title, subjects = f"{workers} workers", measured.subjects
        figures += [
            spread(f"{title}: raw opens, rate", measured.limits, lambda sample: sample.rate, RATE),
            spread(f"{title}: SubmitBatch, rate", subjects, lambda sample: sample.rate, RATE),
            spread(
                f"{title}: raw opens, CPU",
                measured.limits,
                lambda sample: sample.cpu_us,
                MICROSECONDS,
            ),
            spread(
                f"{title}: CPU of the workers",
                subjects,
                # both are read in steps of 10 ms: of a small block the difference may fall below 0
                lambda sample: max(0.0, sample.cpu_us - sample.extra["loop_us"]),
                MICROSECONDS,
            ),
            spread(
                f"{title}: CPU of event loop and writer",
                subjects,
                lambda sample: sample.extra["loop_us"],
                MICROSECONDS,
            ),
            spread(
                f"{title}: CPU of the caller",
                subjects,
                lambda sample: sample.extra["caller_us"],
                MICROSECONDS,
            ),
        ]
    notes = (
        f"with {every} workers on {bench.cores} cores event loop, writer and caller compete with "
        "them; with the limit nobody does",
    )
    return Outcome(tuple(figures), notes)


def _measure(bench: Bench, workers: int) -> Pairs:
    size, repetitions = bench.pick(50, 500, 500), bench.repetitions
    block = bench.pick(100, 6_000, 12_000) * workers
    # one more than is sent: the window stays open
    site = bench.fresh_site(f"batch-{workers}", size + block * repetitions + 1)
    sealed = site.frames(bench.pool, size + block * repetitions)
    frame, key = len(sealed.frames[0]), site.hop_key
    opening = Opening(
        key.config.suite, key.to_raw_secret(), hop_info(0, key.config.key_id), frame, HEADER_SIZE
    )
    openers, shuffler = Processes(workers), site.shuffler(workers)
    calls = _Calls(site, shuffler, sealed, size, block)
    try:
        openers.hold("frames", b"".join(sealed.frames[size : size + block]), frame)
        started(shuffler)
        return alternate(repetitions, lambda: openers.run(open_held, "frames", opening), calls.next)
    finally:
        shuffler.stop()
        calls.close()
        openers.close()


@dataclass
class _Calls:
    """Blocks of fresh frames, one after the other. The first call is repeated before each: it
    connects and warms up.
    """

    site: Site
    shuffler: Process
    sealed: Sealed
    size: int
    block: int

    def __post_init__(self) -> None:
        self._requests = self.sealed.batches(self.size)
        self._caller = WorkerPool(1)
        self._done = 1

    def next(self) -> Sample:
        begin, count, pid = self._done, self.block // self.size, self.shuffler.pid or 0
        self._done += count
        requests = self._requests[begin : begin + count]
        before, alone = machine.cpu_s(pid), machine.own_cpu_s(pid)
        arguments = (
            self.site.address,
            self.site.ca,
            SUBMIT_BATCH,
            requests,
            self._requests[:1],
            IN_FLIGHT,
        )
        done = self._caller.submit(drive, *arguments).result()
        loop, cpu = machine.own_cpu_s(pid) - alone, machine.cpu_s(pid) - before
        _check(done.replies, self.sealed, begin * self.size)
        return Sample(
            self.block,
            done.wall,
            cpu,
            {"caller_us": done.cpu / self.block * 1e6, "loop_us": loop / self.block * 1e6},
        )

    def close(self) -> None:
        self._caller.close()


def _check(replies: list[bytes], sealed: Sealed, first: int) -> None:
    """Every receipt says accepted; the first of each call is verified."""
    for reply in replies:
        receipts = submit_pb2.SubmitBatchReply.FromString(reply).receipts
        if any(receipt.status for receipt in receipts):
            raise RuntimeError("the shuffler refused a frame of the benchmark")
        verify_receipt(sealed.ack_keys[first], 0, sealed.frames[first], receipts[0].mac)
        first += len(receipts)
