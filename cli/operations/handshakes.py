"""TLS as two configuration files have it, tried in memory: whether one end would take the other."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from shoal.rpc.tls import read_pem

_ROUNDS = 10  # flights of a handshake, far more than there are
_Wanting = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True, slots=True)
class TlsEnd:
    """One end of a connection. certificate, key: what it shows, if anything; trusts: PEM of those
    that the other end's must chain to, None: it does not ask for any.
    """

    certificate: Path | None = None
    key: Path | None = None
    trusts: bytes | None = field(default=None, repr=False)


def why_not(server: TlsEnd, client: TlsEnd, name: str) -> str:
    """Why the two would not connect under this name, in a few words; empty: they would.

    name: the host name or IP address that the client dials. Raises KEY_FILE.
    """
    ends = _wrapped(server, client, name)
    if isinstance(ends, str):
        return ends
    done = [False, False]
    for _ in range(_ROUNDS):
        for place, end in enumerate(ends):
            if done[place]:
                continue
            try:
                end.do_handshake()
                done[place] = True
            except _Wanting:
                continue
            except ssl.SSLCertVerificationError as error:
                who = "the client's certificate" if place else "the server's certificate"
                return f"{who} is refused: {error.verify_message.rstrip('.')}"
            except ssl.SSLError as error:
                return f"the handshake fails: {(error.reason or 'unknown').lower()}"
        if all(done):
            return ""
    return "the handshake does not end"


def _wrapped(
    server: TlsEnd, client: TlsEnd, name: str
) -> tuple[ssl.SSLObject, ssl.SSLObject] | str:
    """The client's half and the server's, joined."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    dialling.check_hostname = True
    for context, end in ((serving, server), (dialling, client)):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if end.certificate is not None and end.key is not None:
            read_pem(end.certificate)
            read_pem(end.key, secret=True)
            try:
                context.load_cert_chain(end.certificate, end.key, password=_no_password)
            except (ssl.SSLError, ValueError):
                return f"{end.certificate.name} and {end.key.name} don't belong together"
        if end.trusts is not None:
            try:
                context.load_verify_locations(cadata=end.trusts.decode("ascii", "replace"))
            except ssl.SSLError:
                return "a file of authorities holds none"
            context.verify_mode = ssl.CERT_REQUIRED
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    return (
        dialling.wrap_bio(down, up, server_hostname=name),
        serving.wrap_bio(up, down, server_side=True),
    )


def _no_password() -> str:
    """Without it OpenSSL would ask at the terminal."""
    raise ValueError("encrypted")
