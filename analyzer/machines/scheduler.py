"""Where workers and their analyzer find one another: Dask's scheduler, without its dashboard and
without its ways to run anything.
"""

from __future__ import annotations

from typing import Any

from distributed.scheduler import Scheduler

from shoal.analyzer.machines.comms import MachineTls

# To come, to be there, to go, and to be asked who is there.
_KEPT = frozenset({"register-worker", "heartbeat_worker", "unregister", "identity"})
_KEPT_STREAM = frozenset({"keep-alive", "worker-status-change", "log-event"})


class MeetingPlace(Scheduler):
    """``listen``: HOST:PORT. Raises CONFIG if TLS files can't be used, OSError when it starts if it
    can't listen.
    """

    def __init__(self, listen: str, tls: MachineTls) -> None:
        host, _, port = listen.rpartition(":")
        super().__init__(
            security=tls.security(),
            host=host.strip("[]"),
            port=int(port),
            protocol="tls://",
            dashboard=False,
            idle_timeout=None,
        )
        self.handlers = {name: handler for name, handler in self.handlers.items() if name in _KEPT}
        self.stream_handlers = {
            name: handler for name, handler in self.stream_handlers.items() if name in _KEPT_STREAM
        }

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """None: nothing but the one port is open."""
