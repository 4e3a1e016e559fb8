"""``python -m benchmarks [NAME...] [--quick] [--json FILE]``: run benchmarks, print figures, decide
nothing.

The exit status says whether they ran, never whether a goal was met: a ratio measured beside a busy
neighbour is no verdict.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from benchmarks import machine, ratios
from benchmarks.bench import Bench, Scale
from benchmarks.figures import Outcome, show

# In this order: "memory" uses the deployments up that "opening" reads.
NAMES = (
    "unary",
    "connections",
    "batch",
    "overload",
    "inbox",
    "blocks",
    "growth",
    "opening",
    "dask",
    "sealing",
    "several",
    "near_central",
    "ranges",
    "place_trees",
    "maps",
    "words",
    "memory",
    "mechanisms",
    "peers",
    "accounting",
    "bounds",
    "composition",
    "planner",
    "secagg",
    "long_vectors",
    "ten_million",
    "cohorts",
    "prepared",
    "agent",
    "mqtt",
    "million",
    "million_messages",
    "replicas",
    "demo",
    "console",
)


def run_one(name: str, bench: Bench) -> tuple[str, Outcome]:
    """(title, outcome) of one benchmark."""
    module = importlib.import_module(f"benchmarks.{name}")
    return module.TITLE, module.run(bench)


def main(arguments: list[str] | None = None) -> int:
    """Run the named benchmarks; 1 if one could not run, or with ``--strict`` if a kept figure fell,
    else 0. ``arguments``: None are the command's own.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"no benchmark is named {unknown[0]}: choose from {', '.join(NAMES)}")
    scale = Scale.QUICK if options.quick else Scale.FULL
    try:
        kept = ratios.load(ratios.FILE) if options.check or options.save_ratios else {}
        commit = _commit() if options.save_ratios else ""
    except ValueError as error:
        parser.error(str(error))
    wanted = options.names or (kept if options.check and not options.save_ratios else NAMES)
    names = [name for name in NAMES if name in wanted]
    with tempfile.TemporaryDirectory(prefix="shoal-bench-", dir=options.dir) as folder:
        bench = Bench(scale, Path(folder))
        try:
            result = run_all(bench, names)
        finally:
            bench.close()
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    now = ratios.measured(result, commit, today)
    fell: Sequence[ratios.Compared] = ()
    if options.check:
        text, fell = ratios.report(kept, now, names)
        print(f"\nagainst {ratios.FILE.name}:\n{text}")
    if options.save_ratios:
        ratios.save(ratios.FILE, {**kept, **now})
    return 1 if result["failed"] or (options.strict and fell) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Ratios to bare limits on this machine; see benchmarks/README.md.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; all of them if none is given"
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller counts, a fifth of the time or less"
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write everything, every repetition included, to FILE",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="where files go while it runs; a disk, not tmpfs (default: the system's)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="say what fell or rose since the figures kept in benchmarks/ratios.json; without "
        "names, run those that it has",
    )
    parser.add_argument(
        "--strict", action="store_true", help="with --check: exit status 1 if a figure fell"
    )
    parser.add_argument(
        "--save-ratios",
        action="store_true",
        help="keep these figures in benchmarks/ratios.json, beside those of other benchmarks",
    )
    return parser


def _commit() -> str:
    """The commit that is measured. Raises ValueError if files differ from it, ratios.json apart."""
    shown = [
        subprocess.run(
            ["git", *command], capture_output=True, text=True, check=False, cwd=ratios.FILE.parent
        )
        for command in (
            ["rev-parse", "--short=10", "HEAD"],
            ["status", "--porcelain", "--", ":/", f":!{ratios.FILE.name}"],
        )
    ]
    if any(each.returncode for each in shown):
        raise ValueError("figures are kept with their commit, and this is no git repository")
    if shown[1].stdout.strip():
        raise ValueError("figures are kept with their commit: commit what you changed first")
    return shown[0].stdout.strip()


def run_all(bench: Bench, names: list[str]) -> dict[str, Any]:
    """Run them in turn and print as they end; one that fails doesn't keep the others from
    running.
    """
    described = machine.describe(bench.folder)
    print(json.dumps(described, indent=1), flush=True)
    if described["file_system"] in {"tmpfs", "ramfs"}:
        print(
            "warning: files go to memory, so nothing is durable and no bytes are written: give "
            "--dir",
            file=sys.stderr,
        )
    found: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name in names:
        others, begin = machine.Others(), time.monotonic()
        try:
            title, outcome = run_one(name, bench)
        except Exception as error:  # noqa: BLE001 - the others are still worth running
            failed[name] = f"{type(error).__name__}: {error}"
            print(f"\n{name}: FAILED\n{traceback.format_exc()}", flush=True)
            continue
        seconds, busy = time.monotonic() - begin, others.cores()
        print(
            f"\n{show(name, title, outcome)}\n  took {seconds:.0f} s; other programs used "
            f"{busy:.2f} cores meanwhile",
            flush=True,
        )
        found[name] = {
            "title": title,
            **outcome.to_json(),
            "seconds": seconds,
            "cores_used_by_others": busy,
        }
    missed = [
        f"{name}: {one['what']}"
        for name, each in found.items()
        for one in each["figures"]
        if one["met"] is False
    ]
    print(
        "\nevery goal that was measured is met"
        if not missed
        else "\nmissed goals:\n  " + "\n  ".join(missed)
    )
    if failed:
        print("failed, so not measured: " + ", ".join(failed))
    return {
        "scale": bench.scale.value,
        "machine": described,
        "benchmarks": found,
        "missed": missed,
        "failed": failed,
    }


if __name__ == "__main__":
    sys.exit(main())
