"""What every admission promises: inherit ``AdmissionSuite`` and name a task's verifier, and devices
that it admits.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial

import pytest

from shoal.crypto.admission.admission import Prover, Verifier
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId

TASK, OTHER = TaskId(b"t" * 32), TaskId(b"o" * 32)
NOW = 1_800_000_000.0
SEALED = (b"first sealed message", b"second sealed message")


def refused(step: Callable[[], object]) -> Kind:
    with pytest.raises(ShoalError) as caught:
        step()
    assert "\n" not in caught.value.message
    return caught.value.kind


class AdmissionSuite:
    """``tells_devices_apart``: whether a tag says which device it is."""

    tells_devices_apart: bool

    def verifier(self) -> Verifier:
        raise NotImplementedError

    def provers(self) -> list[Prover]:
        """At least two devices that the task admits at ``NOW``."""
        raise NotImplementedError

    def proof(self, prover: Prover, window: int = 3) -> bytes:
        return prover.prove(TASK, window, SEALED)

    def test_what_a_device_proves_is_verified(self) -> None:
        """Also by a copy of the verifier in another process. Planted: a verifier that holds more
        than public values -> it can't be pickled, or prints them.
        """
        # our own bytes
        copy: Verifier = pickle.loads(pickle.dumps(self.verifier()))  # noqa: S301
        for prover in self.provers():
            tag = self.verifier().verify(self.proof(prover), TASK, 3, SEALED, NOW)
            assert copy.verify(self.proof(prover), TASK, 3, SEALED, NOW) == tag
            assert bool(tag) is self.tells_devices_apart

    def test_every_proof_has_the_one_size_of_its_task(self) -> None:
        """The size of a frame tells no device from another. Planted: a proof without the window's
        leading zeros -> another length.
        """
        sizes = {
            len(prover.prove(TASK, window, sealed))
            for prover in self.provers()
            for window in (0, 3, (1 << 32) - 1)
            for sealed in (SEALED, SEALED[:1], (b"",))
        }
        assert sizes == {self.verifier().proof_size}

    def test_a_retry_shows_the_same(self) -> None:
        """The tag too: a report that is sent again is no second one. Planted: a fresh nonce in the
        proof -> fails.
        """
        for prover in self.provers():
            assert self.proof(prover) == prover.prove(TASK, 3, list(SEALED))

    def test_a_tag_is_of_one_device_whatever_it_reports(self) -> None:
        """Planted: a tag over the sealed messages -> one device has two reports in a window."""
        verifier, tags = self.verifier(), list[bytes]()
        for prover in self.provers():
            mine = {
                verifier.verify(prover.prove(TASK, 3, sealed), TASK, 3, sealed, NOW)
                for sealed in (SEALED, SEALED[::-1])
            }
            assert len(mine) == 1
            tags += mine
        assert (len(set(tags)) == len(tags)) is self.tells_devices_apart

    def test_a_proof_holds_for_one_report(self) -> None:
        """Where a tag names a device, nobody can move its proof to another task, window or report,
        or do without one. Planted: any of them left out of what is proven -> accepted.
        """
        if not self.tells_devices_apart:
            return
        verifier = self.verifier()
        proof = self.proof(self.provers()[0])
        for shown, task_id, window, sealed in (
            (proof, OTHER, 3, SEALED),
            (proof, TASK, 4, SEALED),
            (proof, TASK, 3, SEALED[::-1]),
            (proof, TASK, 3, SEALED[:1]),
            (b"", TASK, 3, SEALED),
        ):
            step = partial(verifier.verify, shown, task_id, window, sealed, NOW)
            assert refused(step) is Kind.UNAUTHENTICATED

    def test_what_is_no_proof_is_refused(self) -> None:
        """Planted: an exception of a parser let through -> no ShoalError."""
        verifier = self.verifier()
        size = max(verifier.proof_size, 1)
        for junk in (b"\x00" * size, b"\xff" * size, b"\x0a" * (size + 1), b"x"):
            step = partial(verifier.verify, junk, TASK, 3, SEALED, NOW)
            assert refused(step) in {Kind.UNAUTHENTICATED, Kind.INVALID}
