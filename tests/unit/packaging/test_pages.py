"""What docs/ says of the device, its files and load tests is what the code has: tables are read
from the pages and compared.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from itertools import pairwise
from pathlib import Path

from shoal.cli.agent.parser import build_parser
from shoal.clients.fleet.misbehaviour import Carrier, Conduct, expected
from shoal.clients.memory.ledger import LedgerEvent, chained
from shoal.clients.sources.spec import KINDS
from shoal.errors import Kind
from tests.cases import for_each

ROOT = Path(__file__).resolve().parents[3]
PAGES = {
    name: (ROOT / "docs" / f"{name}.md").read_text()
    for name in ("AGENT", "ROOMS", "DATA_MODEL", "LOAD", "THREAT_MODEL")
}


def table(page: str, first_header: str) -> list[list[str]]:
    """The rows of the table whose header begins with this cell."""
    lines = PAGES[page].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first_header} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def names(page: str, first_header: str) -> set[str]:
    """Everything between backticks in a table's first column."""
    return {name for row in table(page, first_header) for name in re.findall(r"`([^`]+)`", row[0])}


def test_the_agents_tables() -> None:
    """Planted: a table in outbox_002.sql that docs/DATA_MODEL.md does not name -> this fails."""
    scripts = "".join(
        path.read_text()
        for path in sorted((ROOT / "clients" / "memory" / "migrations").glob("outbox_*.sql"))
    )
    made = set(re.findall(r"^CREATE TABLE (\w+)", scripts, re.MULTILINE))
    for old, new in re.findall(r"^ALTER TABLE (\w+) RENAME TO (\w+)", scripts, re.MULTILINE):
        made = made - {old} | {new}
    assert names("DATA_MODEL", "table") == made


def test_the_ledgers_events_and_its_chain() -> None:
    """Planted: an event without a row; another label of the chain on the page -> this fails."""
    assert names("AGENT", "event") == {event.value for event in LedgerEvent}
    label = re.search(
        r'hash\(n\) = SHA-256\("([^"]+)" \|\| 0x00 \|\| hash\(n - 1\) \|\| body\(n\)\)',
        PAGES["AGENT"],
    )
    assert label is not None
    assert (
        chained(bytes(32), b"{}")
        == hashlib.sha256(label[1].encode() + b"\x00" + bytes(32) + b"{}").digest()
    )


def test_the_agents_commands_and_sources() -> None:
    """Planted: a command or a kind of source without a row -> this fails."""
    groups = [
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    assert {name.split()[2] for name in names("AGENT", "command")} == set(groups[0].choices)
    assert names("AGENT", "kind") == set(KINDS)


@for_each("conduct", [one for one in Conduct if one is not Conduct.HONEST])
def test_the_right_answers_of_a_load(conduct: Conduct) -> None:
    """Planted: UNKNOWN_KEY as the answer to a truncated frame, on the page or in the code ->
    this fails.
    """
    rows = {row[0].strip("`").replace(" ", "_").upper(): row[2] for row in table("LOAD", "client")}
    assert rows.keys() == {one.name for one in Conduct} - {"HONEST"}
    told = {Kind[word] for word in re.findall(r"\b[A-Z_]{5,}\b", rows[conduct.name])}
    assert told == expected(conduct, Carrier.GRPC) - (
        {Kind.WINDOW_FULL, Kind.WINDOW_CLOSED} if conduct is not Conduct.LATE else set()
    )


def test_every_package_has_its_row() -> None:
    """Planted: a new folder with code that docs/ROOMS.md does not name -> this fails."""
    listed = {name.rstrip("/") for name in names("ROOMS", "folder")}
    packages = {
        str(path.parent.relative_to(ROOT))
        for top in ("common", "clients", "crypto", "mechanisms", "checker", "study", "console")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert packages - {"common/rpc"} <= listed | {"common/rpc"}
    assert all((ROOT / name).is_dir() for name in listed if name != ".links/shoal")


def test_files_that_a_page_names_are_there() -> None:
    """Planted: ``clients/timetables.py`` on a page -> this fails."""
    folders = (
        "accounting|analyzer|benchmarks|checker|cli|clients|common|console|crypto|deploy|docs|"
        "mechanisms|protos|shuffler|study|tests|tools"
    )
    file = re.compile(
        rf"(?<![\w/.])(?:{folders})/[\w/]+\.(?:py|proto|md|toml|json|sql|conf|acl|service)\b"
    )
    for path in sorted((ROOT / "docs").rglob("*.md")):
        # commands make files of their own
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        gone = [
            name
            for name in file.findall(text)
            if "NAME" not in name and not (ROOT / name).is_file()
        ]
        assert not gone, f"{path.relative_to(ROOT)} names {gone}"


def test_every_decision_is_in_the_index_under_its_number() -> None:
    """Planted: a record that docs/decisions/README.md does not list; a number given twice ->
    this fails.
    """
    folder = ROOT / "docs" / "decisions"
    rows = re.findall(
        r"^\| \[(\d{4})\]\((.+?)\) \| (.+) \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    assert {name for _, name, _ in rows} == {
        str(path.relative_to(folder)) for path in folder.glob("*/*.md")
    }
    # A number may be missing: it was kept for a record that is being written.
    assert len({number for number, _, _ in rows}) == len(rows)
    for number, name, title in rows:
        assert (folder / name).read_text().startswith(f"# {number}. {title}\n\n**Decision.** "), (
            name
        )


# --- columns ------------------------------------------------------------------------------------

COLUMNS = 100
_OURS = ("*.md", "benchmarks/*.md", "deploy/*.md", "docs/**/*.md")


def too_wide(page: str) -> list[int]:
    """Numbers, from 1, of the lines that are wider than ``COLUMNS``.

    Not held to it: a row of a table, which Markdown can't break; a block marked ``text``, which
    shows what a program prints; a line that is one long word, such as a digest.
    """
    found, fence = [], ""
    for number, line in enumerate(page.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fence = "" if fence else line.strip()
        elif len(line) > COLUMNS and fence != "```text" and not line.lstrip().startswith("|"):
            found += [number] if re.search(r"\S\s", line.lstrip("->* ")) else []
    return found


def test_pages_are_at_most_100_columns_wide() -> None:
    """Planted: two lines of docs/LOAD.md joined -> this fails, and names the file and the line."""
    paths = sorted({path for pattern in _OURS for path in ROOT.glob(pattern)})
    ours = [path for path in paths if "node_modules" not in path.parts]
    assert {ROOT / "README.md", ROOT / "docs" / "WIRE.md"} <= set(ours)
    wide = [
        f"{path.relative_to(ROOT)}:{row}" for path in ours for row in too_wide(path.read_text())
    ]
    assert not wide, f"wider than {COLUMNS} columns: {', '.join(wide)}"


def test_samples_and_schemas_are_at_most_100_columns_wide() -> None:
    """Configurations that people fill in, schemas, and what builds. Not migrations: their text is
    written into every store. Planted: two lines of deploy/agent.toml joined -> this fails.
    """
    ours = (".ci/run", "Makefile", "cli/**/*.toml", "deploy/**/*", "protos/*.proto", "tools/*.sh")
    paths = [path for pattern in ours for path in ROOT.glob(pattern) if path.is_file()]
    assert {ROOT / "deploy" / "agent.toml", ROOT / "protos" / "task.proto"} <= set(paths)
    wide = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        if path.suffix != ".md"
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > COLUMNS
    ]
    assert not wide, f"wider than {COLUMNS} columns: {', '.join(wide)}"


def test_an_entry_of_the_changelog_is_one_line() -> None:
    """Planted: an entry that goes on in the next line; the same entry twice -> this fails."""
    lines = (ROOT / "CHANGELOG.md").read_text().split("\n## ", 1)[1].splitlines()
    entries = [line for line in lines if line.startswith("- ")]
    goes_on = [
        line
        for before, line in pairwise(lines)
        if before.startswith("- ") and line[:2] not in {"", "- "}
    ]
    assert not goes_on, goes_on
    assert len(entries) == len(set(entries)), sorted(
        line for line in set(entries) if entries.count(line) > 1
    )


def test_what_is_held_to_it() -> None:
    long = "word " * 30
    assert too_wide(f"{long}\n\n- {long}\n    {long}\n\n> {long}\n\n## {long}\n") == [1, 3, 4, 6, 8]
    assert too_wide(f"```sh\n{long}\n```\n\n    {long}\n") == [2, 5]
    assert too_wide(f"| {long} |\n\n```text\n{long}\n```\n\n- {'a' * 120}\n") == []
    assert too_wide(f"```text\n{long}\n```\n{long}\n") == [4], "after the block it is prose again"
