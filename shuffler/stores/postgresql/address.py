"""Where the database is: a DSN from a file that nobody else may read, and how its server is proven.

    postgresql://{USER}:{PASSWORD}@{HOST}:{PORT},{HOST}:{PORT}/{DATABASE}?sslmode=verify-full&sslrootcert=FILE

Several hosts are a primary and its standbys: whichever takes writes is used. What goes over a
network goes over TLS to a server whose name was proven; loopback and a socket of this machine need
none. The DSN holds a password: nothing here prints it.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from shoal.crypto.keyfiles import load_private_pem
from shoal.errors import Kind, ShoalError
from shoal.rpc.address import is_loopback

_FORM = (
    "postgresql://{USER}:{PASSWORD}@{HOST}:{PORT}/{DATABASE}?sslmode=verify-full&sslrootcert={FILE}"
)
# Of this machine: one that is missing would be told as a server that is.
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
# They would take from elsewhere what must be judged here.
_ELSEWHERE = ("service", "servicefile", "target_session_attrs", "options")


def load_dsn(path: Path) -> str:
    """The one line of the file. Raises KEY_FILE, CONFIG."""
    if not path.exists():
        raise _wrong(f"{path} does not exist")
    try:
        text = load_private_pem(path).decode()
    except UnicodeDecodeError:
        raise _wrong(f"{path} is no text") from None
    dsn = text.rstrip("\r\n")
    if not dsn or "\n" in dsn:
        raise _wrong(f"{path} holds no DSN on one line")
    check_dsn(dsn)
    return dsn


def check_dsn(dsn: str) -> None:
    """Raises CONFIG for a DSN of another form, or one that would send to a server that isn't
    proven.
    """
    try:
        parts = urlsplit(dsn)
        query = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
    except ValueError:
        raise _wrong("the DSN can't be read") from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise _wrong("the DSN does not begin with postgresql://")
    beyond = [name for name in _ELSEWHERE if name in query]
    if beyond:
        raise _wrong(f'the DSN sets "{beyond[0]}": leave it out')
    hosts = _hosts(parts.netloc.rpartition("@")[2])
    hosts += [host for value in query.get("host", []) for host in _hosts(value)]
    if not hosts:
        raise _wrong("the DSN names no host")
    far = [host for host in hosts if not host.startswith("/") and not is_loopback(host)]
    if far and query.get("sslmode", [""])[-1] != "verify-full":
        raise _wrong("the DSN names a host beyond this machine without sslmode=verify-full")
    for name in _FILES:
        for file in query.get(name, []):
            if file != "system" and not Path(file).is_file():
                raise ShoalError(
                    Kind.CONFIG,
                    f"store.dsn_file: the DSN's {name} {file} is no file: put it there, or name it",
                )
    if not parts.path.strip("/") and not {"dbname", "database"} & set(query):
        raise _wrong("the DSN names no database")


def _hosts(text: str) -> list[str]:
    """Without their ports."""
    found = []
    for part in filter(None, text.split(",")):
        host = part
        if part.startswith("["):
            host = part[1:].partition("]")[0]
        elif part.count(":") == 1:
            host = part.partition(":")[0]
        found.append(unquote(host))
    return found


def _wrong(what: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, f"store.dsn_file: {what}: put {_FORM} there, on one line")
