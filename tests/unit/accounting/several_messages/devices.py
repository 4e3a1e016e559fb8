"""What devices send, message by message: whole multisets, no formula of the accountant.

A view is a tuple (messages of each cell and sign, empty ones where a law hides its numbers, padding
of all submissions).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations_with_replacement, permutations, product
from operator import add

from shoal.mechanisms.several.noise_law import RATE_BITS, NoiseKind, NoiseLaw, Truth
from shoal.privacy import KaryLaw

View = tuple[int, ...]
Masses = Mapping[View, float]
Answers = Sequence[tuple[int, ...]]


def plus(view: View, other: View) -> View:
    return tuple(map(add, view, other))


def together(one: Masses, other: Masses) -> dict[View, float]:
    """The law of the sum of two independent views."""
    out: dict[View, float] = defaultdict(float)
    for a, x in one.items():
        for b, y in other.items():
            out[plus(a, b)] += x * y
    return dict(out)


def messages(law: NoiseLaw, cell: int, event: NoiseKind, size: int) -> View:
    """One event's messages: first the + of every cell, then the -, then empty ones."""
    out = [0] * (2 * law.cells + law.hidden)
    if event is NoiseKind.EMPTY:
        out[-1] = size
        return tuple(out)
    if event is not NoiseKind.MINUS:
        out[cell] = size
    if event is not NoiseKind.PLUS:
        out[law.cells + cell] = size
    return tuple(out)


def noise_of_one(law: NoiseLaw) -> dict[View, float]:
    """What one device adds, by the integers it draws from: Poisson numbers of all events; nothing
    where these have no room beside the true messages; filled up with empty ones if ``law.full``.
    """
    most = law.slots - law.truths
    nothing = (0,) * (2 * law.cells + law.hidden)
    found: dict[View, float] = {nothing: 1.0}
    for cell in range(law.cells):
        for rate in law.rates():
            mean = rate.weight / (1 << RATE_BITS)
            step = messages(law, cell, rate.kind, rate.size)
            events = {
                tuple(count * value for value in step): math.exp(-mean)
                * mean**count
                / math.factorial(count)
                for count in range(most // rate.messages + 1)
            }
            found = {
                view: mass for view, mass in together(found, events).items() if sum(view) <= most
            }
    found[nothing] += 1.0 - math.fsum(found.values())
    if law.full:
        return {(*view[:-1], most - sum(view)): mass for view, mass in found.items()}
    return found


def truth_of(law: NoiseLaw, value: int) -> View:
    """The true message of a value: a cell, or a bit."""
    if law.truth is Truth.SIGN:
        return messages(law, 0, NoiseKind.PLUS if value else NoiseKind.MINUS, 1)
    return messages(law, value, NoiseKind.PLUS, 1)


def values_of(law: NoiseLaw) -> range:
    return range(2 if law.truth is Truth.SIGN else law.cells)


def divergence_of(p: Masses, q: Masses, e: float) -> float:
    return math.fsum(max(0.0, mass - e * q.get(view, 0.0)) for view, mass in p.items())


def pairs_of_views(
    law: NoiseLaw, honest: int, known: int = 0, answers: Answers | None = None
) -> Iterator[tuple[Masses, Masses]]:
    """All pairs of views of ``honest`` devices and ``known`` others, which send true messages
    alone: every dataset of the others, every ordered pair of answers. Padding is counted.
    ``answers``: the cells of each answer, one of every table; without: an answer is a cell.
    """
    for views in views_of(law, honest, known, answers).values():
        for x, other_x in permutations(views, 2):
            yield views[x], views[other_x]


def views_of(
    law: NoiseLaw, honest: int, known: int = 0, answers: Answers | None = None
) -> dict[tuple[int, ...], dict[int, Masses]]:
    """The same views: for the sorted answers of the others, by that of the first device."""
    shifts = {value: truth_of(law, value) for value in values_of(law)}
    if answers is not None:
        shifts = {
            number: reduce(plus, (truth_of(law, cell) for cell in cells))
            for number, cells in enumerate(answers)
        }
    one = noise_of_one(law)
    noise: Masses = one
    for _ in range(honest - 1):
        noise = together(noise, one)
    room = (honest + known) * law.slots
    found = {}
    for others in combinations_with_replacement(shifts, honest + known - 1):
        views: dict[int, Masses] = {}
        for value in shifts:
            shift = reduce(plus, (shifts[other] for other in others), shifts[value])
            sent = {plus(view, shift): mass for view, mass in noise.items()}
            views[value] = {(*view, room - sum(view)): mass for view, mass in sent.items()}
        found[others] = views
    return found


def mixed(parts: Iterable[tuple[float, Masses]]) -> dict[View, float]:
    """The law of a view that is one of ``parts``, each with its probability."""
    out: dict[View, float] = defaultdict(float)
    for share, masses in parts:
        for view, mass in masses.items():
            out[view] += share * mass
    return dict(out)


def randomized(views: Mapping[int, Masses], truth: KaryLaw) -> dict[int, Masses]:
    """By answer, where the first device's true message is drawn from ``truth``."""
    return {
        x: mixed((chance_of(truth, x, y), masses) for y, masses in views.items()) for x in views
    }


def all_randomized(law: NoiseLaw, truth: KaryLaw, honest: int) -> Iterator[tuple[Masses, Masses]]:
    """All pairs of views of ``honest`` devices whose true messages are all drawn from ``truth``:
    every dataset of the others, every ordered pair of answers.
    """
    views = {others: randomized(each, truth) for others, each in views_of(law, honest).items()}
    values = values_of(law)
    for answers in combinations_with_replacement(values, honest - 1):
        whole = {
            x: mixed(
                (
                    math.prod(chance_of(truth, a, y) for a, y in zip(answers, drawn, strict=True)),
                    views[tuple(sorted(drawn))][x],
                )
                for drawn in product(values, repeat=honest - 1)
            )
            for x in values
        }
        for x, other_x in permutations(values, 2):
            yield whole[x], whole[other_x]


def chance_of(truth: KaryLaw, answer: int, drawn: int) -> float:
    return (truth.same if answer == drawn else truth.other) / truth.total
