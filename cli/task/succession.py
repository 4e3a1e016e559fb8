"""``shoal task new --from OLD.toml``: the next version of a question, and what it changes for those
who answered the last one.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shoal.cli.output import read_bytes
from shoal.cli.task.file import read_task
from shoal.cli.task.sample import next_version
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.names import is_several
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create_any
from shoal.privacy import epsilon0_upper
from shoal.storage.toml import read_toml
from shoal.task import Task


def succeed(
    before: Path, out: Path, start: str | None, settings: list[str], now: datetime
) -> tuple[str, list[str]]:
    """The text of the next version, and what to know of it, a line each. It begins when the last
    window of ``before`` ends, or tomorrow if that is over, unless ``start`` says.

    Raises CONFIG for a file that is no task, a wrong date, or a key that no task has.
    """
    old = read_task(before)
    ends = datetime.fromtimestamp(old.windows.end_of(old.windows.count - 1), UTC)
    begins = ends if start is None else _date(start)
    if start is None and ends < now:
        tomorrow = now + timedelta(days=1)
        begins = tomorrow.replace(hour=0, minute=0, second=0, microsecond=0)
    ca = str(read_toml(before)["shuffler"]["ca"])
    if not Path(ca).is_absolute() and out.parent != before.parent and str(out) != "-":
        ca = os.path.relpath(before.parent / ca, out.parent)
    text = next_version(read_bytes(before).decode(), f"{begins:%Y-%m-%dT%H:%M:%SZ}", ca, settings)
    return text, [
        f"it begins on {begins:%Y-%m-%d %H:%M} UTC",
        *_told(old, begins.timestamp(), ends, now),
    ]


def _date(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or (found.tzinfo is None and len(text) > len("2026-01-01")):
        raise ShoalError(
            Kind.CONFIG,
            f'--start: "{text}" is no date: give 2027-01-01, or 2027-01-01T06:00:00Z with a zone',
        )
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _told(old: Task, begins: float, ends: datetime, now: datetime) -> list[str]:
    told = []
    if begins < now.timestamp():
        told.append("it begins in the past: windows that are over by now take no answers")
    if begins < ends.timestamp():
        told.append(
            f"the version before runs until {ends:%Y-%m-%d %H:%M} UTC: meanwhile devices answer "
            "both, and both cost budget"
        )
    if old.memoized:
        told.append(
            "it is memoized: devices draw their permanent answers anew, which costs epsilon0 once "
            "more"
        )
    return told


def differences(old: Task, new: Task) -> list[str]:
    """What owners and devices will notice, a line each; nothing for what changes quietly."""
    told = []
    if new.purpose != old.purpose:
        told.append("purpose: other words: every owner is asked again, and answers nothing before")
    if new.name != old.name:
        told.append(
            "name: rules, sources and reports that name the task are not for this one: owners "
            "change their configuration"
        )
    if new.key_authority != old.key_authority:
        told.append("keys.key_authority: devices that trust the old one alone refuse the schedule")
    if new.pairwise is None and old.pairwise is None:
        before, after = _epsilon0(old), _epsilon0(new)
        if math.isinf(after):
            told.append(
                "several messages of each device: owners agree to one version by its name: every "
                "owner is asked again, and answers nothing before"
            )
        elif after > before:
            told.append(
                f"epsilon0: {after:.4g} instead of {before:.4g}: owners whose limit is between "
                "them refuse it"
            )
    if new.min_batch < old.min_batch:
        told.append("min_batch: smaller: owners whose min_batch_floor is above it refuse it")
    if replace(new, salt=old.salt, windows=old.windows) == old:
        shown = is_several(new.mechanism.name) and math.isinf(_epsilon0(new))
        again = "" if shown else "owners are not asked again, and "
        told.append(f"nothing else changes: {again}what was spent stays")
    return told


def _epsilon0(task: Task) -> float:
    made = create_any(task.mechanism, task.domain)
    return made.epsilon0 if isinstance(made, Several) else epsilon0_upper(made.privacy())
