"""Today's services on what earlier ones left: they open it, and go on where those stopped."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection
from pathlib import Path

import pytest

from shoal.analyzer.batches.manifest_signatures import FOLDER as SIGNATURES
from shoal.clients.core import ReportState
from shoal.clients.rounds.participation import RoundState
from tests.vectors.frozen_corpus import (
    FROZEN,
    VERSIONS,
    differences,
    transcript,
    unpack,
    without,
)
from tests.vectors.frozen_services import Folders, Services, rows, schema, serving

NOW = 1_800_008_100.0  # when the frozen programs ended, in window 2 of most tasks
FLUSHED = NOW + 300  # when the device sends what waits
OVER = 1_800_011_560.0  # when window 2 of most tasks, and 1 of "stuck", are over with their grace
# What depends on how often something was tried, or is of the machine that the service runs on.
TRIED = ("failing", "refused", "version", "certificates", "disk", "clock")
# Of the releases before it: whether a batch is opened before another one is chance.
ORDER = ("epsilon_cumulative_upper", "delta_cumulative", "windows_composed", "tasks_composed")
PENDING = ("visits:1", "hours:1", "colours:1", "stuck:0", "moments:1", "weights:1")
LATER = ("visits:2", "hours:2", "badges:2", "colours:2", "moments:2", "weights:2", "stuck:1")
STORED = {"state.db": "shuffler", "analyzer.db": "analyzer"}
# What a file has beyond its frozen form: a migration since, of which the tests of its owner are.
SINCE = {
    "inbox": {
        "user_version 3": ("user_version 4",),
        "CREATE TABLE admitted (tag BLOB PRIMARY KEY) WITHOUT ROWID": (
            "CREATE TABLE admitted (tag BLOB PRIMARY KEY) WITHOUT ROWID",
            "CREATE TABLE block (number INTEGER PRIMARY KEY, body BLOB NOT NULL, crc INTEGER NOT "
            "NULL)",
        ),
    }
}
TABLES = {"state.db": ("window",), "analyzer.db": ("batches", "tallies", "sums", "aborted_rounds")}


async def going_on(home: Path, device: Path) -> str:
    """The rest of the frozen windows, as a transcript.

    The shuffler starts alone and seals what was left closing. Then the analyzer comes: what was
    sealed is delivered, a batch of which a part had come is completed, the device sends what
    waited, and window 2 ends. Nothing here is drawn anew but the order of deliveries.
    """
    folders, told = Folders(home), []
    async with serving(folders, NOW) as services:
        services.analyzer_port = 9  # nobody listens there
        await services.start_shuffler()
        await services.reach("DELIVERING", "stuck:0")
        told.append(
            ("status of the shuffler alone", _kept(await services.status("shuffler"), TRIED))
        )
        told.append(("batches", _batches(folders.data("shuffler"))))
        catalogue = hashlib.sha256(await services.catalogue()).hexdigest()
        told.append(("catalogue", f"{catalogue}\n"))
        await services.stop("shuffler")
        services.analyzer_port = 0
        await services.start_analyzer()
        manifest, batch = (home / f"slow.{name}" for name in ("manifest", "rows"))
        await services.deliver(manifest.read_bytes(), batch.read_bytes(), 2)
        await services.start_shuffler()
        services.clock.time = FLUSHED
        told.append(("device", await _flushed(services, device)))
        await services.shredded(*PENDING)
        services.clock.time = OVER
        await services.shredded(*PENDING, *LATER)
        for service in ("shuffler", "analyzer"):
            told.append((f"status of the {service}", _kept(await services.status(service), TRIED)))
        data = str(folders.data("analyzer"))
        releases = await services.shown("results", "list", "--data", data, "--json")
        told.append(("releases", _kept(releases, ORDER)))
    for name, service in STORED.items():
        for table in TABLES[name]:
            found = rows(folders.data(service) / name, table)
            told.append((f"{name} {table}", "".join(" ".join(row) + "\n" for row in found)))
    told.append(("files", "".join(f"{one}\n" for one in sorted(_left(folders)))))
    return "".join(f"$ {name}\n{text}" for name, text in told)


async def _flushed(services: Services, device: Path) -> str:
    """What the device sends and enters; in which order it sends is chance."""
    async with services.agent(device) as agent:
        before = (await agent.verify()).count
        sent = await agent.flush()
        lines = [f"{one.task}:{one.window} {one.state.value}" for one in sent]
        budget = await agent.budget()
    config = str(device / "agent.toml")
    ledger = ("agent", "ledger", "--config", config, "--since", str(before), "--json")
    shown = without(json.loads(await services.shown(*ledger)), ("number", "hash"))
    lines += [json.dumps(entry) for entry in shown["entries"]]
    return "\n".join([*sorted(lines), f"{budget.spent_nano} of {budget.limit_nano}"]) + "\n"


def _kept(text: str, keys: Collection[str]) -> str:
    return json.dumps(without(json.loads(text), keys), indent=1) + "\n"


def _batches(data: Path) -> str:
    found = {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in data.glob("batch-*")}
    return "".join(f"{name} {found[name]}\n" for name in sorted(found))


def _left(folders: Folders) -> list[str]:
    """Files of both data folders but SQLite's own, and signatures of manifests, which that version
    did not keep; a damaged one would be among them.
    """
    services = ("shuffler", "analyzer")
    found = [one for service in services for one in folders.data(service).rglob("*")]
    return [
        one.relative_to(folders.folder).as_posix()
        for one in found
        if one.is_file()
        and not one.name.endswith(("-shm", "-wal"))
        and one.parent.name != SIGNATURES
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_services_go_on_where_earlier_ones_stopped(version: str, tmp_path: Path) -> None:
    """Statuses, sealed batches, what a device sends and enters, releases, rows and files: all
    as the earlier version itself would have gone on.

    Planted: a batch's rows in another order; DELIVERING under another number; the label of another
    window for sums of single vectors; an outcome entered as "ended"; another digest of rows, which
    makes all of them damaged -> each fails.
    """
    home, device = unpack("services", tmp_path, version), unpack("agent", tmp_path, version)
    told = await going_on(home, device)
    assert differences(transcript("after", version), told) == []


async def test_what_is_made_anew_has_the_same_form(tmp_path: Path) -> None:
    """Tables, indices, triggers and version numbers of every SQLite file, blanks aside: in the
    newest frozen folders, and in folders that today's programs begin.

    Planted: "before_s" of the table "lost" as "begun_s"; the index "seen_purpose" left out;
    user_version one more -> each fails.
    """
    version = VERSIONS[-1]
    home, device = unpack("services", tmp_path, version), unpack("agent", tmp_path, version)
    expected = json.loads((FROZEN / version / "schemas.json").read_text())
    assert _schemas(home, device) == expected
    folders = Folders(home)
    for folder in (folders.data("shuffler"), folders.data("analyzer"), device):
        for one in folder.rglob("*"):
            if one.is_file() and (folder != device or one.name.startswith("outbox.db")):
                one.unlink()
    async with serving(folders, NOW) as services:
        await services.start_analyzer()
        await services.start_shuffler()
        async with services.agent(device) as agent:
            await agent.consent("to know totals", "allowed")
            await agent.accept("moments")
            for name, value in (("badges", True), ("moments", [1.0, 0.5, 0.0, 0.0, -1.0])):
                outcome = await agent.report(name, value)
                assert (outcome.state, outcome.fresh, outcome.window) == (
                    ReportState.ACKED,
                    True,
                    2,
                )
        devices = [folders.device() for _ in range(6)]
        parts = (services.take_part(device, window=2) for device in devices)
        outcomes = await asyncio.gather(*parts)
        assert {outcome.state for outcome in outcomes} == {RoundState.COUNTED}
    assert _schemas(home, device) == {
        name: [new for old in form for new in SINCE.get(name, {}).get(old, (old,))]
        for name, form in expected.items()
    }


def _schemas(home: Path, device: Path) -> dict[str, list[str]]:
    """By name of the file; inboxes are one, whatever window they are of."""
    files = [*home.rglob("*.db"), *device.glob("outbox.db"), *device.glob("outbox.db.rounds")]
    return {
        one.name.split("-")[0] if "inbox" in one.name else one.name: schema(one)
        for one in sorted(files)
    }
