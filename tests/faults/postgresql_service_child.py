"""The shuffler's service on a shared database, with shorter times before others take over: for
test_replicas_kill.py. Run as a program it is a warm process like shuffler_child: see there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.shuffler.reports import lifecycle
from shoal.shuffler.stores import claims
from shoal.shuffler.stores.postgresql import windows
from tests.faults.shuffler_child import main, service

CLAIM_S = 2.0
RENEW_S = 0.5
LOOK_S = 0.2


def serve(folder: Path) -> None:
    """The service, until a signal."""
    patch = pytest.MonkeyPatch()  # for good: the child ends with it
    patch.setattr(claims, "CLAIM_S", CLAIM_S)
    patch.setattr(claims, "RENEW_S", RENEW_S)
    patch.setattr(lifecycle, "CLAIM_S", CLAIM_S)
    patch.setattr(windows, "_LOOK_S", LOOK_S)
    service(folder)


if __name__ == "__main__":
    main({"serve": serve})
