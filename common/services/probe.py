"""Whether the service beside this process is alive or ready, for the probes of a container:
``python3 -m shoal.services.probe readyz /etc/shoal/shuffler.toml``.

The standard library alone: it runs every few seconds, where ``shoal shuffler status`` would load
the whole command. The environment's overrides are not read: give ``admin_listen`` in the file.
"""

from __future__ import annotations

import http.client
import ssl
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PAGES = ("healthz", "readyz")
_PATIENCE_S = 4.0  # an idle service answers in a millisecond; the probe's own limit is 5 s
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - dialled on loopback instead


def main(arguments: Sequence[str]) -> int:
    """``PAGE CONFIG``: 0 if the page says yes, 1 if not or if nobody answers, 2 for a request that
    can't be right. One line says why, and holds no secret.
    """
    if len(arguments) != 2 or arguments[0] not in _PAGES:
        _say("usage: python3 -m shoal.services.probe healthz|readyz CONFIG.toml")
        return 2
    page, path = arguments[0], Path(arguments[1])
    try:
        config = tomllib.loads(path.read_text())
        connection, headers = _reaching(config, path.parent)
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        _say(f"{path}: admin_listen or [admin] can't be read")
        return 2
    try:
        connection.request("GET", f"/{page}", headers=headers)
        reply = connection.getresponse()
        said = reply.read(4_096).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        _say("no answer from admin_listen")
        return 1
    finally:
        connection.close()
    _say(said.partition("\n")[0])
    return 0 if reply.status == http.client.OK else 1


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # kept with the probe's event


def _reaching(
    config: dict[str, Any], folder: Path
) -> tuple[http.client.HTTPConnection, dict[str, str]]:
    """A connection to the service's own pages, and what it wants to be shown."""
    host, _, port = config["admin_listen"].rpartition(":")
    host = host.strip("[]")
    host = _EVERYWHERE.get(host, host)
    admin = config.get("admin", {})
    headers = {"Host": "localhost"}
    if "token_file" in admin:
        headers["Authorization"] = f"Bearer {(folder / admin['token_file']).read_text().strip()}"
    if "certificate" not in admin:
        return http.client.HTTPConnection(host, int(port), timeout=_PATIENCE_S), headers
    # Nobody is trusted but who shows this very certificate: its authority and its names don't
    # matter to a process beside the service, which can read the file.
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusting.load_verify_locations(folder / admin["certificate"])
    if "client_ca" in admin:
        trusting.load_cert_chain(folder / admin["certificate"], folder / admin["key"])
    return http.client.HTTPSConnection(
        host, int(port), timeout=_PATIENCE_S, context=trusting
    ), headers


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
