"""Attacks on mechanisms of several messages: what is left of a batch when the messages of all its
devices are mixed, and what one device's messages tell when they are seen together.

Real ``randomize`` of ``n`` devices, the victim the last of each trial. Nothing is known of the
order: ``audit`` gets statistics of the multiset alone.

*A true message among noise* (``Noisy``): how often each message of the two answers' cells came.
Noise of other cells is independent of them, so it says nothing. Of Poisson noise the logarithm of
the ratio is the best statistic that there is; of singles nearly the difference. Of a count the
messages are two, yes and no. Of a hierarchy they are added over its levels, for answers that share
no block, and of marginals over all of them, for records that differ everywhere.

*A number in shares* (``SplitMix``): their sum modulo 2^bits, nearest to 0, and how many of them are
negative there: what they may tell beyond their sum.

*Noise from the shuffler* (``ShufflerNoise``): it is added here as the shuffler adds it, and the
answers' cells are counted.

Any statistics are sound (``audit``); these are meant to be strong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shoal.accounting.audit.audit import Views, cells_of, crowd_of
from shoal.accounting.certificate import check_n
from shoal.accounting.numerics.binomial import Floats, Ints
from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.maps.blocks import MapBlocks
from shoal.mechanisms.several.marginals import AllMarginals
from shoal.mechanisms.several.noise_law import Truth
from shoal.mechanisms.several.protocol import Noisy, Several
from shoal.mechanisms.several.ranges import Ranges
from shoal.mechanisms.several.shuffler_noise import ShufflerNoise
from shoal.mechanisms.several.split_mix import SplitMix


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """Of ``trials`` batches of ``n`` devices: int64[messages of all] each. ``numbers``: what they
    say, as unsigned numbers or, of shares, nearest to 0; ``devices``: from whom, trial t's are
    t n .. t n + n - 1, the victim the last. What the shuffler adds is put to the first.
    """

    numbers: Ints
    devices: Ints


Seen = Callable[[Messages], Messages]
"""The messages that the analyzer sees, out of those that were sent."""


def all_of_them(messages: Messages) -> Messages:
    """An honest mixture."""
    return messages


def several_views(
    made: Several,
    cells: int,
    n: int,
    entropy: Entropy,
    *,
    answers: tuple[int, int],
    seen: Seen = all_of_them,
) -> Views:
    """Views of the messages of ``n`` devices for ``audit``: the victim answers ``answers[which]``,
    everybody else a third cell where there is one; of numbers in shares the first answer, of a
    hierarchy a cell in the middle, which shares no block with the answers.

    ``cells``: of the mechanism's domain. All views of a call are held at once. Raises INVALID for
    cells outside the domain, and for a mechanism that is not known here.
    """
    check_n(n)
    of_shares = isinstance(made, SplitMix)
    of_levels = isinstance(made, Ranges | MapBlocks)
    others = answers[0] if of_shares else cells // 2 if of_levels else None
    crowd = crowd_of(cells, answers, others)
    statistics = several_statistics(made, answers)

    def views(which: int, trials: int) -> dict[str, Floats]:
        values = np.full((trials, n), crowd, dtype=np.int64)
        values[:, -1] = answers[which]
        bundles = made.randomize(values.reshape(-1), entropy)
        numbers = numbers_of(made, bundles.rows)
        devices = np.repeat(np.arange(trials * n), bundles.sizes)
        if isinstance(made, ShufflerNoise):
            numbers, devices = _with_noise(made, numbers, devices, trials, n, entropy)
        found = seen(Messages(numbers, devices))
        return statistics(found.numbers, found.devices // n, trials)

    return views


def attacked_answers(made: Several, cells: int) -> tuple[int, int]:
    """The two cells to attack: a number's ends, which are furthest from each other and share no
    block of a hierarchy; records that differ in every attribute; the first two of others, where
    all pairs are alike.
    """
    if isinstance(made, AllMarginals):
        return 0, cells - 1
    return (0, cells - 2) if isinstance(made, SplitMix | Ranges | MapBlocks) else (0, 1)


def numbers_of(made: Several, rows: NDArray[np.uint8]) -> Ints:
    """``Messages.numbers`` of uint8[messages, report_size]."""
    numbers = cells_of(rows)
    return _centred(numbers, made.bits) if isinstance(made, SplitMix) else numbers


Statistics = Callable[[Ints, Ints, int], dict[str, Floats]]
"""Of messages' numbers and the trials that they belong to, in so many trials."""


def several_statistics(made: Several, answers: tuple[int, int]) -> Statistics:
    """What ``several_views`` looks at in the messages of mixed batches. Raises INVALID for a
    mechanism that is not known here.
    """
    if isinstance(made, SplitMix):
        return lambda numbers, trial, trials: _of_shares(numbers, trial, trials, made.bits)
    if not isinstance(made, Noisy | ShufflerNoise):
        raise ShoalError(Kind.INVALID, f"no attack on {made.name} is known")
    signed = isinstance(made, Noisy) and made.noise.truth is Truth.CELL and made.noise.signed
    if signed:
        return lambda numbers, trial, trials: _of_signed_cells(numbers, trial, trials, answers)
    paths = [_truths(made, cell) for cell in answers]
    return lambda numbers, trial, trials: _of_cells(numbers, trial, trials, paths)


def _truths(made: Several, cell: int) -> tuple[int, ...]:
    """The true messages of an answer."""
    if isinstance(made, Ranges):
        return made.tree.path(cell)
    if isinstance(made, MapBlocks):
        return made.grid.path(cell)
    return made.record.cells_of(cell) if isinstance(made, AllMarginals) else (cell,)


def _of_signed_cells(
    numbers: Ints, trial: Ints, trials: int, answers: tuple[int, int]
) -> dict[str, Floats]:
    """+ of a cell is its number doubled, - the next."""
    first, second = (
        _came(2 * cell, numbers, trial, trials) - _came(2 * cell + 1, numbers, trial, trials)
        for cell in answers
    )
    return {"difference": first - second, "first": first, "second": second}


def _of_cells(
    numbers: Ints, trial: Ints, trials: int, paths: Sequence[tuple[int, ...]]
) -> dict[str, Floats]:
    """``paths``: the true messages of the two answers, in as many tables."""
    came = [[_came(cell, numbers, trial, trials) for cell in path] for path in paths]
    one, two = (np.sum(each, axis=0) for each in came)
    first, second = (np.sum([np.log(each + 0.5) for each in path], axis=0) for path in came)
    return {"difference": one - two, "ratio": first - second, "first": one, "second": two}


def _came(number: int, numbers: Ints, trial: Ints, trials: int) -> Floats:
    """float64[trials]: how often."""
    return np.bincount(trial[numbers == number], minlength=trials).astype(np.float64)


def _with_noise(
    made: ShufflerNoise, numbers: Ints, devices: Ints, trials: int, n: int, entropy: Entropy
) -> tuple[Ints, Ints]:
    """The messages of all trials, and those that the shuffler adds to each."""
    added = [made.added(entropy) for _ in range(trials)]
    more = np.array([int.from_bytes(each, "big") for one in added for each in one], dtype=np.int64)
    first = np.repeat(np.arange(trials) * n, [len(one) for one in added])
    return np.concatenate([numbers, more]), np.concatenate([devices, first])


def _of_shares(numbers: Ints, trial: Ints, trials: int, bits: int) -> dict[str, Floats]:
    total = np.zeros(trials, dtype=np.int64)
    np.add.at(total, trial, numbers)
    negative = np.bincount(trial[numbers < 0], minlength=trials)
    return {
        "sum": _centred(total, bits).astype(np.float64),
        "negative": negative.astype(np.float64),
    }


def _centred(numbers: Ints, bits: int) -> Ints:
    """The same modulo 2^bits, nearest to 0."""
    unused = 64 - bits
    return np.asarray((numbers << unused) >> unused)
