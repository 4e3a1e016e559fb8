"""The ways that a configuration names from a device to its shufflers. Libraries are imported with
the first thing that is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal.clients.settings.config import AgentConfig
from shoal.clients.transports.transport import Transport, TransportFactory
from shoal.clocks.clock import DeviceClock
from shoal.entropy import SYSTEM, Entropy
from shoal.task import Task

if TYPE_CHECKING:
    from shoal.clients.rounds.agent import RoundsAgent

RoundsFactory = Callable[[AgentConfig, DeviceClock, Entropy], "RoundsAgent"]


def transport_factory(config: AgentConfig, entropy: Entropy = SYSTEM) -> TransportFactory:
    """For reports: through the broker if ``uplink`` says so, else gRPC. Only the library of one of
    the two is loaded.
    """
    broker = config.mqtt if config.uplink else None

    def make(task: Task, insecure: bool) -> Transport:
        if broker is not None:
            # a device loads the library of the one transport that it uses
            from shoal.clients.transports.mqtt_transport import MqttTransport

            return MqttTransport(broker, task.shuffler_key, entropy)
        # as above
        from shoal.clients.transports.grpc_transport import GrpcTransport

        return GrpcTransport(task.shuffler_address, task.shuffler_ca, insecure=insecure)

    return make


def open_rounds(config: AgentConfig, clock: DeviceClock, entropy: Entropy) -> RoundsAgent:
    """For sums: always gRPC, a round is a conversation. numpy and gRPC are imported with the first
    vector.
    """
    from shoal.clients.rounds.agent import RoundsAgent

    return RoundsAgent(config, clock, entropy)
