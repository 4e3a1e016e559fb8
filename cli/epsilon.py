"""``shoal epsilon``: the accountant alone. What does shuffling n reports of a randomizer buy?"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from typing import Annotated

import typer
from rich.table import Table

from shoal.accounting.accountant import certify
from shoal.accounting.certificate import Certificate, check_delta, check_honest, check_n
from shoal.accounting.meaning import bound_text, sentences
from shoal.cli.output import console, emit_json, say
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import binary_rr, krr
from shoal.privacy import KaryLaw, PureLaw

# exp() of more does not fit a float; long before, a report is as good as the truth.
_LARGEST_EPSILON0 = 700.0
_LARGEST_K = 1 << 32


class MechanismName(StrEnum):
    any = "any"
    rr = "rr"
    krr = "krr"
    kmean = "kmean"


def register(app: typer.Typer) -> None:
    app.command("epsilon")(epsilon)


def epsilon(
    mechanism: Annotated[
        MechanismName,
        typer.Option(help="any: every epsilon0-LDP randomizer; rr: binary randomized response; krr, kmean: over k values or levels."),
    ],
    epsilon0: Annotated[float, typer.Option(help="Local epsilon of one report, above 0.")],
    n: Annotated[int, typer.Option("--n", help="Shuffled reports in the batch, at least 1.")],
    delta: Annotated[float, typer.Option(help="Between 0 and 1: 1e-6 or less is usual.")],
    k: Annotated[int | None, typer.Option("--k", help="Values or levels, at least 2 (krr and kmean).")] = None,
    honest_fraction: Annotated[
        str, typer.Option(metavar="FLOAT", help="Share of the reports that is assumed honest, 0 to 1; also as a fraction, 9/10.")
    ] = "1",
    as_json: Annotated[bool, typer.Option("--json", help="The certificate as JSON.")] = False,
) -> None:
    """The central epsilon of a shuffled batch: proven upper bound, matching lower bound.

    For rr, krr and kmean the law is that of the mechanism's own integers, so epsilon0 is never above the one asked for.

    Example: shoal epsilon --mechanism krr --epsilon0 4 --k 16 --n 100000 --delta 1e-8 --json
    """
    if not (math.isfinite(epsilon0) and 0.0 < epsilon0 <= _LARGEST_EPSILON0):
        raise ShoalError(Kind.CONFIG, f"--epsilon0 must be a number above 0, and at most {_LARGEST_EPSILON0:g}, got {epsilon0:g}")
    check_n(n)
    check_delta(delta)
    certificate = _certify(mechanism, epsilon0, _cells(mechanism, k), n, delta, _fraction(honest_fraction))
    if as_json:
        emit_json(certificate.to_json())
    else:
        _show(certificate)


def _certify(name: MechanismName, epsilon0: float, k: int, n: int, delta: float, honest: Fraction) -> Certificate:
    if name is not MechanismName.any:
        law = _binary(epsilon0) if name is MechanismName.rr else krr.law(k, krr.least_uniform(k, epsilon0))
        return certify(law, n, delta, honest_fraction=honest)
    # A ratio certainly not below e^epsilon0; its own epsilon0 lies some units in the last place above the asked one, which
    # holds by assumption and so replaces it.
    certificate = certify(PureLaw(Fraction(math.exp(epsilon0)) * (1 + Fraction(1, 1 << 50))), n, delta, honest_fraction=honest)
    return replace(
        certificate,
        epsilon0=epsilon0,
        epsilon_upper=min(certificate.epsilon_upper, epsilon0),
        epsilon_lower=min(certificate.epsilon_lower, epsilon0),
    )


def _binary(epsilon0: float) -> KaryLaw:
    spec = binary_rr.symmetric(epsilon0)
    return KaryLaw(2, same=spec.get("yes_if_yes"), other=spec.get("yes_if_no"))


def _cells(name: MechanismName, k: int | None) -> int:
    if name in {MechanismName.krr, MechanismName.kmean}:
        if k is None or not 2 <= k <= _LARGEST_K:
            raise ShoalError(Kind.CONFIG, f"--mechanism {name} wants --k, the number of values: a whole number from 2 to 2^32")
        return k
    if k not in (None, 2) or (k is not None and name is MechanismName.any):
        raise ShoalError(Kind.CONFIG, f"--mechanism {name} takes no --k: leave it out, or use krr")
    return 2


def _fraction(text: str) -> Fraction:
    """Exactly the decimal or fraction that was typed: 0.9 is nine tenths, not the nearest float."""
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ShoalError(Kind.CONFIG, "--honest-fraction must be a number between 0 and 1, such as 0.9 or 9/10") from None
    return check_honest(value)


def _show(certificate: Certificate) -> None:
    table = Table(title="what shuffling buys", title_justify="left")
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    values = certificate.to_json()
    rows = {
        "epsilon_upper": "proven: the central epsilon is at most this",
        "epsilon_lower": "refuted: no accounting can go below this",
        "epsilon0": "against shuffler and analyzer together",
        "delta": "probability with which epsilon may fail",
        "n": f"shuffled reports, {certificate.n_honest} of them assumed honest",
        "relation": "neighbouring datasets",
        "method": "see docs/ACCOUNTING.md",
    }
    for key, meaning in rows.items():
        value = values[key]
        shown = bound_text(value, up=key != "epsilon_lower", digits=6) if isinstance(value, float) else str(value)
        table.add_row(key, shown, meaning)
    console.print(table)
    for line in sentences(certificate):
        say(line)
    say("Assumed: " + "; ".join(certificate.assumptions) + ".")
