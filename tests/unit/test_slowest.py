"""The longest files start first, in every kind of run."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.cases import for_each
from tests.conftest import pytest_collection_modifyitems
from tests.slowest import SLOWEST

ROOT = Path(__file__).resolve().parents[2]


@for_each("name", SLOWEST)
def test_every_file_is_there(name: str) -> None:
    """Planted: a name that was left behind when its file moved -> this fails."""
    assert (ROOT / name).is_file()


class Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def test_they_come_early_with_others_between_and_all_else_keeps_its_order(
    pytestconfig: pytest.Config,
) -> None:
    """Planted: xdist's own order left on, a sort that parts a file, or one that takes the names in
    the order of collection -> fails.
    """
    first, second = SLOWEST[:2]
    others = [f"tests/{letter}.py::test_{number}" for letter in "abcdefgh" for number in range(2)]
    names = [*others[:2], f"{second}::test_x", *others[2:], f"{first}::test_y", f"{first}::test_x"]
    items = [Item(name) for name in names]
    pytest_collection_modifyitems(cast("list[pytest.Item]", items))
    assert [item.nodeid for item in items] == [*names[-2:], *others[:6], names[2], *others[6:]]
    assert pytestconfig.getoption("loadscopereorder") is False
