"""``shoal load`` where nobody is there: it says so, and does not repeat it until patience ends."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.load import absent as load_absent
from shoal.cli.load import command as load
from shoal.cli.load.absent import Absence
from shoal.cli.load.options import LoadOptions
from shoal.clients.fleet.plan import Progress
from shoal.errors import Kind, ShoalError
from tests.worlds.devices.clients import make_world
from tests.worlds.ports import free_port

NOBODY = "the shuffler can't be reached: nobody listens"


class Heard:
    def __init__(self, patience_s: float = 60.0) -> None:
        self.ended, self.notes = 0, list[str]()
        self.absence = Absence(patience_s, self._end, self.notes.append)

    def _end(self) -> None:
        self.ended += 1


def going(**changes: Any) -> Progress:
    return Progress(
        **{"total": 10, "acked": 0, "refused": 0, "unknown": 0, "trouble": NOBODY, **changes}
    )


def test_two_thirds_of_patience_without_an_answer_end_it() -> None:
    """Counted from the first failure, and reports that were given up are no answers.

    Planted: nothing concluded -> the same line for the whole of patience; counted from the start ->
    a load that begins late ends at once.
    """
    heard = Heard()
    for at, now in ((5.0, going(trouble="")), (100.0, going()), (139.0, going(unknown=4))):
        heard.absence.heard(at, now)
    assert (heard.ended, heard.absence.verdict) == (0, "")
    for at in (140.0, 141.0):
        heard.absence.heard(at, going(unknown=4))
    assert heard.ended == 1
    assert NOBODY in heard.absence.verdict
    assert "log" in heard.absence.verdict


@pytest.mark.parametrize("answer", ["acked", "refused", "surprises"])
def test_who_answered_once_is_waited_for(answer: str) -> None:
    """Planted: any silence of that length ends a load -> a service that is restarted under load
    ends it, and this fails.
    """
    heard = Heard()
    heard.absence.heard(0.0, going(**{answer: 1}))
    for at in (1.0, 1_000.0):
        heard.absence.heard(at, going())
    for _ in range(20):
        heard.absence.looked(frozenset({"shuffler"}))
    assert heard.ended == 0
    assert len(heard.notes) == 1
    heard.absence.looked(frozenset())
    assert len(heard.notes) == 2


def test_a_shuffler_that_left_before_it_answered_ends_the_load() -> None:
    """Its admin port is silent at five looks in a row; an analyzer's is told only, since reports
    are taken without it.
    """
    heard = Heard()
    for silent in ([], ["shuffler"], ["shuffler"], [], *([["analyzer"]] * 6)):
        heard.absence.looked(frozenset(silent))
    assert (heard.ended, len(heard.notes)) == (0, 1)
    for _ in range(5):
        heard.absence.looked(frozenset({"shuffler"}))
    assert heard.ended == 1
    assert "shuffler" in heard.absence.verdict


def test_a_load_against_nobody_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an hour of patience, and real processes. Planted: the verdict not heard -> this takes
    the hour.
    """
    monkeypatch.setattr(load_absent, "_PATIENCE", 1e-9)
    make_world(f"127.0.0.1:{free_port()}", start=int(time.time()) - 10).write(tmp_path)
    with pytest.raises(ShoalError) as caught:
        load.run(
            LoadOptions(
                devices=3,
                task=[tmp_path / "visits.task"],
                processes=1,
                patience=3_600.0,
                as_json=True,
            )
        )
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "nobody listens" in caught.value.message
    assert '"acked": 0' in capsys.readouterr().out
