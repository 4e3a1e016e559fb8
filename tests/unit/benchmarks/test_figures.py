"""Figures, goals and the order in which limit and subject take turns."""

from __future__ import annotations

import pytest

from benchmarks.figures import Figure, Goal, Outcome, Sample, alternate, quantile, show


def test_limit_and_subject_take_turns_and_every_subject_stands_between_two_limits() -> None:
    """Planted: all limits first, then all subjects -> this fails."""
    order: list[str] = []

    def limit() -> Sample:
        order.append("limit")
        return Sample(units=100, wall=float(len(order)))

    def subject() -> Sample:
        order.append("subject")
        return Sample(units=100, wall=2.0)

    pairs = alternate(2, limit, subject)
    assert order == ["limit", "subject", "limit", "subject", "limit"]
    # limits took 1, 3 and 5 seconds: 100, 33.3 and 20 per second; the subject always 50
    assert pairs.rates() == pytest.approx((50 / ((100 + 100 / 3) / 2), 50 / ((100 / 3 + 20) / 2)))


def test_a_goal_is_about_the_median_and_its_side_counts() -> None:
    """Planted: at_least and at_most exchanged in ``Goal.met`` -> this fails."""
    assert Figure("rate", (0.1, 0.7, 0.9), goal=Goal(at_least=0.65)).met is True
    assert Figure("rate", (0.6, 0.6, 0.9), goal=Goal(at_least=0.65)).met is False
    assert Figure("bytes", (5.0, 7.0, 5.5), goal=Goal(at_most=6)).met is True
    assert Figure("bytes", (7.0,), goal=Goal(at_most=6)).met is False
    assert Figure("rate", (0.1,)).met is None


def test_a_figure_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        Figure("rate", ())


def test_cpu_is_per_unit_of_work() -> None:
    assert Sample(units=1000, wall=1.0, cpu=0.25).cpu_us == pytest.approx(250.0)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 3.0), (0.99, 4.0), (1.0, 4.0)])
def test_quantiles(share: float, expected: float) -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], share) == expected


def test_the_table_shows_median_spread_and_whether_a_goal_is_met() -> None:
    """Planted: the mean instead of the median -> this fails."""
    outcome = Outcome(
        (
            Figure("rate", (0.5, 0.6, 0.9), goal=Goal(at_least=0.65)),
            Figure("echo: rate", (1234.5,), "/s"),
        ),
        ("a note",),
    )
    lines = show("unary", "a title", outcome).splitlines()
    assert lines[0] == "unary: a title"
    assert lines[1].split() == [
        "rate",
        "0.60",
        "x",
        "(0.50",
        "to",
        "0.90,",
        "3",
        "runs)",
        "goal",
        ">=",
        "0.65:",
        "MISSED",
    ]
    assert lines[2].split() == ["echo:", "rate", "1,234", "/s", "(1", "run)"]
    assert lines[3] == "  note: a note"
    shown = outcome.to_json()["figures"][0]
    assert (shown["median"], shown["min"], shown["max"], shown["met"]) == (0.6, 0.5, 0.9, False)
