"""A socket to a broker, with TLS, opened on the event loop: whoever is cancelled here leaves no
thread and no socket behind.

The MQTT library would connect in a thread, which a broker that accepts and never speaks holds for a
minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

from shoal.errors import Kind, ShoalError
from shoal.mqtt.settings import BrokerSettings, Untrusted

# after what says that a port should speak TLS
PLAIN = "; a broker on a loopback address may do without: insecure"
# OpenSSL's x509_vfy.h: X509_V_ERR_...
_EXPIRED = {9, 10}  # CERT_NOT_YET_VALID, CERT_HAS_EXPIRED
_OTHER_NAME = {62, 64}  # HOSTNAME_MISMATCH, IP_ADDRESS_MISMATCH


async def dial(settings: BrokerSettings) -> socket.socket:
    """Connected, past TLS, not blocking. Raises UNAVAILABLE with what to mend; never an address."""
    try:
        raw = await _connect(settings)
    except socket.gaierror:
        raise _failed(
            "the MQTT broker's name is not known: check it, or try again when this machine has a "
            "network"
        ) from None
    except ConnectionRefusedError:
        raise _failed(
            "nobody listens at the MQTT broker's address: check host and port, or try again later"
        ) from None
    except OSError:
        raise _failed("the MQTT broker can't be reached: try again later") from None
    try:
        return raw if settings.insecure else await _secure(raw, settings)
    except BaseException:
        raw.close()
        raise


async def _connect(settings: BrokerSettings) -> socket.socket:
    loop = asyncio.get_running_loop()
    failure = OSError()
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        settings.host.strip("[]"), settings.port, type=socket.SOCK_STREAM
    ):
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(socket.socket(family, kind, protocol))
            raw.setblocking(False)
            try:
                await loop.sock_connect(raw, address)
            except OSError as error:
                failure = error
                continue
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stack.pop_all()
            return raw
    raise failure


async def _secure(raw: socket.socket, settings: BrokerSettings) -> ssl.SSLSocket:
    loop = asyncio.get_running_loop()
    context = settings.tls_context()
    try:
        secured = context.wrap_socket(
            raw, server_hostname=settings.host.strip("[]"), do_handshake_on_connect=False
        )
    except (ValueError, OSError):
        raise _failed(
            "the MQTT broker ended the connection before TLS began: check host and port, or try "
            "again later"
        ) from None
    try:
        while True:
            try:
                secured.do_handshake()
            except ssl.SSLWantReadError:
                await _ready(secured, loop.add_reader, loop.remove_reader)
            except ssl.SSLWantWriteError:
                await _ready(secured, loop.add_writer, loop.remove_writer)
            else:
                return secured
    except ssl.SSLCertVerificationError as error:
        secured.close()
        raise Untrusted(Kind.UNAVAILABLE, _untrusted(error.verify_code)) from None
    except (ssl.SSLEOFError, ConnectionError):
        secured.close()
        raise _failed(
            "the MQTT broker ended the connection during TLS: try again later, or check that its "
            f"port speaks TLS{PLAIN}"
        ) from None
    except ssl.SSLError:
        secured.close()
        raise _failed(
            f"TLS with the MQTT broker failed: check that its port speaks TLS 1.2 or later{PLAIN}"
        ) from None
    except BaseException:
        secured.close()
        raise


async def _ready(
    secured: ssl.SSLSocket,
    add: Callable[[int, Callable[[], None]], None],
    remove: Callable[[int], bool],
) -> None:
    ready = asyncio.get_running_loop().create_future()
    number = secured.fileno()
    add(number, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        remove(number)


def _untrusted(code: int) -> str:
    if code in _OTHER_NAME:
        return (
            "the MQTT broker's certificate is for another name: use the name in its certificate as "
            "its host"
        )
    if code in _EXPIRED:
        return (
            "the MQTT broker's certificate is not valid now: have it renewed, or check this "
            "machine's clock"
        )
    return (
        "the MQTT broker's certificate does not chain to the given CA: check ca, and that this is "
        "the right broker"
    )


def _failed(text: str) -> ShoalError:
    return ShoalError(Kind.UNAVAILABLE, text)
