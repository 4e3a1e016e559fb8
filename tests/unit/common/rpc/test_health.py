"""gRPC health says what /readyz says."""

from __future__ import annotations

from typing import Any, cast

from grpc_health.v1 import health_pb2

from shoal.clocks.clock import FakeClock
from shoal.rpc.health import Health
from shoal.services.conditions import Condition, Conditions

SERVING, NOT_SERVING = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
)


async def test_health_follows_readiness_and_is_asked_once_a_second() -> None:
    """Planted: SERVING until it stops -> fails. Planted: the conditions looked at for each call ->
    a stranger's calls cost, fails.
    """
    conditions, clock, looks = Conditions(), FakeClock(100.0), list[float]()
    health = Health(["shoal.v1.Ingress"], clock.now)

    def ready() -> str | None:
        looks.append(clock.now())
        return conditions.ready()

    async def asked(service: str = "") -> int:
        request = health_pb2.HealthCheckRequest(service=service).SerializeToString()
        return int(
            health_pb2.HealthCheckResponse.FromString(
                await health.check(request, cast(Any, None))
            ).status
        )

    assert await asked() == SERVING
    health.ready = ready
    assert await asked("shoal.v1.Ingress") == SERVING
    conditions.set(Condition("disk_full", "data_dir", "make room"))
    clock.advance(1)
    assert [await asked() for _ in range(50)] == [NOT_SERVING] * 50
    assert len(looks) == 2
    conditions.clear("disk_full", "data_dir")
    clock.advance(1)
    assert await asked() == SERVING
    health.stopping = True
    assert await asked() == NOT_SERVING
