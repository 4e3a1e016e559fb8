"""The mechanisms of several messages by name."""

from __future__ import annotations

NAMES = CANCELLING, DUMMIES, SIGNED_COUNT, SPLIT_MIX = (
    "cancelling",
    "dummies",
    "signed_count",
    "split_mix",
)


def is_several(name: str) -> bool:
    """Whether devices of a task with this mechanism send several messages."""
    return name in NAMES
