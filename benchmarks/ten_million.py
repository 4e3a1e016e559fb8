"""Vectors of a million and of ten million coordinates, from a device's numbers to the release: the
resident memory of device, shuffler and analyzer, and time, each beside a bare limit.

Each side is measured in a process of its own, whose peak of resident memory is set back before each
step (Linux: /proc/self/clear_refs). The round is played without network; vectors wait in the
shuffler's own spool, and sum and release go to the analyzer's own store, both on disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks.bench import Bench
from benchmarks.figures import MEGABYTES, RATIO, SECONDS, Figure, Goal, Outcome
from benchmarks.long_vectors import Served
from shoal.accounting.sums.sum_task import check_sum, design_sum
from shoal.analyzer.results.release_json import decode_release
from shoal.analyzer.rounds.sum_release import conclude_sums
from shoal.analyzer.rounds.sums import StoredSum, SumStore, sum_form
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.clients.rounds.agent import ready
from shoal.crypto import hpke
from shoal.crypto.secagg import words
from shoal.crypto.secagg.segments import seal_row
from shoal.crypto.secagg.shuffler.effects import Deliver, Effect
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.domain import Norm
from shoal.entropy import SYSTEM
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.mechanisms.noise.registry import create_noise
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode
from shoal.shuffler.rounds.vectors import VectorSpool
from shoal.task import Task
from tests.worlds.rounds.secagg import Play, Step, World
from tests.worlds.tasks import PAIRWISE

TITLE = "vectors of a million and of ten million coordinates: memory and time of all sides"
_WORD = 4  # bytes
_DEVICES = 8
_ROOT = Path(__file__).resolve().parent.parent
_HOLDS = 2  # vectors, or sums, of words
_ROOM = 1.1  # blocks, segments and what the allocator keeps


def run(bench: Bench) -> Outcome:
    """Peaks as shares of two vectors of words, times as multiples of bare limits."""
    sizes = bench.pick((20_000,), (1_000_000,), (1_000_000, 10_000_000))
    figures: list[Figure] = []
    delivered = list[float]()
    for dimension in sizes:
        device, analyzer = (_child(side, dimension, _DEVICES) for side in ("device", "analyzer"))
        figures += _figures(dimension, device, analyzer)
        delivered.append(analyzer["deliver"]["peak"])
    many = _child("analyzer", sizes[0], 2 * _DEVICES)["deliver"]["peak"]
    what = f"analyzer, {sizes[0]:,}: peak with {2 * _DEVICES} devices / with {_DEVICES}"
    figures.append(Figure(what, (many / max(delivered[0], 1e-9),), RATIO))
    note = f"{_DEVICES} devices, words of {8 * _WORD} bits: two vectors of 10^7 are 80 MB"
    return Outcome(tuple(figures), (note,))


def _figures(dimension: int, device: dict[str, Any], analyzer: dict[str, Any]) -> list[Figure]:
    two = _HOLDS * _WORD * dimension / 1e6
    # below some MB the allocator's own blocks are all there is to see
    goal = Goal(at_most=_ROOM) if dimension >= 1_000_000 else None

    def of(side: str, told: dict[str, Any], step: str, what: str) -> list[Figure]:
        name, found = f"{side}, {dimension:,}: {what}", told[step]
        return [
            Figure(f"{name}: peak / two vectors", (found["peak"] / two,), RATIO, goal),
            Figure(f"{name}: peak", (found["peak"],), MEGABYTES),
            Figure(f"{name}: CPU", (found["seconds"],), SECONDS),
            *(
                [Figure(f"{name}: CPU / bare", (found["seconds"] / found["bare"],), RATIO)]
                if "bare" in found
                else []
            ),
        ]

    return [
        *of("device", device, "ready", "clip, round, add noise"),
        *of("device", device, "mask", "mask and seal"),
        Figure(f"device, {dimension:,}: table of its noise", (device["table"]["peak"],), MEGABYTES),
        *of("shuffler", analyzer, "spool", "one vector to disk"),
        *of("analyzer", analyzer, "deliver", f"open and add {_DEVICES} vectors"),
        *of("analyzer", analyzer, "unmask", "take the masks away, keep the sum"),
        *of("analyzer", analyzer, "release", "write the release"),
    ]


def _child(side: str, dimension: int, devices: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.ten_million", side, str(dimension), str(devices)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, check=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


# --- in a process of its own ----------------------------------------------------------------------


def measured(work: Callable[[], object]) -> dict[str, float]:
    """MB of resident memory beyond what there is before, at most; seconds of CPU."""
    Path("/proc/self/clear_refs").write_text("5")
    before, begin = _status("VmRSS"), time.process_time()
    work()
    seconds = time.process_time() - begin
    return {"peak": max(0.0, (_status("VmHWM") - before) / 1e3), "seconds": seconds}


def _status(name: str) -> float:
    """In kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def timed(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def of_task(dimension: int, devices: int) -> Task:
    """As its author gets it, but for segments in every dimension."""
    made = design_sum(
        dimension=dimension,
        norm=Norm.L2,
        clip=1.0,
        noise="skellam",
        mode=Mode.DEFAULT,
        cohort_max=devices,
        cohort_min=devices,
        dropout_ppm=250_000,
        honest_fraction_ppm=900_000,
        epsilon=8.0,
        delta=1e-6,
    )
    plan = replace(made.plan, segment_words=LIMITS.segment_words)
    draft = replace(
        PAIRWISE,
        domain=made.domain,
        mechanism=made.mechanism,
        pairwise=plan,
        min_batch=plan.survivors_min,
        report_size=plan.vector_bytes(dimension),
        delta=1e-6,
    )
    assert plan.word_bits == 8 * _WORD
    return replace(draft, target_epsilon=check_sum(draft).epsilon_upper)


def device(dimension: int, devices: int) -> dict[str, Any]:
    """A device's own numbers are there before."""
    task, own = of_task(dimension, devices), np.full(dimension, dimension**-0.5)
    assert task.pairwise is not None
    ready(of_task(1_000, devices), own[:1_000], SYSTEM)  # imports and tables are made once
    ready_small = replace(task.pairwise, segment_words=100)
    key, held = hpke.generate(SuiteId.X25519_AES128), list[Any]()
    streams = [(bytes([at] * 48), 1) for at in range(devices)]
    constants = words.check_constants(bytes(32), 8 * _WORD)
    round_id, config, plan = Digest(bytes(32)), key.config, task.pairwise
    seal_row(ready_small, config, round_id, held_words(999), constants, streams, SYSTEM)
    noise = create_noise(task.mechanism)
    told = {"table": measured(lambda: noise.add_to(np.zeros(10, np.int64), SYSTEM))}
    told["ready"] = measured(lambda: held.append(ready(task, own, SYSTEM)))
    mask = measured(
        lambda: held.append(seal_row(plan, config, round_id, held[0], constants, streams, SYSTEM))
    )
    # beside the vector itself, which is one of the two
    mask["peak"] += held[0].nbytes / 1e6
    block = bytes(1 << 20)
    blocks = max(1, dimension * _WORD >> 20)

    def bare() -> None:
        for _ in range(devices):
            cipher = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor()
            for _ in range(blocks):
                cipher.update(block)
        gcm = AESGCM(bytes(16))
        for _ in range(blocks):
            gcm.encrypt(bytes(12), block, None)

    return {**told, "mask": {**mask, "bare": timed(bare)}}


def held_words(size: int) -> Any:
    return np.zeros(size, np.dtype("<u4"))


class Long(Play):
    """A round whose vectors are all the same; they wait in the shuffler's spool."""

    spool: VectorSpool
    spooled: list[dict[str, float]]
    delivered: dict[str, float]

    def mask(self, number: int) -> None:
        machine, answer = self.devices[number], self.answer(number)
        sealed = machine.mask(answer.roster, self.vectors[number], self.ledgers[number])
        session, step = machine.session, LIMITS.upload_bytes

        def upload() -> None:
            for at in range(0, len(sealed), step):
                self.spool.write(session, at, len(sealed), sealed[at : at + step])

        self.spooled.append(measured(upload))
        assert self.coordinator.expects_upload(session, self.now)
        self.coordinator.uploaded(session, Digest.of(sealed), self.now)
        machine._answers.clear()  # other devices' vectors are in other machines' memory

    def ask(self, effect: Effect) -> list[Effect]:
        if not isinstance(effect, Deliver):
            return super().ask(effect)

        def deliver() -> None:
            at = 0
            for piece in self.spool.stream(effect.rows, LIMITS.chunk_bytes):
                self.collector.feed(piece, at)
                at += len(piece)

        self.delivered = measured(deliver)
        reply = pairwise_pb2.VectorsReply(unusable=self.collector.unusable)
        return self.coordinator.delivered(reply, self.now)


class Same(World):
    """Everybody has one vector, which is in memory once."""

    def vectors(self) -> Any:
        row = np.arange(self.dimension, dtype=np.int64) % 1_000 - 500
        return np.broadcast_to(row, (self.devices, self.dimension))


def analyzer(dimension: int, devices: int) -> dict[str, Any]:
    """From the shuffler's spool to the release on disk."""
    with tempfile.TemporaryDirectory(prefix="shoal-ten-million-") as temporary:
        return _analyzer(Path(temporary), dimension, devices)


def _analyzer(folder: Path, dimension: int, devices: int) -> dict[str, Any]:
    plan = of_task(dimension, devices).pairwise
    assert plan is not None
    made = Same(
        devices,
        dimension=dimension,
        cohort_min=devices,
        survivors_min=plan.survivors_min,
        dropout_ppm=plan.dropout_ppm,
        segment_words=plan.segment_words,
    )
    play = Long(made)
    play.spool = VectorSpool(folder, made.terms.sealed_vector_bytes, devices)
    play.spooled = []
    play.run_to(Step.UNMASK)
    collector, store = play.collector, AnalyzerStore(folder / FILE_NAME)
    task, sums = of_task(dimension, devices), SumStore(store)
    form, served = sum_form(task), Served(task)
    answers = [play.answer(number) for number in range(devices)]
    assert answers

    def unmask() -> None:
        play.phase(Step.UNMASK, play.unmask)
        result, round_id = collector.result, collector.round_id
        assert result is not None
        assert round_id is not None
        sums.add(served.task_id, 0, StoredSum(round_id, result.survivors, result.vector), form)
        collector.forget()

    def release() -> None:
        def conclude(found: Any, aborted: Any, earlier: Any, lost: int) -> Any:
            outcome = conclude_sums(
                cast(Any, served), 0, found, aborted, earlier, key, lost, folder / "arrays"
            )
            assert not decode_release(outcome.release).withheld
            return outcome, True

        assert sums.finish(served.task_id, 0, conclude, 2, form)

    key = SigningKey.generate()
    first = play.vectors[0]
    sum_words = _WORD * dimension / 1e6
    told = {"spool": play.spooled[-1], "deliver": play.delivered, "unmask": measured(unmask)}
    # beside the sum itself, which is one of the two
    told["unmask"]["peak"] += sum_words
    told["deliver"]["bare"] = devices * timed(lambda: _bare_row(dimension))
    told["release"] = measured(release)
    (array,) = (folder / "arrays").iterdir()
    assert np.array_equal(np.load(array, mmap_mode="r")[:1_000], devices * first[:1_000])
    told["release"]["bare"] = timed(lambda: _bare_release(folder, dimension))
    store.close()
    return told


def _bare_row(dimension: int) -> None:
    """Decrypt, hash, add: what no analyzer can leave out."""
    size = min(dimension * _WORD, 1 << 20)
    sealed, cipher = AESGCM(bytes(16)).encrypt(bytes(12), bytes(size), None), AESGCM(bytes(16))
    total = np.zeros(size // _WORD, np.dtype("<u4"))
    for _ in range(max(1, dimension * _WORD // size)):
        hashlib.sha256(sealed).digest()
        total += np.frombuffer(cipher.decrypt(bytes(12), sealed, None), total.dtype)


def _bare_release(folder: Path, dimension: int) -> None:
    """Read and hash the sum, hash and write the array, sync."""
    block, left = bytes(1 << 20), dimension * _WORD
    with (folder / "bare").open("wb") as file:
        while left > 0:
            hashlib.sha256(block).digest()
            for _ in range(2):
                hashlib.sha256(block).digest()
                file.write(block)
            left -= len(block)
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    sides = {"device": device, "analyzer": analyzer}
    json.dump(sides[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3])), sys.stdout)
