"""Enrolled devices that deal shares which do not open, between real services: they are left out and
named, the others get their sum.

On a program that opened shares after masking every such round ended without a sum, with all honest
devices charged and shut out.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from shoal.clients.memory.rounds_ledger import RoundStanding
from shoal.clients.rounds.agent import _Charged
from shoal.clients.rounds.participation import RoundState
from shoal.crypto.admission.enrolment import DeviceIdentity
from shoal.crypto.secagg.complaints import dealt_bytes
from shoal.crypto.secagg.device.machine import DeviceRound
from shoal.crypto.secagg.records import Reason
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningContext
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind
from shoal.protos import pairwise_pb2
from tests.worlds.rounds.services import Device, Running, World, running, total

COHORT = 12  # of which a quarter may be lost


class BadDealer(DeviceRound):
    """What it deals opens for nobody; everything else is as it should be, its signature too."""

    def __init__(
        self, terms: RoundTerms, identity: DeviceIdentity, entropy: Entropy = SYSTEM
    ) -> None:
        super().__init__(terms, identity, entropy)
        self.key = identity.key

    def share(self, started: pairwise_pb2.Started, now: float) -> pairwise_pb2.Shares:
        message = super().share(started, now)
        assert self.round_id is not None
        message.ciphertexts = bytes(one ^ 0x55 for one in message.ciphertexts)
        data = dealt_bytes(self.round_id, started.position, message.commitment, message.ciphertexts)
        message.signature = self.key.sign(SigningContext.ROUND_SHARES, data)
        return message


def corrupt(monkeypatch: pytest.MonkeyPatch, bad: list[Device]) -> None:
    """These devices run a program of their own."""
    keys = {device.identity.key.public for device in bad}

    def made(terms: RoundTerms, identity: DeviceIdentity, entropy: Entropy = SYSTEM) -> DeviceRound:
        return (BadDealer if identity.key.public in keys else DeviceRound)(terms, identity, entropy)

    monkeypatch.setattr("shoal.clients.rounds.participation.DeviceRound", made)


async def metrics(one: Running) -> str:
    with await asyncio.to_thread(
        urllib.request.urlopen, f"http://127.0.0.1:{one.shuffler.admin_port}/metrics"
    ) as page:
        return str(page.read().decode())


async def test_bad_dealers_within_the_dropout_cost_nobody_but_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exact sum of the others in the same round. Planted: the verdict never carried out
    (``Rounds._step``) -> the devices complain until the phase is over, and there is no sum;
    ``blame`` not called -> no count.
    """
    world = World(tmp_path, devices=COHORT)
    devices = world.devices(COHORT)
    bad, honest = devices[:2], devices[2:]
    corrupt(monkeypatch, bad)
    async with running(world) as one:
        outcomes = await asyncio.gather(*one.begin(devices))
        assert [outcome.state for outcome in outcomes[2:]] == [RoundState.COUNTED] * len(honest)
        assert {(outcome.state, outcome.kind, outcome.charged) for outcome in outcomes[:2]} == {
            (RoundState.ABORTED, Kind.FORBIDDEN, False)
        }
        (made,) = one.sums()
        assert (made.survivors, made.vector.tolist()) == (len(honest), total(honest))
        assert one.rounds.blamed == 2
        assert (
            f'shoal_shuffler_blamed_total{{task="{world.published.task_id.short}"}} 2.0'
            in await metrics(one)
        )


async def test_a_round_that_bad_dealers_ended_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than may be lost end the round before anybody masks; in the next one of the same window
    they get no seat, and the others, who had paid nothing, get their sum and are charged once.

    Planted: a window charged when a device shares -> two charges; the guilty not asked for in
    ``Seats.check`` -> they end the next round, too.
    """
    world = World(tmp_path, devices=COHORT)
    bad, honest, late = world.devices(4), world.devices(COHORT - 4), world.devices(4)
    corrupt(monkeypatch, bad)
    paid: Counter[int] = Counter()
    for number, device in enumerate(honest):
        device.ledger = _Charged(device.ledger, lambda _, number=number: paid.update([number]))  # type: ignore[assignment,misc]
    async with running(world) as one:
        outcomes = await asyncio.gather(*one.begin([*bad, *honest]))
        assert {(outcome.state, outcome.charged) for outcome in outcomes} == {
            (RoundState.ABORTED, False)
        }
        assert {outcome.kind for outcome in outcomes[4:]} == {Kind.ABORTED}
        assert not paid
        await one.until(lambda: one.rounds.ended == {Reason.TOO_FEW_SHARED.value: 1})
        assert one.rounds.blamed == 4
        there = one.begin(honest)
        await one.until(lambda: one.counts().get("joined") == len(honest))
        again = await asyncio.gather(*one.begin(bad))
        assert {(outcome.state, outcome.kind, outcome.charged) for outcome in again} == {
            (RoundState.NONE, Kind.FORBIDDEN, False)
        }
        outcomes = await asyncio.gather(*there, *one.begin(late))
        assert {(outcome.state, outcome.charged) for outcome in outcomes} == {
            (RoundState.COUNTED, True)
        }
        (made,) = one.sums()
        assert made.vector.tolist() == total([*honest, *late])
        assert paid == dict.fromkeys(range(len(honest)), 1)
        # and the window is answered now
        once = await asyncio.gather(*one.begin(honest[:1]), return_exceptions=True)
        assert [getattr(error, "kind", None) for error in once] == [Kind.CONFLICT]
    assert {device.ledger.find(world.terms.task_id, 0).standing for device in honest} == {  # type: ignore[union-attr]
        RoundStanding.COUNTED
    }
