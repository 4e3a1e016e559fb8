"""What a discovery found, held against what its made-up devices have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from shoal.domain import Discovery, Value
from shoal.questions.discovery import DiscoveryLevel
from shoal.questions.spelling import ANOTHER, MORE, shown


def true_beginnings(
    level: DiscoveryLevel, values: Sequence[Value], beginnings: Sequence[bytes]
) -> dict[str, float]:
    """Devices whose answer at a level each of the ``beginnings`` is, as people read it, and of how
    many it is another.
    """
    words = Counter(map(level.discovery.word, values))
    cells = Counter[int]()
    for word, devices in words.items():
        cells[level.cell_of(word)] += devices
    truth = {shown(one): float(cells[level.cell_of(one)]) for one in beginnings}
    return truth | {ANOTHER: float(cells[level.size - 1])}


def words_of_run(
    discovery: Discovery,
    values: Sequence[Value],
    tasks: Sequence[dict[str, Any]],
    *,
    least: int,
    found_from: int,
    drawn: int | None = None,
) -> dict[str, Any]:
    """Words that were found, those that were not although enough devices have them to be found with
    95 %, and those that nobody has. ``tasks``: of each window that the devices answered, with its
    truth: more than ``levels``, those planned, where some were asked again. ``least``: the
    threshold at the largest level; ``found_from``: see ``DiscoveryPlan``, in devices of all;
    ``drawn``: windows among which each device drew its own.
    """
    by_word = dict[str, dict[str, Any]]()  # a level that is asked again finds its words again
    for task in tasks:
        if task["release"]["withheld"]:
            continue
        is_last = task["release"]["discovered"]["level"] == discovery.levels - 1
        by_word |= {
            one["label"]: {
                "word": one["label"],
                "estimate": one["value"],
                "stderr": one["stderr"],
                "truth": task["truth"][one["label"]],
            }
            for one in task["release"]["estimates"]
            if one["label"] != ANOTHER and (is_last or not one["label"].endswith(MORE))
        }
    found = sorted(by_word.values(), key=lambda one: -one["estimate"])
    spelled = Counter(word for word in map(discovery.word, values) if word)
    held = {shown(word): devices for word, devices in spelled.items()}
    missed = {
        word: devices
        for word, devices in held.items()
        if devices >= found_from and word not in by_word
    }
    return {
        "words": found,
        "missed": [{"word": word, "truth": count} for word, count in sorted(missed.items())],
        "false": sum(one["truth"] == 0.0 for one in found),
        "threshold": least,
        "found_from": found_from,
        "known": len(values) - sum(spelled.values()),
        "distinct": len(held),
        "levels": discovery.levels,
        "windows": len(tasks),
        "drawn": drawn,
    }
