"""The feeds that a configuration asks for. A new kind of feed has its line here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.clients.feeds.feed import BundleListener, Feed, Pause, Told, unheard, untold
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.clients.settings.config import AgentConfig

_CA_BYTES = 1 << 20


def open_feeds(
    config: AgentConfig,
    offer: BundleListener,
    entropy: Entropy = SYSTEM,
    pause: Pause = unheard,
    step: Told = untold,
    hurries: Callable[[], bool] = lambda: False,
) -> list[Feed]:
    """One feed per shuffler that is asked, and one for the broker. Loads only the libraries of
    those. Raises CONFIG, KEY_FILE.
    """
    feeds: list[Feed] = []
    if config.feeds.shufflers:
        # each feed loads its library: only those that are configured
        from shoal.clients.feeds.grpc_feed import GrpcFeed

        for shuffler in config.feeds.shufflers:
            ca = b"" if config.insecure else _authorities(shuffler.ca)
            feeds.append(
                GrpcFeed(
                    shuffler.address,
                    ca,
                    offer,
                    pause=pause,
                    step=step,
                    hurries=hurries,
                    every_s=config.feeds.every_s,
                    insecure=config.insecure,
                    entropy=entropy,
                )
            )
    if config.feeds.mqtt:
        # as above
        from shoal.clients.feeds.mqtt_feed import MqttFeed

        if config.mqtt is None:
            raise ShoalError(Kind.CONFIG, "feeds.mqtt: name the broker under [mqtt] too")
        feeds.append(
            MqttFeed(config.mqtt, offer, every_s=config.feeds.every_s, entropy=entropy, step=step)
        )
    return feeds


def _authorities(path: Path | None) -> bytes:
    """PEM of a file, or of what this machine trusts. Raises CONFIG."""
    import ssl  # where it looks for authorities by itself

    paths = ssl.get_default_verify_paths()
    standard = (paths.cafile, paths.openssl_cafile, "/etc/ssl/certs/ca-certificates.crt")
    tried = [path] if path is not None else [Path(name) for name in standard if name is not None]
    for candidate in tried:
        with contextlib.suppress(OSError), candidate.open("rb") as file:
            data = file.read(_CA_BYTES + 1)
            if len(data) <= _CA_BYTES:
                return data
    what = "this machine's certificate authorities" if path is None else path.name
    raise ShoalError(
        Kind.CONFIG,
        f"feeds.shuffler.ca: cannot read {what}: name a PEM file with the authority of the "
        "shuffler's certificate",
    )
