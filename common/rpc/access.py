"""Who may read a service's admin pages: on loopback this machine's users; beyond it who shows a
token, or a certificate.

A page on loopback is also reached by a browser that a web site sends there under a name of its own
(DNS rebinding). So every request must name a host that is ours: HTTP 421 otherwise.
"""

from __future__ import annotations

import hmac
import re
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from shoal.errors import Kind, ShoalError
from shoal.rpc.address import is_loopback, parse_address
from shoal.rpc.tls import TlsIdentity
from shoal.storage.private_files import read_private_line

OWN_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_LEAST_TOKEN = 32  # characters: 128 bits and more, if they were drawn at random
_HOST = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::[0-9]{1,5})?")
_OPEN = "/healthz"  # without a token: it tells that a process answers, and nothing else

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Access:
    """``hosts``: names beside those of loopback under which the pages may be asked for. ``token``:
    what a request must bring in ``Authorization: Bearer``. ``tls`` and its ``client_ca``: TLS, with
    a client certificate of that CA. ``tls_files``: certificate, key, client_ca, as the web server
    wants them.
    """

    hosts: frozenset[str] = frozenset()
    token: bytes | None = field(default=None, repr=False)
    tls_files: tuple[Path, Path, Path | None] | None = None

    @classmethod
    def load(
        cls,
        hosts: frozenset[str] = frozenset(),
        token_file: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        client_ca: Path | None = None,
    ) -> Access:
        """Raises CONFIG, KEY_FILE."""
        token = read_token(token_file) if token_file else None
        if certificate is None and key is None and client_ca is None:
            return cls(hosts, token)
        if certificate is None or key is None:
            raise ShoalError(Kind.CONFIG, "admin: TLS wants certificate and key")
        TlsIdentity.load(certificate, key, client_ca)
        return cls(hosts, token, (certificate, key, client_ca))

    def check(self, address: str) -> None:
        """Raises CONFIG if the pages would be anybody's who reaches ``address``."""
        host, _ = parse_address(address, "admin_listen")
        proven = self.token is not None or (
            self.tls_files is not None and self.tls_files[2] is not None
        )
        if not is_loopback(host) and not proven:
            raise ShoalError(
                Kind.CONFIG,
                "admin_listen: only a loopback address is allowed without [admin] token_file, or "
                "certificate, key and client_ca",
            )

    def renew(self, context: ssl.SSLContext) -> None:
        """Show the certificate that the files hold now, from the next handshake on. Whom it trusts
        stays as it was: OpenSSL adds authorities to a context, and takes none away.
        """
        if self.tls_files is not None:
            context.load_cert_chain(self.tls_files[0], self.tls_files[1])

    def server_options(self) -> dict[str, Any]:
        """For uvicorn."""
        if self.tls_files is None:
            return {}
        certificate, key, client_ca = self.tls_files
        options: dict[str, Any] = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
        if client_ca is not None:
            options |= {"ssl_ca_certs": str(client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return options

    def guard(self, app: App, address: str) -> App:
        """``app`` for those who may read it."""
        listening = parse_address(address, "admin_listen")[0].strip("[]").lower()
        hosts = OWN_HOSTS | {listening} | {host.lower() for host in self.hosts}
        wanted = sha256(b"Bearer " + self.token).digest() if self.token is not None else None

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            headers = [
                (name, value)
                for name, value in scope["headers"]
                if name in {b"host", b"authorization"}
            ]
            asked = [value for name, value in headers if name == b"host"]
            shown = [value for name, value in headers if name == b"authorization"]
            if len(asked) != 1 or host_of(asked[0]) not in hosts:
                await _refuse(
                    send,
                    421,
                    b"not a name of this service: ask for its address, or list the name in [admin] "
                    b"hosts\n",
                )
            elif wanted is not None and scope["path"] != _OPEN and not _shows(shown, wanted):
                await _refuse(send, 401, b"bring the token: Authorization: Bearer ...\n")
            else:
                await app(scope, receive, send)

        return guarded


def _shows(shown: list[bytes], wanted: bytes) -> bool:
    return len(shown) == 1 and hmac.compare_digest(sha256(shown[0]).digest(), wanted)


def host_of(host: bytes) -> str:
    """The host of a Host header, without its port, which is digits alone; "" for what is none."""
    found = _HOST.fullmatch(host.decode("latin-1").lower())
    return "" if found is None else found["v6"] or found["name"] or ""


async def _refuse(send: Send, status: int, text: bytes) -> None:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(text)).encode()),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def read_token(path: Path) -> bytes:
    """The one line of a file that nobody else may read. Raises CONFIG, KEY_FILE."""
    token = read_private_line(path)
    if len(token) < _LEAST_TOKEN or any(not 33 <= byte <= 126 for byte in token):
        raise ShoalError(
            Kind.CONFIG,
            f"admin: {path} holds no token: put {_LEAST_TOKEN} or more random letters and digits "
            "there, on one line",
        )
    return token
