"""Tasks for enrolled devices alone."""

from __future__ import annotations

from dataclasses import replace

from shoal.crypto.admission.admission import Prover, Verifier
from shoal.crypto.admission.enrolled import EnrolledProver
from shoal.crypto.admission.enrolment import enrol
from shoal.crypto.admission.members import verifier_of
from shoal.crypto.signing import SigningKey
from shoal.task import Admission
from tests.conformance.admission.suite import NOW, AdmissionSuite
from tests.worlds.devices.clients import make_world

ROOT = SigningKey.generate()
DEVICES = [enrol(ROOT, int(NOW) - 100, int(NOW) + 100) for _ in range(3)]


class TestEnrolled(AdmissionSuite):
    tells_devices_apart = True

    def verifier(self) -> Verifier:
        task = replace(make_world().task, admission=Admission.ENROLLED, enrolment_key=ROOT.public)
        return verifier_of(task)

    def provers(self) -> list[Prover]:
        return [EnrolledProver(device) for device in DEVICES]
