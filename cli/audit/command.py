"""``shoal audit``: attack our own randomizers. What is measured must stay under what is claimed."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import typer
from rich.table import Table

from shoal.accounting.audit.audit import AuditResult, check_audit
from shoal.accounting.certificate import check_delta, check_n
from shoal.accounting.meaning import bound_text
from shoal.cli.audit import options as audit_options
from shoal.cli.audit.attacks import Attack, attack_all, of_one, of_several, of_vectors
from shoal.cli.audit.options import DEVICES, REPORTS
from shoal.cli.epsilon.mechanism_domain import domain_of
from shoal.cli.epsilon.several import mixture_of
from shoal.cli.options import SettingOption
from shoal.cli.output import emit_json, say, say_table, stderr
from shoal.domain import Norm, Vector
from shoal.entropy import SYSTEM, Entropy, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, design
from shoal.mechanisms.several.names import NAMES, is_several
from shoal.mechanisms.vectors.registry import NAMES as VECTOR_NAMES
from shoal.mechanisms.vectors.registry import design as design_of_vectors
from shoal.mechanisms.vectors.registry import is_of_vectors
from shoal.task import MechanismSpec

# Beyond this nothing can be measured: no number of trials sees e^-30.
_LARGEST_EPSILON0 = 30.0
# All reports of a batch are held at once, and a larger batch only shows less.
_MOST_REPORTS = 1_000_000
_SEVERAL = (
    "--target EPS is the central epsilon that its noise is built for, above 0 and at most "
    f"{_LARGEST_EPSILON0:g}"
)
FAILED = 1  # exit status
# Of vectors: what a report tells depends on how near a direction is, not on how many numbers it has
_DIMENSION = 3


def register(app: typer.Typer) -> None:
    """Add ``shoal audit``."""
    app.command("audit")(command)


def command(
    name: audit_options.NameArgument = "",
    mechanism: audit_options.MechanismOption = "",
    epsilon0: audit_options.AuditEpsilon0Option = None,
    target: audit_options.AuditTargetOption = None,
    if_colluding: audit_options.AuditColludingOption = None,
    setting: SettingOption = "",
    k: audit_options.AuditKOption = None,
    n: audit_options.AuditNOption = None,
    trials: audit_options.TrialsOption = 100_000,
    delta: audit_options.AuditDeltaOption = 1e-2,
    seed: audit_options.SeedOption = None,
    as_json: audit_options.AuditJsonOption = False,
) -> None:
    """Attack a randomizer, alone and behind a shuffle: exit status 1 if more than the claimed
    epsilon is measured.

    Two series of batches, in which one device gives one answer or the other; the best event is
    chosen on one half of the trials and judged on the other half. What is measured is a lower
    bound, wrong with probability at most 1e-6 each.

    Example: shoal audit krr --epsilon0 3 --k 16 --n 100 --delta 0.01 --trials 50000

    Unary encoding with p by number: shoal audit unary --setting p=0.97 --epsilon0 2 --k 16

    Several messages per device, mixed: shoal audit cancelling --k 3 --target 2 --delta 0.01

    Vectors: shoal audit privunit --setting K=64 --epsilon0 2 --trials 20000
    """
    name = _name(name, mechanism)
    entropy = SYSTEM if seed is None else SeededEntropy(seed)
    slow = is_several(name) or is_of_vectors(name)
    size = n if n is not None else DEVICES if slow else REPORTS
    _check(size, delta, trials)
    if is_several(name):
        if epsilon0 is not None or setting:
            raise ShoalError(Kind.CONFIG, f"{name} takes no --epsilon0 or --setting: {_SEVERAL}")
        aim = _checked_target(name, target)
        spec, cells, attacks = _several(name, k, if_colluding, (aim, size, delta), entropy)
    else:
        if target is not None or if_colluding is not None:
            raise ShoalError(
                Kind.CONFIG,
                f"{name} sends one message: give --epsilon0, and leave --target and "
                "--epsilon0-if-colluding out",
            )
        design_with = name, k, _checked_epsilon0(epsilon0), setting
        spec, cells, attacks = _one(*design_with, (size, delta), entropy)
    results = attack_all(attacks, trials)
    passed = not any(result.refuted for result in results.values())
    if as_json:
        emit_json(_json(spec, cells, size, results, passed))
    else:
        _show(results, size, passed)
    if not passed:
        stderr.print(
            "shoal: more was measured than is claimed: this randomizer or its shuffle is broken",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(FAILED)


def _one(
    name: str,
    k: int | None,
    epsilon0: float,
    setting: str,
    aim: tuple[int, float],
    entropy: Entropy,
) -> tuple[MechanismSpec, int | None, dict[str, Attack]]:
    """The integers for ``epsilon0``, the cells (None of a vector), and the attacks on so many
    devices at delta (``aim``).
    """
    if not is_of_vectors(name):
        domain = domain_of(name, k)
        spec = design(name, domain, epsilon0, setting)
        return spec, domain.size, of_one(spec, domain, *aim, entropy)
    if k is not None:
        raise ShoalError(Kind.CONFIG, f"{name} takes no --k, a vector has no cells: leave it out")
    vector = Vector(_DIMENSION, Norm.L2, 1.0, 1 << 20)
    spec = design_of_vectors(name, vector, epsilon0, setting)
    return spec, None, of_vectors(spec, vector, *aim, entropy)


def _several(
    name: str,
    k: int | None,
    if_colluding: float | None,
    aim: tuple[float, int, float],
    entropy: Entropy,
) -> tuple[MechanismSpec, int | None, dict[str, Attack]]:
    """The integers for ``aim`` (epsilon, devices, delta), the cells, and the attacks."""
    mixture = mixture_of(name, {"k": k, "parameters": None, "if_colluding": if_colluding})
    target, n, delta = aim
    mixture, _ = mixture.designed(n, delta, Fraction(1), target, None)
    return mixture.known.spec, mixture.domain.size, of_several(mixture, n, delta, entropy)


def _checked_target(name: str, target: float | None) -> float:
    if target is None or not (math.isfinite(target) and 0.0 < target <= _LARGEST_EPSILON0):
        raise ShoalError(Kind.CONFIG, f"{name} wants a target: {_SEVERAL}")
    return target


def _checked_epsilon0(epsilon0: float | None) -> float:
    """The same number. Raises CONFIG for one that nothing can be measured of."""
    if epsilon0 is None:
        raise ShoalError(
            Kind.CONFIG,
            "--epsilon0 is missing: the local epsilon that the randomizer is built for, above 0",
        )
    if not (math.isfinite(epsilon0) and 0.0 < epsilon0 <= _LARGEST_EPSILON0):
        raise ShoalError(
            Kind.CONFIG,
            f"--epsilon0 must be a number above 0, and at most {_LARGEST_EPSILON0:g}, got "
            f"{epsilon0:g}",
        )
    return epsilon0


def _check(n: int, delta: float, trials: int) -> None:
    """Raises CONFIG for numbers that no audit can be made with."""
    check_n(n)
    if n > _MOST_REPORTS:
        raise ShoalError(
            Kind.CONFIG,
            f"--n must be at most {_MOST_REPORTS:,}, got {n:,}: a small batch shows more, "
            f"{REPORTS} is a good start",
        )
    check_delta(delta)
    check_audit(delta, trials)


def _name(argument: str, option: str) -> str:
    """The mechanism's name, given once."""
    if argument and option and argument != option:
        raise ShoalError(
            Kind.CONFIG, f"MECHANISM is {argument} and --mechanism is {option}: give one of them"
        )
    name = argument or option
    known = (*sorted(REGISTRY), *VECTOR_NAMES, *NAMES)
    if name not in known:
        raise ShoalError(
            Kind.CONFIG,
            f"MECHANISM (or --mechanism) must be one of {', '.join(known)}, got {name!r}",
        )
    return name


def _json(
    spec: MechanismSpec, cells: int | None, n: int, results: dict[str, AuditResult], passed: bool
) -> dict[str, Any]:
    parts: dict[str, Any] = {"local": None} | {
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
    if "local" not in results:
        say("Of one device's messages, seen together, nothing is claimed: they tell its value.")
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
