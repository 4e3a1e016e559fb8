"""The law of losses of one release with the noise of a ``NoiseLaw``, for composing windows.

**Without charges** the pair (P', Q') of ``noise`` is a product of two cells, so its loss is a sum
of two independent losses:

- of x, with one message more under P: -ln r_i with mass more_i;
- of x', with one more under Q: ln r_j with mass without_j, and infinity with mass certain.

For a signed count it is one cell: -ln r_v with mass w(v), ln r_v with mass w(v) r_v, 0 with the
mass of u = v, and infinity with mass w(0). With several tables it is the sum of the losses of all
pairs (``tables``). The sum over the two cells, the lattice and the charges:
``loss_lattice``. What remains at infinity adds up over windows: a law for many windows wants
``longest`` and ``slots`` for a smaller delta than that of one.

Where empties hide the numbers of messages there are two views, the analyzer's and that of a
shuffler that reads the release (``onlooker``, a mixture of such pairs): the law is one whose curve
is nowhere below either.

Lost windows' mass (``Shown.lost``) goes to infinity as well. There is no pure epsilon: epsilon0 is
infinite.
"""

from __future__ import annotations

import math
from dataclasses import replace

from shoal.accounting.certificate import check_delta, check_n
from shoal.accounting.composition.losses import LossLaw
from shoal.accounting.numerics.curve import TAIL_SHARE
from shoal.accounting.several_messages.loss_lattice import (
    Lattice,
    added,
    at_most,
    cut_at,
    larger,
    mixed,
    placed,
    reach_of,
    step_of,
)
from shoal.accounting.several_messages.noise import counted, distance, seen_beside, shown
from shoal.accounting.several_messages.one_more import Shown
from shoal.accounting.several_messages.signed_count import CountShown
from shoal.accounting.several_messages.tables import TablesShown, losses_upper
from shoal.arrays import np
from shoal.mechanisms.several.noise_law import NoiseLaw

# Finite losses of a cell reach so far that this share of delta lies beyond.
_BEYOND = 1e-8
# Of a layer's lattice on either side of 0. No design at epsilon 1/2 to 2 has as many.
_MOST_POINTS = 1 << 13


def noise_losses(law: NoiseLaw, n_honest: int, delta: float) -> LossLaw | None:
    """The law of one release for ``n_honest`` honest devices, in the order of ``delta``, the total
    that it will be composed to; None where nothing is proven. Direction: UPPER.
    """
    check_delta(delta)
    if check_n(n_honest) < law.shares:
        return None
    found = shown(counted(law), delta * TAIL_SHARE)
    far = distance(law, law.shares, delta)
    if isinstance(found, TablesShown):
        both, step = losses_upper(found)
        return cut_at(both, step, far, found.lost, delta)
    step, lost = _step(found), _lost(found)
    seen = seen_beside(law, delta)
    if seen is not None:
        # layers of few events have losses so large that as fine a lattice may take minutes
        reach = max((_reach(each.found, delta) for each in seen.layers), default=0.0)
        step = max(step, at_most(_MOST_POINTS, reach))
    both = _on_lattice(found, step, delta)
    if seen is not None:
        layers = [(each.weight, _on_lattice(each.found, step, delta)) for each in seen.layers]
        beside = mixed(layers)
        beside = replace(beside, infinity=beside.infinity + seen.open)
        both = larger(both, beside, step)
        lost = max(lost, math.fsum(each.weight * _lost(each.found) for each in seen.layers))
    return cut_at(both, step, far, lost, delta)


def _lost(found: Shown | CountShown) -> float:
    return found.lost if isinstance(found, CountShown) else 2.0 * found.lost


def _step(found: Shown | CountShown) -> float:
    if isinstance(found, CountShown):
        return step_of(-np.log(found.ratios[1:]), found.masses[1:])
    return step_of(np.log(found.ratios), found.more)


def _reach(found: Shown | CountShown, delta: float) -> float:
    if isinstance(found, CountShown):
        return reach_of(-np.log(found.ratios[1:]), found.masses[1:], delta * _BEYOND)
    logs = np.log(found.ratios)
    sides = (found.more, found.without)
    return max(reach_of(logs, masses, delta * _BEYOND) for masses in sides)


def _on_lattice(found: Shown | CountShown, step: float, delta: float) -> Lattice:
    """The law of the losses of both cells, or of the one of a count."""
    tail = delta * _BEYOND
    if isinstance(found, CountShown):
        return _of_count(found, step, tail)
    logs, error = np.log(found.ratios), found.error
    one = placed(-logs, found.more, 0.0, step, error, tail)
    other = placed(logs, found.without, found.certain, step, error, tail)
    return added(one, other)


def _of_count(found: CountShown, step: float, tail: float) -> Lattice:
    """The law of one cell of a signed count."""
    losses, masses = -np.log(found.ratios[1:]), found.masses[1:]
    all_losses = np.concatenate([losses, -losses, [0.0]])
    all_masses = np.concatenate([masses, masses * found.ratios[1:], [found.level]])
    certain = float(found.masses[0])
    return placed(all_losses, all_masses, certain, step, found.error, tail)
