"""Links that come back at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.limits import LIMITS
from shoal.mqtt import link as link_module


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of milliseconds; the rule that they follow is tested in test_backoff.py."""
    monkeypatch.setattr(
        link_module, "LIMITS", replace(LIMITS, mqtt_retry_first_s=0.01, mqtt_retry_most_s=0.02)
    )
