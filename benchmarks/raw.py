"""The bare limits of HPKE: the library's own calls in a loop, in as many processes as the subject
has, and nothing around them.

Each process holds its share of the inputs before the clock starts, so that only the calls are
timed. Private keys are throw-away keys of this run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.figures import Sample
from shoal.crypto.hpke import HpkePrivateKey, generate
from shoal.crypto.suites import SuiteId, parse_config
from shoal.services.workers import WorkerPool

Work = tuple[int, float]  # units done, core-seconds spent
_held: dict[str, bytes] = {}


@dataclass(frozen=True, slots=True)
class Opening:
    """How to open the sealed part of each input of ``size`` bytes, after its first ``skip``
    bytes.
    """

    suite: SuiteId
    secret: bytes = field(repr=False)
    info: bytes
    size: int
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Layer:
    """One HPKE layer of a report: its key configuration, its info and how many bytes it seals."""

    config: bytes
    info: bytes
    size: int


class Processes:
    """Single processes that can be told apart: each keeps what it was given to hold."""

    def __init__(self, count: int) -> None:
        self._each = [WorkerPool(1) for _ in range(count)]
        for process in self._each:
            process.warm()

    def hold(self, name: str, data: bytes, size: int) -> None:
        """Share inputs of ``size`` bytes out evenly."""
        count, n = len(data) // size, len(self._each)
        bounds = [count * i // n * size for i in range(n + 1)]
        for i, process in enumerate(self._each):
            process.submit(_hold, name, data[bounds[i] : bounds[i + 1]]).result()

    def run(self, work: Callable[..., Work], *arguments: object) -> Sample:
        """``work(*arguments)`` in every process at once; the wall time is that of the slowest."""
        begin = time.perf_counter()
        done = [
            future.result()
            for future in [process.submit(work, *arguments) for process in self._each]
        ]
        return Sample(
            sum(units for units, _ in done),
            time.perf_counter() - begin,
            sum(cpu for _, cpu in done),
        )

    def close(self) -> None:
        """End all of them."""
        for process in self._each:
            process.close()


# --- in a process ---------------------------------------------------------------------------------


def _hold(name: str, data: bytes) -> None:
    _held[name] = data


def open_held(name: str, opening: Opening) -> Work:
    """Open every input held under ``name``."""
    data, size, skip, info = _held[name], opening.size, opening.skip, opening.info
    # the library's object, without our wrapper
    handle = HpkePrivateKey.from_raw_secret(opening.suite, opening.secret)._handle
    decrypt = opening.suite.hpke.decrypt
    begin = time.process_time()
    for at in range(0, len(data), size):
        decrypt(data[at + skip : at + size], handle, info=info)
    return len(data) // size, time.process_time() - begin


def seal_layers(layers: tuple[Layer, ...], count: int) -> Work:
    """Seal ``count`` reports: every layer of each, plaintexts made beforehand."""
    steps = []
    for layer in layers:
        config = parse_config(layer.config)
        steps.append((config.suite.hpke.encrypt, os.urandom(layer.size), config.handle, layer.info))
    begin = time.process_time()
    for _ in range(count):
        for encrypt, plaintext, handle, info in steps:
            encrypt(plaintext, handle, info=info)
    return count, time.process_time() - begin


def seal_and_open(reports: tuple[tuple[Layer, ...], ...], count: int) -> Work:
    """Seal and open ``count`` reports, those of ``reports`` in turn, every layer of each: to keys
    of this process, whatever ``Layer.config`` says.
    """
    steps = []
    for layer in (layer for layers in reports for layer in layers):
        key = generate(SuiteId.X25519_AES128)
        hpke, config = key.config.suite.hpke, key.config.handle
        steps.append((hpke, os.urandom(layer.size), config, key._handle, layer.info))
    begin = time.process_time()
    for _ in range(0, count, len(reports)):
        for hpke, plaintext, public, private, info in steps:
            hpke.decrypt(hpke.encrypt(plaintext, public, info=info), private, info=info)
    return -(-count // len(reports)) * len(reports), time.process_time() - begin
