"""Certificates: the days that they have, and whether both ends of a link fit."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from shoal.cli.operations.findings import Findings
from shoal.cli.operations.handshakes import TlsEnd, why_not
from shoal.errors import ShoalError
from shoal.rpc.renewal import Ending, ending
from shoal.rpc.tls import TlsIdentity, read_certificates, read_pem
from shoal.services.certificates import SOON_DAYS
from shoal.task import split_address

_DAY_S = 86_400


def own_files(
    findings: Findings, section: str, certificate: Path, key: Path, ca: Path | None, ca_name: str
) -> bool:
    """A certificate with its key and authorities: that they fit, and the days left. Whether they
    can be used.
    """
    try:
        if ca is not None:
            pem = read_pem(ca)
            tell_days(findings, ending(f"{section}.{ca_name}", ca, pem, authority=True))
        identity = TlsIdentity.load(certificate, key, ca)
    except ShoalError as error:
        findings.fail("certificates", f"[{section}] {error}")
        return False
    tell_days(findings, ending(f"{section}.certificate", certificate, identity.certificate))
    return True


def tell_days(findings: Findings, end: Ending, mend: str = "") -> None:
    """One finding about the end of a certificate. ``mend``: what else to do than to renew it."""
    left = (end.not_after - time.time()) / _DAY_S
    date = f"{datetime.fromtimestamp(end.not_after, UTC):%Y-%m-%d}"
    what = f"{end.role} ({end.file})"
    mend = mend or (
        "add the new authority's certificate to the file"
        if end.authority
        else "have a new one issued and put it in its place (docs/OPERATIONS.md)"
    )
    if left < 0:
        findings.fail("certificates", f"{what} ended on {date}: {mend}")
    elif left < SOON_DAYS:
        findings.warn("certificates", f"{what} ends on {date}, in {int(left)} days: {mend}")
    else:
        findings.ok("certificates", f"{what} holds until {date}, {int(left)} days")


def fits(
    findings: Findings, server: TlsEnd, client: TlsEnd, address: str, what: str, mend: str
) -> bool:
    """Whether client and server would connect at this address; a failure says ``mend``."""
    parts = split_address(address)
    if parts is None:
        return False
    reason = why_not(server, client, parts[0].strip("[]"))
    if reason:
        findings.fail("certificates", f"{what} at {address}: {reason}: {mend}")
    else:
        findings.ok("certificates", f"{what}: the certificate fits {address} and its authority")
    return not reason


def dns_names(certificate: Path) -> set[str]:
    """The DNS names that a certificate is for. Raises KEY_FILE."""
    first = read_certificates(read_pem(certificate), certificate.name)[0]
    try:
        names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return set(names.get_values_for_type(x509.DNSName))
