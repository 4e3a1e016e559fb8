"""Several messages of a device: what drawing and sealing a submission costs it, that a draw costs
no more with more cells, and how long a design and its certificate take.

All on one core. The submissions of limit and subject hold as many messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from benchmarks.bench import Bench
from benchmarks.figures import MILLISECONDS, Figure, Goal, Outcome, Sample, alternate
from shoal.accounting.of_task import guaranteed_several
from shoal.accounting.several_messages.noise_design import design_cancelling
from shoal.crypto.envelope import HEADER_SIZE, NONCE_SIZE, hop_info, report_info
from shoal.crypto.hpke import generate, seal
from shoal.crypto.sealing import WindowSealer
from shoal.crypto.suites import SuiteId
from shoal.entropy import SYSTEM
from shoal.ids import TaskId
from shoal.mechanisms.several.bundling import one_bundle
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth

TITLE = "a submission of several messages, drawn and sealed / the same HPKE seals alone"
_CELLS, _DEVICES, _DELTA = 1_024, 1_000_000, 1e-6
_SIZE = 2  # bytes of a message
_FEW, _MANY = 16, 65_536  # cells; the most that a domain has
_EVENTS = 2  # of a device, in both


def run(bench: Bench) -> Outcome:
    """At (1, 1e-6) for a million devices and 1,024 cells."""
    count, repetitions = bench.pick(20, 400, 4_000), bench.repetitions
    law, designed = _designed(_DEVICES)
    made = BundledHistogram(tuple(map(str, range(_CELLS))), law)
    _, certified = _timed_once(
        lambda: guaranteed_several(made, _DEVICES, Fraction(1), _DELTA).epsilon_upper
    )
    analyzer, hop = generate(SuiteId.X25519_AES128), generate(SuiteId.X25519_AES128)
    task_id = TaskId(bytes(32))
    sealer = WindowSealer(analyzer.config, hop.config, task_id, 0, law.slots)
    bundles = [one_bundle((5,), law, _SIZE, SYSTEM) for _ in range(count)]
    info, outer = report_info(task_id, 0, analyzer.config.key_id), hop_info(0, hop.config.key_id)
    sealed_frame, *_ = sealer.seal(bundles[0], SYSTEM, lambda *_: b"")
    frame = bytes(len(sealed_frame) - HEADER_SIZE - hop.config.suite.overhead)

    def bare() -> None:
        for bundle in bundles:
            for _ in bundle:
                seal(analyzer.config, bytes(NONCE_SIZE + _SIZE), info)
            seal(hop.config, frame, outer)

    def device() -> None:
        for bundle in bundles:
            one_bundle((5,), law, _SIZE, SYSTEM)
            sealer.seal(bundle, SYSTEM, lambda *_: b"")

    sealed = alternate(repetitions, partial(_timed, count, bare), partial(_timed, count, device))
    few, many = (_dummies(cells) for cells in (_FEW, _MANY))
    draws = alternate(
        repetitions,
        partial(_timed, 20 * count, partial(_draws, few, 20 * count)),
        partial(_timed, 20 * count, partial(_draws, many, 20 * count)),
    )
    return Outcome(
        (
            Figure("draw and seal: rate", sealed.rates(), goal=Goal(at_least=0.9)),
            Figure(
                f"a draw over {_MANY:,} cells / over {_FEW}: CPU",
                draws.against(lambda sample: sample.cpu_us),
                goal=Goal(at_most=1.1),
            ),
            Figure(
                "draw and seal a submission: CPU",
                tuple(sample.cpu_us / 1e3 for sample in sealed.subjects),
                MILLISECONDS,
                Goal(at_most=3.0),
            ),
            Figure("design: wall", (designed * 1e3,), MILLISECONDS),
            Figure("certificate: wall", (certified * 1e3,), MILLISECONDS),
        ),
        (
            f"{_DEVICES:,} devices, {_CELLS:,} cells, central (1, {_DELTA:g}): "
            f"{float(law.mean_messages):.2f} messages on average, {law.slots} at most",
        ),
    )


def _designed(devices: int) -> tuple[NoiseLaw, float]:
    made, seconds = _timed_once(lambda: design_cancelling(Truth.CELL, _CELLS, devices, 1.0, _DELTA))
    assert isinstance(made, NoiseLaw)
    return made, seconds


def _dummies(cells: int) -> NoiseLaw:
    """With as many events of a device, whatever the cells."""
    return NoiseLaw(Truth.CELL, cells, 20 * cells, 100, dummies=Fraction(20 * _EVENTS))


def _draws(law: NoiseLaw, count: int) -> None:
    for _ in range(count):
        one_bundle((5,), law, 4, SYSTEM)


def _timed(count: int, work: Callable[[], None]) -> Sample:
    begin, wall = time.process_time(), time.perf_counter()
    work()
    return Sample(count, time.perf_counter() - wall, time.process_time() - begin)


def _timed_once(work: Callable[[], object]) -> tuple[object, float]:
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin
