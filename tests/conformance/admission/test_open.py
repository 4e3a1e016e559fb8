"""Tasks that anybody may answer."""

from __future__ import annotations

from shoal.crypto.admission.admission import Prover, Verifier
from shoal.crypto.admission.members import verifier_of
from shoal.crypto.admission.open import OPEN
from shoal.errors import Kind
from tests.conformance.admission.suite import NOW, SEALED, TASK, AdmissionSuite, refused
from tests.worlds.devices.clients import make_world


class TestOpen(AdmissionSuite):
    tells_devices_apart = False

    def verifier(self) -> Verifier:
        return verifier_of(make_world().task)

    def provers(self) -> list[Prover]:
        return [OPEN, OPEN]


def test_whoever_shows_something_is_refused() -> None:
    """The shuffler must not learn who answers. Planted: the proof ignored -> taken."""
    assert refused(lambda: OPEN.verify(b"x", TASK, 3, SEALED, NOW)) is Kind.INVALID
