"""``open_store``: the one place where the service gets what it keeps. A new kind of store has its
line here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.crypto.keyfiles import load_signing_key
from shoal.entropy import SYSTEM, Entropy
from shoal.services.conditions import Condition
from shoal.services.given_up import GivenUp
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.rounds import AnsweredDevices, SingleVectors
from shoal.shuffler.stores.sqlite import records
from shoal.shuffler.stores.sqlite.admissions import Admissions
from shoal.shuffler.stores.sqlite.single_store import SingleStore
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.steps import StepBook
from shoal.shuffler.stores.store import Store, WindowRecord
from shoal.shuffler.stores.threaded import ThreadedStore
from shoal.shuffler.stores.threaded_claims import ThreadedClaims
from shoal.shuffler.stores.threaded_rounds import ThreadedAnswers, ThreadedVectors

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.database import Database
    from shoal.shuffler.stores.postgresql.replicas.fellows import FellowWatch
    from shoal.shuffler.stores.postgresql.watch import DatabaseWatch


@dataclass(frozen=True, slots=True)
class ShufflerStorage:
    """Everything that a shuffler keeps.

    ``reports``: windows of reports, and the claims of all windows: the other parts look at the same
    ones. ``answered``: which devices answered a window of rounds.
    ``vectors``: helper mode. ``scratch``: a folder of this machine for the uploads of rounds that
    go on, in files without names, which end with the process. ``watch``, ``fellows``: of a database
    that several share, the server and the other shufflers; ``steps``: what they agree by.
    """

    reports: Store
    answered: AnsweredDevices
    vectors: SingleVectors
    scratch: Path
    watch: DatabaseWatch | None = None
    fellows: FellowWatch | None = None
    steps: StepBook | None = None

    def damage(self) -> Iterator[Condition]:
        """All that was found damaged, for ``Conditions.watch``."""
        for part in (self.reports, self.answered, self.vectors):
            yield from part.damage()
        if self.fellows is not None:
            yield from self.fellows.conditions()

    async def close(self) -> None:
        """Commit what waits, refuse what comes, release files. All parts are closed, also where one
        fails; then the first failure is raised.
        """
        failure: BaseException | None = None
        fellows = () if self.fellows is None else (self.fellows,)
        for part in (*fellows, self.vectors, self.answered, self.reports):
            try:
                await part.close()
            except BaseException as error:  # noqa: BLE001 - raised when all are closed
                failure = failure or error
        if failure is not None:
            raise failure


async def open_store(config: ShufflerConfig, entropy: Entropy = SYSTEM) -> ShufflerStorage:
    """Open what is kept, and finish what a crash interrupted. The caller holds the lock of
    ``data_dir`` (``shoal.services.process.DataFolder``), for as long as it is open.

    Raises CONFIG if it can't be used or was written by a newer version; of a database also KEY_FILE
    and UNAVAILABLE.
    """
    if config.store.kind == "postgresql":
        return await _open_shared(config, entropy)
    return open_embedded(config.data_dir, entropy, commit_ms=config.commit_ms)


async def read_window(config: ShufflerConfig, window: WindowId) -> WindowRecord | None:
    """What the configured store says of a window now, read beside a running service; None: nothing.
    Nothing is made or changed. Raises CONFIG, KEY_FILE; of a database also UNAVAILABLE, OVERLOADED.
    """
    if config.store.kind != "postgresql":
        return records.stored(config.data_dir).get(window)
    from shoal.shuffler.stores.postgresql.windows import stored_window

    identity = load_signing_key(config.signing_key).public
    async with await _connected(config) as database:
        return await stored_window(database, identity, window)


async def read_given_up(config: ShufflerConfig) -> list[tuple[GivenUp, str]]:
    """Windows that were given up as all replicas know it, each with the name of the replica where
    that was said; none where there are no replicas. Read and raises as ``read_window``.
    """
    if config.store.kind != "postgresql":
        return []
    from shoal.shuffler.stores.postgresql.replicas.fellows import name_of
    from shoal.shuffler.stores.postgresql.replicas.given_up import stored_lines

    identity = load_signing_key(config.signing_key).public
    async with await _connected(config) as database:
        found = await stored_lines(database, identity)
    return [(line, name_of(replica)) for line, replica in found.lines]


async def _connected(config: ShufflerConfig) -> Database:
    """For somebody who looks and serves nothing."""
    from shoal.shuffler.stores.postgresql.address import load_dsn
    from shoal.shuffler.stores.postgresql.database import Database

    section = config.store
    assert section.dsn_file is not None  # noqa: S101 - StoreSection wants it
    return await Database.connect(load_dsn(section.dsn_file), section.schema_name, connections=1)


async def _open_shared(config: ShufflerConfig, entropy: Entropy) -> ShufflerStorage:
    """A database that several shufflers share."""
    # they bring a driver with them, which the embedded store does without
    from shoal.shuffler.stores.objects.options import open_bucket
    from shoal.shuffler.stores.postgresql.address import load_dsn
    from shoal.shuffler.stores.postgresql.answered import SharedAnswers
    from shoal.shuffler.stores.postgresql.database import Database
    from shoal.shuffler.stores.postgresql.replicas.fellows import FellowWatch
    from shoal.shuffler.stores.postgresql.replicas.steps import SharedSteps
    from shoal.shuffler.stores.postgresql.store import open_reports
    from shoal.shuffler.stores.postgresql.sums import SumWindows
    from shoal.shuffler.stores.postgresql.vectors import SharedVectors
    from shoal.shuffler.stores.postgresql.watch import DatabaseWatch

    section = config.store
    assert section.dsn_file is not None  # noqa: S101 - StoreSection wants it
    identity = load_signing_key(config.signing_key).public
    objects = section.batches
    bucket = open_bucket(objects, identity, section.schema_name) if objects else None
    database = await Database.open(load_dsn(section.dsn_file), identity, section.schema_name)
    async with AsyncExitStack() as opened:
        opened.push_async_callback(database.close)
        watch = DatabaseWatch(
            database, replicas=section.replicas, without_standby=section.without_standby
        )
        opened.push_async_callback(watch.close)
        await watch.start()
        reports = await open_reports(
            *(database, config.data_dir, entropy),
            commit_ms=config.commit_ms,
            watch=watch,
            bucket=bucket,
        )
        windows = SumWindows(reports, entropy)
        storage = ShufflerStorage(
            reports,
            SharedAnswers(database, windows),
            SharedVectors(database, windows, commit_ms=config.commit_ms),
            config.data_dir,
            watch,
            FellowWatch(database, reports.replica, replicas=section.replicas),
            SharedSteps(database),
        )
        opened.pop_all()  # now the storage's to close
    return storage


def open_embedded(
    folder: Path,
    entropy: Entropy = SYSTEM,
    *,
    commit_ms: float,
    steady: Callable[[], float] = time.monotonic,
) -> ShufflerStorage:
    """SQLite files and flat files in ``folder``. ``steady``: see ``ClaimTable``. Raises CONFIG."""
    with ExitStack() as opened:
        reports = SqliteStore(folder)
        opened.callback(reports.close)
        admissions = Admissions(folder, entropy)
        opened.callback(admissions.close)
        vectors = SingleStore(folder, entropy)
        claims = ThreadedClaims(steady)
        storage = ShufflerStorage(
            ThreadedStore(reports, commit_ms=commit_ms, claims=claims),
            ThreadedAnswers(admissions, claims),
            ThreadedVectors(vectors, claims),
            folder,
        )
        opened.pop_all()  # now the storage's to close
    return storage
