"""A service's own window for its operator (``access``): /healthz, /readyz, /metrics, /status.
Counts, never people.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from shoal.errors import Kind, ShoalError
from shoal.limits import MIB
from shoal.rpc.access import Access
from shoal.rpc.address import parse_address
from shoal.rpc.process import usage
from shoal.services.conditions import Conditions

_CONNECTIONS = 64  # of readers of the pages at once; beyond it 503


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the service (shoal.services.process), not to uvicorn."""
        yield


class _Process(Collector):
    """The names that Prometheus's own process collector has, which would leave out the workers.

    Whole seconds and MiB, rounded down: CPU time in fine steps would count the reports of an open
    window.
    """

    def collect(self) -> Iterator[Metric]:
        now = usage()
        yield CounterMetricFamily(
            "process_cpu_seconds", "CPU time of the service and its workers", value=now.cpu_s // 1
        )
        yield GaugeMetricFamily(
            "process_resident_memory_bytes",
            "Memory of the service and its workers",
            value=now.resident_bytes // MIB * MIB,
        )
        yield GaugeMetricFamily(
            "process_start_time_seconds", "Start of the service, Unix time", value=now.started_s
        )


class _Wrong(Collector):
    """``shoal_ready`` is 1 exactly while /readyz says ready; ``shoal_conditions`` counts what is
    wrong, by code.
    """

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions

    def collect(self) -> Iterator[Metric]:
        ready = self._conditions.ready() is None
        yield GaugeMetricFamily("shoal_ready", "1 while the service can do its work", value=ready)
        counts = GaugeMetricFamily(
            "shoal_conditions", "What is wrong now, by code", labels=["code", "stops"]
        )
        for code, stops, count in self._conditions.counts():
            counts.add_metric([code, "yes" if stops else "no"], count)
        yield counts


class Admin:
    """``conditions`` is what /readyz and the metrics tell; ``status()`` gives a JSON object of
    counts, to which they are added.

    /status has ``ready``, null or why not, and ``conditions``: [{"code", "subject", "message",
    "stops"}].
    """

    def __init__(
        self,
        address: str,
        conditions: Conditions,
        status: Callable[[], dict[str, Any]],
        registry: CollectorRegistry,
        access: Access | None = None,
    ) -> None:
        """Raises CONFIG for an address beyond loopback that nobody has to prove anything to."""
        host, port = parse_address(address, "admin_listen")
        access = access or Access()
        access.check(address)
        self._access = access
        routes = [
            Route("/healthz", self._health),
            Route("/readyz", self._ready),
            Route("/metrics", self._metrics),
            Route("/status", self._status),
        ]
        self._conditions, self._call_status, self._registry = conditions, status, registry
        self._process = CollectorRegistry()
        self._process.register(_Process())
        self._own = CollectorRegistry()
        self._own.register(_Wrong(conditions))
        self._address = address
        self._host = (host.strip("[]"), port)
        app = access.guard(Starlette(routes=routes), address)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            limit_concurrency=_CONNECTIONS,
            **access.server_options(),
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Bind; returns the port. Raises PORT_IN_USE."""
        try:
            family = socket.AF_INET6 if ":" in self._host[0] else socket.AF_INET
            listening = socket.create_server(self._host, family=family, backlog=64)
        except OSError as error:
            reason = (
                "another process has the port"
                if error.errno == errno.EADDRINUSE
                else error.strerror or "not possible"
            )
            raise ShoalError(
                Kind.PORT_IN_USE,
                f"admin_listen: cannot listen on {self._address}: {reason}: choose another port",
            ) from None
        self._task = asyncio.create_task(self._server.serve(sockets=[listening]))
        port: int = listening.getsockname()[1]
        return port

    def renew(self) -> None:
        """The files of its certificate hold another one, which fits its key."""
        if self._server.config.loaded and self._server.config.ssl is not None:
            self._access.renew(self._server.config.ssl)

    async def stop(self) -> None:
        """End the server, and wait until it has."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task

    async def _health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _ready(self, request: Request) -> Response:
        reason = self._conditions.ready()
        return (
            PlainTextResponse("ready\n")
            if reason is None
            else PlainTextResponse(f"{reason}\n", status_code=503)
        )

    async def _metrics(self, request: Request) -> Response:
        pages = b"".join(
            generate_latest(registry) for registry in (self._registry, self._own, self._process)
        )
        return Response(pages, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _status(self, request: Request) -> Response:
        status = self._call_status()
        return JSONResponse(
            {**status, "ready": self._conditions.ready(), "conditions": self._conditions.json()}
        )
