"""What a demo has to show at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shoal.codec import decode_signed_task

AUTHORITY = "authority"  # file beside the results, for ``shoal verify --authority``


@dataclass(frozen=True, slots=True)
class Made:
    """``results``: the demo's JSON. ``page``: the report page. ``tasks``: signed tasks by file
    name, which give the console their words. ``checkable``: release files for ``shoal verify``, by
    file name.
    """

    results: dict[str, Any]
    page: str
    tasks: dict[str, bytes]
    checkable: dict[str, bytes] = field(default_factory=dict)

    def authority(self) -> str:
        """Who signed the tasks: the public half, in hex, of a key that may be gone by now."""
        return decode_signed_task(next(iter(self.tasks.values()))).authority.hex()
