"""A memory that was set back answers nothing, by no way, until its owner confirms; then it counts
too much, never too little.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.agent.memory import verified
from shoal.clients.agent import Agent
from shoal.clients.answering import Terms, charge_sum
from shoal.clients.config import AgentConfig
from shoal.clients.core import State
from shoal.clients.feeds.known_tasks import TaskBook
from shoal.clients.memory.commitments import NANO, Charge
from shoal.clients.memory.device_memory import Memory
from shoal.clients.memory.ledger import Event
from shoal.clients.memory.marks import OUTBOX, row_mark
from shoal.clients.memory.rounds_ledger import Answered, Standing
from shoal.clients.memory.setback import confirm, examine
from shoal.clients.owner.policy import Policy
from shoal.clients.rounds.agent import RoundsAgent
from shoal.clients.transports.rounds_transport import RoundTransport
from shoal.clocks.clock import FakeClock
from shoal.crypto.admission.enrolment import DeviceIdentity, issue
from shoal.crypto.signing import SigningKey
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.task import Task
from tests.worlds.clients import START, WEEK, DirectTransport, FarEnd, make_world
from tests.worlds.owner import Owner, owner_at
from tests.worlds.runner import HOUR, Place


class Device:
    """A device with a task of weekly windows, whose shuffler is a far end without a network."""

    def __init__(self, folder: Path, *, memoized: bool = False) -> None:
        self.folder, self.world = folder, make_world(count=20)
        self.world.task = replace(self.world.task, memoized=memoized)
        self.world.sign()
        self.world.write(folder / "tasks")
        self.clock, self.far = FakeClock(START + 100.0), FarEnd([self.world.hop])
        self.transport = DirectTransport(self.far)
        policy = Policy(
            self.world.authorities,
            4.0,
            2,
            {self.world.task.purpose: "allowed"},
            lifetime_epsilon=30.0,
        )
        self.config = AgentConfig(
            folder / "tasks", folder / "outbox.db", policy, retry_first_s=0.01, retry_most_s=0.01
        )

    @property
    def store(self) -> Path:
        return self.config.outbox

    @property
    def head(self) -> Path:
        return self.store.with_name(self.store.name + ".head")

    def agent(self) -> Agent:
        def way(task: Task, insecure: bool) -> DirectTransport:
            self.transport.closed = False
            return self.transport

        return Agent(self.config, background=False, clock=self.clock, transports=way)

    async def weeks(self, count: int, value: object = 3) -> None:
        for _ in range(count):
            async with self.agent() as agent:
                await agent.report("visits", value)  # type: ignore[arg-type]
            self.clock.advance(WEEK)

    def confirm(self) -> float:
        """Epsilon that is taken as lost."""
        memory = Memory(self.config, self.clock, SYSTEM)
        try:
            found = examine(memory, self.known, self.clock.now())
            assert found is not None
            confirm(memory, found, self.clock.now())
            assert examine(memory, list, self.clock.now()) is None
            return found.nano / NANO
        finally:
            memory.close()

    def known(self) -> list[Any]:
        memory = Memory(self.config, self.clock, SYSTEM)
        try:
            book = TaskBook(self.config.tasks, self.config.policy, memory.outbox, self.config.shelf)
            book.refresh()
            return list(book.all())
        finally:
            memory.close()


@pytest.fixture
def device(tmp_path: Path, quick: None) -> Device:
    return Device(tmp_path)


def restored(device: Device, kept: bytes) -> None:
    device.store.write_bytes(kept)  # a clean end leaves nothing in the -wal file


def removed(device: Device, kept: bytes) -> None:
    device.store.unlink()


def headless(device: Device, kept: bytes) -> None:
    restored(device, kept)
    device.head.unlink()


def torn(device: Device, kept: bytes) -> None:
    device.head.write_bytes(device.head.read_bytes()[:-9])


WAYS = {"restored": restored, "removed": removed, "headless": headless, "torn head": torn}


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_is_answered_or_sent_until_the_owner_confirms(
    device: Device, way: str
) -> None:
    """By no call: report, queue, flush. Nothing is charged, drawn, entered or sent; the next window
    after the owner's word is.

    Planted: ``Permit.check`` without its look at the memory, ``reserve`` without the chain ->
    answered.
    """
    await device.weeks(1)
    device.transport.down = True
    await device.weeks(1)  # waits
    kept = device.store.read_bytes()
    await device.weeks(3)
    WAYS[way](device, kept)
    device.transport.down = False
    frames = len(device.far.frames)
    async with device.agent() as agent:
        before = (
            agent.memory.book.spent(),
            agent.memory.book.charges(),
            len(agent.memory.book.entries()),
        )
        for send in (True, False):
            with pytest.raises(ShoalError) as caught:
                await agent.report("visits", 3, send=send)
            assert caught.value.kind is Kind.MISMATCH
            assert "--confirm-set-back" in caught.value.message
        assert all(one.state is not State.ACKED or not one.fresh for one in await agent.flush())
        assert "--confirm-set-back" in agent.status()[0].refusal
        with pytest.raises(ShoalError):
            agent.memory.book.charge(agent.tasks.find("visits").task_id, 9, 1, None)
        assert before == (
            agent.memory.book.spent(),
            agent.memory.book.charges(),
            len(agent.memory.book.entries()),
        )
    assert len(device.far.frames) == frames
    device.confirm()
    async with device.agent() as agent:
        with pytest.raises(ShoalError) as caught:
            await agent.report("visits", 3)
        # this window may have been answered in what was lost
        assert caught.value.kind is Kind.CONFLICT
        assert agent.answered(agent.tasks.find("visits").task_id, 5)
        device.clock.advance(WEEK)
        assert (await agent.report("visits", 3)).state is State.ACKED
        await agent.verify()


async def test_a_task_of_sums_is_not_charged_either(device: Device) -> None:
    """Its charge is asked for in the middle of a round. Planted: no look at what was lost in
    ``charge_sum`` -> the window is charged.
    """
    await device.weeks(2)
    kept = device.store.read_bytes()
    await device.weeks(1)
    restored(device, kept)
    async with device.agent() as agent:
        one = agent.tasks.find("visits")
        terms = Terms(None)
        with pytest.raises(ShoalError, match="set-back"):
            charge_sum(one, 5, agent.memory.book, terms, device.clock.now())
    device.confirm()
    async with device.agent() as agent:
        with pytest.raises(ShoalError, match="set back"):
            charge_sum(one, 2, agent.memory.book, terms, device.clock.now())
        assert charge_sum(one, 9, agent.memory.book, terms, device.clock.now()) > 0


@pytest.mark.parametrize("way", ["restored", "removed", "headless"])
async def test_what_was_spent_in_what_is_lost_is_never_counted_too_little(
    device: Device, way: str
) -> None:
    """Five windows were charged, two of them are known: afterwards at least five are spent, and at
    most two more.

    Planted: ``confirm`` without ``lose``; a head without what was spent (nothing known beyond the
    file) -> too little.
    """
    await device.weeks(2)
    kept = device.store.read_bytes()
    await device.weeks(3)
    async with device.agent() as agent:
        spent = agent.memory.book.spent()
        one = agent.memory.book.charges()[0].nano
    WAYS[way](device, kept)
    device.confirm()
    async with device.agent() as agent:
        assert spent <= agent.memory.book.spent() <= spent + 2 * one
        (entry,) = [row.entry for row in await agent.ledger() if row.entry.event is Event.SET_BACK]
        assert entry.details["epsilon_spent_after"] == agent.memory.book.spent() / NANO


async def test_a_memory_that_went_on_elsewhere_counts_for_both(device: Device) -> None:
    """Another copy answered more windows than this device noted: what both spent is added up.
    Planted: the larger of both -> too little.
    """
    await device.weeks(1)
    kept, head = device.store.read_bytes(), device.head.read_bytes()
    await device.weeks(1)
    mine = device.head.read_bytes()
    restored(device, kept)
    device.head.write_bytes(head)
    await device.weeks(4)  # on another machine, say
    device.head.write_bytes(mine)
    async with device.agent() as agent:
        theirs = agent.memory.book.spent()
        one = agent.memory.book.charges()[0].nano
    device.confirm()
    async with device.agent() as agent:
        assert agent.memory.book.spent() >= theirs + 2 * one


async def test_a_memoized_answer_that_was_lost_is_paid_for_again(
    tmp_path: Path, quick: None
) -> None:
    """The permanent report drawn in what is lost can't be found: another one is drawn, and both are
    spent; without budget, none is.

    Planted: what is lost not part of ``spent`` -> the second draw is within a budget that it is
    not.
    """
    device = Device(tmp_path, memoized=True)
    await device.weeks(1, 3)
    kept = device.store.read_bytes()
    await device.weeks(1, 0)
    restored(device, kept)
    device.confirm()
    device.clock.advance(WEEK)
    async with device.agent() as agent:
        before = agent.memory.book.spent()
        await agent.report("visits", 0)
        (first, second) = agent.memory.book.charges()
        assert second.nano == first.nano > 0
        assert agent.memory.book.spent() == before + second.nano
        assert before >= 2 * first.nano
    limited = replace(
        device.config.policy, lifetime_epsilon=before / NANO + 2 * second.nano / NANO - 0.001
    )
    device.config = replace(device.config, policy=limited)
    device.clock.advance(WEEK)
    async with device.agent() as agent:
        await agent.report("visits", 5)
        assert [row.entry.details.get("memoized") for row in await agent.ledger()][-2:] == [
            "kept",
            None,
        ]


async def test_what_is_spent_is_noted_before_it_is(device: Device) -> None:
    """At every commit the head's sum is at least what is charged, whatever of the head lags.
    Planted: no ``reserve`` -> it lags too.
    """
    memory = Memory(device.config, device.clock, SYSTEM)
    memory.store._head_pause_s = 3_600.0
    for window in range(40):
        memory.book.charge(device.world.task_id, window, 1 + window % 7, None)
        noted = memory.noted()
        assert noted is not None
        assert noted.spent is not None
        assert memory.book.spent() <= noted.spent <= memory.book.spent() + 8 * 7
    memory.close()


async def test_a_window_that_was_charged_is_answered_whatever_the_ledger_of_rounds_says(
    device: Device,
) -> None:
    """Its file was lost, or is an older copy: no second masked vector, and the entry is there again
    afterwards.

    Planted: the ledger of rounds asked alone -> a second vector, for nothing.
    """
    (one,) = device.known()
    key = SigningKey.generate()
    identity = DeviceIdentity(key, issue(SigningKey.generate(), key.public, START, START + WEEK))
    rounds = RoundsAgent(device.config, device.clock, SYSTEM, never)
    charges: list[int] = []
    window, answered, fresh = await rounds.report(
        one, identity, [1.0], charges.append, charged=lambda window: window == 0
    )
    assert (window, fresh, charges) == (0, False, [])
    assert isinstance(answered, Answered)
    assert (answered.standing, [known.window for known in await rounds.answers()]) == (
        Standing.LOST,
        [0],
    )
    await rounds.close()


def never(task: Task, insecure: bool) -> RoundTransport:
    raise AssertionError("nothing is sent")


# --- the service ----------------------------------------------------------------------------------


async def test_the_service_goes_on_and_says_so_once(
    place: Place, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """It reads, waits, and answers the next window after the owner's word, without a restart.

    Planted: the service ends; a line per look.
    """
    store = place.folder / "outbox.db"
    async with place.running():
        await place.until(lambda: place.windows() == [0])
    kept = store.read_bytes()
    async with place.running():
        await place.until(lambda: place.windows() == [0, 1])
    store.write_bytes(kept)
    place.clock.time = START + 2 * HOUR + 10.0
    async with place.running() as service:
        await place.until(lambda: place.clock.now() > START + 3 * HOUR)
        assert place.windows() == [0, 1]
        assert not service.done()
        told = [one for one in logged() if "set back" in str(one)]
        assert len([one for one in told if one.get("where") == "set back"]) == 1
        memory = Memory(place.config, place.clock, SYSTEM)
        found = examine(memory, list, place.clock.now())
        assert found is not None
        confirm(memory, found, place.clock.now())
        memory.close()
        await place.until(lambda: 4 in place.windows())
        assert place.windows() == [0, 1, 4]


async def test_a_single_pass_says_so_and_fails(place: Place) -> None:
    """Planted: the pass ends as if there was nothing to do -> a timer's owner never learns of
    it.
    """
    runner = place.runner()
    assert len(await runner.once(place.config)) == 1
    kept = (place.folder / "outbox.db").read_bytes()
    place.clock.advance(HOUR)
    await runner.once(place.config)
    (place.folder / "outbox.db").write_bytes(kept)
    place.clock.advance(HOUR)
    with pytest.raises(ShoalError, match="confirm-set-back"):
        await runner.once(place.config)
    assert place.windows() == [0, 1]


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Owner:
    return owner_at(tmp_path, capsys)


def test_the_owners_word(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Explained first; asked for unless --yes; nobody at the terminal is a no. Planted: confirmed
    without being asked -> fails.
    """
    assert owner.json("memory") == {
        "set_back": False,
        "confirmed": False,
        "damaged": [],
        "entries": 0,
        "verified": True,
    }
    kept = owner.outbox.read_bytes()
    owner.remember()
    assert owner.json("memory")["entries"] == 3
    owner.outbox.write_bytes(kept)
    head = owner.outbox.with_name("outbox.db.head").read_bytes()
    assert owner.run("ledger")[0] == 1
    for arguments in ((), ("--confirm-set-back",)):  # nobody is there to be asked
        code, out, err = owner.run("memory", *arguments)
        assert code == 1
        assert "entries 1 to 3 are lost" in out
        assert "Epsilon 9.5" in out
        assert err.count("\n") == 1
    code, out, _ = owner.run("memory", "--confirm-set-back", "--json")
    assert (code, json.loads(out)["confirmed"]) == (1, False)
    assert owner.outbox.with_name("outbox.db.head").read_bytes() == head

    class Terminal:
        def __init__(self, line: str) -> None:
            self.line = line

        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return self.line

    for line, confirmed in (("no\n", False), ("", False), ("yes\n", True)):
        monkeypatch.setattr(sys, "stdin", Terminal(line))
        assert owner.run("memory", "--confirm-set-back")[0] == int(not confirmed)
    assert owner.run("ledger")[0] == 0
    assert owner.json("budget")["spent"] == pytest.approx(9.500000001)
    assert owner.json("memory")["set_back"] is False


def test_the_owners_word_ahead(owner: Owner) -> None:
    """--yes, for a fleet's scripts; also where the file is gone."""
    owner.remember()
    owner.outbox.unlink()
    assert owner.run("budget")[0] == 1
    code, out, _ = owner.run("memory", "--confirm-set-back", "--yes", "--json")
    assert (code, json.loads(out)["confirmed"], json.loads(out)["entries_noted"]) == (0, True, 3)
    assert owner.json("ledger")["entries"][-1]["event"] == "set_back"


CHANGES: dict[str, tuple[str, str]] = {
    "a charge made smaller": (
        "UPDATE charge SET nano = 1 WHERE number = 1",
        "entry 1 says that window 0",
    ),
    "a charge gone": ("DELETE FROM charge WHERE number = 2", "entry 2 says that window 1"),
    "a charge added": (
        "INSERT INTO charge (task_id, window, nano, permanent) SELECT task_id, 77, 5, 0 FROM "
        "charge LIMIT 1; "
        "UPDATE tally SET windows = windows + 1, nano = nano + 5 WHERE task_id = (SELECT task_id "
        "FROM charge LIMIT 1)",
        "no entry",
    ),
    "a sum made smaller": ("UPDATE tally SET nano = nano - 1", "its entries come to"),
    "windows not counted": ("UPDATE tally SET windows = 1 WHERE windows = 2", "2 windows of task"),
    "a loss forgotten": ("INSERT INTO lost (before_s, nano) VALUES (1.0, 0)", "was lost"),
    "a consent added": (
        "INSERT INTO consent (purpose, answer) VALUES ('anything', 'allowed')",
        "a consent",
    ),
}


def marked_anew(database: sqlite3.Connection) -> None:
    """As somebody would who knows how rows are marked."""
    database.create_function("row_mark", -1, row_mark)
    for name, table in OUTBOX.items():
        database.execute(f"UPDATE {name} SET mark = row_mark('{name}', {', '.join(table.columns)})")  # noqa: S608 - constants
    database.commit()


@pytest.mark.parametrize("how", CHANGES)
def test_the_ledger_is_compared_with_the_tables(owner: Owner, how: str) -> None:
    """The chain holds, and a table beside it says otherwise: named, exit status 1. Planted: no
    comparison -> "verified".
    """
    owner.remember()
    database = sqlite3.connect(owner.outbox)
    for (trigger,) in database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall():
        database.execute(f"DROP TRIGGER {trigger}")
    statement, words = CHANGES[how]
    database.executescript(statement)
    marked_anew(database)
    database.close()
    code, out, err = owner.run("ledger")
    assert (code, out) == (1, "")
    assert words in err
    assert err.count("\n") == 1
    assert owner.run("memory")[0] == 1


async def test_what_an_agent_did_fits_its_ledger(device: Device) -> None:
    """Reports of every end, a withdrawal, consents: no difference where there is none. Planted:
    ``outcome`` read as queued -> one.
    """
    await device.weeks(2)
    device.transport.down = True
    await device.weeks(1)
    device.transport.down = False
    device.far.script = lambda _n, _f: ShoalError(Kind.WINDOW_FULL, "full")
    await device.weeks(1)
    device.far.script = lambda _n, _f: None
    device.transport.down = True
    device.config = replace(device.config, policy=replace(device.config.policy, purposes={}))
    async with device.agent() as agent:
        await agent.consent(device.world.task.purpose, "allowed")
        await agent.accept("visits", 3.5)
        await agent.report("visits", 3)
        await agent.consent(device.world.task.purpose, "denied")
        assert isinstance(agent.memory.book.charges()[0], Charge)
    memory = Memory(device.config, device.clock, SYSTEM)
    assert verified(memory.store).count > 10
    memory.close()
