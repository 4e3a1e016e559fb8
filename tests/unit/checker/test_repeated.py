"""What a release says of answers that are repeated in every window."""

from __future__ import annotations

import math

from shoal.accounting.composition.memoized import lifetime_epsilon
from shoal.checker.chain import Chain
from shoal.checker.findings import Outcome
from shoal.checker.promise import promise
from shoal.checker.release_file import SignedParts
from shoal.codec import encode_task
from shoal.domain import Categories
from shoal.mechanisms import create, design
from shoal.protos import release_pb2
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.worlds.tasks import shaped

REPEATED = "what an answer that is repeated promises over all windows"
COLOURS = Categories(("red", "green", "blue"))
KRR = design("krr", COLOURS, 1.0)
REMEMBERS = design("l_unary", COLOURS, 1.0)


def said(spec: MechanismSpec, lifetime: float | None, *, memoized: bool = True) -> list[Outcome]:
    """Nothing is signed, and nothing promised of one release."""
    task = encode_task(shaped(spec, COLOURS, memoized=memoized))
    release = release_pb2.Release(version=1, n=1_000)
    privacy = release.privacy
    privacy.epsilon0 = privacy.epsilon_upper = privacy.epsilon_at_received_n = math.inf
    if lifetime is not None:
        privacy.memoized.lifetime_epsilon = lifetime
    chain = Chain(SignedParts(release.SerializeToString(), b"", task, b"", b"", b"", b""))
    return [one.outcome for one in promise(chain) if one.what == REPEATED]


def test_the_lifetime_of_a_repeated_answer_is_held_against_the_integers() -> None:
    """What the accountant says holds, and one per mille less does not.

    Planted: the lifetime taken at its word, as before there was this statement -> fails.
    """
    lifetime = lifetime_epsilon(shaped(KRR, COLOURS, memoized=True), create(KRR, COLOURS))
    assert said(KRR, lifetime) == [Outcome.HOLDS]
    assert said(KRR, math.inf) == [Outcome.HOLDS]
    for less in (lifetime * 0.999, 0.0, -1.0, math.nan):
        assert said(KRR, less) == [Outcome.WRONG]


@for_each(
    "spec, lifetime, memoized, outcomes",
    [
        (KRR, None, False, []),
        (KRR, None, True, [Outcome.WRONG]),
        (KRR, 9.0, False, [Outcome.WRONG]),
        (REMEMBERS, 9.0, True, [Outcome.OPEN]),
    ],
)
def test_a_release_says_it_of_tasks_whose_answers_are_repeated(
    spec: MechanismSpec, lifetime: float | None, memoized: bool, outcomes: list[Outcome]
) -> None:
    """Planted: said or not, not compared with the task; an unknown law taken for a confirmed one
    -> fails.
    """
    assert said(spec, lifetime, memoized=memoized) == outcomes
