"""The noise of one device, drawn exactly: its number of events, their kinds, sizes and cells."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from scipy import stats

from shoal.entropy import SeededEntropy
from shoal.mechanisms.noise.exact import ExactSampler, SmallSampler
from shoal.mechanisms.noise.skellam import Poisson
from shoal.mechanisms.several.bundling import bundle
from shoal.mechanisms.several.events import Events, below
from shoal.mechanisms.several.noise_law import NoiseKind, NoiseLaw, Truth
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.tapes import Poured, Tape


def word(number: int) -> bytes:
    return number.to_bytes(8, "little")


def cancelling(cells: int, shares: int, slots: int = 1_000) -> NoiseLaw:
    return NoiseLaw(
        Truth.CELL,
        cells,
        shares,
        slots,
        singles=Fraction(1, 2),
        longest=5,
        floods=Fraction(7, 3),
        largest=3,
    )


def among_empties(cells: int, shares: int) -> NoiseLaw:
    return replace(cancelling(cells, shares), empties=Fraction(11, 2), widest=4)


def dummies(cells: int, shares: int) -> NoiseLaw:
    return NoiseLaw(Truth.CELL, cells, shares, 1_000, dummies=Fraction(9, 2))


@for_each("bound", [1, 2, 3, 5, 8, 1_000, 1 << 64, (1 << 64) + 1, 3 << 70])
def test_a_number_below_a_bound_is_uniform(bound: int) -> None:
    """Every number of as many bits is kept once or drawn again: the lowest bits of whole words.
    Planted: a remainder in place of drawing again -> 0 for a word of ``bound``, fails.
    """
    bits = (bound - 1).bit_length()
    words = -(-bits // 64) or 1
    for number in {0, 1, bound // 2, bound - 1, bound, (1 << bits) - 1}:
        if number >> bits:
            continue
        drawn = number | (5 << bits if bits % 64 else 0)
        tape = Tape(drawn.to_bytes(8 * words, "little"), (0).to_bytes(8 * words, "little"))
        assert below(bound, tape) == (number if number < bound else 0)


@for_each(
    "law",
    [
        cancelling(3, 4),
        cancelling(2, 1),
        cancelling(1_000, 100_000),
        among_empties(3, 7),
        dummies(4, 9),
        dummies(2, 1),
    ],
)
def test_the_number_of_events_is_that_of_the_exact_sampler(law: NoiseLaw) -> None:
    """Also where a word meets a boundary, and where the next one does too. Planted: ``bisect_left``
    for a word that is a boundary -> one event less, fails.
    """
    rate = Poisson(law.event_rate)
    small, sampler = SmallSampler(rate), ExactSampler(rate)
    edges = sampler.boundaries.tolist()
    near = [edge + step for edge in edges for step in (-1, 0, 1)]
    words = [0, 1, *(number for number in near if 0 <= number < 1 << 64)]
    for first in words:
        for second in (0, 1 << 63, (1 << 64) - 1):
            chunks = [word(first), word(second), word(12_345)]
            ours, theirs = Tape(*chunks), Tape(*chunks)
            assert small.draw(ours) == int(sampler.draw(1, theirs)[0])
            assert ours.asked == theirs.asked


@for_each("law", [cancelling(3, 40), among_empties(3, 40), dummies(4, 60)])
def test_events_of_every_kind_size_and_cell_are_as_often_as_the_law_says(law: NoiseLaw) -> None:
    """Of many devices, a chi-square over all of them; the seed is fixed, and another one gives a
    false alarm in 1e-6 of cases. Planted: sizes one too large, minus for plus, one cell never
    drawn, the rate of the whole batch, empties of each cell as many as of all -> each fails.
    """
    devices, entropy, events = size(20_000, 400_000), Poured(SeededEntropy("events")), Events(law)
    seen = Counter[int]()
    total = 0
    for _ in range(devices):
        drawn = events.draw(entropy)
        total += len(drawn)
        seen.update(drawn)
    expected = dict.fromkeys(range(2 * law.cells + 1), 0.0)
    spread = dict(expected)
    for rate in law.rates():
        events_of_rate = devices * rate.weight / 2.0**64
        for cell in range(law.cells):
            messages = {
                NoiseKind.PLUS: (2 * cell,),
                NoiseKind.MINUS: (2 * cell + 1,),
                NoiseKind.FLOOD: (2 * cell, 2 * cell + 1),
                NoiseKind.EMPTY: (2 * law.cells,),
            }[rate.kind]
            for message in messages:
                expected[message] += events_of_rate * rate.size
                spread[message] += events_of_rate * rate.size**2
    empty = devices / law.shares * float(law.empties) * sum(1 / j for j in range(1, law.widest + 1))
    assert expected[2 * law.cells] == pytest.approx(empty)
    assert set(seen) == {message for message, mean in expected.items() if mean}
    score = sum(
        (seen[message] - mean) ** 2 / spread[message] for message, mean in expected.items() if mean
    )
    # messages of + and - in a cell share floods, so the sum has fewer degrees than terms: the
    # larger number is on the side of fewer alarms
    assert score < stats.chi2.isf(1e-6, 2 * len(seen))
    mean = devices * float(law.mean_messages - 1)
    assert abs(total - mean) < 6 * sum(spread.values()) ** 0.5


def test_what_is_drawn_does_not_depend_on_the_value() -> None:
    """The same words for every value, and the same noise around it. Planted: noise left out for
    cell 0 -> fails.
    """
    law = cancelling(4, 3)
    for seed in range(200):
        found = []
        for truth in range(0, 8, 2):
            entropy = SeededEntropy(seed)
            messages = bundle([truth], law, entropy)
            at = next(place for place, message in enumerate(messages) if message == truth)
            rest = sorted(messages)
            rest.remove(truth)
            found.append((rest, entropy.bytes(8)))
            assert at < len(messages)
        assert all(one == found[0] for one in found)


def test_a_full_submission_has_as_many_messages_as_there_are_slots() -> None:
    """Behind those that an ordinary one has; also where these are the true message alone. Planted:
    none added to a true message alone -> fails; one too few -> fails.
    """
    law = cancelling(3, 4, 6)
    for seed in range(400):
        held = bundle([2], law, SeededEntropy(seed))
        full = bundle([2], replace(law, full=True), SeededEntropy(seed))
        assert full == held + [6] * (6 - len(held))


@pytest.mark.parametrize("slots", [1, 2, 3, 6])
def test_who_draws_more_noise_than_there_are_slots_sends_the_true_message_alone(
    slots: int,
) -> None:
    """Planted: noise cut to the slots -> its law is another one, fails."""
    sizes = Counter[int]()
    for seed in range(400):
        whole = bundle([2], cancelling(3, 4), SeededEntropy(seed))
        held = bundle([2], cancelling(3, 4, slots), SeededEntropy(seed))
        assert held == (whole if len(whole) <= slots else [2])
        sizes[len(held)] += 1
    assert max(sizes) <= slots
    assert sizes[1] > 0


def test_several_true_messages_are_sent_beside_noise_or_alone() -> None:
    """One of each table, always, in an order that is drawn. Planted: ``slots`` - 1 for ``slots`` -
    ``truths`` -> more than the slots, fails; all true ones at one place -> the order never
    changes, fails.
    """
    law = NoiseLaw(Truth.CELL, 6, 4, 5, dummies=Fraction(2), truths=3)
    wide, orders, sizes = replace(law, slots=60), Counter[tuple[int, ...]](), Counter[int]()
    for seed in range(600):
        held, whole = (bundle([91, 92, 93], one, SeededEntropy(seed)) for one in (law, wide))
        orders[tuple(message for message in held if message > 90)] += 1
        sizes[len(held)] += 1
        assert len(held) == (len(whole) if len(whole) <= 5 else 3)
        assert len(held) > 3 or sorted(held) == [91, 92, 93]
    assert set(sizes) == {3, 4, 5}
    assert len(orders) == 6


def test_the_true_message_is_anywhere_in_its_bundle() -> None:
    """Each of the first ten places as often as the law of sizes says, by a chi-square of a fixed
    seed, false alarm 1e-6. Planted: the true message first -> fails.
    """
    law, places, wanted = cancelling(3, 4), Counter[int](), dict[int, float]()
    entropy = Poured(SeededEntropy("places"))
    for _ in range(size(4_000, 40_000)):
        # a message that no noise has
        messages = bundle([99], law, entropy)
        places[messages.index(99)] += 1
        for place in range(len(messages)):
            wanted[place] = wanted.get(place, 0.0) + 1 / len(messages)
    score = sum((places[at] - wanted[at]) ** 2 / wanted[at] for at in range(10))
    assert score < stats.chi2.isf(1e-6, 10)
