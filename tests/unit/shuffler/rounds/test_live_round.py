"""How long the shuffler asks the analyzer, and what its answers mean for a round."""

from __future__ import annotations

import pytest

from shoal.clocks.backoff import Backoff
from shoal.clocks.clock import FakeClock
from shoal.crypto.secagg.records import Reason
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.shuffler.core import WindowId
from shoal.shuffler.rounds import live_round
from shoal.shuffler.rounds.live_round import GaveUpError, ask

WINDOW = WindowId(TaskId(bytes(32)), 0)
SAYS_FOR_GOOD = {
    Kind.NOT_FOUND: Reason.RESTARTED,
    Kind.WINDOW_CLOSED: Reason.WINDOW_OVER,
    Kind.FORBIDDEN: Reason.UNREACHABLE,
    Kind.UNAUTHENTICATED: Reason.UNREACHABLE,
    Kind.INVALID: Reason.DISAGREE,
    Kind.CONFLICT: Reason.DISAGREE,
    Kind.MISMATCH: Reason.DISAGREE,
    Kind.BAD_SIGNATURE: Reason.DISAGREE,
}


class Analyzer:
    """Fails with these errors, one per call, each taking ``seconds`` on the clock; then it
    answers.
    """

    def __init__(self, clock: FakeClock, errors: list[ShoalError], seconds: float = 1.0) -> None:
        self.clock, self.errors, self.seconds, self.calls = clock, errors, seconds, 0

    async def __call__(self) -> str:
        self.calls += 1
        self.clock.advance(self.seconds)
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_round, "_ASK", Backoff(1e-9, 1e-9))


async def asked(analyzer: Analyzer, patience: float) -> str:
    return await ask(
        analyzer,
        WINDOW,
        analyzer.clock,
        SeededEntropy("ask"),
        analyzer.clock.now() + patience,
        "StartRound",
    )


async def test_an_analyzer_that_comes_back_in_time_costs_nothing() -> None:
    """Planted: the first failure is the last -> UNREACHABLE."""
    kinds = [Kind.UNAVAILABLE, Kind.DEADLINE, Kind.OVERLOADED, Kind.INTERNAL, Kind.UNAVAILABLE]
    analyzer = Analyzer(FakeClock(), [ShoalError(kind, "away") for kind in kinds])
    assert await asked(analyzer, 10.0) == "done"
    assert analyzer.calls == 6


async def test_patience_ends() -> None:
    """Planted: no end -> it asks for ever, and its devices wait as long."""
    analyzer = Analyzer(FakeClock(), [ShoalError(Kind.UNAVAILABLE, "away")] * 100)
    with pytest.raises(GaveUpError) as error:
        await asked(analyzer, 10.0)
    assert error.value.reason is Reason.UNREACHABLE
    assert analyzer.calls == 10


@pytest.mark.parametrize(("kind", "reason"), SAYS_FOR_GOOD.items())
async def test_what_the_analyzer_says_for_good_ends_the_round_at_once(
    kind: Kind, reason: Reason
) -> None:
    analyzer = Analyzer(FakeClock(), [ShoalError(kind, "no")])
    with pytest.raises(GaveUpError) as error:
        await asked(analyzer, 10.0)
    assert (error.value.reason, analyzer.calls) == (reason, 1)


@pytest.mark.parametrize("reason", list(Reason))
async def test_an_abort_of_the_analyzer_keeps_its_reason(reason: Reason) -> None:
    with pytest.raises(GaveUpError) as error:
        await asked(Analyzer(FakeClock(), [reason.error]), 10.0)
    assert error.value.reason is reason


async def test_words_that_nobody_agreed_on_are_not_passed_on() -> None:
    with pytest.raises(GaveUpError) as error:
        await asked(
            Analyzer(FakeClock(), [ShoalError(Kind.ABORTED, "because device 7 is late")]), 10.0
        )
    assert error.value.reason is Reason.OTHER
