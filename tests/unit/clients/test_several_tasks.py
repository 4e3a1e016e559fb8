"""Tasks whose devices send several messages, on a device: what its owner is asked, told and
charged.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.accounting.of_task import guarantee_of
from shoal.accounting.several_messages.of_domain import design_several
from shoal.clients.memory.commitments import nano_up
from shoal.clients.memory.device_memory import Memory
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.memory.setback import confirm, examine
from shoal.clients.owner.policy import NEVER
from shoal.clients.owner.purposes import purposes
from shoal.console.owner.question import _asked
from shoal.domain import Numeric, YesNo
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.registry import create
from tests.cases import for_each
from tests.unit.clients.owner.device_of_an_owner import Device
from tests.worlds.devices.clients import WEEK, make_world
from tests.worlds.devices.several import noisy, several
from tests.worlds.tasks import shaped

WHATEVER = "whatever you answer: "


async def test_an_owner_is_told_that_an_answer_is_said_at_every_level(tmp_path: Path) -> None:
    """Planted: the words of one true message -> fails; noise counted with the true ones ->
    fails.
    """
    world, domain = make_world(domain=YesNo(), mechanism="binary_rr"), Numeric(0.0, 62.0, 63)
    made = create(design_several("ranges", domain, 900, 1.0, 1e-8, windows=4), domain)
    world.task = shaped(made.spec, domain, world.task)
    world.sign()
    async with Device(tmp_path, world).agent() as agent:
        told = "\n".join(await agent.explain("visits"))
        assert "that the shuffler does not read the result" not in told
    assert "your answer is said in 2 sealed messages (ranges), as it is: the first names it" in told
    noise = f"{float(made.mean_messages) - 2:.3g} on average, {made.messages - 2} at most"
    assert f"Beside them this device sends messages that are drawn by chance, {WHATEVER}" in told
    assert noise in told
    assert f"window: 2 to {made.messages} messages of 1 byte, " in told


async def test_an_owner_is_told_that_the_shuffler_is_trusted(tmp_path: Path) -> None:
    """In what is explained, in the refusal that asks for a yes, and never without it. Planted: the
    words of tasks whose devices add noise -> fails; refused without the word of trust -> fails.
    """
    device = Device(tmp_path, noisy())
    async with device.agent() as agent:
        told = "\n".join(await agent.explain("visits"))
        with pytest.raises(ShoalError, match="trusts the shuffler to add noise") as refused:
            await agent.report("visits", True)
        assert refused.value.kind is Kind.REFUSED
        await agent.accept("visits")
        await agent.report("visits", True)
    assert "nothing is drawn (shuffler_noise): your answer is sealed as it is" in told
    assert "Not promised: that the shuffler adds its noise" in told
    assert "they see your answer itself: nothing of the promise is left" in told
    assert "drawn by chance" not in told


async def test_an_owner_is_told_of_no_promise_that_there_is_not(tmp_path: Path) -> None:
    """Against shuffler and analyzer together nothing is promised, and with fewer honest devices
    than the noise is split over nothing is left either.
    Planted: the words of tasks with an epsilon0 -> a promise that nobody makes, fails.
    """
    device = Device(tmp_path, several())
    async with device.agent() as agent:
        told = "\n".join(await agent.explain("visits"))
    assert "they see your answer itself: nothing of the promise is left" in told
    assert "where it fails, nothing of the promise is left" in told
    assert "together is left" not in told
    assert f"moves a count by {device.world.task.messages} at most, with all of its" in told


@for_each("hidden", [False, True])
async def test_an_owner_is_told_of_a_shuffler_that_reads_results(
    tmp_path: Path, hidden: bool
) -> None:
    """Where no empty messages hide how many there are. Planted: of no task of + and -, or of all of
    them -> fails.
    """
    async with Device(tmp_path, several(hidden=hidden)).agent() as agent:
        told = "\n".join(await agent.explain("visits"))
    assert ("that the shuffler does not read the result" in told) != hidden


@for_each(
    "least, hidden, number, beside",
    [
        (1_000, False, "1 to {} messages", f"messages that are drawn by chance, {WHATEVER}"),
        (1_000, True, "{} messages", "sends {} further ones, always so many"),
        (100_000, True, "1 to {} messages", "whatever you answer, empty ones among them"),
    ],
)
async def test_an_owner_is_told_how_much_is_sent_and_what_one_device_can_do(
    tmp_path: Path, least: int, hidden: bool, number: str, beside: str
) -> None:
    """As many bytes as leave the device. Planted: the mean for the most -> fails; a frame without
    the slots that stay empty -> another size, fails; the messages of a full submission all taken
    for true ones -> nothing is beside them, fails.
    """
    device = Device(tmp_path, several(min_batch=least, hidden=hidden))
    async with device.agent() as agent:
        await agent.accept("visits")
        (task,) = (assignment.task for assignment in agent.tasks.all())
        told = "\n".join(await agent.explain("visits"))
        await agent.report("visits", True)
        await agent.flush()
    (frame,) = device.far.frames
    assert f"window: {number.format(task.messages)} of 1 byte, " in told
    assert "your answer is one sealed message" in told
    assert beside.format(task.messages - 1) in told
    assert f"in one frame of {len(frame):,} bytes" in told
    assert f"with all of its {task.messages} messages in one cell" in told
    assert told.count("What is sent in a window") == 1


async def test_an_owner_who_wants_none_without_an_epsilon0_is_not_asked(tmp_path: Path) -> None:
    """Whatever was accepted before: refused, no yes is kept, and a no still is. A true message that
    is drawn has an epsilon0, and is none of them.

    Planted: the key not looked at where a yes is kept -> in the ledger; not looked at in ``check``
    -> the earlier yes counts; a no refused too -> all fail.
    """
    device = Device(tmp_path, several())
    async with device.agent() as agent:
        await agent.accept("visits")
        assert agent.status()[0].refusal == ""
    device.policy["infinite_epsilon0"] = NEVER
    before = len(device.entries(LedgerEvent.CONSENT))
    async with device.agent() as agent:
        refusal = str(agent.status()[0].refusal)
        assert 'infinite_epsilon0 = "never"' in refusal
        assert "--accept-epsilon0" not in refusal
        with pytest.raises(ShoalError, match="your configuration refuses all such") as refused:
            await agent.report("visits", True)
        assert refused.value.kind is Kind.REFUSED
        with pytest.raises(ShoalError, match="nothing was accepted") as refused:
            await agent.accept("visits")
        assert refused.value.kind is Kind.REFUSED
        assert len(device.entries(LedgerEvent.CONSENT)) == before
        told = "\n".join(await agent.explain("visits"))
        assert 'infinite_epsilon0 = "never"' in told
        assert "For this task you are not asked about it" in told
        asked = _asked(agent, agent.tasks.find("visits"))  # of the owner's page
        assert asked is not None
        assert (asked.needed, asked.holds) == (True, False)
        assert asked.why_not.startswith("your configuration refuses")
        assert await agent.accept("visits", back=True) is None
        assert len(device.entries(LedgerEvent.CONSENT)) == before + 1
        assert agent.memory.commitments.spent() == 0


async def test_nor_is_the_owner_asked_for_the_purpose_of_such_a_task(tmp_path: Path) -> None:
    """A yes to it would change nothing. Planted: consent looked at before the key -> the refusal
    names a command that allows, fails; the task listed under its purpose -> fails.
    """
    device = Device(tmp_path, several(), {"purposes": {}})
    for word, listed in (("by name", ["visits"]), (NEVER, [])):
        device.policy["infinite_epsilon0"] = word
        async with device.agent() as agent:
            statuses = agent.status()
        rows = purposes(device.settings, statuses, {})
        assert [name for row in rows for name in row["tasks"]] == listed
        assert ("never agreed to" in statuses[0].refusal) == (word != NEVER)


async def test_an_epsilon0_is_none_that_is_infinite(tmp_path: Path) -> None:
    """Planted: tasks of several messages refused by what they are -> fails."""
    device = Device(tmp_path, several(epsilon0=1.9), {"infinite_epsilon0": NEVER})
    async with device.agent() as agent:
        await agent.report("visits", True)


async def test_a_true_message_that_is_drawn_is_a_report_like_others(tmp_path: Path) -> None:
    """Its epsilon0 is told, held against the owner's limit, and charged; nobody is asked by name.

    Planted: infinity for its epsilon0 -> refused, fails; charged what the certificate guarantees ->
    fails; the words of a value that is sent as it is -> fails; epsilon0 of one of its four windows
    as what is left of all -> fails.
    """
    world = several(epsilon0=1.9)
    device = Device(tmp_path, world)
    async with device.agent() as agent:
        told = "\n".join(await agent.explain("visits"))
        await agent.report("visits", True)
        spent = agent.memory.commitments.spent()
        epsilon0 = agent.tasks.all()[0].epsilon0
    assert 1.89 < epsilon0 <= 1.9
    assert spent == nano_up(epsilon0)
    assert "your answer itself" not in told
    assert "as it is" not in told
    assert "after it was randomized (epsilon0 = 1.9)" in told
    assert "the one randomized answer that this device sent in each of 4 windows" in told
    assert "epsilon0 = 1.9 of one, and 7.6 of all together" in told
    assert "together is left" in told


async def test_a_drawn_message_above_the_limit_is_refused_as_any(tmp_path: Path) -> None:
    """Planted: a task of several messages never refused once its epsilon0 is finite -> fails."""
    device = Device(tmp_path, several(epsilon0=5.0))
    async with device.agent() as agent:
        with pytest.raises(ShoalError, match="one report has epsilon0 = 5") as refused:
            await agent.report("visits", True)
    assert refused.value.kind is Kind.REFUSED


async def test_what_was_charged_in_a_lost_memory_is_taken_as_spent(tmp_path: Path) -> None:
    """Three windows were charged what the certificate guarantees, one of them is known, and the
    head beside the memory is gone. Planted: windows of an infinite epsilon0 counted as free -> two
    are given back to the budget, fails.
    """
    device = Device(tmp_path, several())
    store = device.settings.outbox
    async with device.agent() as agent:
        await agent.accept("visits")
        await agent.report("visits", True)
    kept = store.read_bytes()
    for _ in range(2):
        device.clock.advance(WEEK)
        async with device.agent() as agent:
            await agent.report("visits", True)
            spent, tasks = agent.memory.commitments.spent(), agent.tasks.all()
    assert spent == 3 * nano_up(guarantee_of(device.world.task).epsilon_upper)
    store.write_bytes(kept)
    store.with_name(store.name + ".head").unlink()
    memory = Memory(device.settings, device.clock, SYSTEM)
    try:
        found = examine(memory, lambda: tasks, device.clock.now())
        assert found is not None
        confirm(memory, found, device.clock.now())
        assert memory.commitments.spent() >= spent
    finally:
        memory.close()
