"""Every step of sums by secure aggregation, made to die or to fail in a real process: an exact sum
or none, and nobody answers twice.

Shuffler and analyzer are processes of their own; the devices live in the test, or one of them in a
process too. For every point that a window passes and every way to fail, one window is broken there,
the dead process started again, and the window brought to its end. ``Services.check`` says what must
hold then.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from shoal.clients.memory.rounds_ledger import Answered, MemoryLedger, SqliteLedger
from shoal.clients.rounds.participation import RoundOutcome, RoundState
from shoal.crypto.secagg.device.machine import DeviceState
from shoal.errors import Kind
from shoal.secagg import Mode
from tests.faults.conftest import ROOT
from tests.faults.rounds_services import SIGKILL, Part, Services, Smithy, serving
from tests.sizes import FULL, size

SEATS, LEAST = size(4, 6), size(3, 4)  # of a round, and in a sum
STALL_S = 5.0  # real seconds without any device coming to an end, after a crash
REFUSED = 3  # exit status of a child that ended with a typed error
WINDOWS = size(72, 600)
DEVICE = {
    "client.round.masked",
    "client.round.chunk",
    "client.round.released",
    "ledger.commit",
}
CALLS = (
    "rounds.OpenRound",
    "rounds.StartRound",
    "rounds.CommitRound",
    "rounds.UnmaskRound",
    "rounds.FinishWindow",
    "rounds.EndRound",
)
SINGLES_CALLS = ("rounds.DeliverSingles", "rounds.SumSingles", "rounds.FinishWindow")
ROUNDS = {
    "shuffler": {
        *(f"{call}{end}" for call in CALLS for end in ("", ".done")),
        *(
            "rounds.chunk",
            "rounds.admitted",
            "rounds.admitted.done",
            "rounds.forgotten",
            "rounds.forgotten.done",
            "rounds.migrate",
        ),
        *("vectors.write", "vectors.read", "counts.commit", "counts.migrate"),
    },
    "analyzer": {
        *(
            "analyzer.rounds.chunk",
            "analyzer.rounds.delivered",
            "analyzer.rounds.unmasked",
            "analyzer.sums.add",
            "analyzer.sums.add.done",
        ),
        *(
            "analyzer.sums.finish",
            "analyzer.sums.finish.done",
            "analyzer.store.release",
            "analyzer.key.delete",
        ),
    },
}
HELPER = {
    "shuffler": {
        *(f"{call}{end}" for call in SINGLES_CALLS for end in ("", ".done")),
        *(
            "counts.commit",
            "counts.migrate",
            "singles.migrate",
            "singles.sync",
            "singles.commit",
            "singles.commit.done",
            "singles.unlinked",
            "singles.close",
            "singles.close.done",
            "singles.fix",
            "singles.fix.done",
        ),
        *("singles.forget", "singles.forget.done"),
    },
    "analyzer": {
        "analyzer.sums.add",
        "analyzer.sums.add.done",
        "analyzer.sums.finish",
        "analyzer.sums.finish.done",
    },
}
POINTS = {Mode.DEFAULT: ROUNDS, Mode.STRICT: ROUNDS, Mode.HELPER: HELPER}
HALFWAY = {"rounds.forgotten.done", "singles.forget.done"}  # the log is to be emptied yet
OWN = (
    "counts.",
    "rounds.",
    "singles.",
    "vectors.",
    "analyzer.rounds.",
    "analyzer.sums.",
    "client.round.",
    "ledger.",
)


@pytest.fixture(scope="module")
def smithy() -> Iterator[Smithy]:
    one = Smithy()
    yield one
    one.close()


@dataclass(frozen=True)
class Strike:
    role: str
    point: str
    way: str
    at: int

    def __str__(self) -> str:
        return f"{self.point}={self.way}@{self.at}"


def test_every_point_is_swept() -> None:
    """A point that is added to the source, or renamed, has to be added above; the sweeps fail for
    one that no window passes. Those of a store that several shufflers share are swept by its own
    tests.
    """
    names: set[str] = set()
    for folder in ("shuffler", "analyzer", "clients"):
        paths = [*(ROOT / folder).rglob("*.py"), *(ROOT / "common" / "storage").rglob("*.py")]
        text = "\n".join(
            path.read_text() for path in sorted(paths) if path.parent.name != "postgresql"
        )
        found = set(re.findall(r'\bhit\(f?"([^"]+)"\)', text))
        if "rounds.{method}" in found:
            methods = set(re.findall(r'(?:_unary|send)\(\s*"([A-Z]\w+)"', text))
            found |= {
                f"rounds.{method}{end}"
                for method in methods
                for end in ("", *(".done" for _ in found & {"rounds.{method}.done"}))
            }
        # of every file that has migrations: the point itself is in shoal.storage.sqlite
        found |= {
            f"{name}.migrate"
            for name in re.findall(r'(?:disk\.open_whole|open_mended)\([^,]+, "(\w+)"', text)
        }
        names |= {name for name in found if "{" not in name}
    swept = set(DEVICE).union(*ROUNDS.values(), *HELPER.values())
    assert {name for name in names if name.startswith(OWN)} == {
        name for name in swept if name.startswith(OWN)
    }


# --- services -------------------------------------------------------------------------------------


async def lonely(services: Services, window: int) -> None:
    """Two devices ask for a round, which is given up."""
    parts = services.parts([60, 61])
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(services.take_part(part, window))
        await services.until(lambda: all(part.steps.get(DeviceState.JOINED) for part in parts))
        services.clock.set(services.clock.now() + 31.0)
    assert {outcome.state for part in parts for outcome in part.outcomes} == {RoundState.ABORTED}


async def begun(
    services: Services, parts: Sequence[Part], window: int
) -> dict[Part, asyncio.Task[RoundOutcome]]:
    """Everybody takes part. Done for all; or, after a crash, for all but those who wait for a
    cohort that is not coming by itself.

    A crash between a device's Join and its answer makes that device ask again: it sits in the next
    round when the others learn that the first one has ended.
    """
    tasks = {part: asyncio.create_task(services.take_part(part, window)) for part in parts}
    while pending := [task for task in tasks.values() if not task.done()]:
        done, _ = await asyncio.wait(pending, timeout=STALL_S, return_when=asyncio.FIRST_COMPLETED)
        if not done and services.deaths and len(pending) < len(parts):
            break
    for task in tasks.values():
        if task.done():
            task.result()
    return tasks


async def rounds(services: Services, window: int) -> list[Part]:
    """A round; if there is no sum for everybody, who answered has answered, and the rest and some
    others have another.
    """
    parts = services.parts(range(SEATS))
    tasks = await begun(services, parts, window)
    waiting = [part for part in parts if not tasks[part].done()]
    ended = [part for part in parts if part not in waiting]
    again = [part for part in ended if not part.charged]
    if not waiting and all(part.outcomes[-1].state is RoundState.COUNTED for part in parts):
        return parts
    for part in ended:
        if part.charged:
            await services.refused(part, window)
    for part in ended:
        if part.uploaded:  # the shuffler knows it, whatever the device forgets
            kept, part.device.ledger = part.device.ledger, MemoryLedger()
            outcome = await services.take_part(part, window)
            part.device.ledger = kept
            assert (outcome.state, outcome.kind) == (RoundState.NONE, Kind.CONFLICT)
            break

    async def wait_on(part: Part) -> None:
        # it was only slow to hear of the end
        if (await tasks[part]).state is not RoundState.COUNTED:
            await services.take_part(part, window)

    fresh = services.parts(range(SEATS, 2 * SEATS - len(again) - len(waiting)))
    await asyncio.gather(services.together([*again, *fresh], window), *map(wait_on, waiting))
    assert {part.outcomes[-1].state for part in (*again, *waiting, *fresh)} == {RoundState.COUNTED}
    return [*parts, *fresh]


async def singles(services: Services, window: int) -> list[Part]:
    """Everybody's vector, and that of one more device, which is not seen again after a crash."""
    *parts, last = services.parts(range(SEATS + 1))
    fickle, sending = (
        asyncio.create_task(services.take_part(last, window)),
        asyncio.create_task(services.together(parts, window)),
    )
    await services.until(lambda: sending.done() or bool(services.deaths))
    if services.deaths:
        fickle.cancel()
    await sending
    await asyncio.gather(fickle, return_exceptions=True)
    assert {outcome.state for part in (*parts, last) for outcome in part.outcomes} == {
        RoundState.COUNTED
    }
    for part in parts:
        await services.refused(part, window)
    return [*parts, last]


async def live(services: Services, window: int, mode: Mode, strike: Strike | None) -> None:
    """A whole window, broken by ``strike``."""
    services.begin(window)
    services.deaths.clear()
    if strike is not None and strike.point.endswith(".migrate"):
        await services.forget_database(
            "shuffler", "singles.db" if mode is Mode.HELPER else "rounds.db"
        )
    if strike is not None:
        await services.arm(strike.role, f"{strike.point}={strike.way}@{strike.at}")
    guard = asyncio.create_task(services.guard())
    try:
        if strike is not None and strike.point.startswith("rounds.EndRound"):
            await lonely(services, window)
        parts = await (
            singles(services, window) if mode is Mode.HELPER else rounds(services, window)
        )
        await services.finish(window)
        if strike is not None and strike.way == "exit":
            assert services.deaths == [strike.role]
        elif strike is not None:
            assert services.deaths == []
            assert (await services.arm(strike.role)).get(strike.point, 0) >= strike.at
    finally:
        guard.cancel()
        await asyncio.gather(guard, return_exceptions=True)
    sets = services.check(window, parts)
    assert sets
    if mode is Mode.HELPER:
        assert sets in ([set(range(SEATS))], [set(range(SEATS + 1))])


def strikes(passed: dict[str, dict[str, int]], points: dict[str, set[str]]) -> Iterator[Strike]:
    """Killed at the first and the last passing, and one failure at the last: EIO and ENOSPC take
    turns. No failure of points that only look back on something done, unless more is to be done in
    the same step.

    In full: every passing, and both failures.
    """
    failures = itertools.cycle(("eio", "enospc"))
    for role, names in points.items():
        for point in sorted(names):
            # How many vectors share a commit is a matter of time.
            count = 1 if point.startswith(("counts.", "singles.")) else passed[role][point]
            for at in range(1, count + 1) if FULL else sorted({1, count}):
                yield Strike(role, point, "exit", at)
            if FULL:
                yield from (Strike(role, point, way, count) for way in ("eio", "enospc"))
            elif not point.endswith(".done") or point in HALFWAY:
                yield Strike(role, point, next(failures), count)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    "mode",
    [Mode.DEFAULT, Mode.HELPER, *([Mode.STRICT] if FULL else [])],
    ids=lambda mode: mode.name.lower(),
)
async def test_services_that_die_or_fail_anywhere(
    smithy: Smithy, memory_folder: Path, mode: Mode
) -> None:
    """Planted, each fails here at the point that is named. Rounds: a device remembered after its
    answer (rounds.admitted), the sum stored after the reply (a device is told of a sum that is not
    there, without any crash), the log of secrets emptied only with what was deleted (a failure, no
    crash, at rounds.forgotten.done: opening the file empties the log too), every abort taken at its
    word by a device that gave shares (rounds.UnmaskRound.done). Helper mode: seeds committed after
    the answer (singles.commit), what a crash left in the file of vectors kept (singles.commit,
    singles.sync), the file removed before its rows are forgotten (singles.forget), the log of seeds
    not emptied (no crash wanted), a window delivered again although it is released (singles.forget,
    and everything after it).
    """
    broken, window = list[str](), 0
    seats = SEATS + (mode is Mode.HELPER)
    async with serving(
        smithy, memory_folder, windows=WINDOWS, mode=mode, devices=seats, survivors_min=LEAST
    ) as services:
        if mode is not Mode.HELPER:
            services.begin(window)
            await lonely(services, window)
        abort = await services.arm("shuffler") if mode is not Mode.HELPER else {}
        await live(services, window, mode, None)
        passed = {role: await services.arm(role) for role in ("shuffler", "analyzer")}
        passed["shuffler"] |= {
            point: abort[point] for point in abort if point.startswith("rounds.EndRound")
        }
        assert {role: names - passed[role].keys() for role, names in POINTS[mode].items()} == {
            "shuffler": set(),
            "analyzer": set(),
        }
        for window, strike in enumerate(strikes(passed, POINTS[mode]), 1):
            try:
                await live(services, window, mode, strike)
            except (AssertionError, TimeoutError, ExceptionGroup) as error:
                broken.append(f"{strike}: {type(error).__name__}: {error}")
    assert broken == []
    assert window >= sum(map(len, POINTS[mode].values()))


async def test_a_shuffler_that_is_gone_until_the_window_is_over_leaves_devices_in_doubt(
    smithy: Smithy, memory_folder: Path
) -> None:
    """It died after it had stored vectors, before it said so. Planted: a late refusal taken at its
    word (send_single) -> told that it is in no sum, and it is in one: this fails.
    """
    async with serving(
        smithy, memory_folder, windows=2, mode=Mode.HELPER, devices=SEATS, survivors_min=LEAST
    ) as services:
        parts = services.parts(range(SEATS))
        await services.together(parts[:LEAST], 0)
        await services.arm("shuffler", "singles.commit.done=exit@1")
        sending = asyncio.create_task(services.together(parts[LEAST:], 0))
        assert await services.smithy.gone(services.pids["shuffler"]) == SIGKILL
        services.remember(0)
        services.clock.set(services.world.published.task.windows.deadline_of(0) + 1.0)
        await services.start("shuffler")
        await sending
        await services.finish(0)
        (inside,) = services.check(0, parts)
        assert inside > set(range(LEAST))
        assert {part.outcomes[-1].state for part in parts[LEAST:]} == {RoundState.LOST}


# --- devices --------------------------------------------------------------------------------------


async def rest_goes_on(services: Services, others: list[Part], state: DeviceState) -> None:
    """The others have done their part of a phase and wait for the one that is gone; its time
    ends.
    """

    def waiting() -> bool:
        return all(part.outcomes or part.passed(state) for part in others)

    await services.until(waiting)
    if not all(part.outcomes for part in others):
        services.clock.set(services.clock.now() + 121.0)


async def struck(
    services: Services, window: int, mode: Mode, strike: Strike, statuses: set[int]
) -> None:
    """A device's process is struck among others; then it is started again, and again."""
    services.begin(window)
    first, *others = services.parts(range(SEATS))
    folder = services.folder_of(first, window)
    pid = services.smithy.start("device", folder, str(strike))
    rest = asyncio.create_task(services.together(others, window))
    assert await services.smithy.gone(pid) in statuses
    # nothing of the vector has left
    early = (strike.point, strike.at) in {("client.round.masked", 1), ("ledger.commit", 1)}
    if mode is not Mode.HELPER:
        await rest_goes_on(services, others, DeviceState.MASKED if early else DeviceState.RELEASED)
    await rest
    assert {part.outcomes[-1].state for part in others} == {RoundState.COUNTED}
    if (folder / "outcome.json").exists():
        state, charged = json.loads((folder / "outcome.json").read_text())
        first.outcomes.append(RoundOutcome(RoundState(state), charged=charged))
    entries, sent = ledger_of(folder), frames_of(folder)
    assert len(entries) == (0 if strike.point == "ledger.commit" and strike.at == 1 else 1)
    for _ in entries * 2:
        assert await services.smithy.gone(services.smithy.start("device", folder)) == REFUSED
        assert (ledger_of(folder), frames_of(folder)) == (entries, sent)
    await services.finish(window)
    (inside,) = services.check(window, [first, *others])
    assert inside == set(range(1 if early else 0, SEATS))


def ledger_of(folder: Path) -> list[Answered]:
    with contextlib.closing(SqliteLedger(folder / "ledger.db")) as ledger:
        return ledger.answers()


def frames_of(folder: Path) -> int:
    path = folder / "sent"
    return path.stat().st_size if path.exists() else 0


def device_strikes(mode: Mode) -> Iterator[tuple[Strike, set[int]]]:
    """With the exit statuses that are in order. The ledger is written for the vector, for the
    shares, and for how it ended.
    """
    points = (
        ("client.round.masked",)
        if mode is Mode.HELPER
        else ("client.round.masked", "client.round.released")
    )
    for point in points:
        yield Strike("device", point, "exit", 1), {SIGKILL}
    for at in (1, 2) if mode is Mode.HELPER else (1, 2, 3):
        for way in ("exit", "eio", "enospc") if FULL else ("exit", "enospc"):
            yield (
                Strike("device", "ledger.commit", way, at),
                {SIGKILL} if way == "exit" else {REFUSED if early_single(mode, at) else 0},
            )


def early_single(mode: Mode, at: int) -> bool:
    """Helper mode raises what its ledger raises, before anything is sent; a round has an outcome in
    any case.
    """
    return mode is Mode.HELPER and at == 1


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "mode",
    [Mode.DEFAULT, Mode.HELPER, *([Mode.STRICT] if FULL else [])],
    ids=lambda mode: mode.name.lower(),
)
async def test_a_device_that_dies_or_fails_anywhere_never_sends_a_second_vector(
    smithy: Smithy, memory_folder: Path, mode: Mode
) -> None:
    """A device that has an entry sends not one frame more.

    Planted: the entry written with the shares alone (DeviceRound.mask) -> client.round.masked
    leaves none; a ledger that can't say how it ended raises (send_single) -> exit status 3 of a
    vector that was taken.
    """
    async with serving(
        smithy, memory_folder, windows=16, mode=mode, devices=SEATS, survivors_min=LEAST
    ) as services:
        for window, (strike, statuses) in enumerate(device_strikes(mode)):
            try:
                await struck(services, window, mode, strike, statuses)
            except BaseException as error:
                error.add_note(str(strike))
                raise
