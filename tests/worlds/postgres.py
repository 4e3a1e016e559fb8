"""A private PostgreSQL server, from the system's package, and standbys of it.

    with Server() as server:
        dsn = server.database()            # a fresh database; server.dsn(name) for one that exists
        server.sql("SELECT 1")             # as an operator with psql: rows, cells joined by |
        server.kill(); server.start()      # kill -9 of every process; the same port, the same data
        with server.standby("two") as standby:
            server.wait_for("two")         # commits wait for it from now on
            server.kill(); standby.promote()

``shared()`` is one server for all tests of a process; a test that stops it, or changes how it is
configured, makes its own. PostgreSQL refuses to run as root: then it runs as the user ``postgres``.
Its folders lie beside pytest's, which that user may not enter.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.worlds.ports import free_port

LACKING = "install PostgreSQL 15 or later, for example: apt-get install postgresql"
PATIENCE_S = 120.0  # for a server to start or to end; only a failing test waits that long
USER = "postgres"  # who owns the databases, and runs the server for root
# Small and quick; a test that asks what a power cut leaves says fsync=on.
_LINES = (
    "fsync = off",
    "shared_buffers = 16MB",
    "max_connections = 60",
    "max_wal_senders = 4",
    "wal_keep_size = 64MB",
    "checkpoint_timeout = 1h",
    "autovacuum_naptime = 1h",
    "hot_standby = on",
    "log_min_messages = info",
)


@functools.cache
def programs() -> Path | None:
    """The folder of the server's programs, of the newest version; None if it is not installed: then
    the tests that want it are skipped and say so. SHOAL_POSTGRES=1 (as in ``.ci/run``) makes that a
    failure.
    """
    # Debian keeps them out of the PATH
    places = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    places.sort(key=lambda place: float(place.parent.name))
    found = shutil.which("postgres")
    if not places and found:
        places = [Path(found).resolve().parent]
    assert places or os.environ.get("SHOAL_POSTGRES") != "1", LACKING
    return places[-1] if places else None


def _program(name: str) -> str:
    folder = programs()
    assert folder is not None, LACKING
    return str(folder / name)


@functools.cache
def _as_user() -> tuple[str, ...]:
    """What a command begins with, to run as somebody whom PostgreSQL accepts."""
    if os.geteuid() != 0:
        return ()
    user = pwd.getpwnam(USER)
    return "setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"


def _run(*command: str, stdin: str | None = None, **variables: str) -> str:
    done = subprocess.run(
        [*_as_user(), *command],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, "LC_ALL": "C", **variables},
    )
    assert done.returncode == 0, f"{command[0]}: {done.stderr or done.stdout}"
    return done.stdout


@functools.cache
def _model() -> tuple[Path, str]:
    """A data directory that every server begins with a copy of, and its password: made once, which
    takes as long as everything else together.
    """
    folder = _private_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    password = secrets.token_hex(16)
    secret = folder / "password"
    secret.write_text(password)
    give(secret)
    flags = "--data-checksums --no-locale --encoding=UTF8 --no-sync --auth-local=trust"
    _run(
        _program("initdb"),
        *flags.split(),
        "--auth-host=scram-sha-256",
        f"--username={USER}",
        f"--pwfile={secret}",
        f"--pgdata={folder / 'data'}",
    )
    return folder / "data", password


def _private_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    give(folder)
    return folder


def give(path: Path) -> None:
    """To the user whom servers run as."""
    if os.geteuid() == 0:
        shutil.chown(path, USER)


class Server:
    """``lines``: more of postgresql.conf. ``folder``: where its data goes (a small disk, for
    example), owned by whom the server runs as; default: a new one. It starts on entry, and its data
    is gone on exit.
    """

    def __init__(self, lines: Sequence[str] = (), folder: Path | None = None) -> None:
        self.lines, self.port = tuple(lines), free_port()
        self.folder = folder or _private_folder()
        self._given = folder is not None
        if self._given:
            give(self.folder)
        self.data = self.folder / "data"
        self.said: list[str] = []  # its log
        self.password = _model()[1]
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._ready, self._serving = threading.Event(), False
        self._databases = 0

    # --- its life

    def __enter__(self) -> Self:
        try:
            self._make()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(signal.SIGQUIT)
        with contextlib.suppress(OSError, IndexError):  # of one that was killed
            segment = (self.data / "postmaster.pid").read_text().splitlines()[6].split()[1]
            subprocess.run(["ipcrm", "-m", segment], capture_output=True, check=False)
        shutil.rmtree(self.data if self._given else self.folder, ignore_errors=True)

    def _make(self) -> None:
        _run("cp", "-a", str(_model()[0]), str(self.data))

    def start(self) -> None:
        """Returns when it takes connections, on the port and socket that it always had."""
        assert self._process is None, "it runs already"
        settings = [
            f"port = {self.port}",
            "listen_addresses = '127.0.0.1'",
            f"unix_socket_directories = '{self.folder}'",
            *_LINES,
            *self.lines,
        ]
        plain = [line.replace(" = ", "=", 1).replace("'", "") for line in settings]
        options = [part for setting in plain for part in ("-c", setting)]
        self._ready.clear()
        self._serving = False
        # In the caller's thread: the server ends with the thread that made it.
        self._process = subprocess.Popen(
            [*_dying_with_parent(), _program("postgres"), "-D", str(self.data), *options],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        assert self._ready.wait(PATIENCE_S), self.said[-20:]
        assert self._serving, self.said[-20:]

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.said.append(line.rstrip())
            if "ready to accept" in line:
                self._serving = True
                self._ready.set()
        self._ready.set()  # or it ended

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: connections are closed, everything is written. SIGQUIT: at once."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process = process
            self.kill()
            raise
        self._done(process)

    def kill(self) -> None:
        """kill -9 of all its processes, as if the machine had ended; nobody is told."""
        process, self._process = self._process, None
        assert process is not None, "it does not run"
        process.send_signal(signal.SIGSTOP)  # it starts no more
        for pid in [*children(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        self._done(process)

    def _done(self, process: subprocess.Popen[str]) -> None:
        assert self._reader is not None
        assert process.stderr is not None
        self._reader.join()
        process.stderr.close()

    @property
    def process(self) -> subprocess.Popen[str]:
        """The first of its processes, which started the others."""
        assert self._process is not None, "it does not run"
        return self._process

    # --- as an operator

    def sql(self, text: str, database: str = "postgres") -> list[str]:
        """What the statements answer, a line for each row, its cells joined by ``|``."""
        command = [_program("psql"), "-XqtA", "-v", "ON_ERROR_STOP=1", "-f", "-"]
        return _run(*command, self.socket_dsn(database), stdin=text).splitlines()

    def content(self, database: str, *, but: str) -> bytes:
        """The tables of the schema ``shoal`` and their rows, without those of the table ``but``."""
        tables = (
            "SELECT format('SELECT %L', relname), "
            "format('SELECT one::text FROM shoal.%I AS one ORDER BY 1', relname) "
            "FROM pg_stat_user_tables WHERE relname <> :'but' ORDER BY relname \\gexec"
        )
        return "\n".join(self.sql(f"\\set but {but}\n{tables}", database)).encode()

    def on_disk(self) -> bytes:
        """Every byte of its data, its log of writes among them, and what it said. Not of
        ``pg_internal.init``, a cache of its catalogs, where it takes that away meanwhile.
        """
        held = list[bytes]()
        for path in sorted(self.data.rglob("*")):
            try:
                held += [path.read_bytes()] if path.is_file() else []
            except FileNotFoundError:
                if path.name != "pg_internal.init":
                    raise
        return b"".join(held) + "\n".join(self.said).encode()

    def configure(self, *settings: str) -> None:
        """``name = 'value'`` each, for whatever begins after this."""
        (before,) = self.sql("SELECT clock_timestamp()")
        self.sql("\n".join(f"ALTER SYSTEM SET {setting};" for setting in settings))
        self.sql("SELECT pg_reload_conf()")
        # Once the first process has it, all others are told; the one that makes checkpoints says
        # whether commits wait.
        _until(lambda: self.sql(f"SELECT pg_conf_load_time() >= '{before}'") == ["t"])
        self.sql("CHECKPOINT")

    def database(self) -> str:
        """The DSN of a fresh database."""
        self._databases += 1
        name = f"t{os.getpid()}_{self._databases}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY = file_copy")
        return self.dsn(name)

    def drop(self, dsn: str) -> None:
        """The database is gone, whoever is connected to it."""
        self.sql(f"DROP DATABASE {dsn.rpartition('/')[2]} WITH (FORCE)")

    def copy(self, source: str, target: str) -> None:
        """The content of one database in another, which is empty; people may work in both."""
        dump = _run(_program("pg_dump"), self.socket_dsn(source))
        self.sql(dump, target)

    def dsn(self, database: str = "postgres") -> str:
        """Over loopback, with the password."""
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def socket_dsn(self, database: str = "postgres") -> str:
        """Over the socket in its folder."""
        return f"postgresql://{USER}@/{database}?host={self.folder}&port={self.port}"

    # --- another machine

    def standby(self, name: str, lines: Sequence[str] = ()) -> Standby:
        """A copy that follows, to be entered."""
        return Standby(self, name, lines)

    def wait_for(self, name: str) -> None:
        """Every commit waits for the standby of this name from now on; it is there."""
        self.configure(f"synchronous_standby_names = '{name}'")
        look = (
            "SELECT count(*) FROM pg_stat_replication "
            "WHERE sync_state = 'sync' AND replay_lsn >= pg_current_wal_lsn()"
        )
        _until(lambda: self.sql(look) == ["1"])


class Standby(Server):
    """Follows ``primary`` under ``name``; read-only until it is promoted."""

    def __init__(self, primary: Server, name: str, lines: Sequence[str] = ()) -> None:
        super().__init__((*primary.lines, *lines))
        self.primary, self.name = primary, name

    def _make(self) -> None:
        source = (
            f"host={self.primary.folder} port={self.primary.port} user={USER} "
            f"application_name={self.name}"
        )
        _run(
            _program("pg_basebackup"), "--write-recovery-conf", "--wal-method=stream",
            "--checkpoint=fast", "--no-sync", f"--pgdata={self.data}", f"--dbname={source}",
        )  # fmt: skip

    def promote(self) -> None:
        """It is a primary when this returns."""
        self.sql(f"SELECT pg_promote(true, {int(PATIENCE_S)})")
        # it would wait for itself
        self.sql("ALTER SYSTEM RESET synchronous_standby_names")
        self.sql("SELECT pg_reload_conf()")


def children(pid: int) -> list[int]:
    """The processes that this one started and that live."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(after_name[1]) == pid:
                    found.append(int(entry.name))
    return found


def _dying_with_parent() -> list[str]:
    """As ``shoal.services.parent``, which the user ``postgres`` may not be able to read."""
    if os.geteuid() != 0:
        return [sys.executable, "-m", "shoal.services.parent"]
    *command, end = _as_user()
    return [shutil.which(command[0]) or command[0], *command[1:], "--pdeathsig=QUIT", end]


def _until(reached: object) -> None:
    assert callable(reached)
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.05)):
        if reached():
            return
        pause.wait(0.05)
    raise AssertionError("it did not come to that")


@functools.cache
def shared() -> Server:
    """One server for all tests of this process that leave it as it is."""
    server = Server()
    server.__enter__()
    atexit.register(server.__exit__, None, None, None)
    return server
