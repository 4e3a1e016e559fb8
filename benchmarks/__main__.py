"""``python -m benchmarks [NAME...] [--quick] [--json FILE]``: run benchmarks, print figures, decide
nothing.

The exit status says whether they ran, never whether a goal was met: a ratio measured beside a busy
neighbour is no verdict.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from benchmarks import machine
from benchmarks.bench import Bench, Scale
from benchmarks.figures import Outcome, show

# In this order: "memory" uses the deployments up that "opening" reads.
NAMES = (
    "unary",
    "batch",
    "overload",
    "inbox",
    "opening",
    "sealing",
    "memory",
    "mechanisms",
    "peers",
    "accounting",
    "bounds",
    "composition",
    "planner",
    "secagg",
    "prepared",
    "agent",
    "mqtt",
    "million",
    "demo",
    "console",
)


def run_one(name: str, bench: Bench) -> tuple[str, Outcome]:
    """(title, outcome) of one benchmark."""
    module = importlib.import_module(f"benchmarks.{name}")
    return module.TITLE, module.run(bench)


def main(arguments: list[str] | None = None) -> int:
    """Run the named benchmarks; 1 if a goal is missed or one could not run, else 0. ``arguments``:
    None are the command's own.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Ratios to bare limits on this machine; see benchmarks/README.md.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; all of them if none is given"
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller counts: four minutes instead of twenty"
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
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"no benchmark is named {unknown[0]}: choose from {', '.join(NAMES)}")
    scale = Scale.QUICK if options.quick else Scale.FULL
    names = [name for name in NAMES if name in options.names] if options.names else list(NAMES)
    with tempfile.TemporaryDirectory(prefix="shoal-bench-", dir=options.dir) as folder:
        bench = Bench(scale, Path(folder))
        try:
            result = run_all(bench, names)
        finally:
            bench.close()
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if result["failed"] else 0


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
