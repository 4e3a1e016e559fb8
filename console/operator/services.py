"""What the two services say of themselves on their admin ports, as the pages show it.

A service may be of another version, or something else may answer there: what is missing is left
out, and nothing is believed to have a type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Status = Mapping[str, Any]
# States of a window at the shuffler in which it has reports that the analyzer hasn't acknowledged
_BACKLOG = ("CLOSING", "SEALED", "DELIVERING")
_SOON_DAYS = 30  # from then on a certificate is shown as ending
_TIGHT = 0.1  # share of a disk that is free, below which it is shown as tight

STATES = {
    "OPEN": "takes reports",
    "CLOSING": "is over and being sealed",
    "SEALED": "waits for its delivery",
    "DELIVERING": "is being delivered",
    "ACKNOWLEDGED": "delivered",
    "WITHHELD": "withheld: too few reports",
    "EXPIRED": "expired before its delivery",
    "SHREDDED": "done",
}
# What a person can do about reports that the shuffler refused, by the kind of the refusal.
REFUSALS = {
    "INVALID": "frames that are none: other versions, or strangers. Look at the devices' versions.",
    "UNKNOWN_TASK": "devices ask for tasks that are not served: put their signed files into "
    "tasks_dir, or take the tasks back from the devices.",
    "UNKNOWN_KEY": "reports under a key that no schedule names: devices hold an old schedule, or "
    "the key's file is missing in keys_dir.",
    "TOO_EARLY": "windows that have not begun: devices' clocks are ahead. They try again.",
    "WINDOW_CLOSED": "reports that came after their window: devices were away, or their clocks "
    "are behind. A longer grace_s in the next version of the task takes them.",
    "WINDOW_FULL": "more reports than max_batch: raise it in the next version of the task.",
    "OVERLOADED": "more came than could be stored at once: devices try again. If it goes on, look "
    "at the disk and at the processor.",
    "OVERSIZE": "messages that are too large: no device of ours sends them.",
    "UNAVAILABLE": "asked while the service could not answer, or its clock was disputed: devices "
    "try again.",
    "DEADLINE": "calls with too little time left: slow links. Devices try again.",
    "UNAUTHENTICATED": "no valid proof of enrolment: strangers, or devices without a certificate.",
    "FORBIDDEN": "devices whose certificate is not of this task, or was taken back.",
    "BAD_SIGNATURE": "signatures that do not verify: look whether tasks and keys belong together.",
    "CONFLICT": "a device answered twice in a window: copies of one device, or one set back.",
    "INTERNAL": "a bug of ours: the log has an incident number.",
    "ABORTED": "rounds that ended without a sum: too few devices stayed.",
}
# What it means that a window was given up, by who said so.
GIVEN_UP = {
    "both": "nothing of it is delivered or counted",
    "shuffler": "nothing more of it is delivered; an analyzer that had it whole by then still "
    "releases it, so its operator decides too: shoal analyzer window abandon",
    "analyzer": "nothing of it is counted; the shuffler keeps what it has until retention ends, if "
    "its operator does not give it up too: shoal shuffler window abandon",
}
_END = 1 << 37  # Unix seconds: a date beyond it can't be written
_OTHER_REFUSAL = "see the log of the shuffler."


@dataclass(frozen=True, slots=True)
class TlsFile:
    """One TLS file of a service. ``days_left``: whole days, below 0 after its end."""

    role: str
    file: str
    days_left: int
    date: str

    @property
    def ending(self) -> bool:
        """Whether it is time to have a new one."""
        return self.days_left < _SOON_DAYS


@dataclass(frozen=True, slots=True)
class GivenUpWindow:
    """A window that an operator gave up: at the "shuffler", the "analyzer" or "both". ``at``: Unix
    seconds, of the first word, None where nobody told; ``by``: the users who said so; ``reasons``:
    why, each once. ``means``: what follows, and what is left to do.
    """

    window: int
    where: str
    at: int | None
    by: str
    reasons: str
    means: str


@dataclass(frozen=True, slots=True)
class TaskWindows:
    """Windows of one task at both services. ``states``: at the shuffler, how many by state.
    ``backlog``: decided there and not yet acknowledged, or not yet released at the analyzer.
    """

    task_id: str
    name: str
    windows: int
    states: Mapping[str, int]
    at_analyzer: Mapping[str, int]
    backlog: int
    failing: tuple[str, ...]
    latest: tuple[Mapping[str, Any], ...]
    given_up: tuple[GivenUpWindow, ...] = ()


def text(value: object) -> str:
    """A string that somebody else sent, cut; "" for anything else."""
    return value[:300] if isinstance(value, str) else ""


def whole(value: object) -> int | None:
    """A whole number that somebody else sent; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def rows(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list that somebody else sent."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def counts(value: object) -> dict[str, int]:
    """Names and whole numbers that somebody else sent."""
    if not isinstance(value, dict):
        return {}
    found = {text(name): whole(count) for name, count in value.items()}
    return {name: count for name, count in found.items() if count is not None}


def certificates(status: Status) -> list[TlsFile]:
    """Those that a service told of, the one that ends first at the top."""
    found = [
        TlsFile(text(row.get("role")), text(row.get("file")), days, text(row.get("not_after"))[:10])
        for row in rows(status.get("certificates"))
        if (days := whole(row.get("days_left"))) is not None
    ]  # fmt: skip
    return sorted(found, key=lambda each: (each.days_left, each.role))


def disk(status: Status) -> dict[str, Any] | None:
    """{"free", "total"} in bytes, "used" in percent and "tight"; None where nothing is known."""
    told = status.get("disk")
    free, total = (
        (whole(told.get("free_bytes")), whole(told.get("total_bytes")))
        if isinstance(told, dict)
        else (None, None)
    )
    if free is None or total is None or not 0 <= free <= total or total == 0:
        return None
    share = free / total
    return {
        "free": free,
        "total": total,
        "used": round(100.0 * (1.0 - share), 1),
        "tight": share < _TIGHT,
    }


def clock(status: Status) -> list[tuple[str, int]]:
    """(whose, seconds that it is ahead of this service's), the expected time first."""
    told = status.get("clock")
    if not isinstance(told, dict):
        return []
    ahead = whole(told.get("difference_s"))
    found = [] if ahead is None else [("the expected time", -ahead)]
    return found + [(f"service {peer[:8]}", by) for peer, by in counts(told.get("peers")).items()]


def refusals(status: Status) -> list[tuple[str, int, str]]:
    """(kind in words, how many since the start, what to do), the most frequent first."""
    found = counts(status.get("refused"))
    return [
        (kind.lower().replace("_", " "), count, REFUSALS.get(kind, _OTHER_REFUSAL))
        for kind, count in sorted(found.items(), key=lambda item: -item[1])
    ]


def windows(shuffler: Status | None, analyzer: Status | None) -> list[TaskWindows]:
    """Every task that either service told of, by name."""
    at_shuffler = {text(row.get("task_id")): row for row in rows((shuffler or {}).get("tasks"))}
    at_analyzer = {text(row.get("task_id")): row for row in rows((analyzer or {}).get("tasks"))}
    found = [
        _task(task_id, at_shuffler.get(task_id, {}), at_analyzer.get(task_id, {}))
        for task_id in {**at_shuffler, **at_analyzer}
    ]
    return sorted(found, key=lambda each: (each.name, each.task_id))


def _task(task_id: str, there: Status, here: Status) -> TaskWindows:
    states = Counter(counts(there.get("states")))
    keys = ("receiving", "processing", "released", "withheld")
    analyzer = {key: whole(here.get(key)) or 0 for key in keys} if here else {}
    backlog = sum(states[state] for state in _BACKLOG)
    backlog = max(backlog, analyzer.get("receiving", 0)) + analyzer.get("processing", 0)
    failing = tuple(
        f"window {whole(row.get('window'))}: {whole(row['failing'].get('attempts'))} failures "
        f"({text(row['failing'].get('kind')).lower().replace('_', ' ')}): see the shuffler's log"
        for row in rows(there.get("shown"))
        if isinstance(row.get("failing"), dict)
    )
    given = tuple(_given_up(rows(there.get("given_up")), rows(here.get("given_up"))))
    return TaskWindows(
        task_id,
        text(there.get("name")) or text(here.get("name")),
        whole(there.get("windows")) or whole(here.get("windows")) or 0,
        states,
        analyzer,
        backlog,
        failing,
        tuple(_latest(rows(there.get("shown")), rows(here.get("ended")), given)),
        given,
    )


def _given_up(there: list[Mapping[str, Any]], here: list[Mapping[str, Any]]) -> list[GivenUpWindow]:
    """What either operator gave up, the newest window first."""
    said: dict[int, dict[str, Mapping[str, Any]]] = {}
    for side, lines in (("shuffler", there), ("analyzer", here)):
        for row in lines:
            number = whole(row.get("window"))
            if number is not None:
                said.setdefault(number, {})[side] = row
    found: list[GivenUpWindow] = []
    for number, sides in sorted(said.items(), reverse=True):
        where = "both" if len(sides) > 1 else next(iter(sides))
        told = [whole(row.get("at")) for row in sides.values()]
        at = min((each for each in told if each is not None and 0 < each < _END), default=None)
        by, reasons = (
            "; ".join(dict.fromkeys(filter(None, (text(row.get(key)) for row in sides.values()))))
            for key in ("by", "reason")
        )
        found.append(GivenUpWindow(number, where, at, by, reasons, GIVEN_UP[where]))
    return found


def _latest(
    shown: list[Mapping[str, Any]],
    ended: list[Mapping[str, Any]],
    given: Sequence[GivenUpWindow],
) -> list[Mapping[str, Any]]:
    """The last five windows that anybody knows, the newest first: number, state in words, distinct
    reports at the shuffler (None: not decided yet), and what the analyzer counted and rejected.
    """
    told = {whole(row.get("window")): row for row in shown}
    counted = {whole(row.get("window")): row for row in ended}
    numbers = sorted((each for each in {**told, **counted} if each is not None), reverse=True)
    lost = {each.window for each in given if each.where != "analyzer"}
    found: list[Mapping[str, Any]] = []
    for number in numbers[:5]:
        there, here = told.get(number, {}), counted.get(number)
        outcome = text(there.get("outcome")) or text(there.get("state"))
        if number in lost and outcome == "EXPIRED":
            outcome = "given up"
        found.append(
            {
                "window": number,
                "state": STATES.get(outcome, "released" if here else outcome.lower()),
                "reports": whole(there.get("reports")),
                "n": None if here is None else whole(here.get("n")),
                "rejected": None if here is None else whole(here.get("rejected")),
                "withheld": bool(here and here.get("withheld")),
            }
        )
    return found
