"""What ``shoal shuffler clock`` and ``shoal analyzer clock`` share: show how a service's clock
stands, and confirm it.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from shoal.cli.output import emit_json, say
from shoal.clocks.readings import in_words
from shoal.clocks.timekeeper import Report, confirm, inspect


def clock_command(data_dir: Path, service: str, confirming: bool, as_json: bool) -> None:
    """Raises NOT_FOUND (the service never ran), CONFLICT (nothing to confirm), CONFIG (files)."""
    report = confirm(data_dir) if confirming else inspect(data_dir)
    if as_json:
        emit_json({**_json(report), "confirmed": confirming})
        return
    _show(report)
    if confirming:
        say(
            f"confirmed: the {service} takes {_utc(report.wall)} for right, within seconds if it "
            "runs, else at its next start"
        )
    elif report.trouble is not None:
        say(
            "set the clock right, and it goes on by itself; or, if the wall clock above is right, "
            "give the same command with --confirm"
        )


def _json(report: Report) -> dict[str, object]:
    shown = asdict(report)
    trouble = None if report.trouble is None else report.trouble.name.lower()
    return {**shown, "trouble": trouble, "ahead": report.ahead, "believed": report.trouble is None}


def _show(report: Report) -> None:
    say(f"wall clock   {_utc(report.wall)}")
    if report.expected is None or report.ahead is None:
        say("expected     unknown: this service has believed no time yet")
    else:
        since = (
            "the time since the machine started"
            if report.same_boot
            else "the last known time, before the machine started anew"
        )
        say(f"expected     {_utc(report.expected)}, by {since}")
        say(f"difference   {_signed(report.ahead)}")
    if report.origin is not None:
        say(f"last basis   {report.origin}")
    for name, difference in sorted(report.peers.items()):
        say(f"peer {name}  differs by {_signed(difference)}")
    say(
        "believed"
        if report.trouble is None
        else f"disputed: {report.say}; nothing is closed or deleted"
    )


def _signed(seconds: float) -> str:
    return ("-" if round(seconds) < 0 else "+") + in_words(abs(seconds))


def _utc(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:.0f} s since 1970"
