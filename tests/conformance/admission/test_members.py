"""Every way of admission that a task can name has a member on both sides, words, and a suite."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.analyzer.results.release import ADMISSION_LINES
from shoal.clients.core import prover_for
from shoal.crypto.admission.enrolment import enrol
from shoal.crypto.admission.members import verifier_of
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError
from shoal.task import Admission, Task
from tests.conformance.admission import suite, test_enrolled, test_open
from tests.worlds.devices.clients import START, make_world

SUITES = {Admission.OPEN: test_open.TestOpen, Admission.ENROLLED: test_enrolled.TestEnrolled}
ROOT = SigningKey.generate()


def task_of(admission: Admission) -> Task:
    """TOKEN, which no task can name yet, past the task's own refusal."""
    key = b"" if admission is Admission.OPEN else ROOT.public
    task = replace(
        make_world().task,
        admission=min(admission, Admission.ENROLLED),
        enrolment_key=key,
    )
    object.__setattr__(task, "admission", admission)
    return task


@pytest.mark.parametrize("admission", SUITES)
def test_device_and_shuffler_have_the_same_member(admission: Admission) -> None:
    """What the device of ``prover_for`` shows is taken by ``verifier_of``. Planted: a case left out
    of either -> this fails.
    """
    task = task_of(admission)
    prover = prover_for(task, enrol(ROOT, int(START) - 100, int(START) + 100), START)
    proof = prover.prove(suite.TASK, 0, suite.SEALED)
    tag = verifier_of(task).verify(proof, suite.TASK, 0, suite.SEALED, START)
    assert bool(tag) is SUITES[admission].tells_devices_apart
    assert ADMISSION_LINES[admission]


@pytest.mark.parametrize("admission", set(Admission) - set(SUITES))
def test_what_has_no_member_is_refused(admission: Admission) -> None:
    """Planted: whatever is not open taken for enrolled -> a device shows its certificate."""
    task = task_of(admission)
    identity = enrol(ROOT, int(START) - 100, int(START) + 100)
    with pytest.raises(ShoalError) as caught:
        prover_for(task, identity, START)
    assert caught.value.kind is Kind.CONFIG
    with pytest.raises(ShoalError) as caught:
        verifier_of(task)
    assert caught.value.kind is Kind.INVALID
    assert admission not in ADMISSION_LINES
