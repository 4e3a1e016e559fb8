"""Tasks that anybody may answer: nothing is shown, and nobody is told from another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId


@dataclass(frozen=True, slots=True)
class OpenAdmission:
    """Prover and verifier in one: there is nothing to know."""

    @property
    def proof_size(self) -> int:
        """As ``Verifier.proof_size``: nothing is shown."""
        return 0

    def prove(self, task_id: TaskId, window: int, sealed: Sequence[bytes]) -> bytes:
        """No bytes."""
        return b""

    def verify(
        self, proof: bytes, task_id: TaskId, window: int, sealed: Sequence[bytes], now: float
    ) -> bytes:
        """The empty tag. Raises INVALID for a proof: the shuffler must not learn who answers."""
        if proof:
            raise ShoalError(Kind.INVALID, "this task admits anybody: send no admission proof")
        return b""


OPEN = OpenAdmission()
