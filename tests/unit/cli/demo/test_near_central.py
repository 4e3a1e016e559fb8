"""The demo's counts three times: designs at one epsilon, and the tables."""

from __future__ import annotations

import io
import math
from fractions import Fraction
from typing import Any

import numpy as np
from rich.console import Console

from shoal.accounting.of_task import guaranteed, guaranteed_several
from shoal.cli.demo import near_central
from shoal.cli.demo.near_central import DELTA, EPSILON, near_central_questions, side_by_side
from shoal.entropy import SeededEntropy
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create_any
from tests.sizes import size
from tests.worlds.tapes import Poured

DEVICES = 5_000


def test_all_questions_have_one_central_epsilon() -> None:
    """At nine tenths of the devices. Planted: noise split over all of them -> nothing is proven,
    fails; epsilon0 in place of the central target -> far below, fails.
    """
    asked = near_central_questions(DEVICES)
    assert [one.name for one in asked] == [
        f"{name}-{how}" for name in ("any-visit", "visit-groups") for how in ("several", "single")
    ]
    for one in asked:
        made = create_any(one.mechanism, one.domain)
        if isinstance(made, Several):
            bound = guaranteed_several(made, DEVICES, Fraction(9, 10), DELTA).epsilon_upper
        else:
            bound = guaranteed(made.privacy(), DEVICES, Fraction(9, 10), DELTA).epsilon_upper
        assert 0.98 * EPSILON <= bound <= EPSILON


def test_the_curators_noise_is_geometric_on_both_sides() -> None:
    """A fixed seed; another one gives a false alarm below 1e-6. Planted: one side alone -> its mean
    is off, fails.
    """
    q, entropy, count = math.exp(-0.5), Poured(SeededEntropy("curator")), size(4_000, 100_000)
    drawn = np.array([near_central._curators_noise(q, entropy) for _ in range(count)])
    variance = 2 * q / (1 - q) ** 2
    assert abs(drawn.mean()) < 5 * math.sqrt(variance / count)
    assert abs(drawn.var() / variance - 1) < 5 * math.sqrt(5 / count)
    assert abs(np.mean(drawn == 0) - (1 - q) / (1 + q)) < 5 * math.sqrt(0.25 / count)


def results() -> dict[str, Any]:
    def task(name: str, how: str, labels: tuple[str, ...], off: float) -> dict[str, Any]:
        estimates = [
            {"label": label, "value": 100.0 + at + off, "stderr": abs(off) + at}
            for at, label in enumerate(labels)
        ]
        return {
            "name": f"{name}-{how}",
            "question": f"{name}?",
            "mechanism": {"messages": 41 if how == "several" else 1},
            "truth": {label: 100.0 + at for at, label in enumerate(labels)},
            "release": {
                "estimates": estimates,
                "privacy": {"epsilon0": None if how == "several" else 6.2831},
            },
        }

    return {
        "devices": 1_234,
        "tasks": [
            task(name, how, labels, off)
            for name, labels in (("any-visit", ("no", "yes")), ("visit-groups", ("0", "1", "2+")))
            for how, off in (("several", 1.0), ("single", -9.0))
        ],
    }


def test_the_three_ways_stand_side_by_side() -> None:
    """Every figure in its column, on a screen of 80. Planted: the ways exchanged -> fails."""
    found = results()
    found["near_central"] = side_by_side(found, SeededEntropy(1))
    yes_no, groups = found["near_central"]
    assert [row["several"] - row["truth"] for row in groups["rows"]] == [1.0] * 3
    assert [row["single"] - row["truth"] for row in groups["rows"]] == [-9.0] * 3
    assert (groups["stderr"]["several"], groups["stderr"]["single"]) == (3.0, 11.0)
    assert round(groups["stderr"]["curator"], 2) == 2.8
    assert round(yes_no["stderr"]["curator"], 2) == 1.36
    screen = Console(file=io.StringIO(), width=80)
    near_central.show(screen, found)
    assert isinstance(screen.file, io.StringIO)
    lines = screen.file.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    row = next(line for line in lines if line.startswith("   2+"))
    assert row.split()[1:] == ["102", f"{groups['rows'][2]['curator']:,.0f}", "103", "93"]
    assert any("41 at most" in line for line in lines)
    assert any("epsilon0 = 6.284" in line for line in lines)
