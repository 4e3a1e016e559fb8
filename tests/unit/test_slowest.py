"""The longest files start first, in every kind of run."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.conftest import pytest_collection_modifyitems
from tests.slowest import SLOWEST

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", SLOWEST)
def test_every_file_is_there(name: str) -> None:
    """Planted: a name that was left behind when its file moved -> this fails."""
    assert (ROOT / name).is_file()


class Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def test_they_come_first_and_the_others_keep_their_order(pytestconfig: pytest.Config) -> None:
    """Planted: xdist's own order left on, or a sort that reverses -> this fails."""
    first, second = list(SLOWEST)[:2]
    names = ["tests/b.py::test_a", f"{second}::test_a", "tests/a.py::test_a", f"{first}::test_b", f"{first}::test_a"]
    items = [Item(name) for name in names]
    pytest_collection_modifyitems(cast("list[pytest.Item]", items))
    assert [item.nodeid for item in items] == [names[3], names[4], names[1], names[0], names[2]]
    assert pytestconfig.getoption("loadscopereorder") is False
