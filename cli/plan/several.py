"""What ``shoal plan --several-messages`` shows beside a plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from shoal.accounting.meaning import bound_text
from shoal.cli.figures import figure
from shoal.cli.output import say, say_table

if TYPE_CHECKING:
    from shoal.analyzer.planner import Request
    from shoal.analyzer.planner.candidates import Unsuited
    from shoal.analyzer.planner.several import SeveralOption


@dataclass(frozen=True, slots=True)
class Beside:
    """Mechanisms of several messages for a request, the least error first."""

    options: tuple[SeveralOption, ...]
    unsuited: tuple[Unsuited, ...]
    epsilon0: float | None  # asked for, if shuffler and analyzer work together
    worthwhile: float  # from which on that is a good trade

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            **(
                {}
                if self.epsilon0 is None
                else {"least_worthwhile_epsilon0_if_colluding": self.worthwhile}
            ),
            "options": [option.to_json() for option in self.options],
            "unsuited": [
                {"mechanism": each.mechanism, "reason": each.reason} for each in self.unsuited
            ],
        }

    def show(self) -> None:
        """For people, on stdout."""
        say("")
        if self.options:
            say_table(self._table())
            say(
                "Errors of every count, whatever devices answer. Shuffler and analyzer together "
                "see the answers themselves (no epsilon0), and one hostile device can move a count "
                "by as many messages as a report may have. So devices answer only if their owners "
                "agree to that task by name."
                if self.epsilon0 is None
                else "Without epsilon0 errors are those of every count, whatever devices answer; "
                "shuffler and analyzer together see the answers themselves, so devices answer only "
                "if their owners agree to that task by name. One hostile device can move a count "
                "by as many messages as a report may have."
            )
            if self.epsilon0 is not None:
                say(_trade(self.epsilon0, self.worthwhile))
            best = next(
                (option for option in self.options if math.isfinite(option.epsilon0)),
                self.options[0],
            )
            rest = (
                f" and epsilon0_if_colluding = {self.epsilon0:g}"
                if math.isfinite(best.epsilon0)
                else " without epsilon0"
            )
            say(
                f"In a task file: target_epsilon = {math.floor(best.epsilon * 1e4) / 1e4:g}, and "
                f'under [mechanism] name = "{best.spec.name}"{rest}.'
            )
        for each in self.unsuited:
            say(f"{each.mechanism}, not possible: {each.reason}")

    def _table(self) -> Table:
        table = Table(title="several messages per device", title_justify="left")
        table.add_column("mechanism")
        drawn = () if self.epsilon0 is None else ("epsilon0",)
        for column in ("epsilon", *drawn, "error", "messages", "at most", "frame, bytes"):
            table.add_column(column, justify="right")
        for option in self.options:
            table.add_row(
                option.spec.name,
                bound_text(option.epsilon),
                *(bound_text(option.epsilon0) if math.isfinite(option.epsilon0) else "none",)[
                    : len(drawn)
                ],
                figure(option.error),
                f"{option.mean_messages:.2f}",
                f"{option.messages}",
                f"{option.frame_bytes:,}",
            )
        return table


def _trade(epsilon0: float, worthwhile: float) -> str:
    good = (
        "a good trade"
        if epsilon0 >= worthwhile
        else "a poor trade, as the draws add more error than all of the noise"
    )
    return (
        f"Those with epsilon0 randomize the true message first: {bound_text(epsilon0)} is kept "
        "against shuffler and analyzer together, and owners are asked as for any task. For so "
        f"many devices that is {good} (it is a good one from about {figure(worthwhile)} on)."
    )


def several_of(request: Request, epsilon0_if_colluding: float | None) -> Beside:
    """For a request; nothing of it is loaded for other plans. Raises CONFIG."""
    from shoal.analyzer.planner.several import least_worthwhile, several_options

    options, unsuited = several_options(request, epsilon0_if_colluding)
    return Beside(options, unsuited, epsilon0_if_colluding, least_worthwhile(request.n))
