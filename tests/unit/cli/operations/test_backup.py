"""The file of a backup: what it holds, what it never holds, and what is refused in one line."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.main import main
from shoal.cli.operations.restoring import UNKNOWN_MAKER
from shoal.clocks import timekeeper
from shoal.clocks.timekeeping import ClockStanding, Origin, Reading
from shoal.errors import ShoalError
from shoal.services.given_up import GivenUp, add
from shoal.services.process import DataFolder
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.sqlite.records import stored
from tests.cases import for_each
from tests.worlds.operations import DAY, Site, agreed

Capture = pytest.CaptureFixture[str]
PASSPHRASE = "a passphrase of five words"


def refused(capsys: Capture, *arguments: str | Path) -> str:
    """The one line of a request that is wrong."""
    assert main([*map(str, arguments)]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    return shown


@pytest.fixture
def desk(tmp_path: Path) -> Site:
    """Both services as a first start leaves them, and a passphrase."""
    site = Site(tmp_path)
    (site.analyzer_dir / "data").mkdir(mode=0o700)
    AnalyzerStore(site.analyzer_dir / "data" / FILE_NAME).close()
    for name, text in (("pass", PASSPHRASE), ("other", PASSPHRASE[::-1]), ("short", "brief")):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(f"{text}\n")
    return site


def test_secrets_leave_a_service_under_a_passphrase_or_not_at_all(
    desk: Site, tmp_path: Path, capsys: Capture
) -> None:
    """Planted: secrets written beside the sealed ones -> their text is found: fails. Planted: keys
    of windows sealed without being asked for -> fails.
    """
    config = desk.analyzer_toml()
    assert main(["backup", "--analyzer", str(config), "--out", str(tmp_path / "plain")]) == 0
    assert "not in it: signing key" in capsys.readouterr().out
    sealed = ("--passphrase-file", str(tmp_path / "pass"))
    assert (
        main(["backup", "--analyzer", str(config), "--out", str(tmp_path / "full"), *sealed]) == 0
    )
    assert "not in it: private keys of windows" in capsys.readouterr().out
    for name in ("plain", "full"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
        data = (tmp_path / name).read_bytes()
        assert not [secret for secret in (*desk.secrets(), PASSPHRASE) if secret.encode() in data]
    with tarfile.open(tmp_path / "full") as tar:
        names = tar.getnames()
    assert names[0] == "backup.json"
    assert {"config.toml", "analyzer.db", "tls.certificate", "secrets.sealed"} <= set(names)


def test_a_backup_takes_away_what_one_that_was_killed_left(desk: Site, tmp_path: Path) -> None:
    """And nothing of one that runs. Planted: nothing taken away -> fails. Planted: not asked
    whether its process lives -> fails.
    """
    data = desk.analyzer_dir / "data"
    for name in (".backup-killed", ".backup-running"):
        (data / name).mkdir()
        (data / name / FILE_NAME).touch()
    handle = os.open(data / ".backup-running", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    command = ("backup", "--analyzer", desk.analyzer_toml(), "--out", tmp_path / "plain")
    assert main([*map(str, command)]) == 0
    os.close(handle)
    assert [path.name for path in data.glob(".backup-*")] == [".backup-running"]


def test_a_stopped_machine_is_made_anew_from_one_file(
    desk: Site, tmp_path: Path, capsys: Capture
) -> None:
    """Planted: private files written for others to read -> fails. Planted: a renewed certificate
    taken for a conflict -> fails.
    """
    config, file = desk.analyzer_toml(), tmp_path / "full"
    sealed = ("--passphrase-file", str(tmp_path / "pass"))
    assert main(["backup", "--analyzer", str(config), "--out", str(file), *sealed]) == 0
    before = {
        name: (desk.analyzer_dir / name).read_bytes()
        for name in ("signing.key", "own.key", "token")
    }
    moved = tmp_path / "moved"
    desk.analyzer_dir.rename(moved)
    capsys.readouterr()
    assert main(["restore", str(file), "--config", str(config), *sealed, *agreed(), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["missing"], done["missing_keys"]) == ([], 39)
    for name, data in before.items():
        path = desk.analyzer_dir / name
        assert (path.read_bytes(), path.stat().st_mode & 0o777) == (data, 0o600)
    (desk.analyzer_dir / "data" / FILE_NAME).unlink()
    (desk.analyzer_dir / "own.pem").write_bytes((moved / "ca.pem").read_bytes())
    assert main(["restore", str(file), "--config", str(config), *sealed, *agreed()]) == 0
    (desk.analyzer_dir / "data" / FILE_NAME).unlink()
    (desk.analyzer_dir / "signing.key").write_bytes((moved / "own.key").read_bytes())
    assert main(["restore", str(file), "--config", str(config), *sealed, *agreed()]) == 1
    assert "differs from the backup's" in capsys.readouterr().err


def test_what_is_no_backup_or_not_to_be_made_is_refused_in_one_line(
    desk: Site, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: digests of members not compared -> the changed one is restored: fails. Planted: the
    clock not looked at -> fails.
    """
    config, file = desk.analyzer_toml(), tmp_path / "one"
    sealed = ("--passphrase-file", tmp_path / "pass")
    make = ("backup", "--analyzer", config, "--out")
    assert main([*map(str, (*make, file, *sealed))]) == 0
    restore = ("restore", file, "--config", config)
    (desk.analyzer_dir / "data" / FILE_NAME).unlink()
    assert "exists" in refused(capsys, *make, file)
    assert "one of --shuffler" in refused(capsys, "backup", "--out", tmp_path / "x")
    assert "--passphrase-file" in refused(capsys, *make, tmp_path / "x", "--with-window-keys")
    assert "16 characters" in refused(
        capsys, *make, tmp_path / "x", "--passphrase-file", tmp_path / "short"
    )
    assert "give the right one" in refused(
        capsys, *restore, "--passphrase-file", tmp_path / "other"
    )
    data = file.read_bytes()
    for broken, words in (
        (data.replace(b"open_workers", b"open_wokrers"), "damaged"),
        (data[: len(data) // 2], "cannot read"),
        (b"not a tar", "it is no backup: give"),
    ):
        (tmp_path / "broken").write_bytes(broken)
        assert words in refused(capsys, "restore", tmp_path / "broken", "--config", config)
    with monkeypatch.context() as patched:
        patched.setattr("shoal.cli.operations.restoring.time.time", lambda: 1_700_000_000.0)
        assert "clock is before the backup" in refused(capsys, *restore)
    assert main([*map(str, (*restore, *agreed()))]) == 0


def rewritten(
    source: Path, to: Path, change: Callable[[dict[str, bytes], dict[str, str]], None]
) -> Path:
    """What somebody makes of a backup who has no passphrase: other files, and their digests."""
    with tarfile.open(source) as tar:
        files = {one.name: (tar.extractfile(one) or io.BytesIO()).read() for one in tar}
    header, sealed = json.loads(files.pop("backup.json")), files.pop("secrets.sealed", None)
    change(files, header)
    header["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    members = {"backup.json": json.dumps(header, indent=1, sort_keys=True).encode(), **files}
    if sealed is not None:
        members["secrets.sealed"] = sealed
    with tarfile.open(to, "w") as tar:
        for name, data in members.items():
            one = tarfile.TarInfo(name)
            one.size = len(data)
            tar.addfile(one, io.BytesIO(data))
    return to


def test_a_backup_that_somebody_changed_writes_nothing(
    desk: Site, tmp_path: Path, capsys: Capture
) -> None:
    """Planted: only service and time bound to the sealed part -> the file is written: fails.
    Planted: a configuration of anybody's that names places outside its folder taken -> fails.
    Planted: names under tasks/, the service or a missing store not looked at -> fails.
    """
    file, new, away = tmp_path / "full", tmp_path / "new", tmp_path / "etc"
    sealed = ("--passphrase-file", tmp_path / "pass")
    made = ("backup", "--analyzer", desk.analyzer_toml(), "--out", file, *sealed)
    assert main([*map(str, made)]) == 0

    def outside(files: dict[str, bytes], _: dict[str, str]) -> None:
        named = f'certificate = "{away}/evil"'.encode()
        files["config.toml"] = files["config.toml"].replace(b'certificate = "own.pem"', named)
        files["config.toml"] = files["config.toml"].replace(b"../shuffler/tasks", b"tasks")

    evil = rewritten(file, tmp_path / "evil", outside)
    restore = ("restore", evil, "--config", new / "analyzer.toml")
    assert "was changed" in refused(capsys, *restore, *sealed)
    assert "outside" in refused(capsys, *restore)
    changes: list[Callable[[dict[str, bytes], dict[str, str]], None]] = [
        lambda files, _: files.update({"tasks/authorized_keys": b"x"}),
        lambda _, header: header.update(service="evil"),
        lambda files, _: files.__delitem__("analyzer.db"),
    ]
    for change in changes:
        rewritten(file, evil, change)
        assert "no backup of" in refused(capsys, *restore)
    assert not away.exists()
    assert not list(new.glob("*"))


def test_a_restore_goes_by_a_clock_that_somebody_looked_at(
    desk: Site, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: another date taken -> files are written: fails. Planted: the time at which the
    service last looked at the clock ignored -> fails. Planted: that nobody can tell who made it is
    said at the end -> fails.
    """
    config, file, new = desk.analyzer_toml(), tmp_path / "full", tmp_path / "new" / "analyzer.toml"
    sealed = ("--passphrase-file", tmp_path / "pass")
    assert main([*map(str, ("backup", "--analyzer", config, "--out", file, *sealed))]) == 0
    restore = ("restore", file, "--config", new, *sealed)
    refused(capsys, *restore, "--yes")
    refused(capsys, *restore, "--yes", "--now", "2020-01-01")
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert main([*map(str, restore)]) == 1
    assert not list(new.parent.glob("*"))
    capsys.readouterr()
    assert main([*map(str, restore[:4])]) == 2  # its configuration names other folders
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    (data := desk.analyzer_dir / "data").joinpath(FILE_NAME).unlink()
    capsys.readouterr()
    assert main([*map(str, ("restore", file, "--config", config))]) == 1
    asked = capsys.readouterr().err
    assert asked.index(UNKNOWN_MAKER) < asked.index("type the date")
    assert not (data / FILE_NAME).exists()
    ahead = Reading(time.time() + 2 * DAY, 1.0, "boot")
    record = timekeeper._to_json(ClockStanding(ahead, ahead, Origin.FIRST), None, {})
    timekeeper._save(data / timekeeper.FILE_NAME, record)
    refused(capsys, "restore", file, "--config", config, *sealed, *agreed())
    assert not (data / FILE_NAME).exists()
    (data / timekeeper.FILE_NAME).unlink()
    monkeypatch.setattr("sys.stdin", io.StringIO(agreed()[2] + "\n"))
    assert main([*map(str, ("restore", file, "--config", config, *sealed))]) == 0


def test_keys_of_windows_that_were_given_up_are_neither_copied_nor_put_back(
    desk: Site, tmp_path: Path, capsys: Capture
) -> None:
    """Planted: a key that is gone stops the backup -> fails. Planted: keys of given-up windows put
    back -> fails.
    """
    config, folder = desk.analyzer_toml(), desk.analyzer_dir
    sealed = ("--passphrase-file", tmp_path / "pass")
    made = ("backup", "--analyzer", config, *sealed, "--with-window-keys", "--json", "--out")
    assert main([*map(str, (*made, tmp_path / "old"))]) == 0
    assert json.loads(capsys.readouterr().out)["window_keys"] == 39
    keys = [f"{key.config.key_id.hex}.key" for key in desk.published.analyzer_keys]
    add(folder / "data", GivenUp(desk.published.task_id.hex, 7, 1, "alice", "stolen", "to come"))
    for window in (8, 9):
        (folder / "keys" / keys[window]).unlink()
    assert main([*map(str, (*made, tmp_path / "new"))]) == 0
    assert json.loads(capsys.readouterr().out)["window_keys"] == 36
    (folder / "keys" / keys[7]).unlink()
    (folder / "data" / FILE_NAME).unlink()
    restore = ("restore", tmp_path / "old", "--config", config, *sealed, *agreed(), "--json")
    assert main([*map(str, restore)]) == 0
    assert json.loads(capsys.readouterr().out)["missing_keys"] == 0
    assert [(folder / "keys" / keys[window]).exists() for window in (7, 8, 9)] == [
        False,
        True,
        True,
    ]


def test_a_backup_can_not_claim_to_be_larger_than_it_is(
    desk: Site, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: sparse members read -> fails. Planted: each member bounded, and not their sum ->
    fails.
    """
    config, file, hole = desk.analyzer_toml(), tmp_path / "one", tmp_path / "hole"
    assert main([*map(str, ("backup", "--analyzer", config, "--out", file))]) == 0
    with tarfile.open(hole, "w") as tar:
        one = tarfile.TarInfo("backup.json")
        one.type = tarfile.GNUTYPE_SPARSE
        tar.addfile(one)
    assert "it is no backup" in refused(capsys, "restore", hole, "--config", config)
    with tarfile.open(file) as tar:
        largest = max(member.size for member in tar)
    monkeypatch.setattr("shoal.cli.operations.archive._LARGEST", largest)
    assert "it is no backup" in refused(capsys, "restore", file, "--config", config)


@for_each("point", ["restore.begin.renamed", "state.adopt", "restore.filled"])
def test_a_restore_that_was_cut_off_starts_nothing_and_is_done_again(
    tmp_path: Path, capsys: Capture, point: str
) -> None:
    """Before the files, in the store, and before its last step. Planted: no word that it has begun
    -> the service starts with windows that are not closed: fails. Planted: a store that a restore
    began taken for one of a service -> the second restore is refused, fails.
    """
    site, file = Site(tmp_path / point), tmp_path / f"{point}.backup"
    config = site.shuffler_toml()
    assert main(["backup", "--shuffler", str(config), "--out", str(file)]) == 0
    shutil.rmtree(site.data_dir)
    restore = [*map(str, ("restore", file, "--config", config, *agreed(), "--json"))]
    failpoints.arm(f"{point}=eio@1")
    try:
        assert main(restore) != 0
    finally:
        failpoints.arm("")
    capsys.readouterr()
    with pytest.raises(ShoalError, match="shoal restore"):
        DataFolder(site.data_dir).__enter__()
    assert main(restore) == 0
    assert json.loads(capsys.readouterr().out)["closed"] == 1
    with DataFolder(site.data_dir):
        pass
    assert main(restore) == 2
    assert stored(site.data_dir)[WindowId(site.published.task_id, 0)].state is WindowState.SHREDDED
