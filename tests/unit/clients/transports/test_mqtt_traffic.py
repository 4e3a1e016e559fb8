"""What a broker sees of frames and replies, and what the transport loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shoal.clients.core import SealedReport
from shoal.clients.drawing import prepare
from shoal.clients.transports.mqtt_transport import MqttTransport
from shoal.crypto.admission.enrolled import EnrolledProver
from shoal.crypto.hpke import HpkePrivateKey
from shoal.limits import LIMITS
from shoal.mqtt.topics import tag_of
from tests.unit.clients.test_core import assignment_of
from tests.unit.clients.test_enrolled import enrolled_world, identity
from tests.unit.clients.transports.test_mqtt_transport import (
    new_key,
    submitted,
)
from tests.worlds.devices.clients import FarEnd, World, make_world
from tests.worlds.mqtt.bridge import Bridge, honest
from tests.worlds.mqtt.broker import Broker, Tap, kinds
from tests.worlds.mqtt.wire import (
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBLISH,
    SUBSCRIBE,
    Packet,
    packets,
)


@pytest.fixture
def world() -> World:
    return make_world()


async def _captured(
    kind: str, key: bytes, sent: list[SealedReport], hop: HpkePrivateKey
) -> tuple[list[Packet], list[Packet], bytes]:
    """Both directions of one connection that submitted these, one after another, as the broker sees
    them; and all bytes.
    """
    async with (
        Broker(kind, tls=False) as broker,
        Bridge(broker.settings, key, honest(FarEnd([hop]))),
        Tap(broker.port) as tap,
    ):
        transport = MqttTransport(tap.before(broker.settings), key)
        for one in sent:
            await submitted(transport, one)
        await transport.close()
    (wire,) = tap.wires
    return packets(bytes(wire.up)), packets(bytes(wire.down)), tap.up + tap.down


@pytest.mark.parametrize("kind", kinds())
async def test_the_traffic_names_no_task_no_window_and_no_device(kind: str, world: World) -> None:
    """50 reports of an enrolled device in four windows: every byte on the wire is accounted for,
    and the shape of the traffic is that of another task, in another window, of a device that nobody
    enrolled.

    Planted: the task's id in the topic, a device's name as client id, a nonce that is not drawn ->
    this fails.
    """
    shuffler_key, device, enrolled = new_key(), identity(), enrolled_world("visits-of-the-clinic")
    assignment = assignment_of(enrolled)
    plain, prover = assignment_of(make_world(name="another", hop=world.hop)), EnrolledProver(device)
    sent = [prepare(assignment, number % 4, number, prover=prover) for number in range(50)]
    up, down, everything = await _captured(kind, shuffler_key, sent, enrolled.hop)
    five = kind == "mosquitto"

    names = [
        enrolled.task_id.raw,
        enrolled.task.name.encode(),
        enrolled.task.purpose.encode(),
        device.key.public,
        device.certificate,
    ]
    names += [shuffler_key, enrolled.task.enrolment_key, *(one.ack_key for one in sent)]
    for name in names:
        for form in (name, name.hex().encode(), name.hex().upper().encode()):
            assert form not in everything
    frames = [one.payload(five) for one in up if one.kind == PUBLISH]
    assert frames == [one.frame for one in sent]
    assert {len(frame) for frame in frames} <= set(LIMITS.frame_sizes)
    replies = [one.payload(five) for one in down if one.kind == PUBLISH]
    assert {len(reply) for reply in replies} == {48}
    assert len({reply[16:32] for reply in replies}) == len({reply[32:] for reply in replies}) == 50

    def shape(one: Packet) -> tuple[int, int, int]:
        return one.kind, one.flags, len(one.body)

    (topic,) = {one.topic for one in up if one.kind == PUBLISH}
    reply_id = topic.split("/")[-1]
    assert topic == f"shoal/v1/up/{tag_of(shuffler_key)}/{reply_id}"
    assert {one.topic for one in down if one.kind == PUBLISH} == {f"shoal/v1/down/{reply_id}"}
    (subscribed,) = [one.body for one in up if one.kind == SUBSCRIBE]
    assert subscribed.endswith(f"shoal/v1/down/{reply_id}".encode() + b"\x01")
    assert [one.kind for one in up if one.kind not in {PUBLISH, PUBACK}] == [
        CONNECT,
        SUBSCRIBE,
        DISCONNECT,
    ]

    other = [prepare(plain, 3, None) for _ in range(50)]
    for ours, theirs in zip(
        (up, down), (await _captured(kind, new_key(), other, world.hop))[:2], strict=True
    ):
        assert sorted(map(shape, ours)) == sorted(map(shape, theirs))


def test_the_transport_loads_neither_grpc_nor_an_mqtt_library() -> None:
    """Before its first call; a device over MQTT never loads gRPC. Planted: an import at the top of
    a module -> this fails.
    """
    code = (
        "import sys, shoal.clients.transports.mqtt_transport; print([name for name in ('grpc', "
        "'paho') if name in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
