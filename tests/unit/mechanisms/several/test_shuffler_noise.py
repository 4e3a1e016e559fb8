"""Noise that the shuffler adds: its law, its draws, and what a histogram makes of it."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from scipy import stats

from shoal.domain import Categories, Domain, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.several.cell_noise import CellNoise
from shoal.mechanisms.several.protocol import Noisy, Several
from shoal.mechanisms.several.registry import create, fewest_messages
from shoal.mechanisms.several.shuffler_noise import ShufflerNoise
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.tapes import Poured, Tape

LABELS = Categories(tuple("abc"), (0, 1, 2))  # and "no answer": four cells
Q = 2605029350  # e^-.5: epsilon 1
HALF = 1 << 31


def made(ratio: int = Q, reach: int = 27, domain: Domain = LABELS) -> ShufflerNoise:
    found = create(MechanismSpec.of("shuffler_noise", k=domain.size, q=ratio, reach=reach), domain)
    assert isinstance(found, ShufflerNoise)
    return found


@for_each("ratio, reach", [(HALF, 1), (HALF, 3), (Q, 27), (1, 2), ((1 << 32) - 1, 4), (Q, 40)])
def test_the_law_is_the_one_that_is_said(ratio: int, reach: int) -> None:
    """Against the formula in fractions: every probability, the variance, and the interval, which is
    the narrowest. Planted: weights of |z| + 1; the interval one narrower -> fails.
    """
    law, q = CellNoise(ratio, reach), Fraction(ratio, 1 << 32)
    powers = list(accumulate([Fraction(1), *[q] * reach], lambda a, b: a * b))
    total = 2 * sum(powers) - 1
    for z in {0, 1, reach // 2, reach - 1, reach}:
        assert law.probability(reach + z) == law.probability(reach - z) == powers[z] / total
    assert law.probability(-1) == law.probability(2 * reach + 1) == 0
    assert law.between(0, 2 * reach + 1) == 1
    assert law.between(reach, 2 * reach) == sum(powers[:reach]) / total
    assert law.variance == 2 * sum(z * z * powers[z] for z in range(reach + 1)) / total
    inside = [(2 * sum(powers[: d + 1]) - 1) / total for d in range(reach + 1)]
    assert law.within == next(d for d, mass in enumerate(inside) if mass >= Fraction(19, 20))


@for_each("ratio, reach", [(HALF, 1), (HALF, 2), (Q, 2), (Q, 27)])
def test_draws_change_at_exact_partial_sums(ratio: int, reach: int) -> None:
    """A uniform integer u below the sum W of the weights gives the number whose share holds u, so
    the law is exact; u from W on is drawn again. Planted: bisect_left -> u at a boundary gives the
    number before, fails; no second draw -> fails.
    """
    law = CellNoise(ratio, reach)
    weights = [ratio ** abs(z) << 32 * (reach - abs(z)) for z in range(-reach, reach + 1)]
    sums = list(accumulate(weights))
    words = -(-(sums[-1] - 1).bit_length() // 64)
    for number, end in enumerate(sums):
        for u in (end - weights[number], end - 1):
            tape = Tape(u.to_bytes(8 * words, "little"))
            assert law.draw(tape) == number
            assert tape.done()
    beyond = sums[-1] if sums[-1].bit_count() > 1 else None
    if beyond is not None:
        tape = Tape(beyond.to_bytes(8 * words, "little"), bytes(8 * words))
        assert law.draw(tape) == 0
        assert tape.done()


def test_drawn_numbers_are_of_the_law() -> None:
    """Chi-square over the numbers that are expected five times or more: a false alarm in 1e-5 of
    seeds. Planted: the geometric part one-sided -> fails.
    """
    law, draws = CellNoise(Q, 27), size(20_000, 400_000)
    entropy = Poured(SeededEntropy("cell noise"))
    found = np.bincount([law.draw(entropy) for _ in range(draws)], minlength=55)
    expected = np.array([float(law.probability(n)) * draws for n in range(55)])
    often = expected >= 5
    seen = np.append(found[often], found[~often].sum())
    wanted = np.append(expected[often], expected[~often].sum())
    assert stats.chisquare(seen, wanted * (seen.sum() / wanted.sum())).pvalue > 1e-5


def test_a_batch_of_noise_is_messages_of_every_cell() -> None:
    """As many in each cell as its own draw says, each a message that a device could have sent.
    Planted: one draw for all cells -> equal numbers, fails; cells from 1 on -> fails.
    """
    mechanism, entropy = made(), SeededEntropy("added")
    counts = []
    for _ in range(size(200, 2_000)):
        messages = mechanism.added(entropy)
        rows = np.frombuffer(b"".join(messages), np.uint8).reshape(-1, mechanism.report_size)
        assert mechanism.valid(rows).all()
        assert len(messages) <= mechanism.most_added == 2 * 4 * 27
        counts.append(np.bincount(rows[:, 0], minlength=4))
    table = np.array(counts)
    error = mechanism.expected_stderr(1) / math.sqrt(len(table))
    assert np.abs(table.mean(axis=0) - 27).max() < 5 * error
    assert np.abs(np.corrcoef(table.T) - np.eye(4)).max() < 5 / math.sqrt(len(table))


def test_a_device_sends_its_cell_and_draws_nothing() -> None:
    mechanism, nothing = made(), Tape()
    assert isinstance(mechanism, Several)
    assert not isinstance(mechanism, Noisy)
    assert [mechanism.randomize_one(v, nothing) for v in range(4)] == [
        (bytes([v]),) for v in range(4)
    ]
    bundles = mechanism.randomize(np.arange(4), nothing)
    assert bundles.rows.tolist() == [[0], [1], [2], [3]]
    assert bundles.sizes.tolist() == [1] * 4
    assert (mechanism.messages, fewest_messages(mechanism), mechanism.least_devices) == (1, 0, 1)
    assert mechanism.epsilon0 == math.inf
    wide = made(domain=Categories(tuple(f"c{n}" for n in range(999))))
    assert wide.randomize_one(999, nothing) == ((999).to_bytes(2, "big"),)
    assert wide.randomize(np.array([999]), nothing).rows.tobytes() == (999).to_bytes(2, "big")
    for bad in (-1, 4, True):
        with pytest.raises(ShoalError):
            mechanism.randomize_one(bad, nothing)


def test_counts_are_unbiased_and_intervals_hold_the_truth() -> None:
    """Mean, variance and coverage of every cell over many batches of one device; a false alarm in
    1e-5 of seeds. Planted: the mean not subtracted; half of it -> fails.
    """
    mechanism, entropy, batches = made(), SeededEntropy("counts"), size(300, 3_000)
    off, inside = [], 0
    truth = np.array([1, 0, 0, 0])
    for _ in range(batches):
        sent = [*mechanism.added(entropy), bytes([0])]
        rows = np.frombuffer(b"".join(sent), np.uint8).reshape(-1, 1)
        found = mechanism.estimate(mechanism.tally(rows), 1)
        off.append(found.values - truth)
        inside += int(((found.ci_low <= truth) & (truth <= found.ci_high)).sum())
    errors = np.array(off)
    expected = mechanism.expected_stderr(1)
    assert expected == pytest.approx(2.799, abs=5e-4)
    assert np.abs(errors.mean(axis=0)).max() < 5 * expected / math.sqrt(batches)
    assert errors.std() == pytest.approx(expected, rel=5 / math.sqrt(4 * batches))
    share = inside / (4 * batches)
    assert share > 0.95 - 5 * math.sqrt(0.95 * 0.05 / (4 * batches))


@for_each(
    "parameters",
    [
        {"k": 4, "q": 0, "reach": 27},
        {"k": 4, "q": 1 << 32, "reach": 27},
        {"k": 4, "q": Q, "reach": 0},
        {"k": 4, "q": Q, "reach": 1025},
        {"k": 5, "q": Q, "reach": 27},
        {"k": 4, "q": Q},
        {"k": 4, "q": Q, "reach": 27, "shares": 1},
    ],
)
def test_integers_that_do_not_fit_are_refused(parameters: dict[str, int]) -> None:
    with pytest.raises(ShoalError) as refused:
        create(MechanismSpec.of("shuffler_noise", **parameters), LABELS)
    assert refused.value.kind is Kind.INVALID


def test_more_noise_than_a_shuffler_seals_is_refused() -> None:
    cells = LIMITS.noise_rows // 54 + 1
    many = Categories(tuple(f"c{n}" for n in range(cells - 1)))
    with pytest.raises(ShoalError, match="1,048,576 are the most"):
        made(domain=many)
    fits = Categories(tuple(f"c{n}" for n in range(cells - 2)))
    assert made(domain=fits).most_added <= LIMITS.noise_rows


def test_yes_no_is_two_cells() -> None:
    assert made(domain=YesNo()).labels == YesNo().labels
