"""Key schedules whose lists are signed by the roles that they are of."""

from __future__ import annotations

from shoal import codec
from shoal.crypto.schedules import sign_keys
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.task import KeySchedule, WindowKeys


def schedule_bytes(
    task_id: bytes, windows: tuple[WindowKeys, ...], analyzer: SigningKey, shuffler: SigningKey
) -> bytes:
    """A serialized KeySchedule, not yet signed by a key authority."""
    of_analyzer = sign_keys(
        analyzer, SigningContext.ANALYZER_KEYS, [w.analyzer_key for w in windows]
    )
    of_shuffler = sign_keys(shuffler, SigningContext.HOP_KEYS, [w.hop_key for w in windows])
    return codec.encode_schedule(KeySchedule(task_id, windows, of_analyzer, of_shuffler))
