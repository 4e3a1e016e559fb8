"""`shoal console` as a process: as a person starts it, and one that wants people to sign in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.crypto.keyfiles import save_private_pem
from shoal.crypto.tlscerts import issue, make_authority
from tests.worlds.ports import free_port
from tests.worlds.provider import CLIENT, SECRET

_TOML = """\
listen = "{here}"
address = "https://{here}"
data_dir = "kept"
tls = {{ certificate = "console.pem", key = "console.key" }}
[oidc]
issuer = "{issuer}"
client_id = "{client}"
client_secret_file = "client.secret"
claim = "groups"
operators = ["operators"]
viewers = ["viewers"]
"""


@contextmanager
def console(*arguments: str) -> Iterator[str]:
    """The address of a running console; at the end Ctrl-C ends it without a word. Any port is
    taken, but where a configuration says which.
    """
    if "--config" not in arguments:
        arguments = (*arguments, "--listen", "127.0.0.1:0")
    with _serving("console", *arguments) as url:
        yield url.rstrip("/")


@contextmanager
def owners_console(
    config: Path,
    *more: str,
    quiet: bool = True,
    ending: signal.Signals = signal.SIGINT,
    **environment: str,
) -> Iterator[str]:
    """The same of a device whose agent.toml is ``config``; the address lets in once. Not ``quiet``:
    its log may say what is wrong with the device's memory.
    """
    command = ("agent", "console", "--config", str(config), *more)
    with _serving(*command, quiet=quiet, ending=ending, **environment) as url:
        yield url


@contextmanager
def _serving(
    *command: str,
    quiet: bool = True,
    ending: signal.Signals = signal.SIGINT,
    **environment: str,
) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-m", "shoal.cli.main", *command, "--json"],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        told = "".join(process.stdout.readline() for _ in range(3))
        try:
            yield json.loads(told)["url"]
        finally:
            process.send_signal(ending)
        out, err = process.communicate(timeout=60)
        assert (out, err if quiet else "", process.returncode) == ("", "", 0)


@contextmanager
def signing_in(folder: Path, issuer: str, *sources: str) -> Iterator[str]:
    """The same on loopback, with TLS, for people of a provider; its files are made in ``folder``.
    ``sources``: what it shows, as the command line has it.
    """
    own = make_authority("console")
    made = issue(own, "console", ["127.0.0.1"], server=True, client=False, days=2)
    (folder / "console.pem").write_bytes(made.cert_pem)
    save_private_pem(folder / "console.key", made.key_pem)
    (folder / "client.secret").touch(mode=0o600)
    (folder / "client.secret").write_text(SECRET)
    here = f"127.0.0.1:{free_port()}"
    config = folder / "console.toml"
    config.write_text(_TOML.format(here=here, issuer=issuer, client=CLIENT))
    with console(*sources, "--config", str(config)) as url:
        yield url
