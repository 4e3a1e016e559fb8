"""How much privacy shuffling really bought: certificates with a proven upper and a matching lower
epsilon.

Pure (numpy, math, fractions): no sockets, no disk, no clock. Usable alone::

    from shoal.accounting import certify
    from shoal.privacy import KaryLaw

    certify(KaryLaw(k=16, same=55, other=1), n=100_000, delta=1e-8).epsilon_upper

Read ``accountant`` first (which bound is taken), then ``routes`` (what there is), then
docs/ACCOUNTING.md (why it holds). The rooms, in the order in which a figure is made:

- ``bounds``: one theorem per module, each an upper bound on the divergence of a shuffled batch.
- ``numerics``: the arithmetic below them. ``cells`` and ``random_walk`` hold exact fractions;
  ``tilted``, ``lattice``, ``multinomial`` and ``curve`` evaluate them to a stated side.
- ``composition``: several releases about the same devices; memoized answers.
- ``solving``: what a central epsilon needs. ``sums``: secure aggregation. ``several_messages``:
  dummies, and noise that cancels. ``lint``: tasks. ``audit``: attacks on our own randomizers.
  ``reference``: published bounds, for comparison only.

``certificate`` and ``guarantee`` say what is promised, ``meaning`` what that means for a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.accounting.accountant import certify, certify_approximate, compare, upper_curve
    from shoal.accounting.certificate import Certificate
    from shoal.accounting.composition.basic import Composed, compose_basic, compose_parallel, group
    from shoal.accounting.composition.compose import compose, compose_memoized, release_law
    from shoal.accounting.groups.bound import GroupBound, group_of_law
    from shoal.accounting.groups.of_task import group_of_task
    from shoal.accounting.guarantee import Guarantee
    from shoal.accounting.of_task import guarantee_of, guaranteed
    from shoal.accounting.several_messages.messages import certify_messages
    from shoal.accounting.solving.solve import largest_epsilon0, smallest_delta, smallest_n
    from shoal.accounting.sums.pairwise import SumBound, calibrate, certify_sum

__all__ = [
    "Certificate",
    "Composed",
    "GroupBound",
    "Guarantee",
    "SumBound",
    "calibrate",
    "certify",
    "certify_approximate",
    "certify_messages",
    "certify_sum",
    "compare",
    "compose",
    "compose_basic",
    "compose_memoized",
    "compose_parallel",
    "group",
    "group_of_law",
    "group_of_task",
    "guarantee_of",
    "guaranteed",
    "largest_epsilon0",
    "release_law",
    "smallest_delta",
    "smallest_n",
    "upper_curve",
]

_HOME = {
    "Certificate": "certificate",
    "Composed": "composition.basic",
    "SumBound": "sums.pairwise",
    "calibrate": "sums.pairwise",
    "certify": "accountant",
    "certify_approximate": "accountant",
    "certify_messages": "several_messages.messages",
    "certify_sum": "sums.pairwise",
    "compare": "accountant",
    "compose": "composition.compose",
    "compose_basic": "composition.basic",
    "compose_memoized": "composition.compose",
    "compose_parallel": "composition.basic",
    "GroupBound": "groups.bound",
    "group": "composition.basic",
    "group_of_law": "groups.bound",
    "group_of_task": "groups.of_task",
    "guaranteed": "of_task",
    "guarantee_of": "of_task",
    "Guarantee": "guarantee",
    "largest_epsilon0": "solving.solve",
    "release_law": "composition.compose",
    "smallest_delta": "solving.solve",
    "smallest_n": "solving.solve",
    "upper_curve": "accountant",
}


def __getattr__(name: str) -> Any:
    """Load on first use: importing ``shoal.accounting`` alone does not load numpy."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
