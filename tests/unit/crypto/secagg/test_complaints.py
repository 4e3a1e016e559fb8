"""Dealers whose shares do not open, devices that say so falsely, and servers that use it: who is
guilty goes, everybody else gets the sum.

Whole rounds in memory (tests/worlds/rounds/secagg.py). On a program that opened shares after
masking, each round here with a bad dealer ended without a sum, with every device charged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shoal.crypto.secagg import pads
from shoal.crypto.secagg.complaints import Dispute
from shoal.crypto.secagg.device.machine import DeviceState
from shoal.crypto.secagg.device.secrets import AfterShare
from shoal.crypto.secagg.records import Reason, Status
from shoal.crypto.secagg.ring import place_of
from shoal.crypto.secagg.shares import CIPHERTEXT_SIZE, share_key
from shoal.crypto.signing import SigningContext
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode
from tests.cases import for_each
from tests.worlds.rounds.dealers import BadDealers, charged, flipped, guilty, signed
from tests.worlds.rounds.secagg import Play, Step, World, identity

# 3 of 12 may be lost; complete, 11 neighbours each
WORLD = World(12, dropout_ppm=250_000, honest_ppm=900_000)
STRICT = World(12, Mode.STRICT, dropout_ppm=250_000, honest_ppm=900_000)
THRESHOLD = WORLD.terms.parameters(12).threshold


@for_each("world", [WORLD, STRICT], ids=["default", "strict"])
@for_each(
    "bad",
    [{0: 11}, {4: 1}, {7: THRESHOLD - 1}, {0: 11, 5: 3, 11: 11}],
    ids=["all", "one", "few", "three"],
)
def test_whoever_deals_what_does_not_open_is_left_out(world: World, bad: dict[int, int]) -> None:
    """To all its neighbours, to one, to fewer than t, and several dealers: the exact sum of all
    others, who alone are charged. (Of three dealers one deals badly to three: two of them may be
    guilty themselves, and theirs is no complaint.)

    Planted: ``judged`` that lets nobody go -> the devices complain for ever, or the round ends; no
    CHECK before MASK -> no sum.
    """
    play = BadDealers(world, bad=bad).run()
    assert play.check()
    assert guilty(play) == set(bad)
    assert set(play.uploaded) == charged(play) == set(range(12)) - set(bad)
    for number in bad:
        assert play.devices[number].state is not DeviceState.RELEASED
    assert not play.coordinator.blamed


def test_what_opens_but_is_no_share_counts_as_well() -> None:
    """Sealed under the right key: numbers above the prime. The evidence is the same."""

    class NoShares(Play):
        def shares(self, number: int, message: pairwise_pb2.Shares) -> pairwise_pb2.Shares:
            stage = self.devices[number]._known
            if number != 3 or not isinstance(stage, AfterShare):
                return message
            circle, peer = stage.circle, stage.circle.peers[0]
            key = share_key(
                pads.agree(stage.share_private, peer.share_key),
                circle.round_id,
                stage.own.share_key,
                peer.share_key,
            )
            bound = (
                circle.round_id.raw
                + pads.u32(circle.position, "position")
                + pads.u32(peer.position, "position")
            )
            none = AESGCM(key).encrypt(bytes(12), b"\xff" * 66, bound)
            return signed(self, number, message, none + message.ciphertexts[CIPHERTEXT_SIZE:])

    play = NoShares(WORLD).run()
    assert play.check()
    assert guilty(play) == {3}


def test_a_guilty_dealer_is_told_and_stays_out() -> None:
    """FORBIDDEN, not late; in the commit it never shared, and nobody gives a share of it."""
    play = BadDealers(WORLD, bad={2: 11}).run_to(Step.MASK)
    answer = play.answer(2)
    assert answer.kind == Kind.FORBIDDEN.value
    assert not answer.HasField("roster")
    play.go_on_from(Step.MASK, Step.UNMASK)
    assert play.statuses[2] is Status.NEVER_SHARED
    play.go_on_from(Step.UNMASK)
    assert play.check()


def test_more_bad_dealers_than_may_be_lost_end_the_round_and_cost_nobody_anything() -> None:
    """Nothing was masked, so nothing is written down: the others are free for another round.
    Planted: charge in ``share`` -> fails.
    """
    play = BadDealers(WORLD, bad=dict.fromkeys((0, 1, 2, 3), 11)).run()
    assert not play.check()
    assert play.coordinator.reason is Reason.TOO_FEW_SHARED
    assert guilty(play) == {0, 1, 2, 3}
    assert not charged(play)
    assert not any(device.charged for device in play.devices)
    again = Play(replace(WORLD, seed="again"))
    again.ledgers = play.ledgers
    assert again.run().check()
    assert charged(again) == set(range(12))


# --- false complaints -----------------------------------------------------------------------------


@dataclass
class Liar(Play):
    """Device ``liar`` complains about the honest device ``victim``, with the evidence that
    ``evidence`` makes of the true one.
    """

    liar: int = 1
    victim: int = 6
    evidence: Callable[[bytes, bytes], tuple[bytes, bytes]] = lambda shared, proof: (shared, proof)

    def checks(self, number: int, message: pairwise_pb2.Check) -> pairwise_pb2.Check:
        if number != self.liar or self.devices[number].session in self.coordinator.guilty:
            return message
        shared, proof = self.evidence(
            *self.dispute().prove(share_key_of(self, self.liar), SeededEntropy("liar"))
        )
        return pairwise_pb2.Check(
            complaint=pairwise_pb2.Complaint(
                position=self.position(self.victim), shared=shared, proof=proof
            )
        )

    def dispute(self) -> Dispute:
        members = self.coordinator._seating.members
        found = self.coordinator._seating.dispute(
            self.coordinator._started_id,
            members[self.devices[self.liar].session],
            self.position(self.victim),
        )
        assert found is not None
        return found


def share_key_of(play: Play, number: int) -> X25519PrivateKey:
    stage = play.devices[number]._known
    assert isinstance(stage, AfterShare)
    return stage.share_private


@for_each(
    "evidence",
    [
        lambda shared, proof: (shared, proof),
        lambda shared, proof: (flipped(shared), proof),
        lambda shared, proof: (bytes(len(shared)), proof),
        lambda shared, proof: (shared[:-1], proof),
        lambda shared, proof: (flipped(shared), proof[:0]),
        lambda shared, proof: (flipped(shared), bytes(len(proof))),
    ],
    ids=["true evidence", "another secret", "zeros", "short", "no proof", "no proof of the length"],
)
def test_a_false_complaint_costs_the_complainer_its_seat(
    evidence: Callable[[bytes, bytes], tuple[bytes, bytes]],
) -> None:
    """With the true secret the ciphertext opens; any other secret has no proof. The honest dealer
    stays, and its vector is in the sum.

    Planted: a proof that is not looked at -> the dealer loses its seat; a ciphertext that is not
    tried -> the same.
    """
    play = Liar(WORLD, evidence=evidence).run()
    assert play.check()
    assert guilty(play) == {1}
    assert set(play.uploaded) == set(range(12)) - {1}


def test_evidence_of_another_round_or_pair_is_none() -> None:
    """The proof of the right secret, made for another round, dealer or complainer, does not hold:
    what it shows is bound to one pair.
    """
    play = Liar(WORLD)
    play.run_to(Step.CHECK)
    right = play.dispute()
    right = replace(right, ciphertext=flipped(right.ciphertext))
    private = share_key_of(play, play.liar)
    shared, proof = right.prove(private, SeededEntropy("right"))
    assert right.dealer_is_guilty(shared, proof)
    for other in (
        replace(right, round_id=WORLD.terms.schedule_hash),
        replace(right, dealer=right.dealer + 1),
        replace(right, complainer=right.complainer + 1),
        replace(right, complainer_key=right.dealer_key),
    ):
        assert (
            not right.dealer_is_guilty(*other.prove(private, SeededEntropy("other")))
            or other.complainer_key == right.dealer_key
        )
        assert not other.dealer_is_guilty(shared, proof)


def test_a_device_that_only_asks_is_only_told() -> None:
    """Without evidence nothing happens to anybody; the device sees what its neighbour signed, and
    can go on.
    """
    play = Play(WORLD).run_to(Step.CHECK)
    session, position = play.devices[0].session, play.position(5)
    for wrong in (play.position(0), 12, 2**32 - 1):  # itself, and nobody
        with pytest.raises(ShoalError) as caught:
            play.coordinator.check(
                session,
                pairwise_pb2.Check(complaint=pairwise_pb2.Complaint(position=wrong)),
                play.now,
            )
        assert caught.value.kind is Kind.INVALID
    asks = pairwise_pb2.Check(complaint=pairwise_pb2.Complaint(position=position))
    assert play.coordinator.check(session, asks, play.now) is None
    answer = play.answer(0)
    assert answer.HasField("dealt")
    assert not answer.HasField("roster")
    with pytest.raises(ShoalError) as caught:  # it did not complain: an answer to nothing
        play.devices[0].complain(answer.dealt)
    assert caught.value.kind is Kind.CONFLICT
    assert play.coordinator.check(session, pairwise_pb2.Check(), play.now) is None
    assert not play.coordinator.guilty


def test_complaints_come_in_time_once_or_not_at_all() -> None:
    """Twice the same is one verdict; before and after the phase a complaint changes nothing,
    however true.

    Planted: ``judged`` that does not look at the phase -> a device whose pads are in vectors
    already is left out, and there is no sum.
    """
    play = BadDealers(WORLD, bad={2: 11}).run_to(Step.SHARE)
    session = play.devices[0].session
    early = pairwise_pb2.Check()
    with pytest.raises(ShoalError) as caught:
        play.coordinator.check(session, early, play.now)
    assert caught.value.kind is Kind.TOO_EARLY
    play.go_on_from(Step.SHARE, Step.CHECK)
    for number in (0, 1):
        play.devices[number].check(play.answer(number).roster)
    said, second = (play.devices[number].complain(dealt(play, 2)) for number in (0, 1))
    disputes = [
        play.coordinator.check(play.devices[number].session, one, play.now)
        for number, one in enumerate((said, second))
    ]
    verdicts = []
    for number, (dispute, one) in enumerate(zip(disputes, (said, second), strict=True)):
        assert dispute is not None
        verdict = dispute.dealer_is_guilty(one.complaint.shared, one.complaint.proof)
        verdicts.append(
            play.coordinator.judged(play.devices[number].session, dispute, dealer_is_guilty=verdict)
        )
    assert verdicts == [play.devices[2].session, None]
    assert play.coordinator.check(session, said, play.now) is None  # the same again
    play.go_on_from(Step.CHECK, Step.UNMASK)
    with pytest.raises(ShoalError) as caught:
        play.coordinator.check(session, said, play.now)
    assert caught.value.kind is Kind.WINDOW_CLOSED
    assert disputes[0] is not None
    assert play.coordinator.judged(session, disputes[0], dealer_is_guilty=False) is None
    play.go_on_from(Step.UNMASK)
    assert play.check()


def dealt(play: Play, number: int) -> pairwise_pb2.Shares:
    found = play.coordinator._seating.dealt_by(play.position(number))
    assert found is not None
    return found


# --- servers --------------------------------------------------------------------------------------


def test_servers_get_no_secret_by_spoiling_what_an_honest_dealer_dealt() -> None:
    """The aim: make a device give away what it shares with an honest neighbour, and with it that
    neighbour's true share.

    Whatever the servers show as signed, bytes of theirs, the true ones, another dealer's, the
    device gives up, uncharged. Planted: ``check_dealt`` without the signature, or without comparing
    the ciphertext -> the secret leaves.
    """
    for show in ("theirs", "true", "of another", "nothing"):
        play = Play(WORLD).run_to(Step.CHECK)
        device, dealer = play.devices[0], 5
        roster = play.answer(0).roster
        place = place_of(12, 11, play.position(0), play.position(dealer))
        roster.ciphertexts[place] = flipped(roster.ciphertexts[place])
        assert device.check(roster) == pairwise_pb2.Check(
            complaint=pairwise_pb2.Complaint(position=play.position(dealer))
        )
        true = dealt(play, dealer)
        own = place_of(12, 11, play.position(dealer), play.position(0)) * CIPHERTEXT_SIZE
        spoilt = pairwise_pb2.Shares()
        spoilt.CopyFrom(true)
        spoilt.ciphertexts = (
            true.ciphertexts[:own]
            + roster.ciphertexts[place]
            + true.ciphertexts[own + CIPHERTEXT_SIZE :]
        )
        shown = {
            "theirs": spoilt,
            "true": true,
            "of another": dealt(play, 6),
            "nothing": pairwise_pb2.Shares(commitment=bytes(32)),
        }
        with pytest.raises(ShoalError) as caught:
            device.complain(shown[show])
        assert caught.value.kind is (Kind.CONFLICT if show == "true" else Kind.BAD_SIGNATURE)
        assert (device.state, device.charged) == (DeviceState.ABORTED, False)


def test_a_shuffler_that_hears_no_complaint_gets_no_vector() -> None:
    """It goes on to MASK with the bad dealer in every roster: each device gives the round up before
    anything is written down.
    """

    @dataclass
    class Deaf(BadDealers):
        def check_shares(self, number: int) -> None:
            self.coordinator.check(self.devices[number].session, pairwise_pb2.Check(), self.now)

    play = Deaf(WORLD, bad={2: 11}).run()
    assert not play.check()
    assert charged(play) <= {2}  # to itself it dealt nothing
    assert {errors[0].kind for number, errors in play.errors.items() if number != 2} == {
        Kind.ABORTED
    }


def test_a_shuffler_that_judges_nothing_keeps_no_device_proving() -> None:
    """The second time that the same neighbour's bad ciphertext is shown the device gives up,
    uncharged. Planted: no ``accused`` -> it would prove for as long as the window lasts.
    """
    play = BadDealers(WORLD, bad={2: 11}).run_to(Step.CHECK)
    device, roster = play.devices[0], play.answer(0).roster
    assert device.check(roster).HasField("complaint")
    assert device.check(roster).HasField("complaint")  # asked twice, nothing given yet
    assert device.complain(dealt(play, 2)).complaint.proof
    with pytest.raises(ShoalError) as caught:
        device.check(roster)
    assert (caught.value.kind, device.state, device.charged) == (
        Kind.ABORTED,
        DeviceState.ABORTED,
        False,
    )


def test_neighbourhoods_shrink_to_the_threshold_and_not_below() -> None:
    """Whoever is left with fewer than t neighbours that shared gives up, in the check as in
    masking, uncharged.
    """
    play = Play(WORLD).run_to(Step.CHECK)
    roster = play.answer(0).roster
    for place in range(11 - THRESHOLD):
        roster.ciphertexts[place] = b""
    assert play.devices[0].check(roster) == pairwise_pb2.Check()
    roster.ciphertexts[-1] = b""
    with pytest.raises(ShoalError) as caught:
        play.devices[0].check(roster)
    assert (caught.value.kind, play.devices[0].charged) == (Kind.ABORTED, False)


def test_who_does_not_check_is_left_out_before_masking() -> None:
    """So everybody who is in the sum holds a share of everybody in it, and the rest costs no share
    at all. Planted: who is silent in CHECK stays in the roster -> counted as dropped.
    """
    play = Play(WORLD, [Step.CHECK, *[Step.NONE] * 11]).run_to(Step.UNMASK)
    assert play.statuses[0] is Status.NEVER_SHARED
    play.go_on_from(Step.UNMASK)
    assert play.check()
    assert play.coordinator.left == {play.devices[0].session}


def test_a_share_key_of_the_twist_gets_no_seat() -> None:
    """Nobody could prove anything against its owner. Planted: ``on_curve`` not asked in
    ``Seating.take`` -> it has a seat.
    """
    play = Play(WORLD)
    join = play.devices[0].join(play.coordinator.invite(play.now).offer, play.now)
    join.share_key = (2).to_bytes(32, "little")
    join.signature = identity(0).key.sign(
        SigningContext.ROUND_KEYS, join.offer_id + join.pad_key + join.share_key
    )
    with pytest.raises(ShoalError) as caught:
        play.coordinator.join(play.devices[0].session, join, play.now)
    assert caught.value.kind is Kind.INVALID
