"""``shoal epsilon --group``: several devices of one person, or several reports of one device in a
batch, for every mechanism that is certified here.
"""

from __future__ import annotations

from shoal.accounting.groups.bound import GroupBound, group_of_law
from shoal.accounting.groups.chain import LARGEST_GROUP
from shoal.accounting.groups.of_messages import (
    group_by_ladder,
    group_of_protocol,
    group_of_several,
)
from shoal.accounting.meaning import bound_text
from shoal.cli.epsilon.request import EpsilonRequest
from shoal.cli.epsilon.several import Mixture
from shoal.cli.epsilon.subjects import Bound, Dummies, Pure
from shoal.errors import Kind, ShoalError


def check_group_option(devices: int | None) -> None:
    """Raises CONFIG unless --group is left out or from 2 to 1000."""
    if devices is not None and not 2 <= devices <= LARGEST_GROUP:
        raise ShoalError(
            Kind.CONFIG,
            f"--group is the number of one person's devices, from 2 to {LARGEST_GROUP}, got "
            f"{devices}: leave it out for one device",
        )


def group_bound(request: EpsilonRequest, bound: Bound, devices: int, rounds: int) -> GroupBound:
    """What so many devices give away together in ``rounds`` batches, at the delta of ``bound``.
    Direction: UPPER. Raises CONFIG where nothing is proven.
    """
    subject, n_honest, delta = request.subject, bound.n_honest, bound.delta
    if isinstance(subject, Mixture):
        return group_of_several(subject.known, n_honest, delta, devices, rounds)
    if isinstance(subject, Dummies):
        return group_of_protocol(subject.protocol, n_honest, delta, devices, rounds)
    if isinstance(subject, Pure) and request.epsilon0 is not None:
        law = subject.family(request.epsilon0)
        return group_of_law(law, n_honest, delta, devices, rounds)

    def certified(part: float) -> float:
        return subject.certify(None, bound.n, part, request.share).epsilon_upper

    return group_by_ladder(certified, delta, devices, rounds, n_honest=n_honest)


def group_sentence(group: GroupBound) -> str:
    """The answer of --group in a line, rounded up; of a lower bound, down."""
    batches = "in this batch" if group.windows == 1 else f"in all {group.windows} batches"
    least = bound_text(group.epsilon_lower, up=False, digits=6)
    known = f" Two datasets need more than {least}." if group.epsilon_lower > 0.0 else ""
    return (
        f"{group.devices} devices of one person, all of them {batches}: epsilon <= "
        f"{bound_text(group.epsilon_upper, digits=6)} at delta = "
        f"{bound_text(group.delta, digits=6)} for all of their answers together (method: "
        f"{group.method}).{known}"
    )
