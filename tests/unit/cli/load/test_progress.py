"""Progress where nobody sees a bar: a plain line now and then."""

from __future__ import annotations

import io

from rich.console import Console
from rich.progress import BarColumn, TextColumn

from shoal.cli.load.progress import Bars


def told(seconds_each: float, steps: int = 100, terminal: bool = False) -> list[str]:
    """The lines of a work of so many equal steps."""
    time = 0.0
    screen = Console(file=io.StringIO(), force_terminal=terminal, highlight=False, width=80)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}")
    with Bars(*columns, screen=screen, now=lambda: time) as bars:
        bar = bars.add_task("reports", total=steps, rate="")
        for step in range(steps + 1):
            time = step * seconds_each
            bars.tell(bar, step, rate="5/s" if step else "")
        bars.tell(bar, steps, rate="5/s")  # told again, said once
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue().splitlines()


def test_a_line_for_each_tenth_but_no_two_within_two_seconds() -> None:
    """Planted: the time not looked at -> ten lines of a quick work; the end not told by itself ->
    a work of a second says nothing.
    """
    slow = told(1.0)
    assert slow[0] == "reports: 10 of 100 (10%), 5/s"
    assert len(slow) == 10
    assert told(0.01) == ["reports: 100 of 100 (100%), 5/s"]
    assert len(told(0.1)) == 5


def test_a_work_that_takes_hours_is_heard_of_every_minute() -> None:
    """Planted: tenths alone -> ten lines in all, of a load of nine hours."""
    lines = told(330.0)
    assert len(lines) == 100
    assert lines[0] == "reports: 1 of 100 (1%), 5/s"


def test_work_that_grows_never_passes_its_total_and_tells_its_end_again() -> None:
    """Planted: the tenths that were said kept -> the second end is not told."""
    screen = Console(file=io.StringIO(), highlight=False, width=80)
    with Bars(screen=screen, now=lambda: 0.0) as bars:
        bar = bars.add_task("levels", total=2)
        bars.tell(bar, 2)
        bars.expect(bar, 3)
        bars.tell(bar, 3)
        bars.expect(bar, 3)
        bars.tell(bar, 3)
    assert isinstance(screen.file, io.StringIO)
    said = screen.file.getvalue().splitlines()
    assert said == ["levels: 2 of 2 (100%)", "levels: 3 of 3 (100%)"]


def test_on_a_terminal_there_are_no_lines() -> None:
    """Planted: lines there, too -> they tear the bar."""
    assert not [line for line in told(1.0, terminal=True) if " of 100" in line]
