"""How many neighbours a device has, and how many of them open its secrets: (k, t) of a round of n devices, computed, never typed.

The devices stand on a ring in random order (``shoal.crypto.secagg.ring``); each shares pads and secrets with the k/2 next ones on
either side. C = floor(gamma n) of them are corrupt and tell what they know, D = floor(delta n) are lost. The smallest even k is
taken for which some t meets all three conditions:

(1) *Connectivity*: n (n - k - 1) / 2 * prod_{i<k} (C + D - i) / (n - i) < 2^-(sigma+1).
    The ring falls apart only where two disjoint runs of k/2 neighbours are all corrupt or lost. The bound adds up all pairs of runs.
    Against: the pads between two halves are all known, so two sums come out, of fewer devices each than the noise was made for
    (in the worst case of one).
(2) *Privacy*: n P[X >= x] <= 2^-(sigma+1), X hypergeometric: corrupt ones among k neighbours, drawn from n with C corrupt.
    SEMI_HONEST, x = t: a device with t corrupt neighbours has told them both its secrets, the self mask's seed and the pad key.
    SEMI_MALICIOUS, x = 2t - k: whoever tells one half of the neighbours that a device is lost and the other half that it is alive gets
    both kinds of shares, one kind from each honest neighbour and both from each corrupt one: k + X shares, of which 2t are needed.
(3) *Correctness*: n P[Y < t] <= 2^-eta, Y hypergeometric: survivors among k neighbours, drawn from n with n - D surviving.
    Against: a round in which some secret cannot be opened any more. It is lost, not wrong.

A fixed position's k neighbours are a uniform k-subset of all n, so the hypergeometric laws with n (not n - 1) are exact, and the
factor n is a union over all positions. (1) and (2) fail together with probability below 2^-sigma. Among the t that (1)-(3) allow,
the smallest is taken, at least 2: the least that devices must answer; more corrupt ones than it takes into account are excluded by (2).

*Complete graph*, k = n - 1, for n <= COMPLETE_MOST or where no sparse k fits. Nothing is left to chance: of the n - 1 holders at most C are
corrupt, and at least n - 1 - D are left for a device that is alive itself. So max(2, C + 1) <= t <= n - 1 - D, in strict mode
2t > n - 1 + C. t is taken in the middle: a few more corrupt or a few more lost devices than promised do no harm.

What (1) takes for granted: who is lost does not depend on the ring, whose seed is made of both nonces. In strict mode shuffler and
analyzer together could *say* of chosen devices that they are lost. (2) with 2t > k + X stands against that too: a device where the
ring is torn has at most k/2 + X' neighbours that hold a share for it, X' the corrupt ones in the torn run of k/2, and its seed
opens for t. So two disjoint runs would have to hold t - k/2 corrupt devices each; the tests compute how unlikely that is for what
strict mode uses.

Source: Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead" (CCS 2020, eprint
2020/704), sections 3 and 4 (random Harary graphs, conditions on k and t, semi-malicious variant; recalled, the paper could not be
read here). The finite-n form with hypergeometric tails is that of the parameter finder in google-parfait/federated-compute
(fcp/secagg/server/graph_parameter_finder), read for its comments and known answers; the code is not used.

*Determinism.* Devices, shuffler and analyzer compute (k, t) each by itself and must agree. Every comparison is between integers
(denominators are cleared), so no rounding and no mathematics library takes part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, unique
from fractions import Fraction
from functools import lru_cache

from shoal.errors import Kind, ShoalError
from shoal.secagg import PPM, Mode, PairwisePlan

COMPLETE_MOST = 50  # devices: rounds up to here use the complete graph, whose guarantees hold without chance
ETA = 20  # bits of correctness
SIGMA = {Mode.DEFAULT: 40, Mode.STRICT: 80}  # bits of privacy


@unique
class Corruption(Enum):
    """Against whom: see condition (2)."""

    SEMI_HONEST = "semi-honest"
    SEMI_MALICIOUS = "semi-malicious"


@dataclass(frozen=True, slots=True)
class GraphParameters:
    """``neighbours``: k of each device. ``threshold``: t shares open a secret, t - 1 tell nothing. ``complete``: k = n - 1."""

    neighbours: int
    threshold: int
    complete: bool

    def __post_init__(self) -> None:
        if not 2 <= self.threshold <= self.neighbours:
            raise ShoalError(Kind.INVALID, "a threshold is at least 2 and at most the number of neighbours")
        if not self.complete and self.neighbours % 2:
            raise ShoalError(Kind.INVALID, "neighbours on a ring are an even number, half on either side")


def parameters_for(plan: PairwisePlan, honest_fraction_ppm: int, n: int) -> GraphParameters:
    """Of a round of ``n`` devices under this plan: sigma 40 semi-honest in default mode, 80 semi-malicious in strict mode.

    ``honest_fraction_ppm``: the task's, in millionths. Raises INVALID for helper mode, which has no graph, and if nothing fits.
    """
    if plan.mode is Mode.HELPER:
        raise ShoalError(Kind.INVALID, "helper mode has no neighbours and no threshold")
    corruption = Corruption.SEMI_MALICIOUS if plan.mode is Mode.STRICT else Corruption.SEMI_HONEST
    return graph_parameters(n, Fraction(PPM - honest_fraction_ppm, PPM), plan.dropout, corruption, SIGMA[plan.mode])


@lru_cache(maxsize=4096)
def graph_parameters(n: int, corrupt: Fraction, dropout: Fraction, corruption: Corruption, sigma: int, eta: int = ETA) -> GraphParameters:
    """(k, t) of a round of ``n`` devices of which floor(corrupt n) are corrupt and floor(dropout n) may be lost.

    The privacy conditions fail with probability below 2^-sigma, correctness with at most 2^-eta, over the ring's random order.
    The same on every machine. Raises INVALID, naming what must change, if no (k, t) fits, and for numbers out of range.
    """
    if n < 2 or not (0 <= corrupt < 1 and 0 <= dropout < 1) or sigma < 1 or eta < 1:
        raise ShoalError(Kind.INVALID, "a round has 2 or more devices, of which shares from 0 to below 1 are corrupt and are lost")
    bad, lost = math.floor(corrupt * n), math.floor(dropout * n)
    if n > COMPLETE_MOST:
        sparse = _sparse(n, bad, lost, corruption, sigma, eta)
        if sparse is not None:
            return sparse
    return _complete(n, bad, lost, corruption)


def _sparse(n: int, bad: int, lost: int, corruption: Corruption, sigma: int, eta: int) -> GraphParameters | None:
    for k in range(2, n - 1, 2):
        if connected(n, bad + lost, k, sigma):
            threshold = threshold_for(n, bad, lost, k, corruption, sigma, eta)
            if threshold is not None:
                return GraphParameters(k, threshold, complete=False)
    return None


def connected(n: int, removed: int, k: int, sigma: int) -> bool:
    """Condition (1): the bound on a random ring of n falling apart when ``removed`` are taken out is below 2^-(sigma+1)."""
    return n * (n - k - 1) * math.perm(removed, k) << sigma < math.perm(n, k)


def threshold_for(n: int, bad: int, lost: int, k: int, corruption: Corruption, sigma: int, eta: int) -> int | None:
    """The smallest t of 2 .. k that meets conditions (2) and (3) for k neighbours; None if there is none."""
    private = tail_start(n, bad, k, sigma + 1)  # smallest x with n P[X >= x] <= 2^-(sigma+1)
    least = max(2, private if corruption is Corruption.SEMI_HONEST else (k + private + 1) // 2)
    if least > k:
        return None
    # Y < t means that more than k - t neighbours are lost. Z = k - Y is hypergeometric with D lost ones.
    return least if k - least + 1 >= tail_start(n, lost, k, eta) else None


def tail_start(n: int, marked: int, k: int, bits: int) -> int:
    """The smallest x with n P[X >= x] <= 2^-bits, X ~ Hypergeometric(n, marked, k): exact. At most min(marked, k) + 1.

    P[X = x] = C(marked, x) C(n - marked, k - x) / C(n, k). The terms are added from the largest x down, each made from the one before
    by a division that leaves no remainder.
    """
    x = min(marked, k)
    term = math.comb(marked, x) * math.comb(n - marked, k - x)
    total, most = 0, math.comb(n, k)
    while term:
        total += term
        if n * total << bits > most:
            return x + 1
        term = term * x * (n - marked - k + x) // ((marked - x + 1) * (k - x + 1))
        x -= 1
    return 0


def _complete(n: int, bad: int, lost: int, corruption: Corruption) -> GraphParameters:
    holders = n - 1
    least = max(2, bad + 1 if corruption is Corruption.SEMI_HONEST else (holders + bad) // 2 + 1)
    most = holders - lost
    if least <= most:
        return GraphParameters(holders, (least + most + 1) // 2, complete=True)
    room = holders - least
    less = f"plan for at most {room} lost of {n}" if room >= 0 else "raise the honest fraction"
    raise ShoalError(
        Kind.INVALID,
        f"no threshold fits a round of {n} devices with {bad} corrupt and {lost} lost: {least} must answer and {most} may be left; "
        f"{less}, raise the honest fraction, or begin rounds with more devices",
    )
