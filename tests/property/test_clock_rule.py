"""Random walks of clocks: whatever a wall clock, a machine or one lying peer do, nothing is decided
by a time that has not come.

The walk plays the machine's true time, its wall clock and its quartz; the service looks, is
stopped, started, and loses what it did not keep. The one promise: a time that is decided by is
ahead of the true time by no more than the rule states.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from shoal.clocks.timekeeping import (
    DRIFT,
    MOST_OFF_S,
    TOLERANCE_S,
    ClockStanding,
    Word,
    judge,
    marked,
)
from tests.worlds.clock import DAY, Machine

NOW = 1_800_000_000.0
SLACK_S = 10.0
_SPANS = st.sampled_from(
    [1.0, 30.0, 59.0, 61.0, 300.0, 3_600.0, 7 * 3_600.0, DAY, 10 * DAY, 200 * DAY]
)
_STEPS = st.one_of(
    st.tuples(st.just("passes"), _SPANS),
    st.tuples(st.sampled_from(["jumps", "jumps back"]), _SPANS),
    st.tuples(st.just("returns"), st.just(0.0)),
    st.tuples(st.just("reboots"), st.sampled_from([0.0, 60.0, 500.0, 3_600.0, 3 * DAY])),
    st.tuples(st.just("pauses"), _SPANS),
    st.tuples(st.just("restarts"), st.just(0.0)),
    st.tuples(st.just("peer"), st.sampled_from([0.0, 5.0, 100.0, -DAY, 10 * DAY])),
)


class Service:
    """What ``Timekeeper`` does with the rule, without files. kept: what a restart finds."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.words = machine, dict[str, Word]()
        self.standing: ClockStanding | None = None
        self.kept: ClockStanding | None = None

    def look(self, keep: bool) -> None:
        reading = self.machine.read()
        verdict = judge(self.standing, reading, self.words, lambda _: True)
        if verdict.adopt is not None:
            self.standing = self.kept = verdict.adopt
        if keep and self.standing is not None:
            self.standing = self.kept = marked(self.standing, reading)

    def restart(self) -> None:
        self.standing, self.words = self.kept, {}

    def decide(self) -> float | None:
        reading = self.machine.read()
        return (
            reading.wall if judge(self.standing, reading, self.words, lambda _: True).sure else None
        )


def _walk(steps: list[tuple[str, float]], rate: float, lying: bool) -> None:
    machine = Machine(NOW, rate)
    service = Service(machine)
    service.look(keep=True)
    for name, seconds in steps:
        match name:
            case "jumps" | "jumps back":
                machine.jumps(seconds if name == "jumps" else -seconds)
            case "returns":
                machine.error = 0.0
            case "restarts":
                service.restart()
            case "reboots":
                machine.reboots(seconds)
                service.restart()
            # an honest one is right to within its way; a lying one says what it likes, where no
            # wall clock is wrong
            case "peer":
                lie = seconds if lying else 0.0
                if not (lying and machine.error):
                    service.words["peer"] = Word(
                        machine.true + lie, machine.up, SLACK_S, vouched=True
                    )
            case _:
                getattr(machine, name)(seconds)
        for keep in (False, True):
            at = service.decide()
            allowed = TOLERANCE_S + SLACK_S + MOST_OFF_S + 2 * DRIFT * (machine.true - NOW)
            assert at is None or at <= machine.true + allowed
            service.look(keep)


@given(
    st.lists(_STEPS, min_size=1, max_size=40),
    st.sampled_from([1 - 400e-6, 1 - 20e-6, 1.0, 1 + 20e-6, 1 + 400e-6]),
)
@example([("jumps", 59.0)] * 20, 1.0)
@example([("jumps", 59.0), ("reboots", 0.0)] * 20, 1.0)
@example([("jumps", 500.0), ("reboots", 0.0)] * 5, 1.0)
@example([("jumps", 10 * DAY), ("reboots", 60.0), ("passes", DAY), ("reboots", 60.0)], 1.0)
def test_nothing_is_decided_before_its_time(steps: list[tuple[str, float]], rate: float) -> None:
    """With an honest peer, or none. Planted: no sum of the time off; the last wall clock kept whole
    (a minute at every boot adds up); the anchor moved along; a reboot without a look at the last
    known time -> each is found.
    """
    _walk(steps, rate, lying=False)


@given(
    st.lists(_STEPS.filter(lambda step: not step[0].startswith("jumps")), min_size=1, max_size=40)
)
@example([("peer", 10 * DAY), ("reboots", 3 * DAY), ("peer", 10 * DAY)])
def test_a_lying_peer_alone_moves_nothing(steps: list[tuple[str, float]]) -> None:
    """The own wall clock is right: whatever the peer says. Planted: the peer's time decided by ->
    found at once.
    """
    _walk(steps, 1.0, lying=True)


@given(st.lists(_STEPS, max_size=20))
def test_what_was_right_goes_on(steps: list[tuple[str, float]]) -> None:
    """No walk ends in a dispute that outlives its reason: once the clock is right, an honest peer
    ends it.

    Planted: trouble kept -> found.
    """
    machine = Machine(NOW)
    service = Service(machine)
    service.look(keep=True)
    for name, seconds in steps:
        if name in ("passes", "pauses", "reboots", "jumps"):
            getattr(machine, name)(seconds)
        service.look(keep=True)
    machine.error = 0.0
    service.words["peer"] = Word(machine.true, machine.up, SLACK_S, vouched=True)
    service.look(keep=True)
    assert service.decide() == machine.true
