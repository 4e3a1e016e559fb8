"""Where `shoal console` reads from, by its options: configuration files, ports, folders."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.errors import Kind, ShoalError
from shoal.rpc.admin_pages import AdminPort
from shoal.services.settings import AdminSection, load_settings
from shoal.task import split_address

if TYPE_CHECKING:
    from shoal.console.operator.app import Sources


def places(
    analyzer: str | None, shuffler: str | None, releases: Path | None, tasks: Path | None
) -> Sources:
    """``analyzer`` and ``shuffler``: configuration files, or HOST:PORT. Raises CONFIG, KEY_FILE."""
    from shoal.console.operator.app import Sources

    data_dir: Path | None = None
    analyzer_port, shuffler_port = _port("analyzer", analyzer), _port("shuffler", shuffler)
    if analyzer is not None and analyzer_port is None:
        from shoal.analyzer.config import AnalyzerConfig

        here = load_settings(AnalyzerConfig, Path(analyzer))
        analyzer_port = _configured("analyzer", here.admin_listen, here.admin)
        data_dir = here.data_dir if releases is None else None
        tasks = tasks or here.tasks_dir
    if shuffler is not None and shuffler_port is None:
        from shoal.shuffler.config import ShufflerConfig

        there = load_settings(ShufflerConfig, Path(shuffler))
        shuffler_port = _configured("shuffler", there.admin_listen, there.admin)
        tasks = tasks or there.tasks_dir
    return Sources(data_dir, releases, tasks, analyzer_port, shuffler_port)


def _port(service: str, given: str | None) -> AdminPort | None:
    """The port that an option names; None for a file."""
    if given is None or split_address(given) is None or Path(given).exists():
        return None
    return AdminPort(service, given)


def _configured(service: str, address: str, admin: AdminSection) -> AdminPort:
    """As the service itself is configured: its token, and its own certificate as whom to trust."""
    token = admin.access().token
    if admin.certificate is None:
        return AdminPort(service, address, token)
    if admin.client_ca is not None:
        raise ShoalError(
            Kind.CONFIG,
            f"{service}: its admin port wants client certificates, which the console has none of: "
            "give it a second one on loopback by [admin] token_file instead",
        )
    tls = ssl.create_default_context(cafile=str(admin.certificate))
    return AdminPort(service, address, token, tls)
