"""A shuffler that reads the release: against all that devices can send, sizes device by device, at
small sizes; against exact laws of its parts; and against drawn numbers of events at a size of use.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting.composition.compose import compose
from shoal.accounting.composition.losses import hockey
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.charges import full_submissions
from shoal.accounting.several_messages.messages import certify_messages
from shoal.accounting.several_messages.noise import NoiseProtocol
from shoal.accounting.several_messages.noise_design import design_cancelling
from shoal.accounting.several_messages.noise_losses import noise_losses
from shoal.accounting.several_messages.one_more import Shown, divergence
from shoal.accounting.several_messages.onlooker import (
    _difference,
    _found,
    _rates,
    fewest_events,
    onlooker,
    onlooker_delta,
)
from shoal.accounting.several_messages.randomized_truth import RandomizedTruth
from shoal.accounting.several_messages.signed_count import CountShown, count_divergence
from shoal.mechanisms.several.noise_law import RATE_BITS, NoiseKind, NoiseLaw, Truth
from shoal.privacy import KaryLaw
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.several_messages.onlookers import Seen, apart_at, pairs_seen

DELTA = 1e-2
EPSILONS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)
Pmf = NDArray[np.float64]

COUNT = NoiseLaw(Truth.SIGN, 1, 1, 1800, HALF, 3, Fraction(4), 1, empties=Fraction(600), widest=3)
CELLS = NoiseLaw(Truth.CELL, 2, 1, 500, HALF, 2, Fraction(4), 1, empties=Fraction(200), widest=2)
BARE = NoiseLaw(Truth.SIGN, 1, 2, 44, HALF, 12, Fraction(4), 2)
FEW = replace(BARE, slots=60, empties=Fraction(1), widest=2)
# law, devices, how far the differences of one device are followed
LAWS = {
    "a count": (COUNT, 1, 14),
    "empties of few sizes": (
        replace(COUNT, slots=140, longest=8, largest=2, empties=Fraction(40), widest=2),
        1,
        30,
    ),
    "two devices": (
        replace(COUNT, shares=2, slots=90, longest=5, empties=Fraction(60), widest=2),
        2,
        14,
    ),
    "three devices": (replace(COUNT, shares=3, slots=24, empties=Fraction(30), widest=1), 3, 8),
    "more devices than shares": (
        replace(COUNT, slots=70, empties=Fraction(30), widest=2, longest=4),
        2,
        10,
    ),
    "a cap that is often met": (replace(COUNT, slots=36, empties=Fraction(20), widest=2), 1, 14),
    "next to no empties": (replace(COUNT, slots=30, empties=Fraction(1, 1 << 32)), 1, 14),
    "a histogram": (CELLS, 1, 9),
    "a histogram of two devices": (
        replace(CELLS, shares=2, slots=30, empties=Fraction(20), singles=QUARTER),
        2,
        4,
    ),
    "a histogram of three cells": (
        replace(CELLS, cells=3, slots=150, singles=QUARTER, empties=Fraction(80), widest=1),
        1,
        4,
    ),
}
FULL = {
    "a full count": (replace(BARE, full=True), 2, 24),
    "a full histogram": (
        NoiseLaw(Truth.CELL, 2, 2, 60, QUARTER, 6, Fraction(3), 2, full=True),
        2,
        6,
    ),
}


def bound_at(law: NoiseLaw, epsilon: float) -> float:
    """What is promised of the shuffler alone, the charge of the cap included."""
    charge = full_submissions(law, law.shares, 1e-12)
    return onlooker_delta(onlooker(law, DELTA), epsilon) + (1.0 + math.exp(epsilon)) * charge


@pytest.mark.parametrize("name", LAWS)
def test_no_view_is_above_the_bound(name: str) -> None:
    """All sizes and releases, by the integers that are drawn from, cap and all; every ordered pair
    of answers. (Differences that are left out have a mass below 1e-3, and are counted against it.)

    Planted: the law of a count moved by 1 in place of 2 -> fails; each layer with the weight of the
    next -> fails; K_j at their means -> fails; twice the p_j -> fails; a curve without ``beside``
    -> fails.
    """
    law, devices, reach = LAWS[name]
    curve = NoiseProtocol(law).curve(devices, Direction.UPPER, DELTA)
    for p, q in pairs_seen(law, devices, reach):
        assert 1.0 - 1e-3 < float(p.sum()) < 1.0 + 1e-9
        for epsilon in EPSILONS:
            bound = bound_at(law, epsilon)
            assert apart_at(p, q, epsilon) <= bound
            assert min(1.0, bound) <= curve(epsilon) * (1 + 1e-9)


@for_each("name, most", [("a count", 1.5), ("a histogram", 2.1)])
def test_the_bound_is_near_the_truth(name: str, most: float) -> None:
    """Up to epsilon 1, where layers of few events tell little. Planted: half the p_j -> fails."""
    law, devices, reach = LAWS[name]
    for p, q in pairs_seen(law, devices, reach):
        for epsilon in (0.0, 0.5, 1.0):
            assert bound_at(law, epsilon) <= most * apart_at(p, q, epsilon)


def test_without_empties_the_bound_fails() -> None:
    """Two devices: the curve that does not count sizes is below what sizes and the release tell, of
    a law without empties and of one with few. The one that counts them is not.

    Planted: a curve without ``beside`` -> fails; ``open`` left out of ``onlooker_delta`` -> fails.
    """
    for law in (BARE, FEW):
        bare = law.bare
        without, counted = (
            NoiseProtocol(each).curve(2, Direction.UPPER, DELTA)(1.5) for each in (bare, law)
        )
        truth = max(apart_at(p, q, 1.5) for p, q in pairs_seen(law, 2, 24))
        assert truth > 1.1 * without
        assert law is BARE or truth <= counted


@pytest.mark.parametrize("name", FULL)
def test_full_submissions_tell_no_more_than_the_release(name: str) -> None:
    """Every device sends ``slots`` messages: the analyzer's curve holds of the shuffler too.

    Planted: submissions that are not filled up -> both views are above, fails.
    """
    law, devices, reach = FULL[name]
    curve = NoiseProtocol(law).curve(devices, Direction.UPPER, DELTA)
    for p, q in pairs_seen(law, devices, reach):
        assert p.shape[:devices] == (1,) * devices
        for epsilon in EPSILONS:
            assert apart_at(p, q, epsilon) <= curve(epsilon)


@for_each("name, e0", [("a count", 2.0), ("two devices", 1.0), ("a histogram of three cells", 3.0)])
def test_a_randomized_truth(name: str, e0: float) -> None:
    """What others drew given away, sizes and the release seen: the view is a mixture of the views
    of all drawn answers. Planted: the share squared in ``curve`` -> fails.
    """
    law, devices, reach = LAWS[name]
    k = 2 if law.truth is Truth.SIGN else law.cells
    other = 1000
    truth = KaryLaw(k, round(other * math.exp(e0)), other)
    protocol = RandomizedTruth(NoiseProtocol(law), truth)
    curve = protocol.curve(devices, Direction.UPPER, DELTA)
    answers = list[Seen]()
    for p, q in pairs_seen(law, devices, reach):
        for each in (p, q):
            if not any(each is answer for answer in answers):
                answers.append(each)
    assert len(answers) == k
    whole = np.sum(answers, axis=0)
    drawn = [(truth.same * one + truth.other * (whole - one)) / truth.total for one in answers]
    for x, y in product(range(k), repeat=2):
        for epsilon in (0.0, 0.3, 0.6, 0.9):
            assert x == y or apart_at(drawn[x], drawn[y], epsilon) <= curve(epsilon)


def exact_difference(events: list[int], chances: list[Fraction]) -> dict[int, Fraction]:
    """The law of D given numbers of events of size 1, 2, ...: one event after the other."""
    found = {0: Fraction(1)}
    for at, (count, chance) in enumerate(zip(events, chances, strict=True), 1):
        for _ in range(count):
            further = defaultdict[int, Fraction](Fraction)
            for place, mass in found.items():
                further[place] += mass * (1 - 2 * chance)
                for move in (at, -at):
                    further[place + move] += mass * chance
            found = dict(further)
    return found


def exact_divergence(truth: Truth, law: dict[int, Fraction], e: Fraction) -> Fraction:
    """Of both directions the larger one, by all outcomes."""

    def mass(at: int) -> Fraction:
        return law.get(at, Fraction(0))

    reach = range(min(law) - 1, max(law) + 2)
    if truth is Truth.SIGN:
        pairs = [(mass(d - 1), mass(d + 1)) for d in reach]
    else:
        pairs = [
            (mass(a - 1) * mass(b), mass(a) * mass(b - 1)) for a, b in product(reach, repeat=2)
        ]
    zero = Fraction(0)
    return max(sum((max(zero, x - e * y) for x, y in each), zero) for each in both_ways(pairs))


def both_ways(pairs: list[tuple[Fraction, Fraction]]) -> Iterator[list[tuple[Fraction, Fraction]]]:
    yield pairs
    yield [(q, p) for p, q in pairs]


# short as fractions too
GROWTHS = [Fraction(numerator, 8) for numerator in (8, 13, 22, 36, 60, 160)]
EVENTS = {
    "of one size": ([5], [5 / 16]),
    "of two sizes": ([4, 2], [3 / 8, 3 / 16]),
    "of three sizes": ([3, 2, 1], [1 / 4, 7 / 16, 1 / 8]),
    "with holes": ([1, 0, 0, 1], [5 / 16, 1 / 4, 1 / 8, 1 / 4]),
    "that are hardly ever decoys": ([4, 1], [1 / 2 - 2**-12, 1 / 2 - 2**-16]),
    "hardly ever singles": ([9, 2], [2**-10, 2**-9]),
}


@for_each("name", list(EVENTS))
def test_the_difference_given_its_events(name: str) -> None:
    """In fractions: the law of D, the part that a tail leaves out, and the divergence of both
    kinds of answers in both directions.

    Planted, each fails: one sign alone; ``beyond`` = 0; ``left`` = 0 in ``_pair``; ``alone`` = 0 in
    ``_count``, and a move of 1 there.
    """
    events, floats = EVENTS[name]
    chances = np.array(floats)
    exact = exact_difference(events, [Fraction(chance) for chance in floats])
    divergences = {
        (truth, e): exact_divergence(truth, exact, e) for truth, e in product(Truth, GROWTHS)
    }
    for tail in (1e-300, 1e-3, 0.05):
        masses, lost, error = _difference(events, chances, tail)
        middle, whole = len(masses) // 2, Fraction(0)
        assert error < 1e-11
        for at, found in enumerate(masses.tolist()):
            true = exact.get(at - middle, Fraction(0))
            assert found <= true * Fraction(1 + error)
            whole += Fraction(found)
        assert 1 - whole <= Fraction(lost) + Fraction(error)
        assert lost <= tail + 1e-279
        for (truth, e), true in divergences.items():
            shown = _found(truth, events, chances, tail)
            value = divergence_of_shown(shown, math.log(e))
            assert true <= Fraction(value)
            if tail < 1e-200 and "holes" not in name:
                # where one of both laws has nothing, the other counts whole
                assert shown.lost <= float(exact[max(exact)]) * (1 + 1e-9) + 1e-279
                assert value <= float(true) * (1 + 2e-9) + 2.0 * shown.lost


def divergence_of_shown(found: Shown | CountShown, epsilon: float) -> float:
    if isinstance(found, CountShown):
        return count_divergence(found, epsilon, Direction.UPPER)
    return divergence(found, epsilon, Direction.UPPER)


@for_each(
    "law",
    [
        COUNT,
        replace(CELLS, cells=7),
        replace(COUNT, longest=9, largest=4, widest=5),
        replace(COUNT, empties=Fraction(1, 1 << 32), floods=Fraction(1, 1 << 32)),
        NoiseLaw(
            Truth.CELL,
            3,
            10**5,
            9,
            Fraction(7, 9),
            20,
            Fraction(40),
            4,
            empties=Fraction(9),
            widest=4,
        ),
    ],
)
def test_events_that_are_counted(law: NoiseLaw) -> None:
    """Of the numbers that all devices draw: singles of the cell looked at, and as decoys the floods
    of all cells and the empties, of two cells half of them. Never above, and hardly below.

    Planted, each fails: decoys not halved for two cells; other cells' singles counted as decoys; a
    flood of j counted as j messages; floods of one cell alone; singles of one sign alone; ``_FEW``
    = 0.
    """
    singles, means = _rates(law)
    assert len(singles) == len(means) == law.longest
    looked = 2 if law.truth is Truth.CELL else 1
    kinds = defaultdict[tuple[NoiseKind, int], Fraction](Fraction)
    for rate in law.rates():
        drawn = Fraction(rate.weight * law.shares, 1 << RATE_BITS)
        kinds[rate.kind, rate.messages] += drawn
    for at, (single, mean) in enumerate(zip(singles.tolist(), means.tolist(), strict=True), 1):
        chance = Fraction(single / mean)  # as a float
        plus, minus = kinds[NoiseKind.PLUS, at], kinds[NoiseKind.MINUS, at]
        decoys = law.cells * (kinds[NoiseKind.FLOOD, at] + kinds[NoiseKind.EMPTY, at]) / looked
        counted = chance * Fraction(mean), (1 - 2 * chance) * Fraction(mean)
        assert 0 <= counted[0] <= min(plus, minus) <= counted[0] * (1 + Fraction(1, 10**10))
        assert 0 <= counted[1] <= decoys
        few = decoys < Fraction(1, 500) * plus
        assert counted[1] == 0 or not few
        assert few or decoys <= counted[1] * (1 + Fraction(1, 10**8))


def drawn_events(law: NoiseLaw, rng: np.random.Generator) -> NDArray[np.int64]:
    """int64[cells looked at, longest + 1]: events of a batch by size, a coin for every decoy."""
    looked = 2 if law.truth is Truth.CELL else 1
    events = np.zeros((looked, law.longest + 1), dtype=np.int64)
    for rate in law.rates():
        mean = float(Fraction(rate.weight * law.shares, 1 << RATE_BITS))
        if rate.messages > law.longest:
            continue
        if rate.kind in (NoiseKind.PLUS, NoiseKind.MINUS):
            events[:, rate.size] += rng.poisson(mean, looked)
        else:
            decoys = int(rng.poisson(mean * law.cells))
            heads = int(rng.binomial(decoys, 1.0 / looked))
            events[:, rate.messages] += [heads, decoys - heads][:looked]
    return events


def difference_by_waves(law: NoiseLaw, events: NDArray[np.int64], room: int = 512) -> Pmf:
    """float64[room] of D around the middle, given its events: the characteristic function, a factor
    for each event, and back.
    """
    angles = 2.0 * math.pi * np.arange(room) / room
    waves = np.ones(room)
    looked = 2 if law.truth is Truth.CELL else 1
    for at in range(1, law.longest + 1):
        single = float(law.singles) ** at / at
        decoys = law.empties / at**2 if at <= law.widest else Fraction(0)
        if at % 2 == 0 and at <= 2 * law.largest:
            decoys += law.cells * law.floods / law.largest
        chance = single / (2.0 * single + float(decoys) / looked)
        waves *= (1.0 - 2.0 * chance + 2.0 * chance * np.cos(at * angles)) ** events[at]
    return np.maximum(np.fft.fftshift(np.fft.ifft(waves).real), 0.0)


@for_each("truth, cells", [(Truth.CELL, 16), (Truth.SIGN, 1)])
def test_the_mean_over_drawn_events(truth: Truth, cells: int) -> None:
    """At (1, 1e-6) and 100,000 devices: the mean divergence over drawn numbers of events, at an
    epsilon where every draw tells (at 1 itself only very rare ones do). The bound is above by 14 to
    17 %; a mean of 100 draws has a standard error of 0.15 %, so a false alarm is out of question.

    Planted: each layer with the weight of the next -> fails; of the one before -> too far above,
    fails; half the p_j -> too far above, fails; twice -> fails; K_j at their means -> too near,
    fails.
    """
    law = design_cancelling(truth, cells, 100_000, 1.0, 1e-6)
    assert law.empties
    bound, e = onlooker_delta(onlooker(law, 1e-6), 0.5), math.exp(0.5)
    rng, found = np.random.default_rng(6), list[float]()
    for _ in range(size(100, 3000)):
        laws = [difference_by_waves(law, events) for events in drawn_events(law, rng)]
        if truth is Truth.SIGN:
            p, q = np.roll(laws[0], 1), np.roll(laws[0], -1)
        else:
            one, other = (each[156:356] for each in laws)
            assert min(one.sum(), other.sum()) > 1.0 - 1e-9
            p = np.outer(np.roll(one, 1), other)
            q = np.outer(one, np.roll(other, 1))
        found.append(float(np.maximum(p - e * q, 0.0).sum()))
    mean = float(np.mean(found))
    assert float(np.std(found)) < 0.02 * mean
    assert mean * 1.08 < bound < mean * 1.25


def differences(chance: float, most: int, reach: int) -> Pmf:
    """float64[most + 1, 2 reach + 1]: of D given 0, 1, 2, ... events of size 1, one by one."""
    out = np.zeros((most + 1, 2 * reach + 1))
    out[0, reach] = 1.0
    for at in range(most):
        out[at + 1] = out[at] * (1.0 - 2.0 * chance)
        out[at + 1, 1:] += chance * out[at, :-1]
        out[at + 1, :-1] += chance * out[at, 1:]
    return out


@for_each("truth, empties, epsilons", [(Truth.SIGN, 60, (1, 3, 5, 6)), (Truth.CELL, 80, (2, 4))])
def test_the_mean_over_all_numbers_of_events(
    truth: Truth, empties: int, epsilons: tuple[int, ...]
) -> None:
    """Of one size: every number of events of both cells, down to means that very rare ones make, of
    6e-8 for a count and 1e-4 for two cells.

    Planted: K_j at their means -> fails; a layer's ``chance`` a hundred times the next weight ->
    fails.
    """
    cells = 1 if truth is Truth.SIGN else 2
    law = NoiseLaw(
        truth, cells, 1, 500, HALF, 1, Fraction(1), 1, empties=Fraction(empties), widest=1
    )
    seen, mean, most = onlooker(law, 1e-6), 1.0 + empties / cells, 150
    numbers = np.array([math.lgamma(at + 1.0) for at in range(most + 1)])
    chances = np.exp(np.arange(most + 1) * math.log(mean) - mean - numbers)
    given = differences(0.5 / mean, most, 20)
    for epsilon in epsilons:
        total, e = 0.0, math.exp(epsilon)
        if truth is Truth.SIGN:
            p, q = np.pad(given, [(0, 0), (2, 0)]), np.pad(given, [(0, 0), (0, 2)])
            total = float(chances @ np.maximum(p - e * q, 0.0).sum(axis=1))
        else:
            more, less = np.pad(given, [(0, 0), (1, 0)]), np.pad(given, [(0, 0), (0, 1)])
            for chance, one, other in zip(chances.tolist(), more, less, strict=True):
                p, q = one[:, None] * less[:, None, :], other[:, None] * more[:, None, :]
                total += chance * float(chances @ np.maximum(p - e * q, 0.0).sum(axis=(1, 2)))
        assert 0.0 < total <= onlooker_delta(seen, epsilon)


@for_each("mean, sizes, cells", [(60.0, 30, 2), (2000.0, 100, 2), (9.0, 5, 1), (0.5, 3, 2)])
def test_so_few_events_are_rare(mean: float, sizes: int, cells: int) -> None:
    """The probability that some number is below, exactly, and how far the least could be raised.

    Planted: no union over sizes -> fails; ``most`` not looked at -> fails. (The union over
    two cells alone is within Chernoff's slack.)
    """
    for chance in (0.1, 1e-3, 1e-7):
        (least, *others) = fewest_events(np.full(sizes, mean), chance, cells)
        assert {least} >= {*others}
        at = np.arange(4000)
        pmf = at * math.log(mean) - mean - np.array([math.lgamma(each + 1.0) for each in at])
        below = float(np.exp(pmf[:least]).sum())
        assert -math.expm1(sizes * cells * math.log1p(-below)) <= chance
        assert fewest_events(np.full(2, mean), chance, cells, [0, 10**6])[0] == 0
        assert least >= mean - 2.0 * math.sqrt(2.0 * mean * math.log(sizes * cells / chance)) - 3


@for_each("name", list(EVENTS))
def test_an_event_more_never_tells_more(name: str) -> None:
    """What layers stand on: at any e, below 1 too, in fractions."""
    events, floats = EVENTS[name]
    chances = [Fraction(chance) for chance in floats]
    fewer = exact_difference(events, chances)
    for at in range(len(events)):
        more = [count + (at == place) for place, count in enumerate(events)]
        law = exact_difference(more, chances)
        for truth, e in product(Truth, (Fraction(1, 3), Fraction(1), Fraction(7, 3))):
            assert exact_divergence(truth, law, e) <= exact_divergence(truth, fewer, e)


def test_next_to_no_empties_prove_nothing() -> None:
    """A law is made all the same, and promises nothing, however many releases: without a layer, and
    with one that leaves nearly everything open.

    Planted: no layers refused in ``mixed`` -> a ValueError, fails; no finite loss in ``cut_at`` ->
    refused, fails.
    """
    law = replace(COUNT, longest=12, slots=60, empties=Fraction(1, 1 << 32), widest=1)
    cells = replace(CELLS, longest=5, slots=100, floods=Fraction(1), empties=Fraction(20), widest=1)
    for each, layers in ((law, False), (cells, True)):
        assert bool(onlooker(each, 0.1).layers) is layers
        assert certify_messages(NoiseProtocol(each), 1, 0.1) is None
        found = noise_losses(each, 1, 0.1)
        assert found is not None
        assert compose([(found, 1)], 0.1).epsilon_upper == math.inf


@for_each(
    "law, devices, reach",
    [(FEW, 2, 24), *(LAWS[name] for name in ("a count", "two devices", "a histogram"))],
)
def test_the_law_of_losses_holds_the_view(law: NoiseLaw, devices: int, reach: int) -> None:
    """At any e, below 1 too, as laws are composed by all of them; and it is above the curve.

    Planted: ``larger`` left out -> fails; ``open`` left out -> fails. (The second layer left out
    fails in ``test_charges_are_in_the_law``.)
    """
    found = noise_losses(law, devices, DELTA)
    assert found is not None
    for epsilon in EPSILONS:
        assert onlooker_delta(onlooker(law, DELTA), epsilon) <= hockey(found, epsilon)
    for p, q in pairs_seen(law, devices, reach):
        for epsilon in (-3.0, -1.0, -0.3, *EPSILONS):
            assert apart_at(p, q, epsilon) <= hockey(found, epsilon)
