"""grpc.health.v1.Health, of which Check alone is served: Watch would keep a call open for ever, for
anybody.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from shoal import codec
from shoal.errors import Kind, ShoalError
from shoal.rpc.call import Call

HEALTH = "grpc.health.v1.Health"
_KEPT_S = 1.0  # an answer


class Health:
    """``names``: services; "" is the server as a whole. SERVING while ``ready`` gives None, until
    ``stopping``.

    ``ready`` is what /readyz tells; asked once a second at most, because anybody may ask here.
    """

    def __init__(
        self, names: Iterable[str], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._names, self._monotonic = {"", *names}, monotonic
        self.ready: Callable[[], object] | None = None
        self.stopping = False
        self._serving, self._until = True, -math.inf

    async def check(self, request: bytes, call: Call) -> bytes:
        """HealthCheckRequest -> HealthCheckResponse. Raises INVALID, NOT_FOUND."""
        # only for a service that is asked
        from grpc_health.v1 import health_pb2

        if (
            codec.parse(health_pb2.HealthCheckRequest, request, "health check").service
            not in self._names
        ):
            raise ShoalError(
                Kind.NOT_FOUND,
                "no such service here: ask for the empty name, or one that docs/WIRE.md lists",
            )
        now = self._monotonic()
        if self.ready is not None and now >= self._until:
            self._serving, self._until = self.ready() is None, now + _KEPT_S
        serving = self._serving and not self.stopping
        stands = (
            health_pb2.HealthCheckResponse.SERVING
            if serving
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        return health_pb2.HealthCheckResponse(status=stands).SerializeToString()
