"""Attacks on every registered randomizer: which statistics of a view ``audit`` looks at. Any would
be sound; these are meant to be strong.

*Reports that are cells of a table* (``KaryLaw``, ``FiniteLaw``): ``audit.shuffled_views``, which
knows every output's probabilities.

*Reports that support cells.* Too many outputs to list, but how likely one is under an input depends
on whether it supports that input alone: it is ``law.max_ratio`` times as likely with as without
(``mechanisms.parts.laws``). So which of x, x' and z it supports is all that the likelihood ratio of
a histogram needs, and a report is cut down to these three bits, by the mechanism's own
``supports``.

*Anything else*: the mechanism's own estimates of how many devices answered x and x', one tally per
view. That is weaker and slower, and needs no knowledge of the reports: what any other randomizer
gets.

Whatever statistics are looked at, a claim that is true is refuted with probability ``false_alarm``
at most: an event is chosen on other trials than those that judge it. A weak attack only fails to
convict.
"""

from __future__ import annotations

from shoal.accounting.audit.audit import (
    Shuffle,
    Views,
    crowd_of,
    permute,
    shuffled_views,
    statistics,
)
from shoal.accounting.certificate import check_n
from shoal.accounting.numerics.binomial import Floats
from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.base import Mechanism, Supporting
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy

_BYTES = 1 << 23  # of reports that are randomized at once


def views_of(
    mechanism: Mechanism,
    cells: int,
    n: int,
    entropy: Entropy,
    *,
    answers: tuple[int, int] = (0, 1),
    others: int | None = None,
    shuffle: Shuffle = permute,
) -> Views:
    """Views of ``n`` reports of any mechanism for ``audit``: the victim answers ``answers[which]``,
    everybody else ``others``.

    ``cells``: of the mechanism's domain. ``others``: a cell; by default the first that is not an
    answer, answers[1] where there is none. The victim comes last before the shuffle. Raises INVALID
    for cells outside the domain.
    """
    law = mechanism.privacy()
    if isinstance(law, KaryLaw | FiniteLaw):
        return shuffled_views(
            mechanism, law, n, entropy, answers=answers, others=others, shuffle=shuffle
        )
    if not isinstance(mechanism, Supporting):
        return estimate_views(mechanism, cells, n, entropy, answers=answers, others=others)
    check_n(n)
    return _support_views(mechanism, n, entropy, answers, crowd_of(cells, answers, others), shuffle)


def furthest_answers(law: LocalPrivacy) -> tuple[int, int]:
    """The two cells of a table whose reports differ most (in total variation; the first of equals):
    the pair to attack.

    Where cells have an order, neighbours look alike by design and show nothing. (0, 1) for laws
    under which all pairs are alike.
    """
    if not isinstance(law, FiniteLaw):
        return 0, 1
    rows = np.array(law.rows, dtype=np.float64) / law.total
    distances = np.stack([np.abs(rows - each).sum(axis=1) for each in rows]).round(12)
    first, second = divmod(int(distances.argmax()), len(rows))
    return first, second


def _support_views(
    mechanism: Supporting,
    n: int,
    entropy: Entropy,
    answers: tuple[int, int],
    crowd: int,
    shuffle: Shuffle,
) -> Views:
    """Views of reports cut down to three bits: whether each supports the first answer, the second
    and the crowd's. ``patterns`` are the eight combinations; a report's weight under an answer,
    against the crowd's, is ratio^(supports it - supports the crowd's).
    """
    ratio = float(mechanism.privacy().max_ratio)
    patterns = np.arange(8)
    first, second, third = (patterns & 1, patterns >> 1 & 1, patterns >> 2)
    first_weight, second_weight = (
        ratio ** (first - third).astype(np.float64),
        ratio ** (second - third).astype(np.float64),
    )
    single = (first - second) * np.log(ratio)
    marks = (first > second, second > first)
    most = max(1, _BYTES // max(16, mechanism.report_size) // n)

    def views(which: int, trials: int) -> dict[str, Floats]:
        parts = []
        for start in range(0, trials, most):
            rows = _drawn(mechanism, n, min(most, trials - start), crowd, answers[which], entropy)
            seen = np.zeros(len(rows), dtype=np.int64)
            for weight, cell in zip((1, 2, 4), (*answers, crowd), strict=True):
                seen += weight * mechanism.supports(rows, cell)
            shuffled = shuffle(seen.reshape(-1, n * mechanism.messages), entropy)
            parts.append(statistics(shuffled, marks, (first_weight, second_weight), single))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    return views


def estimate_views(
    mechanism: Mechanism,
    cells: int,
    n: int,
    entropy: Entropy,
    *,
    answers: tuple[int, int] = (0, 1),
    others: int | None = None,
) -> Views:
    """As ``views_of``, by the mechanism's own estimates alone, one tally per view: those of the two
    answers' cells, and their difference; where the estimates are not one per cell, the first two.
    The order of a view is not looked at.
    """
    check_n(n)
    crowd = crowd_of(cells, answers, others)

    def views(which: int, trials: int) -> dict[str, Floats]:
        estimates = np.empty((trials, 2))
        for trial in range(trials):
            rows = _drawn(mechanism, n, 1, crowd, answers[which], entropy)
            values = mechanism.estimate(mechanism.tally(rows)).values
            estimates[trial] = (
                values[list(answers)]
                if values.size == cells
                else values[[0, min(1, values.size - 1)]]
            )
        first, second = estimates.round(6).T
        return {
            "the difference of the estimates": (first - second).round(6),
            "the first estimate": first,
            "the second estimate": second,
        }

    return views


def _drawn(
    mechanism: Mechanism, n: int, trials: int, crowd: int, victim: int, entropy: Entropy
) -> NDArray[np.uint8]:
    """uint8[trials * n * messages, report_size]: ``trials`` batches of n reports, the victim's the
    last of each.
    """
    values = np.full((trials, n), crowd, dtype=np.int64)
    values[:, -1] = victim
    return mechanism.randomize(values.reshape(-1), entropy).reshape(-1, mechanism.report_size)
