"""Local hashing keeps the suite, though its 2^64 seeds can't be played. What is proven by what:

* **Given a seed**, the law of the cell is exact: the suite plays every word of the coin and of the
  uniform cell through the production code, for each of the seeds that a case chooses, and compares
  with g-ary response around a hash that is computed here.
* **Over the seeds**, all of a small family are played: a and b in multiples of 2^(32 - w), w = u +
  log2 g - 1, for cells of u bits. Then a x + b is 2^(32 - w) times what words of w bits would give,
  and h is the small analogue of the hash, inside the production code. That the classes of
  ``privacy()`` come out of it exactly, for every ordered pair of cells, is
  ``test_a_law_of_classes_is_that_of_every_pair``.
* **For words of 32 bits** the family of all seeds is pairwise independent by the proof in the
  module. Its statement is enumerated for words up to 8 bits, with its failure one bit below, in
  tests/unit/mechanisms/categories/test_local_hash.py. Seeds as devices draw them are sampled
  (``test_frequencies_follow_the_law``), and are the drawn bytes themselves
  (``test_seeds_are_kept_as_they_were_drawn``).
"""

from __future__ import annotations

import itertools
from collections.abc import Container
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shoal.domain import Categories, Numeric, YesNo
from shoal.entropy import SeededEntropy
from shoal.mechanisms import Mechanism, create, design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table, every_case, uniform_draw
from tests.conformance.mechanisms.checks.law import chi_square_p
from tests.conformance.mechanisms.suite import MechanismSuite
from tests.sizes import size

WORDS = 1 << 64
THREE = Categories(("a", "b"))
FOUR = Numeric(0, 1, 3)
FIVE = Categories(("a", "b", "c", "d"))
MANY = Categories(tuple(f"label {i}" for i in range(299)))


def spec(k: int, g: int, uniform: int) -> MechanismSpec:
    return MechanismSpec.of("local_hash", k=k, g=g, uniform=uniform)


@dataclass(frozen=True)
class Given(Draw):
    """A draw of which the words ``edges`` alone are played: what follows is the law given that it
    is one of them.
    """

    def intervals(self) -> list[tuple[int, int]]:
        return [(word, word + 1) for word in self.edges]


class Known:
    """All reports of any seed and a cell below g."""

    def __init__(self, g: int) -> None:
        self._g, self._size = g, 9 if g <= 256 else 10

    def __contains__(self, report: object) -> bool:
        assert isinstance(report, bytes)
        return len(report) == self._size and int.from_bytes(report[8:], "big") < self._g


def small_family(k: int, g: int) -> tuple[bytes, ...]:
    """All seeds whose words are multiples of 2^(32 - w): 4^w of them, an exactly pairwise
    independent family for k cells.
    """
    w = (k - 1).bit_length() + (g.bit_length() - 1) - 1
    words = [word << (32 - w) for word in range(1 << w)]
    return tuple(
        a.to_bytes(4, "big") + b.to_bytes(4, "big") for a, b in itertools.product(words, repeat=2)
    )


def hash_of(seed: bytes, x: int, g: int) -> int:
    """The hash as a fraction of the circle: floor(g * ((a x + b) / 2^32 mod 1))."""
    a, b = int.from_bytes(seed[:4], "big"), int.from_bytes(seed[4:], "big")
    return (a * x + b) % (1 << 32) * g // (1 << 32)


class TestLocalHash(MechanismSuite):
    """Planted: the lowest bit of a set, in both ways -> the law and
    ``test_seeds_are_kept_as_they_were_drawn`` fail; b left out of the hash, a and b exchanged, the
    low bits of the sum for its high ones -> the law, the frequencies and the estimate fail; the
    same, words of the seed read little-endian, or the coin drawn before the seed, in one way only
    -> the byte-identity fails; one seed for two devices of a block ->
    ``test_seeds_are_kept_as_they_were_drawn`` fails; the seed drawn only where the coin asks for
    the truth -> the randomness used differs; a cell of g let through by ``valid`` -> the hostile
    rows fail; q = 1/k, p - q without its 1 - 1/g -> the estimate is biased; ``wise=3``, g + 1 or a
    ratio without the true cell's share of uniform draws in ``law`` -> the classes fail; one step
    less noise, or the noise of k cells for g -> the designed epsilon0 fails.
    """

    NAME = "local_hash"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("olh, 4 cells", design("local_hash", FOUR, 1.0), FOUR),
        Case("blh, yes/no", design("local_hash", YesNo(), 1.0, "blh"), YesNo()),
        Case("olh, 3 cells, g = 8", design("local_hash", THREE, 2.0), THREE, inputs=(0, 2)),
        Case("g=4, 5 cells", design("local_hash", FIVE, 3.0, "g=4"), FIVE, inputs=(0, 3, 4)),
        Case("almost the truth", spec(3, 4, 1), THREE),
        Case("almost noise", spec(3, 2, WORDS - 1), THREE),
        Case("300 cells, two bytes", spec(300, 512, WORDS // 3), MANY, inputs=(0, 299)),
    )

    def seeds(self, case: Case) -> tuple[bytes, ...]:
        """The small family, or seeds as a device draws them where that is too large; the ends of
        the words are among those.
        """
        if case.domain.size <= 5:
            return small_family(case.domain.size, case.spec.get("g"))
        return bytes(4) + b"\xff" * 4, SeededEntropy(case.name).bytes(8)

    def draws(self, case: Case) -> tuple[Draw, ...]:
        seeds = tuple(int.from_bytes(seed, "little") for seed in self.seeds(case))
        return (
            Given(8, seeds),
            Draw(8, (case.spec.get("uniform"),)),
            uniform_draw(case.spec.get("g")),
        )

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        uniform = spec.get("uniform") - 1
        return (
            MechanismSpec.of(spec.name, k=spec.get("k"), g=spec.get("g"), uniform=uniform)
            if uniform
            else None
        )

    def stated(self, case: Case) -> Table:
        """One column per seed that is played and cell: g (2^64 - T) + T where the cell is the hash
        of the input, else T.
        """
        g, uniform = case.spec.get("g"), case.spec.get("uniform")
        truth = g * (WORDS - uniform) + uniform

        def weights(x: int) -> tuple[int, ...]:
            hashes = [hash_of(seed, x, g) for seed in self.seeds(case)]
            return tuple(
                truth if cell == value else uniform for value in hashes for cell in range(g)
            )

        return tuple(weights(x) for x in range(case.domain.size))

    def output(self, case: Case, index: int) -> bytes:
        at, cell = divmod(index, case.spec.get("g"))
        return self.seeds(case)[at] + cell.to_bytes(case.mechanism.report_size - 8, "big")

    def known(self, case: Case, listed: list[bytes]) -> Container[bytes]:
        return Known(case.spec.get("g"))

    def outcomes(
        self, mechanism: Mechanism, reports: NDArray[np.uint8], one: int, two: int
    ) -> NDArray[np.int64]:
        """Which of the two cells the report supports."""
        seeds, g = (
            np.ascontiguousarray(reports[:, :8]).view(">u4").astype(np.uint64),
            mechanism.spec.get("g"),
        )
        cell = np.ascontiguousarray(reports[:, 8:]).view(f">u{reports.shape[1] - 8}")[:, 0]
        hits = [
            (seeds[:, 0] * np.uint64(x) + seeds[:, 1]) % (1 << 32) * np.uint64(g) >> np.uint64(32)
            == cell
            for x in (one, two)
        ]
        return np.asarray(2 * hits[0].astype(np.int64) + hits[1])

    def shows_classes(self, case: Case) -> bool:
        """Where all seeds of a pairwise independent family are played: the classes of few seeds are
        others.
        """
        return len(self.seeds(case)) > 2

    @every_case
    def test_frequencies_follow_the_law(self, case: Case) -> None:
        """Chi-square of the vectorised path, with seeds as devices draw them: the hashes of the
        true and of another cell are uniform over all pairs, and the report supports each of the two
        as the law says. Each fails with probability 1e-6 over the seeds of the test, which are
        fixed.
        """
        g, uniform, count = case.spec.get("g"), case.spec.get("uniform"), size(20_000, 1_000_000)
        share = uniform / WORDS
        for x, other in itertools.islice(itertools.permutations(case.cells, 2), 4):
            reports = case.mechanism.randomize(
                np.full(count, x), SeededEntropy(f"{case.name} {x}")
            )[:, 0, :]
            words = np.ascontiguousarray(reports[:, :8]).view(">u4").astype(np.int64)
            cell = (
                np.ascontiguousarray(reports[:, 8:])
                .view(f">u{reports.shape[1] - 8}")[:, 0]
                .astype(np.int64)
            )
            mine, its = (
                (words[:, 0] * value + words[:, 1]) % (1 << 32) * g >> 32 for value in (x, other)
            )
            pairs = np.bincount(mine * g + its, minlength=g * g)
            assert chi_square_p(pairs.tolist(), [count / g**2] * g**2) > 1e-6
            # The other cell is supported with probability 1/g, whether or not the true one is.
            truth = 1 - share + share / g
            supports = np.bincount(2 * (cell == mine) + (cell == its), minlength=4)
            expected = [(1 - truth) * (1 - 1 / g), (1 - truth) / g, truth * (1 - 1 / g), truth / g]
            assert chi_square_p(supports.tolist(), [count * likely for likely in expected]) > 1e-6

    @every_case
    def test_seeds_are_kept_as_they_were_drawn(self, case: Case) -> None:
        """The first 8 bytes of a report are the first 8 that the device drew, whatever they are: a
        may be even, or 0. Each device has its own. Planted: the lowest bit of a set, one seed for
        two devices -> this fails.
        """
        mechanism = create(case.spec, case.domain)
        for seed in range(size(20, 200)):
            assert mechanism.randomize_one(0, SeededEntropy(seed))[0][:8] == SeededEntropy(
                seed
            ).bytes(8)
            reports = mechanism.randomize(np.zeros(7, dtype=np.int64), SeededEntropy(seed))
            assert reports[:, 0, :8].tobytes() == SeededEntropy(seed).bytes(56)
