"""A device's part in a round, over a shuffler that answers by script: what is sent, how often, and
when it stops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.clients.memory.rounds_ledger import MemoryLedger
from shoal.clients.rounds.exchange import RoundLine
from shoal.clients.rounds.participation import RoundOutcome, RoundState, take_part
from shoal.clocks.clock import FakeClock
from shoal.crypto.hpke import generate
from shoal.crypto.secagg.exchange import open_request, seal_reply
from shoal.crypto.suites import SuiteId
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.protos import pairwise_pb2
from tests.cases import for_each
from tests.worlds.rounds.secagg import NOW, World, identity

HOP = generate(SuiteId.X25519_AES128)
TERMS = World(5).terms
VECTOR = np.zeros(TERMS.dimension, dtype=np.int64)
NONE = pairwise_pb2.Answer(phase=pairwise_pb2.PHASE_NONE, wait_ms=1_000)
Script = Callable[[int, pairwise_pb2.Step], pairwise_pb2.Answer | bytes | ShoalError]


@dataclass
class Scripted:
    """``script(number of the call, step)``: an answer, raw bytes instead of a sealed reply, or a
    failure. ``frames``: all that was sent.
    """

    script: Script
    frames: list[bytes] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    async def exchange(self, frame: bytes, deadline_s: float) -> bytes:
        data, key = open_request(HOP, frame)
        step = pairwise_pb2.Step.FromString(data)
        self.frames.append(frame)
        self.kinds.append(step.WhichOneof("step") or "")
        said = self.script(len(self.frames) - 1, step)
        if isinstance(said, ShoalError):
            raise said
        return said if isinstance(said, bytes) else seal_reply(key, said.SerializeToString())

    async def close(self) -> None: ...


def always(answer: pairwise_pb2.Answer) -> Script:
    return lambda _, __: answer


async def part(
    script: Script, deadline: float = 100.0, ledger: MemoryLedger | None = None
) -> tuple[RoundOutcome, Scripted, list[float]]:
    """The outcome, what was sent, and the pauses; a pause lets its time pass at once."""
    clock, pauses, wire = FakeClock(NOW), list[float](), Scripted(script)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)

    line = RoundLine(HOP.config, wire, clock, NOW + deadline, SeededEntropy("device"), sleep)
    return await take_part(TERMS, identity(0), VECTOR, ledger or MemoryLedger(), line), wire, pauses


async def test_every_attempt_sends_the_same_bytes() -> None:
    """Lost calls, garbled and forged replies, refusals that pass: one frame until it is answered.
    Planted: sealed anew per attempt -> different bytes.
    """
    troubles: list[ShoalError | bytes] = [
        ShoalError(Kind.UNAVAILABLE, "gone"),
        ShoalError(Kind.DEADLINE, "slow"),
        b"",
        bytes(100),
        ShoalError(Kind.OVERLOADED, "busy"),
    ]

    def script(number: int, _: pairwise_pb2.Step) -> pairwise_pb2.Answer | bytes | ShoalError:
        return (
            troubles[number]
            if number < len(troubles)
            else pairwise_pb2.Answer(kind=Kind.WINDOW_CLOSED.value, reason="over")
        )

    outcome, wire, pauses = await part(script)
    assert (outcome.state, outcome.kind, outcome.message) == (
        RoundState.NONE,
        Kind.WINDOW_CLOSED,
        "over",
    )
    assert len(wire.frames) == len(troubles) + 1
    assert len(set(wire.frames)) == 1
    assert len(pauses) == len(troubles)
    assert all(
        0.75 * expected <= pause <= 1.25 * expected
        for pause, expected in zip(pauses, (0.2, 0.4, 0.8, 1.6, 3.2), strict=True)
    )


async def test_a_device_waits_as_long_as_a_shuffler_without_room_asks() -> None:
    """Said of the call or in a sealed answer; no longer than a minute, nor beyond half of the time
    that is left.

    Planted: its own short pauses whatever is said -> this fails.
    """
    asked: list[ShoalError | pairwise_pb2.Answer] = [
        ShoalError(Kind.OVERLOADED, "busy", retry_after_s=7.0),
        pairwise_pb2.Answer(kind=Kind.OVERLOADED.value, reason="busy", wait_ms=9_000),
        ShoalError(Kind.OVERLOADED, "busy", retry_after_s=1e9),
        ShoalError(Kind.WINDOW_CLOSED, "over"),
    ]
    _, wire, pauses = await part(lambda n, _: asked[n], deadline=1_000.0)
    assert len(set(wire.frames)) == 1
    assert all(
        least <= pause <= 1.25 * least
        for pause, least in zip(pauses, (7.0, 9.0, 60.0), strict=True)
    )
    _, _, (first, *_) = await part(
        lambda _, __: ShoalError(Kind.OVERLOADED, "busy", retry_after_s=60.0), deadline=40.0
    )
    assert first <= 20.0


async def test_a_device_asks_as_often_as_it_is_told_and_not_after_its_deadline() -> None:
    """Planted: no deadline -> it asks for ever; no bounds of a shuffler's wish -> it sleeps for a
    month.
    """
    outcome, wire, pauses = await part(always(NONE), deadline=10.0)
    assert (outcome.state, outcome.kind, outcome.charged) == (RoundState.NONE, Kind.DEADLINE, False)
    assert set(wire.kinds) == {"ask"}
    assert len(wire.kinds) <= 14
    assert all(0.75 <= pause <= 1.25 for pause in pauses)
    for wish, least, most in ((0, 0.03, 0.07), (1 << 31, 45.0, 75.0)):
        _, _, pauses = await part(
            always(pairwise_pb2.Answer(phase=pairwise_pb2.PHASE_NONE, wait_ms=wish)), deadline=1.0
        )
        assert all(least <= pause <= most for pause in pauses)


@for_each(
    "kind", [Kind.INVALID, Kind.UNKNOWN_KEY, Kind.UNKNOWN_TASK, Kind.WINDOW_CLOSED, Kind.OVERSIZE]
)
async def test_a_frame_that_is_refused_for_good_is_not_sent_again(kind: Kind) -> None:
    outcome, wire, _ = await part(lambda _, __: ShoalError(kind, "no"))
    assert (outcome.state, outcome.kind, len(wire.frames)) == (RoundState.NONE, kind, 1)


async def test_an_offer_that_nobody_signed_is_answered_by_silence() -> None:
    """The device keeps to itself what it found."""
    answer = pairwise_pb2.Answer(
        phase=pairwise_pb2.PHASE_JOIN,
        offer=pairwise_pb2.SignedOffer(offer=b"x", shuffler_signature=bytes(64)),
    )
    outcome, wire, _ = await part(lambda _, __: answer)
    assert (outcome.state, outcome.charged) == (RoundState.ABORTED, False)
    assert outcome.kind in {Kind.BAD_SIGNATURE, Kind.INVALID}
    assert wire.kinds == ["ask"]


async def test_an_unknown_number_of_a_kind_is_not_taken_for_an_answer() -> None:
    outcome, wire, _ = await part(
        lambda _, __: pairwise_pb2.Answer(kind=4_000, phase=pairwise_pb2.PHASE_DONE), deadline=5.0
    )
    assert (outcome.state, outcome.kind) == (RoundState.NONE, Kind.DEADLINE)
    assert set(wire.kinds) == {"ask"}


async def test_too_early_is_asked_again() -> None:
    early = pairwise_pb2.Answer(kind=Kind.TOO_EARLY.value, reason="not yet")
    outcome, wire, _ = await part(
        lambda n, _: early if n < 3 else ShoalError(Kind.WINDOW_CLOSED, "over")
    )
    assert (outcome.kind, len(wire.frames), len(set(wire.frames))) == (Kind.WINDOW_CLOSED, 4, 4)


async def test_a_window_that_was_answered_sends_nothing() -> None:
    """Planted: the ledger looked at with the vector alone, after the device has joined -> an Ask
    goes out.
    """
    ledger = MemoryLedger()
    ledger.masked(TERMS.task_id, TERMS.window, Digest(bytes(32)), Digest(bytes(32)))
    with pytest.raises(ShoalError) as error:
        await part(always(NONE), ledger=ledger)
    assert error.value.kind is Kind.CONFLICT


@pytest.mark.parametrize(
    "vector",
    [np.zeros(4, dtype=np.int64), np.zeros(5, dtype=np.float64), np.zeros((1, 5), dtype=np.int64)],
)
async def test_a_vector_that_is_none_of_this_task_sends_nothing(vector: NDArray[Any]) -> None:
    wire = Scripted(always(NONE))
    line = RoundLine(HOP.config, wire, FakeClock(NOW), NOW + 10)
    with pytest.raises(ShoalError) as error:
        await take_part(TERMS, identity(0), vector, MemoryLedger(), line)
    assert error.value.kind is Kind.INVALID
    assert wire.frames == []
