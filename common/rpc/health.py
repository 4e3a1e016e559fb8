"""grpc.health.v1.Health, of which Check alone is served: Watch would keep a call open for ever, for anybody."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal import codec
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.rpc.server import Call

HEALTH = "grpc.health.v1.Health"


class Health:
    """``names``: services; "" is the server as a whole. SERVING until ``stopping``."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {"", *names}
        self.stopping = False

    async def check(self, request: bytes, call: Call) -> bytes:
        """HealthCheckRequest -> HealthCheckResponse. Raises INVALID, NOT_FOUND."""
        from grpc_health.v1 import health_pb2

        if codec.parse(health_pb2.HealthCheckRequest, request, "health check").service not in self._names:
            raise ShoalError(Kind.NOT_FOUND, "no such service here: ask for the empty name, or one that docs/WIRE.md lists")
        stands = health_pb2.HealthCheckResponse.NOT_SERVING if self.stopping else health_pb2.HealthCheckResponse.SERVING
        return health_pb2.HealthCheckResponse(status=stands).SerializeToString()
