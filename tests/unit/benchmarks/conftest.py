"""What is started here starts warm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worlds.warm import warm_starts


@pytest.fixture(autouse=True, scope="module")
def _warm() -> Iterator[None]:
    with warm_starts():
        yield
