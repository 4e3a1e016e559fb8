"""Several releases together: above what enumeration finds, and as tight as what the accountant
signs.
"""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import pytest

from shoal.accounting import certify
from shoal.accounting.accountant import upper_curve
from shoal.accounting.composition.compose import release_law
from shoal.accounting.composition.loss_bytes import to_bytes
from shoal.analyzer.records import Spending
from shoal.analyzer.results.cumulative import compose_spendings
from shoal.checker.chain import Chain
from shoal.checker.check import check_releases
from shoal.checker.composition import Curve, total_delta, total_for
from shoal.checker.enumeration import _histograms, _with, in_integers
from shoal.checker.epsilon import curve_of
from shoal.checker.errors import UnreadableError
from shoal.checker.exponential import exp_below
from shoal.checker.findings import Outcome
from shoal.checker.laws import OutputLaw
from shoal.checker.promise import law_of_task
from shoal.checker.release_file import SignedParts
from shoal.checker.together import _added, _composed
from shoal.codec import encode_task
from shoal.domain import Categories, Domain
from shoal.ids import TaskId
from shoal.mechanisms import create
from shoal.privacy import LocalPrivacy
from shoal.protos import release_pb2
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size
from tests.unit.checker.test_bounds import WORDS, binary, kary
from tests.unit.checker.test_check import corpus, signed_anew
from tests.worlds.tasks import shaped

CELLS = Categories(tuple(map(str, range(99))))
COIN, OTHER_COIN = binary(3 * WORDS // 4, WORDS // 4), binary(2 * WORDS // 3, WORDS // 5)
TERNARY, TABLE = kary(3, WORDS // 2), kary(16, WORDS // 3)
Known = tuple[OutputLaw, LocalPrivacy]


def curves(*batches: tuple[Known, int]) -> list[Curve]:
    known = {(law, n): curve_of(law, n) for (law, _), n in batches}
    found = [known[law, n] for (law, _), n in batches]
    return [one for one in found if one is not None]


def real(law: OutputLaw, n: int) -> tuple[list[tuple[list[int], list[int]]], int]:
    """Both laws of every histogram, of every pair of neighbouring datasets: numerators, and their
    denominator.
    """
    assert law.table is not None
    rows, whole = in_integers(law.table)
    found = []
    for others in itertools.combinations_with_replacement(range(len(rows)), n - 1):
        known = _histograms(rows, others)
        laws = [_with(known, row) for row in rows]
        for first, second in itertools.permutations(laws, 2):
            found.append((list(first.values()), [second[counts] for counts in first]))
    return found, whole**n


@for_each(
    "batches",
    [
        [(COIN, 3), (COIN, 3)],
        [(COIN, 2), (OTHER_COIN, 3)],
        [(TERNARY, 2), (COIN, 2)],
    ],
)
@for_each("epsilon", [0.3, 1.4])
def test_together_is_above_every_pair_of_datasets(
    batches: list[tuple[Known, int]], epsilon: float
) -> None:
    """Planted: the masses of Q convolved instead of P's; knots' chords below
    the curve (heights of the next knot); the half below 0 left out -> each fails.
    """
    e = exp_below(epsilon)
    (first, whole), (second, more) = (real(law, n) for (law, _), n in batches)
    largest = 0
    for (p1, q1), (p2, q2) in itertools.product(first, second):
        both = zip(itertools.product(p1, p2), itertools.product(q1, q2), strict=True)
        excess = (a * b * e.denominator - e.numerator * c * d for (a, b), (c, d) in both)
        largest = max(largest, sum(one for one in excess if one > 0))
    worst = Fraction(largest, whole * more * e.denominator)
    epsilons = [certify(law, n, 1e-6).epsilon_upper for (_, law), n in batches]
    found = total_delta(curves(*batches), epsilons, 1e-6).delta(epsilon)
    assert worst <= found
    # The blanket is far above a dataset of two reports. Two outputs are not, but for their other
    # direction, which is bounded as if it were the same.
    assert found <= float(worst) * 1.15 + 1e-6 or any(one[0] is TERNARY for one in batches)


CAMPAIGNS: dict[str, list[tuple[Known, int]]] = {
    "two questions": [(TABLE, 9_000), (TERNARY, 9_000)],
    "with two outputs": [(TABLE, 5_000), (COIN, 5_000)],
    "six windows": [(TERNARY, 2_000)] * 6,
}


@for_each("name", list(CAMPAIGNS)[: size(2, 3)])
def test_totals_that_are_signed_are_confirmed_and_less_is_not(name: str) -> None:
    """Six windows want more knots than the first try has.

    Planted: in the accountant, a total that is 1 % too small; here, one release left out of the
    product; only the first try -> fails.
    """
    batches, delta = CAMPAIGNS[name], 1e-8
    spendings = []
    for (_, privacy), n in batches:
        law = to_bytes(release_law(upper_curve, privacy, n, delta))
        upper = certify(privacy, n, delta).epsilon_upper
        spendings.append(Spending(TaskId(bytes(32)), upper, delta, law))
    composed = compose_spendings(spendings)
    epsilons = [one.epsilon_upper for one in spendings]
    total = total_for(curves(*batches), epsilons, composed.epsilon_upper, composed.delta)
    assert total.delta(composed.epsilon_upper) <= composed.delta
    assert total.delta(composed.epsilon_upper * 0.99) > composed.delta
    proven = total.epsilon(composed.delta, sum(epsilons))
    assert composed.epsilon_upper * 0.99 <= proven <= composed.epsilon_upper * 1.000001


def chain(flip: int, n: int, **changed: float) -> Chain:
    """Hadamard bits of 100 cells, released from ``n`` reports on."""
    return released(MechanismSpec.of("hadamard", k=100, flip=flip), CELLS, n, **changed)


def released(spec: MechanismSpec, domain: Domain, n: int, **changed: float) -> Chain:
    """From ``n`` reports on, with what is certified of them. Nothing is signed."""
    certificate = certify(create(spec, domain).privacy(), n, 1e-8)
    task = encode_task(shaped(spec, domain, min_batch=n, honest_fraction_ppm=1_000_000))
    release = release_pb2.Release(version=1, n=n)
    release.privacy.epsilon_upper = changed.get("epsilon", certificate.epsilon_upper)
    release.privacy.delta = 1e-8
    data = release.SerializeToString(deterministic=True)
    return Chain(SignedParts(data, b"", task, b"", b"", b"", b""))


def test_a_sum_of_epsilons_is_confirmed_where_it_is_less_than_the_composition() -> None:
    """Of two releases by swapping, one of which is worth nearly all: the analyzer signs the sum.

    Planted: no sum; the deltas not looked at; a release taken at its word; one of fewer reports
    than the smallest batch -> each fails.
    """
    chains = [chain(WORDS // 56, 10_000), chain(9 * WORDS // 20, 1_000_000)]
    epsilons = [one.release.privacy.epsilon_upper for one in chains]
    spendings = []
    for one, epsilon in zip(chains, epsilons, strict=True):
        flip = {each.name: each.value for each in one.task.mechanism.parameters}["flip"]
        privacy = create(MechanismSpec.of("hadamard", k=100, flip=flip), CELLS).privacy()
        law = to_bytes(release_law(upper_curve, privacy, one.task.min_batch, 1e-8))
        spendings.append(Spending(TaskId(bytes(32)), epsilon, 1e-8, law))
    composed = compose_spendings(spendings)
    assert composed.epsilon_upper == pytest.approx(sum(epsilons), rel=1e-12)
    signed = composed.epsilon_upper, composed.delta
    decision = _composed(chains, *signed)
    assert decision.outcome is Outcome.HOLDS
    assert "add up" in decision.how
    laws = [law for law in map(law_of_task, (one.task for one in chains)) if type(law) is OutputLaw]
    assert not _added(chains, laws, signed[0] * (1 - 1e-9), signed[1])
    assert not _added(chains, laws, signed[0], signed[1] * 0.9)
    assert not _added(chains, laws, signed[0], math.nan)
    lie = chain(9 * WORDS // 20, 1_000_000, epsilon=epsilons[1] * 0.9)
    assert not _added([chains[0], lie], laws, *signed)
    chains[1].release.n = 999_999
    assert not _added(chains, laws, *signed)


def test_a_total_that_a_first_try_leaves_open_is_looked_at_more_closely() -> None:
    """Six windows of one question: the knots of the first try prove a hair more than is signed.

    Planted: only the first try; curves whose epsilons are 1 % too small -> each fails.
    """
    spec = MechanismSpec.of("krr", k=3, uniform=WORDS // 2)
    windows = [released(spec, Categories(("a", "b")), 2_000)] * 6
    law = law_of_task(windows[0].task)
    assert isinstance(law, OutputLaw)
    curve = curve_of(law, 2_000)
    assert curve is not None
    privacy = create(spec, Categories(("a", "b"))).privacy()
    upper = windows[0].release.privacy.epsilon_upper
    bytes_of = to_bytes(release_law(upper_curve, privacy, 2_000, 1e-8))
    composed = compose_spendings([Spending(TaskId(bytes(32)), upper, 1e-8, bytes_of)] * 6)
    signed = composed.epsilon_upper, composed.delta
    assert total_delta([curve] * 6, [upper] * 6, signed[1]).delta(signed[0]) > signed[1]
    assert _composed(windows, *signed).outcome is Outcome.HOLDS
    assert _composed(windows, signed[0] * 0.99, signed[1]).outcome is Outcome.OPEN


def test_a_total_wants_the_files_of_all_releases() -> None:
    """One of five is missing; and releases of kinds that are not composed here. Planted: the total
    of those at hand taken for all -> fails.
    """
    files = corpus()[0]
    for names in (list(files), ["hours", "visits"]):
        checks = check_releases([files[name] for name in names])
        found = {check.name: check.checked[-1].outcome for check in checks}
        assert found["visits"] is Outcome.OPEN
        assert found["hours"] is Outcome.OPEN


def test_a_file_that_cannot_be_read_is_named_by_its_number() -> None:
    good = corpus()[0]["visits"]
    with pytest.raises(UnreadableError) as raised:
        list(check_releases([good, b"{}"]))
    assert raised.value.file == 1


def test_a_total_a_hair_below_this_release_is_no_lie() -> None:
    """The composition may prove a little less than the certificate does. 1 % below is one.

    Planted: any total below the release's own epsilon called wrong -> fails.
    """

    def total(share: float) -> Outcome:
        def change(release: release_pb2.Release) -> None:
            privacy = release.privacy
            privacy.epsilon_upper = privacy.epsilon_upper * 1.0000001
            privacy.epsilon_cumulative_upper = privacy.epsilon_upper * share
            privacy.delta_cumulative = privacy.delta

        (check,) = check_releases([json.dumps(signed_anew(change)).encode()])
        return check.checked[-1].outcome

    assert total(1 - 1e-9) is Outcome.OPEN
    assert total(0.99) is Outcome.WRONG


def test_a_first_release_is_its_own_total() -> None:
    def first(release: release_pb2.Release) -> None:
        release.privacy.windows_composed = 1

    (check,) = check_releases([json.dumps(signed_anew(first)).encode()])
    assert check.checked[-1].outcome is Outcome.HOLDS
