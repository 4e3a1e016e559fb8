"""Whether a wall clock may be believed: the rule, pure. ``shoal.clocks.timekeeper`` reads clocks,
keeps files and asks peers.

A wall clock can jump: a wrong time server, a battery that died, a paused virtual machine. What
cannot be undone must not rest on one reading of it. Its witnesses are the time since the machine
started, counted by hardware that nobody sets (``Reading.steady``), the last time that was kept on
disk, and the signed time of the other service. While they disagree nothing is decided; it goes on
when the clock returns, when a peer confirms it, or when an operator does.

What the rule promises, for a clock that was right when it was first believed: a time that may be
decided by is ahead of the true time by at most ``TOLERANCE_S + MOST_OFF_S + 2 * DRIFT * (seconds
since then)``, whatever the wall clock does, one lying peer does, and however often the machine
restarts. A peer's or an operator's word sets this back to nothing but the error of that word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum, unique

# Steps of a healthy clock are below a second; a minute leaves room for a leap second, a slow start
# of NTP and a table of windows whose grace is minutes. It is also what tasks tolerate of a device's
# clock (skew_s) in our samples.
TOLERANCE_S = 60.0
# Quartz is off by less than 100 ppm, and 500 ppm is the most that ntpd corrects: 43 s a day between
# wall and hardware.
DRIFT = 500e-6
# A machine that starts anew was off for an unknown time. Up to ten minutes in all since the last
# witness are believed (a reboot takes one or two); beyond, a clock that is wrong looks the same,
# and a witness is wanted.
MOST_OFF_S = 600.0
FRESH_S = 300.0  # for so long what a peer said is used
_YOUNG_S = 600.0  # a clock that was believed at a first start does not vouch for others before
_BACK_S = 1.0  # by which steady time may seem to go back: readings are not taken at one instant


@dataclass(frozen=True, slots=True)
class Reading:
    """wall: Unix seconds. steady: seconds since the machine started, those asleep included, at the
    rate of unsteered hardware; comparable under one ``boot_id`` alone.
    """

    wall: float
    steady: float
    boot_id: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.wall) and math.isfinite(self.steady)):
            raise ValueError("a reading is two finite numbers of seconds")


@unique
class Origin(StrEnum):
    """Why the anchor was believed."""

    FIRST = "first start"
    BOOT = "short time off"
    PEER = "peer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class ClockStanding:
    """What is kept on disk. The anchor is the first reading of this boot that was believed, or the
    last that was witnessed: it does not slide along with the wall clock, so what drifts slowly adds
    up and is seen.

    last: the newest time known, at most a minute old while the service runs. off_s: seconds for
    which the machine was off, by its own clock, since the last witness. excused: peers' differences
    (theirs - ours, seconds) that an operator confirmed.
    """

    anchor: Reading
    last: Reading
    origin: Origin
    off_s: float = 0.0
    excused: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Word:
    """What a peer said: its Unix seconds when our steady time was ``steady``, give or take
    ``slack`` seconds.

    vouched: whether it says that its own clock went on without a jump; only then its word counts.
    witness: whether it may speak for our clock too, and not against it alone.
    """

    wall: float
    steady: float
    slack: float
    vouched: bool
    witness: bool = True

    def difference(self, reading: Reading) -> float:
        """Theirs - ours, in seconds."""
        return self.wall + (reading.steady - self.steady) - reading.wall

    def fresh(self, reading: Reading) -> bool:
        """Whether it still counts: its peer vouched for it, at most ``FRESH_S`` before this
        reading.
        """
        return self.vouched and 0.0 <= reading.steady - self.steady + _BACK_S <= FRESH_S + _BACK_S

    def agrees(self, reading: Reading) -> bool:
        """Whether it differs from this reading by no more than the tolerance and its own slack."""
        return abs(self.difference(reading)) <= TOLERANCE_S + self.slack


@unique
class Trouble(StrEnum):
    """Why nothing is decided."""

    FIRST = "no earlier time is known, and by this clock something is over already"
    AHEAD = "the clock went ahead of the time since the machine started"
    BACK = "the clock went back behind the time since the machine started"
    OFF = "since the last known time more has passed than a restart of the machine takes"
    EARLIER = "the clock is behind the last known time"
    PEER = "the clock of the other service, or of the shared database, differs"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``trouble`` None: ``wall`` may be decided by, once ``adopt``, if there is one, is kept.
    expected: Unix seconds that the other witnesses lead to; None if there are none.
    """

    trouble: Trouble | None
    expected: float | None
    adopt: ClockStanding | None = None

    @property
    def sure(self) -> bool:
        """Whether the wall clock may decide what cannot be undone."""
        return self.trouble is None and self.adopt is None


WordsByWitness = Mapping[str, Word]


def expected(standing: ClockStanding, reading: Reading) -> float:
    """Unix seconds by the time before: the anchor's and the hardware's since, or after a restart
    the last known and those since.
    """
    if same_boot(standing, reading):
        return standing.anchor.wall + (reading.steady - standing.anchor.steady)
    return standing.last.wall + max(reading.steady, 0.0)


def same_boot(standing: ClockStanding, reading: Reading) -> bool:
    """A machine that was set back to a snapshot has its boot id and less of its time: that is
    another boot.
    """
    return (
        reading.boot_id == standing.anchor.boot_id
        and reading.steady >= standing.last.steady - _BACK_S
    )


def own_trouble(standing: ClockStanding, reading: Reading) -> Trouble | None:
    """What speaks against the wall clock without a word of anybody else."""
    ahead = reading.wall - expected(standing, reading)
    if same_boot(standing, reading):
        allowed = TOLERANCE_S + DRIFT * (reading.steady - standing.anchor.steady)
        return None if abs(ahead) <= allowed else Trouble.AHEAD if ahead > 0.0 else Trouble.BACK
    if ahead < -TOLERANCE_S:
        return Trouble.EARLIER
    return Trouble.OFF if max(ahead, 0.0) + standing.off_s > MOST_OFF_S else None


def judge(
    standing: ClockStanding | None,
    reading: Reading,
    words: WordsByWitness,
    nothing_over: Callable[[float], bool],
) -> Verdict:
    """The verdict on a wall clock. ``nothing_over(wall)``: whether by that time nothing is to be
    closed or deleted, asked only where no earlier time is known: then a clock that leads to nothing
    irreversible is believed.
    """
    fresh = {name: word for name, word in words.items() if word.fresh(reading)}
    against = any(
        not word.agrees(reading) and not _excused(standing, name, word, reading)
        for name, word in fresh.items()
    )
    witnessed = any(word.witness for word in fresh.values()) and all(
        word.agrees(reading) for word in fresh.values()
    )
    wanted = None if standing is None else expected(standing, reading)
    anew = ClockStanding(reading, reading, Origin.PEER)
    if standing is None:
        if witnessed:
            return Verdict(None, wanted, anew)
        if against:
            return Verdict(Trouble.PEER, wanted)
        if nothing_over(reading.wall):
            return Verdict(None, wanted, replace(anew, origin=Origin.FIRST))
        return Verdict(Trouble.FIRST, wanted)
    trouble = own_trouble(standing, reading)
    if trouble is not None:
        return Verdict(None, wanted, anew) if witnessed else Verdict(trouble, wanted)
    if against:
        return Verdict(Trouble.PEER, wanted)
    if not same_boot(standing, reading):
        off = (
            0.0
            if witnessed
            else standing.off_s + max(reading.wall - expected(standing, reading), 0.0)
        )
        return Verdict(
            None, wanted, ClockStanding(reading, reading, Origin.BOOT, off, standing.excused)
        )
    if witnessed and standing.off_s:
        return Verdict(None, wanted, replace(standing, off_s=0.0))
    return Verdict(None, wanted)


def _excused(standing: ClockStanding | None, name: str, word: Word, reading: Reading) -> bool:
    known = None if standing is None else standing.excused.get(name)
    return known is not None and abs(word.difference(reading) - known) <= TOLERANCE_S + word.slack


def vouches(standing: ClockStanding | None, reading: Reading) -> bool:
    """Whether this clock may be a witness for another: it went on without a jump, and was not just
    believed for want of another.
    """
    if (
        standing is None
        or not same_boot(standing, reading)
        or own_trouble(standing, reading) is not None
    ):
        return False
    return (
        standing.origin is not Origin.FIRST or reading.steady - standing.anchor.steady >= _YOUNG_S
    )


def marked(standing: ClockStanding, reading: Reading) -> ClockStanding:
    """With the newest time known: the wall clock's, or, while it is disputed, what is expected.
    After another boot nothing changes.

    What the wall clock is ahead of quartz goes to the account of the time off at the next boot: a
    minute at every boot would add up.
    """
    if not same_boot(standing, reading):
        return standing
    wanted = expected(standing, reading)
    most = wanted + DRIFT * max(reading.steady - standing.anchor.steady, 0.0)
    wall = min(reading.wall, most) if own_trouble(standing, reading) is None else wanted
    return replace(standing, last=replace(reading, wall=wall))


def confirmed(reading: Reading, words: WordsByWitness) -> ClockStanding:
    """After an operator said that the clock is right: the anchor, and what peers differ by, are
    taken as they are now.
    """
    fresh = {
        name: word.difference(reading)
        for name, word in words.items()
        if word.fresh(reading) and not word.agrees(reading)
    }
    return ClockStanding(reading, reading, Origin.OPERATOR, 0.0, fresh)
