"""The known ways in which secure aggregation went wrong elsewhere, tried on a device: by servers
that sign anything, by other devices that are certified and corrupt, and by failures at the worst
moment. What each planted defect makes fail is said in the docstrings.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import partial

import pytest

from shoal.crypto.secagg.device.machine import DeviceRound, DeviceState
from shoal.crypto.secagg.device.masking import share_to_release
from shoal.crypto.secagg.parameters import GraphParameters
from shoal.crypto.secagg.records import Status
from shoal.crypto.secagg.shares import CIPHERTEXT_SIZE, ShareKind, SharePair, bundle_size
from shoal.entropy import SeededEntropy, uniform_below
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.rounds.secagg_relay import (
    NOW,
    SPARSE,
    MemoryLedger,
    Relay,
    identity,
    make_terms,
    refused,
    vector_of,
)

N, LOST = 9, 3


def make(
    mode: Mode = Mode.DEFAULT,
    graph: GraphParameters | None = SPARSE,
    n: int = N,
    lost: int = LOST,
    seed: object = 0,
) -> Relay:
    return Relay(make_terms(n, graph=graph, mode=mode, lost=lost), n, seed)


# --- 1: both kinds of shares of one neighbour -----------------------------------------------------


ALLOWED = {
    Status.ALIVE: ShareKind.SELF_SEED,
    Status.DROPPED: ShareKind.PAD_KEY,
    Status.NEVER_SHARED: ShareKind.NONE,
}


def test_whatever_is_committed_no_neighbour_gives_both_shares_away() -> None:
    """1. Each device is shown commits with any statuses, signed by both servers, one after the
    other, and asked for shares every time; ledgers forget, so that nothing but the device's own
    memory stands in the way.

    Over all that it ever gives: one item per neighbour, of the kind that the one commit allows.
    Planted: ``share_to_release`` gives the pad key's share of those alive; a second commit is
    answered too -> this fails.
    """
    entropy = SeededEntropy("forged commits")
    answered = refusals = 0
    for trial in range(size(12, 200)):
        relay = make(seed=trial)
        relay.mask(never=[uniform_below(N, entropy) for _ in range(uniform_below(3, entropy))])
        for position, peers in ((p, relay.peers(p)) for p in relay.sealed):
            given_away: dict[int, set[ShareKind]] = {peer: set() for peer in peers}
            for _ in range(3):
                record = bytearray(relay.statuses())
                for _ in range(uniform_below(4, entropy)):
                    record[uniform_below(N, entropy)] = uniform_below(3, entropy)
                # without what it gave for the commits before
                before = deepcopy(relay.ledgers[position])
                try:
                    answer = relay.devices[position].unmask(relay.commit(bytes(record)), [], before)
                except ShoalError:
                    refusals += 1
                    continue
                answered += 1
                for peer, (kind, _share) in zip(
                    peers, relay.open_bundle(position, answer.sealed).items, strict=True
                ):
                    assert kind is ALLOWED[Status(record[peer])]
                    given_away[peer].add(kind)
            assert all(len(kinds) <= 1 for kinds in given_away.values())
    assert min(answered, refusals) > size(12, 200)  # both happen, often


def test_a_status_opens_one_share_or_none() -> None:
    """1. Also where the checks before it would have failed already. Planted: NEVER_SHARED gives the
    pad key's share -> this fails.
    """
    pair = SharePair(bytes(33), bytes(32) + b"\x01")
    assert [share_to_release(status, pair) for status in Status] == [
        (ShareKind.NONE, b""),
        (ShareKind.PAD_KEY, pair.s),
        (ShareKind.SELF_SEED, pair.b),
    ]
    assert {share_to_release(status, None) for status in Status} == {(ShareKind.NONE, b"")}


@for_each("mode", [Mode.DEFAULT, Mode.STRICT])
@for_each("first", [Status.ALIVE, Status.DROPPED])
def test_a_neighbour_named_alive_to_some_and_dropped_later_is_not_opened(
    mode: Mode, first: Status
) -> None:
    """1, the attack that works elsewhere: one survivor in both lists gives up seed and pad key, and
    with them its vector.

    Planted: ``_said`` lets another commit pass, and RELEASED unmask -> this fails.
    """
    relay = make(mode)
    relay.mask()
    victim = relay.peers(0)[0]
    lists = []
    for status in (first, Status.DROPPED if first is Status.ALIVE else Status.ALIVE):
        statuses = bytearray(relay.statuses())
        statuses[victim] = status
        lists.append(relay.commit(bytes(statuses)))
    device, ledger = relay.devices[0], relay.ledgers[0]
    endorsements: list[pairwise_pb2.Endorsement] = []
    if mode is Mode.STRICT:
        device.endorse(lists[0])
        endorsements = [
            pairwise_pb2.Endorsement(
                position=p, signature=relay.devices[p].endorse(lists[0]).signature
            )
            for p in relay.peers(0)
            if p != victim
        ]
    items = relay.open_bundle(0, device.unmask(lists[0], endorsements, ledger).sealed).items
    assert items[0][0] is (ShareKind.SELF_SEED if first is Status.ALIVE else ShareKind.PAD_KEY)
    refused(Kind.CONFLICT, device.unmask, lists[1], endorsements, ledger, text="two survivor sets")
    assert [entry[0] for entry in ledger.entries] == ["masked", "released"]


# --- 2: two survivor sets -------------------------------------------------------------------------


def test_whoever_endorsed_one_survivor_set_neither_endorses_nor_answers_another() -> None:
    """2. Planted: endorse looks at no earlier answer; unmask does not look at what was endorsed ->
    this fails.
    """
    for step in ("endorse", "unmask"):
        relay = make(Mode.STRICT)
        relay.mask()
        device, ledger = relay.devices[0], relay.ledgers[0]
        first, second = (
            relay.commit(),
            relay.commit(bytes(relay.statuses()[:-1]) + bytes([Status.DROPPED])),
        )
        device.endorse(first)
        if step == "endorse":
            refused(Kind.CONFLICT, device.endorse, second, text="two survivor sets")
            continue
        others = [
            pairwise_pb2.Endorsement(
                position=p, signature=relay.devices[p].endorse(second).signature
            )
            for p in relay.peers(0)
            if p != N - 1
        ]
        refused(Kind.CONFLICT, device.unmask, second, others, ledger, text="two survivor sets")


def test_servers_that_show_each_half_another_survivor_set_open_nothing_in_strict_mode() -> None:
    """2. Even if both servers sign both sets: endorsements of one set say nothing about the other,
    so too few count.

    Planted: endorsements are counted, not verified -> this fails.
    """
    graph = GraphParameters(4, 3, False)
    relay = make(Mode.STRICT, graph)
    relay.mask()
    sets = [relay.commit(), relay.commit(bytes(relay.statuses()[:-1]) + bytes([Status.DROPPED]))]
    shown = {p: sets[p % 2] for p in range(N - 1)}
    signed = {p: relay.devices[p].endorse(commit).signature for p, commit in shown.items()}
    for p, commit in shown.items():
        endorsements = [
            pairwise_pb2.Endorsement(position=q, signature=signed[q])
            for q in relay.peers(p)
            if q in signed
        ]
        refused(
            Kind.ABORTED,
            relay.devices[p].unmask,
            commit,
            endorsements,
            relay.ledgers[p],
            text="endorsed the commit",
        )


# --- 3: lost at every stage -----------------------------------------------------------------------


@pytest.mark.parametrize(("n", "graph"), [(N, SPARSE), (7, None)])
def test_lost_before_sharing_and_lost_after_it_give_an_exact_sum(
    n: int, graph: GraphParameters | None
) -> None:
    """3. All pairs of (never shared, dropped) at every distance on the ring: neighbours of each
    other, of one survivor, of none.

    Planted: ``mask`` adds the pads of those who never shared -> this fails; a share is asked for
    them -> CONFLICT or a wrong kind.
    """
    for distance in range(1, n):
        relay = make(graph=graph, n=n, lost=2)
        relay.mask(never={0}, without={distance})
        bundles = relay.unmask()
        assert relay.sum(bundles).tolist() == relay.expected().tolist()
        for position, sealed in bundles.items():
            kinds = {
                peer: kind
                for peer, (kind, _) in zip(
                    relay.peers(position), relay.open_bundle(position, sealed).items, strict=True
                )
            }
            assert kinds.get(0, ShareKind.NONE) is ShareKind.NONE
            assert kinds.get(distance, ShareKind.PAD_KEY) is ShareKind.PAD_KEY


def test_two_dropped_neighbours_leave_no_pad_between_them() -> None:
    """3. Both pad keys come back; their common pad is in no vector, and nobody is asked for it."""
    relay = make()
    relay.mask(without={3, 4})
    assert relay.sum(relay.unmask()).tolist() == relay.expected().tolist()


def test_devices_lost_in_the_last_step_are_not_missed() -> None:
    """3. Threshold shares of every secret are enough."""
    relay = make(n=7, graph=None, lost=2)
    relay.mask(without={2}, never={5})
    threshold = relay.terms.parameters(7).threshold
    answered = list(relay.sealed)[: threshold + 1]
    bundles = relay.unmask(without=set(relay.sealed) - set(answered))
    assert relay.sum(bundles).tolist() == relay.expected().tolist()


# --- 5: retries, and the same pads for two vectors ------------------------------------------------


def test_a_retry_is_the_same_bytes_and_new_noise_under_the_same_pads_is_refused() -> None:
    """5. The difference of two vectors under one set of pads shows both. Planted: ``mask``
    remembers the roster alone -> this fails.
    """
    relay = make()
    relay.share()
    device, ledger, vector = relay.devices[0], relay.ledgers[0], vector_of(0, 5)
    first = device.mask(relay.roster(0), vector, ledger)
    assert device.mask(relay.roster(0), vector, ledger) == first
    refused(
        Kind.CONFLICT,
        device.mask,
        relay.roster(0),
        vector + 1,
        ledger,
        text="their difference would show",
    )
    assert len(ledger.entries) == 1


def test_a_second_roster_for_the_same_vector_is_refused() -> None:
    """5. With one neighbour more or less the difference of two masked vectors is that neighbour's
    pad.
    """
    relay = make()
    relay.share()
    device, ledger, vector = relay.devices[0], relay.ledgers[0], vector_of(0, 5)
    device.mask(relay.roster(0), vector, ledger)
    fewer = relay.roster(0)
    fewer.ciphertexts[0] = b""
    refused(Kind.CONFLICT, device.mask, fewer, vector, ledger)


class Broken(MemoryLedger):
    """Fails where it is told to, before or after its entry is on the disk."""

    def __init__(self, step: str, error: Exception, written: bool) -> None:
        super().__init__()
        self._step, self._error, self._written = step, error, written

    def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None:
        if self._step == "released" or self._written:
            super().masked(task_id, window, round_id, sealed)
        if self._step == "masked":
            raise self._error

    def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None:
        if self._written:
            super().released(task_id, window, round_id, commit)
        raise self._error


@for_each("written", [False, True])
@for_each(
    "error",
    [
        ShoalError(Kind.UNAVAILABLE, "the disk is full"),
        OSError("the disk is full"),
        KeyboardInterrupt(),
    ],
)
def test_a_ledger_that_fails_lets_nothing_out(error: Exception, written: bool) -> None:
    """5. Nobody knows whether the entry is on the disk, so nothing is sent and nothing of the round
    is kept.

    Planted: the guard is put around the checks alone; the ledger is asked after the answer is
    remembered -> this fails.
    """
    for step in ("masked", "released"):
        relay = make()
        relay.ledgers[0] = ledger = Broken(step, error, written)
        relay.share()
        device = relay.devices[0]
        for p in range(1, N):
            relay.sealed[p] = relay.mask_one(p)
        if step == "released":
            relay.sealed[0] = relay.mask_one(0)
        commit = relay.commit()
        fails = (
            partial(relay.mask_one, 0)
            if step == "masked"
            else partial(device.unmask, commit, [], ledger)
        )
        with pytest.raises(type(error)):
            fails()
        assert device.state is DeviceState.ABORTED
        assert device.charged
        with pytest.raises(ShoalError) as again:
            device.mask(relay.roster(0), vector_of(0, 5), MemoryLedger())
        assert again.value.kind is Kind.ABORTED


def test_a_window_that_was_answered_is_not_answered_again() -> None:
    """5. A device that came back (a restart, a restored copy of its state) finds its ledger's
    entry, in whatever round.
    """
    first, second = make(seed=1), make(seed=2)
    first.share()
    second.share()
    ledger = first.ledgers[0]
    first.mask_one(0)
    refused(
        Kind.CONFLICT,
        second.devices[0].mask,
        second.roster(0),
        vector_of(0, 5),
        ledger,
        text="answered once",
    )
    assert len(ledger.entries) == 1


def test_two_rounds_of_one_device_share_no_key_and_no_pad() -> None:
    """5, 6. Planted: keys drawn once per device -> this fails."""
    entropy = SeededEntropy("one device")
    terms = make_terms(N, graph=SPARSE, lost=LOST)
    relay = make()
    joins = [DeviceRound(terms, identity(0), entropy).join(relay.offer(), NOW) for _ in range(2)]
    assert len({key for join in joins for key in (join.pad_key, join.share_key)}) == 4


# --- 12: sums of too few --------------------------------------------------------------------------


def test_a_sum_of_fewer_than_the_minimum_is_not_answered() -> None:
    """12. The noise is made for survivors_min devices. Planted: the count is not looked at -> this
    fails.
    """
    for alive in range(1, N + 1):
        relay = make(lost=LOST)
        relay.mask()
        least = relay.terms.plan.survivors_min
        kept = list(dict.fromkeys([0, *relay.peers(0), *range(N)]))[:alive]
        statuses = bytes(Status.ALIVE if p in kept else Status.DROPPED for p in range(N))
        device, ledger = relay.devices[0], relay.ledgers[0]
        if alive < least:
            refused(
                Kind.ABORTED,
                device.unmask,
                relay.commit(statuses),
                [],
                ledger,
                text=f"{alive} vectors are in the sum, {least} are",
            )
        else:
            device.unmask(relay.commit(statuses), [], ledger)


def test_more_lost_than_the_plan_foresees_is_not_answered_either() -> None:
    """12. A server that calls vectors unusable until survivors_min are left could tear the ring:
    the graph is made for ``dropout``.

    Planted: survivors_min alone is looked at -> this fails.
    """
    relay = make()
    relay.terms = replace(relay.terms, plan=replace(relay.terms.plan, survivors_min=2))
    relay.devices = [DeviceRound(relay.terms, identity(i), SeededEntropy(i)) for i in range(N)]
    relay.mask()
    kept = (0, *relay.peers(0))
    statuses = bytes(Status.ALIVE if p in kept else Status.DROPPED for p in range(N))
    refused(
        Kind.ABORTED,
        relay.devices[0].unmask,
        relay.commit(statuses),
        [],
        relay.ledgers[0],
        text="5 vectors are in the sum, 6 are",
    )


@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.STRICT])
def test_fewer_than_threshold_neighbours_end_the_round_before_the_vector_leaves(mode: Mode) -> None:
    """12. A device whose neighbours are gone stands alone. Planted: the roster is not counted ->
    this fails.
    """
    relay = make(mode)
    relay.join()
    relay.shared = {p: relay.devices[p].share(relay.started(p), NOW) for p in range(N)}
    device, ledger = relay.devices[0], relay.ledgers[0]
    roster = relay.roster(0)
    for slot in range(SPARSE.neighbours - SPARSE.threshold + 1):
        roster.ciphertexts[slot] = b""
    refused(
        Kind.ABORTED,
        device.mask,
        roster,
        vector_of(0, 5),
        ledger,
        text="1 neighbours shared, 2 are needed",
    )
    assert ledger.entries == []
    assert not device.charged
    other = relay.roster(1)
    for slot in range(SPARSE.neighbours - SPARSE.threshold):
        other.ciphertexts[slot] = b""
    relay.devices[1].mask(other, vector_of(1, 5), relay.ledgers[1])


# --- 13: lengths that say nothing -----------------------------------------------------------------


def test_lengths_of_messages_depend_on_the_number_of_neighbours_alone() -> None:
    """13. Whoever dropped, whatever opened, whatever the vector. Planted: items without a share are
    left out -> this fails.
    """
    lengths: dict[str, set[int]] = {"share": set(), "mask": set(), "unmask": set()}
    for never, without, n in ((set(), set(), N), ({1}, {2}, N), ({1, 5}, {6}, N), (set(), {3}, 12)):
        relay = make(n=n)
        relay.mask(never=never, without=without)
        lengths["share"] |= {len(one.SerializeToString()) for one in relay.shared.values()}
        lengths["mask"] |= {len(sealed) for sealed in relay.sealed.values()}
        lengths["unmask"] |= {len(sealed) for sealed in relay.unmask().values()}
    overhead = relay.terms.analyzer_config.suite.overhead
    share = pairwise_pb2.Shares(
        ciphertexts=bytes(SPARSE.neighbours * CIPHERTEXT_SIZE),
        commitment=bytes(32),
        signature=bytes(64),
    )
    assert lengths == {
        "share": {share.ByteSize()},
        "mask": {relay.terms.sealed_vector_bytes},
        "unmask": {bundle_size(SPARSE.neighbours) + overhead},
    }


# --- 15: what has been spent ----------------------------------------------------------------------


def test_the_window_is_charged_from_the_ledger_entry_on_whatever_comes_after() -> None:
    """15. Servers that abort after they saw who dropped out must not get a second answer for free.
    Planted: ``abort`` resets ``charged`` -> this fails.
    """
    relay = make()
    relay.share()
    early, late = relay.devices[:2]
    early.abort("the deadline has passed")
    assert not early.charged
    for p in range(1, N):
        relay.sealed[p] = relay.mask_one(p)
    assert late.charged
    late.abort("the round was given up")
    assert late.charged
    assert relay.ledgers[1].entries[0][0] == "masked"
    again = make(seed="the next round")
    again.share()
    refused(
        Kind.CONFLICT, again.devices[1].mask, again.roster(1), vector_of(1, 5), relay.ledgers[1]
    )
