"""TLS files that may be replaced while a service runs: what is new and fits is taken up, what does
not fit is told, and the old goes on.

gRPC asks ``RpcServer`` at every handshake (``RpcServer.renew``), and a channel is opened anew
beside the old one (``RenewableChannel``): no call fails, and connections that stand keep what they
began with until they end (``LIMITS.connection_age_s``).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import grpc

from shoal.errors import ShoalError
from shoal.log import get_log
from shoal.rpc.channel import build_channel
from shoal.rpc.tls import TlsIdentity, read_certificates, read_pem

log = get_log("rpc")


class Ending(NamedTuple):
    """When a TLS file is over. role: its configuration key, "tls.certificate"; file: its name;
    not_after: Unix seconds; authority: whether others' certificates chain to it.
    """

    role: str
    file: str
    not_after: float
    authority: bool


class TlsFiles:
    """A certificate with its key, and the authorities (``ca``) that the peer's must chain to.

    ``section``: of the configuration; ``ca_name``: the key of ``ca`` in it. ``identity`` has the
    authorities as ``client_ca``, whoever the peers are. Raises KEY_FILE on construction.
    """

    def __init__(
        self,
        section: str,
        certificate: Path,
        key: Path,
        ca: Path | None = None,
        ca_name: str = "client_ca",
    ) -> None:
        self.section, self._ca_name = section, ca_name
        self._paths = (certificate, key, ca)
        self._seen = self._signature()
        self.identity = self._load()
        self.trouble = ""
        self._renewed: Callable[[TlsIdentity], None] | None = None

    def _load(self) -> TlsIdentity:
        certificate, key, ca = self._paths
        if ca is not None:
            read_certificates(read_pem(ca), f"{self.section}.{self._ca_name} ({ca.name})")
        return TlsIdentity.load(certificate, key, ca)

    def on_renewal(self, taken: Callable[[TlsIdentity], None]) -> None:
        """Whom to give what is taken up. Where it raises, that is told, and tried again."""
        self._renewed = taken

    def look(self) -> bool:
        """Read the files again if they were replaced; whether they were taken up. Never raises."""
        signature = self._signature()
        if signature == self._seen:
            self.trouble = ""
            return False
        try:
            identity = self._load()
        except ShoalError as error:
            # Between two writes the halves don't fit: told all the same, it is gone with the
            # next look.
            if not self.trouble:
                log.warning("new TLS files are not taken up", name=self.section, error=error)
            self.trouble = error.message
            return False
        if identity == self.identity:
            self._seen, self.trouble = signature, ""
            return False
        try:
            if self._renewed is not None:
                self._renewed(identity)
        except (OSError, ValueError, ShoalError) as error:  # looked at again, the next time
            if not self.trouble:
                log.warning("new TLS files are not taken up", name=self.section, error=error)
            self.trouble = f"{self.section}: the new certificate and key are not taken up"
            return False
        self._seen, self.trouble, self.identity = signature, "", identity
        log.info("new TLS files are taken up", name=self.section)
        return True

    def endings(self) -> Iterator[Ending]:
        """A chain ends with its first certificate, a bundle of authorities with its last: it holds
        old ones beside new ones.
        """
        certificate, _, ca = self._paths
        yield ending(f"{self.section}.certificate", certificate, self.identity.certificate)
        if ca is not None and self.identity.client_ca is not None:
            role = f"{self.section}.{self._ca_name}"
            yield ending(role, ca, self.identity.client_ca, authority=True)

    def _signature(self) -> tuple[tuple[int, ...], ...]:
        """What changes when a file is replaced, written or made readable; of a file that is gone
        nothing.
        """
        return tuple(_stat(path) for path in self._paths if path is not None)


class TrustFile:
    """A bundle of authorities that is read at the start alone. Raises KEY_FILE on construction."""

    def __init__(self, role: str, path: Path) -> None:
        self._ending = ending(role, path, read_pem(path), authority=True)

    def endings(self) -> Iterator[Ending]:
        """As ``TlsFiles.endings``."""
        yield self._ending


class RenewableChannel:
    """A channel whose certificates can be replaced: calls that began go on over the old one, which
    is closed after the last of them.
    """

    def __init__(self, address: str, identity: TlsIdentity) -> None:
        """``identity``: with the authorities of the peer as ``client_ca``. Raises CONFIG,
        KEY_FILE.
        """
        self._address = address
        self._current = self._open(identity)
        self._calls: Counter[grpc.aio.Channel] = Counter()

    def _open(self, identity: TlsIdentity) -> grpc.aio.Channel:
        return build_channel(self._address, identity.client_ca, client=identity)

    def renew(self, identity: TlsIdentity) -> None:
        """For the calls that begin from now on. Raises CONFIG, KEY_FILE; then the old one stays."""
        old, self._current = self._current, self._open(identity)
        self._calls[old] += 0  # known, so that the next call to end closes it

    def unary_unary(self, method: str) -> Callable[..., Awaitable[bytes]]:
        """As ``CallsPeer.unary_unary``."""

        async def called(request: bytes, timeout: float) -> bytes:  # noqa: ASYNC109 - gRPC's name
            async with self._held() as channel:
                one: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
                return await one(request, timeout=timeout)

        return called

    def stream_unary(self, method: str) -> Callable[..., Awaitable[bytes]]:
        """As ``CallsPeer.stream_unary``."""

        async def called(messages: AsyncIterator[bytes], timeout: float) -> bytes:  # noqa: ASYNC109
            async with self._held() as channel:
                many: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(method)
                return await many(messages, timeout=timeout)

        return called

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[grpc.aio.Channel]:
        channel = self._current
        self._calls[channel] += 1
        try:
            yield channel
        finally:
            self._calls[channel] -= 1
            for idle in [known for known, calls in self._calls.items() if not calls]:
                del self._calls[idle]
                if idle is not self._current:
                    await idle.close()

    async def close(self) -> None:
        """Ends what is under way."""
        for channel in {*self._calls, self._current}:
            await channel.close()


def ending(role: str, path: Path, pem: bytes, *, authority: bool = False) -> Ending:
    """When ``pem``, the content of a file, is over. Raises KEY_FILE."""
    ends = [
        certificate.not_valid_after_utc.timestamp() for certificate in read_certificates(pem, role)
    ]
    return Ending(role, path.name, max(ends) if authority else min(ends), authority)


def _stat(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
