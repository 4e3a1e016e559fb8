"""What the services counted, once every window is decided: after a load, or after all its parts."""

from __future__ import annotations

import time

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from shoal.cli.load.absent import Absence
from shoal.cli.load.progress import Bars
from shoal.cli.load.service_counts import Counted, Counter, Watch
from shoal.cli.output import stderr

START_S = 30.0  # a service that was started just now may take this long to answer
_COUNT_S = 0.3  # between two looks at what they counted


def count_windows(
    counter: Counter, watch: Watch, wanted: list[tuple[str, int]], wait: float
) -> list[Counted | None]:
    """What the services counted, as soon as every window is decided, or what is known after
    ``wait`` seconds.
    """
    end, absence = time.monotonic() + wait, Absence.after(_say)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bars(*columns, screen=stderr) as progress:
        bar = progress.add_task("windows decided", total=len(wanted))
        while True:
            counts = counter.read(wanted)
            absence.looked(watch.look())
            decided = sum(count is not None for count in counts)
            progress.tell(bar, decided)
            if decided == len(wanted) or time.monotonic() > end:
                return counts
            time.sleep(_COUNT_S)


def _say(line: str) -> None:
    stderr.print(line, markup=False, soft_wrap=True)
