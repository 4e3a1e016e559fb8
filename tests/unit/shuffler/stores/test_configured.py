"""What the service keeps, opened and closed as one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shoal.shuffler.stores.configured import open_store
from tests.worlds.services.shuffler import World


async def test_every_part_is_closed_where_some_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: parts closed in a row -> the reports stay open, fails. Planted: the last failure
    raised -> fails.
    """
    world = World(tmp_path)
    world.data_dir.mkdir()
    storage = await open_store(world.config())
    closed: list[str] = []

    def failing(name: str, close: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def closing() -> None:
            closed.append(name)
            await close()
            if name != "reports":
                raise OSError(5, name)

        return closing

    for name in ("vectors", "answered", "reports"):
        part = getattr(storage, name)
        monkeypatch.setattr(part, "close", failing(name, part.close))
    with pytest.raises(OSError, match="vectors"):
        await storage.close()
    assert closed == ["vectors", "answered", "reports"]
