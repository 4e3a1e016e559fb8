"""Consent, refusals and the ledger over the agent's seams: nothing leaves that the owner does not
stand behind, and the ledger says why.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal import codec
from shoal.clients.core import ReportState
from shoal.clients.memory.ledger import LedgerEntry, LedgerEvent
from shoal.clients.owner.rules import Rule
from shoal.codec import Signed
from shoal.crypto.hpke import generate
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId
from shoal.domain import YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create
from shoal.task import MechanismSpec
from tests.unit.clients.owner.device_of_an_owner import PURPOSE, Device, Hanging
from tests.worlds.devices.clients import START, WEEK, DirectTransport, World, make_world


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate of each task takes a third of a second, and is shown elsewhere."""
    monkeypatch.setattr("shoal.clients.owner.explain_cost.guaranteed_epsilon", lambda _: 0.25)
    monkeypatch.setattr("shoal.clients.owner.guarantees.Guarantees.epsilon", lambda *_: 0.25)


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path, make_world())


# --- what the ledger says of an ordinary life -----------------------------------------------------


async def test_the_ledger_tells_a_task_s_whole_life(device: Device) -> None:
    """Seen, accepted, reported, delivered: once each, though the agent looks again and again."""
    for _ in range(3):
        async with device.agent() as agent:
            await agent.report("visits", 3)
            await asyncio.to_thread(agent.look)
    assert [one.event for one in device.entries()] == [
        LedgerEvent.SEEN,
        LedgerEvent.ACCEPTED,
        LedgerEvent.REPORTED,
        LedgerEvent.OUTCOME,
    ]
    seen, _, reported, outcome = device.entries()
    assert (seen.details["purpose"], seen.details["min_batch"], seen.details["windows"]) == (
        PURPOSE,
        1_000,
        4,
    )
    assert (reported.window, reported.details["epsilon_central"], reported.details["source"]) == (
        0,
        0.25,
        "given",
    )
    assert 3.0 <= float(reported.details["epsilon_local"] or 0) < 3.1
    assert (outcome.window, outcome.details["state"], outcome.details["attempts"]) == (
        0,
        "acked",
        1,
    )
    (content,) = device.far.contents.values()
    assert content.window == 0
    assert device.world.reports(device.far.frames[0])[0].hex() == reported.details["report"]


async def test_a_final_refusal_of_the_shuffler_is_an_outcome(device: Device) -> None:
    device.far.script = lambda _n, _f: ShoalError(Kind.WINDOW_FULL, "full")
    async with device.agent() as agent:
        await agent.report("visits", 3)
        await agent.flush()
    (outcome,) = device.entries(LedgerEvent.OUTCOME)
    assert (outcome.details["state"], outcome.details["kind"]) == ("refused", "WINDOW_FULL")


async def test_the_outcome_and_its_entry_are_one_step(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: enter the outcome after ``finish`` has committed -> ACKED without an entry."""
    from shoal.clients.memory.commitments_sqlite import SqliteCommitments

    real = SqliteCommitments.append

    def failing(commitments: SqliteCommitments, entry: LedgerEntry) -> int:
        if entry.event is LedgerEvent.OUTCOME:
            raise ShoalError(Kind.OVERLOADED, "disk full")
        return real(commitments, entry)

    monkeypatch.setattr(SqliteCommitments, "append", failing)
    async with device.agent() as agent:
        tried = await agent.report("visits", 3)
        assert (tried.state, tried.kind) == (ReportState.QUEUED, Kind.OVERLOADED)
    monkeypatch.undo()
    async with device.agent() as agent:
        (outcome,) = await agent.outcomes()
        assert outcome.state is ReportState.QUEUED
        await agent.flush()
    assert len(device.entries(LedgerEvent.OUTCOME)) == 1
    assert len(device.far.contents) == 1


async def test_rules_run_before_anything_is_randomized_or_kept(tmp_path: Path) -> None:
    """A redacted value is no answer, and the ledger that keeps values keeps what is left. Planted:
    the raw value to ``answer``.
    """
    device = Device(
        tmp_path,
        make_world(),
        config={"rules": (Rule(task="visits", round_to=5, redact_above=100),), "keep_values": True},
    )
    async with device.agent() as agent:
        await agent.report("visits", 9)
        device.clock.advance(WEEK)
        await agent.report("visits", 101)
    assert [one.details["value"] for one in device.entries(LedgerEvent.REPORTED)] == [5, None]


# --- refusals: each with its reason, nothing sent -------------------------------------------------


def signed(
    world: World, data: bytes, *, by: SigningKey | None = None, signature: bytes | None = None
) -> bytes:
    made = (
        (by or world.authority).sign(SigningContext.TASK, data) if signature is None else signature
    )
    return codec.encode_signed_task(Signed(data, world.authority.public, made))


def unknown_field(data: bytes) -> bytes:
    """The task's bytes with a field of a later version: number 500, varint 1."""
    return data + b"\xa0\x1f\x01"


REFUSALS: dict[str, Callable[[World], tuple[bytes, bytes]]] = {
    "unsigned": lambda w: (signed(w, w.task_bytes, signature=bytes(64)), w.signed_schedule),
    "wrongly signed": lambda w: (
        signed(w, w.task_bytes, by=SigningKey.generate()),
        w.signed_schedule,
    ),
    "altered": lambda w: (w.signed_task.replace(b"visits", b"visitz", 1), w.signed_schedule),
    "unknown extension": lambda w: (signed(w, unknown_field(w.task_bytes)), w.signed_schedule),
    "junk": lambda _: (b"\xff\xfe", b"\xff"),
}


@pytest.mark.parametrize("what", REFUSALS)
async def test_what_can_t_be_believed_is_a_problem_once(device: Device, what: str) -> None:
    """Planted: no digest kept -> an entry at each look. Any defect of the verification shows in a
    frame.
    """
    task, keys = REFUSALS[what](device.world)
    (device.folder / "tasks" / "visits.task").write_bytes(task)
    (device.folder / "tasks" / "visits.keys").write_bytes(keys)
    for _ in range(2):
        async with device.agent() as agent:
            with pytest.raises(ShoalError):
                await agent.report("visits", 3)
    (problem,) = device.entries()
    assert problem.event is LedgerEvent.PROBLEM
    assert problem.details["file"] == "visits.task"
    assert problem.details["reason"]
    assert device.far.frames == []


POLICIES: dict[str, tuple[dict[str, Any], str]] = {
    "over epsilon": ({"max_epsilon0": 2.0}, "max_epsilon0 = 2"),
    "over delta": ({"max_delta": 1e-9}, "max_delta = 1e-09"),
    "under minimum": ({"min_batch_floor": 1_001}, "min_batch_floor = 1001"),
    "denied": ({"purposes": {PURPOSE: "denied"}}, "denied"),
    "not asked": ({"purposes": {}}, "never agreed to"),
}


@pytest.mark.parametrize("what", POLICIES)
async def test_what_the_policy_forbids_is_refused_once_and_again_when_it_changes(
    device: Device, what: str
) -> None:
    """Planted: an entry per try -> three; none when it is allowed later -> no ACCEPTED."""
    changes, reason = POLICIES[what]
    device.policy = changes
    for _ in range(3):
        async with device.agent() as agent:
            with pytest.raises(ShoalError) as caught:
                await agent.report("visits", 3)
            assert caught.value.kind is Kind.REFUSED
    assert [one.event for one in device.entries()] == [LedgerEvent.SEEN, LedgerEvent.REFUSED]
    assert reason in str(device.entries(LedgerEvent.REFUSED)[0].details["reason"])
    assert device.far.frames == []
    device.policy = {}
    async with device.agent() as agent:
        await agent.report("visits", 3)
    assert [one.event for one in device.entries()][2:] == [
        LedgerEvent.ACCEPTED,
        LedgerEvent.REPORTED,
        LedgerEvent.OUTCOME,
    ]


async def test_over_budget_is_refused_with_its_window(device: Device) -> None:
    """epsilon0 3, budget 4: the first window is paid, the second is not; asking again adds no
    entry.
    """
    device.policy = {"lifetime_epsilon": 4.0}
    async with device.agent() as agent:
        await agent.report("visits", 3)
        device.clock.advance(WEEK)
        for _ in range(3):
            with pytest.raises(ShoalError) as caught:
                await agent.report("visits", 3)
            assert caught.value.kind is Kind.REFUSED
        budget = await agent.budget()
        assert budget.limit_nano == 4 * 10**9
        assert budget.left_nano == budget.limit_nano - budget.spent_nano
        assert budget.spent_nano >= 3 * 10**9
    (refused,) = device.entries(LedgerEvent.REFUSED)
    assert (refused.window, "budget" in str(refused.details["reason"])) == (1, True)
    assert len(device.far.frames) == 1


async def test_an_expired_task_is_refused(device: Device) -> None:
    device.clock.time = START + 100.0 * WEEK
    async with device.agent() as agent:
        with pytest.raises(ShoalError) as caught:
            await agent.report("visits", 3)
        assert caught.value.kind is Kind.WINDOW_CLOSED
    (refused,) = device.entries(LedgerEvent.REFUSED)
    assert "ended at" in str(refused.details["reason"])
    assert device.far.frames == []


async def test_a_second_schedule_strikes_the_task_and_ends_what_waits(device: Device) -> None:
    """Planted: strike without ending -> the queued report goes out at the next start."""
    async with device.agent() as agent:
        await agent.report("visits", 3, send=False)
    device.world.signed_schedule = device.world.schedule(generate(SuiteId.X25519_AES128))
    device.world.write(device.folder / "tasks")
    for _ in range(2):
        async with device.agent() as agent:
            with pytest.raises(ShoalError) as caught:
                await agent.report("visits", 3)
            assert caught.value.kind is Kind.CONFLICT
            assert await agent.flush() == []
    assert [one.event for one in device.entries()] == [
        LedgerEvent.SEEN,
        LedgerEvent.ACCEPTED,
        LedgerEvent.REPORTED,
        LedgerEvent.STRUCK,
    ]
    assert device.entries()[-1].details["reports_ended"] == 1
    assert device.far.frames == []


async def test_an_infinite_epsilon_wants_an_explicit_yes_and_is_charged_what_is_guaranteed(
    tmp_path: Path,
) -> None:
    """Randomized response that never lies for "yes": accepted task by task, taken back again."""
    spec = MechanismSpec.of("binary_rr", yes_if_no=1 << 62, yes_if_yes=(1 << 64) - 1)
    made = create(spec, YesNo())
    world = make_world(domain=YesNo(), mechanism="binary_rr")
    world.task = replace(
        world.task, mechanism=spec, report_size=made.report_size, messages=made.messages
    )
    world.sign()
    device = Device(tmp_path, world)
    async with device.agent() as agent:
        (status,) = agent.status()
        assert status.assignment.epsilon0 > 4.0
        with pytest.raises(ShoalError) as caught:
            await agent.report("visits", 1)
        assert "--accept-epsilon0" in caught.value.message
        assert await agent.accept("visits") == status.assignment.epsilon0
        await agent.report("visits", 1)
        assert await agent.accept("visits", back=True) is None
        device.clock.advance(WEEK)
        with pytest.raises(ShoalError):
            await agent.report("visits", 1)
    (reported,) = device.entries(LedgerEvent.REPORTED)
    assert (reported.details["epsilon_charged"], reported.details["basis"]) == (0.25, "central")
    accepted = [one.details["accepted_epsilon0"] for one in device.entries(LedgerEvent.CONSENT)]
    assert accepted[0] == (
        "infinite" if math.isinf(status.assignment.epsilon0) else status.assignment.epsilon0
    )
    assert accepted[1] is None


# --- consent taken back ---------------------------------------------------------------------------


async def test_withdrawing_deletes_what_waits_and_nothing_leaves_afterwards(device: Device) -> None:
    """Planted: deny without deleting -> the bytes are in the file; delete without denying -> the
    next window is answered.
    """
    hanging = DirectTransport(device.far)
    hanging.down = True
    async with device.agent(hanging) as agent:
        await agent.report("visits", 3)
        (outcome,) = await agent.withdraw(PURPOSE)
        assert (outcome.task, outcome.window, outcome.state) == ("visits", 0, ReportState.WITHDRAWN)
        hanging.down = False
        assert await agent.flush() == []
        device.clock.advance(WEEK)
        with pytest.raises(ShoalError) as caught:
            await agent.report("visits", 3)
        assert caught.value.kind is Kind.REFUSED
    async with device.agent() as agent:
        assert await agent.flush() == []
        assert agent.status()[0].consent == "denied"
    assert device.far.frames == []
    assert [one.event for one in device.entries()][3:] == [
        LedgerEvent.CONSENT,
        LedgerEvent.WITHDRAWN,
        LedgerEvent.REFUSED,
    ]


@pytest.mark.parametrize("by", ["the same program", "another program"])
async def test_an_attempt_under_way_is_broken_off_by_whoever_takes_the_consent_back(
    device: Device, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When ``withdraw`` returns the attempt has ended. Planted: no gate -> it returns while the
    transport still has the frame (for another program); no cancelling, here or by the look at the
    answers -> it says DEADLINE.
    """
    if by == "the same program":
        # nobody looks: it must be broken off at once
        monkeypatch.setattr("shoal.clients.owner.under_way._LOOK_S", 3_600.0)
    hanging = Hanging(device.far)
    async with device.agent(hanging, background=True) as agent, device.agent() as other:
        await agent.report("visits", 3, send=False)
        await hanging.arrived.wait()
        await (agent if by == "the same program" else other).withdraw(PURPOSE)
        assert hanging.ended == ["cancelled"]
        hanging.go.set()
        assert [one.state for one in await agent.outcomes()] == [ReportState.WITHDRAWN]
    (withdrawn,) = device.entries(LedgerEvent.WITHDRAWN)
    assert (withdrawn.details["doubtful"], withdrawn.details["attempts"]) == (True, 1)
    assert device.far.frames == []


async def test_a_report_that_the_policy_forbids_meanwhile_ends_unsent(device: Device) -> None:
    """The owner lowered max_epsilon0 while it waited. Planted: ask only when a report is made ->
    the frame is sent.
    """
    async with device.agent() as agent:
        await agent.report("visits", 3, send=False)
    device.policy = {"max_epsilon0": 2.0}
    async with device.agent() as agent:
        (outcome,) = await agent.flush()
        assert (outcome.state, outcome.kind) == (ReportState.REFUSED, Kind.REFUSED)
    assert [one.details["state"] for one in device.entries(LedgerEvent.OUTCOME)] == ["refused"]
    assert device.far.frames == []


async def test_another_purpose_goes_on(device: Device) -> None:
    other = make_world(
        name="steps",
        purpose="to count steps",
        authority=device.world.authority,
        hop=device.world.hop,
    )
    other.write(device.folder / "tasks")
    device.policy = {"purposes": {PURPOSE: "allowed", "to count steps": "allowed"}}
    hanging = Hanging(device.far)
    async with device.agent(hanging) as agent:
        first, second = [asyncio.create_task(agent.report(name, 3)) for name in ("visits", "steps")]
        await hanging.arrived.wait()
        await agent.withdraw(PURPOSE)
        assert (await first).state is ReportState.WITHDRAWN
        hanging.go.set()
        assert (await second).state is ReportState.ACKED
    assert {content.task_id for content in device.far.contents.values()} == {other.task_id}


async def test_a_consent_that_comes_back_brings_nothing_of_before_back(device: Device) -> None:
    """The windows that were withdrawn stay answered: a second draw of one would be a second
    report.
    """
    async with device.agent() as agent:
        await agent.report("visits", 3, send=False)
        await agent.withdraw(PURPOSE)
        await agent.consent(PURPOSE, None)
        again = await agent.report("visits", 3)
        assert (again.state, again.fresh) == (ReportState.WITHDRAWN, False)
        device.clock.advance(WEEK)
        assert (await agent.report("visits", 3)).state is ReportState.ACKED
    assert [content.window for content in device.far.contents.values()] == [1]


async def test_taking_an_answer_back_withdraws_too(device: Device) -> None:
    """Only the file or the command may allow; without either nothing that waits leaves."""
    device.policy = {"purposes": {}}
    async with device.agent() as agent:
        await agent.consent(PURPOSE, "allowed")
        await agent.report("visits", 3, send=False)
        (outcome,) = await agent.consent(PURPOSE, None)
        assert outcome.state is ReportState.WITHDRAWN
        assert await agent.flush() == []
    assert device.far.frames == []
    assert [one.details.get("answer") for one in device.entries(LedgerEvent.CONSENT)] == [
        "allowed",
        "not asked",
    ]


async def test_memoized_answers_are_forgotten_and_drawn_anew_after_a_new_consent(
    tmp_path: Path,
) -> None:
    """Planted: keep the memo -> "again" in the last window."""
    world = make_world(domain=YesNo(), mechanism="binary_rr")
    world.task = replace(world.task, memoized=True)
    world.sign()
    device = Device(tmp_path, world)
    async with device.agent() as agent:
        for _ in range(2):
            await agent.report("visits", 1)
            device.clock.advance(WEEK)
        await agent.withdraw(PURPOSE)
        await agent.consent(PURPOSE, None)
        await agent.report("visits", 1)
    assert [one.details["memoized"] for one in device.entries(LedgerEvent.REPORTED)] == [
        "new",
        "again",
        "new",
    ]
    (forgotten,) = device.entries(LedgerEvent.FORGOTTEN)
    assert forgotten.details["reports"] == 1


async def test_what_was_forgotten_is_not_explained_as_free(tmp_path: Path) -> None:
    """Planted: the windows that were answered in the place of what is remembered -> "would answer
    it" after the withdrawal.
    """
    world = make_world(domain=YesNo(), mechanism="binary_rr")
    world.task = replace(world.task, memoized=True)
    world.sign()
    device = Device(tmp_path, world, {"lifetime_epsilon": 4.0})
    async with device.agent() as agent:
        await agent.report("visits", 1)
        device.clock.advance(WEEK)
        assert (await agent.explain("visits"))[-1] == "As things are, this device would answer it."
        await agent.withdraw(PURPOSE)
        await agent.consent(PURPOSE, None)
        assert "its budget does not pay for another window" in (await agent.explain("visits"))[-1]
        with pytest.raises(ShoalError, match="budget"):
            await agent.report("visits", 1)
