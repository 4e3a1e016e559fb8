"""What tests of several folders are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worlds.devices.owner import Owner, owner_at


@pytest.fixture
def owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Owner:
    """Somebody with a configured agent, who types commands of ``shoal agent``."""
    return owner_at(tmp_path, capsys)
