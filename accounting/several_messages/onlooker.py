"""What a shuffler sees that reads the release: how many messages each device sent, and the totals.

A release shows of each cell the messages of + less those of -, D. That alone is private. But an
event of size j makes a device's number larger by j (a flood by 2 j), and D is a sum of singles: who
knows the numbers knows much of it. *Empties* (``NoiseLaw``) are events that make a device's number
larger and leave D alone. Where enough of all sizes come, single, flood and nothing look alike.

**Given away.** For n_honest >= shares honest devices, take ``shares`` of them (further ones only
add: post-processing), and compare with a batch in which nobody's noise is left out (``charges``:
full_submissions). Give the onlooker more than it sees: the size of every event of noise, by device,
and which events are singles of the cells that the protected device's answer can't change (all but
two; they are independent of the rest). What is left are events of each size j: singles of the one
or two cells looked at, r_j = q^j / j for each cell and sign, and decoys, d_j: floods of size j / 2
of all cells and empties of size j. All are Poisson.

*One cell* (a signed count): K_j ~ Poisson(2 r_j + d_j) events of size j. *Two cells*, x and x':
toss a fair coin for every decoy, and say of each event whether it is "of x, or a decoy with heads"
or "of x', or a decoy with tails". So of each of these there are K_j ~ Poisson(2 r_j + d_j / 2), all
independent. In any case, given K, each event of size j of a cell is + with probability p_j = r_j
over that mean, - with the same, else a decoy, and all are independent:

    D given K = sum over j of j (a sum of K_j numbers that are 1, -1 or 0: p_j, p_j, 1 - 2 p_j).

K does not depend on any answer. So with h(K) the divergence of the pair of laws of D given K (of
both cells: one has 1 more under P, the other under Q, ``one_more``; of a count: + in place of -
moves D by 2), delta(epsilon) <= E h(K).

**Layers.** An event more is independent noise more: h falls with every K_j. Let K^1 >= K^2 >= ...
be numbers such that some K_j is below K^i with probability t_i at most. Then

    E h(K) <= (1 - t_1) h(K^1) + (t_1 - t_2) h(K^2) + ... + t_last:

the chance to be in layer i or beyond is t_(i-1) at most, and later layers give more: no K_j grows
from layer to layer. t_1 = 1/10, and each next one is a tenth of it, down to a small share of delta;
quantiles of each Poisson number by Chernoff's bound (``compound.lowest``), a union over sizes and
cells. A mixture of pairs whose index is seen has this sum for its divergence: so it is one law of
losses too, which composes. (All of this holds at any e >= 0, below 1 too: there h <= 1 as well.)

*Integers.* The numbers that are drawn are rounded up: events more, as above. Rates are taken a
little lower as floats (1e-12), which is fewer events, and decoys that are no thousandth of the
singles are left out: beside these that little would be within rounding. The law that is computed is
then exactly that of the floats p_j and means, but for rounding, which ``error`` bounds.

*The charge* of the cap is (1 + e) t, as in ``noise``; long singles need none, since sizes stop at
``longest`` here. Nothing here is a lower bound: the analyzer's is one.

*Checked* against all that devices can send, sizes device by device, at small sizes, and against the
mean over drawn K (tests/unit/accounting/several_messages/test_onlooker.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from shoal.accounting.numerics.binomial import Floats
from shoal.accounting.numerics.compound import NEGLIGIBLE, UNIT, lowest
from shoal.accounting.numerics.curve import TAIL_SHARE, Direction
from shoal.accounting.several_messages.charges import cells_looked_at
from shoal.accounting.several_messages.one_more import Shown, divergence
from shoal.accounting.several_messages.signed_count import CountShown, count_divergence
from shoal.arrays import np
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth

_FALL = 10.0  # of the chance from layer to layer
_LAST = 1e-3  # of delta: what the last layer leaves open
_BELOW = 1.0 - 1e-12  # rates are taken lower by this
_FEW = 1e-3  # of the singles of a size: fewer decoys of it are left out
_SMALLEST = 1e-290  # masses below are dropped: too near to the end of the floats


@dataclass(frozen=True, slots=True)
class Layer:
    """What is seen where at least so many events came, but fewer than in the layer before: with the
    chance ``weight``, at most.
    """

    weight: float
    found: Shown | CountShown


@dataclass(frozen=True, slots=True)
class Onlooker:
    """All layers, and the chance that fewer events came than in the last: then all is seen. These
    chances are 1 together.
    """

    layers: tuple[Layer, ...]
    open: float


@lru_cache(maxsize=64)
def onlooker(law: NoiseLaw, delta: float) -> Onlooker:
    """The layers of a ``law`` with empties, whose devices send one true message; in the order of
    ``delta``. Direction: UPPER.
    """
    singles, means = _rates(law)
    tail = delta * TAIL_SHARE
    layers, before, chance = list[Layer](), 1.0, 1.0 / _FALL
    events: list[int] | None = None
    # of a size whose mean is 0 as a float no event is counted on
    kept = np.divide(singles, means, out=np.zeros_like(means), where=means > 0.0)
    while before > _LAST * delta:
        events = fewest_events(means, chance, cells_looked_at(law.truth), events)
        if not events[0]:  # D may lie on a lattice with gaps: all is seen
            break
        found = _found(law.truth, events, kept, tail)
        layers.append(Layer(before - chance, found))
        before, chance = chance, chance / _FALL
    return Onlooker(tuple(layers), before)


def fewest_events(
    means: Floats, chance: float, cells: int, most: list[int] | None = None
) -> list[int]:
    """Numbers for float64[sizes] ``means`` of Poisson numbers, one of each size in each of
    ``cells``: some number is below with probability ``chance`` at most. None is above ``most``.
    """
    log_tail = math.log(chance / (len(means) * cells))
    found = [lowest(np.array([0.0, mean]), log_tail) for mean in means]
    return found if most is None else [min(pair) for pair in zip(found, most, strict=True)]


def onlooker_delta(seen: Onlooker, epsilon: float) -> float:
    """delta(``epsilon``), for epsilon >= 0, without the charge of the cap. Direction: UPPER."""
    total = seen.open
    for layer in seen.layers:
        found = layer.found
        if isinstance(found, Shown):
            one = divergence(found, epsilon, Direction.UPPER)
        else:
            one = count_divergence(found, epsilon, Direction.UPPER)
        total += layer.weight * min(1.0, one)
    return total * (1.0 + (len(seen.layers) + 2) * UNIT)


def _rates(law: NoiseLaw) -> tuple[Floats, Floats]:
    """float64[longest] each, for j = 1, 2, ...: r_j, and the mean of K_j. Direction: LOWER."""
    sizes = range(1, law.longest + 1)
    flood = law.cells * law.floods / law.largest
    singles = np.array([float(law.singles**size / size) for size in sizes]) * _BELOW
    decoys = np.array(
        [float(law.empty_rate(size) + (flood if size in _doubles(law) else 0)) for size in sizes]
    )
    decoys = np.where(decoys < _FEW * singles, 0.0, decoys * (_BELOW / cells_looked_at(law.truth)))
    return singles, 2.0 * singles + decoys


def _doubles(law: NoiseLaw) -> range:
    """Messages of floods."""
    return range(2, 2 * law.largest + 1, 2)


def _found(truth: Truth, events: list[int], chances: Floats, tail: float) -> Shown | CountShown:
    """The law of D given so many ``events`` of each size, but for ``tail``."""
    masses, lost, error = _difference(events, chances, tail)
    return _pair(masses, lost, error) if truth is Truth.CELL else _count(masses, lost, error)


def _difference(events: list[int], chances: Floats, tail: float) -> tuple[Floats, float, float]:
    """(masses, lost, error): float64[2 b + 1] of D = -b ... b, symmetric."""
    # NEGLIGIBLE: whatever falls below the floats, or is dropped next to them
    masses, lost, steps = np.ones(1), NEGLIGIBLE, 16
    for size, (count, chance) in enumerate(zip(events, chances.tolist(), strict=True), 1):
        if not count:
            continue
        net, beyond = _net(count, chance, tail / len(events))
        reach = len(net) // 2
        wide = np.zeros(len(masses) + 2 * reach * size)
        for at, mass in enumerate(net.tolist()):
            wide[at * size : at * size + len(masses)] += mass * masses
        masses, lost, steps = wide, lost + beyond, steps + 16 * len(net)
    return masses, lost, steps * UNIT


def _net(count: int, chance: float, tail: float) -> tuple[Floats, float]:
    """(masses, beyond): of a sum of ``count`` numbers that are 1 or -1 with ``chance`` each, else
    0; from -c to c, where all but ``beyond`` <= ``tail`` lies.
    """
    both = 2.0 * chance
    ratio = both / (1.0 - both)
    drawn = [math.exp(count * math.log1p(-both))]
    while len(drawn) <= count:
        number = len(drawn)
        # of the next number of them, and a bound of the geometric kind for all further ones
        step = (count - number + 1) / number * ratio
        after = drawn[-1] * step
        if step < 0.5 and 2.0 * after <= tail:
            break
        drawn.append(after)
    beyond = 0.0 if len(drawn) > count else 2.0 * after
    reach = len(drawn) - 1
    net = np.zeros(2 * reach + 1)
    for number, mass in enumerate(drawn):
        part = mass * 0.5**number
        for plus in range(number + 1):
            net[reach + 2 * plus - number] += part * math.comb(number, plus)
    return net, beyond


def _pair(masses: Floats, lost: float, error: float) -> Shown:
    """Of a cell: with 1 more, and without."""
    more = np.concatenate([[0.0], masses])
    without = np.concatenate([masses, [0.0]])
    both = (more > _SMALLEST) & (without > _SMALLEST)
    left = max(float(np.sum(more[~both])), float(np.sum(without[~both])))
    more, without = more[both], without[both]
    ratios = without / more
    order = np.argsort(ratios)
    return Shown(ratios[order], more[order], without[order], 0.0, lost + left, error)


def _count(masses: Floats, lost: float, error: float) -> CountShown:
    """Of a count: P is the law of D + 1, Q that of D - 1; by symmetry one side of 0 says all. Of d
    and -d, between which P and Q are exchanged, the one with P >= Q.
    """
    middle = len(masses) // 2
    side = np.concatenate([masses[middle:], [0.0, 0.0]])
    p, q = side[:-2], side[2:]  # of d = 1, 2, ...
    p, q = np.maximum(p, q), np.minimum(p, q)
    both = q > _SMALLEST
    alone = float(np.sum(p[~both]))
    return CountShown(
        np.concatenate([[0.0], q[both] / p[both]]),
        np.concatenate([[alone], p[both]]),
        float(side[1]),
        lost,
        error,
    )
