"""One round of a large cohort, of short vectors: what each side computes, and the memory of all of
them together.

In this process, without network and disk: the machines of all devices, of shuffler and analyzer. A
tenth of the devices is lost after sharing. Signatures are verified once for all devices of the
process, which share it; the benchmark ``secagg`` has a device's whole time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.bench import Bench
from benchmarks.figures import MEGABYTES, MILLISECONDS, RATIO, SECONDS, Figure, Outcome
from shoal.crypto.secagg import pads
from shoal.crypto.secagg.shuffler.effects import Effect
from tests.worlds.rounds.secagg import Play, Step, World, remembered_signatures

TITLE = "a cohort of ten thousand: devices, shuffler and analyzer of one round"
_ROOT = Path(__file__).resolve().parent.parent
_DIMENSION = 100
T = TypeVar("T")


def run(bench: Bench) -> Outcome:
    """CPU by side, for a small cohort and for a large one."""
    sizes = bench.pick((60,), (100, 500), (1_000, 10_000))
    told = {devices: _child(devices) for devices in sizes}
    figures: list[Figure] = []
    for devices, one in told.items():
        name = f"n = {devices:,}, k = {one['neighbours']}, t = {one['threshold']}"
        figures += [
            Figure(f"{name}: the analyzer / its agreements", (one["analyzer"] / one["bare"],)),
            Figure(f"{name}: a device", (1e3 * one["devices"] / devices,), MILLISECONDS),
            Figure(f"{name}: the shuffler", (one["shuffler"],), SECONDS),
            Figure(f"{name}: the analyzer", (one["analyzer"],), SECONDS),
            Figure(f"{name}: all machines, peak of memory", (one["peak"],), MEGABYTES),
        ]
    if len(sizes) > 1:
        few, many = (told[devices]["analyzer"] / devices for devices in sizes)
        what = f"analyzer: CPU per device, n = {sizes[1]:,} / n = {sizes[0]:,}"
        figures.insert(0, Figure(what, (many / few,), RATIO))
    return Outcome(tuple(figures), (f"{_DIMENSION} coordinates; a tenth is lost after sharing",))


def _child(devices: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.cohorts", str(devices)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, check=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


class Timed(Play):
    """``spent``: seconds of CPU of the shuffler's and of the analyzer's machine."""

    def ask(self, effect: Effect) -> list[Effect]:
        collector, before = self.collector, self.spent_here("analyzer")
        names = ("start", "add_vectors", "commit", "unmask")
        for name in names:
            setattr(collector, name, self.timing("analyzer", getattr(type(collector), name)))
        try:
            begin = time.process_time()
            effects = super().ask(effect)
            all_of_it = time.process_time() - begin
        finally:
            for name in names:
                delattr(collector, name)
        self.spent["shuffler"] += all_of_it - (self.spent_here("analyzer") - before)
        return effects

    def spent_here(self, side: str) -> float:
        if not hasattr(self, "spent"):
            self.spent = {"analyzer": 0.0, "shuffler": 0.0}
        return self.spent[side]

    def timing(self, side: str, method: Callable[..., T]) -> Callable[..., T]:
        def timed(*args: Any) -> T:
            begin = time.process_time()
            try:
                return method(self.collector, *args)
            finally:
                self.spent[side] += time.process_time() - begin

        return timed


def _round(devices: int) -> dict[str, Any]:
    """One round, to its sum."""
    from resource import RUSAGE_SELF, getrusage

    world = World(
        devices,
        dimension=_DIMENSION,
        cohort_min=devices,
        survivors_min=devices // 2,
        dropout_ppm=200_000,
        honest_ppm=950_000,
    )
    lost = devices // 10
    begin = time.process_time()
    with remembered_signatures():
        play = Timed(world, fates=[Step.MASK] * lost + [Step.NONE] * (devices - lost))
        play.spent_here("analyzer")
        assert play.run().check()
    whole = time.process_time() - begin
    graph = world.terms.parameters(devices)
    # of each lost device with each neighbour that is alive
    agreements = round(lost * graph.neighbours * (1 - lost / devices))
    return {
        "neighbours": graph.neighbours,
        "threshold": graph.threshold,
        "devices": whole - sum(play.spent.values()),
        **play.spent,
        "bare": _agreed(agreements),
        "peak": getrusage(RUSAGE_SELF).ru_maxrss / 1e3,
    }


def _agreed(count: int) -> float:
    """Seconds of CPU of so many X25519 agreements."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    private, begin = X25519PrivateKey.generate(), 0.0
    public = X25519PrivateKey.generate().public_key().public_bytes_raw()
    begin = time.process_time()
    for _ in range(max(1, count)):
        pads.agree(private, public)
    return time.process_time() - begin


if __name__ == "__main__":
    json.dump(_round(int(sys.argv[1])), sys.stdout)
