"""How much of what so many reports a day want: a model over measured costs. Pure; ``python -m
benchmarks.scaling`` prints the tables of docs/SCALING.md, and a test compares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.limits import LIMITS

DAY_S = 86_400
VOLUMES = (10**6, 10**7, 10**8, 10**9)  # reports a day


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians on two cores of a virtual machine, in microseconds of CPU per report unless a name
    says otherwise; ``SOURCES`` has the commands.
    """

    own_us: float = 1_295.0  # TLS handshake, hop layer, commit, receipt: all in the main process
    relayed_loop_us: float = 7.5  # event loop and writer
    relayed_workers_us: float = 57.5  # the hop layer, in worker processes
    shared_loop_us: float = 13.3  # relayed to one of three replicas: event loop, store
    shared_workers_us: float = 58.1
    database_us: float = 1.84  # PostgreSQL for three replicas, sealing and delivery included
    seal_us: float = 0.61  # sorted by key and read in that order
    open_us: float = 47.7  # analyzer: opened and tallied


@dataclass(frozen=True, slots=True)
class Assumed:
    """What nobody measured here: change it to what you have, and print the tables anew."""

    peak: float = 5.0  # the busiest moment, of the day's mean
    use: float = 0.7  # of the main process's core, at that moment
    row_bytes: int = 140  # a sealed report
    key_bytes: int = 16  # its storage key, in memory and in a block
    wal: float = 1.1  # bytes of write-ahead log per byte of a block
    servers: int = 3  # PostgreSQL: a primary and two standbys
    server_cores: int = 2  # each, always on; twice that beyond 1e8 reports a day


SOURCES = (
    (
        "own_us",
        "a report on a TLS connection of its own, shuffler",
        "connections",
        "own: server CPU",
    ),
    (
        "relayed_loop_us",
        "a report relayed with 499 others, shuffler's main process",
        "batch",
        "1 workers: CPU of event loop and writer",
    ),
    (
        "relayed_workers_us",
        "the same, its workers",
        "batch",
        "1 workers: CPU of the workers",
    ),
    (
        "shared_loop_us",
        "a report relayed to one of three replicas on PostgreSQL, main processes",
        "replicas",
        "3 replicas: CPU of main processes",
    ),
    (
        "shared_workers_us",
        "the same, their workers",
        "replicas",
        "3 replicas: CPU of their workers",
    ),
    (
        "database_us",
        "the same, PostgreSQL, sealing and delivery included",
        "replicas",
        "3 replicas: CPU of the database",
    ),
    ("seal_us", "sealing, shuffler", "inbox", "seal and ordered read of 1,000,000 rows"),
    (
        "open_us",
        "opening and tallying, analyzer",
        "opening",
        "opened and tallied: CPU of parent and workers",
    ),
)


@dataclass(frozen=True, slots=True)
class Model:
    """Answers for ``reports`` a day, from both kinds of numbers."""

    measured: Measured = Measured()
    assumed: Assumed = Assumed()

    def capacity(self, *, relayed: bool) -> float:
        """Reports per second that one shuffler takes: its main process is the limit. Of relayed
        ones what a replica takes, which has more to do than one on SQLite.
        """
        cost = self.measured.shared_loop_us if relayed else self.measured.own_us
        return self.assumed.use / cost * 1e6

    def replica_cores(self, *, relayed: bool) -> int:
        """Cores of one shuffler at its capacity: the main process's, and its workers'."""
        workers = self.measured.shared_workers_us if relayed else 0.0
        return 1 + math.ceil(self.capacity(relayed=relayed) * workers / 1e6)

    def most(self, *, relayed: bool) -> float:
        """Reports a day that one shuffler carries."""
        return self.capacity(relayed=relayed) / self.assumed.peak * DAY_S

    def replicas(self, reports: int, *, relayed: bool) -> int:
        """Shufflers: one, or as many as the peak wants and one to spare."""
        peak = reports / DAY_S * self.assumed.peak
        wanted = math.ceil(peak / self.capacity(relayed=relayed))
        return 1 if wanted == 1 else wanted + 1

    def front(self, reports: int, *, relayed: bool) -> float:
        """Core-hours a day of shufflers."""
        one = self.measured
        cost = one.relayed_loop_us + one.relayed_workers_us if relayed else one.own_us
        return _hours(reports * cost)

    def database(self, reports: int) -> float:
        """Core-hours a day of PostgreSQL, which runs whether reports come or not."""
        cores = self.assumed.server_cores * (2 if reports > 10**8 else 1)
        return float(self.assumed.servers * cores * 24)

    def stored(self, reports: int) -> float:
        """Bytes a day that each server writes: blocks, and their log."""
        block = reports * (self.assumed.row_bytes + self.assumed.key_bytes)
        return block * (1 + self.assumed.wal)

    def keys(self, reports: int) -> int:
        """Bytes of storage keys in a shuffler's memory while a window of so many is open; for a
        moment, when it is closed, three times that.
        """
        return reports * self.assumed.key_bytes

    def windows(self, reports: int) -> int:
        """Windows a day that a batch's most rows make necessary."""
        return math.ceil(reports / LIMITS.batch_rows)

    def sealing(self, reports: int) -> float:
        """Core-hours."""
        return _hours(reports * self.measured.seal_us)

    def opening(self, reports: int) -> float:
        """Core-hours; also the cores that open a day's batch within an hour."""
        return _hours(reports * self.measured.open_us)


def _hours(microseconds: float) -> float:
    return microseconds / 1e6 / 3_600


def short(value: float) -> str:
    """Two significant digits, as a person reads them."""
    if value == 0:
        return "0"
    rounded = round(value, 1 - math.floor(math.log10(abs(value))))
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def _size(size: float) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{short(size / unit)} {name}"
    return f"{short(size / 1e3)} kB"


def _table(rows: list[list[str]]) -> str:
    head, *rest = rows
    lines = [f"| {' | '.join(line)} |" for line in (head, *rest)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def inputs(model: Model) -> str:
    """What was measured, and by which command."""
    rows = [["measured", "CPU a report", "`python -m benchmarks ...`, line"]]
    for name, what, benchmark, line in SOURCES:
        cost = f"{getattr(model.measured, name):,g} us"
        rows.append([what, cost, f"`{benchmark}`: {line}"])
    return _table(rows)


def one_shuffler(model: Model) -> str:
    """What one process carries."""
    rows = [["one shuffler", "cores", "reports a second, at its peak", "reports a day"]]
    for name, relayed in (("own connections", False), ("relayed by the hundreds", True)):
        rows.append(
            [
                name,
                str(model.replica_cores(relayed=relayed)),
                short(model.capacity(relayed=relayed)),
                f"{model.most(relayed=relayed):.0e}".replace("e+0", "e"),
            ]
        )
    return _table(rows)


def by_volume(model: Model) -> str:
    """Core-hours a day, machines and bytes."""
    rows = [["reports a day", *(f"{volume:.0e}".replace("e+0", "e") for volume in VOLUMES)]]

    def row(name: str, *cells: str) -> None:
        rows.append([name, *cells])

    for name, relayed in (("own", False), ("relayed", True)):
        cells = (short(model.front(volume, relayed=relayed)) for volume in VOLUMES)
        row(f"shufflers, {name}: core-hours", *cells)
        count = (str(model.replicas(volume, relayed=relayed)) for volume in VOLUMES)
        row(f"shufflers, {name}: replicas", *count)
    row("sealing: core-hours", *(short(model.sealing(volume)) for volume in VOLUMES))
    row("opening: core-hours", *(short(model.opening(volume)) for volume in VOLUMES))
    row("PostgreSQL, if used: core-hours", *(short(model.database(one)) for one in VOLUMES))
    row("PostgreSQL: written a day, each server", *(_size(model.stored(one)) for one in VOLUMES))
    row("daily window: keys in memory", *(_size(model.keys(one)) for one in VOLUMES))
    row("hourly windows: keys in memory", *(_size(model.keys(one // 24)) for one in VOLUMES))
    row("fewest windows a day", *(str(model.windows(one)) for one in VOLUMES))
    return _table(rows)


def tables(model: Model | None = None) -> tuple[str, ...]:
    """Every table of docs/SCALING.md that is computed, as it stands there."""
    model = model or Model()
    return inputs(model), one_shuffler(model), by_volume(model)


def main() -> None:
    print("\n\n".join(tables()))


if __name__ == "__main__":
    main()
