"""What tests of the console's pages have in common."""

from __future__ import annotations

import pytest

from shoal.console.operator.planner.work import Workshop


@pytest.fixture(autouse=True)
def only_who_plans_warms_up(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any page starts the Planner's processes, which takes seconds of CPU: tests of other pages
    leave that out. A question that is asked starts them all the same.
    """
    if not request.module.__name__.endswith(("test_planner", "test_planner_several")):
        monkeypatch.setattr(Workshop, "warm", lambda _: None)
