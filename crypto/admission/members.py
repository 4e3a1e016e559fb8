"""Which verifier a task's admission means, for shufflers, and how large its frames are. What a
device shows is chosen where it is known what the device has: ``shoal.clients.core.prover_for``.
"""

from __future__ import annotations

from shoal.crypto.admission.admission import Verifier
from shoal.crypto.admission.enrolled import EnrolledVerifier
from shoal.crypto.admission.open import OPEN
from shoal.crypto.envelope import frame_size, sealed_size
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from shoal.task import Admission, Task


def verifier_of(task: Task) -> Verifier:
    """Raises INVALID for an admission that this version has no member for."""
    match task.admission:
        case Admission.OPEN:
            return OPEN
        case Admission.ENROLLED:
            return EnrolledVerifier(task.enrolment_key)
    raise ShoalError(
        Kind.INVALID, f"task {task.name}: its admission is not available in this version"
    )


def frame_bytes(task: Task) -> int:
    """Bytes that a device sends for one report of a task, its proof of admission among them. Raises
    OVERSIZE if no frame holds its messages.
    """
    suite = SuiteId.of(task.suite)
    admission = verifier_of(task).proof_size
    return frame_size(suite, task.messages, sealed_size(suite, task.report_size), admission)
