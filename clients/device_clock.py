"""A device's own clock: when it may measure by the wall clock, and what is surely over, though
nobody vouches for the time.

A device has no operator who looks, and no peer whose time it could believe. Its one witness is the
time since the machine started (``shoal.clocks.timekeeping``), over many readings, kept in
``OUTBOX.clock`` beside the outbox for all programs and restarts:

- *In doubt.* The wall clock left that time by more than a minute (and 43 s a day), or is behind the
  last known time after a restart. Nothing is measured or charged then. Doubt ends when the clock is
  right again, or when the new time has gone on for ``HOLD_S`` without another jump: a clock that
  its owner set late must not silence the device for ever. After a restart of the machine any later
  time is taken, because a night off and a wrong clock look the same, but not if there was doubt
  before.
- *Surely over* (``over``): the wall clock less every step ahead that it made during the last
  ``SETTLE_S`` of running time, summed over restarts. So a report ends, and a learnt task is
  deleted, only by a time that nobody set right for a day.

At a first start, or without a readable record, the wall clock is taken to measure by, and nothing
is over for a day.
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal.clients.memory.sealed_line import read_line, write_line
from shoal.clocks.clock import DeviceClock
from shoal.clocks.readings import Readings, SystemReadings, in_words
from shoal.clocks.timekeeping import (
    ClockStanding,
    Origin,
    Reading,
    Trouble,
    expected,
    marked,
    own_trouble,
    same_boot,
)
from shoal.log import get_log

log = get_log("agent")
CLOCK_SUFFIX = ".clock"
# NTP sets a clock within minutes of a network; a new time that nobody has changed by then is taken
# to measure by
HOLD_S = 600.0
# of running time: a wrong clock is seen and set right within a day, or it never is
SETTLE_S = 86_400.0
KEEP_S = 3_600.0  # between two writes of a clock that goes on: a device's flash wears out
_MOST_STEPS = 64
_MOST_BYTES = 64 * 1024
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Known:
    """kept: anchor and last known time. held: seconds of running time at the anchor, since the
    record began. steps: by how many seconds the wall clock went ahead of what was expected, and at
    which running time. candidate: a new time, as it was first seen; None: no doubt.
    """

    kept: ClockStanding
    held: float
    steps: tuple[tuple[float, float], ...]
    candidate: Reading | None = None

    def running(self, reading: Reading) -> float:
        """Seconds of running time: while machines were on, asleep or not, and the clock went on
        with it.
        """
        end = reading if same_boot(self.kept, reading) else self.kept.last
        return self.held + max(end.steady - self.kept.anchor.steady, 0.0)


def first_known(reading: Reading) -> Known:
    """What a device knows at its first reading: that wall clock, all of which may be wrong."""
    return Known(
        ClockStanding(reading, reading, Origin.FIRST), 0.0, ((max(reading.wall, 0.0), 0.0),)
    )


def step(known: Known | None, reading: Reading) -> Known:
    """What is known after one more reading. Pure."""
    if known is None:
        return first_known(reading)
    candidate, trouble = known.candidate, own_trouble(known.kept, reading)
    if trouble is None or (trouble is Trouble.OFF and candidate is None):
        if same_boot(known.kept, reading):
            return replace(known, kept=marked(known.kept, reading), candidate=None)
        return _anew(known, reading)
    if candidate is None or not _goes_on(candidate, reading):
        return replace(known, kept=marked(known.kept, reading), candidate=reading)
    if reading.steady - candidate.steady < HOLD_S:
        return replace(known, kept=marked(known.kept, reading))
    return _anew(known, reading)


def _goes_on(candidate: Reading, reading: Reading) -> bool:
    alone = ClockStanding(candidate, candidate, Origin.FIRST)
    return same_boot(alone, reading) and own_trouble(alone, reading) is None


def _anew(known: Known, reading: Reading) -> Known:
    """The time as it is now is the anchor. What it is ahead counts for nothing until it has
    held.
    """
    running = known.running(reading)
    ahead = max(reading.wall - expected(known.kept, reading), 0.0)
    steps = [*(ahead_at for ahead_at in known.steps if running - ahead_at[1] < SETTLE_S)]
    steps.append((ahead, running))
    while len(steps) > _MOST_STEPS:  # the oldest two as one, as young as the younger
        (oldest, _), (second, at) = steps[:2]
        steps[:2] = [(oldest + second, at)]
    return Known(ClockStanding(reading, reading, Origin.BOOT), running, tuple(steps))


def surely(known: Known, reading: Reading) -> float:
    """Unix seconds that are surely over, after ``step`` with this reading."""
    running = known.running(reading)
    fresh = sum(seconds for seconds, at in known.steps if running - at < SETTLE_S)
    return min(reading.wall, expected(known.kept, reading)) - fresh


class Unhurried:
    """The wall clock for what is under way from now on: no jump ahead ends it. A clock that is set
    back is followed.
    """

    def __init__(self, clock: DeviceClock) -> None:
        self._clock, self._began = clock, clock.now() - clock.steady()

    def now(self) -> float:
        """Unix seconds; never ahead of the time at the beginning plus the seconds that have
        passed.
        """
        return min(self._clock.now(), self._began + self._clock.steady())


class OwnClock:
    """A ``DeviceClock`` over the record beside an outbox, which other programs of the device read
    and write too. For any thread.
    """

    def __init__(self, outbox: Path, readings: Readings | None = None) -> None:
        real = outbox.resolve()
        self._path, self._readings = (
            real.with_name(real.name + CLOCK_SUFFIX),
            readings or SystemReadings(),
        )
        self._lock = threading.Lock()
        self._known: Known | None = None
        self._unwritten = False

    def now(self) -> float:
        """As ``Clock.now``."""
        return self._readings.read().wall

    def steady(self) -> float:
        """As ``DeviceClock.steady``."""
        return self._readings.read().steady

    def over(self) -> float:
        """As ``DeviceClock.over``."""
        return surely(*self._look())

    def doubt(self) -> str:
        """As ``DeviceClock.doubt``."""
        known, reading = self._look()
        if known.candidate is None:
            return ""
        ahead = reading.wall - expected(known.kept, reading)
        # whole minutes: the line is the same until the clock is moved again
        by = in_words(max(round(abs(ahead) / 60), 1) * 60)
        direction = "ahead" if ahead > 0 else "back"
        return (
            f"the clock jumped {direction} by {by}: nothing is measured until it is set right, or "
            "has gone on for ten minutes as it is"
        )

    def _look(self) -> tuple[Known, Reading]:
        with self._lock:
            before = self._known if self._unwritten else self._load() or self._known
            reading = self._readings.read()
            self._known = known = step(before, reading)
            if before is None or self._unwritten or _worth(before, known):
                self._save(known)
            return known, reading

    def _load(self) -> Known | None:
        """None: there is none, or none that can be read. What is damaged counts as none, which ends
        nothing early.
        """
        line = read_line(self._path, _MOST_BYTES)
        if line is None:
            return None
        with contextlib.suppress(KeyError, TypeError, ValueError, RecursionError):
            return _from_json(json.loads(line))
        return None

    def _save(self, known: Known) -> None:
        """Whole or not at all. A disk that takes nothing stops nothing: this program goes by what
        it saw itself.
        """
        line = json.dumps(_to_json(known), sort_keys=True).encode()
        try:
            write_line(self._path, line, sync=True)
        except OSError as error:
            if not self._unwritten:
                log.warning("the time can't be kept: a restart forgets it", error=error)
            self._unwritten = True
        else:
            self._unwritten = False


def _worth(before: Known, known: Known) -> bool:
    """Whether it is written: what changed, or an hour."""
    if (before.held, before.steps, before.candidate, before.kept.anchor) != (
        known.held,
        known.steps,
        known.candidate,
        known.kept.anchor,
    ):
        return True
    return known.kept.last.steady - before.kept.last.steady >= KEEP_S


def _to_json(known: Known) -> dict[str, Any]:
    def as_list(reading: Reading | None) -> list[float | str] | None:
        return None if reading is None else [reading.wall, reading.steady, reading.boot_id]

    return {
        "format": _FORMAT,
        "anchor": as_list(known.kept.anchor),
        "last": as_list(known.kept.last),
        "held": known.held,
        "steps": known.steps,
        "candidate": as_list(known.candidate),
    }


def _from_json(record: dict[str, Any]) -> Known | None:
    """Raises KeyError, TypeError, ValueError for what this program did not write."""
    if record["format"] != _FORMAT:
        return None

    def as_reading(value: Any) -> Reading:
        wall, steady, boot_id = value
        return Reading(float(wall), float(steady), str(boot_id))

    steps = tuple([(float(seconds), float(at)) for seconds, at in record["steps"]])
    candidate = None if record["candidate"] is None else as_reading(record["candidate"])
    return Known(
        ClockStanding(as_reading(record["anchor"]), as_reading(record["last"]), Origin.BOOT),
        float(record["held"]),
        steps,
        candidate,
    )
