"""``shoal audit``: attack our own randomizers. What is measured must stay under what is claimed."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated, Any

import typer
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from shoal.accounting.accountant import certify
from shoal.accounting.audit.attack import furthest_answers, views_of
from shoal.accounting.audit.audit import AuditResult, audit, check_audit
from shoal.accounting.certificate import check_delta, check_n
from shoal.accounting.meaning import bound_text
from shoal.cli.mechanism_domain import domain_of
from shoal.cli.options import SettingOption
from shoal.cli.output import emit_json, say, say_table, stderr
from shoal.entropy import SYSTEM, Entropy, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, Mechanism, create, design
from shoal.privacy import epsilon0_upper
from shoal.task import MechanismSpec

# Beyond this nothing can be measured: no number of trials sees e^-30.
_LARGEST_EPSILON0 = 30.0
# All reports of a batch are held at once, and a larger batch only shows less.
_MOST_REPORTS = 1_000_000
FAILED = 1  # exit status


def register(app: typer.Typer) -> None:
    """Add ``shoal audit``."""
    app.command("audit")(command)


def command(
    epsilon0: Annotated[float, typer.Option(help="Local epsilon that it is built for, above 0.")],
    name: Annotated[
        str,
        typer.Argument(
            metavar="MECHANISM", help=f"The randomizer to attack: {', '.join(sorted(REGISTRY))}."
        ),
    ] = "",
    mechanism: Annotated[str, typer.Option(metavar="NAME", help="The same, as an option.")] = "",
    setting: SettingOption = "",
    k: Annotated[
        int | None,
        typer.Option(
            "--k",
            help="Cells, that of no answer included: 2 or more, of a number's levels 3 or more.",
        ),
    ] = None,
    n: Annotated[
        int,
        typer.Option(
            "--n", help="Reports in the shuffled batch, at least 1; a small batch shows more."
        ),
    ] = 100,
    trials: Annotated[
        int, typer.Option(help="Batches per answer, half of them to choose the event.")
    ] = 100_000,
    delta: Annotated[
        float, typer.Option(help="Of the shuffled batch; an audit can see 1e-3, hardly 1e-6.")
    ] = 1e-2,
    seed: Annotated[
        int | None, typer.Option(help="Repeat one run exactly; by default fresh randomness.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Both results as JSON.")] = False,
) -> None:
    """Attack a randomizer, alone and behind a shuffle: exit status 1 if more than the claimed
    epsilon is measured.

    Two series of batches, in which one device gives one answer or the other; the best event is
    chosen on one half of the trials and judged on the other half. What is measured is a lower
    bound, wrong with probability at most 1e-6 each.

    Example: shoal audit krr --epsilon0 3 --k 16 --n 100 --delta 0.01 --trials 50000

    Unary encoding with p by number: shoal audit unary --setting p=0.97 --epsilon0 2 --k 16
    """
    name = _name(name, mechanism)
    _check(epsilon0, n, delta, trials)
    domain = domain_of(name, k)
    spec = design(name, domain, epsilon0, setting)
    entropy = SYSTEM if seed is None else SeededEntropy(seed)
    results = _attack(create(spec, domain), domain.size, n, delta, trials, entropy)
    passed = not any(result.refuted for result in results.values())
    if as_json:
        emit_json(_json(spec, domain.size, n, results, passed))
    else:
        _show(results, n, passed)
    if not passed:
        stderr.print(
            "shoal: more was measured than is claimed: this randomizer or its shuffle is broken",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(FAILED)


def _check(epsilon0: float, n: int, delta: float, trials: int) -> None:
    """Raises CONFIG for numbers that no audit can be made with."""
    if not (math.isfinite(epsilon0) and 0.0 < epsilon0 <= _LARGEST_EPSILON0):
        raise ShoalError(
            Kind.CONFIG,
            f"--epsilon0 must be a number above 0, and at most {_LARGEST_EPSILON0:g}, got "
            f"{epsilon0:g}",
        )
    check_n(n)
    if n > _MOST_REPORTS:
        raise ShoalError(
            Kind.CONFIG,
            f"--n must be at most {_MOST_REPORTS:,}, got {n:,}: a small batch shows more, 100 is a "
            "good start",
        )
    check_delta(delta)
    check_audit(delta, trials)


def _attack(
    mechanism: Mechanism, cells: int, n: int, delta: float, trials: int, entropy: Entropy
) -> dict[str, AuditResult]:
    """The same randomizer alone (n = 1, delta = 0, against epsilon0) and in a batch (against its
    certificate).
    """
    law = mechanism.privacy()
    answers = furthest_answers(law)
    claims = {
        "local": (1, 0.0, epsilon0_upper(law)),
        "shuffled": (n, delta, certify(law, n, delta).epsilon_upper),
    }
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    results = {}
    with Progress(*columns, console=stderr) as progress:
        bars = {
            kind: progress.add_task(f"{kind}, n = {size:,}", total=2 * trials)
            for kind, (size, _, _) in claims.items()
        }
        for kind, (size, allowed, claimed) in claims.items():
            views = views_of(mechanism, cells, size, entropy, answers=answers)
            # Some 2e5 short reports at a time, fewer long ones: the bar moves a few times a second.
            at_once = max(1, 200_000 // (size * max(1, cells // 64)))
            tell = partial(progress.advance, bars[kind])
            results[kind] = audit(views, claimed, allowed, trials, at_once=at_once, progress=tell)
    return results


def _name(argument: str, option: str) -> str:
    """The mechanism's name, given once."""
    if argument and option and argument != option:
        raise ShoalError(
            Kind.CONFIG, f"MECHANISM is {argument} and --mechanism is {option}: give one of them"
        )
    name = argument or option
    if name not in REGISTRY:
        raise ShoalError(
            Kind.CONFIG,
            f"MECHANISM (or --mechanism) must be one of {', '.join(sorted(REGISTRY))}, got "
            f"{name!r}",
        )
    return name


def _json(
    spec: MechanismSpec, cells: int, n: int, results: dict[str, AuditResult], passed: bool
) -> dict[str, Any]:
    parts = {
        kind: {"n": 1 if kind == "local" else n, **result.to_json()}
        for kind, result in results.items()
    }
    return {
        "mechanism": spec.name,
        "parameters": dict(spec.parameters),
        "k": cells,
        "passed": passed,
        **parts,
    }


def _show(results: dict[str, AuditResult], n: int, passed: bool) -> None:
    table = Table(
        "attack",
        "reports",
        "delta",
        "measured at least",
        "claimed at most",
        "",
        title="audit",
        title_justify="left",
    )
    for kind, result in results.items():
        table.add_row(
            kind,
            "1" if kind == "local" else f"{n:,}",
            f"{result.delta:g}",
            bound_text(result.epsilon_measured_lower, up=False, digits=4),
            bound_text(result.claimed, up=True, digits=4),
            "REFUTED" if result.refuted else "holds",
        )
    say_table(table)
    for kind, result in results.items():
        shares = (
            f"{result.hits_likelier:,} against {result.hits_other:,} of {result.trials:,} trials"
        )
        say(
            f"{kind}: event chosen beforehand: {result.event}; seen in {shares}; wrong with "
            f"probability at most {result.false_alarm:g}."
        )
    if passed:
        say(
            "The randomizer holds: nothing above the claims was measured. An audit can convict; it "
            "never proves that there is no leak."
        )
