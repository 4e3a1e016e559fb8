"""A level that is asked again is told as that, and the bars grow with it."""

from __future__ import annotations

from shoal.cli.demo.recipes import words_run
from shoal.protos.release_pb2 import DiscoveredLevel, Release


def released(level: int, *labels: str) -> Release:
    made = Release(discovered=DiscoveredLevel(level=level))
    for label in (*labels, "another"):
        made.estimates.add(label=label, value=9.0)
    return made


def test_the_total_grows_by_each_window_that_asks_a_level_again() -> None:
    """Planted: the levels of the plan alone -> "8 of 6", fails."""
    asked = (0, 1, 1, 2, 2, 2, 3)
    totals = [words_run.windows_expected(asked[: at + 1], 4) for at in range(len(asked))]
    assert totals == [4, 4, 5, 5, 6, 7, 7]
    assert totals[-1] == len(asked)


def test_a_level_that_is_asked_again_is_told_as_that() -> None:
    """Planted: nothing said of it -> fails; a withheld window as one that found nothing -> fails;
    its level by its release, which has none -> "level 1", fails.
    """
    first = words_run._line(released(1, "be", "bi"), 1, again=False)
    again = words_run._line(released(1, "be", "bi"), 1, again=True)
    assert first == "level 2: be, bi"
    assert again == "level 2, asked again: be, bi"
    gone = words_run._line(Release(withheld="too few reports"), 1, again=True)
    assert gone == "level 2, asked again: withheld, too few reports"
    assert words_run._line(released(2), 2, again=False) == "level 3: nothing"
