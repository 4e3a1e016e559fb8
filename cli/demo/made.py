"""What a demo has to show at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
