"""docs/TIMING.md lists every time limit, pause and timer of the product, with its value."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

from shoal.limits import LIMITS
from tests.cases import for_each

ROOT = Path(__file__).parents[3]
PARTS = ("common", "crypto", "clients", "shuffler", "analyzer", "console", "cli")
TIME = re.compile(r"(?<!DAY)_(s|ms)$", re.IGNORECASE)  # how long a day is nobody chose
WAITS = {
    "sleep",
    "_sleep",
    "_wait",
    "wait",
    "wait_for",
    "timeout",
    "call_later",
    "connected",
    "join",
}


def number(node: ast.AST | None) -> float | None:
    """Of a literal above 0."""
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    ):
        return float(node.value) or None
    return None


def constants(tree: ast.Module) -> Iterator[tuple[str, float]]:
    """Module constants with a time's name, and defaults of fields and parameters of classes: (name,
    value).
    """
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = zip(target.elts, value.elts, strict=True) if several else [(target, value)]  # type: ignore[attr-defined] # both tuples
            for one, made in pairs:
                if isinstance(one, ast.Name) and TIME.search(one.id) and (found := number(made)):
                    yield one.id, found
        if isinstance(node, ast.ClassDef):
            yield from defaults(node)


def defaults(made: ast.ClassDef) -> Iterator[tuple[str, float]]:
    for node in made.body:
        if (
            isinstance(node, ast.AnnAssign)
            and TIME.search(name := ast.unparse(node.target))
            and (found := number(node.value))
        ):
            yield f"{made.name}.{name}", found
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*node.args.posonlyargs, *node.args.args]
            paired = [
                *zip(given[len(given) - len(node.args.defaults) :], node.args.defaults, strict=True)
            ]
            for argument, value in [
                *paired,
                *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
            ]:
                if TIME.search(argument.arg) and (found := number(value)):
                    yield f"{made.name}.{argument.arg}", found


def bare(tree: ast.Module) -> Iterator[str]:
    """Numbers that are waited for where they stand."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        named = [
            word.value
            for word in node.keywords
            if word.arg in {"timeout", "timeout_s", "deadline_s"}
        ]
        waits = getattr(node.func, "attr", getattr(node.func, "id", "")) in WAITS
        if any(number(value) for value in [*named, *(node.args if waits else ())]):
            yield f"{node.lineno}: {ast.unparse(node)[:80]}"


@cache
def sources() -> list[tuple[str, ast.Module]]:
    found = sorted(path for part in PARTS for path in (ROOT / part).rglob("*.py"))
    return [(str(path.relative_to(ROOT)), ast.parse(path.read_text())) for path in found]


def page() -> dict[str, float]:
    rows = re.findall(
        r"^\| `([^`]+)` \| ([\d.]+) \| .{5,} \|$",
        (ROOT / "docs" / "TIMING.md").read_text(),
        re.MULTILINE,
    )
    assert len({name for name, _ in rows}) == len(rows)
    return {name: float(value) for name, value in rows}


def test_every_time_is_on_the_page_with_its_value_and_a_reason() -> None:
    """Both ways. Planted: a new limit, a new constant, another value, or a row for what is gone ->
    this fails.
    """
    found = {
        field.name: float(getattr(LIMITS, field.name))
        for field in fields(LIMITS)
        if TIME.search(field.name)
    }
    for path, tree in sources():
        if path != "common/limits.py":
            found |= {f"{path}:{name}": value for name, value in constants(tree)}
    assert page() == found


def test_no_bare_number_is_waited_for() -> None:
    """Planted: ``asyncio.sleep(0.2)`` in any part -> it is named here."""
    assert [f"{path}:{where}" for path, tree in sources() for where in bare(tree)] == []


@for_each(
    "line",
    [
        "await asyncio.sleep(0.2)",
        "urlopen(x, timeout=5)",
        "await link.connected(30.0)",
        "stop.wait(1)",
    ],
)
def test_bare_numbers_are_seen(line: str) -> None:
    assert len([*bare(ast.parse(f"async def f():\n    {line}"))]) == 1


def test_the_limits_fit_a_far_link() -> None:
    """2 s round trips: connecting takes three of them, and losses; a call's limit holds it and the
    call; whoever waits waits for longer.
    """
    rtt_s = 2.0
    # a SYN lost three times, then two flights lost twice each
    syn_s, losses_s = 1.0 + 2.0 + 4.0, 2 * (rtt_s + 2 * rtt_s)
    assert 3 * rtt_s + syn_s + losses_s <= LIMITS.connect_s <= LIMITS.handshake_s
    assert 4 * rtt_s + syn_s + losses_s <= LIMITS.mqtt_connect_s
    assert max(LIMITS.connect_s, LIMITS.mqtt_connect_s) + rtt_s + 3 * rtt_s < LIMITS.send_deadline_s
    assert LIMITS.keepalive_timeout_s >= rtt_s * (1 + 2 + 4 + 8)  # the same segment four times
    assert LIMITS.ping_interval_s < LIMITS.keepalive_s
    assert max(LIMITS.stream_deadline_s, LIMITS.singles_deadline_s) <= LIMITS.connection_grace_s
    assert LIMITS.ask_patience_s > 2 * LIMITS.connect_s
    assert LIMITS.farewell_s > 2 * rtt_s
    assert LIMITS.feed_pass_s >= LIMITS.catalogue_bytes / LIMITS.slowest_bytes_s
