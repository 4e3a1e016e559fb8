"""``shoal demo --near-central``: the survey's counts three times at one central epsilon: as a
trusted curator would publish them, by several messages of each device, and by a single one.
"""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console

from shoal.accounting.meaning import bound_text
from shoal.accounting.several_messages.of_domain import design_several
from shoal.accounting.solving.solve import largest_epsilon0
from shoal.cli.demo.survey import Question, questions
from shoal.cli.demo.workspace import TaskTerms
from shoal.domain import Domain, YesNo
from shoal.entropy import SYSTEM, Entropy, bernoulli
from shoal.mechanisms import create, design
from shoal.mechanisms.several.names import CANCELLING, SIGNED_COUNT
from shoal.privacy import LocalPrivacy
from shoal.task import PPM, MechanismSpec

EPSILON, DELTA = 1.0, 1e-6
TERMS = TaskTerms("health statistics", 900_000, DELTA, EPSILON)
_NEAR, _SINGLE = "several", "single"
_SINGLES = {"any-visit": "binary_rr", "visit-groups": "krr"}


def near_central_questions(devices: int) -> tuple[Question, ...]:
    """Of each question with counts two tasks, by several messages and by a single one. Raises
    CONFIG for too few devices.
    """
    honest = devices * TERMS.honest_ppm // PPM
    asked = list[Question]()
    for question in questions():
        if question.name not in _SINGLES:
            continue
        domain = question.domain
        several = SIGNED_COUNT if isinstance(domain, YesNo) else CANCELLING
        specs = {
            _NEAR: design_several(several, domain, honest, EPSILON, DELTA, windows=1),
            _SINGLE: _single(_SINGLES[question.name], domain, devices),
        }
        asked += [
            Question(f"{question.name}-{how}", question.question, domain, spec)
            for how, spec in specs.items()
        ]
    return tuple(asked)


def _single(name: str, domain: Domain, devices: int) -> MechanismSpec:
    """By one message, with the largest epsilon0 that reaches the same central epsilon."""

    def law(epsilon0: float) -> LocalPrivacy:
        return create(design(name, domain, epsilon0), domain).privacy()

    share = TERMS.honest_ppm / PPM
    epsilon0, _ = largest_epsilon0(law, EPSILON, DELTA, devices, honest_fraction=share)
    return design(name, domain, epsilon0)


def side_by_side(results: dict[str, Any], entropy: Entropy = SYSTEM) -> list[dict[str, Any]]:
    """Of each question its labels with the truth and three figures, and the standard error of each
    way: what ``results`` gets as "near_central".
    """
    tasks = {task["name"]: task for task in results["tasks"]}
    found = list[dict[str, Any]]()
    for name in _SINGLES:
        near, single = (tasks[f"{name}-{how}"] for how in (_NEAR, _SINGLE))
        rows = [
            {"label": one["label"], "several": one["value"], "single": other["value"]}
            for one, other in zip(
                near["release"]["estimates"], single["release"]["estimates"], strict=True
            )
        ]
        # a changed answer moves one count of a yes/no by one, and two cells of a histogram
        q = math.exp(-EPSILON if len(rows) == 2 else -EPSILON / 2)
        for row in rows:
            row["truth"] = near["truth"][row["label"]]
            row["curator"] = row["truth"] + _curators_noise(q, entropy)
        found.append(
            {
                "question": near["question"],
                "rows": rows,
                "stderr": {
                    "curator": math.sqrt(2.0 * q) / (1.0 - q),
                    "several": max(one["stderr"] for one in near["release"]["estimates"]),
                    "single": max(one["stderr"] for one in single["release"]["estimates"]),
                },
                "messages": near["mechanism"]["messages"],
                "epsilon0": single["release"]["privacy"]["epsilon0"],
            }
        )
    return found


def _curators_noise(q: float, entropy: Entropy) -> int:
    """The difference of two geometric numbers, P(g) = (1 - q) q^g: what a curator who knows all
    answers would add (Ghosh, Roughgarden, Sundararajan, STOC 2009).
    """
    threshold, sides = int(q * 2.0**64), [0, 0]
    for side in range(2):
        while bernoulli(threshold, entropy):
            sides[side] += 1
    return sides[0] - sides[1]


def show(screen: Console, results: dict[str, Any]) -> None:
    """Tables of at most 80 columns."""
    devices = results["devices"]
    _say(screen, f"{devices:,} devices, each way with a central epsilon of {EPSILON:g} at delta")
    _say(screen, f"= {DELTA:g}. Counts of devices:")
    for one in results["near_central"]:
        _say(screen, "")
        _say(screen, one["question"], style="bold")
        _say(screen, _row("", "truth", "curator", "several", "single"))
        for row in one["rows"]:
            figures = (f"{row[way]:,.0f}" for way in ("truth", "curator", "several", "single"))
            _say(screen, _row(row["label"], *figures))
        errors = (f"+- {one['stderr'][way]:,.2f}" for way in ("curator", "several", "single"))
        _say(screen, _row("standard error", "", *errors))
    first = results["near_central"][0]
    lines = [
        "",
        "curator: somebody who is trusted with all answers adds the noise.",
        "several: each device sends its answer among messages of noise, "
        f"{first['messages']} at most.",
        "         Shuffler and analyzer together would see the answer itself.",
        "single:  each device randomizes its one answer. Both together would learn",
        f"         no more than epsilon0 = {bound_text(first['epsilon0'])} lets through.",
    ]
    for line in lines:
        _say(screen, line)


def _row(label: str, *figures: str) -> str:
    return f"   {label[:20]:<21}" + "".join(f"{figure:>13}" for figure in figures)


def _say(screen: Console, line: str, style: str | None = None) -> None:
    screen.print(line, markup=False, soft_wrap=True, style=style)
