"""Who may answer a task: the seam between what a device shows and what the shuffler makes of it.

A task names its admission. On the device a ``Prover`` makes the proof that goes inside the hop
layer of a report; at the shuffler the task's ``Verifier`` turns it into a tag: of two reports with
the same tag, not empty, the shuffler keeps one per task and window. Nobody but the shuffler sees a
proof, and the analyzer learns no tag.

Members: ``shoal.crypto.admission.open`` (anybody), ``enrolled`` (devices with a certificate). A new
one is a pair of these, a branch in ``members.py`` and in ``clients/core.py``'s ``prover_for``, and
a subclass of the suite in tests/conformance/admission.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shoal.ids import TaskId


class Prover(Protocol):
    """On the device. Holds what the device shows for a task; never printed or pickled if that is
    secret.
    """

    def prove(self, task_id: TaskId, window: int, sealed: Sequence[bytes]) -> bytes:
        """The proof of one report, whose messages are ``sealed``. Its length is the same for all
        devices of a task. Raises INVALID for a window that is no uint32.
        """
        ...


class Verifier(Protocol):
    """At the shuffler, for one task. Public, immutable and picklable: worker processes get it."""

    @property
    def proof_size(self) -> int:
        """Bytes of every proof of the task."""
        ...

    def verify(
        self, proof: bytes, task_id: TaskId, window: int, sealed: Sequence[bytes], now: float
    ) -> bytes:
        """The tag of who made the report; empty: nobody is told from another. ``now``: Unix
        seconds.

        Raises UNAUTHENTICATED for a proof that is missing or does not hold for exactly this task,
        window and these messages; INVALID for one that the task does not want.
        """
        ...
