"""The certificate of a join at the shuffler: it holds for the whole round, and is not
remembered.
"""

from __future__ import annotations

from shoal.crypto.admission import enrolment
from shoal.crypto.admission.enrolment import issue
from shoal.crypto.secagg.shuffler.coordinator import Coordinator
from shoal.errors import Kind
from tests.unit.crypto.secagg.shuffler.coordinators import kind_of, session
from tests.unit.crypto.secagg.shuffler.test_coordinator import a_join, resigned
from tests.worlds.rounds.secagg import DAY, ENROLMENT, NOW, Play, World, identity

WORLD = World(5)


def test_a_certificate_that_ends_during_the_round() -> None:
    """Its neighbours would give up the round when it is shown to them. Planted: validity looked at
    now alone -> fails.
    """
    play = Play(WORLD)
    late = NOW + 364.9999 * DAY  # the certificate holds until NOW + 365 days
    round_of_then = Coordinator(
        WORLD.terms, play.offer, bytes(32), WORLD.shuffler_key, WORLD.entropy("then"), late
    )
    join = a_join(play)
    assert kind_of(round_of_then.join, session(play), join, late) is Kind.UNAUTHENTICATED
    assert round_of_then.counts()["joined"] == 0


def test_a_certificate_that_does_not_hold_yet() -> None:
    """At its beginning, though it would hold when the round ends. Planted: only the later of now
    and the round's end looked at -> fails.
    """
    play, key = Play(WORLD), identity(0).key
    early = issue(ENROLMENT, key.public, int(NOW) + 1, int(NOW) + int(DAY))
    join = resigned(a_join(play), 0, certificate=early)
    assert kind_of(play.coordinator.join, session(play), join, NOW) is Kind.UNAUTHENTICATED
    assert play.coordinator.join(session(play), join, NOW + 1) == key.public


def test_no_join_leaves_a_memory_of_its_device() -> None:
    """Also one that is refused later, and one that is only looked at. Planted: ``remember=True`` in
    ``Seating.identify`` -> fails.
    """
    play = Play(WORLD)
    fresh = [issue(ENROLMENT, identity(n).key.public, int(NOW), int(NOW + DAY)) for n in range(2)]
    joins = [resigned(a_join(play, n), n, certificate=fresh[n]) for n in range(2)]
    before = enrolment._remembered.cache_info()
    play.coordinator.identify(joins[0], NOW)
    play.coordinator.join(session(play), joins[0], NOW)
    assert kind_of(play.coordinator.join, bytes(3), joins[1], NOW) is Kind.INVALID
    after = enrolment._remembered.cache_info()
    assert (after.currsize, after.hits, after.misses) == (
        before.currsize,
        before.hits,
        before.misses,
    )
