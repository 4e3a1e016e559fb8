"""The mean of a number with discrete Laplace noise on its level, clamped to the domain: exact, one
draw from a table.

Noise z has probability (1 - a) / (1 + a) a^|z|, a = decay / 2^64 (Ghosh, Roughgarden, Sundararajan,
"Universally utility-maximizing privacy mechanisms", STOC 2009: the two-sided geometric law). The
reported level is x + z, moved to the nearest end where it leaves the domain: an end has the whole
tail beyond it, a^d / (1 + a) at d steps. All of these are rational, so the table is made in
integers: no logarithm is taken on a device, and no float (Mironov, "On significance of the least
significant bits", CCS 2012, says what happens to Laplace noise made of floats). e^epsilon0 is
a^-(levels - 1), read off the integers of the table.

**Why the range is the domain.** The law has no memory: how far a report lies beyond an end says
nothing of its level. What clamping removes is therefore noise alone. The mean of what was removed
is added back to the score of the end (here by solving for it), which by the theorem of Rao and
Blackwell errs no more than the unclamped report, at every level. A wider range would change reports
and no estimate, which is why there is no setting for it.

**When.** At small epsilon0 with many levels: at epsilon0 1 and 21 levels that are equally frequent
a device adds an error of 1.16 domain widths, with ``kmean`` 4.1, whose noise is spread over the
whole domain. ``kmean`` errs less from epsilon0 2 on with 5 levels, from 4 on with 21, and far less
after shuffling. ``one_bit_mean`` and ``hybrid`` err less at small epsilon0.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.domain import Domain, Numeric
from shoal.mechanisms.base import Family, Parameter, only
from shoal.mechanisms.categories.krr import check_k
from shoal.mechanisms.numbers.means import numeric
from shoal.mechanisms.numbers.noisy_levels import NoisyLevels, create, weights_of
from shoal.mechanisms.parts.decay import least_noise_of_rows, powers
from shoal.mechanisms.parts.tables import check_entries
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.task import MechanismSpec

NAME = "laplace"
PARAMETERS = (
    Parameter(
        "decay", 1, WORDS - 1, "by how much, out of 2^64, noise one step larger is less likely"
    ),
    Parameter("k", 3, 256, "number of cells of the domain: its levels and no answer"),
)


def weights(levels: int, decay: int) -> list[list[int]]:
    """Of the levels as outputs (columns) for every level (rows), times 2^BITS times 2^64 (1 + decay
    / 2^64). 2 <= levels <= 255.
    """
    beyond = powers(decay, levels)
    inside = [(WORDS - decay) * weight for weight in beyond]
    ends = [weight << 64 for weight in beyond]
    both = inside[::-1] + inside[1:]  # inside[abs(x - y)] for y = 1 to levels - 2 is a slice of it
    return [
        [ends[x], *both[levels - x : 2 * levels - 2 - x], ends[levels - 1 - x]]
        for x in range(levels)
    ]


def _checked(domain: Domain) -> Numeric:
    known = numeric(NAME, domain)
    check_entries(known.size, known.levels)
    return known


def _create(spec: MechanismSpec, domain: Domain) -> NoisyLevels:
    known = _checked(domain)
    check_k(spec, known)
    return create(spec, known, weights(known.levels, spec.get("decay")))


def _design(domain: Domain, epsilon0: float) -> MechanismSpec:
    known = _checked(domain)

    def rows_at(noise: int, cells: Sequence[int]) -> list[list[int]]:
        return weights_of(weights(known.levels, noise), cells)

    decay = least_noise_of_rows(rows_at, known.size, WORDS - 1, epsilon0)
    return MechanismSpec.of(NAME, k=known.size, decay=decay)


FAMILY = Family(
    NAME,
    "a level with discrete Laplace noise, clamped: the mean of a number",
    PARAMETERS,
    _create,
    only(_design, _checked),
)
