"""``shoal.plan``: the mechanism and its integers for the guarantee that holds after shuffling."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner import Frequencies, Mean, Option, Plan, Quantiles, Request, Sum
from shoal.analyzer.planner import plan as choose
from shoal.analyzer.planner.question import LEVELS, QUANTILE_LEVELS
from shoal.analyzer.planner.result import Standing
from shoal.domain import AnswerRecord, Discovery, Domain, Numeric, Vector, Words
from shoal.limits import LIMITS
from shoal.mechanisms import create
from shoal.study.arguments import about, delta_of, positive, whole, wrong_value
from shoal.study.designed import Design
from shoal.study.domains import domain_of_question
from shoal.study.frames import Cell, Table, shown_cell
from shoal.study.people import shares_of
from shoal.study.promise import DELTA, HONEST_FRACTION, Promise, honest, promise_of

Shares = Sequence[float] | Mapping[str, float] | None
_USELESS = "; a guess errs no more: ask more devices, or allow a larger epsilon"
_SHOWN = 6  # options on a screen
_WANTS = ("counts", "mean", "sum", "quantiles")


@dataclass(frozen=True, repr=False)
class Planned:
    """What was chosen and why. ``design``: the question with the chosen randomizer, ready to
    randomize; ``plan``: all that the planner knows.
    """

    plan: Plan

    @cached_property
    def design(self) -> Design:
        """The question with the randomizer that errs least."""
        candidate, spec = self.plan.choice.candidate, self.plan.choice.spec
        if spec is None:
            raise wrong_value("plan", "nothing was chosen")
        return Design(candidate.domain, create(spec, candidate.domain))

    @property
    def error(self) -> float:
        """The standard error that is expected of an estimate, in ``unit``."""
        return 0.0 if self.plan.choice.errors is None else self.plan.choice.errors.ranked

    @property
    def unit(self) -> str:
        """What ``error`` is counted in."""
        return self.plan.request.question.unit or "the number's unit"

    @property
    def promise(self) -> Promise:
        """The certificate of the smallest batch that is ever released."""
        request = self.plan.request
        return promise_of(
            self.design.mechanism.privacy(),
            request.min_batch,
            request.delta,
            request.honest_fraction,
        )

    @property
    def options(self) -> Table:
        """Every randomizer that was compared, the chosen one first, with its expected error and the
        reason why it loses.
        """
        rows = [_row(option) for option in self.plan.options]
        return Table(("mechanism", "setting", "epsilon0", "error", "bytes", "why"), rows)

    @property
    def headline(self) -> str:
        """The choice in a line."""
        request, choice = self.plan.request, self.plan.choice
        return (
            f"{choice.candidate.title} with epsilon0 = {bound_text(choice.epsilon0)}: a standard "
            f"error of {shown_cell(self.error)} {self.unit} expected from {request.n:,} devices, "
            f"and epsilon <= {bound_text(choice.epsilon_upper)} at delta = {request.delta:g}"
            + (f" for each of {request.windows} windows" if request.windows > 1 else "")
            + (f", <= {self.plan.asked:g} for all together" if self.plan.asked else "")
            + (_USELESS if self.useless else "")
        )

    @property
    def useless(self) -> bool:
        """Whether guessing the middle of all answers errs no more than the estimate will."""
        return self.error >= most_error(self.plan.request.question, self.plan.request.n)

    @property
    def _best(self) -> Table:
        every = self.options
        hidden = len(every) - _SHOWN
        said = f"the best {_SHOWN} of {len(every)}: .options has them all" if hidden > 0 else ""
        return Table(every.columns, every.rows[:_SHOWN], caption=said)

    def __repr__(self) -> str:
        return f"{self.headline}\n{self._best!r}"

    def _repr_html_(self) -> str:
        return f"<p><b>{html.escape(self.headline)}</b></p>{self._best._repr_html_()}"


def _row(option: Option) -> list[Cell]:
    levels = option.candidate.domain
    setting = option.candidate.setting
    if isinstance(levels, Numeric):
        setting = f"{setting}, {levels.levels} levels"
    known = option.errors is not None
    return [
        option.candidate.mechanism,
        setting,
        option.epsilon0 if known else None,
        option.errors.ranked if option.errors is not None else None,
        option.report_bytes if known else None,
        str(option.standing) if option.standing is Standing.CHOSEN else option.reason,
    ]


def plan(
    labels: Iterable[object] | None = None,
    *,
    n: int,
    epsilon: float | None = None,
    error: float | None = None,
    kind: str | None = None,
    low: float | None = None,
    high: float | None = None,
    levels: int | None = None,
    lower_bounds: Iterable[int] | None = None,
    unit: str = "",
    want: str | None = None,
    shares: Sequence[float] | Mapping[str, float] | None = None,
    delta: float = DELTA,
    honest_fraction: float = HONEST_FRACTION,
    min_batch: int | None = None,
    windows: int = 1,
    mechanisms: Sequence[str] = (),
) -> Planned:
    """The randomizer that errs least for a guarantee, or the guarantee that an error costs.

    The question is said as to ``shoal.design``. ``n``: devices that are expected to answer. Give
    ``epsilon`` (the central one, of all ``windows`` together), or ``error`` (the standard error
    that you can live with). ``want``: of a number its "mean", "sum" or "quantiles". ``shares``:
    what you expect of the answers, one per label, or by label. ``min_batch``: the
    smallest batch that is ever released; n if not given. ``mechanisms``: names to choose among.
    Takes seconds for a few labels, and up to a minute for a number.
    """
    domain = domain_of_question(
        labels, kind=kind, low=low, high=high, levels=levels, lower_bounds=lower_bounds, unit=unit
    )
    question = _question(domain, want, shares, cut=levels is not None)
    if (epsilon is None) == (error is None):
        raise wrong_value("epsilon", "give either epsilon or error: the other one is looked for")
    devices = whole("n", n, 2, LIMITS.batch_rows)
    with about("mechanisms" if mechanisms else "epsilon" if error is None else "error"):
        return Planned(
            choose(
                Request(
                    question,
                    devices,
                    delta_of(delta),
                    None if epsilon is None else positive("epsilon", epsilon),
                    None if error is None else positive("error", error),
                    min_batch=0 if min_batch is None else whole("min_batch", min_batch, 2, devices),
                    honest_fraction=_millionths(honest(honest_fraction)),
                    mechanisms=_names(mechanisms),
                    windows=whole("windows", windows, 1, LIMITS.windows),
                )
            )
        )


def _question(
    domain: Domain,
    want: str | None,
    shares: Sequence[float] | Mapping[str, float] | None,
    *,
    cut: bool,
) -> Frequencies | Mean | Quantiles:
    if want is not None and want not in _WANTS:
        raise wrong_value("want", f"give one of {', '.join(_WANTS)}")
    if isinstance(domain, Numeric):
        if shares is not None:
            raise wrong_value("shares", "they are for labels: leave them out for a number")
        if want == "counts":
            raise wrong_value("want", "of a number give 'mean', 'sum' or 'quantiles'")
        if want == "quantiles":
            several = (domain.levels,) if cut else QUANTILE_LEVELS
            return Quantiles(domain.low, domain.high, levels=several, unit=domain.unit)
        several = (domain.levels,) if cut else LEVELS
        number_kind = Sum if want == "sum" else Mean
        return number_kind(domain.low, domain.high, several, unit=domain.unit)
    if want not in (None, "counts"):
        raise wrong_value("want", f"'{want}' is for a number: give low and high, or leave it out")
    if isinstance(domain, Words | Vector | AnswerRecord):
        raise wrong_value(
            "kind", "words are not planned for: shoal.design(kind='words') takes count_sketch"
        )
    if isinstance(domain, Discovery):
        raise wrong_value(
            "kind", "a discovery is planned in its levels: use plan_discovery, or shoal discover"
        )
    return Frequencies(domain, () if shares is None else shares_of(domain, shares))


def _names(mechanisms: Sequence[str]) -> tuple[str, ...]:
    return (mechanisms,) if isinstance(mechanisms, str) else tuple(mechanisms)


def _millionths(given: Fraction) -> Fraction:
    """Downward, as a task states it."""
    share_of_all = Fraction(int(given * 1_000_000), 1_000_000)
    if not share_of_all:
        raise wrong_value("honest_fraction", "give at least 0.000001")
    return share_of_all


def most_error(question: Frequencies | Mean | Quantiles, n: int) -> float:
    """How far the middle of all answers that there can be is off at most, in the question's
    unit.
    """
    if isinstance(question, Frequencies):
        return n / 2
    half = (question.high - question.low) / 2
    return n * half if isinstance(question, Sum) else half
