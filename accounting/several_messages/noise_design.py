"""The least noise of several messages per device that reaches a target.

Whatever is chosen here, the certificate is that of the law which comes out: nothing below has to be
right for it to hold.

*Cancelling noise.* q = e^-s is rounded to a multiple of 2^-32, to the nearest: the law has the q
that is drawn. What a cell's estimate errs by depends on s alone (a variance of 2 q / (1 - q)^2);
the floods buy privacy down to an epsilon of 2 s, so s is below epsilon / 2. The nearer to it, the
more floods: at s = .45 epsilon a cell's standard deviation is 11 % above that of the best central
noise. Floods come in bundles of up to ``largest``: bigger ones want fewer messages in all and more
slots.

*Order.* ``longest``: the smallest whose charge is at most 2 % of delta. Floods with which the exact
law takes 95 % of it. ``slots``: the smallest whose charge with these is at most 3 %. (With several
windows 2 % and 3 % are for all of them.) Then the fewest floods or dummies that fit into what is
left, a multiple of 2^-32; fewer floods lower the charge of the cap. In the end the certificate
itself is asked, and floods are raised until it agrees, at first by 2^-20 of themselves, then by
twice that, and so on: a certificate looks for an epsilon from a few fixed ones downward, and where
delta hardly falls with epsilon (few and large floods) charges may hide the target from it.

*Hidden numbers.* The law that comes out is made once more, with the fewest empties that hide the
numbers of messages (``onlooker``). Or its submissions are full, unless empties come to less than
half as many messages: they want more slots, which every device uploads. A batch wants some number
of empties, whatever its size: so full ones win where few devices take part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache

from shoal.accounting.certificate import check_n
from shoal.accounting.numerics.compound import LARGEST_SUM, highest, tails
from shoal.accounting.numerics.curve import TAIL_SHARE
from shoal.accounting.numerics.search import crossing
from shoal.accounting.several_messages.charges import (
    cells_looked_at,
    full_submissions,
    message_rates,
    singles_beyond,
)
from shoal.accounting.several_messages.messages import check_target, reaches
from shoal.accounting.several_messages.noise import NoiseProtocol, exact_delta
from shoal.accounting.several_messages.onlooker import onlooker, onlooker_delta
from shoal.accounting.several_messages.randomized_truth import RandomizedTruth, inner_target
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.several.noise_law import MOST_SHARES, MOST_SIZE, NoiseLaw, Truth
from shoal.privacy import KaryLaw

UNIT_BITS = 32  # q, floods and dummies are multiples of 2^-32
SHARE_OF_EPSILON = 0.45  # s, unless it is given
_LONGEST_SHARE = 0.02
_SLOTS_SHARE = 0.03
_MOST_EVENTS = 100_000.0  # floods, or dummies, of one cell
_RESOLUTION = 20
_MOST_RAISED = 2
# Of delta, for what the shuffler sees: the cap, and a few floods fewer, have the rest.
_EMPTIES_SHARE = 0.9
_LEAST_EMPTIES = 256
_MOST_EMPTIES = (1 << 20) - 1  # at epsilon 1 some 2^14 are enough, at .5 four times that
_NEARLY = 1.02
# The widest empties, of the longest single, in percent. Longer singles are too rare to tell much,
# and wide empties want slots: at (1, 1e-6), 16 cells and 100,000 devices 102 of them at 64 %, 117
# at 75 %, 147 at 100 %. Half as wide ones are many more, but have room where those have none.
_WIDEST = (65, 50)


def design_cancelling(
    truth: Truth,
    cells: int,
    n_honest: int,
    epsilon: float,
    delta: float,
    *,
    s: float | None = None,
    largest: int | None = None,
    windows: int = 1,
    drawn: KaryLaw | None = None,
) -> NoiseLaw:
    """Singles of e^-``s`` and the fewest floods of sizes up to ``largest`` with which ``n_honest``
    devices reach (epsilon, delta) in one release; with hidden numbers of messages.

    ``s``: .45 ``epsilon`` if not given. ``largest``: 4 if not given, up to epsilon = 1/2 as many as
    4 / epsilon. ``windows``: releases that will be composed at this delta; cut and cap are chosen
    for a share of it. ``drawn``: the law of a true message that is randomized, which saves some
    noise. Raises ShoalError CONFIG for bad numbers and where no such noise is found.
    """
    _check(truth, cells, n_honest, epsilon, delta, windows)
    reached = _reached(epsilon, delta, drawn)
    epsilon, delta = (epsilon, delta) if drawn is None else inner_target(drawn, epsilon, delta)
    s = SHARE_OF_EPSILON * epsilon if s is None else s
    if not 0.0 < s < epsilon / 2.0:
        raise ShoalError(
            Kind.CONFIG,
            f"s must lie between 0 and half of epsilon, got {s:g} for epsilon {epsilon:g}: "
            f"{SHARE_OF_EPSILON} epsilon is usual",
        )
    q = rounded(math.exp(-s))
    if largest is None:
        largest = 4 if epsilon > 0.5 else min(MOST_SIZE, round(4.0 / epsilon))
    if not 1 <= largest <= MOST_SIZE:
        raise ShoalError(
            Kind.CONFIG,
            f"the largest flood is of 1 to {MOST_SIZE} pairs, got {largest}: 4 is usual",
        )
    longest = _longest(q, truth, epsilon, delta / windows)
    shares = min(n_honest, MOST_SHARES)
    start = NoiseLaw(truth, cells, shares, 1, q, longest, Fraction(1), largest)
    bare = _fewest(start, epsilon, delta, "floods", windows, reached)
    full = replace(bare, full=True)
    for percent in _WIDEST:
        among = _with_empties(bare, percent, epsilon, delta / windows)
        if among is None:
            break
        if _slots(among, _slots_charge(epsilon, delta, windows)) > LIMITS.messages:
            continue
        try:
            among = _fewest(among, epsilon, delta, "floods", windows, reached)
        except ShoalError:  # they hide the target by their own charges
            break
        if among.slots <= LIMITS.messages:
            return among
    return full


def _with_empties(law: NoiseLaw, percent: int, epsilon: float, delta: float) -> NoiseLaw | None:
    """``law``, which has none, with the empties with which the shuffler's view is proven at
    (``epsilon``, ``delta``), of sizes up to ``percent`` of the longest single: a whole number of
    them, to 2 % of the least; None where they would come to half of full submissions or more.
    """
    widest = -(-law.longest * percent // 100)
    each = sum(Fraction(1, size) for size in range(1, widest + 1)) / law.shares
    most = min(_MOST_EMPTIES, math.floor((Fraction(law.slots, 2) - law.mean_messages) / each))

    def among(scale: int) -> NoiseLaw:
        return replace(law, empties=Fraction(scale), widest=widest)

    def enough(scale: int) -> bool:
        return onlooker_delta(onlooker(among(scale), delta), epsilon) <= _EMPTIES_SHARE * delta

    if most < _LEAST_EMPTIES or not enough(most):
        return None
    high, low = most, _MOST_EMPTIES + 1
    while low >= most or (low >= _LEAST_EMPTIES and enough(low)):
        high, low = min(low, most), low // 4
    while high > low * _NEARLY + 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return among(high)


def design_dummies(
    cells: int,
    n_honest: int,
    epsilon: float,
    delta: float,
    *,
    windows: int = 1,
    drawn: KaryLaw | None = None,
    tables: int = 1,
) -> NoiseLaw:
    """The fewest Poisson dummies with which ``n_honest`` devices reach (epsilon, delta) in one
    release. ``tables``: true messages of a device, one in each; ``cells``: of all tables, two or
    more of each. ``windows``, ``drawn`` (of one table alone) and raises as ``design_cancelling``.
    """
    _check(Truth.CELL, cells, n_honest, epsilon, delta, windows)
    if not 1 <= tables <= cells // 2 or (drawn is not None and tables > 1):
        raise ShoalError(
            Kind.CONFIG,
            f"{cells} cells are not {tables} tables of two or more, or their true messages are "
            "randomized: give the cells of all tables, and values as they are",
        )
    reached = _reached(epsilon, delta, drawn)
    epsilon, delta = (epsilon, delta) if drawn is None else inner_target(drawn, epsilon, delta)
    shares = min(n_honest, MOST_SHARES)
    start = NoiseLaw(Truth.CELL, cells, shares, tables, dummies=Fraction(1), truths=tables)
    return _fewest(start, epsilon, delta, "dummies", windows, reached)


def _reached(epsilon: float, delta: float, drawn: KaryLaw | None) -> Callable[[NoiseLaw], bool]:
    """Whether the certificate of a law is at most (epsilon, delta)."""

    def holds(law: NoiseLaw) -> bool:
        noise = NoiseProtocol(law)
        protocol = noise if drawn is None else RandomizedTruth(noise, drawn)
        return reaches(protocol, law.shares, epsilon, delta)

    return holds


def _check(
    truth: Truth, cells: int, n_honest: int, epsilon: float, delta: float, windows: int
) -> None:
    """Raises CONFIG for numbers that are none of a design."""
    check_target(epsilon, delta)
    check_n(n_honest)
    if windows < 1:
        raise ShoalError(
            Kind.CONFIG, f"windows must be at least 1, got {windows}: give how many are composed"
        )
    if (cells != 1) if truth is Truth.SIGN else (cells < 2):
        raise ShoalError(
            Kind.CONFIG,
            f"a histogram has two cells or more and a signed count has one, got {cells}: give the "
            "size of the domain",
        )


def rounded(value: float) -> Fraction:
    """The nearest multiple of 2^-32 that is above 0; below 1 for a ``value`` below 1."""
    unit = 1 << UNIT_BITS
    weight = max(1, round(value * unit))
    return Fraction(min(weight, unit - 1) if value < 1.0 else weight, unit)


def _longest(q: Fraction, truth: Truth, epsilon: float, delta: float) -> int:
    """The smallest size at which singles may be cut for 2 % of delta."""
    most = _LONGEST_SHARE * delta / ((1.0 + math.exp(epsilon)) * 2.0 * cells_looked_at(truth))
    if singles_beyond(q, MOST_SIZE) > most:
        raise ShoalError(
            Kind.CONFIG,
            f"noise for epsilon {epsilon:g} at delta {delta:g} wants singles of more than "
            f"{MOST_SIZE} messages: give a larger target, or take dummies",
        )
    low, high = 0, MOST_SIZE
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if singles_beyond(q, middle) <= most else (middle, high)
    return high


def _fewest(
    start: NoiseLaw,
    epsilon: float,
    delta: float,
    what: str,
    windows: int,
    reached: Callable[[NoiseLaw], bool],
) -> NoiseLaw:
    """``start`` with the fewest floods or dummies (``what``) and its slots, so that it is
    ``reached``.
    """

    def at(amount: Fraction, slots: int = start.truths) -> NoiseLaw:
        return (
            replace(start, floods=amount, slots=slots)
            if what == "floods"
            else replace(start, dummies=amount, slots=slots)
        )

    @cache  # both searches begin alike
    def exact(amount: float) -> float:
        return exact_delta(at(rounded(amount)), epsilon, delta) if amount > 0.0 else 1.0

    cut = _LONGEST_SHARE if start.signed else 0.0
    enough = _least(exact, (1.0 - cut - _SLOTS_SHARE) * delta, epsilon, what)
    factor = 1.0 + math.exp(epsilon)
    slots = _slots(at(rounded(enough)), _slots_charge(epsilon, delta, windows))
    charge = full_submissions(at(rounded(enough), slots), start.shares, delta * TAIL_SHARE)
    if start.signed:
        looked = 2.0 * cells_looked_at(start.truth)
        charge += looked * singles_beyond(start.singles, start.longest)
    weight = math.ceil(_least(exact, delta - factor * charge, epsilon, what) * (1 << UNIT_BITS))
    fewest, step = weight, (weight >> _RESOLUTION) + 1
    while not reached(law := at(Fraction(weight, 1 << UNIT_BITS), slots)):
        weight, step = weight + step, 2 * step
        if weight > _MOST_RAISED * fewest:
            raise ShoalError(
                Kind.CONFIG,
                f"no certificate finds epsilon {epsilon:g} with so few {what} in a cell: give a "
                "smaller size of floods, a smaller s or a larger target",
            )
    return law


def _least(exact: Callable[[float], float], delta: float, epsilon: float, what: str) -> float:
    """The smallest amount at which the curve ``exact`` is at most ``delta``; errs upward."""
    top = 1.0
    while exact(top) > delta:
        top *= 2.0
        if top > _MOST_EVENTS:
            raise ShoalError(
                Kind.CONFIG,
                f"{_MOST_EVENTS:g} {what} in a cell do not reach epsilon {epsilon:g}: give a "
                "smaller s, a larger size of floods, or a larger target",
            )
    return crossing(exact, delta, top)[1]


def _slots_charge(epsilon: float, delta: float, windows: int) -> float:
    """With which probability the cap may be met, by any device of one window."""
    return _SLOTS_SHARE * delta / windows / (1.0 + math.exp(epsilon))


def _slots(law: NoiseLaw, most: float) -> int:
    """The fewest messages of a submission with which all of the law's shares together exceed them
    with probability ``most`` at most.
    """
    each = most / law.shares
    rates, log_tail = message_rates(law), math.log(each * TAIL_SHARE)
    if highest(rates, log_tail) > LARGEST_SUM:
        raise ShoalError(
            Kind.CONFIG,
            f"{law.cells} cells want {float(law.mean_messages):.3g} messages of each device: give "
            "fewer cells, more devices or a larger target",
        )
    chances = tails(rates, 1, log_tail)
    room = next(index for index, chance in enumerate(chances.tolist()) if chance <= each)
    return law.truths + room
