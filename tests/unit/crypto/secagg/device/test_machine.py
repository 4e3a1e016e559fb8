"""A device's machine of a round: its steps in order, retries, what it remembers, what it forgets.
Its checks: test_checks.py.
"""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal.crypto.secagg.device.machine import DeviceRound, DeviceState
from shoal.crypto.secagg.parameters import GraphParameters
from shoal.crypto.secagg.shares import CIPHERTEXT_SIZE
from shoal.crypto.signing import SigningContext
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode
from tests.cases import for_each
from tests.worlds.rounds.secagg_relay import (
    NOW,
    SPARSE,
    MemoryLedger,
    Relay,
    device_key,
    identity,
    make_terms,
    reachable,
    refused,
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


# --- the whole way --------------------------------------------------------------------------------


@for_each("mode", [Mode.DEFAULT, Mode.STRICT])
@for_each("bits", [16, 32, 64])
@for_each("n, graph", [(N, SPARSE), (7, None)])
def test_devices_make_an_exact_sum(
    mode: Mode, bits: int, n: int, graph: GraphParameters | None
) -> None:
    """Planted: a pad's sign turned round; pads added with neighbours that did not share; the seed's
    share given for a dropped device -> this fails.
    """
    relay = make(mode, n, graph, bits=bits, lost=2)
    relay.mask(without={1}, never={4})
    assert relay.sum(relay.unmask()).tolist() == relay.expected().tolist()
    assert {device.state for p, device in enumerate(relay.devices) if p in relay.sealed} == {
        DeviceState.RELEASED
    }


def test_states_round_id_and_charge_follow_the_steps() -> None:
    relay = make(Mode.STRICT)
    device = relay.devices[0]
    assert (device.state, device.round_id, device.charged, device.reason) == (
        DeviceState.NEW,
        None,
        False,
        "",
    )
    assert len(device.session) == 16
    assert device.session != relay.devices[1].session
    relay.share()
    device = relay.devices[0]
    assert (device.state, device.round_id, device.charged) == (
        DeviceState.SHARED,
        relay.round_id,
        False,
    )
    for position in range(N):
        relay.sealed[position] = relay.mask_one(position)
    assert (device.state, device.charged) == (DeviceState.MASKED, True)
    commit = relay.commit()
    endorsements = relay.endorsements(1, commit)
    device.endorse(commit)
    assert device.state is DeviceState.ENDORSED
    # too late to endorse itself: its neighbours did
    relay.devices[1].unmask(commit, endorsements, relay.ledgers[1])
    assert relay.devices[1].state is DeviceState.RELEASED


def test_the_sealed_vector_has_the_length_that_the_terms_say() -> None:
    relay = make()
    relay.share()
    assert len(relay.mask_one(0)) == relay.terms.sealed_vector_bytes


def test_joins_are_signed_for_the_offer_and_use_fresh_keys() -> None:
    relay = make()
    relay.join()
    joins = relay.joins
    assert len({key for join in joins for key in (join.pad_key, join.share_key)}) == 2 * N
    assert {join.offer_id for join in joins} == {relay.offer_id.raw}
    for join in joins:
        data = relay.offer_id.raw + join.pad_key + join.share_key
        signer = next(
            key
            for key in (signing_key(f"device {i}") for i in range(N))
            if key.public == device_key(join)
        )
        assert join.signature == signer.sign(SigningContext.ROUND_KEYS, data)


def test_helper_mode_has_no_rounds() -> None:
    with pytest.raises(ShoalError) as error:
        DeviceRound(make_terms(N, mode=Mode.HELPER), identity(0))
    assert error.value.kind is Kind.INVALID


# --- order, retries, memory -----------------------------------------------------------------------


def steps(relay: Relay, device: DeviceRound) -> dict[str, Callable[[], object]]:
    started, commit = pairwise_pb2.Started(), pairwise_pb2.SignedRecord()
    return {
        "join": lambda: device.join(pairwise_pb2.SignedOffer(), NOW),
        "share": lambda: device.share(started, NOW),
        "mask": lambda: device.mask(
            pairwise_pb2.Roster(), vector_of(0, relay.terms.dimension), MemoryLedger()
        ),
        "endorse": lambda: device.endorse(commit),
        "unmask": lambda: device.unmask(commit, [], MemoryLedger()),
    }


@for_each("reached", ["new", "joined", "shared", "masked", "ended"])
def test_a_step_out_of_order_changes_nothing(reached: str) -> None:
    """Planted: ``_expect`` lets every step pass -> this fails."""
    relay = make(Mode.STRICT)
    if reached == "joined":
        relay.join()
    elif reached in {"shared", "ended"}:
        relay.share()
    elif reached == "masked":
        relay.mask()
    device = relay.devices[0]
    if reached == "ended":
        device.end()
    turn = {
        "new": {"join"},
        "joined": {"share"},
        "shared": {"mask"},
        "masked": {"endorse", "unmask"},
        "ended": set(),
    }[reached]
    done = {
        "new": set(),
        "joined": {"join"},
        "shared": {"join", "share"},
        "masked": {"join", "share", "mask"},
        "ended": set(),
    }[reached]
    for name, step in steps(relay, device).items():
        if name not in turn | done:
            with pytest.raises(ShoalError) as error:
                step()
            assert error.value.kind is Kind.INTERNAL, name
            assert device.state.value == reached
    if reached == "masked":  # and the round goes on
        relay.unmask()


@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.STRICT])
def test_every_step_may_be_repeated_and_says_the_same_bytes(mode: Mode) -> None:
    """Planted: ``_said`` always answers None -> INTERNAL; ``mask`` seals again on a retry -> this
    fails.

    What is handed out is a copy: a caller that writes into it changes no later answer.
    """
    relay = make(mode)
    relay.mask()
    device, ledger = relay.devices[0], relay.ledgers[0]
    commit = relay.commit()
    endorsements = []
    if mode is Mode.STRICT:
        device.endorse(commit)
        endorsements = relay.endorsements(0, commit)
    first = device.unmask(commit, endorsements, ledger)
    said = first.SerializeToString()
    first.sealed = b"written over"
    entries = list(ledger.entries)
    for _ in range(2):
        assert device.join(relay.offer(), NOW + 5) == relay.joins[0]
        assert device.share(relay.started(0), NOW + 5) == relay.shared[0]
        assert device.mask(relay.roster(0), relay.vectors[0].copy(), ledger) == relay.sealed[0]
        if mode is Mode.STRICT:
            device.endorse(commit)
        assert device.unmask(commit, [], ledger).SerializeToString() == said
    assert ledger.entries == entries
    assert device.state is DeviceState.RELEASED


def test_another_offer_or_start_for_one_round_is_a_conflict() -> None:
    """Planted: the join's input is not remembered -> this fails."""
    relay = make()
    relay.join()
    other = replace(relay.offer_record(), shuffler_commitment=bytes(32))
    refused(Kind.CONFLICT, relay.devices[0].join, relay.offer(other), NOW, text="different offer")
    relay = make()
    relay.share()
    refused(Kind.CONFLICT, relay.devices[0].share, relay.started(1), NOW, text="different start")


def test_keys_are_forgotten_as_soon_as_they_are_not_needed() -> None:
    """Planted: ``AfterShare`` keeps the private pad key; ``AfterMask`` keeps the stream keys;
    ``unmask`` keeps what is known, or ``end`` the answers -> this fails.
    """
    relay = make()
    relay.join()
    device = relay.devices[0]
    private = [one for one in reachable(device) if isinstance(one, X25519PrivateKey)]
    assert len(private) == 2
    raw = {key.private_bytes_raw() for key in private}
    relay.shared[0] = device.share(relay.started(0), NOW)
    kept = [
        one.public_key().public_bytes_raw()
        for one in reachable(device)
        if isinstance(one, X25519PrivateKey)
    ]
    assert kept == [relay.joins[0].share_key]  # a complaint takes it
    assert not raw & {one for one in reachable(device) if isinstance(one, bytes)}
    for p in range(1, N):
        relay.shared[p] = relay.devices[p].share(relay.started(p), NOW)
    streams = {one for one in reachable(device) if isinstance(one, bytes) and len(one) == 48}
    assert len(streams) == SPARSE.neighbours + 1
    for p in range(N):
        relay.sealed[p] = relay.mask_one(p)
    assert not streams & set(reachable(device))
    assert not any(isinstance(one, X25519PrivateKey) for one in reachable(device))
    held = {one for one in reachable(device) if isinstance(one, bytes) and len(one) == 33}
    assert len(held) == 2 * SPARSE.neighbours
    relay.unmask()
    assert not held & set(reachable(device))
    device.end()
    assert not list(reachable(device))
    assert device.state is DeviceState.ENDED


def test_end_and_abort_are_final_and_the_first_one_stays() -> None:
    relay = make()
    relay.share()
    one, two = relay.devices[:2]
    one.abort("the deadline has passed")
    one.abort("something else")
    one.end()
    assert (one.state, one.reason) == (DeviceState.ABORTED, "the deadline has passed")
    assert not list(reachable(one))
    with pytest.raises(ShoalError, match="the deadline has passed") as error:
        relay.mask_one(0)
    assert error.value.kind is Kind.ABORTED
    two.end()
    two.abort("too late")
    assert (two.state, two.reason) == (DeviceState.ENDED, "")


def test_a_round_never_prints_pickles_or_copies_its_keys() -> None:
    """Planted: the dataclass's own repr; no ``__reduce__`` -> this fails."""
    relay = make()
    relay.join()
    device = relay.devices[0]
    for position in range(N):
        relay.shared[position] = relay.devices[position].share(relay.started(position), NOW)
    for secret in (device, device._known):
        for leave in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="one-time keys"):
                leave(secret)
        with pytest.raises(TypeError):
            vars(secret)
    for text in (repr(device), str(device), f"{device}", repr(device._known)):
        assert device.session.hex() not in text
        assert str(device.session) not in text
        assert len(text) < 60


# --- what its caller gets wrong -------------------------------------------------------------------


@for_each(
    "vector",
    [
        np.zeros(4, np.int64),
        np.zeros(6, np.int64),
        np.zeros((5, 1), np.int64),
        np.zeros(5, np.int32),
        np.zeros(5),
        np.zeros(5, np.uint64),
    ],
)
def test_a_vector_of_another_shape_or_type_changes_nothing(vector: np.ndarray) -> None:
    relay = make()
    relay.share()
    with pytest.raises(ShoalError) as error:
        relay.devices[0].mask(relay.roster(0), vector, relay.ledgers[0])
    assert error.value.kind is Kind.INVALID
    assert (relay.devices[0].state, relay.ledgers[0].entries) == (DeviceState.SHARED, [])
    relay.mask_one(0)
    with pytest.raises(ShoalError) as error:
        relay.devices[0].mask(relay.roster(0), vector, relay.ledgers[0])
    assert error.value.kind is Kind.INVALID
    assert relay.devices[0].state is DeviceState.MASKED


def test_a_vector_that_is_not_contiguous_is_masked_like_its_copy() -> None:
    relay = make()
    relay.share()
    relay.vectors = {p: vector_of(p, 5) for p in range(N)}
    wide = np.zeros((5, 3), np.int64)
    for p in range(N):
        wide[:, 1] = relay.vectors[p]
        relay.sealed[p] = relay.devices[p].mask(relay.roster(p), wide[:, 1], relay.ledgers[p])
    assert relay.sum(relay.unmask()).tolist() == relay.expected().tolist()


def test_endorsing_belongs_to_strict_mode() -> None:
    relay = make()
    relay.mask()
    with pytest.raises(ShoalError) as error:
        relay.devices[0].endorse(relay.commit())
    assert error.value.kind is Kind.INVALID
    assert relay.devices[0].state is DeviceState.MASKED


# --- mask -----------------------------------------------------------------------------------------


def test_the_ledger_is_written_before_anything_is_returned() -> None:
    """Planted: the entry after the state has changed; another digest -> this fails."""
    relay = make()
    relay.share()
    device = relay.devices[0]
    seen: list[DeviceState] = []

    class Watching(MemoryLedger):
        def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None:
            seen.append(device.state)
            super().masked(task_id, window, round_id, sealed)

        def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None:
            seen.append(device.state)
            super().released(task_id, window, round_id, commit)

    relay.ledgers[0] = ledger = Watching()
    for p in range(N):
        relay.sealed[p] = relay.mask_one(p)
    relay.unmask()
    hashed = [hashlib.sha256(data).digest() for data in (relay.sealed[0], relay.commit().record)]
    where = (relay.terms.task_id, relay.terms.window, relay.round_id)
    assert ledger.entries == [
        ("masked", *where, Digest(hashed[0])),
        ("released", *where, Digest(hashed[1])),
    ]
    assert seen == [DeviceState.SHARED, DeviceState.MASKED]


def test_nothing_is_masked_beside_a_ciphertext_that_does_not_open() -> None:
    """The round is given up before anything is written down or charged. Planted: ``mask`` that
    takes it for no share -> charged.
    """
    relay = make()
    relay.share()
    device, roster = relay.devices[0], relay.roster(0)
    roster.ciphertexts[1] = bytes(CIPHERTEXT_SIZE)
    with pytest.raises(ShoalError) as caught:
        device.mask(roster, vector_of(0, 5), relay.ledgers[0])
    assert caught.value.kind is Kind.ABORTED
    assert (device.state, device.charged, relay.ledgers[0].entries) == (
        DeviceState.ABORTED,
        False,
        [],
    )
