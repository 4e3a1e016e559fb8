"""Crashes between the stages of a round: somebody begins anew, and what was in memory is gone. A
typed abort, or a sum of the others.
"""

from __future__ import annotations

import pytest

from shoal.crypto.secagg.analyzer.collector import Collector
from shoal.crypto.secagg.device.machine import DeviceRound
from shoal.crypto.secagg.records import Reason, nonce_commitment
from shoal.crypto.secagg.shuffler.coordinator import Coordinator
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode
from tests.cases import for_each
from tests.worlds.rounds.secagg import Play, Step, World, identity

WORLD = World(6, Mode.STRICT)  # one of six may be lost
STEPS = (Step.JOIN, Step.SHARE, Step.CHECK, Step.MASK, Step.ENDORSE, Step.UNMASK)


@for_each("step", STEPS)
def test_the_analyzer_begins_anew(step: Step) -> None:
    """It knows nothing of the round, and the shuffler gives the round up at its next question;
    devices are told.

    Planted: a collector that commits or unmasks without its own rows (``_running`` that begins by
    itself) -> no sum that checks.
    """
    play = Play(WORLD).run_to(step)
    asked = nonce_commitment(WORLD.entropy("shuffler nonce").bytes(32))
    play.collector = Collector(
        WORLD.terms, WORLD.window_key, WORLD.analyzer_key, b"\x05" * 32, asked
    )
    play.go_on_from(step)
    assert not play.check()
    assert play.ended == [play.coordinator.reason]
    if step is not Step.JOIN:
        assert play.answer(0).kind == Kind.ABORTED.value


@for_each("step", STEPS[1:])
def test_the_shuffler_begins_anew(step: Step) -> None:
    """No session is known any more: every device is told so, and the analyzer's round is ended with
    a reason.
    """
    play = Play(WORLD).run_to(step)
    play.coordinator = Coordinator(
        WORLD.terms, play.offer, bytes(32), WORLD.shuffler_key, SeededEntropy("anew"), play.now
    )
    for number in range(6):
        with pytest.raises(ShoalError) as caught:
            play.answer(number)
        assert caught.value.kind is Kind.NOT_FOUND
    play.collector.abort(Reason.RESTARTED)
    assert play.collector.unmask(pairwise_pb2.UnmaskRoundRequest()).reason == Reason.RESTARTED.value
    assert play.result is None


@for_each("step", STEPS[1:])
def test_a_device_begins_anew(step: Step) -> None:
    """Its keys are gone and its seat with them; the others end the round without it."""
    play = Play(WORLD).run_to(step)
    again = DeviceRound(WORLD.terms, identity(0), SeededEntropy("again"))
    kept = Coordinator(
        WORLD.terms, play.offer, bytes(32), WORLD.shuffler_key, SeededEntropy("kept"), play.now
    )
    first = DeviceRound(WORLD.terms, identity(0), SeededEntropy("first"))
    kept.join(first.session, first.join(play.offer, play.now), play.now)
    for coordinator, kind in ((kept, Kind.CONFLICT), (play.coordinator, Kind.WINDOW_CLOSED)):
        with pytest.raises(ShoalError) as caught:
            coordinator.join(again.session, again.join(play.offer, play.now), play.now)
        assert caught.value.kind is kind
    play.fates = [step, *[Step.NONE] * 5]
    play.go_on_from(step)
    assert play.check()
    assert (0 in play.uploaded) == (step > Step.MASK)


def test_a_vector_is_not_masked_again_after_an_abort() -> None:
    """The devices' ledgers outlive the round: whoever masked in it masks in no other round of the
    window, and is told why.
    """
    play = Play(WORLD).run_to(Step.ENDORSE)
    play.do(play.coordinator.failed(Reason.UNREACHABLE))
    second = Play(World(6, Mode.STRICT, seed="second"))
    second.ledgers = play.ledgers
    second.run()
    assert not second.check()
    assert second.coordinator.reason is Reason.TOO_FEW_VECTORS
    assert {errors[0].kind for errors in second.errors.values()} == {Kind.CONFLICT}
