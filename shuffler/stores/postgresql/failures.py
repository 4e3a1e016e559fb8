"""What a failure of the database means: which kind, and whether what was asked for may have
happened.

No text of the server is passed on: it may hold what was stored. The five characters of its SQLSTATE
are enough to look the reason up (appendix A of PostgreSQL's documentation), beside its own log.
"""

from __future__ import annotations

import ssl
from collections.abc import Hashable, Iterator

import asyncpg

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.services.complaints import Complaints
from shoal.services.conditions import Condition

FULL = "53100"
_BUSY = ("40001", "40P01", "55P03")  # serialization, deadlock, lock not available
# Nothing that waiting mends: no such database, password, role, certificate, startup parameter.
_WRONG_ADDRESS = ("28", "3D", "42704", "08P01", "0A000")
NO_RIGHT = "42501"
NO_TABLE = "42P01"

# What asking may raise; connecting also any OSError. One of a disk of this machine is not among
# them: it says nothing of the database.
FAILURES = (
    ConnectionError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


class DatabaseError(ShoalError):
    """A failure of the database. ``sqlstate``: the server's five characters, empty if it said
    nothing. ``unknown``: whether what was asked for may have been committed: never an
    acknowledgement, and not a refusal either.
    """

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        retry_after_s: float = 0.0,
        sqlstate: str = "",
        unknown: bool = False,
    ) -> None:
        super().__init__(kind, message, retry_after_s=retry_after_s)
        self.sqlstate, self.unknown = sqlstate, unknown

    @property
    def again(self) -> bool:
        """Whether the same transaction, which changed nothing, would likely do at once."""
        return self.sqlstate in _BUSY[:2]


def judged(error: BaseException) -> DatabaseError:
    """One of ``FAILURES``, met while the database was asked for something."""
    state = getattr(error, "sqlstate", None) or ""
    if not isinstance(error, asyncpg.PostgresError):
        return lost()
    retry = LIMITS.retry_after_s
    if state == FULL:
        text = "the database's disk is full: give it room"
        return DatabaseError(Kind.OVERLOADED, text, retry_after_s=retry, sqlstate=state)
    if state.startswith("53"):  # too many connections, out of memory, a configured limit
        text = f"the database has no room for more (SQLSTATE {state}): raise its limits"
        return DatabaseError(Kind.OVERLOADED, text, retry_after_s=retry, sqlstate=state)
    if state in _BUSY:
        text = "another shuffler is changing the same: try again"
        return DatabaseError(Kind.UNAVAILABLE, text, sqlstate=state)
    if state == "25006":
        text = (
            "the database takes no writes: name its primary in the DSN, and see that "
            "default_transaction_read_only is off"
        )
        return DatabaseError(Kind.UNAVAILABLE, text, sqlstate=state)
    if state[:2] in ("08", "57"):  # the connection, or the server is going
        return lost(state)
    if state[:2] in ("28", "3D") or state == NO_RIGHT:
        text = f"the database refuses this shuffler's user (SQLSTATE {state}): see its log"
        return DatabaseError(Kind.UNAVAILABLE, text, sqlstate=state)
    text = f"the database failed (SQLSTATE {state}): see its log"
    return DatabaseError(Kind.INTERNAL, text, sqlstate=state)


def lost(state: str = "") -> DatabaseError:
    """Nobody knows whether it was done."""
    return DatabaseError(
        Kind.UNAVAILABLE,
        "the database went away before it answered: not acknowledged, try again",
        sqlstate=state,
        unknown=True,
    )


def warned(state: str) -> DatabaseError:
    """The server said that it was done, with a warning: a wait for the standby that was cancelled
    ends like this, and a machine that is lost then takes the commit with it.
    """
    return DatabaseError(
        Kind.UNAVAILABLE,
        f"the database committed with a warning (SQLSTATE {state}): not acknowledged, try again",
        sqlstate=state,
        unknown=True,
    )


def unreachable(error: BaseException, *, opened: bool = False) -> ShoalError:
    """Why there is no connection: nothing was asked for. CONFIG for what only a person mends, but
    UNAVAILABLE of a database that could be ``opened`` before: devices are to come again.
    """
    failure = _unreachable(error)
    if opened and failure.kind is Kind.CONFIG:
        return DatabaseError(Kind.UNAVAILABLE, failure.message)
    return failure


def _unreachable(error: BaseException) -> ShoalError:
    state = getattr(error, "sqlstate", None) or ""
    if isinstance(error, ssl.SSLError):  # of a certificate: a ValueError too
        return DatabaseError(
            Kind.UNAVAILABLE,
            "the database's server is not proven: see that its certificate holds, bears the host's "
            "name in the DSN, and chains to the DSN's sslrootcert",
        )
    if isinstance(error, (asyncpg.ClientConfigurationError, ValueError)):
        return ShoalError(
            Kind.CONFIG,
            "store.dsn_file: the DSN can't be used: see its form (@, : and / of a password are "
            "%40, %3A and %2F), and that it names sslrootcert where it says sslmode=verify-full",
        )
    if isinstance(error, ConnectionError) and "rejected SSL" in str(error):
        return DatabaseError(
            Kind.UNAVAILABLE, "the database's server takes no TLS: set ssl to on there"
        )
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return DatabaseError(
            Kind.UNAVAILABLE,
            "no host of the DSN takes writes: promote a standby, or name the primary, and see that "
            "default_transaction_read_only is off for this database and user",
        )
    if state == NO_RIGHT:
        return no_right()
    if state.startswith(_WRONG_ADDRESS):
        return ShoalError(
            Kind.CONFIG,
            f"store.dsn_file: the server refuses the DSN (SQLSTATE {state}): see that user, "
            "password and database are right, and that no pooler stands between",
        )
    if isinstance(error, asyncpg.PostgresError) and state[:2] not in ("08", "57"):
        return judged(error)
    return DatabaseError(
        Kind.UNAVAILABLE,
        f"the database can't be reached ({type(error).__name__}): see that it runs, and that the "
        "DSN names it",
        sqlstate=state,
    )


def no_right() -> ShoalError:
    """Tables can't be made."""
    return ShoalError(
        Kind.CONFIG,
        "store: the DSN's user may not make the schema: GRANT CREATE ON DATABASE to it, or make "
        "the schema for it",
    )


class Refusals(Complaints):
    """Of reports, by window: told once in the log, and of a full disk in status."""

    def __init__(self) -> None:
        super().__init__(get_log("shuffler"), "reports could not be stored")
        self._full: set[Hashable] = set()

    def failed(self, key: Hashable, error: ShoalError, **fields: object) -> None:
        """As ``Complaints.failed``."""
        super().failed(key, error, **fields)
        if isinstance(error, DatabaseError) and error.sqlstate == FULL:
            self._full.add(key)

    def ended(self, key: Hashable, **fields: object) -> None:
        """As ``Complaints.ended``."""
        super().ended(key, **fields)
        self._full.discard(key)

    def conditions(self) -> Iterator[Condition]:
        """It stops nothing: whether there is room again shows when a report comes."""
        if self._full:
            yield Condition(
                "disk_full",
                "database",
                "the database's disk is full: give it room; until then reports are refused, and "
                "devices send them again",
                stops=False,
            )
