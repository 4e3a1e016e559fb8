"""A service's clock: reads the machine's clocks, keeps the last known time on disk, and says
whether it may be decided by.

The rule is in ``shoal.clocks.timekeeping``. ``look`` carries it out once a second: it keeps the
time in ``clock.json`` once a minute, takes up an operator's confirmation, and tells of every change
in one line. ``decide`` judges fresh readings at every call, so that nothing slips through between
two looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal.clocks.readings import Readings, SystemReadings, in_words
from shoal.clocks.timekeeping import (
    ClockStanding,
    Origin,
    Reading,
    Trouble,
    Verdict,
    Word,
    confirmed,
    expected,
    judge,
    marked,
    vouches,
)
from shoal.errors import Kind, ShoalError
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.services.process import fsync_folder
from shoal.services.whole_files import replace_whole

log = get_log("clock")
FILE_NAME = "clock.json"
CONFIRM_NAME = "clock.confirm"
LOOK_S = 1.0
KEEP_S = 60.0  # between two writes: a restart of the machine is then known to within a minute
_MOST_WORDS = 64  # peers whose word is held: an analyzer has a few shufflers
_MOST_BYTES = 64 * 1024
_FORMAT = 1


def _nothing_over(_: float) -> bool:
    return False


class Timekeeper:
    """A ``SureClock`` over a data folder that this process holds. ``look`` is for one thread at a
    time.
    """

    def __init__(self, folder: Path, command: str, readings: Readings | None = None) -> None:
        """``command``: what an operator types, for example "shoal shuffler clock". A record that
        can't be read counts as none.
        """
        self._folder, self._command, self._readings = folder, command, readings or SystemReadings()
        self._words: dict[str, Word] = {}
        self._lock = threading.Lock()
        self._nothing_over: Callable[[float], bool] = _nothing_over
        self._told: Trouble | None = None
        self._unwritten = False
        self._kept: float | None = None  # steady seconds of the last write
        try:
            self._standing = load(folder)
        except ShoalError as error:
            log.error("the record of the clock is damaged: taken for a first start", error=error)
            self._standing = None

    # --- what the service asks --------------------------------------------------------------------

    def now(self) -> float:
        """As ``Clock.now``."""
        return self._readings.read().wall

    def steady(self) -> float:
        """As ``SureClock.steady``."""
        return self._readings.read().steady

    def decide(self) -> float | None:
        """As ``SureClock.decide``."""
        reading = self._readings.read()
        return reading.wall if self._judge(reading).sure else None

    def letting(self) -> float | None:
        """As ``SureClock.letting``."""
        reading = self._readings.read()
        return reading.wall if self._judge(reading).trouble in (None, Trouble.FIRST) else None

    def earliest(self) -> float:
        """As ``SureClock.earliest``."""
        reading = self._readings.read()
        standing = self._standing
        return reading.wall if standing is None else min(reading.wall, expected(standing, reading))

    def watch(self, nothing_over: Callable[[float], bool]) -> None:
        """How to see, at a first start, whether by a time nothing is to be closed or deleted. Until
        then nothing is decided.
        """
        self._nothing_over = nothing_over

    # --- peers ------------------------------------------------------------------------------------

    def hear(
        self, name: str, wall: float, slack: float, vouched: bool, *, witness: bool = True
    ) -> None:
        """A peer's verified word: its Unix seconds now, give or take ``slack``. One that is no
        ``witness`` may speak against our clock and never for it: it may be this very machine's.
        """
        word = Word(wall, self._readings.read().steady, slack, vouched, witness)
        with self._lock:
            words = {known: held for known, held in self._words.items() if known != name}
            self._words = {**dict(list(words.items())[-_MOST_WORDS + 1 :]), name: word}

    def word(self) -> tuple[float, bool]:
        """What to tell a peer: Unix seconds, and whether they may be a witness."""
        reading = self._readings.read()
        return reading.wall, vouches(self._standing, reading)

    # --- once a second ----------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Look until ``stop``, and keep the time once more."""
        while not stop.is_set():
            # whatever it was, the clock is looked at again
            try:
                await asyncio.to_thread(self.look)
            except Exception as error:  # noqa: BLE001
                log.error("a look at the clock failed unexpectedly", error=error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_S)
        await asyncio.to_thread(self.keep)

    def look(self) -> Trouble | None:
        """Judge, take up what that leads to, and keep the time if it is time to. Why nothing is
        decided, or None.
        """
        reading = self._readings.read()
        verdict = self._judge(reading)
        if self._take_confirmation(reading, verdict.trouble):
            verdict = self._judge(reading)
        if verdict.adopt is not None:
            self._adopt(verdict.adopt)
        changed = verdict.trouble is not self._told
        if changed or self._kept is None or not 0.0 <= reading.steady - self._kept < KEEP_S:
            self.keep()
        self._tell(verdict, reading)
        return verdict.trouble

    def _judge(self, reading: Reading) -> Verdict:
        return judge(self._standing, reading, self._words, self._nothing_over)

    def _adopt(self, standing: ClockStanding) -> None:
        """On disk first; a disk that takes nothing stops no decision: after a crash the older
        record is judged again.
        """
        self._write(standing)
        before, self._standing = self._standing, standing
        if before is not None and before.anchor != standing.anchor:
            log.info("the clock is believed anew", reason=standing.origin.value)

    def keep(self) -> None:
        """Write the newest time known."""
        reading = self._readings.read()
        if self._standing is not None:
            self._standing = marked(self._standing, reading)
        self._write(self._standing)
        self._kept = reading.steady

    def _write(self, standing: ClockStanding | None) -> None:
        trouble = judge(standing, self._readings.read(), self._words, self._nothing_over).trouble
        try:
            _save(self._folder / FILE_NAME, _to_json(standing, trouble, self._words))
        except OSError as error:
            if not self._unwritten:
                log.error(
                    "the time can't be kept: after a restart an operator may have to confirm the "
                    "clock",
                    error=error,
                )
            self._unwritten = True
        else:
            self._unwritten = False

    def _tell(self, verdict: Verdict, reading: Reading) -> None:
        if verdict.trouble is self._told:
            return
        self._told = verdict.trouble
        if verdict.trouble is None:
            log.warning("the clock is believed: decisions go on")
        else:
            ahead = None if verdict.expected is None else round(reading.wall - verdict.expected)
            log.error(
                "the clock is disputed: nothing is closed or deleted",
                reason=verdict.trouble.value,
                seconds=ahead,
            )

    def report(self) -> Report:
        """How the clock stands now, for metrics and /status."""
        reading = self._readings.read()
        return Report.of(self._standing, reading, self._judge(reading), self._words)

    def conditions(self) -> Iterator[Condition]:
        """One of the code "clock" while nothing is decided. At a first start it stops nothing: what
        is open is open.
        """
        reading = self._readings.read()
        verdict = self._judge(reading)
        if not verdict.sure:  # what a look will adopt, within a second, is not decided by yet
            verdict = replace(verdict, trouble=verdict.trouble or self._told)
        if verdict.trouble is not None:
            report = Report.of(self._standing, reading, verdict, self._words)
            first_start = verdict.trouble is Trouble.FIRST
            mend = (
                f"see whether it is right, then run `{self._command}`"
                if first_start
                else f"set the clock right, or run `{self._command}`"
            )
            yield Condition(
                "clock",
                "",
                f"{report.say}: nothing is closed or deleted; {mend}",
                stops=not first_start,
            )

    # --- an operator's word -----------------------------------------------------------------------

    def _take_confirmation(self, reading: Reading, trouble: Trouble | None) -> bool:
        """A confirmation counts once, for the disagreement that it was given for; any other is
        deleted.
        """
        path = self._folder / CONFIRM_NAME
        if not path.exists():
            return False
        try:
            confirmation = _load(path)
        except ShoalError:
            confirmation = None
        fits = (
            trouble is not None
            and confirmation is not None
            and _fits(confirmation, self._standing, reading)
        )
        if fits:
            self._adopt(confirmed(reading, self._words))
            log.warning("the clock was confirmed by an operator", reason=trouble)
        elif trouble is not None:
            log.error(
                "a confirmation of the clock is not for what is seen now: deleted, give it again"
            )
        with contextlib.suppress(OSError):
            path.unlink()
            fsync_folder(self._folder)
        return fits


# --- for the command line: of a running service or a stopped one ----------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """What ``shoal shuffler clock`` shows. Times are Unix seconds; ahead: wall - expected; peers:
    theirs - ours.
    """

    trouble: Trouble | None
    wall: float
    expected: float | None
    same_boot: bool
    origin: str | None
    peers: dict[str, float]

    @classmethod
    def of(
        cls,
        standing: ClockStanding | None,
        reading: Reading,
        verdict: Verdict,
        words: dict[str, Word],
    ) -> Report:
        """What an operator is shown of this reading, and what each peer said that is still used."""
        peers = {
            name: word.difference(reading) for name, word in words.items() if word.fresh(reading)
        }
        same = standing is not None and standing.anchor.boot_id == reading.boot_id
        return cls(
            verdict.trouble,
            reading.wall,
            verdict.expected,
            same,
            standing.origin.value if standing else None,
            peers,
        )

    @property
    def ahead(self) -> float | None:
        """Seconds that the wall clock is ahead of what was expected; None: nothing was."""
        return None if self.expected is None else self.wall - self.expected

    @property
    def say(self) -> str:
        """What is wrong in words, without an end."""
        if self.trouble is None:
            return "the clock is believed"
        by = 0.0
        if self.trouble is Trouble.PEER:
            by = max(map(abs, self.peers.values()), default=0.0)
        elif self.ahead is not None:
            by = abs(self.ahead)
        return self.trouble.value + (f" by {in_words(by)}" if by else "")


def inspect(folder: Path, readings: Readings | None = None) -> Report:
    """How the clock of the service with this data folder stands.

    Raises NOT_FOUND if none has kept a time here, CONFIG if the record can't be read.
    """
    standing, trouble, words, reading = _seen(folder, readings)
    verdict = judge(standing, reading, words, lambda _: trouble is not Trouble.FIRST)
    return Report.of(standing, reading, verdict, words)


def confirm(folder: Path, readings: Readings | None = None) -> Report:
    """Say that the wall clock is right as it is now. A running service takes it up within seconds,
    a stopped one at its next start.

    Raises CONFLICT if nothing is disputed, NOT_FOUND, CONFIG.
    """
    standing, _, _, reading = _seen(folder, readings)
    report = inspect(folder, readings)
    if report.trouble is None:
        raise ShoalError(Kind.CONFLICT, "the clock is not disputed: there is nothing to confirm")
    try:
        _save(
            folder / CONFIRM_NAME,
            {"format": _FORMAT, "seen": _seen_name(standing), "reading": _reading(reading)},
        )
    except OSError as error:
        why = error.strerror or "cannot be written"
        raise ShoalError(
            Kind.CONFIG, f"data_dir {folder}: {why}: run this as the service's user"
        ) from None
    return report


def _seen(
    folder: Path, readings: Readings | None
) -> tuple[ClockStanding | None, Trouble | None, dict[str, Word], Reading]:
    record = _load(folder / FILE_NAME)
    return (*_from_json(record), (readings or SystemReadings()).read())


def _fits(confirmation: dict[str, Any], standing: ClockStanding | None, reading: Reading) -> bool:
    """Whether a confirmation is about this record and this position of the wall clock."""
    try:
        meant = _to_reading(confirmation["reading"])
        if confirmation["seen"] != _seen_name(standing) or meant.boot_id != reading.boot_id:
            return False
    except (KeyError, TypeError, ValueError):
        return False
    moved = (reading.wall - reading.steady) - (meant.wall - meant.steady)
    return abs(moved) <= 1.0 + 0.01 * max(reading.steady - meant.steady, 0.0)


def _seen_name(standing: ClockStanding | None) -> str:
    text = (
        "none"
        if standing is None
        else json.dumps(
            [_reading(standing.anchor), standing.origin.value, sorted(standing.excused.items())]
        )
    )
    return hashlib.sha256(text.encode()).hexdigest()


# --- files ----------------------------------------------------------------------------------------


def load(folder: Path) -> ClockStanding | None:
    """The record in a data folder; None if there is none. Raises CONFIG if it is damaged."""
    try:
        return _from_json(_load(folder / FILE_NAME))[0]
    except ShoalError as error:
        if error.kind is Kind.NOT_FOUND:
            return None
        raise


def _reading(reading: Reading) -> list[float | str]:
    return [reading.wall, reading.steady, reading.boot_id]


def _to_reading(value: Any) -> Reading:
    wall, steady, boot_id = value
    return Reading(float(wall), float(steady), str(boot_id))


def _to_json(
    standing: ClockStanding | None, trouble: Trouble | None, words: dict[str, Word]
) -> dict[str, Any]:
    kept = None
    if standing is not None:
        kept = {
            "anchor": _reading(standing.anchor),
            "last": _reading(standing.last),
            "origin": standing.origin.value,
            "off_s": standing.off_s,
            "excused": dict(standing.excused),
        }
    said = {
        name: [word.wall, word.steady, word.slack, word.vouched, *([] if word.witness else [False])]
        for name, word in words.items()
    }
    return {
        "format": _FORMAT,
        "standing": kept,
        "trouble": trouble.name if trouble else None,
        "peers": said,
    }


def _from_json(
    record: dict[str, Any],
) -> tuple[ClockStanding | None, Trouble | None, dict[str, Word]]:
    try:
        kept, name = record["standing"], record["trouble"]
        standing = None
        if kept is not None:
            excused = {str(peer): float(difference) for peer, difference in kept["excused"].items()}
            anchor, last = _to_reading(kept["anchor"]), _to_reading(kept["last"])
            standing = ClockStanding(
                anchor, last, Origin(kept["origin"]), float(kept["off_s"]), excused
            )
        words = {
            str(peer): Word(
                float(fields[0]),
                float(fields[1]),
                float(fields[2]),
                bool(fields[3]),
                not fields[4:],
            )
            for peer, fields in record["peers"].items()
        }
        return standing, None if name is None else Trouble[name], words
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise ShoalError(
            Kind.CONFIG,
            f"{FILE_NAME}: it is not what this program wrote: remove it, then confirm the clock",
        ) from None


def _save(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all, durably: a line of JSON, and a line with its SHA-256. Its owner is the
    folder's, also where root writes it.
    """
    line = json.dumps(content, sort_keys=True).encode() + b"\n"
    data = line + hashlib.sha256(line).hexdigest().encode() + b"\n"
    replace_whole(path, data, "clock")


def _load(path: Path) -> dict[str, Any]:
    """Raises NOT_FOUND, CONFIG."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES)
    except FileNotFoundError:
        raise ShoalError(
            Kind.NOT_FOUND,
            f"no {path.name} in {path.parent}: start the service once, or name its configuration",
        ) from None
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG,
            f"{path}: {error.strerror or 'cannot be read'}: run this as the service's user",
        ) from None
    line, _, seal = data.partition(b"\n")
    if hashlib.sha256(line + b"\n").hexdigest().encode() != seal.strip():
        raise ShoalError(
            Kind.CONFIG, f"{path.name}: it is damaged: remove it, then confirm the clock"
        )
    record = json.loads(line)
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise ShoalError(
            Kind.CONFIG,
            f"{path.name}: of another version of this program: remove it, then confirm the clock",
        )
    return record
