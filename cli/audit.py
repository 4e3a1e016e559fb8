"""``shoal audit``: attack our own randomizers. What is measured must stay under what is claimed."""

from __future__ import annotations

import math
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from shoal.accounting.accountant import certify
from shoal.accounting.audit import AuditResult, audit, check_audit, shuffled_views
from shoal.accounting.certificate import check_delta, check_n
from shoal.accounting.meaning import bound_text
from shoal.cli.output import console, emit_json, say, stderr
from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.entropy import SYSTEM, Entropy, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms import create, design
from shoal.privacy import epsilon0_upper

# Beyond this nothing can be measured: no number of trials sees e^-30.
_LARGEST_EPSILON0 = 30.0
FAILED = 1  # exit status


class Target(StrEnum):
    binary_rr = "binary_rr"
    krr = "krr"
    kmean = "kmean"


def register(app: typer.Typer) -> None:
    app.command("audit")(command)


def command(
    mechanism: Annotated[Target, typer.Option(help="The randomizer to attack.")],
    epsilon0: Annotated[float, typer.Option(help="Local epsilon that it is built for, above 0.")],
    k: Annotated[int | None, typer.Option("--k", help="Cells, that of no answer included: at least 2 (krr) or 3 (kmean).")] = None,
    n: Annotated[int, typer.Option("--n", help="Reports in the shuffled batch, at least 1; a small batch shows more.")] = 100,
    trials: Annotated[int, typer.Option(help="Batches per answer, half of them to choose the event.")] = 100_000,
    delta: Annotated[float, typer.Option(help="Of the shuffled batch; an audit can see 1e-3, hardly 1e-6.")] = 1e-2,
    seed: Annotated[int | None, typer.Option(help="Repeat one run exactly; by default fresh randomness.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Both results as JSON.")] = False,
) -> None:
    """Attack a randomizer, alone and behind a shuffle: exit status 1 if more than the claimed epsilon is measured.

    Two series of batches, in which one device gives one answer or the other; the best event is chosen on one half of the
    trials and judged on the other half. What is measured is a lower bound, wrong with probability at most 1e-6 each.

    Example: shoal audit --mechanism krr --epsilon0 3 --k 16 --n 100 --delta 0.01 --trials 50000
    """
    if not (math.isfinite(epsilon0) and 0.0 < epsilon0 <= _LARGEST_EPSILON0):
        raise ShoalError(Kind.CONFIG, f"--epsilon0 must be a number above 0, and at most {_LARGEST_EPSILON0:g}, got {epsilon0:g}")
    check_n(n)
    check_delta(delta)
    check_audit(delta, trials)
    domain = _domain(mechanism, k)
    results = _attack(mechanism, domain, epsilon0, n, delta, trials, SYSTEM if seed is None else SeededEntropy(seed))
    passed = not any(result.refuted for result in results.values())
    if as_json:
        emit_json(_json(mechanism, domain, n, results, passed))
    else:
        _show(results, n)
    if not passed:
        stderr.print("shoal: more was measured than is claimed: this randomizer or its shuffle is broken", markup=False, soft_wrap=True)
        raise typer.Exit(FAILED)


def _attack(name: str, domain: Domain, epsilon0: float, n: int, delta: float, trials: int, entropy: Entropy) -> dict[str, AuditResult]:
    """The same randomizer alone (n = 1, delta = 0, against epsilon0) and in a batch (against its certificate)."""
    mechanism = create(design(name, domain, epsilon0), domain)
    law = mechanism.privacy()
    claims = {"local": (1, 0.0, epsilon0_upper(law)), "shuffled": (n, delta, certify(law, n, delta).epsilon_upper)}
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    results = {}
    with Progress(*columns, console=stderr) as progress:
        bars = {kind: progress.add_task(f"{kind}, n = {size:,}", total=2 * trials) for kind, (size, _, _) in claims.items()}
        for kind, (size, allowed, claimed) in claims.items():
            views = shuffled_views(mechanism, law, size, entropy)
            # Some 2e5 reports at a time: the bar moves a few times a second.
            at_once = max(1, 200_000 // size)
            tell = partial(progress.advance, bars[kind])
            results[kind] = audit(views, claimed, allowed, trials, at_once=at_once, progress=tell)
    return results


def _domain(name: Target, k: int | None) -> Domain:
    if name is Target.binary_rr:
        if k not in (None, 2):
            raise ShoalError(Kind.CONFIG, "--mechanism binary_rr takes no --k: leave it out, or use krr")
        return YesNo()
    fewest = 2 if name is Target.krr else 3
    if k is None or not fewest <= k <= LIMITS.cells:
        raise ShoalError(Kind.CONFIG, f"--mechanism {name} wants --k, the number of cells: a whole number from {fewest} to {LIMITS.cells}")
    return Categories(tuple(f"c{i}" for i in range(k - 1))) if name is Target.krr else Numeric(0.0, float(k - 2), k - 1)


def _json(name: str, domain: Domain, n: int, results: dict[str, AuditResult], passed: bool) -> dict[str, Any]:
    parts = {kind: {"n": 1 if kind == "local" else n, **result.to_json()} for kind, result in results.items()}
    return {"mechanism": str(name), "k": domain.size, "passed": passed, **parts}


def _show(results: dict[str, AuditResult], n: int) -> None:
    table = Table("attack", "reports", "delta", "measured at least", "claimed at most", "", title="audit", title_justify="left")
    for kind, result in results.items():
        table.add_row(
            kind,
            "1" if kind == "local" else f"{n:,}",
            f"{result.delta:g}",
            bound_text(result.epsilon_measured_lower, up=False, digits=4),
            bound_text(result.claimed, up=True, digits=4),
            "REFUTED" if result.refuted else "holds",
        )
    console.print(table)
    for kind, result in results.items():
        shares = f"{result.hits_likelier:,} against {result.hits_other:,} of {result.trials:,} trials"
        say(f"{kind}: event chosen beforehand: {result.event}; seen in {shares}; wrong with probability at most {result.false_alarm:g}.")
