"""Certificates near their end, replaced files, and what /status and metrics tell of the machine."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from shoal.clocks.clock import FakeClock
from shoal.clocks.timekeeper import Timekeeper
from shoal.crypto.tlscerts import Identity, issue, make_authority
from shoal.limits import MIB
from shoal.rpc.renewal import TlsFiles, TrustFile
from shoal.rpc.tls import TlsIdentity
from shoal.services.certificates import Certificates
from shoal.services.conditions import Condition
from shoal.services.machine import Machine

DAY = 86_400
AUTHORITY = make_authority("test")
ISSUER = (AUTHORITY.cert_pem, AUTHORITY.key_pem)


def made(days: int) -> Identity:
    return issue(ISSUER, "x", ["localhost"], server=True, client=True, days=days)


def put(folder: Path, identity: Identity, chain: bytes = b"") -> tuple[Path, Path]:
    """The two files, as somebody who renews leaves them."""
    certificate, key = folder / "own.pem", folder / "own.key"
    certificate.write_bytes(identity.cert_pem + chain)
    key.write_bytes(identity.key_pem)
    key.chmod(0o600)
    return certificate, key


def told(found: list[Condition]) -> list[tuple[str, str, bool]]:
    return [(one.code, one.subject, one.stops) for one in found]


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (31 * DAY, []),
        (29 * DAY, [("certificate", "tls.certificate", False)]),
        (-1, [("certificate", "tls.certificate", True)]),
    ],
)
def test_a_certificate_is_shown_thirty_days_before_its_end_and_stops_at_it(
    tmp_path: Path, left: float, expected: list[tuple[str, str, bool]]
) -> None:
    """Planted: 14 days, as it was -> fails. Planted: shown and never stopping -> fails."""
    files = TlsFiles("tls", *put(tmp_path, made(90)))
    (ending,) = files.endings()
    certificates = Certificates([files], now=lambda: ending.not_after - left)
    found = list(certificates.conditions())
    assert told(found) == expected
    assert all("own.pem" in one.message and "no restart" in one.message for one in found)


def test_a_chain_ends_with_its_first_certificate_and_a_bundle_of_authorities_with_its_last(
    tmp_path: Path,
) -> None:
    """A bundle holds old authorities beside new ones. Planted: the same rule for both -> fails."""
    short, long = made(5), made(300)
    certificate, key = put(tmp_path, long, short.cert_pem)
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(short.cert_pem + long.cert_pem)
    own = TlsFiles("analyzer", certificate, key, bundle, ca_name="ca")
    certificates = Certificates([own], [TrustFile("mqtt.ca", bundle)])
    assert [(row["role"], row["file"], row["days_left"]) for row in certificates.status()] == [
        ("analyzer.ca", "ca.pem", 299),
        ("analyzer.certificate", "own.pem", 4),
        ("mqtt.ca", "ca.pem", 299),
    ]
    assert told(list(certificates.conditions())) == [("certificate", "analyzer.certificate", False)]
    end = datetime.fromisoformat(certificates.status()[1]["not_after"])
    assert 4 * DAY < (end - datetime.now(UTC)).total_seconds() < 5 * DAY


def test_what_was_replaced_is_taken_up_once_and_whole(tmp_path: Path) -> None:
    """Between the writes of a certificate and of its key the two don't fit: the old ones go on,
    and a condition says so. Planted: the files looked at only at the start -> nothing taken up,
    fails. Planted: the trouble left set by a look that succeeds -> fails.
    """
    before, after = made(40), made(200)
    files = TlsFiles("tls", *put(tmp_path, before))
    taken: list[TlsIdentity] = []
    files.on_renewal(taken.append)
    certificates = Certificates([files])
    assert not certificates.look()
    assert not taken
    (tmp_path / "own.pem").write_bytes(after.cert_pem)
    assert not certificates.look()
    (found,) = certificates.conditions()
    assert (found.code, found.stops) == ("certificate", False)
    assert "does not belong" in found.message
    assert "PRIVATE" not in found.message
    (tmp_path / "own.key").write_bytes(after.key_pem)
    assert certificates.look()
    assert [one.certificate for one in taken] == [after.cert_pem]
    assert certificates.status()[0]["days_left"] == 199
    assert list(certificates.conditions()) == []
    assert not certificates.look()


def test_a_certificate_that_is_over_or_gone_is_not_taken_up(tmp_path: Path) -> None:
    """Planted: the key's mode not looked at -> taken up: fails."""
    certificate, key = put(tmp_path, made(40))
    files = TlsFiles("tls", certificate, key)
    before = files.identity
    key.chmod(0o644)
    assert not files.look()
    assert "chmod 600" in files.trouble
    key.chmod(0o600)
    certificate.unlink()
    assert not files.look()
    assert "cannot read" in files.trouble
    assert files.identity is before
    put(tmp_path, made(41))
    assert files.look()
    assert not files.trouble


def test_status_and_metrics_tell_days_room_and_clock_in_coarse_steps(tmp_path: Path) -> None:
    """Room by the byte would count the reports of an open window. Planted: the step left out ->
    fails.
    """
    keeper = Timekeeper(tmp_path, "shoal shuffler clock")
    keeper.watch(lambda _: True)
    keeper.look()
    certificates = Certificates([TlsFiles("tls", *put(tmp_path, made(90)))])
    machine = Machine(tmp_path, certificates, keeper)
    status = machine.status()
    disk, space = status["disk"], os.statvfs(tmp_path)
    step = max(64 * MIB, disk["total_bytes"] // 128)
    assert disk["free_bytes"] % step == 0
    assert disk["total_bytes"] == space.f_blocks * space.f_frsize
    assert 0 <= space.f_bavail * space.f_frsize - disk["free_bytes"] < 2 * step
    assert status["clock"] == {"difference_s": 0, "peers": {}}
    keeper.hear("0badcafe", keeper.now() + 7.2, 0.1, vouched=True)
    registry = CollectorRegistry()
    registry.register(machine)
    page = generate_latest(registry).decode()
    assert 'shoal_certificate_days_left{role="tls.certificate"} 89.0' in page
    assert 'shoal_clock_peer_difference_seconds{peer="0badcafe"} 7.0' in page
    assert "shoal_clock_difference_seconds 0.0" in page
    assert "shoal_disk_free_bytes " in page
    gone = Machine(tmp_path / "gone", certificates, FakeClock(0.0))
    assert gone.status()["disk"] == {"free_bytes": None, "total_bytes": None}
    assert gone.status()["clock"] == {"difference_s": None, "peers": {}}
