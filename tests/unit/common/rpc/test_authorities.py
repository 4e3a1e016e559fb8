"""The form of an authority's certificates, told without reading them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shoal.errors import Kind, ShoalError
from shoal.rpc.tls import check_certificates, read_certificates
from tests.cases import for_each
from tests.unit.common.rpc.world import OURS, authority

ONE, KEY = authority(OURS).cert_pem, authority(OURS).key_pem
BEGIN, END = b"-----BEGIN CERTIFICATE-----\n", b"-----END CERTIFICATE-----\n"
BODY = b"".join(ONE.splitlines()[1:-1])


@for_each(
    "data",
    [
        ONE,
        ONE + authority("another").cert_pem,
        b"# a name\nother words\n" + ONE + b"\n# more\n" + ONE,
        ONE.replace(b"\n", b"\r\n"),
        ONE.replace(b"CERTIFICATE", b"X509 CERTIFICATE"),
        ONE.rstrip(),
    ],
)
def test_certificates_pass(data: bytes) -> None:
    """Whatever the library reads. Planted: "\\r" not taken for a space; the second block alone
    checked -> fails.
    """
    assert read_certificates(data, "it")
    check_certificates(data, "it")


BROKEN = {
    "nothing": b"",
    "no certificate": b"-----BEGIN NONSENSE-----",
    "a key": KEY,
    "an empty block": BEGIN + END,
    "cut off": ONE[: len(ONE) // 2],
    "without its end": ONE.replace(END.strip(), b""),
    "no base64": BEGIN + b"!!!!\n" + END,
    "a lost line": b"\n".join(line for number, line in enumerate(ONE.splitlines()) if number != 3)
    + b"\n",
    "a lost letter": BEGIN + BODY[:50] + BODY[51:] + b"\n" + END,
    "something after it": BEGIN + BODY.rstrip(b"=") + b"AAAA\n" + END,
    "a second that is cut off": ONE + ONE[:200],
    "DER": b"\x30\x82" + bytes(100),
    "a short sequence": BEGIN + b"MAA=\n" + END,
    "another type": BEGIN + b"MY" + BODY[2:] + b"\n" + END,
}


@for_each("data", BROKEN.values(), ids=BROKEN)
def test_what_is_none_is_refused(data: bytes) -> None:
    """Planted: no length compared; findall without counting what begins -> fails."""
    with pytest.raises(ShoalError, match=r"^the CA is not a PEM certificate$") as caught:
        check_certificates(data, "the CA")
    assert caught.value.kind is Kind.KEY_FILE


@pytest.mark.timeout(60)
def test_a_file_of_beginnings_is_refused_before_the_day_is_over() -> None:
    """A file may have 1 MiB. Planted: a search that goes on over the next beginning -> takes
    minutes, and the time limit ends it.
    """
    begins, ends = (mark.strip() * (1_000_000 // len(mark) // 2) for mark in (BEGIN, END))
    for data in (begins, ends + begins):
        with pytest.raises(ShoalError):
            check_certificates(data, "the CA")


def test_nothing_is_loaded_for_it() -> None:
    """Planted: ``read_certificates`` in its place -> fails."""
    code = (
        f"import sys; from shoal.rpc.tls import check_certificates as c; c({ONE!r}, ''); assert "
        "'cryptography' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
