"""Every bundle that the code of a device can make, with its exact probability: ``randomize_one`` is
run once for each way that its random choices can fall.

No law of the accountant, no rate and no formula of the mechanism is used: the number of events of
noise comes from the very thresholds that a device's word is compared with, a cell from each value
that the draw below a bound can have. Where noise has no room beside the true messages, all numbers
of events give one bundle: they are one choice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import combinations_with_replacement, permutations
from math import factorial, lcm
from typing import cast

import pytest

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.noise.exact import SmallSampler
from shoal.mechanisms.several import bundling, events
from shoal.mechanisms.several.protocol import Several
from tests.unit.accounting.brute import Law

WORDS = 1 << 64
_MOST = 64  # a draw below more than that has one outcome: which it is says nothing here
View = tuple[int, ...]


class Choices:
    """Stands for entropy while ``randomize_one`` runs: every choice is made by ``plan``, the first
    one that it does not have is the least. ``weight`` out of ``total`` is the probability of all.

    Cells of noise are drawn one like another and the analyzer sees no order: of each set of draws
    one order is tried, the rising one, and counts for all.
    """

    def __init__(self, plan: Sequence[int], room: int) -> None:
        self._plan, self._at, self._room = list(plan), 0, room
        self._full = False
        self._cells, self._options = list[int](), list[int]()
        self._mass, self._out_of = 1, 1

    def bytes(self, count: int) -> bytes:
        raise AssertionError(f"{count} random bytes that no choice was made of")

    def words(self, count: int) -> NDArray[np.uint64]:
        raise AssertionError(f"{count} random words that no choice was made of")

    def below(self, bound: int) -> int:
        """An equally likely number below ``bound``: a cell, or the kind of an event of one kind."""
        if bound > _MOST or self._full:
            return 0
        self._out_of *= bound
        least = self._cells[-1] if self._cells else 0
        self._cells.append(least + self._chosen(bound - least))
        return self._cells[-1]

    def number(self, first: int, ends: Sequence[int]) -> int:
        """A number of events: a word below ends[0] is the number ``first``, and so on."""
        assert first == 0
        starts = [0, *ends][: self._room + 1]
        weights = [ends[at] - start for at, start in enumerate(starts)]
        weights.append(WORDS - sum(weights))
        drawn = self._chosen(len(weights))
        self._mass, self._out_of = self._mass * weights[drawn], self._out_of * WORDS
        self._full = drawn > self._room
        return drawn

    @property
    def weight(self) -> int:
        """Of all orders of the cells."""
        orders = factorial(len(self._cells))
        for count in Counter(self._cells).values():
            orders //= factorial(count)
        return self._mass * orders

    @property
    def total(self) -> int:
        """See ``weight``."""
        return self._out_of

    def after(self) -> list[int] | None:
        """The next plan; None: this was the last."""
        plan = self._plan[: self._at]
        while plan:
            if plan[-1] + 1 < self._options[len(plan) - 1]:
                return [*plan[:-1], plan[-1] + 1]
            plan.pop()
        return None

    def _chosen(self, options: int) -> int:
        if self._at == len(self._plan):
            self._plan.append(0)
        found = self._plan[self._at]
        self._at += 1
        self._options.append(options)
        return found


def choose_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device's draws ask ``Choices`` instead of bytes."""

    def number(sampler: SmallSampler, entropy: Entropy) -> int:
        return cast(Choices, entropy).number(sampler._first, sampler._boundaries)

    monkeypatch.setattr(SmallSampler, "draw", number)
    monkeypatch.setattr(events, "below", lambda bound, own: own.below(bound))
    monkeypatch.setattr(bundling, "below", lambda bound, _: bound - 1)


def bundles(made: Several, value: int) -> Law:
    """What one device with this ``value`` sends: how often it sends each cell's message."""
    room, found = made.messages - made.fewest, defaultdict[int, Counter[View]](Counter)
    plan: list[int] | None = []
    while plan is not None:
        choices = Choices(plan, room)
        sent = Counter(int.from_bytes(one, "big") for one in made.randomize_one(value, choices))
        cells = range(cells_of(made))
        assert set(sent) <= set(cells)
        found[choices.total][tuple(sent[cell] for cell in cells)] += choices.weight
        plan = choices.after()
    total = lcm(*found)
    masses = Counter[View]()
    for each, counted in found.items():
        for view, weight in counted.items():
            masses[view] += weight * (total // each)
    assert sum(masses.values()) == total
    return Law(dict(masses), total)


def cells_of(made: Several) -> int:
    """How many different messages there are."""
    return cast(int, made.law.cells if hasattr(made, "law") else made.noise.cells)  # type: ignore[attr-defined]


def added(one: Law, other: Law) -> Law:
    """The sum of two independent views."""
    out: dict[View, int] = defaultdict(int)
    for a, x in one.weights.items():
        for b, y in other.weights.items():
            out[tuple(map(int.__add__, a, b))] += x * y
    return Law(dict(out), one.total * other.total)


def batches(
    made: Several, answers: Iterable[int], honest: int, hostile: View | None = None
) -> Iterator[tuple[Law, Law]]:
    """All pairs of batches of ``honest`` devices that differ in the answer of one: every dataset of
    the others, every ordered pair of answers. ``hostile``: messages of devices that lie.
    """
    sent = {value: bundles(made, value) for value in answers}
    alone = {value: min(law.weights, key=sum) for value, law in sent.items()}
    one = moved(sent[0], alone[0], -1)
    # whatever is answered, the rest of a bundle is drawn alike: so it is added up once
    assert all(moved(law, alone[value], -1) == one for value, law in sent.items())
    noise = reduce(added, [one] * honest)
    if hostile is not None:
        noise = moved(noise, hostile)
    for others in combinations_with_replacement(sent, honest - 1):
        base = reduce(moved, (alone[other] for other in others), noise)
        views = {value: moved(base, alone[value]) for value in sent}
        for x, other_x in permutations(sent, 2):
            yield views[x], views[other_x]


def moved(law: Law, by: View, times: int = 1) -> Law:
    """The same with so many more messages in each cell."""
    step = [times * each for each in by]
    return Law({tuple(map(int.__add__, a, step)): x for a, x in law.weights.items()}, law.total)


def worst_curve(pairs: Iterable[tuple[Law, Law]]) -> Callable[[float], float]:
    """delta(epsilon) of the worst of them, to some 1e-15, by their classes of one ratio."""
    arrays = []
    for p, q in pairs:
        outcomes = list(p.weights)
        own = np.array([p.weights[one] / p.total for one in outcomes])
        other = np.array([q.weights.get(one, 0) / q.total for one in outcomes])
        arrays.append((own, other))

    def at(epsilon: float) -> float:
        e = float(np.exp(epsilon))
        return max(float(np.maximum(own - e * other, 0.0).sum()) for own, other in arrays)

    return at
