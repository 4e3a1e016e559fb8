"""Which DSNs are used: a server beyond this machine is proven, and nothing is taken from
elsewhere.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.shuffler.stores.postgresql.address import check_dsn, load_dsn
from shoal.shuffler.stores.postgresql.failures import unreachable
from shoal.shuffler.stores.postgresql.schema import check_name

SECRET = "pass-word-17"
USER = f"postgresql://shoal:{SECRET}@"


@pytest.mark.parametrize(
    "rest",
    [
        "127.0.0.1/shoal",
        "[::1]:5432,localhost:5433/shoal",
        "/shoal?host=/run/postgresql",
        "%2Frun%2Fpostgresql/shoal",
        f"db.internal:5432/shoal?sslmode=verify-full&sslrootcert={__file__}",
        "one,two,[2001:db8::1]:5432/shoal?sslmode=verify-full",
        "127.0.0.1?dbname=shoal",
    ],
)
def test_a_server_of_this_machine_or_a_proven_one_is_used(rest: str) -> None:
    """Planted: verify-full wanted of all -> fails."""
    check_dsn(USER + rest)


@pytest.mark.parametrize(
    "rest",
    [
        "db.internal/shoal",
        "db.internal/shoal?sslmode=require",
        "db.internal/shoal?sslmode=verify-ca",
        "db.internal/shoal?sslmode=verify-full&sslmode=prefer",
        "127.0.0.1,db.internal/shoal",
        "[2001:db8::1]:5432/shoal",
        "127.0.0.1/shoal?host=db.internal",
        "127.0.0.1/shoal?service=other",
        "127.0.0.1/shoal?options=-c%20synchronous_commit%3Doff",
        "127.0.0.1/shoal?target_session_attrs=any",
        "127.0.0.1",
        "/shoal",
    ],
)
def test_what_would_send_to_an_unproven_server_is_refused(rest: str) -> None:
    """Planted: the last host alone looked at -> two hosts pass; ``host`` in the query not looked
    at -> it passes.
    """
    with pytest.raises(ShoalError) as refused:
        check_dsn(USER + rest)
    assert refused.value.kind is Kind.CONFIG
    assert SECRET not in str(refused.value)


def test_the_file_is_read_by_nobody_else(tmp_path: Path) -> None:
    """Planted: read as any file -> the first passes, fails."""
    file = tmp_path / "dsn"
    file.write_text(f"{USER}127.0.0.1/shoal\n")
    file.chmod(0o644)
    with pytest.raises(ShoalError) as refused:
        load_dsn(file)
    assert refused.value.kind is Kind.KEY_FILE
    file.chmod(0o600)
    assert load_dsn(file) == f"{USER}127.0.0.1/shoal"
    for text in ("", "a\nb\n", "mysql://other/b"):
        file.write_text(text)
        with pytest.raises(ShoalError) as refused:
            load_dsn(file)
        assert refused.value.kind is Kind.CONFIG


@pytest.mark.parametrize("name", ["", "Shoal", "a b", 'a"; DROP', "pg_temp", "x" * 64, "7a"])
def test_a_schema_is_a_plain_name(name: str) -> None:
    """Planted: ``match`` for ``fullmatch`` -> one with quotes passes."""
    with pytest.raises(ShoalError):
        check_name(name)


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslkey", "sslcrl"])
def test_a_file_that_is_not_there_is_told_as_one(tmp_path: Path, name: str) -> None:
    """Not as a server that can't be reached. Planted: no look at files -> fails."""
    with pytest.raises(ShoalError) as refused:
        check_dsn(f"{USER}db.internal/shoal?sslmode=verify-full&{name}={tmp_path / 'ca.pem'}")
    assert refused.value.kind is Kind.CONFIG
    assert SECRET not in str(refused.value)


def test_a_server_that_is_not_proven_is_told_apart_from_one_that_is_away() -> None:
    """Planted: ssl.SSLError as any OSError -> fails."""
    wrong, away = unreachable(ssl.SSLCertVerificationError()), unreachable(ConnectionRefusedError())
    assert wrong.kind is away.kind is Kind.UNAVAILABLE
    assert wrong.message != away.message
