"""The figures of the last release, kept in ``ratios.json``, and what has fallen since. Pure, but
for the two functions that read and write the file.

Kept are figures whose better side is known (``better``): all that have a goal, and ratios named
after a rate, CPU or a time. Each with the commit, the day and the size at which its benchmark ran,
and how busy other programs kept the machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from benchmarks.figures import RATIO, number

FILE = Path(__file__).with_name("ratios.json")
BUSY = 0.25  # of the machine's cores: beside others that use more, a run is no evidence
# Of the median. A figure measured once has no spread, and three runs may agree by luck.
_LEAST_SPREAD = 0.03
_LOWER = ("CPU", "time", "latency", "memory")


class Better(Enum):
    """Which side of a figure is the good one."""

    HIGHER = "higher"
    LOWER = "lower"


class Change(Enum):
    """What became of a figure since it was kept."""

    FELL = "fell"
    ROSE = "rose"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Kept:
    """One figure of one run, without its repetitions."""

    unit: str
    better: Better
    median: float
    low: float
    high: float

    def slack(self) -> tuple[float, float]:
        """Smallest and largest value that count as this figure's own spread."""
        least = abs(self.median) * _LEAST_SPREAD
        return min(self.low, self.median - least), max(self.high, self.median + least)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values. Four digits: the fifth is chance."""
        return {
            "unit": self.unit,
            "better": self.better.value,
            "median": _short(self.median),
            "min": _short(self.low),
            "max": _short(self.high),
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """One benchmark's kept figures, and how they came about. ``others``: cores that other programs
    used meanwhile, of ``cores``.
    """

    commit: str
    date: str
    scale: str
    cores: int
    others: float
    figures: Mapping[str, Kept]

    @property
    def busy(self) -> bool:
        """Whether others used so much of the machine that the figures are no evidence."""
        return self.others > BUSY * self.cores

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as the file has them."""
        return {
            "commit": self.commit,
            "date": self.date,
            "scale": self.scale,
            "cores": self.cores,
            "cores_used_by_others": round(self.others, 2),
            "figures": {what: figure.to_json() for what, figure in self.figures.items()},
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure then and now."""

    name: str
    what: str
    before: Kept
    now: Kept

    @property
    def change(self) -> Change:
        """FELL or ROSE only where each median lies outside of the other's spread."""
        (low, high), (now_low, now_high) = self.before.slack(), self.now.slack()
        up = self.now.median > high and self.before.median < now_low
        down = self.now.median < low and self.before.median > now_high
        if not up and not down:
            return Change.SAME
        return Change.ROSE if up == (self.before.better is Better.HIGHER) else Change.FELL

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.what}: {_between(self.before)} -> {_between(self.now)} "
            f"{self.now.unit}"
        )


def better(figure: Mapping[str, Any]) -> Better | None:
    """The good side of a figure as ``Figure.to_json`` writes it; None where nothing tells it, and
    the figure is not kept.
    """
    goal = figure["goal"]
    if goal is not None:
        return Better.HIGHER if goal.startswith(">=") else Better.LOWER
    words = figure["what"].replace(",", " ").replace(":", " ").split()
    if figure["unit"] != RATIO:
        return None
    if "rate" in words:
        return Better.HIGHER
    return Better.LOWER if any(word in words for word in _LOWER) else None


def measured(result: Mapping[str, Any], commit: str, date: str) -> dict[str, Measured]:
    """Of a run (``__main__.run_all``): what is worth keeping of each benchmark, by its name."""
    found = {}
    for name, each in result["benchmarks"].items():
        figures = {
            one["what"]: Kept(one["unit"], side, one["median"], one["min"], one["max"])
            for one in each["figures"]
            if (side := better(one)) is not None
        }
        if figures:
            others, cores = each["cores_used_by_others"], result["machine"]["cores"]
            found[name] = Measured(commit, date, result["scale"], cores, others, figures)
    return found


def load(path: Path) -> dict[str, Measured]:
    """What was kept; nothing where there is no file. Raises ValueError for a file that ``save`` did
    not write.
    """
    if not path.exists():
        return {}
    try:
        written = json.loads(path.read_text())
        return {name: _measured(each) for name, each in written.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged: take it from the last commit again, or measure with --save-ratios"
        ) from error


def save(path: Path, kept: Mapping[str, Measured]) -> None:
    """Write the file: sorted by name, one line per value, so that a commit shows what changed."""
    written = {name: kept[name].to_json() for name in sorted(kept)}
    path.write_text(json.dumps(written, indent=1) + "\n")


def report(
    before: Mapping[str, Measured], now: Mapping[str, Measured], names: Iterable[str]
) -> tuple[str, list[Compared]]:
    """Text for people, and the figures that fell. ``names``: the benchmarks that were asked for."""
    asked = [name for name in names if name in before]
    alike = [name for name in asked if name in now and now[name].scale == before[name].scale]
    pairs = [
        Compared(name, what, figure, now[name].figures[what])
        for name in alike
        for what, figure in before[name].figures.items()
        if what in now[name].figures
    ]
    of = {change: [pair for pair in pairs if pair.change is change] for change in Change}
    lines = _section("fell by more than its spread", of[Change.FELL])
    lines += _section("rose by more than its spread", of[Change.ROSE])
    lines.append(f"{len(of[Change.SAME])} of {len(pairs)} figures are within their spread")
    lines += _section("not measured", _absent(asked, before, now))
    new = (f"{name}: {what}" for name, what in _figures(now) if what not in _of(before, name))
    lines += _section("new, so there is nothing to compare with", new)
    lines += _evidence(alike, before, now)
    return "\n".join(lines), of[Change.FELL]


def _measured(each: Mapping[str, Any]) -> Measured:
    return Measured(
        str(each["commit"]),
        str(each["date"]),
        str(each["scale"]),
        int(each["cores"]),
        float(each["cores_used_by_others"]),
        {
            what: Kept(
                str(one["unit"]),
                Better(one["better"]),
                float(one["median"]),
                float(one["min"]),
                float(one["max"]),
            )
            for what, one in each["figures"].items()
        },
    )


def _absent(
    asked: Iterable[str], before: Mapping[str, Measured], now: Mapping[str, Measured]
) -> Iterable[str]:
    for name in asked:
        if name not in now:
            yield f"{name}: it failed or has no figures any more"
        elif now[name].scale != before[name].scale:
            yield f"{name}: kept at the size {before[name].scale}, measured at {now[name].scale}"
        else:
            gone = [what for what in before[name].figures if what not in now[name].figures]
            yield from (f"{name}: {what}" for what in gone)


def _evidence(
    alike: Iterable[str], before: Mapping[str, Measured], now: Mapping[str, Measured]
) -> list[str]:
    """When figures were measured beside busy neighbours, or on another number of cores: what they
    prove.
    """
    alike = list(alike)
    lines = [
        f"{name}: other programs used {now[name].others:.1f} of {now[name].cores} cores: this run "
        "is no evidence"
        for name in alike
        if now[name].busy
    ]
    lines += [
        f"{name}: kept from a run beside others that used {before[name].others:.1f} of "
        f"{before[name].cores} cores ({before[name].commit}): it is no evidence"
        for name in alike
        if before[name].busy
    ]
    lines += [
        f"{name}: kept from {before[name].cores} cores, measured on {now[name].cores}"
        for name in alike
        if before[name].cores != now[name].cores
    ]
    if alike and all(now[name].busy for name in alike):
        lines.append("nothing here is evidence: run it again on a quiet machine")
    return lines


def _figures(kept: Mapping[str, Measured]) -> Iterable[tuple[str, str]]:
    return ((name, what) for name, each in kept.items() for what in each.figures)


def _of(kept: Mapping[str, Measured], name: str) -> Mapping[str, Kept]:
    return kept[name].figures if name in kept else {}


def _section(title: str, entries: Iterable[object]) -> list[str]:
    shown = [f"  {entry}" for entry in entries]
    return [f"{title}:", *shown] if shown else []


def _between(figure: Kept) -> str:
    return f"{number(figure.median)} ({number(figure.low)} to {number(figure.high)})"


def _short(value: float) -> float:
    return float(f"{value:.4g}")
