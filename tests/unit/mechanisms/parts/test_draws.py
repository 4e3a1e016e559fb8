"""A draw that is written once: for one device without numpy, and for many."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from shoal.domain import Categories, Domain, Numeric, Places, YesNo
from shoal.entropy import SYSTEM, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, design, serves
from shoal.mechanisms.categories.binary_rr import BinaryResponse
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.parts import sampling
from shoal.mechanisms.parts.draws import Draws
from shoal.mechanisms.parts.many_devices import ManyDevices
from shoal.mechanisms.parts.one_device import OneDevice
from shoal.mechanisms.parts.reports import many_reports
from tests.cases import for_each
from tests.worlds.tapes import DryError, Tape

BOUNDS = (
    1,
    2,
    3,
    7,
    22,
    255,
    256,
    257,
    1000,
    65_535,
    65_536,
    65_537,
    2**31 - 1,
    2**31 + 1,
    2**32 - 1,
    2**32,
)
WORDS = 1 << 64


def word(value: int, width: int) -> bytes:
    return value.to_bytes(width, "little")


def drawn(bound: int, *words: int) -> int | None:
    """None: every word was refused."""
    try:
        return OneDevice(Tape(*(word(w, 4) for w in words))).below(bound)
    except DryError:
        return None


@for_each("bound", BOUNDS)
def test_a_uniform_draw_decides_as_the_arrays_do(bound: int) -> None:
    """At and next to every place (at most 300 of them) where another cell begins, and at the ends
    of the words.

    Planted: the high half rounded up; the low half compared by <=, or not at all (modulo bias) ->
    fails.
    """
    cells = {0, 1, bound - 1, *np.linspace(0, bound - 1, 300, dtype=np.int64).tolist()}
    near = {-(-(cell << 32) // bound) + step for cell in cells for step in (-1, 0, 1)} | {2**32 - 1}
    words = np.array(sorted(w for w in near if 0 <= w < 1 << 32), dtype=np.uint32)
    results, accepted = sampling.multiply_shift(words, bound)
    for w, result, keeps in zip(words.tolist(), results.tolist(), accepted.tolist(), strict=True):
        assert drawn(bound, w) == (result if keeps else None)


@for_each("bound", [3, 7, 1000, 65_537, 2**31 + 1])
def test_a_refused_word_is_replaced_by_the_next(bound: int) -> None:
    """Word 0 is always below 2^32 mod bound where that is not 0. Planted: the refused word's own
    cell kept -> fails.
    """
    fresh = 2**32 - 1
    expected = drawn(bound, fresh)
    assert expected == bound - 1
    assert drawn(bound, 0) is None
    assert drawn(bound, 0, 0, 0, fresh) == expected


@pytest.mark.parametrize("bound", [0, -1, 2**32 + 1])
def test_a_bound_that_32_bits_can_not_serve_is_refused(bound: int) -> None:
    with pytest.raises(ShoalError, match="2\\^32") as caught:
        OneDevice(Tape()).below(bound)
    assert caught.value.kind is Kind.INVALID


@for_each("threshold", [1, 2, 2**32, 2**63 - 1, 2**63, WORDS - 2, WORDS - 1])
def test_coins_fall_at_their_own_threshold(threshold: int) -> None:
    """One below it: heads; on it and one above: tails. Planted: <= for <, threshold + 1, threshold
    - 1 -> fails.
    """
    words = [w for w in (0, threshold - 1, threshold, threshold + 1, WORDS - 1) if 0 <= w < WORDS]
    for w in words:
        uniform = word(3 << 28, 4)  # of 16 cells, cell 3
        (report,) = KaryResponse(tuple("abcdefghijklmnop"), threshold).randomize_one(
            9, Tape(word(w, 8), uniform)
        )
        assert report == bytes([3 if w < threshold else 9])
        if threshold > 1:
            assert BinaryResponse(threshold, 1).randomize_one(1, Tape(word(w, 8))) == (
                bytes([w < threshold]),
            )
        if threshold < WORDS - 1:
            assert BinaryResponse(WORDS - 1, threshold).randomize_one(0, Tape(word(w, 8))) == (
                bytes([w < threshold]),
            )


def sources() -> Iterator[tuple[Draws, Draws]]:
    """One device and an array of one, with the same random bytes."""
    for seed in range(50):
        yield OneDevice(SeededEntropy(seed)), ManyDevices(1, SeededEntropy(seed))


def plain(found: object) -> object:
    """What one device gets: the only entry of an array, as Python has it."""
    if isinstance(found, np.ndarray):
        only = found[0]
        return only.tobytes() if only.dtype == np.uint8 and only.ndim else only.tolist()
    return found


COINS: dict[str, Callable[[Draws], object]] = {
    "coin": lambda draws: draws.coin(WORDS // 3),
    "below": lambda draws: draws.below(22),
    "below_power": lambda draws: draws.below_power(1 << 10),
    "seed": lambda draws: draws.seed(8),
    "coins": lambda draws: draws.coins(11, WORDS // 3),
}


@for_each("name", COINS)
def test_one_device_draws_what_an_array_of_one_does(name: str) -> None:
    """Planted: ``below_power`` from big-endian words; ``coins`` compared by <= -> fails."""
    for one, many in sources():
        assert COINS[name](one) == plain(COINS[name](many))


def test_coins_that_depend_on_a_bit_are_those_of_its_threshold() -> None:
    """For one and for many, at words next to both thresholds. Planted: the thresholds the other way
    round; ``and`` for ``or`` of both comparisons -> fails.
    """
    low, high = WORDS // 4, WORDS // 2
    words = [w + step for w in (low, high) for step in (-1, 0, 1)]
    tape = b"".join(word(w, 8) for w in words)
    for given in (False, True):
        expected = [w < (high if given else low) for w in words]
        assert [OneDevice(Tape(word(w, 8))).coin_if(given, low, high) for w in words] == expected
        assert OneDevice(Tape(tape)).coins_if([given] * 6, low, high) == expected
        array = np.full(6, given)
        assert ManyDevices(6, Tape(tape)).coin_if(array, low, high).tolist() == expected
        assert ManyDevices(6, Tape(tape)).coin_if(5 * array, low, high).tolist() == expected
        assert ManyDevices(1, Tape(tape)).coins_if(array[None], low, high)[0].tolist() == expected


@for_each("at", [0, 4, 5])
def test_one_coin_of_a_row_has_its_own_threshold(at: int) -> None:
    """None at all where the place is behind the row. Planted: its word drawn apart -> fails."""
    tape = b"".join(word(w, 8) for w in range(5))
    expected = [w < (5 if place == at else 2) for place, w in enumerate(range(5))]
    assert OneDevice(Tape(tape)).coins_but_one(5, 2, at, 5) == expected
    many = ManyDevices(1, Tape(tape)).coins_but_one(5, 2, np.array([at]), 5)
    assert many[0].tolist() == expected


def test_sets_of_one_and_of_many_hold_the_same() -> None:
    """Planted: rows of ``_ManySets`` one cell off; ``discard`` left out -> fails."""
    rows = [(3, True), (0, True), (3, False), (6, True), (6, True), (2, False), (5, True)]
    ones = [OneDevice(Tape()).marked(8) for _ in range(3)]
    many = ManyDevices(3, Tape()).marked(8)
    for place, marked in rows:
        places = [(place + step) % 8 for step in range(3)]
        for one, at in zip(ones, places, strict=True):
            one.put(at, marked)
        many.put(np.array(places), np.full(3, marked))
        held = [one.has(place) for one in ones]
        assert many.has(np.full(3, place)).tolist() == held
    assert many.members().tolist() == [one.members() for one in ones]
    assert many.bits().tolist() == [one.bits() for one in ones]
    assert ones[0].members() == [0, 5, 6]
    for number in range(8):
        found = ManyDevices(3, Tape()).place_in(many.members(), np.full(3, number))
        expected = [OneDevice(Tape()).place_in(each.members(), number) for each in ones]
        assert found.tolist() == expected


@for_each("size", [1, 2, 3, 4])
def test_fields_are_the_same_bytes(size: int) -> None:
    """Numbers of every width, bits and seeds, joined. Planted: little-endian numbers; the first
    bytes of four where there are three; fields in another order -> fails.
    """
    numbers = [0, 1, (1 << 8 * size) - 2]
    bits = [[at % (n + 2) == 0 for at in range(11)] for n in range(3)]
    many = ManyDevices(3, SeededEntropy(size))
    seeds = many.seed(8)
    found = many.joined(many.number(np.array(numbers), size), seeds, many.bitmap(np.array(bits)))
    assert found.shape == (3, size + 8 + 2)
    for row, number, seed, each in zip(found, numbers, seeds, bits, strict=True):
        one = OneDevice(Tape())
        expected = one.joined(one.number(number, size), seed.tobytes(), one.bitmap(each))
        assert row.tobytes() == expected == number.to_bytes(size, "big") + expected[size:]
    for place in (0, 1):
        assert many.read(seeds, place).tolist() == [
            OneDevice(Tape()).read(seed.tobytes(), place) for seed in seeds
        ]
    if size != 3:
        rows = np.array([numbers, numbers[::-1]])
        assert [row.tobytes() for row in ManyDevices(2, Tape()).numbers(rows, size)] == [
            OneDevice(Tape()).numbers(row.tolist(), size) for row in rows
        ]


def test_many_reports_are_made_in_parts() -> None:
    """Each of the devices' own cells. Planted: the first part's cells for all -> fails."""
    values = np.arange(10, dtype=np.int64)
    made = many_reports(lambda cell, draws: draws.number(cell, 2), values, 10, SYSTEM, 2, most=4)
    assert made.shape == (10, 1, 2)
    assert made.view(">u2").reshape(-1).tolist() == values.tolist()


_DRAW = """
import json
import sys
import shoal.mechanisms
from shoal.domain import Categories, Numeric, Places, YesNo
from shoal.entropy import SYSTEM
from shoal.mechanisms import REGISTRY, create, serves
from shoal.privacy import epsilon0_upper
from shoal.task import MechanismSpec

domains = (Categories(("a", "b", "c")), YesNo(), Numeric(0.0, 1.0, 5), Places(0, 0, 20, 30, 2, 3))
for name, parameters in json.loads(sys.argv[1]).items():
    domain = next(domain for domain in domains if serves(name, domain))
    mechanism = create(MechanismSpec.of(name, **parameters), domain)
    assert epsilon0_upper(mechanism.privacy()) <= 2.0
    for value in (None, 1, "yes", 0.3):
        (message,) = mechanism.randomize_one(domain.encode(value, SYSTEM), SYSTEM)
        assert len(message) == mechanism.report_size
assert "numpy" not in sys.modules, "numpy was loaded"
"""


def test_a_device_draws_without_numpy() -> None:
    """Built of a task's integers, its law told, a report drawn. (Choosing the integers is the
    owner's, and may load it.)

    Planted: ``np.pi`` at the end of cells.py; ``ManyDevices`` for ``OneDevice`` in ``one_report``
    -> fails.
    """
    domains: tuple[Domain, ...] = (
        Categories(("a", "b", "c")),
        YesNo(),
        Numeric(0.0, 1.0, 5),
        Places(0, 0, 20, 30, 2, 3),
    )
    specs = {}
    for name in REGISTRY:
        domain = next(domain for domain in domains if serves(name, domain))
        specs[name] = dict(design(name, domain, 2.0).parameters)
    assert len(specs) == len(REGISTRY)
    subprocess.run([sys.executable, "-c", _DRAW, json.dumps(specs)], check=True)
