"""Whether an earlier version opens what today's services leave: ``PYTHONPATH=. python
tools/rollback.py b28ec45 0001``. It wants the repository's history, so no test runs it: run it
before a release, with the commit of every frozen version.

Today's services go on with the version's frozen folders to their end. Then its own programs, taken
from the history, and today's are asked the same things about a copy of what is left.
"""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

from tests.vectors.frozen_corpus import unpack
from tests.vectors.test_frozen_services import going_on

ROOT = Path(__file__).resolve().parent.parent
_RUN = """
import sys
sys.meta_path = [one for one in sys.meta_path if "editable" not in str(one).lower()]
sys.path.insert(0, sys.argv[1])
import shoal
assert sys.argv[1] in shoal.__file__, shoal.__file__
from shoal.cli.main import main
sys.exit(main(sys.argv[2:]))
"""
_STORE = """
import sys
sys.meta_path = [one for one in sys.meta_path if "editable" not in str(one).lower()]
sys.path.insert(0, sys.argv[1])
import importlib
from pathlib import Path
home = Path(sys.argv[2])
places = ("shoal.shuffler.stores.sqlite.store", "shoal.shuffler.sqlite_store")
for place in places:
    try:
        store = importlib.import_module(place).SqliteStore(home / "shuffler" / "data")
    except ModuleNotFoundError:
        continue
    break
for window, record in sorted(store.records().items()):
    fields = record.state.name, record.outcome and record.outcome.name, record.reports, record.rows
    print(window.task_id.hex, window.window, *fields, record.damaged)
print("damage", len(list(store.damage())))
import shoal.analyzer.store as module
found = getattr(module, "AnalyzerStore", None) or module.Store
found = found(home / "analyzer" / "data" / "analyzer.db")
for batch in found.batches():
    print(batch.manifest_hash.hex, batch.state.name)
print("releases", len(found.releases()), "damage", len(found.damage()))
print("composed", sorted((one.task_id.hex, one.epsilon_upper) for one in found.spendings()))
"""


def main(commit: str, version: str) -> int:
    """Print what differs; the number of questions that were answered otherwise."""
    with tempfile.TemporaryDirectory() as made:
        old, now = Path(made) / "old", Path(made) / "now"
        _linked(_taken(commit, old / "source"), old / "links")
        _linked(ROOT, now / "links")
        home = Path(made) / "home"
        home.mkdir()
        services, agent = (unpack(name, home, version) for name in ("services", "agent"))
        asyncio.run(going_on(services, agent))
        asked: list[tuple[str, Path, list[str]]] = [
            (_RUN, services, ["results", "list", "--data", "analyzer/data", "--json"]),
            (_RUN, agent, ["agent", "ledger", "--config", "agent.toml", "--json"]),
            (_RUN, agent, ["agent", "budget", "--json", "--config", "agent.toml"]),
            (_STORE, services, ["."]),
        ]
        wrong = 0
        for code, folder, arguments in asked:
            answers = []
            for links in (old / "links", now / "links"):
                copy = Path(made) / "copy"
                shutil.copytree(folder, copy)
                answers.append(_ask(code, links, copy, arguments))
                shutil.rmtree(copy)
            name = " ".join(arguments) if code is _RUN else "the stores, opened to go on"
            same = answers[0] == answers[1]
            wrong += not same
            first = answers[0].splitlines()
            told = f"exit status {first[0]}, {len(first) - 1:,} lines"
            print(f"{'the same' if same else 'DIFFERENT'}: {name} ({told})")
            if not same:
                print(*answers, sep="\n--- and today ---\n")
        return wrong


def _taken(commit: str, folder: Path) -> Path:
    data = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def _linked(source: Path, folder: Path) -> None:
    """``shoal`` as it is installed from there, by links."""
    named = tomllib.loads((source / "pyproject.toml").read_text())["tool"]["setuptools"]
    top = folder / "shoal"
    top.mkdir(parents=True)
    for package, place in named["package-dir"].items():
        if package.count(".") == 1 and not place.startswith("common/"):
            (top / package.partition(".")[2]).symlink_to(source / place)
    for entry in (source / "common").iterdir():
        if entry.name != "__pycache__":
            (top / entry.name).symlink_to(entry)


def _ask(code: str, links: Path, folder: Path, arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, str(links), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return json.dumps(done.returncode) + "\n" + done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
