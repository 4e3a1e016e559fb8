"""The demo's last page: raw estimates, what is made of them for readers, and a word about it."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from shoal.cli.demo.show import _estimates, meaning
from shoal.mechanisms.categories.binary_rr import two_coin
from shoal.mechanisms.parts.tables import MEAN_OF_ALL


def shown(labels: tuple[str, ...], values: tuple[float, ...], **more: Any) -> str:
    rows = [
        {"label": label, "value": value, "ci_low": value - 9, "ci_high": value + 9}
        for label, value in zip(labels, values, strict=True)
    ]
    task = {
        "name": "t",
        "question": "q?",
        "truth": dict(zip(labels, values, strict=True)),
        "release": {"n": 100, "estimates": rows, **more},
    }
    screen = Console(file=io.StringIO(), width=120)
    screen.print(_estimates(task))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_counts_stand_after_the_estimates() -> None:
    """Also where a category is called "mean". Planted: the counts left out -> this fails."""
    text = shown(
        ("a", "mean"),
        (-3.2, 101.0),
        processed={"method": "m1", "note": "for reading", "counts": [0, 100]},
    )
    assert "processed (m1): for reading" in text
    row = next(line for line in text.splitlines() if "mean" in line)
    assert [part.strip() for part in row.strip("│").split("│")] == [
        "mean",
        "101 = 101.000%",
        "101 = 101.00%",
        "92 to 110",
        "inside",
        "100",
    ]


def test_a_mean_has_its_quantiles_beside_it() -> None:
    """In the domain's unit, whichever mean it is. Planted: only "mean" taken for one -> "5 = 5.00%"
    and this fails.
    """
    made = {"method": "EMS", "note": "biased", "quantiles": {"0.5": 4.25}}
    text = shown((MEAN_OF_ALL,), (5.0,), distribution=made)
    assert "5.0000" in text
    assert "distribution (EMS): 50% <= 4.25; biased" in text
    assert "processed" not in text


def test_two_coins_are_told_of_where_they_answered() -> None:
    """Planted: told of every first question -> the words stand below another randomizer, too."""
    for parameters, told in ((dict(two_coin().parameters), True), ({"k": 2}, False)):
        results = {
            "tasks": [
                {
                    "mechanism": {"name": "m", "parameters": parameters},
                    "release": {"privacy": {"honest_fraction": 0.9}},
                }
            ],
            "composed": {"epsilon_upper": 0.2, "delta": 1e-8, "tasks": 3},
        }
        assert any("two-coin form" in sentence for sentence in meaning(results)) is told
