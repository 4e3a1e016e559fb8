"""Devices that push a word which nobody has, through real services: what the plan says they can do.

Estimates lie within 9 of their standard errors of the truth (Poisson dummies: below 1e-9 each).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.discovery.plan import DiscoveryRequest, planned
from shoal.cli.demo.workspace import Site, prepare
from shoal.clients.core import assign, seal
from shoal.clients.transports.grpc_transport import GrpcTransport
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.registry import create
from shoal.protos.release_pb2 import Release
from shoal.questions.discovery import DiscoveryLevel
from shoal.questions.spelling import MORE
from tests.cases import for_each
from tests.sizes import FULL, size
from tests.worlds import discoveries
from tests.worlds.ports import free_port

HONEST = size(5_000, 20_000)
EPSILON = 0.5
LENGTH_S = size(25, 240)  # a window closes as soon as all have answered
ASKED = Discovery(first=1, longest=2, most=4)  # words of two letters: two levels
LEVELS = ASKED.levels
FEW, MANY = "qq", "zz"  # what some hostile devices push at both, and what more of them do


async def push(site: Site, heard: discoveries.Heard, window: int, word: str, devices: int) -> None:
    """A full report of messages for one word from each of so many devices."""
    asked = heard.asked
    trusted = trust_task(asked.signed_task, {site.authority.public})
    assignment = assign(trusted, trust_schedule(asked.signed_schedule, trusted))
    level: DiscoveryLevel | None = asked.discovery.level(0)
    if window:
        level = heard.steps[window].step.level
        assignment.steps[window] = heard.steps[window]
    assert level is not None
    cell = level.encode(word)
    message = cell.to_bytes(asked.task.report_size, "big")
    transport = GrpcTransport(site.shuffler_address, site.ca)
    try:
        for _ in range(devices):
            prepared = seal(assignment, window, (message,) * asked.task.messages)
            await transport.submit(prepared.frame, prepared.ack_key, 30.0)
        larger = seal(assignment, window, (message,) * (asked.task.messages + 1))
        with pytest.raises(ShoalError) as refused:
            await transport.submit(larger.frame, larger.ack_key, 30.0)
        assert refused.value.kind is Kind.INVALID
    finally:
        await transport.close()


@pytest.mark.timeout(size(300, 2_000))
@for_each("fresh", [False, True] if FULL else [False])
async def test_hostile_devices_are_bounded_by_their_slots(tmp_path: Path, fresh: bool) -> None:
    """One device fewer than the plan's number pushes one word at both levels, more than it by 9
    standard errors another: the first is off by their slots at most, where it is told, the second
    by just their slots, and found. Where devices answer once, those that lie answer twice.

    Planted: the mean of the noise is not taken off -> everybody's counts are above, fails; only
    level 0 pushed -> the second is not found, fails.
    """
    site, domain = prepare(tmp_path, free_port), replace(ASKED, fresh=fresh)
    words = ("an",) * (HONEST // 2) + ("so",) * (HONEST - HONEST // 2)
    # the noise rests on the honest ones alone; hostile devices come on top
    spec = design_several("dummies", domain, HONEST, EPSILON, discoveries.DELTA, windows=LEVELS)
    made = create(spec, domain)
    assert isinstance(made, BundledHistogram)
    request = DiscoveryRequest(HONEST, EPSILON, discoveries.DELTA, first=1, longest=2, most=4)
    slots, stated = made.messages, planned(request, ASKED, made).liars
    assert stated > 1
    few = stated - 1
    many = stated + math.ceil(9 * made.expected_stderr(2 * HONEST) / slots)

    def ask(pace: float) -> discoveries.Asked:
        length_s, room = round(LENGTH_S * pace), few + many
        return discoveries.ask(
            site, domain, HONEST, windows=LEVELS, length_s=length_s, epsilon=EPSILON, room=room
        )

    async with discoveries.asking(site, ask) as (asked, _, _):
        heard = discoveries.Heard(site, asked)
        for window in range(LEVELS):
            signed_step = b""
            if window:
                step, signed_step = await heard.after(window - 1)
                assert step.window == window
            assert (
                await discoveries.answer(site, asked, words[:-1], window, signed_step) == HONEST - 1
            )
            await push(site, heard, window, FEW, few)
            await push(site, heard, window, MANY, many)
            # the last one fills the window, which closes
            assert await discoveries.answer(site, asked, words[-1:], window, signed_step) == 1
        found = dict[int, Release]()
        while len(found) < LEVELS:
            found = await discoveries.releases_of(site, asked)
    for window, release in sorted(found.items()):
        depth = ASKED.first + window
        assert release.n == HONEST + few + many
        rows = {row.label.removesuffix(MORE): row for row in release.estimates}
        lied = rows[MANY[:depth]]
        assert abs(lied.value - many * slots) < 9 * lied.stderr
        for word, count in Counter(words).items():
            assert abs(rows[word[:depth]].value - count) < 9 * rows[word[:depth]].stderr
        told = rows.get(FEW[:depth])
        assert told is None or told.value < few * slots + 9 * told.stderr
