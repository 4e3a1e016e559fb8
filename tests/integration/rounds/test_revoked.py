"""A device that was taken back has no seat in a round; the others get their sum."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.clients.rounds.participation import RoundState
from shoal.crypto.admission.enrolment import DeviceCertificate
from shoal.crypto.admission.revocation import sign_list
from shoal.crypto.secagg.exchange import open_reply, seal_request
from shoal.crypto.secagg.terms import SESSION_SIZE
from shoal.entropy import SYSTEM
from shoal.protos import pairwise_pb2
from tests.worlds.rounds.services import DAY, World, running
from tests.worlds.services.shuffler import START

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


async def test_nobody_can_ask_whether_a_device_is_revoked(tmp_path: Path) -> None:
    """Certificates that somebody made up, with no good signature: for a device on the list the
    answer is that for any other. Planted: the list looked at before signatures -> fails.
    """
    world = World(tmp_path, devices=COHORT)
    revoked, other = world.devices(2)
    data = sign_list(world.enrolment, 1, [revoked.identity.key.public])
    (world.shuffler.tasks_dir / "fleet.revoked").write_bytes(data)
    async with running(world) as one:
        transport = one.transport()

        async def asked(public: bytes) -> pairwise_pb2.Answer:
            body = DeviceCertificate(public, START - DAY, START + DAY).encode()
            cert = pairwise_pb2.SignedCertificate(certificate=body, signature=bytes(64))
            step = pairwise_pb2.Step(
                task_id=world.published.task_id.raw,
                session=bytes(SESSION_SIZE),
                join=pairwise_pb2.Join(offer_id=bytes(32), certificate=cert.SerializeToString()),
            )
            key = world.published.served.keys.hop_keys[0]
            request = seal_request(key, step.SerializeToString(), SYSTEM)
            reply = await transport.exchange(request.frame, 5.0)
            return pairwise_pb2.Answer.FromString(open_reply(request.reply_key, reply))

        told = [await asked(device.identity.key.public) for device in (revoked, other)]
    assert told[0] == told[1]
