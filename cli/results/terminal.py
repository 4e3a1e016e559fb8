"""One release on a terminal: its estimates, and its certificate in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from shoal.cli.output import plain_table, say, say_table

if TYPE_CHECKING:
    from shoal.analyzer.results.maps.parted import PartedCount
    from shoal.analyzer.results.maps.released import RectangleCount
    from shoal.analyzer.results.ranges import RangeCount

MOST_ROWS = 1_000  # of one table on a terminal


def show_release(release: dict[str, Any]) -> None:
    """Write it. release: in the shape of ``release_json.to_json``."""
    from shoal.accounting.composition.memoized import sentences as memoized_sentences

    privacy = release["privacy"]
    say(f"{release['name']}, window {release['window']} (task {release['task_id']})")
    rejected = ", ".join(f"{count:,} {reason}" for reason, count in release["rejected"].items())
    rounds = release.get("rounds")
    what, honest, received = ("valid, distinct reports", "honest reports", "at the received n")
    if rounds is not None:
        what, honest, received = (
            "devices in the sums",
            "honest devices of each round",
            "with the devices of the smallest round that came",
        )
    say(f"{release['n']:,} {what}; rejected: {rejected or 'none'}")
    if release["damaged"]:
        say(
            f"damaged: {release['damaged']:,} acknowledged reports were lost on a service's disk "
            "and are not in it"
        )
    if release["withheld"]:
        say(f"withheld: {release['withheld']}")
    else:
        _show_figures(release)
    memoized = privacy.get("memoized")
    alone = "" if memoized is None else "seen alone: "
    say(
        f"{alone}central epsilon <= {up(privacy['epsilon_upper'])} (and >= "
        f"{_down(privacy['epsilon_lower'])}) at delta ="
        f" {privacy['delta']:g}, guaranteed for {privacy['n_certified']:,} {honest}; epsilon0 = "
        f"{up(privacy['epsilon0'])}"
    )
    say(f"{received}: {up(privacy['epsilon_at_received_n'])} (not guaranteed)")
    say(
        f"together with all that was opened before (windows: {privacy['windows_composed']}, tasks: "
        f"{privacy['tasks_composed']}):"
        f" epsilon <= {up(privacy['epsilon_cumulative_upper'])} at delta = "
        f"{privacy['delta_cumulative']:g}"
    )
    if memoized is not None:
        for line in memoized_sentences(
            memoized["lifetime_epsilon"], memoized["windows"], privacy["epsilon0"]
        ):
            say(line)
    if rounds is not None:
        _show_rounds(rounds, released=not release["withheld"])
    say("this stands on:")
    for line in privacy["assumptions"]:
        say(f"  - {line}")
    say("")


def _show_estimates(release: dict[str, Any], processed: dict[str, Any] | None) -> None:
    from shoal.analyzer.results.processed import beside, readable_note

    rows: Sequence[dict[str, Any]] = release["estimates"]
    if "map" in release:
        rows = _show_map(release)
        processed = None  # of all cells, and these are few
    table = plain_table(
        "answer",
        "estimate",
        "standard error",
        "95 % interval from",
        "to",
        *(() if processed is None else ("processed",)),
    )
    for at, row in enumerate(rows[:MOST_ROWS]):
        count = [] if processed is None else [f"{processed['counts'][at]:,}"]
        table.add_row(
            escape(row["label"]),
            *(f"{row[key]:,.6g}" for key in ("value", "stderr", "ci_low", "ci_high")),
            *count,
        )
    say_table(table)
    if len(rows) > MOST_ROWS:
        say(f"and {len(rows) - MOST_ROWS:,} more: shoal results export --format csv has them all")
    for line in beside(release):
        say(line)
    if processed is not None:
        say(f"processed ({processed['method']}): {readable_note(processed)}")


def _show_map(release: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Draw it; returns the cells that are listed below it."""
    from shoal.analyzer.results.maps.drawing import largest, text_of
    from shoal.analyzer.results.maps.released import law_shown

    for line in text_of(release):
        say(line)
    rows = largest(release["estimates"])
    left = len(release["estimates"]) - len(rows)
    if left:
        say(f"the {len(rows) - 1} largest cells; shoal results export --format csv has all")
    name, law = f"{release['name']}:{release['window']}", law_shown(release["map"])
    if law.kept > law.other:
        say(f"shoal results rectangle {name} --south ... --north ... counts any rectangle of cells")
    return rows


def _show_figures(release: dict[str, Any]) -> None:
    """Of a release that was not withheld."""
    if "array" in release:
        _show_array(release)
    else:
        _show_estimates(release, release.get("processed"))
    if "tables" in release:
        say(
            f"{len(release['tables']['tables'])} tables of these estimates that agree: shoal "
            "results export --format json; made-up rows that have them: shoal results "
            f"synthesize {release['name']}:{release['window']} --out rows.csv"
        )
    if "quantiles" in release:
        _show_quantiles(release["quantiles"])
    if "ranges" in release:
        _tell_ranges(release)
    if "distribution" in release:
        _show_distribution(release["distribution"], shown="quantiles" in release)


def _show_array(release: dict[str, Any]) -> None:
    from shoal.analyzer.results.totals import array_words

    for heading, words in array_words(release["array"]):
        say(f"{heading}: {words}")
    name = f"{release['name']}:{release['window']}"
    say(f"all of them: shoal results export --format npy --task {name} --out totals.npy")


def _show_quantiles(rows: Sequence[dict[str, Any]]) -> None:
    """Of the numbers themselves: what rounding to levels leaves open is in the intervals."""
    from shoal.analyzer.results.processed import OUTSIDE

    table = plain_table("of those that answered", "at or below", "95 % interval from", "to")
    for row in rows:
        high = "no end" if row["ci_high"] is None else f"{row['ci_high']:,.6g}"
        table.add_row(f"{row['share']:.0%}", f"{row['value']:,.6g}", f"{row['ci_low']:,.6g}", high)
    say_table(table)
    say(OUTSIDE)


def _tell_ranges(release: dict[str, Any]) -> None:
    from shoal.analyzer.results.ranges import mean_stderr

    starts = release["ranges"]["starts"]
    name = f"{release['name']}:{release['window']}"
    say(
        f"ranges: the standard error of one is {mean_stderr(release['ranges']):,.3g} devices, root "
        f"mean square over all of them. shoal results range {name} {starts[0]:g} {starts[-1]:g} "
        "asks for any"
    )


def show_range(release: dict[str, Any], counted: RangeCount) -> None:
    """Write how many devices are in a range."""
    to = "on" if counted.high is None else f"to {counted.high:,.6g}"
    below = "" if release["ranges"]["rounded"] or counted.high is None else ", which is not in it"
    say(
        f"{release['name']}, window {release['window']}: from {counted.low:,.6g} {to}{below}: "
        f"{counted.value:,.6g} of {release['n']:,} devices, standard error {counted.stderr:,.3g}"
    )
    say(f"95 % interval from {counted.ci_low:,.6g} to {counted.ci_high:,.6g}")


def show_rectangle(release: dict[str, Any], counted: RectangleCount) -> None:
    """Write how many devices are in a rectangle of a map."""
    say(
        f"{release['name']}, window {release['window']}: latitude {counted.south:.6g} to "
        f"{counted.north:.6g}, longitude {counted.west:.6g} to {counted.east:.6g}: "
        f"{counted.value:,.6g} of {release['n']:,} devices, standard error {counted.stderr:,.3g}"
    )
    say(f"95 % interval from {counted.ci_low:,.6g} to {counted.ci_high:,.6g}")


def show_parted(counted: PartedCount) -> None:
    """Write what the interval of a rectangle of a discovery of places is made of."""
    if counted.cut:
        say(
            f"{counted.cells:,} cells were counted; {counted.cut:,} are cut by its edges and have "
            "no parts, so that nobody knows how many of their devices are inside: from none to "
            f"{counted.cut_most:,.4g}, which the interval allows for"
        )
    else:
        say(f"{counted.cells:,} cells were counted; none is cut by its edges")


def _show_distribution(distribution: dict[str, Any], *, shown: bool) -> None:
    from shoal.analyzer.results.processed import readable_note

    shares = distribution["quantiles"].items()
    texts = (f"{float(share):.0%} <= {value:,.6g}" for share, value in shares)
    quantiles = "" if shown else f": {', '.join(texts)}"
    answered = (
        ""
        if distribution["answered"] is None
        else f" of an estimated {distribution['answered']:.1%} of the devices, those that answered"
    )
    say(f"distribution ({distribution['method']}){answered}{quantiles}")
    say(f"  {readable_note(distribution)}; every bin: shoal results export")


def _show_rounds(rounds: dict[str, Any], *, released: bool) -> None:
    aborted = (
        ", ".join(f"{count} {reason}" for reason, count in rounds["aborted"].items()) or "none"
    )
    together = (
        "nothing is promised"
        if rounds["epsilon_together"] is None
        else f"epsilon <= {up(rounds['epsilon_together'])}"
    )
    say(
        f"secure aggregation, mode {rounds['mode']}: {_rounds(rounds['rounds'])} added; ended "
        f"without a sum: {aborted}"
    )
    if released:
        say(
            f"standard error of each total: {rounds['noise_stderr']:.4g} of the noise (one round "
            "of all devices would have "
            f"{rounds['one_round_noise_stderr']:.4g}), at most {rounds['rounding_stderr']:.4g} of "
            "rounding"
        )
    say(
        f"against the analyzer alone: epsilon <= {up(rounds['epsilon_analyzer'])}; shuffler and "
        f"analyzer together: {together}"
    )


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def up(epsilon: float | None) -> str:
    """An upper bound as text, rounded up; None is infinite."""
    from shoal.accounting.meaning import bound_text

    return bound_text(epsilon)


def _down(epsilon: float) -> str:
    from shoal.accounting.meaning import bound_text

    return bound_text(epsilon, up=False)
