"""A load in parts against real services: together it is one load."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from shoal.clients.fleet.misbehaviour import Conduct, Shares, mix
from tests.worlds.services.load import WINDOW, LoadSite

DEVICES, OF = 71, 2  # rounded for each half, two reports fewer would be stored
SHARES = ("--duplicates", "0.1", "--late", "0.05", "--malformed", "0.1", "--hostile", "0.1")
STORED = (Conduct.HONEST, Conduct.DUPLICATE, Conduct.SECOND, Conduct.GARBAGE)


async def shoal_load(*arguments: str) -> Any:
    """What --json wrote, of a load that ended well."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal.cli.main", "load", "--json", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


async def test_a_load_in_parts_is_one_load(tmp_path: Path) -> None:
    """Two parts, one after the other, fill one window and are compared once: with all that one load
    would send. Planted: shares of who misbehaves rounded for each part -> the window is not full,
    fails.
    """
    counts = mix(Shares(0.1, 0.05, 0.1, 0.1), DEVICES, enrolled=False)
    stored = sum(counts[conduct] for conduct in STORED)
    site = LoadSite.at(tmp_path / "site")
    task = site.add("parts", stored)
    paths = [tmp_path / f"part-{number}.json" for number in range(1, OF + 1)]
    async with site.running():
        for number, path in enumerate(paths, 1):
            told = await shoal_load(
                *("--task", str(task.file), "--window", str(WINDOW), "--devices", str(DEVICES)),
                *("--part", f"{number}/{OF}", "--processes", "1", *SHARES),
            )
            assert told["tasks"][0]["counted"] is None
            path.write_text(json.dumps(told))
        status = ("--wait", "60", "--analyzer-status", site.urls[0])
        merge = (word for path in paths for word in ("--merge", str(path)))
        whole = await shoal_load(*merge, *status)
    (row,) = whole["tasks"]
    assert (row["agrees"], row["counted"], whole["parts"]) == (True, row["acked"], OF)
    assert row["acked"] + row["garbage"] == stored
    assert whole["misbehaving"].keys() == {
        conduct.name.lower() for conduct in counts.keys() - {*STORED, Conduct.GARBAGE}
    } | {"garbage"}
