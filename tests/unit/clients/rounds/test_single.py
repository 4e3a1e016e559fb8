"""A device in helper mode: sent once, whatever is lost on the way, and counted once."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

import numpy as np
import pytest

from shoal.clients.memory.rounds_ledger import MemoryLedger, RoundStanding
from shoal.clients.rounds.exchange import RoundLine
from shoal.clients.rounds.participation import RoundState
from shoal.clients.rounds.single import send_single
from shoal.crypto.admission.enrolment import DeviceIdentity, issue
from shoal.crypto.hpke import generate
from shoal.crypto.secagg.exchange import open_request, seal_reply
from shoal.crypto.secagg.shuffler.phases import refusal
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode, PairwisePlan
from shoal.shuffler.core import WindowId
from shoal.shuffler.rounds.singles import Singles
from shoal.shuffler.stores.sqlite.single_store import SingleStore
from shoal.shuffler.stores.threaded_claims import ThreadedClaims
from shoal.shuffler.stores.threaded_rounds import ThreadedVectors
from tests.cases import for_each

NOW = 1_800_000_000.0
ROOT, HOP, KEY = (
    SigningKey.generate(),
    generate(SuiteId.X25519_AES128),
    generate(SuiteId.X25519_AES128),
)
DIMENSION = 140_000  # three chunks
TERMS = RoundTerms(
    TaskId(bytes(32)),
    0,
    PairwisePlan(Mode.HELPER, 4, 100, 3, 200_000, 32),
    900_000,
    DIMENSION,
    bytes([1]) * 32,
    bytes([2]) * 32,
    ROOT.public,
    KEY.config,
    Digest(bytes([3]) * 32),
)
WINDOW = WindowId(TERMS.task_id, 0)


class Clock:
    """Moves on when somebody sleeps."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class Shuffler:
    """The shuffler's end, in process. ``lose``: numbers of calls whose answer is lost; ``away``: of
    calls that don't arrive.
    """

    def __init__(
        self,
        folder: Path,
        lose: Set[int] = frozenset(),
        away: Set[int] = frozenset(),
    ) -> None:
        self.forget_at = -1  # the call before which every upload under way is forgotten
        self.folder, self.lose, self.away, self.calls, self.frames = (
            folder,
            lose,
            away,
            0,
            list[bytes](),
        )
        self.store = SingleStore(folder)
        self.singles = Singles(ThreadedVectors(self.store, ThreadedClaims()))
        self.open, self.closes_at = True, 1 << 30  # a call
        self.paused = 0  # polls that are still told so

    async def exchange(self, frame: bytes, deadline_s: float) -> bytes:
        number, self.calls = self.calls, self.calls + 1
        self.frames.append(frame)
        if number == self.forget_at:
            self.singles = Singles(ThreadedVectors(self.store, ThreadedClaims()))
        if number in self.away:
            raise ShoalError(Kind.UNAVAILABLE, "away")
        data, reply_key = open_request(HOP, frame)
        step = pairwise_pb2.Step.FromString(data)
        try:
            if self.paused and step.WhichOneof("step") == "poll":
                self.paused -= 1
                raise ShoalError(Kind.UNAVAILABLE, "the analyzer can't open this window now")
            answer = await self.singles.step(
                TERMS, step, NOW, open_=self.open and number < self.closes_at
            )
        except ShoalError as error:
            answer = refusal(error)
        if number in self.lose:
            raise ShoalError(Kind.UNAVAILABLE, "lost")
        return seal_reply(reply_key, answer.SerializeToString())

    async def close(self) -> None:
        """Nothing to close."""


def identity() -> DeviceIdentity:
    key = SigningKey.generate()
    return DeviceIdentity(key, issue(ROOT, key.public, int(NOW) - 10, int(NOW) + 1_000))


def line(shuffler: Shuffler, clock: Clock, entropy: int = 1) -> RoundLine:
    return RoundLine(HOP.config, shuffler, clock, NOW + 300, SeededEntropy(entropy), clock.sleep)


@for_each("lost", [set[int](), *({n} for n in range(6)), {0, 2, 4}, set(range(1, 6))], ids=str)
async def test_whatever_is_lost_the_vector_is_stored_once(tmp_path: Path, lost: set[int]) -> None:
    """Planted: no second pass after a forgotten upload -> the case of the lost last answer is
    ABORTED.
    """
    shuffler, clock, ledger = Shuffler(tmp_path, lose=lost), Clock(), MemoryLedger()
    outcome = await send_single(
        TERMS, identity(), np.ones(DIMENSION, np.int64), ledger, line(shuffler, clock)
    )
    assert (outcome.state, outcome.charged, outcome.kind) == (RoundState.COUNTED, True, None)
    assert shuffler.store.count(WINDOW) == 1
    (entry,) = ledger.answers()
    assert entry.standing is RoundStanding.COUNTED


@pytest.mark.parametrize("call", [2, 3, 4])
async def test_a_shuffler_that_forgot_the_upload_gets_it_again(tmp_path: Path, call: int) -> None:
    """By a restart, or because its memory was full. Planted: only the last step's refusal looked at
    -> ABORTED for calls 2 and 3.
    """
    shuffler, clock = Shuffler(tmp_path), Clock()
    shuffler.forget_at = call
    outcome = await send_single(
        TERMS, identity(), np.ones(DIMENSION, np.int64), MemoryLedger(), line(shuffler, clock)
    )
    assert outcome.state is RoundState.COUNTED
    assert shuffler.store.count(WINDOW) == 1


async def test_a_retry_is_the_same_bytes(tmp_path: Path) -> None:
    """Planted: the step sealed anew for each attempt -> this fails."""
    shuffler, clock = Shuffler(tmp_path, away={1, 2}), Clock()
    await send_single(
        TERMS, identity(), np.ones(DIMENSION, np.int64), MemoryLedger(), line(shuffler, clock)
    )
    assert shuffler.frames[1] == shuffler.frames[2] == shuffler.frames[3]
    assert clock.time > NOW


@pytest.mark.parametrize("first", [0, 1])
async def test_time_runs_out(tmp_path: Path, first: int) -> None:
    """Before the shuffler was heard nothing is charged. Planted: no look at the clock -> goes on
    until it is heard.
    """
    shuffler, clock, ledger = (
        Shuffler(tmp_path, away=set(range(first, 1_000))),
        Clock(),
        MemoryLedger(),
    )
    outcome = await send_single(
        TERMS, identity(), np.ones(DIMENSION, np.int64), ledger, line(shuffler, clock)
    )
    state = RoundState.LOST if first else RoundState.NONE
    assert (outcome.state, outcome.kind, outcome.charged) == (state, Kind.DEADLINE, first == 1)
    assert [entry.standing for entry in ledger.answers()] == [RoundStanding.LOST] * first


@pytest.mark.parametrize("call", [0, 1])
async def test_a_refusal_is_final(tmp_path: Path, call: int) -> None:
    """One that comes before the vector is made costs nothing. Planted: the vector made first -> it
    is charged.
    """
    shuffler, clock, ledger = Shuffler(tmp_path), Clock(), MemoryLedger()
    shuffler.closes_at = call
    outcome = await send_single(
        TERMS, identity(), np.ones(DIMENSION, np.int64), ledger, line(shuffler, clock)
    )
    state = RoundState.ABORTED if call else RoundState.NONE
    assert (outcome.state, outcome.kind, outcome.charged) == (state, Kind.WINDOW_CLOSED, call == 1)
    assert [entry.standing for entry in ledger.answers()] == [RoundStanding.ABORTED] * call


@pytest.mark.parametrize("polls", [3, 1 << 30])
async def test_a_window_that_is_paused_costs_nothing(tmp_path: Path, polls: int) -> None:
    """It is waited for, until the window is over. Planted: no question before the vector is made ->
    it is charged while paused.
    """
    shuffler, clock, ledger = Shuffler(tmp_path), Clock(), MemoryLedger()
    shuffler.paused = polls
    seen: list[int] = []

    async def sleep(seconds: float) -> None:
        seen.append(len(ledger.answers()))
        await clock.sleep(seconds)

    way = RoundLine(HOP.config, shuffler, clock, NOW + 300, SeededEntropy(1), sleep)
    outcome = await send_single(TERMS, identity(), np.ones(DIMENSION, np.int64), ledger, way)
    assert set(seen) == {0}
    if polls == 3:
        assert (outcome.state, len(seen), shuffler.store.count(WINDOW)) == (
            RoundState.COUNTED,
            3,
            1,
        )
    else:
        assert (outcome.state, outcome.charged, ledger.answers()) == (RoundState.NONE, False, [])


async def test_a_window_is_answered_once(tmp_path: Path) -> None:
    shuffler, clock, ledger, device = Shuffler(tmp_path), Clock(), MemoryLedger(), identity()
    await send_single(TERMS, device, np.ones(DIMENSION, np.int64), ledger, line(shuffler, clock))
    calls = shuffler.calls
    with pytest.raises(ShoalError) as error:
        await send_single(
            TERMS, device, np.ones(DIMENSION, np.int64), ledger, line(shuffler, clock, 2)
        )
    assert (error.value.kind, shuffler.calls) == (Kind.CONFLICT, calls)


async def test_a_stranger_is_told(tmp_path: Path) -> None:
    shuffler, clock = Shuffler(tmp_path), Clock()
    key = SigningKey.generate()
    stranger = DeviceIdentity(
        key, issue(SigningKey.generate(), key.public, int(NOW) - 10, int(NOW) + 1_000)
    )
    outcome = await send_single(
        TERMS, stranger, np.ones(DIMENSION, np.int64), MemoryLedger(), line(shuffler, clock)
    )
    assert (outcome.state, outcome.kind) == (RoundState.ABORTED, Kind.UNAUTHENTICATED)
    assert shuffler.store.count(WINDOW) == 0
