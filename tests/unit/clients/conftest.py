"""A device's folder and the service on it, for the tests of what the running agent does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.devices.runner import Place, lines, place_at, quicken


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quicken(monkeypatch)


@pytest.fixture
def place(tmp_path: Path, quick: None) -> Place:
    """Six windows of an hour, and nothing that takes real time."""
    return place_at(tmp_path)


@pytest.fixture
def logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[dict[str, Any]]]:
    """What was logged so far, however an earlier test configured the logs."""
    caplog.set_level(logging.INFO, "shoal")
    monkeypatch.setattr(logging.getLogger("shoal"), "propagate", True)
    return lambda: lines(caplog)
