"""A folder that does not open is let go of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.shuffler.stores.sqlite.window_states import WindowStates


def held(folder: Path) -> list[str]:
    """Files of the folder that this process has open."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    paths = [os.readlink(link) for link in links if os.path.islink(link)]
    return [path for path in paths if path.startswith(str(folder))]


def test_what_was_opened_is_closed_where_the_rest_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that tries again would run out of files. Planted: the files left open -> fails."""

    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(WindowStates, "_recover", failing)
    with pytest.raises(ShoalError) as refused:
        WindowStates(tmp_path)
    assert refused.value.kind is Kind.CONFIG
    assert held(tmp_path) == []
