"""``shoal plan --emit``: the chosen mechanism as a task file, with the texts, keys and addresses
that were told; the others want to be filled in.
"""

from __future__ import annotations

import importlib.resources
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomlkit

from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner import Plan
from shoal.cli.output import write_new
from shoal.cli.plan.told import Settings
from shoal.cli.task.unfilled import UNNAMED, UNSAID, unfilled
from shoal.domain import Categories, Domain, Numeric

_BLANK = "FILL IN"
_NOTHING_TOLD = Settings({}, {}, {}, {})


def task_text(plan: Plan, length_s: int = 604_800, told: Settings = _NOTHING_TOLD) -> str:
    """The TOML text. With keys and addresses filled in, `shoal task lint` certifies it at the
    plan's own epsilon. ``length_s``: of a window, if it isn't told.
    """
    request, choice = plan.request, plan.choice
    spec = choice.spec
    if spec is None:
        raise TypeError("a choice has its integers")
    target = (
        repr(request.epsilon)
        if request.epsilon is not None
        else bound_text(choice.epsilon_upper, digits=6)
    )
    mechanism_text = (
        f"Planned by `shoal plan`: {choice.candidate.title}, for {request.n} devices, central "
        f"epsilon <= {target}."
    )
    text = importlib.resources.files("shoal.cli.plan").joinpath("planned.toml").read_text("utf-8")
    document: Any = tomlkit.parse(text)
    document |= {
        "name": UNNAMED,
        "purpose": UNSAID,
        "question": UNSAID,
        "min_batch": request.min_batch,
        "honest_fraction": tomlkit.value(f"{float(request.honest_fraction):.6f}"),
        "delta": request.delta,
        "target_epsilon": tomlkit.value(target),
        "memoized": request.memoized,
    }
    _describe(document["domain"], choice.candidate.domain)
    mechanism, windows = document["mechanism"], document["windows"]
    _say(mechanism, f"planned: epsilon0 = {bound_text(choice.epsilon0, digits=6)}", 25)
    mechanism["name"] = spec.name
    integers = ", ".join(f"{name} = {value}" for name, value in spec.parameters)
    mechanism["parameters"] = tomlkit.value(f"{{ {integers} }}")
    windows["start"] = tomlkit.value(datetime.now(UTC).strftime("%Y-%m-%dT00:00:00Z"))
    windows["length_s"] = length_s
    windows["length_s"].trivia.comment_ws = " " * max(1, 25 - len(str(length_s)))
    windows["count"] = request.windows
    told.fill(document)
    written = document.as_string()
    if written.count(_BLANK) == 1:
        written = written.replace(f"Fill in what says {_BLANK}, check", "Check")
    return f"# {mechanism_text}\n{written}"


def write_task(emit: Path, text: str) -> str:
    """What to say of the file: what it still wants, and what comes next."""
    write_new(emit, text.encode())
    left = unfilled(tomlkit.parse(text).unwrap(), emit.parent)
    if left:
        return (
            f"wrote {emit}; still to be filled in: {'; '.join(left)}; then shoal task lint {emit}"
        )
    return (
        f"wrote {emit}: shoal task lint {emit}, then shoal task sign {emit} --key AUTHORITY.key "
        f"--out {emit.with_suffix('.task')}"
    )


def _say(item: Any, text: str, blanks: int) -> None:
    """Write a comment behind an item, so many blanks away."""
    item.comment(text)
    item.trivia.comment_ws = " " * blanks


def _describe(table: Any, domain: Domain) -> None:
    """Fill the table of a domain, with a line between it and the next one."""
    if isinstance(domain, Categories):
        _describe_categories(table, domain)
    elif isinstance(domain, Numeric):
        levels = tomlkit.item(domain.levels)
        _say(levels, "planned", 2)
        table |= {
            "kind": "numeric",
            "low": domain.low,
            "high": domain.high,
            "levels": levels,
            "clip": domain.clip,
            "unit": domain.unit,
        }
    else:
        table["kind"] = "yes_no"
    table.add(tomlkit.nl())


def _describe_categories(table: Any, domain: Categories) -> None:
    blank = (
        'planned; "no answer" is added by itself'
        if domain.lower_bounds
        else 'FILL IN, if these are not the names; "no answer" is added by itself'
    )
    labels = "".join(f"  {tomlkit.string(name).as_string()},\n" for name in domain.names)
    table |= {"kind": "categories", "labels": tomlkit.value(f"[  # {blank}\n{labels}]")}
    if domain.lower_bounds:
        table["lower_bounds"] = list(domain.lower_bounds)
