"""What a device must never forget of its rounds, or a second answer would open the first."""

from __future__ import annotations

from typing import Protocol

from shoal.ids import Digest, TaskId


class RoundLedger(Protocol):
    """A device's durable memory of what it has answered. It outlives the round, the process and a
    power cut.
    """

    def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None:
        """Write down that this window is answered in this round by the vector whose sealed bytes
        have this SHA-256.

        Durable on return. Raises CONFLICT if the window was answered already, in whatever round.
        """
        ...

    def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None:
        """Write down that shares were given for the commit record with this SHA-256.

        Durable on return. Raises CONFLICT if another commit of this round was answered.
        """
        ...
