"""Devices that push a word which nobody has, through real services: what the plan says they can do.

Estimates lie within 9 of their standard errors of the truth (Poisson dummies: below 1e-9 each).
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from shoal.accounting.several_messages.liars import moved_by_liar
from shoal.accounting.several_messages.of_domain import design_several
from shoal.cli.demo.workspace import Site, prepare
from shoal.clients.core import assign, seal
from shoal.clients.transports.grpc_transport import GrpcTransport
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.levels import threshold
from shoal.mechanisms.several.registry import create
from shoal.protos.release_pb2 import Release
from shoal.questions.spelling import MORE
from tests.sizes import size
from tests.worlds import discoveries
from tests.worlds.ports import free_port

HONEST = size(1_500, 20_000)
EPSILON = 0.5
LENGTH_S = size(60, 300)  # the window closes as soon as all have answered
ASKED = Discovery(first=1, longest=1, most=1)  # letters alone: one level
FEW, MANY = "q", "z"  # what some hostile devices push, and what more of them do


async def push(site: Site, asked: discoveries.Asked, letter: str, devices: int) -> None:
    """A full report of messages for one letter from each of so many devices."""
    trusted = trust_task(asked.signed_task, {site.authority.public})
    assignment = assign(trusted, trust_schedule(asked.signed_schedule, trusted))
    cell = asked.discovery.level(0).encode(letter)
    message = cell.to_bytes(asked.task.report_size, "big")
    transport = GrpcTransport(site.shuffler_address, site.ca)
    try:
        for _ in range(devices):
            prepared = seal(assignment, 0, (message,) * asked.task.messages)
            await transport.submit(prepared.frame, prepared.ack_key, 30.0)
        larger = seal(assignment, 0, (message,) * (asked.task.messages + 1))
        with pytest.raises(ShoalError) as refused:
            await transport.submit(larger.frame, larger.ack_key, 30.0)
        assert refused.value.kind is Kind.INVALID
    finally:
        await transport.close()


@pytest.mark.timeout(size(300, 1_500))
async def test_hostile_devices_are_bounded_by_their_slots(tmp_path: Path) -> None:
    """One device fewer than the stated number pushes one letter, more than it by 9 standard errors
    another: the first is off by their slots at most, the second by just their slots, and told.
    Planted: the mean of the noise is not taken off -> everybody's counts are above, fails.
    """
    site = prepare(tmp_path, free_port)
    words = ("a",) * (HONEST // 2) + ("s",) * (HONEST - HONEST // 2)
    # the noise rests on the honest ones alone; hostile devices come on top
    spec = design_several("dummies", ASKED, HONEST, EPSILON, discoveries.DELTA, windows=1)
    made = create(spec, ASKED)
    assert isinstance(made, BundledHistogram)
    slots = made.messages
    assert moved_by_liar(made) == slots
    least = threshold(made, ASKED.levels, HONEST)
    needed = math.ceil(least / slots)
    few = max(0, needed - 1)
    many = needed + math.ceil(9 * made.expected_stderr(2 * HONEST) / slots)

    def ask(pace: float) -> discoveries.Asked:
        length_s, room = round(LENGTH_S * pace), few + many
        return discoveries.ask(
            site, ASKED, HONEST, windows=1, length_s=length_s, epsilon=EPSILON, room=room
        )

    async with discoveries.asking(site, ask) as (asked, _, _):
        await push(site, asked, FEW, few)
        await push(site, asked, MANY, many)
        assert await discoveries.answer(site, asked, words, 0, b"") == len(words)
        found = dict[int, Release]()
        while not found:
            found = await discoveries.releases_of(site, asked)
    release = found[0]
    assert release.n == HONEST + few + many
    rows = {row.label.removesuffix(MORE): row for row in release.estimates}
    assert abs(rows[MANY].value - many * slots) < 9 * rows[MANY].stderr
    assert needed > 1
    for letter, count in (("a", HONEST // 2), ("s", HONEST - HONEST // 2)):
        assert abs(rows[letter].value - count) < 9 * rows[letter].stderr
    assert release.discovered.threshold >= least
    if FEW in rows:
        assert rows[FEW].value < few * slots + 9 * rows[FEW].stderr
