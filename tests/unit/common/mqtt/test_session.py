"""What a connection leaves behind in the library: nothing that complains."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, cast

from shoal.mqtt.dial import BufferedSocket
from shoal.mqtt.session import Session
from shoal.mqtt.settings import BrokerSettings

NOT_AUTHORIZED = 5  # MQTT 3.1.1, table 3.1


class Plug:
    """A socket that nobody uses."""

    def close(self) -> None:
        pass


async def test_a_refusal_that_nobody_waits_for_makes_no_noise() -> None:
    """A broker that refuses and hangs up in the same moment: the wait for its answer is over when
    the answer is taken.

    Planted: leave the library's future unseen -> asyncio says "Future exception was never
    retrieved", with a traceback.
    """
    noise: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: noise.append(context))
    settings = BrokerSettings("127.0.0.1", 1, protocol="3.1.1", insecure=True)
    session = Session(cast(BufferedSocket, Plug()), settings, "id", lambda _message: None, 100)
    session._on_disconnect(session._paho, None, {}, 0, None)
    session._on_connect(session._paho, None, {}, NOT_AUTHORIZED, None)
    assert session._client._connected.done()
    del session
    gc.collect()
    await asyncio.sleep(0)
    assert noise == []
