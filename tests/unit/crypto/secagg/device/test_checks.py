"""What a device checks in every step, each check by itself.

Each forged record below is signed by both servers and wrong in one thing alone, so that one check
stands between it and the device. Planted: each check of ``checks`` was taken out by itself
-> the case named after it fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from shoal.crypto.admission.enrolment import DeviceIdentity
from shoal.crypto.secagg.device.machine import DeviceRound, DeviceState
from shoal.crypto.secagg.parameters import GraphParameters
from shoal.crypto.secagg.records import Commit, Offer, Start, Status
from shoal.crypto.secagg.shares import CIPHERTEXT_SIZE
from shoal.crypto.signing import SigningContext
from shoal.entropy import SeededEntropy
from shoal.errors import Kind
from shoal.ids import Digest, KeyId, TaskId
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode
from tests.cases import for_each
from tests.worlds.rounds.secagg_relay import (
    NOW,
    SPARSE,
    Relay,
    device_key,
    identity,
    make_join,
    make_terms,
    refused,
    sign,
    signing_key,
    vector_of,
)

N = 9
LOST = 3
OTHER = Digest(bytes([1]) * 32)


def make(
    mode: Mode = Mode.DEFAULT,
    n: int = N,
    graph: GraphParameters | None = SPARSE,
    lost: int = LOST,
    bits: int = 32,
) -> Relay:
    return Relay(make_terms(n, graph=graph, mode=mode, lost=lost, bits=bits), n)


# --- join -----------------------------------------------------------------------------------------


def as_offer(record: pairwise_pb2.SignedRecord) -> pairwise_pb2.SignedOffer:
    return pairwise_pb2.SignedOffer(
        offer=record.record,
        shuffler_signature=record.shuffler_signature,
        analyzer_signature=record.analyzer_signature,
    )


OFFERS: dict[str, tuple[Kind, Callable[[Offer], Offer]]] = {
    "another task": (Kind.MISMATCH, lambda offer: replace(offer, task_id=TaskId(bytes(32)))),
    "another window": (Kind.MISMATCH, lambda offer: replace(offer, window=4)),
    "another analyzer key": (
        Kind.MISMATCH,
        lambda offer: replace(offer, analyzer_key_id=KeyId(bytes(8))),
    ),
    "another key schedule": (Kind.MISMATCH, lambda offer: replace(offer, schedule_hash=OTHER)),
}


@for_each("name", OFFERS)
def test_an_offer_for_something_else_is_refused(name: str) -> None:
    kind, forge = OFFERS[name]
    relay = make()
    offer = relay.offer(forge(relay.offer_record()))
    refused(kind, relay.devices[0].join, offer, NOW, text=name)


@pytest.mark.parametrize("whose", ["shuffler_signature", "analyzer_signature"])
def test_an_offer_wants_both_signatures(whose: str) -> None:
    relay = make()
    offer = relay.offer()
    setattr(offer, whose, signing_key("somebody").sign(SigningContext.ROUND_OFFER, offer.offer))
    refused(Kind.BAD_SIGNATURE, relay.devices[0].join, offer, NOW)


def test_an_offer_is_signed_as_an_offer_and_well_formed() -> None:
    relay = make()
    data = relay.offer_record().encode()
    wrong = as_offer(sign(SigningContext.ROUND_START, data))
    refused(Kind.BAD_SIGNATURE, relay.devices[0].join, wrong, NOW)
    longer = as_offer(sign(SigningContext.ROUND_OFFER, data + b"\xf8\x07\x01"))  # field 127
    refused(Kind.INVALID, relay.devices[1].join, longer, NOW)
    torn = as_offer(sign(SigningContext.ROUND_OFFER, data[:-1]))
    refused(Kind.INVALID, relay.devices[2].join, torn, NOW)


@pytest.mark.parametrize(
    ("root", "now"), [("root", NOW + 1001), ("root", NOW - 1001), ("another root", NOW)]
)
def test_a_device_knows_whether_its_own_certificate_holds(root: str, now: float) -> None:
    relay = make()
    device = DeviceRound(relay.terms, identity(0, signing_key(root)), SeededEntropy(0))
    refused(Kind.UNAUTHENTICATED, device.join, relay.offer(), now)


# --- share ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["shuffler_signature", "analyzer_signature"])
def test_a_start_wants_both_signatures(whose: str) -> None:
    relay = make()
    relay.join()
    started = relay.started(0)
    setattr(
        started.start,
        whose,
        signing_key("somebody").sign(SigningContext.ROUND_START, started.start.record),
    )
    refused(Kind.BAD_SIGNATURE, relay.devices[0].share, started, NOW)


def test_a_start_is_signed_as_a_start_and_well_formed() -> None:
    relay = make()
    relay.join()
    for device, context, data, kind in (
        (0, SigningContext.ROUND_COMMIT, relay.start_record.encode(), Kind.BAD_SIGNATURE),
        (
            1,
            SigningContext.ROUND_START,
            relay.start_record.encode() + b"\xf8\x07\x01",
            Kind.INVALID,
        ),
        (2, SigningContext.ROUND_START, relay.start_record.encode()[:-1], Kind.INVALID),
    ):
        started = relay.started(device)
        started.start.CopyFrom(sign(context, data))
        refused(kind, relay.devices[device].share, started, NOW)


def test_the_round_that_starts_is_the_one_that_was_joined() -> None:
    relay = make()
    relay.join()
    started = relay.started(0, replace(relay.start_record, offer_id=OTHER))
    refused(
        Kind.MISMATCH, relay.devices[0].share, started, NOW, text="not the one that was offered"
    )


@pytest.mark.parametrize("whose", [0, 1])
def test_a_nonce_chosen_after_the_seats_is_refused(whose: int) -> None:
    """The ring is laid rightly from the new nonce: whoever may choose it late may choose who sits
    beside whom.
    """
    relay = make()
    joins = [device.join(relay.offer(), NOW) for device in relay.devices]
    late = [*relay.nonces]
    late[whose] = bytes([5]) * 32
    relay.nonces = (late[0], late[1])
    relay.lay(joins)
    refused(Kind.MISMATCH, relay.devices[0].share, relay.started(0), NOW, text="committed to")


@pytest.mark.parametrize(("least", "most"), [(N + 1, N + 5), (N - 3, N - 1)])
def test_a_round_has_as_many_devices_as_the_plan_allows(least: int, most: int) -> None:
    relay = make()
    plan = replace(relay.terms.plan, cohort_min=least, cohort_max=most)
    relay.terms = replace(relay.terms, plan=plan)
    relay.devices = [DeviceRound(relay.terms, identity(i), SeededEntropy(i)) for i in range(N)]
    relay.join()
    refused(
        Kind.MISMATCH,
        relay.devices[0].share,
        relay.started(0),
        NOW,
        text=f"{least} to {most} devices",
    )


def test_the_device_computes_how_many_neighbours_it_has() -> None:
    """A smaller graph than the plan gives, laid rightly and signed by both."""
    relay = make()
    relay.join()
    honest, relay.terms = relay.terms, make_terms(N, graph=GraphParameters(2, 2, False), lost=LOST)
    started = relay.started(0)
    refused(Kind.MISMATCH, relay.devices[0].share, started, NOW, text="4 neighbours")
    relay.terms = honest
    started = relay.started(1)
    started.neighbours.append(started.neighbours[0])
    refused(Kind.MISMATCH, relay.devices[1].share, started, NOW, text="4 neighbours")


def test_a_position_outside_the_ring_is_refused() -> None:
    relay = make()
    relay.join()
    started = relay.started(0)
    started.position = N
    refused(Kind.INVALID, relay.devices[0].share, started, NOW)


def forged_neighbour(forge: Callable[[Relay, str], pairwise_pb2.Join]) -> tuple[Relay, int]:
    """A round in which the last to join is forged, rightly laid and signed; and a position beside
    it.
    """
    relay = make()
    joins = [device.join(relay.offer(), NOW) for device in relay.devices[:-1]]
    joins.append(forge(relay, "forged"))
    relay.lay(joins)
    place = next(p for p, join in enumerate(relay.joins) if join is joins[-1])
    return relay, (place + 1) % N


def by(who: DeviceIdentity) -> Callable[[Relay, str], pairwise_pb2.Join]:
    return lambda relay, name: make_join(relay.offer_id, name, who=who)


NEIGHBOURS: dict[str, tuple[Kind, Callable[[Relay, str], pairwise_pb2.Join]]] = {
    "enrolled elsewhere": (
        Kind.UNAUTHENTICATED,
        by(identity("sybil", signing_key("another root"))),
    ),
    "expired": (Kind.UNAUTHENTICATED, by(identity("old", until=NOW - 1))),
    "signed for another offer": (
        Kind.BAD_SIGNATURE,
        lambda relay, name: make_join(
            relay.offer_id, name, signature=make_join(OTHER, name).signature
        ),
    ),
    "signed by another device": (
        Kind.BAD_SIGNATURE,
        lambda relay, name: make_join(
            relay.offer_id,
            name,
            signature=make_join(relay.offer_id, name, who=identity("thief")).signature,
        ),
    ),
}


@for_each("name", NEIGHBOURS)
def test_a_neighbour_without_a_certificate_or_signature_is_refused(name: str) -> None:
    kind, forge = NEIGHBOURS[name]
    relay, beside = forged_neighbour(forge)
    refused(kind, relay.devices[beside].share, relay.started(beside), NOW)


def test_that_forged_neighbours_are_refused_for_what_was_forged() -> None:
    """The same round with an honest last device goes through."""
    relay, beside = forged_neighbour(lambda relay, name: make_join(relay.offer_id, name))
    relay.devices[beside].share(relay.started(beside), NOW)
    assert relay.devices[beside].state is DeviceState.SHARED


# --- mask -----------------------------------------------------------------------------------------


def test_a_roster_of_another_size_is_refused() -> None:
    relay = make()
    relay.share()
    honest = list(relay.roster(0).ciphertexts)
    for device, wrong in enumerate(
        ([*honest, b""], honest[1:], [bytes(CIPHERTEXT_SIZE + 1), *honest[1:]])
    ):
        roster = pairwise_pb2.Roster(ciphertexts=wrong)
        ledger = relay.ledgers[device]
        refused(Kind.MISMATCH, relay.devices[device].mask, roster, vector_of(device, 5), ledger)
        assert ledger.entries == []


# --- unmask ---------------------------------------------------------------------------------------


def statuses(relay: Relay, changes: dict[int, Status]) -> bytes:
    changed = bytearray(relay.statuses())
    for position, status in changes.items():
        changed[position] = status
    return bytes(changed)


def masked(
    mode: Mode = Mode.DEFAULT,
    without: frozenset[int] = frozenset(),
    never: frozenset[int] = frozenset(),
) -> Relay:
    relay = make(mode)
    relay.mask(without=without, never=never)
    return relay


COMMITS: dict[str, tuple[Kind, Callable[[Relay], pairwise_pb2.SignedRecord]]] = {
    "another round": (
        Kind.MISMATCH,
        lambda r: sign(SigningContext.ROUND_COMMIT, Commit(OTHER, r.statuses()).encode()),
    ),
    "not of 9": (Kind.MISMATCH, lambda r: r.commit(r.statuses() + b"\x02")),
    "this device's vector is not in the sum": (
        Kind.ABORTED,
        lambda r: r.commit(statuses(r, {0: Status.DROPPED})),
    ),
    "vectors are in the sum": (
        Kind.ABORTED,
        lambda r: r.commit(statuses(r, dict.fromkeys((1, 3, 5, 6), Status.DROPPED))),
    ),
    "neighbours are in the sum": (
        Kind.ABORTED,
        lambda r: r.commit(statuses(r, dict.fromkeys(r.peers(0)[:3], Status.DROPPED))),
    ),
    "contradicts the roster": (
        Kind.CONFLICT,
        lambda r: r.commit(statuses(r, {r.peers(0)[0]: Status.NEVER_SHARED})),
    ),
    "signature": (
        Kind.BAD_SIGNATURE,
        lambda r: sign(SigningContext.ROUND_START, r.commit().record),
    ),
    "a status is 0, 1 or 2": (
        Kind.INVALID,
        lambda r: sign(
            SigningContext.ROUND_COMMIT,
            pairwise_pb2.Commit(
                version=1, round_id=r.round_id.raw, statuses=b"\x02" * 8 + b"\x03"
            ).SerializeToString(),
        ),
    ),
}


@for_each("mode", [Mode.DEFAULT, Mode.STRICT])
@for_each("name", COMMITS)
def test_a_commit_that_must_not_be_answered(name: str, mode: Mode) -> None:
    kind, forge = COMMITS[name]
    relay = masked(mode)
    device, ledger, commit = relay.devices[0], relay.ledgers[0], forge(relay)
    if mode is Mode.STRICT:
        refused(kind, device.endorse, commit, text=name)
    else:
        refused(kind, device.unmask, commit, [], ledger, text=name)
    assert [entry[0] for entry in ledger.entries] == ["masked"]


def test_a_neighbour_that_never_shared_is_not_called_dropped_or_alive() -> None:
    """The other direction of "contradicts the roster": no share of it is held, and its pads were
    not added.
    """
    for status in (Status.DROPPED, Status.ALIVE):
        relay = make()
        relay.join()
        never = relay.peers(0)[0]
        relay = masked(never=frozenset({never}))
        commit = relay.commit(statuses(relay, {never: status}))
        device, ledger = relay.devices[0], relay.ledgers[0]
        refused(Kind.CONFLICT, device.unmask, commit, [], ledger, text="roster")


@pytest.mark.parametrize("whose", ["shuffler_signature", "analyzer_signature"])
def test_a_commit_wants_both_signatures(whose: str) -> None:
    relay = masked()
    commit = relay.commit()
    setattr(commit, whose, signing_key("somebody").sign(SigningContext.ROUND_COMMIT, commit.record))
    refused(Kind.BAD_SIGNATURE, relay.devices[0].unmask, commit, [], relay.ledgers[0])


def test_exactly_the_allowed_number_may_be_lost() -> None:
    """The counterpart of "vectors are in the sum": with LOST lost, not one more, the device
    answers.
    """
    relay = masked()
    lost = [p for p in range(1, N) if p not in relay.peers(0)[:2]][:LOST]
    relay.devices[0].unmask(
        relay.commit(statuses(relay, dict.fromkeys(lost, Status.DROPPED))), [], relay.ledgers[0]
    )
    assert relay.devices[0].state is DeviceState.RELEASED


# --- endorsements ---------------------------------------------------------------------------------


ENDORSEMENTS: dict[
    str, Callable[[list[pairwise_pb2.Endorsement]], list[pairwise_pb2.Endorsement]]
] = {
    "none": lambda _: [],
    "one too few": lambda good: good[:1],
    "one twice": lambda good: [good[0], good[0]],
    "a wrong signature": lambda good: [
        good[0],
        pairwise_pb2.Endorsement(position=good[1].position, signature=good[0].signature),
    ],
    "by no neighbour": lambda good: [
        good[0],
        pairwise_pb2.Endorsement(position=4, signature=good[1].signature),
    ],
}


@for_each("name", ENDORSEMENTS)
def test_strict_mode_wants_endorsements_of_threshold_neighbours(name: str) -> None:
    relay = masked(Mode.STRICT)
    commit = relay.commit()
    device = relay.devices[0]
    good = relay.endorsements(0, commit)
    device.endorse(commit)
    wrong = ENDORSEMENTS[name](good)
    refused(
        Kind.ABORTED, device.unmask, commit, wrong, relay.ledgers[0], text="endorsed the commit"
    )
    assert [entry[0] for entry in relay.ledgers[0].entries] == ["masked"]


def test_an_endorsement_is_over_this_commit_in_its_own_context_and_by_somebody_in_the_sum() -> None:
    """Planted: any neighbour counts, in the sum or not; the signature over any record of the round
    -> this fails.
    """
    for name in ("commit", "context", "dropped"):
        relay = masked(Mode.STRICT)
        peers = relay.peers(0)
        keys = {
            p: next(
                k
                for k in (signing_key(f"device {i}") for i in range(N))
                if k.public == device_key(relay.joins[p])
            )
            for p in peers
        }
        commit = relay.commit(statuses(relay, {peers[0]: Status.DROPPED}))
        context = SigningContext.ROUND_COMMIT if name == "context" else SigningContext.ROUND_ENDORSE
        record = relay.commit().record if name == "commit" else commit.record
        signers = peers[:1] if name == "dropped" else peers[2:3]
        good = keys[peers[1]].sign(SigningContext.ROUND_ENDORSE, commit.record)
        one = pairwise_pb2.Endorsement(position=peers[1], signature=good)
        wrong = [
            pairwise_pb2.Endorsement(position=p, signature=keys[p].sign(context, record))
            for p in signers
        ]
        device, ledger = relay.devices[0], relay.ledgers[0]
        refused(
            Kind.ABORTED, device.unmask, commit, [one, *wrong], ledger, text="1 neighbours endorsed"
        )


def test_one_corrupt_endorsement_among_enough_good_ones_harms_nobody() -> None:
    relay = masked(Mode.STRICT)
    commit = relay.commit()
    good = relay.endorsements(0, commit)
    wrong = pairwise_pb2.Endorsement(position=good[3].position, signature=bytes(64))
    relay.devices[0].unmask(commit, [wrong, *good[:2]], relay.ledgers[0])
    assert relay.devices[0].state is DeviceState.RELEASED


def test_more_endorsements_than_neighbours_are_refused_unread() -> None:
    relay = masked(Mode.STRICT)
    commit = relay.commit()
    many = relay.endorsements(0, commit)
    many.append(many[0])
    refused(
        Kind.INVALID,
        relay.devices[0].unmask,
        commit,
        many,
        relay.ledgers[0],
        text="more endorsements",
    )


def test_default_mode_ignores_endorsements() -> None:
    relay = masked()
    rubbish = [pairwise_pb2.Endorsement(position=1, signature=b"")] * 100
    relay.devices[0].unmask(relay.commit(), rubbish, relay.ledgers[0])
    assert relay.devices[0].state is DeviceState.RELEASED


def test_start_records_fit_the_protocol() -> None:
    """What the relay lays is what the records say, so that no case above fails for another
    reason.
    """
    relay = make()
    relay.share()
    assert Start.decode(relay.started(0).start.record) == relay.start_record
