"""LOLOHA keeps the suite. Seeds as in test_local_hash.py: given a seed all words of both responses
are played, over the seeds all of a small pairwise independent family; the production hash is
``local_hash``'s, proven there.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.domain import Categories, Numeric, YesNo
from shoal.entropy import SeededEntropy
from shoal.mechanisms import Mechanism, design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table, every_case, uniform_draw
from tests.conformance.mechanisms.checks.law import chi_square_p
from tests.conformance.mechanisms.longitudinal import LongitudinalSuite, kept, longitudinal
from tests.conformance.mechanisms.test_local_hash import Given, Known, hash_of, small_family
from tests.sizes import size
from tests.worlds.tapes import Tape

WORDS = 1 << 64
THREE = Categories(("a", "b"))
FOUR = Numeric(0, 1, 3)
FIVE = Categories(("a", "b", "c", "d"))


def loloha(k: int, g: int, permanent: int, instant: int) -> MechanismSpec:
    return MechanismSpec.of(
        "loloha", k=k, g=g, permanent_uniform=permanent, instant_uniform=instant
    )


class TestLoloha(LongitudinalSuite):
    """Planted: the second response on the hash for the permanent answer, in one way and in both ->
    the law, the chain and the byte-identity fail; the permanent response with T2 -> the law of what
    is kept fails; the chain composed as the paper does, without g - 1 -> the law fails for g = 4; k
    keys -> the keys fail; ``permanent`` stating the report's law -> fails; the responses' draws
    exchanged -> the byte-identity fails; <= for < at a threshold -> the law fails; q = 1/k, a gap
    of one response alone -> the estimate is biased.
    """

    NAME = "loloha"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("biloloha, yes/no", design("loloha", YesNo(), 1.0), YesNo()),
        Case("biloloha, 4 cells", design("loloha", FOUR, 1.0), FOUR),
        Case("g = 4, 3 cells", loloha(3, 4, WORDS // 5, WORDS // 3 + 7), THREE, inputs=(0, 2)),
        Case("almost the truth", loloha(5, 2, 1, 1), FIVE, inputs=(0, 4)),
        Case("almost noise", loloha(3, 2, WORDS - 1, WORDS - 1), THREE),
    )

    def seeds(self, case: Case) -> tuple[bytes, ...]:
        return small_family(case.domain.size, case.spec.get("g"))

    def choice_draws(self, case: Case) -> tuple[Draw, ...]:
        return (Given(8, tuple(int.from_bytes(seed, "little") for seed in self.seeds(case))),)

    def permanent_draws(self, case: Case) -> tuple[Draw, ...]:
        return Draw(8, (case.spec.get("permanent_uniform"),)), uniform_draw(case.spec.get("g"))

    def report_draws(self, case: Case) -> tuple[Draw, ...]:
        return Draw(8, (case.spec.get("instant_uniform"),)), uniform_draw(case.spec.get("g"))

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        instant = spec.get("instant_uniform") - 1
        return (
            loloha(spec.get("k"), spec.get("g"), spec.get("permanent_uniform"), instant)
            if instant
            else None
        )

    def stated(self, case: Case) -> Table:
        """One column per seed that is played and value: the ways there, out of (g 2^64)^2. Through
        each permanent answer to each report.
        """
        g, (one, two) = (
            case.spec.get("g"),
            (case.spec.get(name) for name in ("permanent_uniform", "instant_uniform")),
        )

        def response(uniform: int, value: int, answer: int) -> int:
            return uniform + (g * (WORDS - uniform) if value == answer else 0)

        def weights(x: int) -> tuple[int, ...]:
            hashes = [hash_of(seed, x, g) for seed in self.seeds(case)]
            chain = [
                [
                    sum(
                        response(one, value, through) * response(two, through, answer)
                        for through in range(g)
                    )
                    for answer in range(g)
                ]
                for value in range(g)
            ]
            return tuple(weight for value in hashes for weight in chain[value])

        return tuple(weights(x) for x in range(case.domain.size))

    def output(self, case: Case, index: int) -> bytes:
        at, value = divmod(index, case.spec.get("g"))
        return self.seeds(case)[at] + bytes([value])

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
        value = np.ascontiguousarray(reports[:, 8:]).view(f">u{reports.shape[1] - 8}")[:, 0]
        hits = [
            (seeds[:, 0] * np.uint64(x) + seeds[:, 1]) % (1 << 32) * np.uint64(g) >> np.uint64(32)
            == value
            for x in (one, two)
        ]
        return np.asarray(2 * hits[0].astype(np.int64) + hits[1])

    @every_case
    def test_frequencies_follow_the_law(self, case: Case) -> None:
        """Chi-square of the vectorised path with seeds as devices draw them: how a report supports
        the true and another cell. Each fails with probability 1e-6 over the seeds of the test,
        which are fixed.
        """
        g, count = case.spec.get("g"), size(20_000, 1_000_000)
        x, other = case.cells[0], case.cells[-1]
        reports = case.mechanism.randomize(np.full(count, x), SeededEntropy(case.name))[:, 0, :]
        supports = np.bincount(self.outcomes(case.mechanism, reports, x, other), minlength=4)
        keep = (
            (WORDS - case.spec.get("permanent_uniform"))
            * (WORDS - case.spec.get("instant_uniform"))
            / WORDS**2
        )
        truth = keep + (1 - keep) / g
        expected = [(1 - truth) * (1 - 1 / g), (1 - truth) / g, truth * (1 - 1 / g), truth / g]
        assert chi_square_p(supports.tolist(), [count * likely for likely in expected]) > 1e-6

    @every_case
    def test_cells_of_one_hash_share_what_is_kept(self, case: Case) -> None:
        """g keys at most, whatever the number of cells: the key is the hash. Planted: the cell
        itself for a key -> this fails.
        """
        mechanism = longitudinal(case)
        assert mechanism.keys == case.spec.get("g")
        for seed in self.seeds(case)[:20]:
            keys = [mechanism.key_of(seed, cell) for cell in range(case.domain.size)]
            assert keys == [
                hash_of(seed, cell, case.spec.get("g")) for cell in range(case.domain.size)
            ]

    @every_case
    def test_what_no_device_could_have_kept_is_refused(self, case: Case) -> None:
        """Every 8 bytes are a seed; other lengths are none, and neither is a value of g or more."""
        mechanism, g = longitudinal(case), case.spec.get("g")
        choice, remembered = kept(mechanism, 0, SeededEntropy(3))
        acts: list[Callable[[], object]] = [
            *(partial(mechanism.key_of, choice, cell) for cell in (-1, case.domain.size, True)),
            *(partial(mechanism.remember_one, choice, key, Tape()) for key in (-1, g, True)),
            *(
                partial(mechanism.report_one, choice, bad, Tape())
                for bad in (b"", remembered + b"\0", bytes([g]), b"\xff")
            ),
        ]
        for bad in (b"", choice[:-1], choice + b"\0"):
            acts.append(partial(mechanism.key_of, bad, 0))
            acts.append(partial(mechanism.remember_one, bad, 0, Tape()))
            acts.append(partial(mechanism.report_one, bad, remembered, Tape()))
        for act in acts:
            self._refused(act)


def test_two_bytes_of_a_value() -> None:
    """g = 512: both draws are one, and ``valid`` knows the values. Planted: the value little-endian
    in one way -> this fails.
    """
    mechanism = Case(
        "",
        loloha(300, 512, WORDS // 5, WORDS // 3),
        Categories(tuple(f"label {i}" for i in range(299))),
    ).mechanism
    assert mechanism.report_size == 10
    for seed in range(20):
        (one,) = mechanism.randomize_one(299, SeededEntropy(seed))
        assert one == mechanism.randomize(np.array([299]), SeededEntropy(seed)).tobytes()
    rows = np.frombuffer(bytes(8) + b"\x01\xff" + bytes(8) + b"\x02\x00", dtype=np.uint8).reshape(
        2, 10
    )
    assert mechanism.valid(rows).tolist() == [True, False]


@pytest.mark.parametrize("asked", [0.5, 2.0])
def test_the_settings_spend_twice_one_report_for_life(asked: float) -> None:
    """Planted: ``LIFETIME`` of 1 -> the permanent epsilon is the report's, and this fails."""
    for setting in ("biloloha", "oloha", "g=4"):
        mechanism = longitudinal(Case("", design("loloha", FIVE, asked, setting), FIVE))
        assert mechanism.permanent().max_ratio > mechanism.privacy().max_ratio
        assert float(np.log(float(mechanism.permanent().max_ratio))) == pytest.approx(2 * asked)
