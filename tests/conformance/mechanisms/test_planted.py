"""The audit of the suite convicts broken randomizers: each device here claims the epsilon0 of an
honest one, and makes a mistake that libraries have made.

200,000 trials (fewer at reduced size, and of a member that says nothing of its outcomes); the audit
refutes a true claim with probability 1e-6. A device of the registry's
that picks the better of two reports is convicted in the suite itself, whatever the randomizer.

Planted: each device made honest -> not refuted, this fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.domain import YesNo
from shoal.entropy import Entropy
from shoal.mechanisms import Mechanism, create, design
from shoal.mechanisms.categories.binary_rr import BinaryResponse
from shoal.mechanisms.categories.hadamard import HadamardBit
from shoal.mechanisms.categories.hadamard_response import HadamardResponse, most_include
from shoal.mechanisms.categories.krr import KaryResponse, least_uniform
from shoal.mechanisms.categories.local_hash import LocalHash
from shoal.mechanisms.categories.projective import ProjectiveResponse
from shoal.mechanisms.categories.subset import SubsetSelection
from shoal.mechanisms.categories.unary import UnaryEncoding, least_one_if_zero
from tests.conformance.mechanisms import test_local_hash
from tests.conformance.mechanisms.checks.statistics import FEW, GROUPS, StatisticsSuite, audited
from tests.sizes import size

WORDS, K = 1 << 64, GROUPS.size
Values = NDArray[np.int64]
Reports = NDArray[np.uint8]
Device = Callable[[Values, Entropy], Reports]


def made(name: str, epsilon0: float, setting: str = "") -> Mechanism:
    return create(design(name, GROUPS, epsilon0, setting), GROUPS)


def coins(threshold: float, count: int, entropy: Entropy) -> NDArray[np.bool_]:
    return np.less(entropy.words(count), np.uint64(int(threshold)))


def remainders(bits: int, bound: int, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Random words of so many bits, modulo ``bound``: the low results come up once more than the
    others.
    """
    return (
        np.frombuffer(entropy.bytes(count), dtype=np.uint8).astype(np.int64) % (1 << bits) % bound
    )


def reports_of(cells: Values) -> Reports:
    return cells.astype(np.uint8)[:, None, None]


@dataclass(frozen=True)
class Defect:
    """``device`` claims what ``claims`` keeps; it is seen with the two ``cells``."""

    claims: Mechanism
    device: Device
    cells: tuple[int, int] = (0, 1)


def yes_is_kept(values: Values, entropy: Entropy) -> Reports:
    """A yes stays a yes even when the coin says no."""
    honest = create(design("binary_rr", YesNo(), 1.0), YesNo())
    return honest.randomize(values, entropy) | reports_of(values)


def uniform_by_remainder(values: Values, entropy: Entropy) -> Reports:
    """The uniform cell from 4 bits, modulo 6: cells 0 to 3 come up with 3/16 each, 4 and 5 with
    2/16 instead of 1/6. A third more of ratio at those; from words of 32 bits it would be one part
    in 10^9, which no audit sees (the suite's enumeration does).
    """
    honest = made("krr", 1.0)
    assert isinstance(honest, KaryResponse)
    coin = coins(honest.uniform, values.size, entropy)
    return reports_of(np.where(coin, remainders(4, K, values.size, entropy), values))


def uniform_over_the_others(values: Values, entropy: Entropy) -> Reports:
    """The threshold of "uniform over all cells", and then a cell from the others only. From
    epsilon0 of about 1 on this is only inaccurate; at small epsilon0 the true cell becomes the
    *least* likely one, and its absence gives it away.
    """
    honest = made("krr", 0.3)
    assert isinstance(honest, KaryResponse)
    other = (values + 1 + np.frombuffer(entropy.bytes(4 * values.size), dtype="<u4") % (K - 1)) % K
    return reports_of(np.where(coins(honest.uniform, values.size, entropy), other, values))


def truth_and_uniform_over_all(values: Values, entropy: Entropy) -> Reports:
    """The other way round: the truth with e / (e + k - 1), which is for "another cell", and else a
    cell from all.
    """
    any_cell = np.frombuffer(entropy.bytes(4 * values.size), dtype="<u4") % K
    truth = coins(WORDS * math.e / (math.e + K - 1), values.size, entropy)
    return reports_of(np.where(truth, values, any_cell))


def unary(honest: Mechanism) -> UnaryEncoding:
    assert isinstance(honest, UnaryEncoding)
    return honest


def true_bit_not_reset(values: Values, entropy: Entropy) -> Reports:
    """The true bit is drawn with p on top of what it was drawn with q."""
    honest = unary(made("unary", 1.0))
    reports = honest.randomize(values, entropy)
    reports[:, 0, 0] |= (
        coins(honest.one_if_zero, values.size, entropy) * (1 << (7 - values))
    ).astype(np.uint8)
    return reports


def epsilon_per_bit() -> UnaryEncoding:
    """p : q = (1 - q) : (1 - p) = e: kept by every bit, and a report has two that tell."""
    zero = int(WORDS / (1 + math.e))
    return UnaryEncoding(GROUPS.labels, WORDS - zero, zero)


def epsilon_per_bit_of_the_hash(values: Values, entropy: Entropy) -> Reports:
    """The hash as it is, each of its two bits flipped with 1 / (1 + e)."""
    bare = LocalHash(GROUPS.labels, 4, 1)
    reports = bare.randomize(values, entropy)
    for bit in range(2):
        reports[:, 0, 8] ^= coins(WORDS / (1 + math.e), values.size, entropy).astype(
            np.uint8
        ) << np.uint8(bit)
    return reports


def true_cell_on_top(values: Values, entropy: Entropy) -> Reports:
    """The true cell is marked, now and then, whatever the coin said: a set of d + 1 cells too."""
    reports = made("subset", 1.0).randomize(values, entropy)
    reports[:, 0, 0] |= (coins(WORDS // 4, values.size, entropy) * (1 << (7 - values))).astype(
        np.uint8
    )
    return reports


def set_of_a_larger_d() -> SubsetSelection:
    honest = made("subset", 1.0, "d=2")
    assert isinstance(honest, SubsetSelection)
    return replace(honest, d=1)


def half_of_the_flips() -> HadamardBit:
    honest = made("hadamard", 1.0)
    assert isinstance(honest, HadamardBit)
    return replace(honest, flip=honest.flip // 2)


def epsilon_per_bit_of_index_and_bit() -> HadamardBit:
    """Four times the epsilon in the one bit, as if an index of three bits and the bit had each a
    part of it.
    """
    honest = made("hadamard", 4.0)
    assert isinstance(honest, HadamardBit)
    return honest


THREE_BLOCKS = HadamardResponse(GROUPS.labels, 3, most_include(3, 1.0))


def blocks_by_remainder(values: Values, entropy: Entropy) -> Reports:
    """Which half that is no support by the remainder of 3 random bits: of the five others the first
    three come up twice as often.
    """
    honest = THREE_BLOCKS
    reports, order = honest.randomize(values, entropy), honest.order
    rows, row, block = (
        reports[:, 0, 0].astype(np.int64),
        values // honest.blocks + 1,
        values % honest.blocks,
    )
    supports = (rows // order == block) & (np.bitwise_count(rows % order & row) % 2 == 0)
    half = remainders(3, 2 * honest.blocks - 1, values.size, entropy)
    half += half >= 2 * block
    place = remainders(8, order // 2, values.size, entropy)
    # With row 1, that of the first cells, a half is every other output.
    return reports_of(np.where(supports, rows, (half // 2) * order + 2 * place + half % 2))


def words_of_three_bits() -> UnaryEncoding:
    """p and q rounded down to eighths."""
    zero = least_one_if_zero(3 * (WORDS // 4), 1.0)
    return UnaryEncoding(GROUPS.labels, 3 * (WORDS // 4), zero >> 61 << 61)


def include_of_one_block() -> HadamardResponse:
    """The share of reports in the support that one block may have: of four blocks a support is a
    smaller part of all outputs.
    """
    honest, single = made("hadamard_response", 1.0, "B=4"), made("hadamard_response", 1.0, "B=1")
    assert isinstance(honest, HadamardResponse)
    assert isinstance(single, HadamardResponse)
    return replace(honest, include=single.include)


def include_of_the_field_of_two() -> ProjectiveResponse:
    """The share of reports in the support that q = 2 may have, where a support is half of all
    points: of a third of them that is too many.
    """
    honest, halves = made("projective", 1.0, "q=3"), made("projective", 1.0, "q=2")
    assert isinstance(honest, ProjectiveResponse)
    assert isinstance(halves, ProjectiveResponse)
    return replace(honest, include=halves.include)


def hash_to(g: int, of: int) -> LocalHash:
    """A hash to g values, with the threshold for ``of`` values."""
    return LocalHash(GROUPS.labels, g, least_uniform(of, 1.0))


def twice() -> BinaryResponse:
    flip = int(WORDS / (1 + math.e**2))
    return BinaryResponse(WORDS - flip, flip)


BINARY = create(design("binary_rr", YesNo(), 1.0), YesNo())
DEFECTS = {
    "binary_rr: a yes is kept": Defect(BINARY, yes_is_kept),
    "binary_rr: twice the epsilon": Defect(BINARY, twice().randomize),
    "krr: modulo bias": Defect(made("krr", 1.0), uniform_by_remainder, (4, 0)),
    "krr: uniform over the others only": Defect(made("krr", 0.3), uniform_over_the_others),
    "krr: truth as if uniform were over the others": Defect(
        made("krr", 1.0), truth_and_uniform_over_all
    ),
    "unary: true bit not reset": Defect(made("unary", 1.0), true_bit_not_reset),
    "unary: epsilon per bit": Defect(made("unary", 1.0, "sue"), epsilon_per_bit().randomize),
    "unary: q of another p": Defect(
        made("unary", 1.0),
        replace(unary(made("unary", 1.0)), one_if_one=3 * (WORDS // 4)).randomize,
    ),
    "unary: q of the optimized, p of the symmetric": Defect(
        made("unary", 1.0, "sue"),
        replace(
            unary(made("unary", 1.0, "sue")), one_if_zero=unary(made("unary", 1.0)).one_if_zero
        ).randomize,
    ),
    "unary: words of 3 bits": Defect(made("unary", 1.0, "p=0.75"), words_of_three_bits().randomize),
    "local_hash: epsilon per bit": Defect(made("local_hash", 1.0), epsilon_per_bit_of_the_hash),
    "local_hash: threshold of another g": Defect(hash_to(16, 16), hash_to(16, 2).randomize),
    "subset: true cell on top": Defect(made("subset", 1.0), true_cell_on_top),
    "subset: include of another d": Defect(
        made("subset", 1.0, "d=2"), set_of_a_larger_d().randomize
    ),
    "hadamard: half of the flips": Defect(made("hadamard", 1.0), half_of_the_flips().randomize),
    "hadamard: epsilon per bit of the index and the bit": Defect(
        made("hadamard", 1.0), epsilon_per_bit_of_index_and_bit().randomize
    ),
    "hadamard_response: modulo bias": Defect(THREE_BLOCKS, blocks_by_remainder, (0, 2)),
    "hadamard_response: include of one block": Defect(
        made("hadamard_response", 1.0, "B=4"), include_of_one_block().randomize
    ),
    "projective: include of another field": Defect(
        made("projective", 1.0, "q=3"), include_of_the_field_of_two().randomize
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_the_audit_convicts(name: str) -> None:
    defect = DEFECTS[name]
    suite = (
        test_local_hash.TestLocalHash()
        if isinstance(defect.claims, LocalHash)
        else StatisticsSuite()
    )
    assert audited(suite, defect.claims, defect.device, defect.cells, name, FEW).refuted


class Silent(StatisticsSuite):
    """A member whose reports are too long to be listed, and that says nothing of its outcomes."""

    def outcomes(self, mechanism: Mechanism, reports: Reports, one: int, two: int) -> None:
        return None


def test_reports_of_which_nothing_is_said_are_audited_by_their_estimates() -> None:
    """Planted: the estimate of the same cell twice -> nothing is measured, this fails."""
    honest, trials = hash_to(4, 4), size(2_500, FEW)
    broken = replace(honest, uniform=honest.uniform // 2)
    fair = audited(Silent(), honest, honest.randomize, (0, 1), "fair", trials)
    assert size(3, 4) / 10 < fair.epsilon_measured_lower <= fair.claimed
    assert audited(Silent(), honest, broken.randomize, (0, 1), "broken", trials).refuted
