"""What is told of a database that shufflers share: by the service's conditions, and by ``shoal
doctor``; and what a backup takes of it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from shoal import failpoints
from shoal.cli.main import main
from shoal.services.settings import load_settings
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.stores.configured import open_store
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.watch import DatabaseWatch, ServerFacts, look, problems
from tests.worlds import objects, postgres
from tests.worlds.operations import Site, agreed

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
ME = b"\x01" * 32
SOUND = ServerFacts(150_000, True, 1, True, True, False, 0.0)


def subjects(facts: ServerFacts, replicas: int = 2, *, alone: bool = False) -> dict[str, bool]:
    found = problems(facts, replicas=replicas, without_standby=alone)
    return {one.subject: one.stops for one in found}


def test_what_makes_an_acknowledgement_worth_less_stops_the_service() -> None:
    """Planted: replicas, without_standby or any fact not looked at -> its line fails."""

    def but(**changes: object) -> ServerFacts:
        return ServerFacts(
            **{**{name: getattr(SOUND, name) for name in ServerFacts.__slots__}, **changes}
        )

    assert subjects(SOUND) == {}
    assert subjects(but(waited_for=False)) == {"standby": True}
    assert subjects(but(waited_for=False), 1) == {}
    assert subjects(but(waited_for=False), alone=True) == {}
    assert subjects(but(followers=0)) == {"standby": True}
    assert subjects(but(durable=False), 1, alone=True) == {"fsync": True}
    assert subjects(but(apart_s=-11.0)) == {"clock": False}
    assert subjects(but(apart_s=9.0)) == {}
    assert subjects(but(apart_s=62.0, slack_s=1.0)) == {"clock": True}
    assert subjects(but(apart_s=62.0, slack_s=3.0)) == {"clock": False}
    assert subjects(but(checksums=False, archived=True)) == {"checksums": False, "archive": False}


async def test_a_real_server_is_read_as_it_is_and_its_end_is_told() -> None:
    """By a user without special rights, who may not see what a standby does. Planted: details of
    standbys asked for -> none for that user, fails; a failure not caught -> raises.
    """
    with postgres.Server(["fsync = on"]) as server:
        dsn = server.database()
        server.sql("CREATE ROLE plain LOGIN PASSWORD 'word'; CREATE SCHEMA shoal")
        server.sql("CREATE SCHEMA shoal AUTHORIZATION plain", dsn.rpartition("/")[2])
        plain = dsn.replace(f"postgres:{server.password}", "plain:word")
        async with await Database.open(plain, ME) as database:
            watch = DatabaseWatch(database, replicas=2, without_standby=False)
            await watch.start()
            assert [(one.subject, one.stops) for one in watch.conditions()] == [("standby", True)]
            with server.standby("two"):
                server.wait_for("two")
                facts = await look(database)
                assert (facts.waited_for, facts.followers, facts.durable) == (True, 1, True)
                assert facts.version // 10_000 >= 14
                assert abs(facts.apart_s) < 5
                await watch.look()
                assert list(watch.conditions()) == []
            ahead = await look(database, lambda: 1_000_000.0)
            assert ahead.apart_s > 1e9
            await asyncio.to_thread(server.kill)
            await watch.look()
            assert [(one.subject, one.stops) for one in watch.conditions()] == [("", True)]
            await watch.close()


def shared(site: Site, dsn: str, **more: Any) -> Path:
    file = site.folder / "dsn"
    file.touch(mode=0o600)
    file.write_text(dsn)
    return site.shuffler_toml(store={"kind": "postgresql", "dsn_file": "dsn", **more})


def doctor(capsys: pytest.CaptureFixture[str], toml: Path) -> list[tuple[str, str]]:
    """(level, message) about the database."""
    main(["doctor", "--shuffler", str(toml), "--json"])
    said = capsys.readouterr()
    assert not said.err
    findings = json.loads(said.out)["findings"]
    return [(one["level"], one["message"]) for one in findings if one["check"] == "database"]


def test_the_doctor_tries_the_object_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted: the probe left out -> fails; a probe that is not deleted -> fails."""
    site = Site(tmp_path)
    dsn = postgres.shared().database()
    file = site.folder / "objects.toml"
    file.touch(mode=0o600)
    with objects.Server() as store:
        batches = {"url": "s3://batches/some", "credentials_file": file.name}
        for key, level in ((objects.KEY, "ok"), ("other", "fail")):
            lines = [f'{name} = "{value}"' for name, value in store.options(key).items()]
            file.write_text("\n".join(lines))
            said = doctor(capsys, shared(site, dsn, batches=batches))
            assert level in {level for level, text in said if "batches" in text}
            assert not any("secret" in text.split() for _, text in said)
        assert store.puts
        assert not store.objects


def test_the_doctor_examines_the_database_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted: replicas not passed on -> ok without a standby, fails; tables made by the look ->
    fails; the DSN in a message -> fails.
    """
    site = Site(tmp_path)
    with postgres.Server(["fsync = on"]) as server:
        dsn = server.database()
        alone = doctor(capsys, shared(site, dsn))
        assert {level for level, _ in alone} == {"ok"}
        several = doctor(capsys, shared(site, dsn, replicas=2))
        assert [level for level, _ in several].count("fail") == 1
        allowed = doctor(capsys, shared(site, dsn, replicas=2, without_standby=True))
        assert {level for level, _ in allowed} == {"ok"}
        tables = server.sql("SELECT to_regnamespace('shoal') IS NULL", dsn.rpartition("/")[2])
        assert tables == ["t"]
        asyncio.run(opened(dsn))
        foreign = doctor(capsys, shared(site, dsn))
        assert any("another signing key" in text for level, text in foreign if level == "fail")
        server.kill()
        gone = doctor(capsys, shared(site, dsn))
        assert [level for level, _ in gone] == ["fail"]
        for _, message in [*alone, *several, *gone]:
            assert server.password not in message


async def opened(dsn: str) -> None:
    """By another shuffler than the site's."""
    await (await Database.open(dsn, ME)).close()


def test_a_backup_has_the_dsn_only_under_a_passphrase_and_no_key_of_a_window(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted: the DSN among the public files -> fails; all of data_dir copied -> the key of a
    window that is open is in it, fails.
    """
    site = Site(tmp_path)
    toml = shared(site, f"postgresql://{'shoal'}:word-of-the-database@127.0.0.1/shoal")
    keys = site.data_dir / "window-keys"
    keys.mkdir(mode=0o700)
    (keys / f"{'0' * 64}-0.inbox.key").write_text("key-of-an-open-window")
    phrase = tmp_path / "phrase"
    phrase.touch(mode=0o600)
    phrase.write_text("correct horse battery staple\n")
    for name, more in (("a", ()), ("b", ("--passphrase-file", str(phrase)))):
        out = tmp_path / name
        assert main(["backup", "--shuffler", str(toml), "--out", str(out), *more]) == 0
        assert b"word-of-the-database" not in out.read_bytes()
        assert b"key-of-an-open-window" not in out.read_bytes()
    capsys.readouterr()


def test_what_an_operator_got_wrong_is_told_as_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is not there, a database that somebody set read-only, and windows that share a
    hop key. Planted: the file read as any key file -> fails; default_transaction_read_only set by
    us -> the operator's word is passed over, fails; hop keys counted as windows -> fails.
    """
    site = Site(tmp_path)
    with postgres.Server(["fsync = on"]) as server:
        dsn = server.database()
        toml = shared(site, dsn)
        assert {level for level, _ in doctor(capsys, toml)} == {"ok"}
        main(["doctor", "--shuffler", str(toml), "--json"])
        found = json.loads(capsys.readouterr().out)["findings"]
        told = [one["message"] for one in found if "share 1 hop key" in one["message"]]
        assert len(told) == (len(set(site.published.served.keys.hop_keys)) == 1)
        name = dsn.rpartition("/")[2]
        server.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        ((level, message),) = doctor(capsys, toml)
        assert level == "fail"
        assert "default_transaction_read_only" in message
        server.sql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        (site.folder / "dsn").unlink()
        ((level, message),) = doctor(capsys, toml)
        assert (level, message.partition(":")[0]) == ("fail", "store.dsn_file")


def test_a_replica_that_is_restored_closes_no_window_of_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the restore was cut off and is done again. Planted: whether the database remembers
    not asked, or not of the second -> the window that has begun is closed for all, fails.
    """
    site = Site(tmp_path)
    with postgres.Server() as server:
        dsn = server.database()
        toml = shared(site, dsn)
        asyncio.run(_serve_once(toml))
        out = tmp_path / "backup"
        assert main(["backup", "--shuffler", str(toml), "--out", str(out)]) == 0
        for point in ("", "restore.filled"):
            shutil.rmtree(site.data_dir)
            restore = [*map(str, ("restore", out, "--config", toml, *agreed(), "--json"))]
            if point:
                failpoints.arm(f"{point}=eio@1")
                try:
                    assert main(restore) != 0
                finally:
                    failpoints.arm("")
            capsys.readouterr()
            assert main(restore) == 0
            assert json.loads(capsys.readouterr().out)["closed"] == 0
            assert server.sql("SELECT count(*) FROM shoal.win", dsn.rpartition("/")[2]) == ["0"]


async def _serve_once(toml: Path) -> None:
    config = load_settings(ShufflerConfig, toml)
    config.data_dir.mkdir(exist_ok=True)
    await (await open_store(config)).close()
