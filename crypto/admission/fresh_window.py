"""Which window of a discovery an enrolled device answers, where each answers in one alone.

The draw is made of the device's own key, so a device that lost its memory and kept its key draws
the same window again, in which the shuffler has its report already::

    HKDF-SHA256 (RFC 5869), without salt, of the 32-byte Ed25519 private key (RFC 8032),
    info "shoal/v1/fresh" 0x00 task_id, 32 bytes; read big-endian, modulo the number of windows

A number below 2^256 modulo one below 2^32 is uniform but for 2^-224. To whoever lacks the key the
windows of devices and of tasks are independent, and the value has no part in them. Who made the key
can know them; that tells nothing of a value (decision 0113). Vectors: docs/WIRE.md.
"""

from __future__ import annotations

from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId

_CONTEXT = b"shoal/v1/fresh\x00"


def fresh_window(key: SigningKey, task_id: TaskId, windows: int) -> int:
    """From 0 to ``windows`` - 1, the same whenever it is asked. Raises INVALID for a number of
    windows that no task has.
    """
    if not 1 <= windows < 1 << 32:
        raise ShoalError(Kind.INVALID, "a task has 1 to 2^32 - 1 windows")
    return int.from_bytes(key.secret_for(_CONTEXT + task_id.raw), "big") % windows
