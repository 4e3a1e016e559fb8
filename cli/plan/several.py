"""What ``shoal plan`` shows of several messages per device: one frontier with the plan's choice,
where they were asked for; else a sentence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from shoal.accounting.meaning import bound_text
from shoal.cli.figures import figure
from shoal.cli.output import say, say_table

if TYPE_CHECKING:
    from shoal.analyzer.planner import Plan, Request
    from shoal.analyzer.planner.candidates import Unsuited
    from shoal.analyzer.planner.frontier.lines import Frontier, FrontierLine
    from shoal.analyzer.planner.frontier.option import SeveralOption


@dataclass(frozen=True, slots=True)
class Look:
    """What there is of several messages for a request, before its plan is made."""

    compared: tuple[tuple[SeveralOption, ...], tuple[Unsuited, ...]] | None
    foremost: SeveralOption | None
    epsilon0: float | None

    @classmethod
    def of(cls, request: Request, epsilon0: float | None, *, compare: bool) -> Look:
        """``compare``: all of them; else at most one is looked at, and none where mechanisms were
        named. ``epsilon0``: to keep against shuffler and analyzer together. Raises CONFIG.
        """
        from shoal.analyzer.planner.frontier.several import foremost, several_options

        if compare:
            return cls(several_options(request, epsilon0, trusting=True), None, epsilon0)
        return cls(None, None if request.mechanisms else foremost(request), None)

    def beside(self, plan: Plan) -> Beside:
        """The same, beside the plan that was made for the request."""
        if self.compared is None:
            return Beside(plan, None, self.foremost)
        from shoal.analyzer.planner.frontier.lines import frontier

        return Beside(plan, frontier(plan, self.compared, self.epsilon0), None)


@dataclass(frozen=True, slots=True)
class Beside:
    """``frontier``: where several messages were asked for; ``foremost``: one that was only looked
    at.
    """

    plan: Plan
    frontier: Frontier | None
    foremost: SeveralOption | None

    @property
    def several(self) -> SeveralOption | None:
        """What a task is written of in place of the plan's choice."""
        return None if self.frontier is None else self.frontier.recommended.several

    def to_json(self) -> dict[str, Any]:
        """What is added to a plan's JSON."""
        if self.frontier is not None:
            return self.frontier.to_json()
        found = self.foremost
        return {"several_messages_would": None if found is None else found.to_json()}

    def show(self) -> None:
        """For people, on stdout."""
        if self.frontier is not None:
            _show(self.plan, self.frontier)
        elif self.foremost is not None:
            _hint(self.plan, self.foremost)


def _hint(plan: Plan, option: SeveralOption) -> None:
    errors = plan.choice.errors
    if errors is None or option.error >= errors.ranked:
        return
    say(
        f"With several messages per device ({option.title}) the error would be "
        f"{figure(option.error)}{_unit(plan)}, {figure(option.error / errors.ranked)} times as "
        f"large: up to {option.messages} messages each, in a frame of {option.frame_bytes:,} "
        "bytes, and owners would have to agree by name that shuffler and analyzer together see "
        "their answers. --several-messages compares."
    )


def _unit(plan: Plan) -> str:
    unit = plan.request.question.unit
    return f" {unit}" if unit else ""


def _show(plan: Plan, found: Frontier) -> None:
    say("")
    say_table(_table(found))
    say(
        "Radio, s: of a device and window, by a model (0.45 s a call, 100 kbit/s). Opening, s: CPU "
        "of the analyzer for the batch. To the analyzer: the epsilon of a release; to both: what "
        "is left if shuffler and analyzer work together. One liar: how far a device that lies can "
        f"move an estimate{_in(plan)}, at most, about."
    )
    for line in found.lines:
        if line.beaten_by:
            say(f"{line.title} is left out of the table: {line.beaten_by} is better in everything.")
    for line in found.lines:
        if line.trusts_shuffler:
            say(
                f"{line.title} trusts the shuffler to add the noise, and nobody can tell whether "
                "it does: it is shown to compare, and a task file gets it by its name alone."
            )
    for option in found.options:
        if option.range_error is not None:
            say(
                f"{option.title}: one release answers quantiles and any range; how many devices "
                f"are in a range errs by {figure(option.range_error)}, root mean square over all."
            )
    say(_recommended(plan, found))
    drawn = [option for option in found.options if math.isfinite(option.epsilon0)]
    if found.epsilon0 is not None and drawn:
        say(_trade(found.epsilon0, found.worthwhile))
    if own := [option for option in found.options if not option.trusts_shuffler]:
        _tell_file(drawn[0] if drawn else own[0], found.epsilon0, found.for_error)
    for each in found.unsuited:
        say(f"{each.mechanism}, not possible: {each.reason}")


def _in(plan: Plan) -> str:
    unit = plan.request.question.unit
    return f", in {unit}" if unit else ""


def _table(found: Frontier) -> Table:
    table = Table(title="one message or several per device", title_justify="left")
    table.add_column("mechanism")
    for column in (
        "error",
        "messages",
        "at most",
        "frame, bytes",
        "radio, s",
        "opening, s",
        "to the analyzer",
        "to both",
        "one liar",
    ):
        table.add_column(column, justify="right")
    for line in found.lines:
        if not line.beaten_by:
            table.add_row(*_cells(line))
    return table


def _cells(line: FrontierLine) -> tuple[str, ...]:
    return (
        line.title,
        figure(line.error),
        f"{line.mean_messages:.2f}",
        f"{line.messages}",
        f"{line.frame_bytes:,}",
        f"{line.radio_seconds:.2f}",
        figure(line.analyzer_seconds),
        bound_text(line.epsilon),
        bound_text(line.epsilon0) if math.isfinite(line.epsilon0) else "the answer",
        _moved(line.moved_by_one),
    )


def _moved(value: float) -> str:
    if math.isnan(value):
        return "not known"
    return "anything, unseen" if math.isinf(value) else figure(value)


def _recommended(plan: Plan, found: Frontier) -> str:
    line = found.recommended
    if found.for_error:
        epsilon = bound_text(line.epsilon)
        with_less = f"reaches that error with less than epsilon <= {epsilon}"
        least = f"reaches that error with the least epsilon within the limits, {epsilon}"
    else:
        with_less, least = "errs less", "errs least within the limits"
    if line.several is None:
        return f"Recommended: {line.title}, of one message: within the limits nothing {with_less}."
    what = f"Recommended: {line.title}, which {least}{_against(plan, found)}."
    if math.isfinite(line.epsilon0):
        return f"{what} Owners are asked as for any task."
    return (
        f"{what} Shuffler and analyzer together see the answers themselves (no epsilon0), so "
        "devices answer only if their owners agree to that task by name."
    )


def _against(plan: Plan, found: Frontier) -> str:
    """The recommended line's target figure against that of the plan's choice."""
    line, choice = found.recommended, plan.choice
    if choice.errors is None:
        return ""
    mine, other = line.error, choice.errors.ranked
    if found.for_error:
        mine, other = line.epsilon, choice.epsilon_upper
    times = figure(mine / other) if other > 0.0 else "1"
    what = "epsilon" if found.for_error else "error"
    return f" ({times} times the {what} of {choice.candidate.title})"


def _tell_file(best: SeveralOption, epsilon0: float | None, for_error: bool) -> None:
    """``for_error``: its noise was designed for a number that a file can have, as it is."""
    rest = (
        f" and epsilon0_if_colluding = {epsilon0:g}"
        if epsilon0 is not None and math.isfinite(best.epsilon0)
        else " without epsilon0"
    )
    target = best.designed if for_error else math.floor(best.designed * 1e4) / 1e4
    say(
        f"In a task file: target_epsilon = {target:g}, and "
        f'under [mechanism] name = "{best.spec.name}"{rest}.'
    )


def _trade(epsilon0: float, worthwhile: float) -> str:
    good = (
        "a good trade"
        if epsilon0 >= worthwhile
        else "a poor trade, as the draws add more error than all of the noise"
    )
    return (
        f"Those with epsilon0 randomize the true message first: {bound_text(epsilon0)} is kept "
        "against shuffler and analyzer together, and owners are asked as for any task. For so "
        f"many devices that is {good} (it is a good one from about {figure(worthwhile)} on). Their "
        "errors depend on what devices answer a little; those of the others do not."
    )
