"""Strict mode against shuffler and analyzer together: two commits of one round, shown to two halves
of the ring.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from shoal.crypto.secagg import terms
from shoal.crypto.secagg.parameters import (
    Corruption,
    GraphParameters,
    graph_parameters,
    parameters_for,
)
from shoal.crypto.secagg.records import Commit, Status
from shoal.crypto.secagg.ring import neighbour_positions
from shoal.crypto.signing import SigningContext
from shoal.errors import ShoalError
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode, PairwisePlan
from tests.worlds.rounds.secagg import Play, Step, World

N, LOST = 72, 7  # devices, and how many of them one commit may call lost


def opens() -> bool:
    """Whether a sum without 2 LOST devices opens: every other device's seed, and the pad keys of
    these, have t shares.

    The first half of the ring is shown a commit without LOST devices of its own, the second half
    one without as many of its. Everybody is honest, and checks all that devices check.
    """
    play = Play(
        World(N, Mode.STRICT, dimension=1, dropout_ppm=100_000, honest_ppm=1_000_000)
    ).run_to(Step.ENDORSE)
    members, world, graph = (
        play.coordinator._seating.members,
        play.world,
        play.coordinator._seating.graph,
    )
    round_id, k = play.coordinator.round_id, graph.neighbours
    assert round_id is not None
    by_position = {members[device.session].position: device for device in play.devices}
    ledgers = {
        members[device.session].position: ledger
        for device, ledger in zip(play.devices, play.ledgers, strict=True)
    }

    def commit(dropped: range) -> pairwise_pb2.SignedRecord:
        record = Commit(
            round_id, bytes(Status.DROPPED if p in dropped else Status.ALIVE for p in range(N))
        ).encode()
        signatures = [
            key.sign(SigningContext.ROUND_COMMIT, record)
            for key in (world.shuffler_key, world.analyzer_key)
        ]
        return pairwise_pb2.SignedRecord(
            record=record, shuffler_signature=signatures[0], analyzer_signature=signatures[1]
        )

    # Far from where the halves meet.
    lost = [range(15, 15 + LOST), range(51, 51 + LOST)]
    commits = [commit(one) for one in lost]
    signed: dict[int, pairwise_pb2.Endorsement] = {}
    for p, device in by_position.items():
        if p not in (*lost[0], *lost[1]):
            signed[p] = pairwise_pb2.Endorsement(
                position=p, signature=device.endorse(commits[p * 2 // N]).signature
            )
    acted: set[int] = set()
    for p in signed:
        same = [q for q in neighbour_positions(N, k, p) if q in signed and q * 2 // N == p * 2 // N]
        try:
            by_position[p].unmask(commits[p * 2 // N], [signed[q] for q in same], ledgers[p])
        except ShoalError:
            continue
        acted.add(p)
    assert {p * 2 // N for p in acted} <= {0, 1}

    def gave(p: int, holder: int) -> Status:
        return Status.DROPPED if p in lost[holder * 2 // N] else Status.ALIVE

    wanted = {p: Status.ALIVE if p in signed else Status.DROPPED for p in range(N)}
    return all(
        sum(q in acted and gave(p, q) == wanted[p] for q in neighbour_positions(N, k, p))
        >= graph.threshold
        for p in range(N)
    )


def test_two_halves_of_a_ring_do_not_act_on_two_commits() -> None:
    """Else the sum that opens would be of N - 2 LOST devices, and its noise that of fewer than are
    promised.
    """
    assert not opens()


def test_the_attack_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the threshold that keeps b and s of one device apart, and no more, it succeeds: so the
    test above can fail.
    """

    def smaller(plan: PairwisePlan, honest_fraction_ppm: int, n: int) -> GraphParameters:
        k = parameters_for(plan, honest_fraction_ppm, n).neighbours
        least = graph_parameters(n, Fraction(0), plan.dropout, Corruption.SEMI_MALICIOUS, 80)
        return GraphParameters(k, k // 2 + least.threshold - least.neighbours // 2, complete=False)

    monkeypatch.setattr(terms, "parameters_for", smaller)
    assert opens()
