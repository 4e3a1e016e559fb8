"""Devices behind relays and such as have none, in one fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from shoal.clients.fleet import reporter
from shoal.clients.fleet.misbehaviour import Carrier, Conduct
from shoal.clients.fleet.plan import SimulationPlan
from shoal.clients.fleet.simulated import FleetSimulation
from shoal.clients.transports.transport import Receipt
from shoal.crypto.signing import verify
from shoal.errors import Kind, ShoalError
from tests.flipped import last_bit_flipped
from tests.unit.clients.fleet.judge import Judge
from tests.unit.clients.fleet.test_simulated import share_of, world_of


async def test_some_devices_call_by_themselves_beside_the_relays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them verifies the task itself; behind a relay that is done once for each of its
    calls. Planted: relays take all devices -> those alone report twice; what a relay verified
    handed to those alone, or made once and for all -> too few verifications.
    """
    single, batched, verified = 0, 0, 0

    class Counting(Judge):
        async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
            nonlocal single
            single += 1
            return await super().submit(frame, ack_key, deadline_s)

        async def submit_batch(
            self, frames: Sequence[bytes], ack_keys: Sequence[bytes], deadline_s: float
        ) -> list[Receipt]:
            nonlocal batched
            batched += len(frames)
            return [
                Receipt(0, await Judge.submit(self, frame, key, deadline_s))
                for frame, key in zip(frames, ack_keys, strict=True)
            ]

    def counted(*arguments: object) -> None:
        nonlocal verified
        verified += 1
        verify(*arguments)  # type: ignore[arg-type] # those of ``verify``

    monkeypatch.setattr(reporter, "verify", counted)
    world, alone, behind = world_of(), 7, 1_100
    judge = Counting(world)
    share = share_of(world, (Conduct.HONEST,) * (alone + behind), Carrier.RELAY, in_flight=1)
    result = await FleetSimulation(replace(share, alone=alone), [judge]).run()
    assert (single, batched) == (alone, behind)
    assert result.acked == len(judge.stored) == alone + behind
    # of 500, 500, 100 and no frames; the first of all is not counted, which parses, too
    relayed = 4
    assert verified == 2 * (alone + relayed - 1)


async def test_behind_a_relay_a_task_that_does_not_verify_is_refused_by_every_device() -> None:
    """Planted: what a relay could not verify left out -> nobody reports, and nothing is said."""
    world = world_of()
    share = share_of(world, (Conduct.HONEST,) * 5, Carrier.RELAY)
    task = share.tasks[0]
    damaged = replace(task, signed_task=last_bit_flipped(task.signed_task))
    result = await FleetSimulation(replace(share, tasks=(damaged,)), [Judge(world)]).run()
    assert result.refused == {Kind.BAD_SIGNATURE.value: 5}


def test_those_alone_are_shared_among_processes() -> None:
    """Planted: as many in every process -> three times too many; none checked -> a plan with more
    than there are.
    """
    world = world_of()
    tasks = share_of(world, (Conduct.HONEST,) * 10, Carrier.RELAY).tasks
    plan = SimulationPlan(tasks, world.authorities, way=Carrier.RELAY, alone=4)
    assert [plan.share(b"", number, 3).alone for number in range(3)] == [2, 1, 1]
    for way, alone in ((Carrier.RELAY, 11), (Carrier.GRPC, 1)):
        with pytest.raises(ShoalError, match="alone"):
            SimulationPlan(tasks, world.authorities, way=way, alone=alone)
