"""max_batch is exact, and a device admitted once, over three replicas that are killed -9 at random
steps; and what happens without the mechanisms that make it so.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import Kind
from shoal.shuffler.stores.postgresql import inbox, intake
from shoal.shuffler.stores.seats import SeatSlice
from tests.conformance.store.harness import ROW, mine
from tests.faults.conftest import Forge
from tests.faults.postgresql_child import WINDOW, messages, opened, submission
from tests.sizes import size
from tests.worlds import postgres

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
ROUNDS, KILLS = size(1, 50), 3  # kills of each of three replicas: 9 in a round
DIED = size(1, 100)  # of all that are to be killed: some end with their work before
POINTS = {  # and how often each is passed in a life, about
    "window-keys.keep": 1,
    "postgresql.open": 1,
    "postgresql.opened": 1,
    "postgresql.append": 20,
    "postgresql.appended": 20,
    "postgresql.alone": 5,
    "postgresql.alone-commit": 5,
    "postgresql.alone-committed": 5,
}


@pytest.fixture(scope="module")
def forges() -> Iterator[list[Forge]]:
    postgres.shared()  # here: it ends with the thread that starts it
    made = [Forge("tests.faults.postgresql_child") for _ in range(3)]
    yield made
    for forge in made:
        forge.close()


def live(forge: Forge, folder: Path, choices: random.Random) -> int:
    """The lives of one replica: each but the last ends by a kill, or with its work. How many were
    killed.
    """
    ends = []
    for _ in range(KILLS):
        point = choices.choice(list(POINTS))
        order = f"{point}=exit@{choices.randint(1, POINTS[point])}"
        ends.append(forge.run("send", folder, order))
    assert set(ends) <= {-9, 0}
    assert forge.run("send", folder) == 0
    return ends.count(-9)


def lives(
    forges: list[Forge], folder: Path, seed: int, **plan: object
) -> tuple[dict[int, set[int]], int]:
    """Three replicas side by side. What was answered, by report; and how many were killed."""
    (folder / "plan.json").write_text(json.dumps({"dsn": postgres.shared().database(), **plan}))
    places = [folder / f"replica-{number}" for number in range(3)]
    failed: list[BaseException] = []
    killed: list[int] = []

    def one(number: int) -> None:
        try:
            choices = random.Random(100 * seed + number)  # noqa: S311 - a test's choices
            killed.append(live(forges[number], places[number], choices))
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            failed.append(error)

    for place in places:
        place.mkdir()
    threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    answers: dict[int, set[int]] = {}
    for place in places:
        text = (place / "answers").read_text()
        for line in text[: text.rfind("\n") + 1].splitlines():
            number, kind = line.split()
            answers.setdefault(int(number), set()).add(int(kind))
    return answers, sum(killed)


async def sealed(folder: Path, count: int) -> tuple[list[int], int]:
    """The reports that are in the batch, each of them whole, and what the record says of their
    number.
    """
    plan = json.loads((folder / "plan.json").read_text())
    store = await opened(folder / "replica-0", plan)
    await store.close_intake(await mine(store, WINDOW))
    record = store.record(WINDOW)
    assert record is not None
    found = await store.seal(await mine(store, WINDOW))
    state = type(record.state)
    assert found.damaged == 0
    await store.advance(
        await mine(store, WINDOW), state.CLOSING, state.SEALED, found, found.reports, b"m"
    )
    data = await store.read_rows(WINDOW, 0, found.rows)
    await store.close()
    rows = {data[at : at + ROW] for at in range(0, len(data), ROW)}
    sent = {number: messages(number, plan) for number in range(count)}
    there = [number for number, parts in sent.items() if set(parts) <= rows]
    assert len(rows) == found.rows == sum(len(sent[number]) for number in there)
    assert found.reports == len(there)
    return there, record.reports


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.timeout(3_600)
async def test_a_window_holds_exactly_max_batch(
    forges: list[Forge], tmp_path: Path, several: bool
) -> None:
    """Acknowledged => in the batch, with all of its messages; refused as full => not in it; as many
    as it takes, and the record says so. Planted: seats left when the epoch changes -> more than
    100, fails. Planted: keys taken for known before the commit -> an acknowledged report is
    missing, fails. Planted: the rows of a block without their sizes -> none can be sealed, fails.
    """
    died, rounds = 0, size(1, 10) if several else ROUNDS
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        plan = {"full": 100, "count": 180, "devices": False, "several": several}
        answers, killed = await asyncio.to_thread(lives, forges, folder, number, **plan)
        rows, recorded = await sealed(folder, 180)
        assert len(rows) == len(set(rows)) == recorded == 100
        died += killed
        took = {one for one, kinds in answers.items() if 0 in kinds}
        refused = {one for one, kinds in answers.items() if Kind.WINDOW_FULL.value in kinds}
        assert took <= set(rows)
        assert not refused & set(rows)
        assert took | refused == set(range(180))
    assert died >= DIED * rounds // ROUNDS, died


@pytest.mark.timeout(3_600)
async def test_a_device_counts_once(forges: list[Forge], tmp_path: Path) -> None:
    """Of its two reports one is in the batch, and the other was never acknowledged; no conflict is
    told of the one that is. Planted: tags entered in a transaction of their own -> a device that is
    admitted has no report, fails.
    """
    died = 0
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        answers, killed = await asyncio.to_thread(
            lives, forges, folder, number, full=0, count=120, devices=True
        )
        rows, _ = await sealed(folder, 120)
        assert len({one % 60 for one in rows}) == len(rows) == 60
        died += killed
        took = {one for one, kinds in answers.items() if 0 in kinds}
        refused = {one for one, kinds in answers.items() if Kind.CONFLICT.value in kinds}
        assert took <= set(rows)
        assert not refused & set(rows)
    assert died >= DIED, died


@pytest.mark.parametrize("without", ["", "the seats", "the epoch", "the locks"])
async def test_what_makes_it_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    """Where a replica stores without a seat, without looking at the epoch, or without waiting for
    what is under way, a window takes more than it may: the check of the tests above finds that.
    """
    text = inbox.STILL_OPEN
    if without == "the epoch":
        text = text.replace("epoch = $2", "$2::bigint > 0")
    if without == "the locks":
        text = text.replace(
            "pg_advisory_xact_lock_shared($3) IS NOT NULL FOR SHARE",
            "$3::bigint > 0 AND pg_sleep(1) IS NOT NULL",
        )
    assert (text != inbox.STILL_OPEN) == (without in ("the epoch", "the locks"))
    if without == "the seats":
        monkeypatch.setattr(SeatSlice, "spend", lambda *_: True)
    monkeypatch.setattr(intake, "STILL_OPEN", text)
    plan = {"dsn": postgres.shared().database(), "full": 40, "count": 120, "devices": False}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    places = [tmp_path / f"replica-{number}" for number in range(2)]
    for place in places:
        place.mkdir()
    one, two = [await opened(place, plan) for place in places]
    assert await one.append([submission(0, plan)]) == [None]  # with a slice of seats
    rest = [submission(number, plan) for number in range(10, 70)]  # more than are left: a count
    if without == "the locks":
        await asyncio.gather(one.append([submission(1, plan)]), two.append(rest))
    else:
        await two.append(rest)
        await one.append([submission(1, plan)])
    await one.close()
    await two.close()
    rows, _ = await sealed(tmp_path, 120)
    if without == "the seats":  # each fills the window by itself
        assert len(rows) > 40
    else:
        assert len(rows) == (41 if without else 40)


@pytest.mark.parametrize("looks_again", [True, False])
async def test_a_row_that_changed_meanwhile_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks_again: bool
) -> None:
    """A block waits at the gate while another replica counts: FOR SHARE finds the new epoch. And
    the control: without it the statement goes by what the row was when it began, and the window
    holds one too many.
    """
    if not looks_again:
        monkeypatch.setattr(intake, "STILL_OPEN", inbox.STILL_OPEN.removesuffix(" FOR SHARE"))
        assert not vars(intake)["STILL_OPEN"].endswith("SHARE")
    plan = {"dsn": postgres.shared().database(), "full": 40, "count": 120, "devices": False}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    places = [tmp_path / f"replica-{number}" for number in range(2)]
    for place in places:
        place.mkdir()
    one, two = [await opened(place, plan) for place in places]
    assert await one.append([submission(0, plan)]) == [None]  # with a slice of seats
    enter, blocks = two._enter, list[asyncio.Task[list[Kind | None]]]()

    async def counting(*group: Any) -> Any:
        if not blocks:
            blocks.append(asyncio.create_task(one.append([submission(1, plan)])))
            waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while not await one._db.fetch(waits):
                assert not blocks[0].done()
        return await enter(*group)

    monkeypatch.setattr(two, "_enter", counting)
    await two.append([submission(number, plan) for number in range(10, 70)])
    (answer,) = await blocks[0]
    await one.close()
    await two.close()
    rows, _ = await sealed(tmp_path, 120)
    expected = (Kind.WINDOW_FULL, 40) if looks_again else (None, 41)
    assert (answer, len(rows)) == expected
