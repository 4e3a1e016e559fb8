"""How many neighbours a device has, and how many of them open its secrets: (k, t) of a round of n
devices, computed, never typed.

The devices stand on a ring in random order (``shoal.crypto.secagg.ring``); each shares pads and
secrets with the k/2 next ones on either side. C = floor(gamma n) of them are corrupt and tell what
they know, D = floor(delta n) are lost. The smallest even k is taken for which some t meets all
these conditions:

(1) *Connectivity*: n (n - k - 1) / 2 * prod_{i<k} (C + D - i) / (n - i) < 2^-(sigma+1). The ring
    falls apart only where two disjoint runs of k/2 neighbours are all corrupt or lost. The bound
    adds up all pairs of runs. Against: the pads between two parts are all known, so two sums come
    out, each of fewer devices than the noise was made for (in the worst case of one).
(2) *Privacy*: n P[X >= x] <= 2^-(sigma+1), X hypergeometric: corrupt ones among k neighbours, drawn
    from n with C corrupt. SEMI_HONEST, x = t: a device with t corrupt neighbours has told them both
    its secrets, the self mask's seed and the pad key. SEMI_MALICIOUS, x = 2t - k: whoever tells
    some neighbours that a device is lost and others that it is alive gets both kinds of shares, one
    kind from each honest neighbour and both from each corrupt one: k + X shares, of which 2t are
    needed.
(3) *Correctness*: n P[Y < t] <= 2^-eta, Y hypergeometric: survivors among k neighbours, drawn from
    n with n - D surviving. Against: a round in which some secret cannot be opened any more. It is
    lost, not wrong.
(4) *One story*, for COLLUDING (which is SEMI_MALICIOUS besides): 3t > 2k + 2x, with x of condition
    (2): the number of corrupt neighbours that nobody has. Against: shuffler and analyzer together
    know the ring, sign two commits or more, and show each device the one that suits them.
    Endorsements are of neighbours, so that far parts of the ring could act on different commits,
    each with D lost of its own: the one sum that opens would then be of far fewer than n - D. And
    they *say* of chosen devices that they are lost, so that two runs of k/2 tear the ring, which
    (1) does not count on: its losses do not depend on the ring.

Why (4) is enough. X = x - 1 bounds the corrupt neighbours of every device. Look at all honest
devices whose masked vectors stand in a sum that opens; each has t - X honest neighbours that gave a
share of its seed. (a) No tear: a device beside a run of k/2 in which nobody honest gives such
shares has at most k/2 + X that do, which is below t. (b) No two commits: say u acted on c, and w,
the next on the ring that acted at all, on another one, g places on. The g - 1 between them gave
nothing, so g - 1 <= k - t + X. Honest devices sign one commit, t - X neighbours of u signed c, t -
X neighbours of w the other one, all among the k + g - 1 around u and w, and at most X corrupt ones
count for both: 2t <= k + g - 1 + X. Together 3t <= 2k + 2X. The 2 that 2x adds is for rosters that
lie: who is said not to have shared must be so in the commit that is acted on. So what opens is one
sum, of all honest devices alive in one commit.

A fixed position's k neighbours are a uniform k-subset of all n, so the hypergeometric laws with n
(not n - 1) are exact, and the factor n is a union over all positions. The privacy conditions fail
together with probability below 2^-sigma: (1) and (2), or for COLLUDING that of x alone, which (2)
and (4) share and which makes (1) a matter of lost rounds. Of the t that are allowed the smallest is
taken, at least 2.

(1) and (3) hold for D lost and no more. So a round of which more than D are lost must end without a
sum: ``survivors_needed``.

*Complete graph*, k = n - 1, for n <= COMPLETE_MOST or where no sparse k fits. Nothing is left to
chance: of the n - 1 holders at most C are corrupt, and at least n - 1 - D are left for a device
that is alive itself. So max(2, C + 1) <= t <= n - 1 - D, in strict mode 2t > n - 1 + C. t is taken
in the middle: a few more corrupt or a few more lost devices than promised do no harm.

Sources: (1) to (3) are those of Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server
Aggregation with (Poly)Logarithmic Overhead" (CCS 2020, eprint 2020/704), sections 3 and 4
(recalled: the paper could not be read here), in the form with exact tails that the parameter finder
of google-parfait/federated-compute has (fcp/secagg/server/graph_parameter_finder.cc, read at its
source, and its known answers; no code of it is used). (4) is ours.

*Determinism.* Devices, shuffler and analyzer compute (k, t) each by itself and must agree. Every
comparison is between integers (denominators are cleared), so no rounding and no mathematics library
takes part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, unique
from fractions import Fraction
from functools import lru_cache

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.secagg import PPM, Mode, PairwisePlan

# devices: rounds up to here use the complete graph, whose guarantees hold without chance
COMPLETE_MOST = 50
ETA = 20  # bits of correctness
_STRICT_NEEDS = "; strict mode takes many times the neighbours of mode default"
SIGMA = {Mode.DEFAULT: 40, Mode.STRICT: 80}  # bits of privacy


@unique
class Corruption(Enum):
    """What is done with the corrupt devices' knowledge: see conditions (2) and (4)."""

    SEMI_HONEST = "semi-honest"  # records are made as the protocol says
    SEMI_MALICIOUS = "semi-malicious"  # devices are told different things
    # and they are shown different records, and it is chosen with the ring in view who is said to be
    # lost
    COLLUDING = "colluding"


@dataclass(frozen=True, slots=True)
class GraphParameters:
    """``neighbours``: k of each device. ``threshold``: t shares open a secret, t - 1 tell nothing.
    ``complete``: k = n - 1.
    """

    neighbours: int
    threshold: int
    complete: bool

    def __post_init__(self) -> None:
        if not 2 <= self.threshold <= self.neighbours:
            raise ShoalError(
                Kind.INVALID, "a threshold is at least 2 and at most the number of neighbours"
            )
        if not self.complete and self.neighbours % 2:
            raise ShoalError(
                Kind.INVALID, "neighbours on a ring are an even number, half on either side"
            )


def parameters_for(plan: PairwisePlan, honest_fraction_ppm: int, n: int) -> GraphParameters:
    """Of a round of ``n`` devices under this plan: SEMI_HONEST with sigma 40 in default mode,
    COLLUDING with sigma 80 in strict mode.

    Strict mode has more bits because there both nonces are known to whoever attacks, who may try
    many lists of devices until a ring suits: 2^40 trials leave 2^-40. ``honest_fraction_ppm``: the
    task's, in millionths. Raises INVALID for helper mode, which has no graph, if nothing fits, and
    for more neighbours than one reply can tell a device of.
    """
    if plan.mode is Mode.HELPER:
        raise ShoalError(Kind.INVALID, "helper mode has no neighbours and no threshold")
    corruption = Corruption.COLLUDING if plan.mode is Mode.STRICT else Corruption.SEMI_HONEST
    found = graph_parameters(
        n, Fraction(PPM - honest_fraction_ppm, PPM), plan.dropout, corruption, SIGMA[plan.mode]
    )
    if found.neighbours > LIMITS.neighbours:
        raise ShoalError(
            Kind.INVALID,
            f"a device of a round of {n} would have {found.neighbours} neighbours, and can have "
            f"{LIMITS.neighbours}: lower cohort_max (a window has as many rounds as it needs) or "
            "dropout, or raise honest_fraction" + _STRICT_NEEDS * (plan.mode is Mode.STRICT),
        )
    return found


def survivors_needed(plan: PairwisePlan, n: int) -> int:
    """Vectors that must be in the sum of a round of ``n`` devices: U_min, and at least n - D,
    because (k, t) are made for D lost.

    With fewer, condition (1) says nothing: an analyzer that calls rows unusable until only U_min
    are left could tear the ring.
    """
    return max(plan.survivors_min, n - math.floor(plan.dropout * n))


@lru_cache(maxsize=4096)
def graph_parameters(
    n: int, corrupt: Fraction, dropout: Fraction, corruption: Corruption, sigma: int, eta: int = ETA
) -> GraphParameters:
    """(k, t) of a round of ``n`` devices of which floor(corrupt n) are corrupt and floor(dropout n)
    may be lost.

    The privacy conditions fail with probability below 2^-sigma, correctness with at most 2^-eta,
    over the ring's random order. The same on every machine. Raises INVALID, naming what must
    change, if no (k, t) fits, and for numbers out of range.
    """
    if n < 2 or not (0 <= corrupt < 1 and 0 <= dropout < 1) or sigma < 1 or eta < 1:
        raise ShoalError(
            Kind.INVALID,
            "a round has 2 or more devices, of which shares from 0 to below 1 are corrupt and are "
            "lost",
        )
    bad, lost = math.floor(corrupt * n), math.floor(dropout * n)
    if n > COMPLETE_MOST:
        sparse = _sparse(n, bad, lost, corruption, sigma, eta)
        if sparse is not None:
            return sparse
    return _complete(n, bad, lost, corruption)


def _sparse(
    n: int, bad: int, lost: int, corruption: Corruption, sigma: int, eta: int
) -> GraphParameters | None:
    """The smallest k that fits, or None. Values of k that cannot fit are passed over.

    t has a least value from (2) and (4), and a most from (3). Both least and k - most never fall as
    k grows (a larger sample holds more corrupt and more lost ones), so most - least gains at most 2
    per step of 2: what it lacks says how far to go.
    """
    k = 2
    while k < n - 1:
        least, most = private_from(n, bad, k, corruption, sigma), correct_to(n, lost, k, eta)
        if least <= most and connected(n, bad + lost, k, sigma):
            return GraphParameters(k, least, complete=False)
        k += 2 * max(1, (least - most + 1) // 2)
    return None


def connected(n: int, removed: int, k: int, sigma: int) -> bool:
    """Condition (1): the bound on a random ring of n falling apart when ``removed`` are taken out
    is below 2^-(sigma+1).
    """
    return n * (n - k - 1) * math.perm(removed, k) << sigma < math.perm(n, k)


def private_from(n: int, bad: int, k: int, corruption: Corruption, sigma: int) -> int:
    """The smallest threshold, 2 or more, that meets conditions (2) and (4) for k neighbours."""
    x = _least_x(n, bad, k, sigma + 1)
    match corruption:
        case Corruption.SEMI_HONEST:
            return max(2, x)
        case Corruption.SEMI_MALICIOUS:
            return max(2, (k + x + 1) // 2)
        case Corruption.COLLUDING:  # meets (2) too: 2t > k + x - 1 follows
            return (2 * k + 2 * x) // 3 + 1


def correct_to(n: int, lost: int, k: int, eta: int) -> int:
    """The largest threshold that meets condition (3). Y < t means that more than k - t are lost, a
    hypergeometric number too.
    """
    return k + 1 - _least_x(n, lost, k, eta)


def _subset_counts(n: int, marked: int, k: int, least: int) -> Iterator[int]:
    """C(marked, x) C(n - marked, k - x) for x = min(marked, k) down to ``least``, while above 0:
    C(n, k) P[X = x], X hypergeometric.

    Each is made from the one before by a division that leaves no remainder.
    """
    x = min(marked, k)
    count = math.comb(marked, x) * math.comb(n - marked, k - x)
    while x >= least and count:
        yield count
        count = count * x * (n - marked - k + x) // ((marked - x + 1) * (k - x + 1))
        x -= 1


def _least_x(n: int, marked: int, k: int, bits: int) -> int:
    """The smallest x with n P[X >= x] <= 2^-bits, X ~ Hypergeometric(n, marked, k): exact, at most
    min(marked, k) + 1.
    """
    x, total, whole = min(marked, k) + 1, 0, math.comb(n, k)
    for count in _subset_counts(n, marked, k, 0):
        total += count
        if n * total << bits > whole:
            return x
        x -= 1
    return x


def _complete(n: int, bad: int, lost: int, corruption: Corruption) -> GraphParameters:
    holders = n - 1
    least = max(2, bad + 1 if corruption is Corruption.SEMI_HONEST else (holders + bad) // 2 + 1)
    most = holders - lost
    if least <= most:
        return GraphParameters(holders, (least + most + 1) // 2, complete=True)
    room = holders - least
    less = f"plan for at most {room} lost devices, " if room >= 0 else ""
    raise ShoalError(
        Kind.INVALID,
        f"no threshold fits a round of {n} devices with {bad} corrupt and {lost} lost: {least} of "
        "a device's neighbours must answer, "
        f"but as few as {most} may be left; {less}raise the honest fraction, or begin rounds with "
        "more devices",
    )
