"""An entry of a device's ledger in words, for its owner."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shoal.clients.owner.explain_cost import up

if TYPE_CHECKING:
    from shoal.clients.memory.ledger import LedgerEntry

_SHOWN_HEX = 32  # digits of what was sent; --json has all
_NO_DELTA = ("delta_charged", 0.0)
# say something only where they are there: an outcome without a failure, a task that is not memoized
_SILENT = {
    "kind",
    "lifetime",
}
# How the details of an entry are told, in this order; what is not here comes after, by name.
_WORDS = {
    "purpose": "purpose",
    "question": "question",
    "answer": "answer",
    "reason": "reason",
    "state": "state",
    "kind": "kind",
    "source": "value from",
    "value": "true value",
    "epsilon_local": "local epsilon",
    "epsilon_first": "of this report by itself",
    "epsilon_central": "guaranteed central epsilon",
    "epsilon_charged": "charged",
    "delta_charged": "but for a delta of",
    "basis": "by",
    "epsilon_spent_after": "spent in all",
    "lifetime": "spent on this task",
    "first_report": "first report",
    "memoized": "memoized",
    "report": "sent",
}


def utc(seconds: float) -> str:
    """A device's clock may be anywhere: what no calendar has is shown as seconds."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s"


def details(entry: LedgerEntry) -> list[tuple[str, str]]:
    """What an entry tells, by names that people read, in the order in which they ask."""
    told = {
        name
        for name, value in entry.details.items()
        if (value is not None or name not in _SILENT) and (name, value) != _NO_DELTA
    }
    names = [*(name for name in _WORDS if name in told), *sorted(told - set(_WORDS))]
    return [
        (_WORDS.get(name, name.replace("_", " ")), _shown(name, entry.details[name]))
        for name in names
    ]


def _shown(name: str, value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and (name.startswith("epsilon") or name == "lifetime"):
        return up(value)
    if name == "report" and isinstance(value, str) and len(value) > _SHOWN_HEX:
        return f"{value[:_SHOWN_HEX]}... ({len(value) // 2} bytes)"
    return f"{value}"
