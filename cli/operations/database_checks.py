"""A database that several shufflers share: whether this one may use it, and what its
acknowledgements are worth; and an object store beside it. Nothing is changed: tables are made by
the service, and an object that was made to see that it can be is deleted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.cli.operations.findings import Findings
from shoal.crypto.keyfiles import load_signing_key
from shoal.crypto.trust import ServedTask
from shoal.ids import TaskId
from shoal.services.given_up import TaskWindow
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.core import WindowState
from shoal.shuffler.stores.objects.options import open_bucket
from shoal.shuffler.stores.postgresql import schema
from shoal.shuffler.stores.postgresql.address import load_dsn
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.replicas.fellows import judged, look_around
from shoal.shuffler.stores.postgresql.watch import look, problems

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.database import Connection

_OPEN = [WindowState.OPEN.value, WindowState.CLOSING.value]


async def remembers(config: ShufflerConfig) -> bool:
    """Whether the database has this shuffler's tables. Raises as ``database``."""
    identity = load_signing_key(config.signing_key).public
    async with await _connected(config) as found, found.transaction() as connection:
        return await schema.version(connection, config.store.schema_name, identity) > 0


async def _connected(config: ShufflerConfig) -> Database:
    store = config.store
    assert store.dsn_file is not None  # noqa: S101 - StoreSection wants it
    return await Database.connect(load_dsn(store.dsn_file), store.schema_name, connections=1)


async def _others(findings: Findings, connection: Connection, config: ShufflerConfig) -> None:
    """The other replicas, as they say themselves."""
    ours = b""  # none yet, or one that the service says is damaged
    with suppress(OSError, ValueError):
        ours = bytes.fromhex((config.data_dir / "replica-id").read_text())
    seen = await look_around(connection, ours)
    for one in judged(seen, {}, {}, replicas=config.store.replicas):
        if one.subject == "replicas" or not one.stops:  # tasks are the service's to compare
            (findings.fail if one.stops else findings.warn)("database", one.message)
    findings.ok("database", f"{len(seen.live)} other replicas serve now")


def shared_hop_keys(findings: Findings, served: list[ServedTask]) -> None:
    """The keys of windows come from their hop keys: those that share one are waste together."""
    for one in served:
        keys = {key.key_id for key in one.keys.hop_keys}
        if len(keys) < one.task.windows.count:
            findings.warn(
                "keys",
                f"task {one.task.name}: its {one.task.windows.count} windows share {len(keys)} hop "
                "keys, so what the database and its copies hold of them can be read until the last "
                "of them is decided: make the next version's with `shoal keys hpke --role shuffler "
                "--per-window`",
            )


async def database(findings: Findings, config: ShufflerConfig) -> set[TaskWindow]:
    """The windows that are decided there. Raises CONFIG, KEY_FILE, UNAVAILABLE, OVERLOADED."""
    store = config.store
    identity = load_signing_key(config.signing_key).public
    if store.batches is not None:
        await open_bucket(store.batches, identity, store.schema_name).probe()
        findings.ok("database", f"{store.batches.url} keeps, gives back and deletes an object")
    async with await _connected(config) as found:
        facts = await look(found)
        wrong = list(
            problems(facts, replicas=store.replicas, without_standby=store.without_standby)
        )
        for one in wrong:
            (findings.fail if one.stops else findings.warn)("database", one.message)
        if not any(one.stops for one in wrong):
            waits = "waits for its standby" if facts.waited_for else "on one machine"
            findings.ok("database", f"PostgreSQL {facts.version // 10_000}, a commit {waits}")
        async with found.transaction() as connection:
            schema.check_server(connection)
            version = await schema.version(connection, store.schema_name, identity)
            if version == 0:
                findings.ok(
                    "database", f"schema {store.schema_name} has no tables: the service makes them"
                )
                return set()
            findings.ok("database", f"schema {store.schema_name} is this shuffler's")
            if version >= len(schema.scripts()):
                await _others(findings, connection, config)
            rows = await connection.fetch(
                "SELECT task_id, win FROM win WHERE NOT state = ANY($1::smallint[])", _OPEN
            )
        return {(TaskId(bytes(row["task_id"])), row["win"]) for row in rows}
