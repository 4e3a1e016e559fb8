"""Attacks on randomizers of vectors: which of its seed's public directions a report names.

The victim's vector is as long as the domain allows, and points one way or the opposite way, the
pair that is told apart best (docs/ACCOUNTING.md). Everybody else has no vector. How likely a report
is depends on whether its direction is near to the device's vector, so these three bits of every
report are all that the likelihood ratio needs: near to the one, to the other, to no vector. Ranks
are counted here anew, not by the mechanism's own sorting.

Beside it: how far all named directions lie on the victim's line. That should say no more, and does
where the seed was chosen with a look at the vector.
"""

from __future__ import annotations

from shoal.accounting.audit.audit import Shuffle, Views, permute, statistics
from shoal.accounting.certificate import check_n
from shoal.accounting.numerics.binomial import Floats, Ints
from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.vectors.gaussian_table import SEED_SIZE, candidates
from shoal.mechanisms.vectors.privunit import PrivUnit
from shoal.mechanisms.vectors.protocol import VectorRandomizer


def vector_views(
    made: VectorRandomizer, n: int, entropy: Entropy, *, shuffle: Shuffle = permute
) -> Views:
    """Views of ``n`` reports for ``audit``; the victim comes last before the shuffle. All views of
    a call are held at once. Raises INVALID for a mechanism that is not known here.
    """
    check_n(n)
    if not isinstance(made, PrivUnit):
        raise ShoalError(Kind.INVALID, f"no attack on {made.name} is known")
    none = np.zeros(made.domain.dimension, dtype=np.int64)
    victims = none.copy(), none.copy()
    victims[0][0], victims[1][0] = made.domain.grid, -made.domain.grid
    ratio, patterns = float(made.privacy().max_ratio), np.arange(8)
    first, second, third = (patterns & 1, patterns >> 1 & 1, patterns >> 2)
    weights = (
        ratio ** (first - third).astype(np.float64),
        ratio ** (second - third).astype(np.float64),
    )
    single = (first - second) * np.log(ratio)
    marks = (first > second, second > first)

    def views(which: int, trials: int) -> dict[str, Floats]:
        seen, along = np.empty((trials, n), dtype=np.int64), np.zeros(trials)
        for trial in range(trials):
            for device in range(n):
                own = victims[which] if device == n - 1 else none
                (report,) = made.randomize_vector(own, entropy)
                seen[trial, device], place = _read(made, report)
                along[trial] += place
        found = statistics(shuffle(seen, entropy), marks, weights, single)
        return found | {"all directions along the first answer": along}

    return views


def _read(made: PrivUnit, report: bytes) -> tuple[int, int]:
    """(its three bits, how far its direction lies along the first answer)."""
    named = int.from_bytes(report[SEED_SIZE:], "big")
    all_of_them = candidates(report[:SEED_SIZE], 0, made.candidates, made.domain.dimension + 1)
    if not named < len(all_of_them):
        raise ShoalError(
            Kind.INVALID, "a report of the randomizer names no direction of the law that it claims"
        )
    along, rest = all_of_them[:, 0].astype(np.int64), all_of_them[:, -1].astype(np.int64)
    earlier = np.arange(len(along)) < named
    later = np.arange(len(along)) > named
    near = (
        _above(along, named, earlier) < made.inside,
        _above(-along, named, later) < made.inside,
        _above(rest, named, earlier) < made.inside,
    )
    return sum(bit << at for at, bit in enumerate(near)), int(along[named])


def _above(products: Ints, named: int, wins_ties: NDArray[np.bool_]) -> int:
    """How many candidates come before the named one."""
    own = products[named]
    return int(np.count_nonzero((products > own) | ((products == own) & wins_ties)))
