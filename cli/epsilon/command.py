"""``shoal epsilon``: the accountant alone. What does shuffling n reports of a randomizer buy, and
what would it take?
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import typer

from shoal.accounting.accountant import LARGEST_EPSILON0, RouteValue, compare, upper_curve
from shoal.accounting.composition.basic import compose_basic, refuse_memoized
from shoal.accounting.composition.compose import compare_composition, release_law
from shoal.accounting.composition.memoized import PROMISE_KEPT
from shoal.accounting.groups.bound import GroupBound
from shoal.accounting.meaning import bound_text
from shoal.accounting.metric_words import metric_sentences
from shoal.accounting.numerics.curve import LARGEST_N
from shoal.accounting.reference.published import PublishedBound, published
from shoal.cli.epsilon import options as epsilon_options
from shoal.cli.epsilon.groups import check_group_option, group_bound, group_sentence
from shoal.cli.epsilon.laws import Distances, by_distance, fraction, lifetime_of, subject_of
from shoal.cli.epsilon.plot import plot
from shoal.cli.epsilon.request import EpsilonRequest, Solved
from shoal.cli.epsilon.several import Mixture
from shoal.cli.epsilon.show import (
    designed_sentence,
    show_bound,
    show_composed,
    show_mixture,
    show_routes,
)
from shoal.cli.epsilon.subjects import Bound, Pure, Subject
from shoal.cli.options import HonestFractionOption
from shoal.cli.output import emit_json, say, stderr
from shoal.cli.pictures.writing import check_plot
from shoal.errors import Kind, ShoalError

_MOST_ROUNDS = 1_000_000
_OF_MECHANISMS = (
    *("k", "g", "subset_size", "sigma", "sensitivity"),
    *("buckets", "per_device", "probability", "setting", "parameters", "if_colluding"),
)  # the options that only some mechanisms take

HELP = """The central epsilon of a shuffled batch: proven upper bound, matching lower bound.

The law is that of the mechanism's own integers, so epsilon0 is never above the one asked for.

Example: shoal epsilon --mechanism krr --epsilon0 4 --k 16 --n 100000 --delta 1e-8 --json

Vectors that devices randomize: shoal epsilon --mechanism privunit --epsilon0 4 --n 10000
--delta 1e-6

The largest epsilon0 for a target: shoal epsilon --mechanism rr --n 100000 --delta 1e-8 --solve
epsilon0 --target 0.1

The reports needed: shoal epsilon --mechanism rr --epsilon0 2 --delta 1e-8 --solve n --target
0.05

30 days of the same question: shoal epsilon --mechanism rr --epsilon0 2 --n 100000 --delta 1e-8
--rounds 30

The largest epsilon0 for a total over 52 weeks: shoal epsilon --mechanism rr --n 20000 --delta
1e-8 --rounds 52 --solve epsilon0 --target 1

Beside published bounds: shoal epsilon --mechanism any --epsilon0 2 --n 100000 --delta 1e-8
--compare

Three devices of one person: shoal epsilon --mechanism krr --epsilon0 4 --k 16 --n 100000
--delta 1e-8 --group 3

As a picture: shoal epsilon --mechanism krr --epsilon0 4 --k 16 --n 100000 --delta 1e-8 --plot
epsilon.svg

Dummies for a target: shoal epsilon --mechanism dummies --buckets 64 --n 1000 --delta 1e-6
--solve per-device --target 1

Several messages per device, designed for a target: shoal epsilon --mechanism cancelling --k 16
--n 100000 --delta 1e-6 --target 1

With a task's integers: shoal epsilon --mechanism dummies --k 16 --parameters
dummies=183200751222,shares=100000,slots=6 --n 100000 --delta 1e-6 --rounds 4
"""


def register(app: typer.Typer) -> None:
    """Add ``shoal epsilon``."""
    app.command("epsilon", help=HELP)(epsilon)


def epsilon(
    mechanism: epsilon_options.MechanismNameOption,
    epsilon0: epsilon_options.Epsilon0Option = None,
    n: epsilon_options.EpsilonNOption = None,
    delta: epsilon_options.EpsilonDeltaOption = None,
    k: epsilon_options.EpsilonKOption = None,
    g: epsilon_options.GOption = None,
    subset_size: epsilon_options.SubsetSizeOption = None,
    setting: epsilon_options.RegisteredSettingOption = None,
    sigma: epsilon_options.SigmaOption = None,
    sensitivity: epsilon_options.SensitivityOption = None,
    buckets: epsilon_options.BucketsOption = None,
    per_device: epsilon_options.PerDeviceOption = None,
    probability: epsilon_options.ProbabilityOption = None,
    parameters: epsilon_options.ParametersOption = None,
    if_colluding: epsilon_options.IfColludingOption = None,
    honest_fraction: HonestFractionOption = "1",
    rounds: epsilon_options.RoundsOption = None,
    group: epsilon_options.GroupOption = None,
    memoized: epsilon_options.EpsilonMemoizedOption = False,
    solve: epsilon_options.SolveOption = None,
    target: epsilon_options.TargetOption = None,
    compared: epsilon_options.CompareOption = False,
    picture: epsilon_options.EpsilonPlotOption = None,
    as_json: epsilon_options.EpsilonJsonOption = False,
) -> None:
    """See ``HELP``."""
    given = locals()
    options: dict[str, Any] = {name: given[name] for name in _OF_MECHANISMS}
    subject = subject_of(mechanism, options, solved=solve.name if solve else None)
    request = EpsilonRequest(mechanism, subject, epsilon0, n, delta, fraction(honest_fraction))
    request.check(solve, target)
    check_group_option(group)
    _check_extras(mechanism, subject, rounds, memoized, solve, compared)
    if picture is not None:
        check_plot(picture)
    solution: dict[str, float | int] = {}
    integers: dict[str, int] = {}
    with stderr.status("searching ..."):  # on a terminal alone
        if solve is not None and target is not None:
            request, solution = request.solved(solve, target, rounds)
        elif target is not None:
            request, integers = request.designed(target, rounds)
    bound = request.bound()
    if picture is not None:
        plot(picture, request.subject, request.epsilon0, bound, request.share)
    shown = _Shown(
        bound,
        request,
        rounds,
        compared,
        lifetime_of(mechanism, options, request.epsilon0),
        group,
        by_distance(mechanism, options, request.epsilon0, bound),
    )
    if as_json:
        value, found = shown.json(), {"parameters": integers} if integers else solution
        emit_json({"solved": found, "target": target, "certificate": value} if found else value)
    else:
        if integers:
            say(designed_sentence(mechanism, integers, target or 0.0, rounds))
        for name, solved_value in solution.items():
            say(_sentence(name, solved_value, target or 0.0, rounds))
        shown.show()
        if picture is not None:
            say(f"epsilon against n: {picture}")


@dataclass(frozen=True, slots=True)
class _Shown:
    """The certificate and what was asked for beside it."""

    bound: Bound
    request: EpsilonRequest
    rounds: int | None
    compared: bool
    lifetime: float | None  # of a mechanism with a memory
    devices: int | None  # of one person
    distances: Distances  # of places on a map

    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = dict(self.bound.to_json())
        if self.lifetime is not None:
            value["lifetime_epsilon"] = self.lifetime
        if self.distances is not None:
            value["metric"] = self.distances.to_json()
        if self.rounds is not None:
            bounds = self._composed(self.rounds)
            best = min(bounds, key=lambda theorem: bounds[theorem])
            value |= {
                "rounds": self.rounds,
                "composed": {
                    "epsilon_upper": bounds[best],
                    "delta": self.bound.delta,
                    "method": best,
                    "by_method": bounds,
                },
            }
        if (group := self._group()) is not None:
            value["group"] = group.to_json()
        if self.compared:
            routes, papers = self._routes()
            value["routes"] = [
                {
                    "method": route.method,
                    "epsilon": route.epsilon,
                    "applies": route.applies,
                    "why": route.why,
                }
                for route in routes
            ]
            value["published"] = [
                {
                    "name": each.name,
                    "citation": each.citation,
                    "epsilon": each.epsilon,
                    "applies": each.applies,
                    "why": each.why,
                }
                for each in papers
            ]
        return value

    def show(self) -> None:
        # Before anything is shown: several messages may not compose to any epsilon.
        composed = None if self.rounds is None else self._composed(self.rounds)
        group = self._group()
        show_bound(self.bound)
        if isinstance(self.request.subject, Mixture):
            show_mixture(self.request.subject, self.bound.n)
        if self.lifetime is not None:
            say(
                "These are about one report. In a memoized task, lifetime epsilon = "
                f"{bound_text(self.lifetime)}: {PROMISE_KEPT}."
            )
        if self.distances is not None:
            say(
                f"Of a map of cells of a kilometre, {self.distances.across_m / 1000:.4g} km across:"
            )
            for line in metric_sentences(self.distances, self.rounds or 1):
                say(line)
        if self.rounds is not None and composed is not None:
            show_composed(self.rounds, self.bound.delta, composed)
        if group is not None:
            say(group_sentence(group))
        if self.compared:
            show_routes(*self._routes())

    def _group(self) -> GroupBound | None:
        if self.devices is None:
            return None
        return group_bound(self.request, self.bound, self.devices, self.rounds or 1)

    def _composed(self, rounds: int) -> dict[str, float]:
        """Epsilon of all rounds at the delta given, by the ways that apply to this mechanism.
        Direction: upper bounds.
        """
        request, bound = self.request, self.bound
        if isinstance(request.subject, Mixture):
            return request.subject.composed(bound.n, bound.delta, request.share, rounds)
        if not isinstance(request.subject, Pure) or request.epsilon0 is None:
            part = math.nextafter(bound.delta / rounds, 0.0) if rounds > 1 else bound.delta
            each = request.subject.certify(None, bound.n, part, request.share)
            return {"basic": compose_basic([each] * rounds).epsilon_upper}
        law = request.subject.family(request.epsilon0)
        # Above the largest epsilon0 no amplification is looked for: only the law's own ratio
        # counts.
        honest = bound.n_honest if bound.epsilon0 <= LARGEST_EPSILON0 else 1
        return compare_composition(
            [(release_law(upper_curve, law, honest, bound.delta), rounds)], bound.delta
        )

    def _routes(self) -> tuple[tuple[RouteValue, ...], tuple[PublishedBound, ...]]:
        request, bound = self.request, self.bound
        if not isinstance(request.subject, Pure) or request.epsilon0 is None:
            return (), ()
        law = request.subject.family(request.epsilon0)
        # An epsilon0 that holds by assumption is a few units in the last place below its law's.
        routes = tuple(
            route
            if route.epsilon is None
            else replace(route, epsilon=min(route.epsilon, bound.epsilon0))
            for route in compare(law, bound.n, bound.delta, honest_fraction=request.share)
        )
        if bound.epsilon0 > LARGEST_EPSILON0 or bound.n_honest > LARGEST_N:
            return routes, ()
        return routes, published(law, max(1, bound.n_honest), bound.delta)


def _check_extras(
    mechanism: str,
    subject: Subject,
    rounds: int | None,
    memoized: bool,
    solve: Solved | None,
    compared: bool,
) -> None:
    """Raises ShoalError CONFIG for what cannot be asked beside a certificate, or together."""
    if memoized:
        refuse_memoized()
    if rounds is not None and not 1 <= rounds <= _MOST_ROUNDS:
        raise ShoalError(
            Kind.CONFIG, f"--rounds must be a whole number from 1 to {_MOST_ROUNDS}, got {rounds}"
        )
    if compared and not isinstance(subject, Pure):
        raise ShoalError(
            Kind.CONFIG,
            f"--compare wants a mechanism with an epsilon0, not {mechanism}: leave it out",
        )
    if solve is not None and compared:
        raise ShoalError(
            Kind.CONFIG,
            "--solve answers for one number: leave out --compare, and ask again with that number",
        )
    if solve is not None and rounds is not None and not isinstance(subject, Pure):
        raise ShoalError(
            Kind.CONFIG,
            f"--solve with --rounds wants a mechanism with an epsilon0, not {mechanism}: leave out "
            "--rounds",
        )


def _sentence(name: str, value: float | int, target: float, rounds: int | None = None) -> str:
    """The answer of --solve in a line, rounded to the side on which it holds."""
    wanted = f"epsilon <= {target:g}" + (
        "" if rounds is None else f" over {rounds} rounds together"
    )
    if name == "epsilon0":
        more = (
            f" (no larger one is looked at: above {LARGEST_EPSILON0:g} nothing is amplified)"
            if value >= LARGEST_EPSILON0
            else ""
        )
        return (
            f"--epsilon0 {bound_text(float(value), up=False, digits=6)} is the largest for "
            f"{wanted}, to 0.1 %{more}."
        )
    if name == "n":
        return f"--n {value} reports are needed for {wanted}, to 0.1 %."
    if name == "per_device":
        return f"--per-device {value} dummies are needed for {wanted}."
    if name == "probability":
        return f"--probability {float(value)!r} is the smallest for {wanted}."
    if value == 0.0:
        return (
            f"{wanted} holds with certainty: epsilon0 is no larger. The certificate below is at "
            "the smallest delta that is computed with."
        )
    return f"--delta {bound_text(float(value), digits=6)} is the smallest for {wanted}, to 0.1 %."
