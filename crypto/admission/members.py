"""Which verifier a task's admission means, for shufflers. What a device shows is chosen where it is
known what the device has: ``shoal.clients.core.prover_for``.
"""

from __future__ import annotations

from shoal.crypto.admission.admission import Verifier
from shoal.crypto.admission.enrolled import EnrolledVerifier
from shoal.crypto.admission.open import OPEN
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
