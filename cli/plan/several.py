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

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
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
            )
            best = self.options[0]
            say(
                f"In a task file: target_epsilon = {math.floor(best.epsilon * 1e4) / 1e4:g}, and "
                f'under [mechanism] name = "{best.spec.name}" without epsilon0.'
            )
        for each in self.unsuited:
            say(f"{each.mechanism}, not possible: {each.reason}")

    def _table(self) -> Table:
        table = Table(title="several messages per device", title_justify="left")
        table.add_column("mechanism")
        for column in ("epsilon", "error", "messages", "at most", "frame, bytes"):
            table.add_column(column, justify="right")
        for option in self.options:
            table.add_row(
                option.spec.name,
                bound_text(option.epsilon),
                figure(option.error),
                f"{option.mean_messages:.2f}",
                f"{option.messages}",
                f"{option.frame_bytes:,}",
            )
        return table


def several_of(request: Request) -> Beside:
    """For a request; nothing of it is loaded for other plans. Raises CONFIG."""
    from shoal.analyzer.planner.several import several_options

    return Beside(*several_options(request))
