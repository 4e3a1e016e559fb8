"""What both services keep, lived through: each life makes promises as the services do (an
acknowledgement, a stored sum, "it is deleted"), and says afterwards, of a folder that a power cut
left, what is found. See ``test_power_lives``.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shoal import failpoints
from shoal.analyzer.batches.spool import Spools
from shoal.analyzer.core import BatchState
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.rounds.sums import StoredSum, SumStore
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.analyzer.store_mending import read_head
from shoal.crypto import keyfiles
from shoal.crypto.hpke import generate
from shoal.crypto.suites import SuiteId
from shoal.errors import ShoalError
from shoal.ids import Digest, TaskId
from shoal.services import given_up
from shoal.services.given_up import GivenUp
from shoal.services.process import make_folder
from shoal.services.whole_files import read_count
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.rounds import VerifiedVector
from shoal.shuffler.stores.sqlite import single_store
from shoal.shuffler.stores.sqlite.admissions import Admissions
from shoal.shuffler.stores.sqlite.single_store import SingleStore
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport
from tests.sizes import size
from tests.worlds.inbox_file import stored
from tests.worlds.services.analyzer import make_world

TASK, ROW = TaskId(bytes(range(32))), 200
WINDOW, NEXT, LAST = (WindowId(TASK, number) for number in range(3))
GROUPS, LIVES = size(4, 6, 8), size(1, 3, 10)
ANSWERING = [number.to_bytes(32, "big") for number in range(4 * GROUPS)]  # devices of two windows
WORLD = make_world(windows=2)


@dataclass
class Promises:
    """``kept``: what must be found; ``gone``: names of files that must not be there, and bytes that
    no file may hold.
    """

    kept: frozenset[bytes] = frozenset()
    gone: frozenset[str] = frozenset()
    secret: frozenset[bytes] = frozenset()

    def copy(self) -> Promises:
        return Promises(self.kept, self.gone, self.secret)


DAMAGE = b"damage where only the power was cut"
Life = Callable[[Path, Promises, random.Random], None]
Found = Callable[[Path], set[bytes]]


# --- the shuffler's windows -----------------------------------------------------------------------


def _store(folder: Path) -> SqliteStore:
    store = SqliteStore(folder)
    store.adopt(TASK, Digest(bytes(32)), Capacity(1, 10_000, 40_000), ROW)
    return store


def windows(folder: Path, promised: Promises, rng: random.Random) -> None:
    """Three windows: one to its end, one to its end with deletions that fail half-way, one that
    stays open.
    """
    store = _store(folder)
    for number in range(GROUPS):
        for window in (WINDOW, NEXT, LAST):
            reports = [secrets.token_bytes(ROW) for _ in range(rng.randrange(1, 20))]
            assert store.append([AdmittedReport(window, (one,)) for one in reports]) == [
                None
            ] * len(reports)
            store.confirm()
            promised.kept |= {*reports, *_counted(window, len(_rows_of(store, window)))}
        if number % 3 == 2:
            store.close()
            store = _store(folder)
    for window in (WINDOW, LAST):
        inbox, batch = (
            f"{kind}-{TASK.hex}-{window.window}.{end}"
            for kind, end in (("inbox", "db"), ("batch", "rows"))
        )
        delivered = _rows_of(store, window)
        promised.kept -= _counted(window, len(delivered))  # it is not open any more
        store.close_intake(window)
        sealed = store.seal(window)
        store.advance(
            window, WindowState.CLOSING, WindowState.SEALED, sealed, sealed.rows, b"manifest"
        )
        if window is LAST:
            failpoints.arm("inbox.unlinked=eio@1")
            with suppress(ShoalError):
                store.destroy_inbox(window)
            failpoints.arm("")
        store.destroy_inbox(window)
        promised.gone |= {inbox, f"{inbox}-wal"}
        store.advance(window, WindowState.SEALED, WindowState.DELIVERING)
        promised.kept -= delivered  # the analyzer has them
        store.advance(window, WindowState.DELIVERING, WindowState.ACKNOWLEDGED)
        if window is LAST:
            failpoints.arm("batch.unlinked=eio@1")
            with suppress(ShoalError):
                store.shred(window)
            failpoints.arm("")
            store.close()
            store = _store(folder)
        store.shred(window)
        promised.gone |= {batch, f"{batch}.tmp"}
        store.advance(window, WindowState.ACKNOWLEDGED, WindowState.SHREDDED)
        promised.kept |= {b"shredded" + bytes([window.window])}
    store.close()


def _counted(window: WindowId, rows: int) -> set[bytes]:
    """That so many rows of a window, or more, are known to have been acknowledged."""
    return {b"%d: %d rows" % (window.window, number) for number in range(1, rows + 1)}


def _rows_of(store: SqliteStore, window: WindowId) -> set[bytes]:
    path = store._inbox_path(window)
    return {sealed for _, sealed in stored(path, ROW)} if path.exists() else set()


def windows_found(folder: Path) -> set[bytes]:
    store = _store(folder)
    found: set[bytes] = set()
    try:
        for window in (WINDOW, NEXT, LAST):
            record = store.record(window)
            if record is None:
                continue
            if record.state is WindowState.SHREDDED:
                found.add(b"shredded" + bytes([window.window]))
                continue
            if record.state is WindowState.OPEN:
                found |= _counted(window, record.acked)
                store.close_intake(window)
            if record.state in (WindowState.OPEN, WindowState.CLOSING):
                sealed = store.seal(window)
                store.advance(
                    window,
                    WindowState.CLOSING,
                    WindowState.SEALED,
                    sealed,
                    sealed.rows,
                    b"manifest",
                )
            record = store.record(window)
            assert record is not None
            if record.damaged or store.damage():
                found.add(DAMAGE)
            if record.state in (WindowState.SEALED, WindowState.DELIVERING):
                data = store.read_rows(window, 0, record.rows)
                found |= {data[at : at + ROW] for at in range(0, len(data), ROW)}
    finally:
        store.close()
    return found


# --- helper mode, and who answered ----------------------------------------------------------------


def singles(folder: Path, promised: Promises, rng: random.Random) -> None:
    store = SingleStore(folder)
    for window in (WINDOW, NEXT, LAST):
        for _ in range(GROUPS):
            arrivals = [
                VerifiedVector(
                    window, 1_000, rng.randbytes(32), rng.randbytes(500), rng.randbytes(32)
                )
                for _ in range(2)
            ]
            assert store.add(arrivals) == [None, None]
            promised.kept |= {one.sealed + one.seed for one in arrivals}
        promised.kept |= {b"counted" + bytes([window.window])}
    store.take_no_more(NEXT)
    promised.kept |= {b"closed"}
    store.fix(NEXT, store.rows(NEXT), [0])
    promised.kept |= {b"fixed"}
    for window in (WINDOW, LAST):
        gone = {one.sealed + one.seed for one in _singles(store, window)}
        promised.kept -= gone | {b"counted" + bytes([window.window])}
        if window is LAST:  # half-way, and a start
            failpoints.arm("singles.unlinked=eio@1")
            with suppress(ShoalError):
                store.forget(window)
            failpoints.arm("")
            store.close()
            store = SingleStore(folder)  # knows nothing of it any more, so nobody asks again
        else:
            store.forget(window)
        promised.gone |= {store._path(window).name}
        promised.secret |= {one[-32:] for one in gone}
    store.close()


def _singles(store: SingleStore, window: WindowId) -> list[VerifiedVector]:
    """What can be delivered of a window, also what is left out of its sum."""
    db = store._db
    rows = db.execute(
        "SELECT place, seed FROM single WHERE task_id = ? AND window = ?",
        (window.task_id.raw, window.window),
    ).fetchall()
    return [
        VerifiedVector(window, 0, b"", store.read(window, place, 500), seed) for place, seed in rows
    ]


def singles_found(folder: Path) -> set[bytes]:
    store = SingleStore(folder)
    try:
        found = {
            one.sealed + one.seed for window in store.windows() for one in _singles(store, window)
        }
        counted = (
            {
                key[1]
                for key, count in store._acknowledged_counts().all().items()
                if count == 2 * GROUPS
            }
            if store._held
            else set()
        )
        if store.damage():
            found.add(DAMAGE)
        if (
            NEXT in store.windows()
            and (
                held := store._db.execute(single_store._WINDOW, single_store._key(NEXT)).fetchone()
            )
            and held[6]
        ):
            found.add(b"closed")
        return (
            found
            | ({b"fixed"} if store.is_fixed(NEXT) else set())
            | {b"counted" + bytes([one]) for one in counted}
        )
    finally:
        store.close()


def answered(folder: Path, promised: Promises, rng: random.Random) -> None:
    store = Admissions(folder)
    for window in (WINDOW, NEXT):
        for device in ANSWERING[window.window :: 2]:
            store.remember(window, device)
            promised.kept |= {bytes([window.window]) + device}
        promised.kept |= {bytes([window.window]) + b"counted"}
    keys = dict(store._secrets)
    promised.kept = frozenset(one for one in promised.kept if one[0] == 1)
    store.forget(WINDOW)
    promised.secret |= {keys[TASK.raw, 0]}
    store.close()


def answered_found(folder: Path) -> set[bytes]:
    store = Admissions(folder)
    try:
        devices = [bytes([window]) + device for window in (0, 1) for device in ANSWERING[window::2]]
        counted = store._counts.all() if store._counts is not None else {}
        found = {
            bytes([key[1]]) + b"counted" for key, count in counted.items() if count == 2 * GROUPS
        }
        if store.damage():
            return {DAMAGE}
        return found | {one for one in devices if store.answered(WindowId(TASK, one[0]), one[1:])}
    finally:
        store.close()


# --- the analyzer ---------------------------------------------------------------------------------


def analyzer(folder: Path, promised: Promises, rng: random.Random) -> None:
    """Two batches row by row, their releases, what opened them deleted; and sums of rounds. The
    second one's analyzer dies twice.
    """
    store = AnalyzerStore(folder / FILE_NAME)
    make_folder(folder / "spool")
    for window in (0, 1):
        spools = Spools(folder / "spool")
        made = WORLD.batch([rng.randbytes(WORLD.row_size()) for _ in range(40)], window)
        batch = store.accept(made.manifest_bytes)
        promised.kept |= {b"accepted" + bytes([window])}
        for at in range(0, 40, 10):
            # it dies between a write and its sync, and says afterwards what it has
            if window == 1 and at in (0, 20):
                spools.get(batch.manifest_hash, batch.manifest).append(at, made.rows[at])
                spools = Spools(folder / "spool")
                assert spools.get(batch.manifest_hash, batch.manifest).sync() == at + 1
                promised.kept |= {made.rows[at]}
            spool = spools.get(batch.manifest_hash, batch.manifest)
            for row in range(spool.received, at + 10):
                spool.append(row, made.rows[row])
            assert spool.sync() == at + 10
            promised.kept |= set(made.rows[: at + 10])
        assert spool.check()
        store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
        batch = store.batches()[window]
        release = WindowOutcome(
            b"release" + bytes([window]),
            bytes(64),
            b"ack",
            bytes(64),
            b"tally",
            Spending(WORLD.task_id, 0.5, 1e-6),
        )
        promised.kept -= set(made.rows)  # the release or the rows: ``finish`` is one transaction
        assert store.finish(batch, lambda _, release=release: release)  # type: ignore[misc]
        promised.kept |= {release.release, b"counted" + bytes([window])}
        spools.delete(batch.manifest_hash)
        promised.gone |= {f"spool/{batch.manifest_hash.hex}.rows"}
    for number in range(GROUPS):
        SumStore(store).add(TASK, 1, StoredSum(Digest.of(bytes([number])), 9, [number]))  # type: ignore[arg-type]
        promised.kept |= {b"sum" + bytes([number])}
    store.close()


def analyzer_found(folder: Path) -> set[bytes]:
    found = {b"counted" + bytes([window]) for window in range(read_head(folder) or 0)}
    make_folder(folder / "spool")
    store, spools = AnalyzerStore(folder / FILE_NAME), Spools(folder / "spool")
    found |= {b"sum" + bytes([int(one.vector[0])]) for one in SumStore(store).of(TASK, 1)}
    found |= {stored.release for stored in store.releases()}
    for batch in store.batches():
        found.add(b"accepted" + bytes([batch.manifest.window]))
        if batch.state is not BatchState.DONE:
            spool = spools.get(batch.manifest_hash, batch.manifest)
            path, step = spools.path(batch.manifest_hash), batch.manifest.row_size
            rows = path.read_bytes() if path.exists() else b""
            found |= {rows[at * step : (at + 1) * step] for at in range(spool.received)}
        elif store.ack(batch.manifest_hash) is None:
            found.add(DAMAGE)
    if store.damage() or store.lost:
        found.add(DAMAGE)
    store.close()
    return found


# --- keys -----------------------------------------------------------------------------------------


def keys(folder: Path, promised: Promises, rng: random.Random) -> None:
    make_folder(folder / "keys")
    held = KeyFolder(folder / "keys")
    made = [generate(SuiteId.X25519_AES128) for _ in range(GROUPS)]
    for key in made:
        keyfiles.save_hpke_key(held.path(key.config.key_id), key)
        promised.kept |= {key.config.key_id.raw}
    for key in made[::2]:
        promised.kept -= {key.config.key_id.raw}
        held.delete(key.config.key_id)
        promised.gone |= {f"keys/{held.path(key.config.key_id).name}"}


def keys_found(folder: Path) -> set[bytes]:
    found: set[bytes] = set()
    for path in folder.glob("keys/*.key"):
        with suppress(ShoalError):  # one that was being written
            found.add(keyfiles.load_hpke_key(path).config.key_id.raw)
    return found


# --- words of operators ---------------------------------------------------------------------------


def words(folder: Path, promised: Promises, rng: random.Random) -> None:
    """Windows are given up: the line is there before the command ends and a service acts on it, and
    so is the number of lines.
    """
    task_id = TaskId(rng.randbytes(32))
    for window in range(GROUPS):
        line = GivenUp(task_id.hex, window, 1_800_000_000, "alice", "a test", "open")
        given_up.add(folder, line)
        promised.kept |= {b"line" + bytes([window]), b"counted" + bytes([window])}


def words_found(folder: Path) -> set[bytes]:
    there = {b"line" + bytes([line.window]) for line in given_up.read(folder)}
    count = read_count(folder / given_up.HEAD_NAME) or 0
    return there | {b"counted" + bytes([window]) for window in range(count)}


ALL: dict[str, tuple[Life, Found]] = {
    "windows": (windows, windows_found),
    "singles": (singles, singles_found),
    "answered": (answered, answered_found),
    "analyzer": (analyzer, analyzer_found),
    "keys": (keys, keys_found),
    "words": (words, words_found),
}
