"""A device that was taken back has no seat in a round; the others get their sum."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.clients.rounds.participation import RoundState
from shoal.crypto.admission.revocation import sign_list
from tests.worlds.rounds.services import World, running

COHORT = 12


async def test_a_revoked_device_gets_no_seat(tmp_path: Path) -> None:
    """Planted: no look at the list before a seat is given -> it is counted, fails."""
    world = World(tmp_path, devices=COHORT)
    devices = world.devices(COHORT + 1)
    revoked, honest = devices[0], devices[1:]
    data = sign_list(world.enrolment, 1, [revoked.identity.key.public])
    (world.shuffler.tasks_dir / "fleet.revoked").write_bytes(data)
    async with running(world) as one:
        ended = await asyncio.gather(*one.begin([revoked, *honest]), return_exceptions=True)
    assert [getattr(outcome, "state", None) for outcome in ended[1:]] == [
        RoundState.COUNTED
    ] * COHORT
    assert getattr(ended[0], "state", None) is not RoundState.COUNTED
    assert "revoked" in str(ended[0])
