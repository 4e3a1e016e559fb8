"""The limit that holds for every question, as an operator set it: a file beside the audit."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import Kind, ShoalError
from shoal.services.whole_files import open_staged

LEAST, LARGEST = 0.01, 1_000.0  # an epsilon
_NAME = "limit.json"


@dataclass(frozen=True, slots=True)
class StandingLimit:
    """``path``: a folder; None where nothing is kept."""

    path: Path | None

    def read(self) -> float | None:
        """None for no limit, and for a file that holds none."""
        if self.path is None:
            return None
        try:
            said = json.loads((self.path / _NAME).read_bytes()[:1_000])
            limit = float(said["epsilon"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        return limit if math.isfinite(limit) and LEAST <= limit <= LARGEST else None

    def write(self, limit: float | None) -> None:
        """All or nothing of it. Raises UNAVAILABLE, and NOT_FOUND where nothing is kept."""
        if self.path is None:
            raise ShoalError(
                Kind.NOT_FOUND, "nothing is kept here: start the console with --config for that"
            )
        new = self.path / f"{_NAME}.new"
        try:
            file = open_staged(new)
            try:
                os.write(file, json.dumps({"epsilon": limit}).encode() + b"\n")
                os.fsync(file)
            finally:
                os.close(file)
            new.replace(self.path / _NAME)
        except OSError as error:
            raise ShoalError(
                Kind.UNAVAILABLE,
                f"the limit cannot be kept ({error.strerror or 'unwritable'}): make room on the "
                "disk of data_dir",
            ) from None
