"""The shuffler that works on a window dies, or stands still until another one has taken the window
over and then goes on (a zombie), at every step from CLOSING to SHREDDED: one batch, each transition
once, every report in it once, and nothing left on either machine or in the database.

Two processes, each with its own keys and data, on one database and with one analyzer's end: see
postgresql_owner_child.py. The database itself notes every transition that is committed.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shoal import codec
from shoal.shuffler import core
from tests.faults.conftest import Forge
from tests.faults.postgresql_owner_child import PATIENCE_S, fill, kept
from tests.sizes import FULL, size
from tests.worlds import objects, postgres
from tests.worlds.services.shuffler import GRACE, LENGTH, START, World

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
SIGKILL, FINE = -9, 0
ROUNDS = size(1, 2)  # of each step
# of the sweep's steps, in the reduced suite; all that are passed in full
STEPS = ("postgresql.seal-write", "postgresql.sealed.done", "sink.answer", "postgresql.shredded")
DELETING = ("window-keys.delete", "window-keys.deleted")  # once for each of two keys, or more
OBJECT_STEPS = (
    "postgresql.object-put",
    "postgresql.object-put.done",
    "postgresql.object-delete",
)
_NOTE = """
CREATE TABLE public.noted (id bigint GENERATED ALWAYS AS IDENTITY, before int, after int);
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN INSERT INTO public.noted (before, after) VALUES (OLD.state, NEW.state); RETURN NULL; END $$;
CREATE TRIGGER note AFTER UPDATE ON shoal.win FOR EACH ROW
  WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION public.note();
"""
_LEFT = (
    "SELECT relname FROM pg_stat_user_tables WHERE relname ~ '^(inbox|tag|batch)_'"
    " UNION ALL SELECT purpose FROM shoal.holder"
)
ONCE = ["1|2", "2|3", "3|4", "4|5", "5|8"]


@pytest.fixture(scope="module")
def forges() -> Iterator[tuple[Forge, Forge]]:
    both = [Forge("tests.faults.postgresql_owner_child") for _ in range(2)]
    yield both[0], both[1]
    for one in both:
        one.close()


@dataclass
class Pair:
    """Two replicas with a window that both took reports to, and its time is over."""

    folder: Path
    forges: tuple[Forge, Forge]
    patience_s: float = PATIENCE_S
    objects: objects.Server | None = None  # where batches go, instead of the database
    sent: list[bytes] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        world = World(self.folder / "one")
        published = world.publish(count=1, min_batch=30)
        world.write_config()
        self.dsn, self.delivered = postgres.shared().database(), self.folder / "delivered"
        self.database = self.dsn.rpartition("/")[2]
        self.delivered.mkdir()
        plan = {
            "task": published.task_id.hex,
            "signer": world.shuffler.public.hex(),
            "dsn": self.dsn,
            "deadline": START + LENGTH + GRACE,
            "delivered": str(self.delivered),
            "patience_s": self.patience_s,
            "objects": self.objects and self.objects.options(),
        }
        (self.folder / "one" / "plan.json").write_text(json.dumps(plan))
        shutil.copytree(self.folder / "one", self.folder / "two")
        self.sent = [secrets.token_bytes(core.row_size(published.task)) for _ in range(40)]
        asyncio.run(fill(self.folder / "one", START + 1, self.sent[:25]))
        asyncio.run(fill(self.folder / "two", START + 1, self.sent[15:]))
        self.sql(_NOTE)

    def sql(self, text: str) -> list[str]:
        return postgres.shared().sql(text, self.database)

    def start(self, number: int, strike: str = "", role: str = "owner") -> int:
        name = ("one", "two")[number]
        pid = self.forges[number].start(role, self.folder / name, strike)
        self.pids.append(pid)
        return pid

    def end(self, number: int) -> int:
        return self.forges[number].wait()

    def claims(self) -> list[str]:
        return self.sql("SELECT fence FROM shoal.claim")

    def over(self) -> bool:
        """Nobody takes such a window over."""
        return self.sql("SELECT state FROM shoal.win") == ["8"]

    def check(self) -> None:
        """The law. Both replicas have come to their ends."""
        (batch,) = self.delivered.iterdir()  # one, with one manifest
        data = batch.read_bytes()
        end = 4 + int.from_bytes(data[:4], "big")
        manifest = codec.decode_manifest(data[4:end])
        width = manifest.row_size
        rows = [data[at : at + width] for at in range(end, len(data), width)]
        assert sorted(rows) == sorted(self.sent)
        assert manifest.rows == len(self.sent)
        assert self.sql("SELECT before, after FROM public.noted ORDER BY id") == ONCE
        assert self.sql("SELECT reports, damaged FROM shoal.win") == [f"{len(self.sent)}|0"]
        assert self.sql(_LEFT) == []
        assert self.objects is None or (self.objects.puts and not self.objects.objects)
        assert [kept(self.folder / name) for name in ("one", "two")] == [[], []]


@pytest.fixture
def pair(forges: tuple[Forge, Forge], memory_folder: Path) -> Iterator[Callable[..., Pair]]:
    """Makes pairs; what they started and left is killed."""
    made: list[Pair] = []

    def make(patience_s: float = PATIENCE_S, store: objects.Server | None = None) -> Pair:
        folder = memory_folder / str(len(made))
        folder.mkdir()
        made.append(Pair(folder, forges, patience_s, store))
        return made[-1]

    yield make
    for one in made:
        for pid in one.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def stopped(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    raise AssertionError("it ended instead of standing still")


def until(reached: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.01)):
        if reached():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come to that")


def killed(pair: Pair, step: str, at: int) -> None:
    """The owner dies there, the other one does the rest; then the dead one's machine is back."""
    pair.start(0, f"{step}=exit@{at}")
    assert pair.end(0) == SIGKILL
    pair.start(1)
    assert pair.end(1) == FINE
    pair.start(0)
    assert pair.end(0) == FINE
    pair.check()


def resumed(pair: Pair, step: str, at: int, *, at_the_end: bool) -> None:
    """The owner stands still there until the window is another's, or is SHREDDED, and goes on."""
    zombie = pair.start(0, f"{step}=stop@{at}")
    until(lambda: stopped(zombie))
    before = pair.claims()
    pair.start(1)
    if at_the_end:
        assert pair.end(1) == FINE
    else:
        until(lambda: pair.claims() != before or pair.over())
    os.kill(zombie, signal.SIGCONT)
    assert pair.end(0) == FINE
    if not at_the_end:
        assert pair.end(1) == FINE
    pair.check()


def steps(pair: Pair) -> list[tuple[str, int]]:
    """What a life passes when nothing fails, and at which passing it is struck: the first; in full,
    the last one too.
    """
    pair.start(0, role="record")
    assert pair.end(0) == FINE
    pair.start(1)
    assert pair.end(1) == FINE
    pair.check()
    passed = json.loads((pair.folder / "one" / "passed.json").read_text())
    passed = {name: count for name, count in passed.items() if name != "window-keys.keep"}
    wanted = passed if FULL else STEPS
    assert set(wanted) <= passed.keys()
    assert len(passed) >= 15
    # of a key that is deleted twice, as may be when a look comes between, the second is not sure
    sure = {name: min(count, 2) if name in DELETING else count for name, count in passed.items()}
    return [(name, at) for name in wanted for at in sorted({1, sure[name] if FULL else 1})]


@pytest.mark.timeout(1_800)
def test_an_owner_that_dies_is_followed(pair: Callable[..., Pair]) -> None:
    """Planted: key files of windows that ended meanwhile are left at a start -> fails. Planted: the
    key of the batch deleted with the inbox -> nobody can deliver, fails.
    """
    struck = steps(pair())
    assert len(struck) * ROUNDS >= size(4, 20)
    for name, at in struck:
        for _ in range(ROUNDS):
            killed(pair(), name, at)


@pytest.mark.timeout(1_800)
def test_an_owner_that_stood_still_changes_nothing(pair: Callable[..., Pair]) -> None:
    """In full also where it goes on only when everything is over."""
    for place, (name, at) in enumerate(steps(pair())):
        for at_the_end in (False, True) if FULL else (place % 2 == 1,):
            resumed(pair(), name, at, at_the_end=at_the_end)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("step", OBJECT_STEPS)
@pytest.mark.parametrize("zombie", [False, True])
def test_owners_around_objects(pair: Callable[..., Pair], step: str, zombie: bool) -> None:
    """Before an object is put, after it, before it is deleted: no orphan stays, also of an owner
    that puts one when the window is long SHREDDED. Planted: the claim not looked at after a put ->
    fails.
    """
    for at_the_end in (False, True) if zombie and FULL else (True,):
        with objects.Server() as server:
            both = pair(store=server)
            if zombie:
                resumed(both, step, 1, at_the_end=at_the_end)
            else:
                killed(both, step, 1)


def two_seal(pair: Pair, role: str) -> int:
    """An owner stands still between closing and sealing; another takes over, seals, and stands
    still before it says SEALED; the first begins to seal and dies. How the second ends.
    """
    one = pair.start(0, "postgresql.closed=stop@1,postgresql.seal-write=exit@1", role)
    until(lambda: stopped(one))
    two = pair.start(1, "postgresql.sealed=stop@1", role)
    until(lambda: stopped(two))
    os.kill(one, signal.SIGCONT)
    assert pair.end(0) == SIGKILL
    os.kill(two, signal.SIGCONT)
    return pair.end(1)


def test_two_that_believe_to_be_the_owner(pair: Callable[..., Pair]) -> None:
    """Each finds out that it is not: the first by its old number, and seals under a new one; so
    does the second then.
    """
    both = pair()
    assert two_seal(both, "owner") == FINE
    both.start(0)
    assert both.end(0) == FINE
    both.check()


def test_without_the_fence_the_batch_is_lost(pair: Callable[..., Pair]) -> None:
    """The control: the check of claims left out of the statements, and that of the batch. Who is no
    owner any more drops the batch of who is, which is then SEALED without one: it is never
    delivered.
    """
    both = pair(4.0)
    assert two_seal(both, "owner without fences") != FINE
    assert list(both.delivered.iterdir()) == []
    assert both.sql("SELECT state FROM shoal.win") in (["3"], ["4"])
    assert not [name for name in both.sql(_LEFT) if name.startswith("inbox_")]
