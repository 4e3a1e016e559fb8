"""How this project uses Dask's ``distributed``: workers meet at its scheduler, over TLS with the
operator's own CA, and connections are its comms. Nothing of its task graph is used.

As it comes, ``distributed`` unpickles what any peer sends, in every process that reads a message,
before anybody looks at it. ``disarm`` takes that away. It must run before a process opens a
connection, and it proves that it holds.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import dask
from distributed.comm.core import FatalCommClosedError
from distributed.comm.core import connect as dask_connect
from distributed.protocol import core as protocol
from distributed.protocol.serialize import register_serialization_family
from distributed.security import Security

from shoal.errors import Kind, ShoalError

OPERATION = "shoal-session"  # the one thing that a worker can be asked
CONNECT_S = 10.0  # to open one connection in a data centre, with a retry
MOST_WORKERS = 10_000  # that a scheduler may name
_SCHEME = "tls" + "://"  # no address of a page
_SETTINGS = {
    "distributed.admin.log-format": "%(message)s",
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.low-level-log-length": 0,
    "distributed.admin.tick.interval": "1s",
    "distributed.comm.compression": False,
    "distributed.comm.timeouts.connect": CONNECT_S,
    "distributed.comm.timeouts.tcp": "30s",
    "distributed.diagnostics.nvml": False,
    "distributed.scheduler.http.routes": [],
    "distributed.scheduler.preload": [],
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.worker.http.routes": [],
    "distributed.worker.preload": [],
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}


class _NoPickle:
    """Stands where ``distributed`` looks for its pickle module when it reads a message."""

    @staticmethod
    def loads(*_: object, **__: object) -> NoReturn:
        raise ValueError("pickled bytes are not taken from a peer")

    @staticmethod
    def dumps(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError


def _no_loads(*_: object, **__: object) -> NoReturn:
    raise ValueError("serialized objects are not taken from a peer")


def _no_dumps(*_: object, **__: object) -> NoReturn:
    raise NotImplementedError


def disarm() -> None:
    """From here on this process takes plain values alone from peers (numbers, text, bytes, lists),
    and has our settings. May be repeated. Raises INTERNAL if this version of ``distributed`` still
    unpickles.
    """
    dask.config.set(_SETTINGS)
    # what matters is logged by us, without what a peer sent
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    setattr(protocol, "pickle", _NoPickle)  # noqa: B010 - a module is replaced, not a value
    for family in ("dask", "pickle", "error"):
        register_serialization_family(family, _no_dumps, _no_loads)
    for hostile in hostile_messages():
        try:
            protocol.loads(hostile)
        except ValueError:
            continue
        raise ShoalError(
            Kind.INTERNAL,
            "this version of the package distributed unpickles what peers send: install the one in "
            "constraints.txt",
        )


def hostile_messages() -> list[list[bytes]]:
    """Frames that ``distributed`` as it comes makes a function of while it reads them: of one kind
    that it pickles itself, and of one that goes through its families of serializers.
    """
    code = b"cbuiltins\nprint\n."  # a pickle: the function print
    plain = protocol.dumps
    pickled = plain({"num-sub-frames": 0, "pickled-obj": code})[0]
    header = plain({"serializer": "pickle", "num-sub-frames": 1, "writeable": [True]})[0]
    return [
        [plain({"x": {"__Pickled__": 1}})[0], pickled],
        [plain({"x": {"__Serialized__": 1}})[0], header, code],
    ]


@dataclass(frozen=True, slots=True)
class MachineTls:
    """The operator's own CA, and the certificate and key that this process shows."""

    ca: Path
    certificate: Path
    key: Path

    def security(self) -> Security:
        """For every role, TLS 1.3 alone. Raises CONFIG if a file can't be used."""
        paths = {
            f"tls_{role}_{what}": str(path)
            for role in ("client", "scheduler", "worker")
            for what, path in (("cert", self.certificate), ("key", self.key))
        }
        made = Security(
            tls_ca_file=str(self.ca),
            require_encryption=True,
            tls_min_version=ssl.TLSVersion.TLSv1_3,
            **paths,
        )
        try:
            made.get_connection_args("client")
        except (OSError, ssl.SSLError) as error:
            raise ShoalError(
                Kind.CONFIG,
                f"TLS to workers: {self.ca}, {self.certificate} and {self.key} can't be used "
                f"together ({error.strerror or type(error).__name__}): name PEM files of one CA",
            ) from None
        return made


def over_tls(address: str) -> str:
    """HOST:PORT as Dask writes it where TLS is wanted."""
    return f"{_SCHEME}{address}"


class PeerLine:
    """A connection, typed: ``comm`` is one of Dask's."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm

    async def read(self) -> Any:
        """The next message, whatever the peer sent. Raises OSError when the connection is over."""
        return await self._comm.read()

    async def write(self, message: dict[str, object]) -> None:
        """Raises OSError."""
        await self._comm.write(message)

    def abort(self) -> None:
        """End it at once. May be repeated."""
        self._comm.abort()


async def connect(address: str, security: Security) -> PeerLine:
    """A connection whose messages are plain values. Raises UNAVAILABLE."""
    try:
        comm = await dask_connect(
            address, CONNECT_S, deserialize=False, **security.get_connection_args("client")
        )
    except FatalCommClosedError:  # an OSError too
        raise ShoalError(
            Kind.UNAVAILABLE,
            "TLS is refused: both sides want certificates of the same CA, which are valid now",
        ) from None
    except (TimeoutError, OSError, ValueError) as error:
        raise ShoalError(Kind.UNAVAILABLE, f"can't connect ({type(error).__name__})") from None
    return PeerLine(comm)


async def workers_of(scheduler: str, security: Security) -> dict[str, str]:
    """Address -> name of the workers that the scheduler names: its word alone. Raises
    UNAVAILABLE.
    """
    line = await connect(scheduler, security)
    try:
        await line.write({"op": "identity", "n_workers": -1, "reply": True, "close": True})
        told = await asyncio.wait_for(line.read(), CONNECT_S)
    except (TimeoutError, OSError, ValueError) as error:
        raise ShoalError(
            Kind.UNAVAILABLE, f"the scheduler does not answer ({type(error).__name__})"
        ) from None
    finally:
        line.abort()
    found: dict[str, Any] = told.get("workers", {}) if isinstance(told, dict) else {}
    return {
        address: re.sub("[^0-9a-f-]", "?", str(worker.get("name", "")))[:24]
        for address, worker in list(found.items())[:MOST_WORKERS]
        if isinstance(address, str) and address.startswith(_SCHEME) and isinstance(worker, dict)
    }
