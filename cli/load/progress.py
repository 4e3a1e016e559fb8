"""How far a load or the demo is: bars on a terminal, elsewhere a plain line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TaskID

_PART = 10  # a line for each tenth of the work ...
_SOONEST_S, _LATEST_S = 2.0, 60.0  # ... but not sooner than this after the last, nor much later


class Bars(Progress):
    """Bars that count and stay on the ``screen``. Where that is no terminal (a pipe, a log) nobody
    sees a bar move: then a line with the description, the counts and the texts that ``tell`` was
    given.

    ``now``: seconds, for tests.
    """

    def __init__(
        self,
        *columns: ProgressColumn,
        screen: Console,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        seen = screen.is_terminal and not screen.is_dumb_terminal
        super().__init__(*columns, console=screen, disable=not seen)
        self._now = now
        self._said: dict[TaskID, tuple[int, float]] = {}  # tenths, and when

    def expect(self, bar: TaskID, total: int) -> None:
        """There is more to do than was thought, or less: ``total`` in all."""
        self.update(bar, total=total)
        if bar in self._said:
            tenths, moment = self._said[bar]
            reached = _PART * int(self._tasks[bar].completed) // (total or 1)
            self._said[bar] = (min(tenths, reached), moment)

    def tell(self, bar: TaskID, completed: int, **texts: str) -> None:
        """``bar`` has come so far. ``texts``: fields of its columns; those that aren't empty stand
        in the line, too.
        """
        fields: dict[str, Any] = dict(texts)  # rich's own options are keywords, too
        self.update(bar, completed=completed, **fields)
        if not self.disable:
            return
        task, now = self._tasks[bar], self._now()
        total = int(task.total or 0)
        tenths, moment = self._said.setdefault(bar, (0, now))
        reached = _PART * completed // total if total else 0
        done = reached == _PART != tenths
        waited = now - moment
        if done or (reached > tenths and waited >= _SOONEST_S) or waited >= _LATEST_S:
            self._said[bar] = (reached, now)
            shown = ", ".join(
                [f"{completed:,} of {total:,} ({completed / (total or 1):.0%})"]
                + [text for text in texts.values() if text]
            )
            self.console.print(f"{task.description}: {shown}", markup=False, soft_wrap=True)
