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

Lost windows' mass (``Shown.lost``) goes to infinity as well. There is no pure epsilon: epsilon0 is
infinite.
"""

from __future__ import annotations

from shoal.accounting.certificate import check_delta, check_n
from shoal.accounting.composition.losses import LossLaw
from shoal.accounting.numerics.curve import TAIL_SHARE
from shoal.accounting.several_messages.loss_lattice import (
    Lattice,
    added,
    cut_at,
    placed,
    step_of,
)
from shoal.accounting.several_messages.noise import counted, distance, shown
from shoal.accounting.several_messages.one_more import Shown
from shoal.accounting.several_messages.signed_count import CountShown
from shoal.accounting.several_messages.tables import TablesShown, losses_upper
from shoal.arrays import np
from shoal.mechanisms.several.noise_law import NoiseLaw

# Finite losses of a cell reach so far that this share of delta lies beyond.
_BEYOND = 1e-8


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
        lost = found.lost
    elif isinstance(found, Shown):
        step = step_of(np.log(found.ratios), found.more)
        logs, error, tail = np.log(found.ratios), found.error, delta * _BEYOND
        one = placed(-logs, found.more, 0.0, step, error, tail)
        other = placed(logs, found.without, found.certain, step, error, tail)
        both, lost = added(one, other), 2.0 * found.lost
    else:
        both, step = _of_count(found, delta * _BEYOND)
        lost = found.lost
    return cut_at(both, step, far, lost, delta)


def _of_count(found: CountShown, tail: float) -> tuple[Lattice, float]:
    """The law of one cell of a signed count, and its step."""
    losses, masses = -np.log(found.ratios[1:]), found.masses[1:]
    step = step_of(losses, masses)
    all_losses = np.concatenate([losses, -losses, [0.0]])
    all_masses = np.concatenate([masses, masses * found.ratios[1:], [found.level]])
    certain = float(found.masses[0])
    return placed(all_losses, all_masses, certain, step, found.error, tail), step
