"""Whole batches as the code of devices makes them, bundle by bundle, against the accounts of
``dummies``, ``ranges``, ``marginals``, ``blocks`` and discoveries: every way that a device's draws
can fall, every dataset of the others, every ordered pair of answers, "no answer" among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

import pytest

from shoal.accounting.composition.compose import composed_curve
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.messages import epsilon_interval
from shoal.accounting.several_messages.noise import NoiseProtocol
from shoal.accounting.several_messages.noise_losses import noise_losses
from shoal.accounting.several_messages.of_mechanism import protocol_of
from shoal.accounting.several_messages.randomized_truth import RandomizedTruth
from shoal.arrays import NDArray, np
from shoal.domain import AnswerRecord, Categories, Places, Value
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.maps.block_squares import BlockGrid
from shoal.mechanisms.maps.blocks import MapBlocks
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.levels import level_of
from shoal.mechanisms.several.marginals import AllMarginals
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.ranges import Ranges
from shoal.mechanisms.several.tree import CellTree
from shoal.questions.discovery import Discovery, DiscoveryLevel
from shoal.questions.record import Attribute
from tests.sizes import size
from tests.unit.accounting.several_messages.devices import all_randomized, divergence_of
from tests.unit.accounting.several_messages.real_bundles import (
    View,
    batches,
    bundles,
    choose_everything,
    worst_curve,
)

EPSILONS = (0.0, 0.3, 1.0, 2.0, 4.0)
DELTA = 1e-6


@pytest.fixture(autouse=True)
def _every_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    choose_everything(monkeypatch)


def noise(cells: int, shares: int, slots: int, dummies: float, truths: int = 1) -> NoiseLaw:
    return NoiseLaw(Truth.CELL, cells, shares, slots, dummies=Fraction(dummies), truths=truths)


def ranges(shares: int, slots: int, dummies: float) -> Ranges:
    """Two cells in one block, and "no answer" in another."""
    domain = Categories(("young", "old"), (0, 40))
    return Ranges(domain, CellTree(3, 2, 2), noise(5, shares, slots, dummies, 2))


def marginals(shares: int, slots: int, dummies: float) -> AllMarginals:
    """Two tables of one attribute each, with "no answer"."""
    answers = Attribute("a", Categories(("x", "y"))), Attribute("b", Categories(("u", "v")))
    record = AnswerRecord(answers, ((0,), (1,)), together=True)
    return AllMarginals(record, noise(6, shares, slots, dummies, 2))


def blocks(columns: int, shares: int, slots: int, dummies: float) -> MapBlocks:
    """A row of cells in blocks of two, and elsewhere."""
    grid = BlockGrid(1, columns, 2)
    places = Places(0, 0, 1_000_000, 3_000_000, 1, columns)
    return MapBlocks(places, grid, noise(grid.nodes, shares, slots, dummies, 2))


def histogram(shares: int, slots: int, dummies: float) -> BundledHistogram:
    return BundledHistogram(("a", "b", "none"), noise(3, shares, slots, dummies))


def answers_of(made: Several) -> range:
    return range(made.answers if isinstance(made, Ranges | AllMarginals | MapBlocks) else 3)


# what a batch is made by, its honest devices, and messages of devices that lie
CASES: dict[str, tuple[Several, int, View | None]] = {
    "a hierarchy": (ranges(1, 14, 2.0), 1, None),
    "a hierarchy of two": (ranges(2, 9, 1.5), 2, None),
    "more honest devices than shares": (ranges(2, 6, 1.0), 3, None),
    "a device that lies, in one table alone": (ranges(1, 12, 1.0), 1, (7, 0, 0, 0, 0)),
    "two tables": (marginals(1, 11, 1.0), 1, None),
    "two tables of two": (marginals(2, 5, 0.75), 2, None),
    "a map in blocks": (blocks(2, 1, 14, 1.5), 1, None),
    "an uneven map in blocks": (blocks(3, 2, 5, 0.75), 2, None),
    "a histogram": (histogram(2, 12, 4.0), 2, None),
}


@pytest.mark.parametrize("name", CASES)
def test_an_account_is_never_below_what_devices_send(name: str) -> None:
    """Also where the cap is met often. Lower curves are below the truth. Planted: one table fewer
    in ``tables`` -> the tables fail; two slots more in ``full_submissions`` -> fails.
    """
    made, honest, hostile = CASES[name]
    truth = worst_curve(batches(made, answers_of(made), honest, hostile))
    protocol = protocol_of(made)
    upper = protocol.curve(honest, Direction.UPPER, DELTA)
    lower = protocol.curve(honest, Direction.LOWER, DELTA)
    for epsilon in EPSILONS:
        assert lower(epsilon) <= truth(epsilon) * (1 + 1e-12)
        assert truth(epsilon) <= upper(epsilon) * (1 + 1e-12)


def test_fewer_honest_devices_than_shares_prove_nothing() -> None:
    """One of two: the truth is above what two would prove. Planted: no check of ``n_honest`` in
    ``NoiseProtocol.curve`` -> fails.
    """
    made = histogram(2, 16, 4.0)
    truth = worst_curve(batches(made, answers_of(made), 1))
    protocol = protocol_of(made)
    assert epsilon_interval(protocol, 1, 0.9) is None
    enough = protocol.curve(2, Direction.UPPER, DELTA)
    assert any(truth(epsilon) > enough(epsilon) for epsilon in EPSILONS)


class TwoLetters:
    """Words of "a" and "b", and their end: the least alphabet."""

    symbols, end, most_first, most_length, another = 3, 2, 2, 4, "another"

    def spelled(self, value: Value, longest: int) -> bytes:
        if not isinstance(value, str) or not value:
            return b""
        letters = bytes("ab".index(one) for one in value) + b"\x02"
        return letters[:longest]

    def is_spelling(self, symbols: bytes) -> bool:
        return b"\x02" not in symbols[:-1] and symbols[:1] != b"\x02"

    def shown(self, symbols: bytes) -> str:
        return "".join("ab."[one] for one in symbols)

    def accepted(self, longest: int) -> str:
        return "words"


ASKED = Discovery(1, 2, 1, alphabet=TwoLetters())
# "b" is known, and left out: whoever holds it answers "another"
KNOWN = Discovery(1, 2, 1, known=(b"\x01\x02",), alphabet=TwoLetters())
WORDS = ("", "a", "b", "aa", "ab", "ba", "bb")
Pair: TypeAlias = "tuple[NDArray[np.float64], NDArray[np.float64]]"


def levels_after(discovery: Discovery) -> list[DiscoveryLevel]:
    """What a window may ask when level 0 was asked in the one before: that again, or a next one."""
    after = [discovery.level(1, (one,)) for one in (b"\x00", b"\x01")]
    return [discovery.level(0), *after]


class Levels:
    """What one device sends at each level, made once. ``law``: of the largest one."""

    def __init__(self, discovery: Discovery, slots: int, dummies: float) -> None:
        cells = discovery.size
        labels = tuple(map(str, range(cells)))
        self.made = BundledHistogram(labels, noise(cells, 1, slots, dummies))
        self._sent: dict[tuple[DiscoveryLevel, int], dict[View, float]] = {}

    def sent(self, level: DiscoveryLevel, word: str) -> dict[View, float]:
        """The law of one device's messages."""
        at = level, level.encode(word)
        if at not in self._sent:
            law = bundles(level_of(self.made, level), at[1])
            self._sent[at] = {view: mass / law.total for view, mass in law.weights.items()}
        return self._sent[at]

    def pair(self, level: DiscoveryLevel, word: str, other: str) -> Pair:
        """P and Q of all views of one window, of one device."""
        p, q = self.sent(level, word), self.sent(level, other)
        views = sorted(p.keys() | q.keys())
        return (
            np.array([p.get(view, 0.0) for view in views]),
            np.array([q.get(view, 0.0) for view in views]),
        )


def shown_after(first: Pair, choices: Sequence[Pair], e: float) -> float:
    """sum of (P - e Q)_+ over two windows, where whoever has seen the first one chooses what the
    second asks: of every view the choice that shows most.
    """
    a, b = first[0], e * first[1]
    most = np.zeros(len(a))
    with np.errstate(divide="ignore", invalid="ignore"):
        limits = np.where(a > 0.0, b / a, np.inf)
        for p, q in choices:
            # sum (a p - b q)_+ for all (a, b) at once, by the order of p / q
            ratios = np.where(q > 0.0, p / q, np.inf)
            order = np.argsort(-ratios)
            counts = np.searchsorted(-ratios[order], -limits)
            above = (np.append(0.0, np.cumsum(each[order]))[counts] for each in (p, q))
            of_p, of_q = above
            most = np.maximum(most, a * of_p - b * of_q)
    return float(most.sum())


@pytest.mark.parametrize("discovery", [KNOWN, ASKED][: size(1, 2)])
def test_levels_compose_whatever_is_asked_next(discovery: Discovery) -> None:
    """Two windows, the second one asked by who has seen the first: every pair of words, those that
    no level follows, a known one and none among them. Planted: one window's law for both ->
    fails.
    """
    levels = Levels(discovery, 14, 1.75)
    law = noise_losses(levels.made.noise, 1, 0.6)
    assert law is not None
    both = composed_curve([(law, 2)], 0.6)
    pairs = [(w, v) for w in WORDS for v in WORDS if w != v]
    for epsilon in (0.0, 0.5, 2.0):
        truth = 0.0
        for word, other in pairs:
            first = levels.pair(discovery.level(0), word, other)
            choices = [levels.pair(each, word, other) for each in levels_after(discovery)]
            truth = max(truth, shown_after(first, choices, math.exp(epsilon)))
        assert 0.6 * both(epsilon) <= truth <= both(epsilon) * (1 + 1e-9)


def test_a_smaller_level_keeps_what_the_largest_promises() -> None:
    """Where true messages are drawn too: levels share one integer, so a smaller one draws a uniform
    cell as often, of fewer cells. Others draw theirs, as in the batch. Planted: one that is drawn
    half as often at the smaller level -> fails.
    """
    largest, small, uniform = 7, 3, (1 << 64) // 5
    most, own = (
        KaryResponse(tuple(map(str, range(k))), uniform).privacy() for k in (largest, small)
    )
    for devices, law in ((1, noise(largest, 1, 5, 0.125)), (2, noise(largest, 2, 9, 1.5))):
        protocol = RandomizedTruth(NoiseProtocol(law), most)
        certified = protocol.curve(devices, Direction.UPPER, DELTA)
        truth = list(all_randomized(replace(law, cells=small), own, devices))
        for epsilon in EPSILONS[:4]:
            shown = max(divergence_of(p, q, math.exp(epsilon)) for p, q in truth)
            assert shown <= certified(epsilon) * (1 + 1e-12)


def test_a_fresh_device_shows_one_window_whatever_is_asked() -> None:
    """Two devices, two windows, each device in one that it draws; the second window asks what who
    has seen the first one wants. Who answered where is not told, how many is. Planted: a device in
    both windows -> fails.
    """
    levels = Levels(ASKED, 9, 1.0)
    single = protocol_of(levels.made).curve(1, Direction.UPPER, DELTA)
    for epsilon in EPSILONS:
        truth = max(
            fresh_truth(levels, word, other, "ba", epsilon)
            for word, other in (("a", "bb"), ("", "ab"), ("aa", "ab"), ("b", "a"))
        )
        assert truth <= single(epsilon) * (1 + 1e-9)


def fresh_truth(levels: Levels, word: str, other: str, second: str, epsilon: float) -> float:
    """sum (P - e Q)_+ over numbers of devices and counts of two windows; the other device holds
    ``second``.
    """
    e, total, zero = math.exp(epsilon), 0.0, ASKED.level(0)
    # both in window 0, or both in window 1: that window alone tells, its other device is a constant
    for choices in ([zero], levels_after(ASKED)):
        shown = [levels.pair(each, word, other) for each in choices]
        total += max(float(np.maximum(p - e * q, 0.0).sum()) for p, q in shown) / 4.0
    # one in each: the device in question is in the first half of the time, and nobody sees when
    first = [levels.sent(zero, each) for each in (word, other, second)]
    curves = []
    for level in levels_after(ASKED):
        after = [levels.sent(level, each) for each in (word, other, second)]
        views = sorted(after[0].keys() | after[1].keys() | after[2].keys())
        curves.append([np.array([law.get(view, 0.0) for view in views]) for law in after])
    for view in first[0].keys() | first[1].keys() | first[2].keys():
        mine, others, known = (law.get(view, 0.0) for law in first)
        total += (
            max(
                float(np.maximum(mine * s + known * p - e * (others * s + known * q), 0.0).sum())
                for p, q, s in curves
            )
            / 4.0
        )
    return total
