"""What tests of the console's pages have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from shoal.console.operator.app import Sources, operator_app
from shoal.console.operator.planner.work import Workshop
from tests.worlds.console import write_data

HERE = "127.0.0.1:7450"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A console of an analyzer's data and tasks, for a file of tests."""
    data, tasks = write_data(tmp_path_factory.mktemp("console"))
    app = operator_app(Sources(data_dir=data, tasks_dir=tasks), HERE)
    with TestClient(app, base_url=f"http://{HERE}") as client:
        yield client


@pytest.fixture(autouse=True)
def only_who_plans_warms_up(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any page starts the Planner's processes, which takes seconds of CPU: tests of other pages
    leave that out. A question that is asked starts them all the same.
    """
    if not request.module.__name__.endswith(("test_planner", "test_planner_several")):
        monkeypatch.setattr(Workshop, "warm", lambda _: None)
