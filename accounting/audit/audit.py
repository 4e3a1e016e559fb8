"""Measure from outside what a randomizer and a shuffler really give away, and compare it with what
is claimed.

Many trials of one and the same fleet are run twice: the victim answers x in one series, x' in the
other, everybody else as before. If a release is (epsilon, delta), every event S of what the
analyzer sees has P_x(S) <= e^epsilon P_x'(S) + delta, both ways. So with p_low below P_x(S) and
q_high above P_x'(S),

    (p_low - delta) / q_high > e^epsilon      refutes epsilon,

and ln((p_low - delta) / q_high) is the largest epsilon refuted:
``AuditResult.epsilon_measured_lower``. An audit can convict, never acquit: a value far below the
claim may only say that the event was a poor one. Attacks on local randomizers in this form:
Arcolezi, Gambs, "Revealing the True Cost of Locally Differentially Private Protocols: An Auditing
Perspective", PETS 2024.

**One event, chosen beforehand.** Statistics of the view (``statistics``) are taken in all trials.
The first half of the trials trains: statistic, threshold, side and direction with the best
(approximate) score are chosen there. The second half is looked at once, for that event. Nothing is
adjusted afterwards, so the false-alarm rate is that of two confidence limits, one each at half of
it.

**Limits.** Clopper, Pearson, Biometrika 1934: the exact limits of a binomial probability, here by
bisection on the binomial tail (``binomial.pmf``, 1e-11 relative) with MARGIN = 1e-9 of the tail and
the truncated mass added, and the safe end returned: the lower limit errs down, the upper one up. So
the coverage is at least the one stated at every probability, for any number of trials.

**The statistics.** When the others all answer z, the density of the histogram with respect to n
draws from R(z) is the mean of R(y_i | x) / R(y_i | z) (module ``datasets``), so log(sum of R(y_i |
x)/R(y_i | z)) - log(the same for x') is the best statistic there is (Neyman, Pearson) *if
randomizer and shuffler are honest*. Others look for what should not be there: how often x and x'
occur (a true report sent beside leaves none of them absent), and what stands first and last (a
shuffle that moves nothing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeAlias

from shoal.accounting.certificate import check_n
from shoal.accounting.numerics.binomial import Floats, Ints, half_width, pmf
from shoal.accounting.numerics.curve import MARGIN
from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy

FALSE_ALARM = 1e-6
FEWEST_TRIALS = 100
# Reports randomized at once: 8 MiB of 64-bit words.
_BLOCK = 1 << 20
# Of a bisection to ten digits, from 1 down to the smallest error.
_MOST_STEPS = 400

Views = Callable[[int, int], Mapping[str, Floats]]
"""views(which, trials): named statistics, float64[trials] each, of ``trials`` fresh and independent
views in which the victim gives its first answer (which = 0) or its second (1). The names are the
same in every call.
"""

Shuffle: TypeAlias = "Callable[[NDArray[np.int64], Entropy], NDArray[np.int64]]"
"""int64[trials, reports] -> the same reports of every row, in another order."""


class AttackedRandomizer(Protocol):
    """The part of a mechanism that is attacked: ``shoal.mechanisms.Mechanism`` fits."""

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, messages, report_size] from cells int64[n]; a report is its cell, unsigned
        big-endian.
        """
        ...


@dataclass(frozen=True, slots=True)
class Distinguisher:
    """``statistic`` >= ``threshold`` (or <=, if not ``above``), more probable when the victim gives
    answer ``likelier`` (0 or 1).
    """

    statistic: str
    above: bool
    threshold: float
    likelier: int

    def happens(self, statistics: Mapping[str, Floats]) -> NDArray[np.bool_]:
        """bool[trials]."""
        values = statistics[self.statistic]
        return (
            np.greater_equal(values, self.threshold)
            if self.above
            else np.less_equal(values, self.threshold)
        )

    def __str__(self) -> str:
        return f"{self.statistic} {'>=' if self.above else '<='} {self.threshold:.6g}"


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What was measured. ``epsilon_measured_lower`` is refuted at ``delta`` with probability of
    error at most ``false_alarm``.

    ``trials``: per answer, those that count (the second half). ``hits_likelier`` and ``hits_other``
    of them showed ``event`` for the answer that makes it likelier, and for the other. ``claimed``:
    the epsilon that was promised at ``delta``.
    """

    epsilon_measured_lower: float
    claimed: float
    delta: float
    false_alarm: float
    event: Distinguisher
    trials: int
    hits_likelier: int
    hits_other: int

    @property
    def confidence(self) -> float:
        """1 - ``false_alarm``: a claim that is true is left standing with at least this
        probability.
        """
        return 1.0 - self.false_alarm

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted."""
        return self.epsilon_measured_lower > self.claimed

    def to_json(self) -> dict[str, float | int | str | bool]:
        """The stable machine shape: what ``shoal audit --json`` prints of one attack."""
        return {
            "epsilon_measured_lower": self.epsilon_measured_lower,
            "epsilon_claimed": self.claimed,
            "refuted": self.refuted,
            "delta": self.delta,
            "confidence": self.confidence,
            "event": str(self.event),
            "trials": self.trials,
            "hits_likelier": self.hits_likelier,
            "hits_other": self.hits_other,
        }


def lower_limit(hits: int, trials: int, error: float) -> float:
    """Clopper and Pearson's lower limit: the largest p with P(Bin(trials, p) >= hits) <= error.
    Direction: errs down.

    0 <= hits <= trials, trials >= 1, 0 < error < 1. The probability that it exceeds the true one is
    at most ``error``.
    """
    _check_counts(hits, trials, error)
    if hits == 0:
        return 0.0
    low, high = 0.0, hits / trials
    for _ in range(_MOST_STEPS):
        middle = (low + high) / 2.0
        if high - low <= 1e-10 * high:
            break
        if _at_least(hits, trials, middle, 1.0 - middle, error) <= error:
            low = middle
        else:
            high = middle
    return low


def upper_limit(hits: int, trials: int, error: float) -> float:
    """The smallest p with P(Bin(trials, p) <= hits) <= error; as ``lower_limit``. Direction: errs
    up.
    """
    _check_counts(hits, trials, error)
    if hits == trials:
        return 1.0
    low, high = hits / trials, 1.0
    for _ in range(_MOST_STEPS):
        middle = (low + high) / 2.0
        if high - low <= 1e-10 * high:
            break
        if _at_least(trials - hits, trials, 1.0 - middle, middle, error) <= error:
            high = middle
        else:
            low = middle
    return high


def _check_counts(hits: int, trials: int, error: float) -> None:
    """Raises INVALID for counts or an error that no confidence limit is made of."""
    if not (0 <= hits <= trials and trials >= 1 and 0.0 < error < 1.0):
        raise ShoalError(
            Kind.INVALID,
            "a confidence limit wants 0 <= hits <= trials, trials >= 1 and 0 < error < 1",
        )


def _at_least(hits: int, trials: int, p: float, q: float, error: float) -> float:
    """P(Bin(trials, p) >= hits), moved up: what lies beyond the window is at most 1e-12 of
    ``error`` and is added.
    """
    if p <= 0.0 or q <= 0.0:
        return float(q <= 0.0)
    rest = error * 1e-12
    end = min(
        trials, max(hits, math.ceil(trials * p + float(half_width(trials, p, q, math.log(rest)))))
    )
    total = float(np.sum(pmf(np.arange(hits, end + 1, dtype=np.int64), trials, p, q)))
    return total * (1.0 + MARGIN) + rest


def measured_lower(
    hits_likelier: int, hits_other: int, trials: int, delta: float, false_alarm: float
) -> float:
    """ln((p_low - delta) / q_high), 0 if that is not positive. Direction: errs down."""
    p = lower_limit(hits_likelier, trials, false_alarm / 2.0) - delta
    q = upper_limit(hits_other, trials, false_alarm / 2.0)
    if p <= q:
        return 0.0
    return max(0.0, math.log(p / q) - 1e-12)


def audit(
    views: Views,
    claimed: float,
    delta: float,
    trials: int,
    *,
    false_alarm: float = FALSE_ALARM,
    at_once: int = 4096,
    progress: Callable[[int], None] | None = None,
) -> AuditResult:
    """Attack ``views`` with ``trials`` views per answer, half of them to choose the event, and
    compare with ``claimed``.

    ``delta`` in [0, 1), ``trials`` >= 100, ``false_alarm`` in (0, 1): if the views are (claimed,
    delta)-private, the probability of ``refuted`` is at most that. ``progress`` is called with the
    number of views made since the last call. Raises ShoalError CONFIG for bad numbers.

    Direction: ``epsilon_measured_lower`` errs down, by exact confidence limits. What it proves is
    about the randomizer that was run, not about a description of it. A high value convicts, a low
    one acquits nobody.
    """
    check_audit(delta, trials, false_alarm)
    half = trials // 2
    training = [_gather(views, which, half, at_once, progress) for which in (0, 1)]
    event = _choose(training[0], training[1], delta, false_alarm)
    rest, hits = trials - half, [0, 0]
    for which in (0, 1):
        for count in _portions(rest, at_once):
            hits[which] += int(np.count_nonzero(event.happens(views(which, count))))
            if progress:
                progress(count)
    likelier, other = hits[event.likelier], hits[1 - event.likelier]
    return AuditResult(
        epsilon_measured_lower=measured_lower(likelier, other, rest, delta, false_alarm),
        claimed=claimed,
        delta=delta,
        false_alarm=false_alarm,
        event=event,
        trials=rest,
        hits_likelier=likelier,
        hits_other=other,
    )


def check_audit(delta: float, trials: int, false_alarm: float = FALSE_ALARM) -> None:
    """Raises ShoalError CONFIG for numbers that ``audit`` does not take."""
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < FEWEST_TRIALS:
        raise ShoalError(
            Kind.CONFIG,
            f"trials must be a whole number of at least {FEWEST_TRIALS}, got {trials}: 100000 is a "
            "good start",
        )
    if not 0.0 <= delta < 1.0:
        raise ShoalError(
            Kind.CONFIG,
            f"delta must be at least 0 and below 1, got {delta}: an audit can see 1e-3, hardly "
            "1e-6",
        )
    if not 0.0 < false_alarm < 1.0:
        raise ShoalError(
            Kind.CONFIG,
            f"the false-alarm rate must lie strictly between 0 and 1, got {false_alarm}: 1e-6 is "
            "usual",
        )


def _portions(total: int, size: int) -> Iterator[int]:
    """``total`` in parts of ``size``, the last one smaller."""
    for start in range(0, total, size):
        yield min(size, total - start)


def _gather(
    views: Views, which: int, trials: int, at_once: int, progress: Callable[[int], None] | None
) -> dict[str, Floats]:
    """``trials`` views, made ``at_once`` at a time: the named statistics, float64[trials] each."""
    parts: list[Mapping[str, Floats]] = []
    for count in _portions(trials, at_once):
        parts.append(views(which, count))
        if progress:
            progress(count)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _choose(
    first: Mapping[str, Floats], second: Mapping[str, Floats], delta: float, false_alarm: float
) -> Distinguisher:
    """The event with the best approximate score in the training trials; any choice is sound, this
    one is meant to be strong.
    """
    best, best_score = Distinguisher(next(iter(first)), True, 0.0, 0), -math.inf
    # About as many standard deviations as the exact limits will take off later: an event that
    # happens too seldom to be judged is then not chosen.
    z = math.sqrt(2.0 * math.log(2.0 / false_alarm))
    for name in first:
        sorted_first, sorted_second = np.sort(first[name]), np.sort(second[name])
        thresholds = np.unique(np.concatenate([sorted_first, sorted_second]))
        trials = len(sorted_first)
        for above in (True, False):
            counts = [
                _counts(values, thresholds, above) for values in (sorted_first, sorted_second)
            ]
            for likelier in (0, 1):
                low = _wilson(counts[likelier], trials, -z) - delta
                score = np.log(np.maximum(low, 1e-300)) - np.log(
                    _wilson(counts[1 - likelier], trials, z)
                )
                at = int(np.argmax(score))
                if score[at] > best_score:
                    best, best_score = (
                        Distinguisher(name, above, float(thresholds[at]), likelier),
                        float(score[at]),
                    )
    return best


def _counts(ordered: Floats, thresholds: Floats, above: bool) -> Ints:
    """How many of the sorted values are >= (or <=) each threshold."""
    if above:
        return np.asarray(
            len(ordered) - np.searchsorted(ordered, thresholds, side="left"), dtype=np.int64
        )
    return np.asarray(np.searchsorted(ordered, thresholds, side="right"), dtype=np.int64)


def _wilson(hits: Ints, trials: int, z: float) -> Floats:
    """Wilson's approximate limit (lower for z < 0), never 0: used to choose an event, never to
    judge one.
    """
    share = hits / trials
    spread = z * np.sqrt(share * (1.0 - share) / trials + z * z / (4.0 * trials * trials))
    return np.maximum((share + z * z / (2.0 * trials) + spread) / (1.0 + z * z / trials), 1e-300)


def permute(reports: NDArray[np.int64], entropy: Entropy) -> NDArray[np.int64]:
    """Every row in a uniformly random order: sorted by independent 64-bit words (equal words: below
    reports^2 / 2^65).
    """
    keys = entropy.words(reports.size).reshape(reports.shape)
    return np.take_along_axis(reports, np.argsort(keys, axis=1, kind="stable"), axis=1)


def shuffled_views(
    randomizer: AttackedRandomizer,
    law: LocalPrivacy,
    n: int,
    entropy: Entropy,
    *,
    answers: tuple[int, int] = (0, 1),
    others: int | None = None,
    shuffle: Shuffle = permute,
) -> Views:
    """Views of ``n`` reports of a real randomizer: the victim's answer is ``answers[which]``,
    everybody else's ``others``.

    ``law`` is the law that the randomizer claims (a ``KaryLaw`` or ``FiniteLaw``; rows are cells):
    only the statistics depend on it, so a randomizer that departs from it is attacked all the same.
    ``others``: a cell; by default the first that is not an answer, answers[1] where there is none.
    The victim comes last before the shuffle. Raises INVALID for cells outside the law.
    """
    check_n(n)
    if not isinstance(law, KaryLaw | FiniteLaw):
        raise ShoalError(
            Kind.INVALID, f"an audit wants a KaryLaw or a FiniteLaw, not a {type(law).__name__}"
        )
    k = law.k if isinstance(law, KaryLaw) else len(law.rows)
    crowd = crowd_of(k, answers, others)
    first_row, second_row, crowd_row = (_row(law, cell) for cell in (*answers, crowd))
    weights = first_row / crowd_row, second_row / crowd_row
    single = np.log(first_row) - np.log(second_row)
    outputs = np.arange(len(single))
    marks = outputs == answers[0], outputs == answers[1]

    def views(which: int, trials: int) -> dict[str, Floats]:
        parts = [statistics(cells, marks, weights, single) for cells in drawn(which, trials)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def drawn(which: int, trials: int) -> Iterator[NDArray[np.int64]]:
        for count in _portions(trials, max(1, _BLOCK // n)):
            values = np.full((count, n), crowd, dtype=np.int64)
            values[:, -1] = answers[which]
            reports = randomizer.randomize(values.reshape(-1), entropy)
            cells = cells_of(reports)
            if int(cells.max()) >= len(single):
                raise ShoalError(
                    Kind.INVALID,
                    "a report of the randomizer names no output of the law that it claims",
                )
            yield shuffle(cells.reshape(count, -1), entropy)

    return views


def cells_of(reports: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Big-endian cells of uint8[..., report_size]."""
    cells = np.zeros(reports.shape[:-1], dtype=np.int64)
    for byte in range(reports.shape[-1]):
        cells = cells * 256 + reports[..., byte]
    return cells


def crowd_of(k: int, answers: tuple[int, int], others: int | None) -> int:
    """The cell that everybody else answers: ``others``, or the first that is not an answer,
    answers[1] where there is none.

    Raises INVALID for cells outside 0 to k - 1, or two equal answers.
    """
    crowd = (
        others
        if others is not None
        else next((cell for cell in range(min(k, 3)) if cell not in answers), answers[1])
    )
    if not all(0 <= cell < k for cell in (*answers, crowd)) or answers[0] == answers[1]:
        raise ShoalError(
            Kind.INVALID, f"the answers are cells 0 to {k - 1}, and the victim's two are different"
        )
    return crowd


def statistics(
    outputs: NDArray[np.int64],
    marks: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    weights: tuple[Floats, Floats],
    single: Floats,
) -> dict[str, Floats]:
    """Statistics of int64[trials, reports], in the order in which the analyzer has them: numbers of
    outputs, or of classes of outputs.

    By output: ``marks``, whether it says the first answer, and the second; ``weights``, how likely
    it is under each, against the crowd's; ``single``, the logarithm of the first over the second.
    """
    # Rounded, so that one histogram gives one value in whatever order its terms were added.
    ratio = np.log(weights[0][outputs].sum(axis=1)) - np.log(weights[1][outputs].sum(axis=1))
    return {
        "log likelihood ratio": np.round(ratio, 9),
        "reports of the first answer": np.count_nonzero(marks[0][outputs], axis=1).astype(
            np.float64
        ),
        "reports of the second answer": np.count_nonzero(marks[1][outputs], axis=1).astype(
            np.float64
        ),
        "the first report": np.round(single[outputs[:, 0]], 9),
        "the last report": np.round(single[outputs[:, -1]], 9),
    }


def _row(law: KaryLaw | FiniteLaw, x: int) -> Floats:
    """float64[outputs]: the law of one report under input x."""
    if isinstance(law, FiniteLaw):
        return np.array([float(Fraction(weight, law.total)) for weight in law.rows[x]])
    row = np.full(law.k, float(Fraction(law.other, law.total)))
    row[x] = float(Fraction(law.same, law.total))
    return row
