"""One round of secure aggregation in this process, for the clock: devices, shuffler and analyzer
without network and disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shoal.crypto.admission import enrolment
from shoal.crypto.admission.enrolment import DeviceIdentity, issue
from shoal.crypto.hpke import generate
from shoal.crypto.secagg.analyzer.collector import Collector
from shoal.crypto.secagg.device.machine import DeviceRound
from shoal.crypto.secagg.parameters import GraphParameters
from shoal.crypto.secagg.shuffler.coordinator import Coordinator
from shoal.crypto.secagg.shuffler.effects import AskCommit, AskStart, AskUnmask, Deliver, Effect
from shoal.crypto.secagg.shuffler.opening import countersign, open_request
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.entropy import SYSTEM
from shoal.ids import Digest, TaskId
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode, PairwisePlan

_NOW = 1_800_000_000.0
_WORD_BITS = 32
_TIMED = 5  # devices of a round whose steps are timed


@dataclass(frozen=True)
class FixedTerms(RoundTerms):
    """A task's terms with neighbours and threshold as they are wished for, to compare with
    others.
    """

    fixed: GraphParameters = field(default=GraphParameters(2, 2, False))

    def parameters(self, devices: int) -> GraphParameters:
        """The same graph for any number of devices."""
        return self.fixed


@dataclass(frozen=True, slots=True)
class Round:
    """``devices``: seconds of CPU per step, of the devices that were timed. ``unmask_s``: of the
    analyzer, from the shares to the sum.
    """

    neighbours: int
    threshold: int
    devices: tuple[dict[str, float], ...]
    unmask_s: float
    bytes_up: int
    bytes_down: int
    word_bytes: int = _WORD_BITS // 8


class _Ledger:
    def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None:
        """Nothing: the disk is not what is measured."""

    def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None:
        """Nothing."""


class _Play:
    """A round whose devices do as they are told; the last ``lost`` send no vector."""

    def __init__(
        self,
        terms: RoundTerms,
        devices: int,
        shuffler: SigningKey,
        analyzer: SigningKey,
        collector: Collector,
        nonce: bytes,
    ) -> None:
        self.terms, self.collector = terms, collector
        self.coordinator = Coordinator(
            terms,
            countersign(terms, nonce, collector.offered, shuffler),
            nonce,
            shuffler,
            SYSTEM,
            _NOW,
        )
        self.uploads: dict[bytes, bytes] = {}
        self.times: dict[int, dict[str, float]] = {
            number: {} for number in range(min(_TIMED, devices))
        }
        self.up: dict[int, int] = dict.fromkeys(self.times, 0)
        self.down: dict[int, int] = dict.fromkeys(self.times, 0)
        self.unmask_s = 0.0
        self.now = _NOW

    @contextmanager
    def timed(self, number: int, step: str) -> Iterator[None]:
        """A device has seen nobody's certificate before: what this process remembers is
        forgotten.
        """
        if number not in self.times:
            yield
            return
        enrolment._remembered.cache_clear()
        begin = time.process_time()
        yield
        self.times[number][step] = time.process_time() - begin

    def count(self, number: int, down: int, up: int) -> None:
        if number in self.times:
            self.down[number] += down
            self.up[number] += up

    def on(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.on(self.ask(effect))

    def ask(self, effect: Effect) -> list[Effect]:
        coordinator, collector = self.coordinator, self.collector
        match effect:
            case AskStart(request):
                return coordinator.started(collector.start(request), self.now)
            case Deliver(sessions):
                unusable = collector.add_vectors(self.uploads.pop(session) for session in sessions)
                return coordinator.delivered(pairwise_pb2.VectorsReply(unusable=unusable), self.now)
            case AskCommit(request):
                return coordinator.committed(collector.commit(request), self.now)
            case AskUnmask(requests):
                begin = time.process_time()
                replies = [collector.unmask(request) for request in requests]
                self.unmask_s = time.process_time() - begin
                return coordinator.unmasked(replies[-1], self.now)
        raise RuntimeError(f"the round was to be measured, and ended: {effect}")

    def over(self) -> None:
        """The phase ends, by itself or at its deadline."""
        before = self.coordinator.phase
        self.on(self.coordinator.tick(self.now))
        deadline = self.coordinator.deadline()
        if self.coordinator.phase == before and deadline is not None:
            self.now = deadline
            self.on(self.coordinator.tick(self.now))


def timed_round(
    devices: int, neighbours: int, threshold: int, dimension: int, lost_percent: int
) -> Round:
    """Play a round. ``neighbours`` 0: as computed for the default mode, a tenth corrupt, a fifth
    lost. Checks that the sum is right.
    """
    root, shuffler, analyzer, key = (
        SigningKey.generate(),
        SigningKey.generate(),
        SigningKey.generate(),
        generate(SuiteId.X25519_AES128),
    )
    plan = PairwisePlan(
        Mode.DEFAULT,
        devices // 2,
        devices,
        devices // 2,
        400_000 if neighbours else 200_000,
        _WORD_BITS,
    )
    values = (
        TaskId(bytes(32)),
        0,
        plan,
        900_000,
        dimension,
        shuffler.public,
        analyzer.public,
        root.public,
        key.config,
        Digest(bytes(32)),
    )
    terms = (
        FixedTerms(*values, fixed=GraphParameters(neighbours, threshold, False))
        if neighbours
        else RoundTerms(*values)
    )
    nonce = SYSTEM.bytes(32)
    collector = Collector(
        terms, key, analyzer, SYSTEM.bytes(32), open_request(terms, nonce).shuffler_commitment
    )
    play = _Play(terms, devices, shuffler, analyzer, collector, nonce)
    rounds = [DeviceRound(terms, _identity(root)) for _ in range(devices)]
    vector = np.arange(dimension, dtype=np.int64) % 1_000
    alive = devices - devices * lost_percent // 100
    _joins(play, rounds)
    _shares(play, rounds)
    _checks(play, rounds)
    _masks(play, rounds[:alive], vector)
    _unmasks(play, rounds[:alive])
    if collector.result is None or not np.array_equal(collector.result.vector, vector * alive):
        raise RuntimeError("the sum is wrong or missing: what was measured is no round")
    used = terms.parameters(devices)
    return Round(
        used.neighbours,
        used.threshold,
        tuple(play.times.values()),
        play.unmask_s,
        max(play.up.values()),
        max(play.down.values()),
    )


def _identity(root: SigningKey) -> DeviceIdentity:
    key = SigningKey.generate()
    return DeviceIdentity(key, issue(root, key.public, int(_NOW) - 10, int(_NOW) + 86_400))


def _each(
    play: _Play,
    rounds: list[DeviceRound],
    step: Callable[[int, DeviceRound, pairwise_pb2.Answer], None],
) -> None:
    for number, device in enumerate(rounds):
        step(number, device, play.coordinator.answer(device.session, play.now))
    play.over()


def _joins(play: _Play, rounds: list[DeviceRound]) -> None:
    for number, device in enumerate(rounds):
        offer = play.coordinator.invite(play.now).offer
        with play.timed(number, "join"):
            message = device.join(offer, play.now)
        play.count(number, offer.ByteSize(), message.ByteSize())
        play.coordinator.join(device.session, message, play.now)
    play.over()


def _shares(play: _Play, rounds: list[DeviceRound]) -> None:
    def step(number: int, device: DeviceRound, answer: pairwise_pb2.Answer) -> None:
        with play.timed(number, "share"):
            message = device.share(answer.started, play.now)
        play.count(number, answer.ByteSize(), message.ByteSize())
        play.coordinator.shares(device.session, message, play.now)

    _each(play, rounds, step)


def _checks(play: _Play, rounds: list[DeviceRound]) -> None:
    def step(number: int, device: DeviceRound, answer: pairwise_pb2.Answer) -> None:
        with play.timed(number, "check"):
            message = device.check(answer.roster)
        play.count(number, answer.ByteSize(), message.ByteSize())
        play.coordinator.check(device.session, message, play.now)

    _each(play, rounds, step)


def _masks(play: _Play, rounds: list[DeviceRound], vector: NDArray[np.int64]) -> None:
    def step(number: int, device: DeviceRound, answer: pairwise_pb2.Answer) -> None:
        with play.timed(number, "mask"):
            sealed = device.mask(answer.roster, vector, _Ledger())
        play.count(number, answer.ByteSize(), len(sealed))
        play.uploads[device.session] = sealed
        play.coordinator.uploaded(device.session, Digest.of(sealed), play.now)

    _each(play, rounds, step)


def _unmasks(play: _Play, rounds: list[DeviceRound]) -> None:
    def step(number: int, device: DeviceRound, answer: pairwise_pb2.Answer) -> None:
        with play.timed(number, "unmask"):
            message = device.unmask(answer.commit, [], _Ledger())
        play.count(number, answer.ByteSize(), message.ByteSize())
        play.coordinator.unmask(device.session, message, play.now)

    _each(play, rounds, step)
