"""How to reach a broker, checked before anything is sent."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from shoal.errors import Kind, ShoalError
from shoal.rpc.address import is_loopback

_WORD_BYTES = 65_535  # MQTT 5 section 1.5.4: a UTF-8 string has a length of 16 bits


class Untrusted(ShoalError):  # noqa: N818 - it is a ShoalError that says a little more
    """The broker's certificate does not verify. As the next one, it stays so until somebody changes
    settings or the broker: the kind says that it may pass, because a device must not drop its
    report.
    """


class LoginRefused(ShoalError):  # noqa: N818 - it too
    """The broker does not take this username and password."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """One broker. TLS unless ``insecure``, which loopback addresses alone may use. Raises CONFIG on
    construction.

    ``ca``: PEM that the broker's certificate chains to; None: the certificates that this machine
    trusts. The password does not print and is not pickled. ``protocol``: MQTT's version; "3.1.1"
    for brokers that know no other.
    """

    host: str
    port: int
    ca: bytes | None = field(default=None, repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    protocol: Literal["5", "3.1.1"] = "5"
    insecure: bool = False

    def __post_init__(self) -> None:
        if not self.host or any(
            character.isspace() or character in "/@" for character in self.host
        ):
            raise ShoalError(
                Kind.CONFIG,
                "mqtt: the broker is not HOST:PORT, for example broker.example.org:8883",
            )
        if not 1 <= self.port <= 65_535:
            raise ShoalError(Kind.CONFIG, "mqtt: a broker's port is a number from 1 to 65535")
        if self.protocol not in {"5", "3.1.1"}:
            raise ShoalError(Kind.CONFIG, 'mqtt: protocol is "5" or "3.1.1"')
        if self.insecure and not is_loopback(self.host):
            raise ShoalError(
                Kind.CONFIG,
                "mqtt: without TLS only a broker on a loopback address is spoken to: remove "
                "insecure",
            )
        if self.password and not self.username:
            raise ShoalError(Kind.CONFIG, "mqtt: a password without a username: give both")
        for name, text in (("username", self.username), ("password", self.password)):
            if not _is_word(text):
                raise ShoalError(
                    Kind.CONFIG,
                    f"mqtt: the {name} is text of at most {_WORD_BYTES} bytes, without a zero byte",
                )
        if not self.insecure:
            self.tls_context()

    def tls_context(self) -> ssl.SSLContext:
        """A client's context: TLS 1.2 or later, the broker's name checked. Raises CONFIG if ``ca``
        is no PEM certificate.
        """
        try:
            if self.ca == b"":
                raise ValueError  # the library would take it for None
            context = ssl.create_default_context(
                cadata=None if self.ca is None else self.ca.decode("ascii")
            )
        except (ValueError, ssl.SSLError):
            raise ShoalError(
                Kind.CONFIG,
                "mqtt: ca is not a PEM certificate: give the CA that the broker's certificate "
                "chains to",
            ) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def __reduce__(self) -> NoReturn:
        raise TypeError("broker settings may hold a password and are never pickled")


def _is_word(text: str) -> bool:
    try:
        return len(text.encode()) <= _WORD_BYTES and "\x00" not in text
    except UnicodeEncodeError:
        return False
