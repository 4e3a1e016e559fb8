"""A scheduler and workers as processes of their own, over TLS, as an operator starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shoal.analyzer.machines.cluster import Cluster, ClusterSettings
from shoal.analyzer.machines.comms import MachineTls, over_tls
from shoal.crypto.keyfiles import save_private_pem, save_signing_key
from shoal.crypto.signing import SigningKey
from shoal.crypto.tlscerts import issue, make_authority
from tests.worlds.ports import free_port
from tests.worlds.services.analyzer_process import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "shoal.cli.main", "analyzer"]


class Process:
    """One of them, with all that it said in ``log``; started again when it dies, if ``again``."""

    def __init__(self, command: list[str], folder: Path, *, again: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._command, self._folder, self._again = command, folder, again
        self.log = folder / "log"
        self.process = self._start()
        self._watch = threading.Thread(target=self._keep, daemon=True)
        if again:
            self._watch.start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "TMPDIR": str(self._folder), "PYTHONPATH": str(ROOT)}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "shoal.services.parent", *self._command],
                cwd=self._folder,
                env=environment,
                stdout=log,
                stderr=log,
            )

    def _keep(self) -> None:
        while True:
            self.process.wait()
            if not self._again:
                return
            self.process = self._start()

    def kill(self) -> None:
        """As a power cut does."""
        self.process.kill()
        if not self._again:
            self.process.wait(PATIENCE_S)

    def restart(self) -> None:
        """A killed one, with the same arguments."""
        self.process = self._start()

    def end(self) -> None:
        self._again = False
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE_S)
        self.process.kill()
        if self._watch.is_alive():
            self._watch.join(PATIENCE_S)


class Machines:
    """``scheduler`` and ``workers``, and what an analyzer needs to use them."""

    def __init__(
        self, folder: Path, count: int, *, analyzer: SigningKey, spool: Path | None, again: bool
    ):
        self.folder, self.analyzer_key = folder, analyzer
        self._authority = make_authority("machines")
        (folder / "ca.pem").write_bytes(self._authority[0])
        self.address = f"127.0.0.1:{free_port()}"
        self._spool, self._again = spool, again
        self.tls = self.certificate("analyzer")
        self.scheduler = self._process(
            "scheduler", ["scheduler", "--listen", self.address, *self._options("scheduler")]
        )
        self.identities: list[bytes] = []
        self.workers = [self.add(f"worker{number}") for number in range(count)]

    def certificate(self, name: str) -> MachineTls:
        """Files of a certificate of the CA."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        if not key.exists():
            made = issue(self._authority, name, ["127.0.0.1"], server=True, client=True, days=2)
            certificate.write_bytes(made.cert_pem)
            save_private_pem(key, made.key_pem)
        return MachineTls(self.folder / "ca.pem", certificate, key)

    def _options(self, name: str) -> list[str]:
        tls = self.certificate(name)
        files = {"--ca": tls.ca, "--certificate": tls.certificate, "--key": tls.key}
        return [word for name, path in files.items() for word in (name, str(path))]

    def _process(self, name: str, arguments: list[str], *, again: bool = False) -> Process:
        return Process([*COMMAND, *arguments], self.folder / name, again=again)

    def add(self, name: str) -> Process:
        """One more worker."""
        identity, path = SigningKey.generate(), self.folder / f"{name}-signing.key"
        save_signing_key(path, identity)
        self.identities.append(identity.public)
        spool = [] if self._spool is None else ["--spool", str(self._spool)]
        arguments = [
            *("worker", "--scheduler", self.address),
            *("--listen", f"127.0.0.1:{free_port()}"),
            *("--identity", str(path), "--analyzer", self.analyzer_key.public.hex()),
            *spool,
        ]
        return self._process(name, [*arguments, *self._options(name)], again=self._again)

    def cluster(self, wait_s: float = PATIENCE_S) -> Cluster:
        """As the analyzer makes it."""
        settings = ClusterSettings(
            over_tls(self.address), self.tls, frozenset(self.identities), wait_s
        )
        return Cluster(settings, self.analyzer_key)

    def opening(self, **more: str) -> str:
        """The table ``opening`` of an analyzer.toml, in one line."""
        keys = ", ".join(f'"{identity.hex()}"' for identity in self.identities)
        table = {
            "engine": '"dask"',
            "scheduler": f'"{self.address}"',
            "ca": f'"{self.tls.ca}"',
            "certificate": f'"{self.tls.certificate}"',
            "key": f'"{self.tls.key}"',
            "workers": f"[{keys}]",
            **more,
        }
        return "{ " + ", ".join(f"{key} = {value}" for key, value in table.items()) + " }"

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.end()


@contextmanager
def machines(
    folder: Path,
    count: int = 2,
    *,
    analyzer: SigningKey | None = None,
    spool: Path | None = None,
    again: bool = True,
) -> Iterator[Machines]:
    """A scheduler and some workers, and their end. ``again``: a worker that dies is started
    anew.
    """
    folder.mkdir(exist_ok=True)
    analyzer = analyzer or SigningKey.generate()
    made = Machines(folder, count, analyzer=analyzer, spool=spool, again=again)
    try:
        yield made
    finally:
        made.end()
