"""Whole rounds of secure aggregation in memory: real devices, shuffler and analyzer machines, real
cryptography, no sockets.

``World`` holds keys and terms; ``Play`` runs one round of it. ``fates`` says at which step each
device is lost for good; subclasses of ``Play`` tamper with messages. Randomness is seeded (HPKE
encapsulations are not: nothing compared here depends on them).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from unittest import mock

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from shoal.clients.memory.rounds_ledger import MemoryLedger
from shoal.crypto import hpke, signing
from shoal.crypto.admission.enrolment import DeviceIdentity, issue
from shoal.crypto.secagg import pads, records
from shoal.crypto.secagg.analyzer import collector as collecting
from shoal.crypto.secagg.analyzer.collector import Collector
from shoal.crypto.secagg.analyzer.unmasking import RoundSum
from shoal.crypto.secagg.device import checks
from shoal.crypto.secagg.device.machine import DeviceRound
from shoal.crypto.secagg.records import Commit, Reason, Status
from shoal.crypto.secagg.shuffler import analyzer_calls, device_steps, seating
from shoal.crypto.secagg.shuffler import coordinator as coordinating
from shoal.crypto.secagg.shuffler.coordinator import Coordinator
from shoal.crypto.secagg.shuffler.effects import (
    AskCommit,
    AskStart,
    AskUnmask,
    Deliver,
    Effect,
    End,
)
from shoal.crypto.secagg.shuffler.opening import countersign, open_request
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId
from shoal.entropy import SeededEntropy
from shoal.errors import ShoalError
from shoal.ids import Digest, TaskId
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode, PairwisePlan

NOW = 1_800_000_000.0  # Unix seconds at which rounds begin
DAY = 86_400
ENROLMENT, _SHUFFLER, _ANALYZER = (
    SigningKey.generate(),
    SigningKey.generate(),
    SigningKey.generate(),
)
_WINDOW_KEY = hpke.generate(SuiteId.X25519_AES128)


class Step(IntEnum):
    """The step that a lost device no longer takes."""

    JOIN = 1
    SHARE = 2
    CHECK = 3
    MASK = 4
    ENDORSE = 5
    UNMASK = 6
    NONE = 7  # it stays to the end


@lru_cache(maxsize=16_384)
def identity(number: int) -> DeviceIdentity:
    """Enrolled for a year; made once for all rounds."""
    key = SigningKey.generate()
    return DeviceIdentity(key, issue(ENROLMENT, key.public, int(NOW) - DAY, int(NOW) + 365 * DAY))


@dataclass(frozen=True)
class World:
    """Keys and terms of a task. ``cohort_max`` is the number of devices, so that a complete JOIN
    phase ends at once.
    """

    devices: int
    mode: Mode = Mode.DEFAULT
    dimension: int = 5
    word_bits: int = 32
    cohort_min: int = 3
    survivors_min: int = 2
    dropout_ppm: int = 200_000
    honest_ppm: int = 900_000
    seed: str = ""
    segment_words: int = 0

    @property
    def plan(self) -> PairwisePlan:
        least = min(self.cohort_min, self.devices)
        return PairwisePlan(
            self.mode,
            least,
            self.devices,
            min(self.survivors_min, least),
            self.dropout_ppm,
            self.word_bits,
            30,
            60,
            120,
            60,
            self.segment_words,
        )

    @property
    def terms(self) -> RoundTerms:
        return RoundTerms(
            TaskId.of(b"secure aggregation"),
            3,
            self.plan,
            self.honest_ppm,
            self.dimension,
            _SHUFFLER.public,
            _ANALYZER.public,
            ENROLMENT.public,
            _WINDOW_KEY.config,
            Digest.of(b"schedule"),
        )

    @property
    def shuffler_key(self) -> SigningKey:
        return _SHUFFLER

    @property
    def analyzer_key(self) -> SigningKey:
        return _ANALYZER

    @property
    def window_key(self) -> hpke.HpkePrivateKey:
        return _WINDOW_KEY

    def entropy(self, what: str) -> SeededEntropy:
        return SeededEntropy(f"{self.seed} {what}")

    def vectors(self) -> NDArray[np.int64]:
        """int64[devices, dimension], small enough for every word width, each device's different,
        signs mixed.
        """
        words = (
            self.entropy("vectors").words(self.devices * self.dimension).astype(np.int64) & 0x1FF
        )
        return words.reshape(self.devices, self.dimension) - 200


@dataclass
class Play:
    """One round, driven as the services drive it. ``fates``: per device; the rest of the fields are
    looked at afterwards.
    """

    world: World
    fates: Sequence[Step] = ()
    now: float = NOW
    uploads: dict[bytes, bytes] = field(default_factory=dict)  # complete ones, by session
    ended: list[Reason] = field(default_factory=list)  # what EndRound said
    errors: dict[int, list[ShoalError]] = field(default_factory=dict)  # of steps, by device

    def __post_init__(self) -> None:
        world, terms = self.world, self.world.terms
        self.fates = list(self.fates) or [Step.NONE] * world.devices
        self.vectors = world.vectors()
        self.devices = [
            DeviceRound(terms, identity(i), world.entropy(f"device {i}"))
            for i in range(world.devices)
        ]
        self.ledgers = [MemoryLedger() for _ in self.devices]
        nonce = world.entropy("shuffler nonce").bytes(32)
        asked = open_request(terms, nonce)
        self.collector = Collector(
            terms,
            world.window_key,
            world.analyzer_key,
            world.entropy("analyzer nonce").bytes(32),
            asked.shuffler_commitment,
        )
        self.offer = countersign(terms, nonce, self.collector.offered, world.shuffler_key)
        self.coordinator = Coordinator(
            terms, self.offer, nonce, world.shuffler_key, world.entropy("shuffler"), self.now
        )

    # --- the course of a round --------------------------------------------------------------------

    def run(self) -> Play:
        """Every phase to its end, in order."""
        return self.run_to(Step.NONE)

    def run_to(self, step: Step) -> Play:
        """Every phase before that step."""
        return self.go_on_from(Step.JOIN, step)

    def go_on_from(self, first: Step, end: Step = Step.NONE) -> Play:
        """Every phase from ``first`` on, before ``end``."""
        for one in Step:
            if first <= one < end and (one is not Step.ENDORSE or self.world.mode is Mode.STRICT):
                self.phase(one, self.act(one))
        return self

    def act(self, step: Step) -> Callable[[int], None]:
        """What a device does in that step."""
        return {
            Step.JOIN: self.join,
            Step.SHARE: self.share,
            Step.CHECK: self.check_shares,
            Step.MASK: self.mask,
            Step.ENDORSE: self.endorse,
            Step.UNMASK: self.unmask,
        }[step]

    def phase(self, step: Step, act: Callable[[int], None]) -> None:
        """Each device that is still there takes its step; then the clock goes on until the phase is
        over.
        """
        if self.coordinator.ended:
            return
        for number in self.present(step):
            self.attempt(number, act)
        self.finish()

    def finish(self) -> None:
        """The phase ends: by being complete, else by its deadline."""
        before = self.coordinator.phase
        self.do(self.coordinator.tick(self.now))
        deadline = self.coordinator.deadline()
        if self.coordinator.phase == before and deadline is not None:
            self.now = deadline
            self.do(self.coordinator.tick(self.now))

    def present(self, step: Step) -> list[int]:
        return [number for number, fate in enumerate(self.fates) if fate > step]

    def attempt(self, number: int, act: Callable[[int], None]) -> None:
        """A step that fails is a lost device to everybody else."""
        try:
            act(number)
        except ShoalError as error:
            self.errors.setdefault(number, []).append(error)

    def answer(self, number: int) -> pairwise_pb2.Answer:
        return self.coordinator.answer(self.devices[number].session, self.now)

    # --- devices' steps; tampering overrides the messages -----------------------------------------

    def join(self, number: int) -> None:
        device = self.devices[number]
        message = self.joins(number, device.join(self.coordinator.invite(self.now).offer, self.now))
        assert (
            self.coordinator.join(device.session, message, self.now) == identity(number).key.public
        )

    def share(self, number: int) -> None:
        device, answer = self.devices[number], self.answer(number)
        if answer.HasField("started"):
            self.coordinator.shares(
                device.session,
                self.shares(number, device.share(self.starts(number, answer.started), self.now)),
                self.now,
            )

    def check_shares(self, number: int) -> None:
        """Until the shuffler wants nothing more of this device: it complains, with evidence, as
        often as it has to.
        """
        device = self.devices[number]
        while (answer := self.answer(number)).HasField("dealt") or answer.HasField("roster"):
            said = (
                device.complain(self.dealts(number, answer.dealt))
                if answer.HasField("dealt")
                else device.check(answer.roster)
            )
            said = self.checks(number, said)
            dispute = self.coordinator.check(device.session, said, self.now)
            if dispute is not None:
                verdict = dispute.dealer_is_guilty(said.complaint.shared, said.complaint.proof)
                self.coordinator.judged(device.session, dispute, dealer_is_guilty=verdict)

    def mask(self, number: int) -> None:
        device, answer = self.devices[number], self.answer(number)
        if answer.HasField("roster"):
            sealed = self.seals(
                number,
                device.mask(
                    self.rosters(number, answer.roster), self.vectors[number], self.ledgers[number]
                ),
            )
            assert self.coordinator.expects_upload(device.session, self.now)
            self.coordinator.uploaded(device.session, Digest.of(sealed), self.now)
            self.uploads[device.session] = sealed

    def endorse(self, number: int) -> None:
        device, answer = self.devices[number], self.answer(number)
        if answer.HasField("commit"):
            self.coordinator.endorse(
                device.session, self.endorsements(number, device.endorse(answer.commit)), self.now
            )

    def unmask(self, number: int) -> None:
        device, answer = self.devices[number], self.answer(number)
        if answer.HasField("commit"):
            message = device.unmask(answer.commit, list(answer.endorsements), self.ledgers[number])
            self.coordinator.unmask(device.session, self.bundles(number, message), self.now)

    def joins(self, number: int, message: pairwise_pb2.Join) -> pairwise_pb2.Join:
        return message

    def starts(self, number: int, message: pairwise_pb2.Started) -> pairwise_pb2.Started:
        return message

    def shares(self, number: int, message: pairwise_pb2.Shares) -> pairwise_pb2.Shares:
        return message

    def checks(self, number: int, message: pairwise_pb2.Check) -> pairwise_pb2.Check:
        return message

    def dealts(self, number: int, message: pairwise_pb2.Shares) -> pairwise_pb2.Shares:
        return message

    def rosters(self, number: int, message: pairwise_pb2.Roster) -> pairwise_pb2.Roster:
        return message

    def seals(self, number: int, sealed: bytes) -> bytes:
        return sealed

    def endorsements(self, number: int, message: pairwise_pb2.Endorse) -> pairwise_pb2.Endorse:
        return message

    def bundles(self, number: int, message: pairwise_pb2.Unmask) -> pairwise_pb2.Unmask:
        return message

    # --- between shuffler and analyzer ------------------------------------------------------------

    def do(self, effects: list[Effect]) -> None:
        """As the shuffler's driver: ask the analyzer, hand the answer in, go on with what
        follows.
        """
        for effect in effects:
            try:
                self.do(self.ask(effect))
            except ShoalError as error:
                self.do(self.coordinator.failed(Reason.behind(error)))

    def ask(self, effect: Effect) -> list[Effect]:
        coordinator, collector = self.coordinator, self.collector
        match effect:
            case AskStart(request):
                return coordinator.started(collector.start(request), self.now)
            case Deliver(sessions):
                rows = [self.uploads[session] for session in sessions]
                return coordinator.delivered(
                    pairwise_pb2.VectorsReply(unusable=collector.add_vectors(rows)), self.now
                )
            case AskCommit(request):
                return coordinator.committed(collector.commit(request), self.now)
            case AskUnmask(requests):
                return coordinator.unmasked(
                    [collector.unmask(request) for request in requests][-1], self.now
                )
            case End(reason):
                self.ended.append(reason)
                collector.abort(reason)
                return []

    # --- how it ended -----------------------------------------------------------------------------

    @property
    def result(self) -> RoundSum | None:
        return self.collector.result

    @property
    def uploaded(self) -> list[int]:
        """Devices whose vectors reached the shuffler in time."""
        return [
            number for number, device in enumerate(self.devices) if device.session in self.uploads
        ]

    @property
    def statuses(self) -> dict[int, Status]:
        """By device, of those that have a seat, as committed (while the round lives)."""
        members = self.coordinator._seating.members
        return {
            number: members[device.session].status
            for number, device in enumerate(self.devices)
            if device.session in members
        }

    def position(self, number: int) -> int:
        """Of a device on the ring (while the round lives)."""
        return self.coordinator._seating.members[self.devices[number].session].position

    def commit(self) -> Commit:
        """The record that devices are shown."""
        return Commit.decode(self.coordinator._commit.record)

    def check(self) -> bool:
        """The promise: the exact sum of the vectors of exactly the devices whose vectors came
        (True), or a typed abort (False).
        """
        result = self.result
        if result is None:
            assert self.coordinator.phase == pairwise_pb2.PHASE_ABORTED
            assert self.coordinator.reason is not None
            assert self.collector.reason is self.coordinator.reason
            return False
        assert self.coordinator.phase == pairwise_pb2.PHASE_DONE
        assert (
            result.survivors
            == len(self.uploaded)
            >= self.world.terms.survivors(self.coordinator.counts()["joined"])
        )
        word = self.world.word_bits // 8 if self.world.segment_words else 8
        assert result.vector.dtype == np.dtype(f"<i{word}")
        np.testing.assert_array_equal(result.vector, self.vectors[self.uploaded].sum(axis=0))
        return True


@contextlib.contextmanager
def remembered_signatures() -> Iterator[None]:
    """Verify each signature once in a process: verification is a pure function, and a round of n
    devices in one process does it n times.
    """

    @lru_cache(maxsize=1 << 16)
    def verified(public: bytes, context: SigningContext, data: bytes, signature: bytes) -> None:
        signing.verify(public, context, data, signature)

    with contextlib.ExitStack() as stack:
        for module in (
            checks,
            records,
            seating,
            device_steps,
            analyzer_calls,
            coordinating,
            collecting,
        ):
            stack.enter_context(mock.patch.object(module, "verify", verified))
        yield


@contextlib.contextmanager
def remembered_agreements() -> Iterator[None]:
    """Agree once per pair of keys: both ends get the same shared secret (RFC 7748), and here both
    ends are in one process.

    Real X25519 for the first of the two; errors are never remembered.
    """
    agree, known = pads.agree, dict[tuple[bytes, bytes], bytes]()
    publics: dict[X25519PrivateKey, bytes] = {}

    def agreed(private: X25519PrivateKey, public: bytes) -> bytes:
        if private not in publics:
            if len(publics) > 4_096:
                publics.clear()
                known.clear()
            publics[private] = private.public_key().public_bytes_raw()
        own = publics[private]
        pair = (own, public) if own < public else (public, own)
        if pair not in known:
            known[pair] = agree(private, public)
        return known[pair]

    with mock.patch.object(pads, "agree", agreed):
        yield
