"""deploy/postgresql makes a primary and a synchronous standby: its own files, at other paths, run
by real servers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from shoal.crypto.tlscerts import issue, make_authority
from tests.worlds.ports import free_port
from tests.worlds.postgres import LACKING, _as_user, _run, give, programs

SAMPLES = Path(__file__).resolve().parents[3] / "deploy" / "postgresql"
pytestmark = pytest.mark.skipif(programs() is None, reason=LACKING)
PATIENCE_S = 60.0


class Sample:
    """A folder in place of /etc/postgresql, and one for each server."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.etc = folder, folder / "etc"
        self.primary, self.standby = folder / "primary", folder / "standby"
        self.ports = free_port(), free_port()
        for made in (self.etc, self.primary, self.standby):
            made.mkdir(mode=0o700)
        authority = make_authority("database")
        server = issue(authority, "database", ["localhost"], server=True, client=False, days=9)
        texts = {path.name: self.moved(path.read_text()) for path in SAMPLES.iterdir()}
        texts |= {
            "server.pem": server.cert_pem.decode(),
            "server.key": server.key_pem.decode(),
            "ca.pem": authority.cert_pem.decode(),
            "shoal-password": "one" * 9,
            "standby-password": "two" * 9,
        }
        for name, text in texts.items():
            (self.etc / name).write_text(text)
            (self.etc / name).chmod(0o600)
            give(self.etc / name)
        for made in (folder, self.etc, self.primary, self.standby):
            give(made)

    def moved(self, text: str) -> str:
        return text.replace("/etc/postgresql/", f"{self.etc}/")

    def options(self, which: int) -> list[str]:
        place = (self.primary, self.standby)[which]
        return ["-c", f"port={self.ports[which]}", "-c", f"unix_socket_directories={place}"]

    def ask(self, which: int, sql: str, **variables: str) -> str:
        """As the operator, on the machine itself."""
        place = (self.primary, self.standby)[which]
        where = ["-h", str(place), "-p", str(self.ports[which])]
        command = [program("psql"), "-X", "-A", "-t", *where, "-d", "postgres", "-c", sql]
        return _run(*command, **variables).strip()

    def until(self, which: int, sql: str, answer: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                found = self.ask(which, sql)
            except AssertionError:
                found = "no answer"
            if found == answer:
                return
            assert time.monotonic() < end, f"{sql}: {found}"
            time.sleep(0.05)

    def as_shuffler(self, sql: str, mode: str) -> subprocess.CompletedProcess[str]:
        """Over TCP, with the shufflers' password."""
        where = f"host=localhost port={self.ports[0]} dbname=shoal user=shoal sslmode={mode}"
        command = [
            program("psql"),
            "-X",
            "-t",
            "-A",
            "-c",
            sql,
            f"{where} sslrootcert={self.etc}/ca.pem",
        ]
        environment = {**os.environ, "PGPASSWORD": "one" * 9, "LC_ALL": "C", "HOME": "/"}
        return subprocess.run(
            [*_as_user(), *command],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env=environment,
        )


def program(name: str) -> str:
    folder = programs()
    assert folder is not None
    return str(folder / name)


@contextmanager
def running(command: list[str], **variables: str) -> Iterator[None]:
    process = subprocess.Popen(
        [*_as_user(), *command],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C", "HOME": "/", **variables},
    )
    try:
        yield
    finally:
        process.terminate()  # the server's smart end would wait for connections
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_the_samples_make_a_primary_whose_commits_two_machines_have() -> None:
    """Planted: ``synchronous_standby_names`` taken out -> the state is "async"; ``host`` for
    ``hostssl`` -> a connection without TLS is taken; PGOPTIONS out of primary.sh -> it waits
    for a standby that is not there.
    """
    folder = Path(tempfile.mkdtemp(prefix="pg-sample-"))
    try:
        with ExitStack() as stack:
            check(Sample(folder), stack)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check(sample: Sample, stack: ExitStack) -> None:
    path = f"{programs()}:{os.environ['PATH']}"
    flags = ["--data-checksums", "--no-sync", "--auth=peer", "--username=postgres"]
    _run(program("initdb"), *flags, f"--pgdata={sample.primary}")
    command = [program("postgres"), "-D", str(sample.primary)]
    config = ["-c", f"config_file={sample.etc}/postgresql.conf", *sample.options(0)]
    stack.enter_context(running([*command, *config]))
    sample.until(0, "SELECT 1", "1")
    place = {"PGHOST": str(sample.primary), "PGPORT": str(sample.ports[0]), "PATH": path}
    _run("timeout", "60", "sh", str(sample.etc / "primary.sh"), **place)
    assert sample.ask(0, "SELECT count(*) FROM pg_stat_replication") == "0"

    script = (sample.etc / "standby.sh").read_text()
    script, count = re.subn(r"(?m)^(exec .*)$", rf"\1 {' '.join(sample.options(1))}", script)
    assert count == 1
    own = {"PGDATA": str(sample.standby), "PRIMARY": "localhost", "PATH": path}
    own["PRIMARY_PORT"] = str(sample.ports[0])
    stack.enter_context(running(["sh", "-c", script], **own))
    replication = "SELECT application_name || ' ' || sync_state FROM pg_stat_replication"
    sample.until(0, replication, "standby quorum")
    sample.until(1, "SELECT pg_is_in_recovery()", "t")

    done = sample.as_shuffler("CREATE TABLE seen (one int)", "verify-full")
    assert done.returncode == 0, done.stderr
    encrypted = sample.as_shuffler(
        "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", "verify-full"
    )
    assert encrypted.stdout.strip() == "t"
    assert "no encryption" in sample.as_shuffler("SELECT 1", "disable").stderr
    assert sample.ask(0, "SHOW archive_mode") == "off"
