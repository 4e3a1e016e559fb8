"""The mechanisms of several messages by name."""

from __future__ import annotations

from shoal.task import SHUFFLER_NOISE

BLOCKS, CANCELLING, DUMMIES, MARGINALS, RANGES, SIGNED_COUNT, SPLIT_MIX = (
    "blocks",
    "cancelling",
    "dummies",
    "marginals",
    "ranges",
    "signed_count",
    "split_mix",
)
NAMES = (
    BLOCKS,
    CANCELLING,
    DUMMIES,
    MARGINALS,
    RANGES,
    SIGNED_COUNT,
    SPLIT_MIX,
    SHUFFLER_NOISE,
)


def is_several(name: str) -> bool:
    """Whether a task with this mechanism hides true messages among others: devices' or the
    shuffler's.
    """
    return name in NAMES
