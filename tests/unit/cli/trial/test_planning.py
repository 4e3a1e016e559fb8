"""Plans of a trial: all questions together keep the guarantee, and too few rows are refused."""

from __future__ import annotations

import pytest

from shoal.analyzer.planner import Frequencies
from shoal.cli.trial import planning
from shoal.cli.trial.asked import AskedColumn
from shoal.cli.trial.overruled import Sort
from shoal.cli.trial.planning import TrialTerms, plans_of
from shoal.domain import Categories, YesNo
from shoal.errors import ShoalError


def asked(names: int = 0) -> AskedColumn:
    domain = Categories(tuple(map(str, range(names)))) if names else YesNo()
    return AskedColumn("c", Sort.CATEGORIES, Frequencies(domain), [], "", "")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose among few mechanisms: the comparison of all is the planner's own test."""
    monkeypatch.setattr(planning, "_fit", lambda _: ("binary_rr", "krr"))


@pytest.mark.usefixtures("two")
def test_several_questions_share_the_guarantee() -> None:
    """Planted: each question with the whole epsilon -> 1.6; with epsilon / count -> 0.8 is not
    used up; the whole delta for each -> fails.
    """
    plans = plans_of([asked(), asked(3)], TrialTerms(1.0, 1e-6, 1_000), lambda *_: None)
    assert sum(plan.request.delta for plan in plans) <= 1e-6
    assert 0.95 < planning._together(plans, 1e-6) <= 1.0
    assert all(plan.choice.epsilon_upper <= 0.8 for plan in plans)
    assert {plan.request.honest_fraction for plan in plans} == {planning.HONEST}


@pytest.mark.usefixtures("two")
def test_too_few_rows_are_refused_with_how_many_would_do() -> None:
    """Planted: the search for enough rows at the first step's error -> 10 would do."""
    with pytest.raises(ShoalError, match="8 rows are too few") as caught:
        plans_of([asked()], TrialTerms(1.0, 1e-8, 8), lambda *_: None)
    needed = int(caught.value.message.split("About ")[1].split(" rows")[0].replace(",", ""))
    (plan,) = plans_of([asked()], TrialTerms(1.0, 1e-8, needed), lambda *_: None)
    assert 0.04 < planning._error_share(plan) <= 0.05
