"""``shoal load --part`` and ``--merge``: one load from several machines. Each part keeps, beside
its figures, the plan that it is a part of; together they are one load with one comparison.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal.arrays import NDArray, np
from shoal.cli.load.options import LoadOptions
from shoal.cli.load.tasks import Target
from shoal.cli.load.values import RowsOfTasks
from shoal.cli.output import read_bytes
from shoal.clients.fleet.parts import MOST_PARTS
from shoal.clients.fleet.plan import SimulationPlan, SimulationResult
from shoal.domain import Numeric
from shoal.errors import Kind, ShoalError

_MOST_BYTES = 64 << 20  # of a part's JSON: a truth of 65,536 labels for each of many tasks
_FINE = 100  # classes of latencies per doubling: 0.7 % wide
_WORDS = ("rate", "over", "duplicates", "late", "malformed", "hostile")
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


def part_json(
    options: LoadOptions,
    plan: SimulationPlan,
    loaded: list[Target],
    rows: RowsOfTasks,
    result: SimulationResult,
) -> dict[str, Any]:
    """What a part's JSON has beside its figures; nothing for a load that is whole."""
    if plan.part is None:
        return {}
    tasks = [
        {
            "task_id": target.served.task_id.hex,
            "window": target.window,
            "messages": target.served.task.messages,
            "numeric": isinstance(target.served.task.domain, Numeric),
            "values": _digest(rows.values[at]) if at in rows.values else None,
        }
        for at, target in enumerate(loaded)
    ]
    said = {word: getattr(options, word) for word in _WORDS}
    said["arrival"] = options.arrival.value
    fleet = {"devices": plan.part.fleet, "parts": plan.part.of, "way": plan.way.value}
    return {
        "part": {
            "number": plan.part.number + 1,
            "plan": {"tasks": tasks, **fleet, **said},
            "garbage_unknown": [result.garbage_of(at)[1] for at in range(len(loaded))],
            "latencies": classes_of(np.asarray(result.latencies_ms)),
        }
    }


def _digest(values: Iterable[object]) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(repr(value).encode() + b"\n")
    return digest.hexdigest()


def classes_of(latencies_ms: NDArray[np.float32]) -> dict[str, int]:
    """How many lie in each class, whose number is in the text: up to 2^(number / 100) ms."""
    classes = np.ceil(np.log2(np.maximum(latencies_ms, 1e-3)) * _FINE).astype(np.int64)
    found, counts = np.unique(classes, return_counts=True)
    return {str(int(one)): int(count) for one, count in zip(found, counts, strict=True)}


def percentiles_of(classes: Mapping[int, int], names: Iterable[str]) -> dict[str, float]:
    """Milliseconds, not below the exact ones and at most 0.7 % above."""
    ordered, total = sorted(classes.items()), sum(classes.values())
    found: dict[str, float] = {}
    for name in names:
        wanted, seen = max(1, math.ceil(_SHARES[name] * total)), 0
        for number, count in ordered:
            seen += count
            if seen >= wanted:
                found[name] = 2.0 ** (number / _FINE)
                break
    return found


def read_parts(paths: list[Path]) -> list[dict[str, Any]]:
    """All parts of one plan, in their order. Raises CONFIG for a file that is none, one of another
    plan, one that is missing or there twice.
    """
    parts: dict[int, tuple[Path, dict[str, Any]]] = {}
    first: tuple[Path, dict[str, Any]] | None = None
    for path in paths:
        told = _read(path)
        number, plan = told["part"]["number"], told["part"]["plan"]
        first = first or (path, plan)
        _same(path, plan, *first)
        with _complaining(path):
            merged([told])  # whatever a whole is made of is there
        if number in parts:
            raise _wrong(
                f"{path.name} and {parts[number][0].name} are both part {number}: one is wanted"
            )
        parts[number] = path, told
    of = 0 if first is None else first[1]["parts"]
    missing = sorted(set(range(1, of + 1)) - parts.keys())
    if missing or len(parts) != of:
        few = ", ".join(map(str, missing[:5])) + (" and more" if len(missing) > 5 else "")
        raise _wrong(f"of {of} parts {len(missing)} are missing: {few}: --merge wants all of them")
    return [told for _, (_, told) in sorted(parts.items())]


def _same(path: Path, plan: dict[str, Any], first: Path, wanted: dict[str, Any]) -> None:
    for key in sorted(plan.keys() | wanted.keys()):
        if plan.get(key) != wanted.get(key):
            raise _wrong(
                f"{path.name} is a part of another load than {first.name}: their {key} differ; a "
                "load has the same options on every machine, --window among them"
            )


@contextmanager
def _complaining(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise _wrong(
            f"{path.name} is no whole JSON of a part, or of another version: send that part again"
        ) from None


def _read(path: Path) -> dict[str, Any]:
    with _complaining(path):
        told: Any = json.loads(read_bytes(path, _MOST_BYTES))
        if not isinstance(told, dict) or "part" not in told:
            raise _wrong(f"{path.name} is no part of a load: --part I/N --json prints one")
        _check(told)
    return dict(told)


def _check(told: dict[str, Any]) -> None:
    """Raises ValueError, LookupError, TypeError."""
    part, plan = told["part"], told["part"]["plan"]
    if not 1 <= part["number"] <= plan["parts"] <= MOST_PARTS:
        raise ValueError("parts")
    if not len(told["tasks"]) == len(plan["tasks"]) == len(part["garbage_unknown"]) > 0:
        raise ValueError("tasks")
    counts = [told["sent"], told["acked"], told["unknown"], *told["refused"].values()]
    counts += [*part["garbage_unknown"], *part["latencies"].values(), *told["surprises"].values()]
    counts += [task[name] for task in told["tasks"] for name in _COUNTS]
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        raise ValueError("counts")
    if not all(math.isfinite(told[name]) for name in ("began_at", "seconds", "prepare_seconds")):
        raise ValueError("times")
    sorted(map(int, part["latencies"]))


_COUNTS = ("sent", "acked", "unknown", "garbage")


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One load of all: as ``shoal load --json`` prints one, not yet compared."""
    plan = parts[0]["part"]["plan"]
    began = min(part["began_at"] for part in parts)
    seconds = max(part["began_at"] + part["seconds"] for part in parts) - began
    classes, names = Counter[int](), dict[str, None]()
    for part in parts:
        classes.update({int(one): count for one, count in part["part"]["latencies"].items()})
        names |= dict.fromkeys(part["latency_ms"])
    whole: dict[str, Any] = {
        **{name: sum(part[name] for part in parts) for name in ("sent", "acked", "unknown")},
        "refused": _added(part["refused"] for part in parts),
        "duplicates": _added(part["duplicates"] for part in parts),
        "misbehaving": _breaches(parts),
        "surprises": _added(part["surprises"] for part in parts),
        "began_at": began,
        "seconds": seconds,
        "prepare_seconds": max(part["prepare_seconds"] for part in parts),
        "decided_seconds": None,
        "rate_asked": plan["rate"],
        "latency_ms": percentiles_of(classes, (name for name in names if name in _SHARES)),
        "services": {},
        "generator": {
            **_added(part["generator"] for part in parts),
            "memory_bytes": max(part["generator"]["memory_bytes"] for part in parts),
        },
        "interrupted": any(part["interrupted"] for part in parts),
        "parts": len(parts),
        "tasks": [_task(parts, at) for at in range(len(plan["tasks"]))],
    }
    return {**whole, "rate": whole["acked"] / seconds if seconds > 0 else 0.0}


def _task(parts: list[dict[str, Any]], at: int) -> dict[str, Any]:
    """``truth``: of counts alone; means and quantiles do not add up."""
    each = [part["tasks"][at] for part in parts]
    told = parts[0]["part"]["plan"]["tasks"][at]
    truths = [task["truth"] for task in each if "truth" in task]
    return {
        "task": each[0]["task"],
        "task_id": told["task_id"],
        "window": told["window"],
        **{name: sum(task[name] for task in each) for name in _COUNTS},
        "counted": None,
        "rejected": None,
        "agrees": None,
        **({"truth": _added(truths)} if truths and not told["numeric"] else {}),
    }


def _added(counts: Iterable[Mapping[str, float]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def _breaches(parts: list[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for part in parts:
        for conduct, told in part["misbehaving"].items():
            have = total.setdefault(conduct, {"refused": {}})
            refused = _added((have["refused"], told["refused"]))
            plain = [{k: v for k, v in one.items() if k != "refused"} for one in (have, told)]
            total[conduct] = {**_added(plain), "refused": refused}
    return total


def unknown_garbage(parts: list[dict[str, Any]], at: int) -> int:
    """Reports of a task that the analyzer must reject, if it has them."""
    return sum(part["part"]["garbage_unknown"][at] for part in parts)


def _wrong(message: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, message)
