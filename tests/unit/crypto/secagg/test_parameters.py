"""Neighbours and thresholds: known answers, exact enumeration of small rings, and the attacks that
the conditions are made against.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import pytest

from shoal.crypto.secagg.parameters import (
    SIGMA,
    Corruption,
    GraphParameters,
    connected,
    correct_to,
    graph_parameters,
    parameters_for,
    private_from,
    survivors_needed,
)
from shoal.crypto.secagg.ring import neighbour_positions
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.secagg import Mode, PairwisePlan
from tests.cases import for_each
from tests.sizes import size

SEMI, MAL, BOTH = Corruption.SEMI_HONEST, Corruption.SEMI_MALICIOUS, Corruption.COLLUDING


def fit(
    n: int, corrupt: str, dropout: str, corruption: Corruption, sigma: int = 40
) -> tuple[int, int]:
    found = graph_parameters(n, Fraction(corrupt), Fraction(dropout), corruption, sigma)
    assert not found.complete
    return found.neighbours, found.threshold


# Those of fcp/secagg/server/graph_parameter_finder_test.cc (google-parfait/federated-compute) that
# are not complete graphs here.
PUBLISHED = [
    (100, ".45", ".45", SEMI, 92, 46),
    (1000, ".45", ".45", SEMI, 822, 417),
    (100, ".33", ".33", SEMI, 68, 34),
    (1000, ".33", ".33", SEMI, 286, 150),
    (10**4, ".33", ".33", SEMI, 422, 221),
    (10**5, ".33", ".33", SEMI, 480, 251),
    (10**6, ".33", ".33", SEMI, 518, 270),
    (100, ".3", ".3", MAL, 92, 62),
    (1000, ".3", ".3", MAL, 872, 584),
    (100, ".05", ".33", SEMI, 28, 6),
    (1000, ".05", ".33", SEMI, 72, 24),
    (10**4, ".05", ".33", SEMI, 86, 29),
    (10**5, ".05", ".33", SEMI, 96, 32),
    (10**6, ".05", ".33", SEMI, 102, 34),
    (100, ".05", ".33", MAL, 72, 39),
    (1000, ".05", ".33", MAL, 398, 223),
    (10**4, ".05", ".33", MAL, 746, 420),
    (100, ".33", ".05", SEMI, 34, 29),
    (1000, ".33", ".05", SEMI, 78, 60),
    (10**4, ".33", ".05", SEMI, 92, 70),
    (10**5, ".33", ".05", SEMI, 102, 77),
    (10**6, ".33", ".05", SEMI, 110, 83),
    (100, ".33", ".05", MAL, 42, 37),
    (1000, ".33", ".05", MAL, 132, 109),
    (10**4, ".33", ".05", MAL, 178, 146),
    (10**5, ".33", ".05", MAL, 196, 160),
]
# Our own table for the rates that are used, sigma 40: n = 100, 10^3, 10^4, 10^5, 10^6.
TABLE = {
    (".1", ".1", SEMI): [(22, 11), (48, 27), (54, 31), (58, 33), (64, 36)],
    (".1", ".2", SEMI): [(28, 11), (66, 31), (78, 37), (86, 41), (92, 43)],
    (".1", ".3", SEMI): [(34, 11), (88, 36), (108, 44), (122, 49), (130, 52)],
    (".05", ".05", MAL): [(16, 11), (52, 37), (62, 44), (68, 48), (74, 52)],
    (".1", ".1", MAL): [(32, 22), (96, 67), (122, 85), (134, 93), (146, 101)],
    (".1", ".2", MAL): [(52, 32), (194, 124), (280, 179), (312, 199), (338, 215)],
}


@for_each("n, corrupt, dropout, corruption, k, t", PUBLISHED)
def test_published_answers(
    n: int, corrupt: str, dropout: str, corruption: Corruption, k: int, t: int
) -> None:
    """Planted: sigma instead of sigma + 1 in condition (2), or n - 1 instead of n -> several fail.
    (Published thresholds are at most t.)
    """
    assert fit(n, corrupt, dropout, corruption) == (k, t)


def test_what_the_paper_says_of_large_cohorts() -> None:
    """Bell et al. (CCS 2020), abstract: of 10^4 clients each talks to 3 % of the others where 5 %
    are corrupt, semi-malicious, and 5 % drop out; semi-honest a billion clients cost each what the
    complete graph of Bonawitz et al. costs a thousand. Exact tails need no more than that. Planted:
    the complete graph wherever n is above 1,000 -> fails.
    """
    k, t = fit(10**4, ".05", ".05", MAL)
    assert (k, t) == (62, 44)
    assert k <= 0.03 * 10**4
    assert fit(10**9, ".2", ".2", SEMI)[0] < 1_000


@for_each("devices", [1_025, 10_000])
def test_cohorts_of_ten_thousand_have_parameters(devices: int) -> None:
    """As every party computes them from n, dropout and honest fraction: in default mode the
    published 10^4 row, in strict mode more. Planted: LIMITS.cohort of before -> refused.
    """
    made = PairwisePlan(Mode.DEFAULT, devices, devices, devices // 2, 330_000, 32)
    found = parameters_for(made, 950_000, devices)
    if devices == 10_000:
        assert (found.neighbours, found.threshold) == (86, 29)
    strict = parameters_for(
        PairwisePlan(Mode.STRICT, devices, devices, devices // 2, 50_000, 32), 950_000, devices
    )
    assert not strict.complete
    assert found.neighbours < strict.neighbours < devices // 10 + 200


def test_more_neighbours_than_a_reply_holds_are_refused() -> None:
    """In strict mode large rounds may want them; the message says what to change. Planted: no look
    at the limit -> fails.
    """
    many = PairwisePlan(Mode.STRICT, 10_000, 10_000, 5_000, 200_000, 32)
    with pytest.raises(ShoalError) as caught:
        parameters_for(many, 900_000, 10_000)
    assert caught.value.kind is Kind.INVALID
    assert f"can have {LIMITS.neighbours}" in caught.value.message
    assert "lower cohort_max" in caught.value.message
    assert "mode default" in caught.value.message  # has a twentieth of them
    assert parameters_for(replace(many, dropout_ppm=50_000), 950_000, 10_000).neighbours < 1_023


def test_strict_mode_of_ten_thousand_wants_more_than_googles_counts() -> None:
    """What docs/SECAGG.md says of 10 % corrupt and 20 % lost: it is not for want of room in a
    reply. Google's counts do not meet condition (4), by far. Planted: (4) without its 2x -> fails.
    """
    n, corrupt, lost = 10_000, Fraction(1, 10), Fraction(1, 5)
    google = graph_parameters(n, corrupt, lost, Corruption.SEMI_MALICIOUS, 40)
    assert (google.neighbours, google.threshold) == (280, 179)
    assert private_from(n, n // 10, 280, Corruption.COLLUDING, 80) > correct_to(n, n // 5, 280, 20)
    ours = graph_parameters(n, corrupt, lost, Corruption.COLLUDING, 80)
    assert (ours.neighbours, ours.threshold) == (3_466, 2_651)
    fewer = graph_parameters(1_000, corrupt, lost, Corruption.COLLUDING, 80)
    assert fewer.neighbours == 740 < LIMITS.neighbours


@for_each("rates, row", TABLE.items())
def test_table(rates: tuple[str, str, Corruption], row: list[tuple[int, int]]) -> None:
    assert [fit(n, *rates) for n in (100, 10**3, 10**4, 10**5, 10**6)] == row


def test_strict_mode_as_it_is_used() -> None:
    """sigma 80 with condition (4), against the semi-malicious (66, 49), (120, 87), (230, 151) at n
    = 1000.
    """
    assert [
        fit(1000, *rates, BOTH, 80) for rates in ((".05", ".05"), (".1", ".1"), (".1", ".2"))
    ] == [(166, 140), (372, 307), (740, 561)]
    assert [
        fit(100, *rates, BOTH, 80) for rates in ((".05", ".05"), (".1", ".1"), (".1", ".2"))
    ] == [(28, 23), (54, 44), (84, 64)]


# --- the formulas against enumeration -------------------------------------------------------------


def rings(most: int) -> list[tuple[int, int]]:
    """(n, k) of sparse graphs."""
    return [(n, k) for n in range(4, most + 1) for k in range(2, n - 1, 2)]


def parts(alive: frozenset[int], n: int, k: int) -> list[frozenset[int]]:
    """Connected parts of the ring's graph over the living."""
    left, found = set(alive), []
    while left:
        part = {left.pop()}
        edge = list(part)
        while edge:
            new = left.intersection(neighbour_positions(n, k, edge.pop()))
            left -= new
            part |= new
            edge.extend(new)
        found.append(frozenset(part))
    return found


def sets(n: int, count: int) -> list[frozenset[int]]:
    return [frozenset(one) for one in combinations(range(n), count)]


@for_each("n, k", rings(size(8, 10)))
def test_connectivity_bounds_every_small_ring(n: int, k: int) -> None:
    """The share of removals that tear the ring, counted, is at most the formula's; (1) decides as
    the exact fraction does.

    Planted: n instead of n (n - k - 1) / 2 pairs -> fails for half of these rings; k - 2 factors in
    the product stay above, k + 1 fail.
    """
    for removed in range(n - 1):
        removals = sets(n, removed)
        torn = sum(len(parts(frozenset(range(n)) - one, n, k)) > 1 for one in removals)
        bound = Fraction(n * (n - k - 1) * math.perm(removed, k), 2 * math.perm(n, k))
        assert Fraction(torn, len(removals)) <= bound
        # tight in this sense: fewer than k removals never tear, k can
        assert (torn > 0) == (bound > 0)
        for sigma in range(1, 12):
            assert connected(n, removed, k, sigma) == (bound < Fraction(1, 2 ** (sigma + 1)))


@for_each("n, k", rings(size(8, 10)))
def test_privacy_counts_corrupt_neighbours_of_every_small_ring(n: int, k: int) -> None:
    """Expected devices with x corrupt neighbours or more, over all corrupt sets, is n P[X >= x]
    exactly; so are both thresholds.

    Planted: a tail that begins at x + 1 -> fails; 2t - k read as 2t - k + 1 -> fails for
    SEMI_MALICIOUS.
    """
    for bad in range(n):
        corrupt = sets(n, bad)
        counts = [
            len(one.intersection(neighbour_positions(n, k, p))) for one in corrupt for p in range(n)
        ]

        def expected(x: int, counts: list[int] = counts, total: int = len(corrupt)) -> Fraction:
            return Fraction(sum(count >= x for count in counts), total)

        for sigma in range(1, 8):
            small = Fraction(1, 2 ** (sigma + 1))
            assert private_from(n, bad, k, SEMI, sigma) == next(
                t for t in range(2, n + 2) if expected(t) <= small
            )
            assert private_from(n, bad, k, MAL, sigma) == next(
                t for t in range(2, n + 2) if expected(2 * t - k) <= small
            )
            most = correct_to(n, bad, k, sigma)  # now the marked ones are lost
            assert all(
                (expected(k - t + 1) <= Fraction(1, 2**sigma)) == (t <= most)
                for t in range(1, k + 1)
            )


def test_two_stories_need_twice_the_threshold() -> None:
    """Whatever a device's honest neighbours are told, both secrets open only with X >= 2t - k: all
    tales of all neighbourhoods.
    """
    for k in range(2, 8, 2):
        for t in range(2, k + 1):
            for x in range(k + 1):
                opened = any(
                    alive + x >= t and (k - x - alive) + x >= t for alive in range(k - x + 1)
                )
                assert not opened or x >= 2 * t - k


@for_each("n, k", rings(size(8, 9)))
def test_a_torn_part_opens_only_with_two_corrupt_runs(n: int, k: int) -> None:
    """Condition (4), over every corrupt set and every choice of who is said to be lost, and every t
    of strict mode.

    A part of the honest living opens if each of its devices has t neighbours that give shares of
    its seed: honest living ones and corrupt ones. Planted: runs with more than r corrupt devices
    instead of r -> fails.
    """
    half = k // 2
    runs = [frozenset((start + i) % n for i in range(half)) for start in range(n)]
    pairs = [(a, b) for a, b in combinations(runs, 2) if not a & b]
    for told in product((0, 1, 2), repeat=n):  # alive, said to be lost, corrupt
        alive = frozenset(p for p in range(n) if told[p] == 0)
        found = parts(alive, n, k)
        if len(found) < 2:
            continue
        corrupt = frozenset(p for p in range(n) if told[p] == 2)
        holders = [
            alive.union(corrupt).intersection(neighbour_positions(n, k, p)) for p in range(n)
        ]
        # the largest t for which some part opens
        opens = max(min(len(holders[p]) for p in part) for part in found)
        # A device in a part holds to the rest of its part only; what is in other parts is no
        # neighbour of it, so holders are right.
        for t in range(half + 1, opens + 1):
            r = t - half
            assert any(len(a & corrupt) >= r and len(b & corrupt) >= r for a, b in pairs)


def test_two_commits_find_no_two_quorums() -> None:
    """Condition (4), over every way in which a ring of n can be split between two commits, and
    every t of strict mode.

    ``signed``: each honest device signs one commit, or is corrupt and signs both. Who has t such
    neighbours may act on its commit. Then S and A make two sums of one round only if devices of
    both kinds act, and everybody has t neighbours that act or are corrupt. Planted: 3t > 2k - 2
    instead -> fails: (k, t) = (4, 3) acts on two commits with one corrupt device.
    """
    seen = set()
    for n, k in [(n, k) for n in range(6, size(12, 14)) for k in (4, 6) if k < n - 1]:
        around = [sum(1 << q for q in neighbour_positions(n, k, p)) for p in range(n)]
        for spots in (0, 1, 1 | 1 << n // 2, 3):
            bad = sum(1 << p for p in range(n) if spots >> p & 1)
            x = 1 + max((one & bad).bit_count() for one in around)
            for signed in range(1, 1 << n):
                if signed & bad:
                    continue
                other = (1 << n) - 1 & ~signed & ~bad
                mine = [
                    (around[p] & (signed | bad)).bit_count() for p in range(n) if signed >> p & 1
                ]
                theirs = [
                    (around[p] & (other | bad)).bit_count() for p in range(n) if other >> p & 1
                ]
                for t in range(k // 2 + 1, min(max(mine, default=0), max(theirs, default=0)) + 1):
                    acts = bad
                    for p in range(n):
                        own = signed if signed >> p & 1 else other
                        if not bad >> p & 1 and (around[p] & (own | bad)).bit_count() >= t:
                            acts |= 1 << p
                    if all((around[p] & acts).bit_count() >= t for p in range(n)):
                        seen.add((k, t, x))
                        assert 3 * t <= 2 * k + 2 * x
    assert seen  # the attack is there for smaller t


def test_strict_thresholds_rule_two_commits_out() -> None:
    """3t > 2k + 2x with the x that nobody's corrupt neighbours reach, and what follows from it.
    Planted: (k + x + 1) // 2 -> fails.
    """
    for n, bad, k in product((60, 200, 1000), (0, 3, 10), (10, 30, 50)):
        for sigma in (10, 80):
            x = (
                private_from(n, bad, k, SEMI, sigma)
                if private_from(n, bad, k, SEMI, sigma) > 2
                else 2
            )
            t = private_from(n, bad, k, BOTH, sigma)
            assert 3 * t > 2 * k + 2 * (x if x > 2 else 1)
            assert t >= private_from(n, bad, k, MAL, sigma)
            assert t > k or t > k // 2 + x - 1  # no tear opens


@pytest.mark.parametrize("corruption", Corruption)
def test_nothing_smaller_is_passed_over(corruption: Corruption) -> None:
    """The search that leaps finds what a plain search finds. Planted: leaps twice as long ->
    fails.
    """
    for n in (51, 64, 87, 120, *size(1, 2) * (200,)):
        for corrupt, dropout in product(("0", ".05", ".1", ".33"), ("0", ".05", ".2", ".33")):
            gamma, delta = Fraction(corrupt), Fraction(dropout)
            bad, lost = math.floor(gamma * n), math.floor(delta * n)
            plain = None
            for k in range(2, n - 1, 2):
                least, most = private_from(n, bad, k, corruption, 40), correct_to(n, lost, k, 20)
                if least <= most and connected(n, bad + lost, k, 40):
                    plain = GraphParameters(k, least, complete=False)
                    break
            try:
                found = graph_parameters(n, gamma, delta, corruption, 40)
            except ShoalError:
                assert plain is None
                continue
            assert found == plain if plain else found.complete


# --- complete graphs, plans, refusals -------------------------------------------------------------


@for_each("n", range(3, 51))
@for_each("corruption", Corruption)
def test_complete_graphs_leave_nothing_to_chance(n: int, corruption: Corruption) -> None:
    """Every t that fits, found by trying; the middle one is taken. Planted: holders counted as n,
    or n - D as the most -> fails.
    """
    for corrupt, dropout in product(("0", ".1", ".3"), ("0", ".1", ".2")):
        gamma, delta = Fraction(corrupt), Fraction(dropout)
        bad, lost = math.floor(gamma * n), math.floor(delta * n)
        fits = [
            t
            for t in range(2, n)
            if t > bad
            and n - 1 - lost >= t
            and (
                corruption is SEMI
                or all((n - 1 - bad - a) + bad < t or a + bad < t for a in range(n - bad))
            )
        ]
        if not fits:
            with pytest.raises(ShoalError):
                graph_parameters(n, gamma, delta, corruption, 80)
            continue
        found = graph_parameters(n, gamma, delta, corruption, 80)
        assert found == GraphParameters(n - 1, fits[len(fits) // 2], complete=True)


def plan(mode: Mode, **changes: int) -> PairwisePlan:
    values = {
        "cohort_min": 100,
        "cohort_max": 1000,
        "survivors_min": 80,
        "dropout_ppm": 200_000,
        "word_bits": 32,
    } | changes
    return PairwisePlan(mode, **values)


def test_a_plan_says_which() -> None:
    assert parameters_for(plan(Mode.DEFAULT), 900_000, 1000) == GraphParameters(
        66, 31, complete=False
    )
    assert parameters_for(plan(Mode.STRICT), 900_000, 1000) == GraphParameters(
        740, 561, complete=False
    )
    assert SIGMA == {Mode.DEFAULT: 40, Mode.STRICT: 80}
    with pytest.raises(ShoalError, match="helper mode") as caught:
        parameters_for(plan(Mode.HELPER), 900_000, 1000)
    assert caught.value.kind is Kind.INVALID


def test_rates_are_exact() -> None:
    """0.29 * 100 devices are 29; in floats they would be 28. Planted: floats -> fails."""
    exact = graph_parameters(100, Fraction(29, 100), Fraction(1, 5), SEMI, 40)
    assert parameters_for(plan(Mode.DEFAULT), 710_000, 100) == exact
    assert exact != graph_parameters(100, Fraction(28, 100), Fraction(1, 5), SEMI, 40)


def test_more_losses_than_planned_end_a_round() -> None:
    """With U_min = 80 of 1000 the ring would be torn for sure: (k, t) are made for 200 lost, so 800
    must survive.
    """
    assert survivors_needed(plan(Mode.DEFAULT), 1000) == 800
    assert survivors_needed(plan(Mode.DEFAULT), 100) == 80
    assert survivors_needed(plan(Mode.DEFAULT, survivors_min=95), 100) == 95
    assert not connected(1000, 100 + 920, 66, 1)
    assert connected(1000, 100 + 200, 66, 40)


@for_each(
    "n, corrupt, dropout, corruption, words",
    [
        (40, ".5", ".5", SEMI, "plan for at most 18 lost devices"),
        (1000, ".5", ".4", MAL, "plan for at most 249 lost devices"),
        (20, ".99", "0", SEMI, "raise the honest fraction"),
        (2, "0", "0", SEMI, "more devices"),
        (3, "0", ".4", SEMI, "more devices"),
    ],
)
def test_nothing_fits(
    n: int, corrupt: str, dropout: str, corruption: Corruption, words: str
) -> None:
    with pytest.raises(ShoalError, match=words) as caught:
        graph_parameters(n, Fraction(corrupt), Fraction(dropout), corruption, 40)
    assert caught.value.kind is Kind.INVALID
    assert "\n" not in str(caught.value)


def test_out_of_range() -> None:
    good = (100, Fraction(1, 10), Fraction(1, 10), SEMI, 40, 20)
    for place, value in [
        (0, 1),
        (0, 0),
        (1, Fraction(1)),
        (1, Fraction(-1, 9)),
        (2, Fraction(1)),
        (2, Fraction(-1)),
        (4, 0),
        (5, 0),
    ]:
        arguments = [*good[:place], value, *good[place + 1 :]]
        with pytest.raises(ShoalError) as caught:
            graph_parameters(*arguments)  # type: ignore[arg-type]
        assert caught.value.kind is Kind.INVALID
    for k, t in [(4, 1), (4, 5), (0, 0), (5, 3)]:
        with pytest.raises(ShoalError):
            GraphParameters(k, t, complete=False)
