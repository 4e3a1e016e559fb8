"""A discovery played with made-up devices: every message of every device at every level is drawn by
the production randomizer, tallied and estimated, and beginnings are followed as an analyzer follows
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from shoal.analyzer.discovery.plan import DiscoveryPlan
from shoal.analyzer.planner.question import MOST_DEVICES, wrong
from shoal.analyzer.planner.simulation.crowd import ByCounts
from shoal.analyzer.planner.simulation.simulate import HERE, Tell
from shoal.analyzer.planner.simulation.stretches import Engine, Rehearsal, stretches_of
from shoal.analyzer.results.discovered import LevelFindings, found_in, level_json, rows_of
from shoal.arrays import NDArray, np
from shoal.entropy import SYSTEM, Entropy, part_of
from shoal.mechanisms import Tally
from shoal.mechanisms.base import Estimate
from shoal.mechanisms.parts.sampling import uniform_below
from shoal.mechanisms.several.levels import (
    FoundBeginning,
    histogram_of,
    threshold,
)
from shoal.questions.discovery import Discovery, DiscoveryLevel

MOST_MESSAGES = 200_000_000


@dataclass(frozen=True, slots=True, eq=False)
class LevelDone:
    """``n``: devices that answered; ``findings``: what a release would tell; ``messages``: of all
    devices; ``estimate``: of every cell, and ``counts``: int64[cells], the devices whose answer
    each was.
    """

    level: DiscoveryLevel
    n: int
    findings: LevelFindings
    messages: int
    estimate: Estimate
    counts: NDArray[np.int64]

    @property
    def least(self) -> int:
        """The threshold, in devices."""
        return self.findings.least

    @property
    def found(self) -> tuple[FoundBeginning, ...]:
        """What reached it."""
        return self.findings.found

    @property
    def left_out(self) -> int:
        """Beginnings that did too, and for which there was no room."""
        return self.findings.no_room

    def true(self, found: FoundBeginning) -> int:
        """Devices at this level that have what was found."""
        return int(self.counts[self.level.cell_of(found.symbols)])


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """``spelled``: distinct words, or places; ``counts``: int64, the devices that hold each."""

    spelled: tuple[bytes, ...]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, discovery: Discovery, held: Mapping[str, int]) -> Population:
        """Of texts and how many devices hold each. Raises CONFIG unless there is one device or
        more.
        """
        spelled = Counter[bytes]()
        for text, count in held.items():
            spelled[discovery.word(text)] += count
        if not 1 <= spelled.total() <= MOST_DEVICES or min(spelled.values()) < 0:
            raise wrong(
                f"a simulation has 1 to {MOST_DEVICES} devices, each with an answer or none"
            )
        words = tuple(sorted(spelled))
        return cls(words, np.array([spelled[word] for word in words], dtype=np.int64))

    @property
    def n(self) -> int:
        """Devices."""
        return int(self.counts.sum())

    def cells(self, level: DiscoveryLevel) -> NDArray[np.int64]:
        """int64[cells]: the devices whose answer each cell is."""
        places = [level.cell_of(word) for word in self.spelled]
        counts = np.zeros(level.size, dtype=np.int64)
        np.add.at(counts, places, self.counts)
        return counts

    def parted(self, parts: int, entropy: Entropy) -> list[Population]:
        """Each device in one of so many parts, drawn by itself."""
        split = np.empty((parts, self.counts.size), dtype=np.int64)
        for word, count in enumerate(self.counts.tolist()):
            split[:, word] = np.bincount(uniform_below(parts, count, entropy), minlength=parts)
        return [Population(self.spelled, part) for part in split]


def check_words(plan: DiscoveryPlan, words: Population) -> None:
    """Raises CONFIG for more messages than are drawn in half an hour."""
    each = plan.messages(plan.made.noise.cells) * plan.together
    if words.n * each > MOST_MESSAGES:
        raise wrong(
            f"simulating {words.n:,} devices draws up to {words.n * each:.2g} messages one by one, "
            f"and {MOST_MESSAGES:,} are the most (half an hour): simulate fewer devices, follow "
            "fewer beginnings (--most), or give each device one level (--fresh)"
        )


def simulate_discovery(
    plan: DiscoveryPlan,
    words: Population,
    entropy: Entropy = SYSTEM,
    *,
    least: int | None = None,
    tell: Tell | None = None,
    shown: Callable[[LevelDone], None] | None = None,
    engine: Engine = HERE,
) -> list[LevelDone]:
    """Level after level, until nothing is left to be followed. ``least``: the threshold of every
    level; None: that of its size and of the devices that came. ``shown`` is told of each when it is
    done, ``tell`` how many devices answered since it was called last.
    """
    discovery, done = plan.discovery, list[LevelDone]()
    fresh = not plan.request.same
    crowds = [words] * discovery.levels
    if fresh:  # those who drew a spare window are asked nothing, if none is lost
        crowds = words.parted(plan.request.asked_windows, entropy)
    level: DiscoveryLevel | None = discovery.level(0)
    while level is not None:
        crowd, made = crowds[level.number], histogram_of(plan.made, level)
        n = crowd.n
        if not n:
            break
        counts = crowd.cells(level)
        work = Rehearsal(made, ByCounts(counts), part_of(entropy, f"level {level.number}"))
        tally = _tally(work, engine, tell)
        bound = threshold(made, discovery.levels, n) if least is None else least
        estimate = made.estimate(tally, n)
        findings = found_in(level, estimate, bound)
        done.append(LevelDone(level, n, findings, tally.rows, estimate, counts))
        if shown is not None:
            shown(done[-1])
        level = discovery.after(level.number, findings.beginnings)
    return done


def words_of(done: Iterable[LevelDone]) -> list[tuple[FoundBeginning, int]]:
    """The words of a discovery, the most frequent first: those that ended at their level, and those
    of the last level that were cut. With each how many devices of its level have it.
    """
    words = [
        (one, level.true(one))
        for level in done
        for one in level.found
        if one.is_whole or level.level.is_last
    ]
    return sorted(words, key=lambda pair: (-pair[0].value, pair[0].symbols))


def releases_of(done: Iterable[LevelDone]) -> list[dict[str, Any]]:
    """What releases of places would tell of the levels, in the shape of ``release_json.to_json``:
    the parts of it that a map is drawn of, a window for each level, each of all devices.
    """
    return [
        {
            "window": level.level.number,
            "n": level.n,
            "estimates": rows_of(level.findings.estimate),
            "discovered": level_json(level.findings.message(level.level.discovery.levels)),
        }
        for level in done
    ]


def _tally(work: Rehearsal, engine: Engine, tell: Tell | None) -> Tally:
    total: Tally | None = None
    with closing(engine.tallies(work, stretches_of(work.mechanism, work.crowd.n, 1))) as answers:
        for stretch, tallies in answers:
            for tally in tallies:
                total = tally if total is None else total + tally
            if tell is not None:
                tell(stretch.size)
    if total is None:
        raise ValueError("a level has at least one device")
    return total
