"""``shoal doctor``: a sound deployment has nothing wrong, and what is wrong is named with what to
do, without a secret.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.main import main
from shoal.crypto import keyfiles
from shoal.crypto.signing import SigningKey
from shoal.crypto.tlscerts import Identity, issue, make_authority
from shoal.services import given_up
from shoal.services.settings import load_settings
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.closing import close_for_good
from shoal.shuffler.stores.configured import open_store
from tests.cases import for_each
from tests.worlds.operations import DAY, TOKEN, Site
from tests.worlds.services.shuffler import CA, SHUFFLER_NAME

Capture = pytest.CaptureFixture[str]
OTHER = make_authority("another authority")


def examine(capsys: Capture, *arguments: str | Path, status: int) -> list[dict[str, Any]]:
    """What ``shoal doctor --json`` finds."""
    code = main(["doctor", *map(str, arguments), "--json"])
    shown = capsys.readouterr()
    assert code == status, shown.out + shown.err
    assert not shown.err
    said = json.loads(shown.out)
    levels = [one["level"] for one in said["findings"]]
    assert {level: levels.count(level) for level in ("ok", "warn", "fail")} == {
        level: said[level] for level in ("ok", "warn", "fail")
    }
    findings: list[dict[str, Any]] = said["findings"]
    return findings


def found(findings: list[dict[str, Any]], level: str) -> set[tuple[str, str]]:
    return {(one["role"], one["check"]) for one in findings if one["level"] == level}


async def test_a_sound_deployment_that_runs_has_nothing_wrong(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both services, their link, a device, and the admin page behind its token. Planted: the token
    not sent; or shown to the proxy that the environment names -> the analyzer is not asked: warns,
    fails.
    """
    proxy = "http://127.0.0.1:1"
    monkeypatch.setattr(urllib.request, "getproxies", lambda: {"http": proxy, "https": proxy})
    monkeypatch.setattr(urllib.request, "proxy_bypass", lambda *_: False)
    site = Site(tmp_path)
    async with site.running():
        findings = await asyncio.to_thread(
            examine,
            capsys,
            "--shuffler",
            site.shuffler_toml(),
            "--analyzer",
            site.analyzer_toml(),
            "--agent",
            site.agent_toml(),
            status=0,
        )
    assert found(findings, "warn") | found(findings, "fail") == set()
    ok = found(findings, "ok")
    for check in ("clock", "disk", "permissions", "keys", "certificates", "ports", "store"):
        assert {("shuffler", check), ("analyzer", check)} <= ok, check
    assert {("shuffler", "link"), ("link", "certificates"), ("agent", "link")} <= ok
    text = json.dumps(findings)
    assert "is whole" in text
    assert "knows this shuffler and answers" in text
    assert not [secret for secret in site.secrets() if secret in text]


def put(folder: Path, name: str, made: Identity) -> None:
    (folder / f"{name}.pem").write_bytes(made.cert_pem)
    (folder / f"{name}.key").unlink()
    keyfiles.save_private_pem(folder / f"{name}.key", made.key_pem)


def front(ca: Identity = CA, san: str = "127.0.0.1", days: int = 90) -> Callable[[Site], None]:
    made = issue(ca, "front", [san], server=True, client=False, days=days)
    return lambda site: put(site.folder, "front", made)


def stranger(site: Site) -> None:
    made = issue(OTHER, "caller", [SHUFFLER_NAME], server=False, client=True, days=90)
    put(site.folder, "caller", made)


def damage(site: Site) -> None:
    (site.data_dir / "state.db").write_bytes(b"SQLite format 3\0" + os.urandom(8_000))


def no_keys(site: Site) -> None:
    for path in site.keys_dir.glob("*.key"):
        path.unlink()


def too_wide(site: Site) -> None:
    (site.folder / "signing.key").chmod(0o644)


def no_schedule(site: Site) -> None:
    next(site.tasks_dir.glob("*.keys")).unlink()


def foreign(site: Site) -> None:
    task = next(site.tasks_dir.glob("*.task"))
    task.write_bytes(task.read_bytes()[:-3] + b"abc")


def nearly_over(site: Site) -> None:
    site.ask(start_s=int(time.time()) - DAY - 60, count=4, name="brief")


def over(site: Site) -> None:
    site.ask(start_s=int(time.time()) - 9 * DAY, count=2, name="past")


def theirs(site: Site) -> None:
    site.publish(shuffler=SigningKey.generate())


def set_aside(site: Site) -> None:
    (site.data_dir / "state.db.damaged-1").touch()


FAIL, WARN, CERTIFICATES = "fail shuffler", "warn shuffler", "certificates"
CASES: list[tuple[str, Callable[[Site], None], str, str, str]] = [
    ("key others read", too_wide, FAIL, "permissions", "chmod 600"),
    ("data others read", lambda site: site.data_dir.chmod(0o755), FAIL, "permissions", "chmod 700"),
    ("no private keys", no_keys, FAIL, "keys", "private keys are missing"),
    ("no schedule", no_schedule, FAIL, "tasks", "cannot read"),
    ("forged task", foreign, FAIL, "tasks", "not served"),
    ("another shuffler's task", theirs, FAIL, "keys", "names another shuffler key"),
    ("task nearly over", nearly_over, WARN, "keys", "3 of 4 windows are left"),
    ("task over", over, WARN, "keys", "last window ended"),
    ("certificate ends", front(days=5), WARN, CERTIFICATES, "in 4 days"),
    ("another name", front(san="10.1.1.1"), FAIL, CERTIFICATES, "IP address mismatch"),
    ("another authority", front(OTHER), FAIL, CERTIFICATES, "issued by that authority"),
    (
        "client of a stranger",
        stranger,
        "fail link",
        CERTIFICATES,
        "client's certificate is refused",
    ),
    ("damaged store", damage, FAIL, "store", "is damaged"),
    ("store set aside", set_aside, WARN, "store", "set aside"),
    ("analyzer away", lambda _: None, FAIL, "link", "nobody listens"),
    ("nobody runs", lambda _: None, "ok shuffler", "ports", "is free"),
]


@for_each("name, spoil, where, check, words", CASES, ids=[case[0] for case in CASES])
def test_what_is_wrong_is_named_with_what_to_do(
    name: str,
    spoil: Callable[[Site], None],
    where: str,
    check: str,
    words: str,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    """Planted, each seen to fail its case: rights of files not looked at; keys looked for by any
    name; ``refused`` left out; a task's time not looked at; authorities not given to the handshake;
    ``check_hostname`` off; damage taken for a file that is busy.
    """
    site = Site(tmp_path)
    spoil(site)
    findings = examine(
        capsys, "--shuffler", site.shuffler_toml(), "--analyzer", site.analyzer_toml(), status=1
    )
    told = [(f"{one['level']} {one['role']}", one["check"], one["message"]) for one in findings]
    assert [one for one in told if one[:2] == (where, check) and words in one[2]], told
    text = json.dumps(findings)
    assert not [secret for secret in (*site.secrets(), TOKEN) if secret in text]


def test_windows_that_were_given_up_are_named_with_what_is_left_to_do(
    tmp_path: Path, capsys: Capture
) -> None:
    """On one side, on both, past their retention, and a torn file. Planted: windows past their
    retention warned of for ever -> fails. Planted: the other service's lines not looked at ->
    fails.
    """
    site = Site(tmp_path)
    past = site.ask(start_s=int(time.time()) - 90 * DAY, count=2, name="past")
    tomls = ("--shuffler", site.shuffler_toml(), "--analyzer", site.analyzer_toml())
    both = site.data_dir, site.analyzer_dir / "data"
    both[1].mkdir(mode=0o700, exist_ok=True)

    def tell(folder: Path, task: str, window: int) -> None:
        line = given_up.GivenUp(task, window, 1_767_225_600, "ada", "its key is lost", "open")
        assert given_up.add(folder, line) is None

    def told() -> list[tuple[str, str]]:
        findings = examine(capsys, *tomls, status=1)  # nobody runs
        return [
            (f"{one['level']} {one['role']}", one["message"])
            for one in findings
            if one["check"] == "windows"
        ]

    assert told() == [("ok shuffler", "none was given up"), ("ok analyzer", "none was given up")]
    tell(both[0], past.task_id.hex, 1)
    (level, words), (there, _) = told()
    assert (level, there) == ("ok shuffler", "ok analyzer")
    assert "1 window given up here (past 1); nothing is left to do" in words
    tell(both[0], site.published.task_id.hex, 2)
    (level, words), _ = told()
    assert level == "warn shuffler"
    assert f"1 window given up here ({site.published.task.name} 2), and retention" in words
    assert "shoal analyzer window abandon" in words
    tell(both[1], site.published.task_id.hex, 2)
    assert [level for level, _ in told()] == ["ok shuffler", "ok analyzer"]
    (both[1] / given_up.FILE_NAME).write_text("torn")
    assert [level for level, _ in told()] == ["warn shuffler", "fail analyzer"]


async def test_a_key_that_was_deleted_with_its_window_is_not_missed(
    tmp_path: Path, capsys: Capture
) -> None:
    """Windows that were full, released or given up before their time was over have no key, and so
    it must be. Planted: releases, given-up windows or the shuffler's states not looked at -> the
    sound deployment fails, each seen.
    """
    site = Site(tmp_path)
    one = site.published
    task_id, keys = one.task_id, [key.config.key_id.hex for key in one.analyzer_keys]
    data = site.analyzer_dir / "data"
    data.mkdir(mode=0o700)
    with closing(AnalyzerStore(data / FILE_NAME)) as store, store.transaction():
        outcome = WindowOutcome(b"", bytes(64), b"", bytes(64), None, Spending(task_id, 0.1, 1e-6))
        store.write_release(task_id, 0, outcome)
    for folder in (data, site.data_dir):
        given_up.add(folder, given_up.GivenUp(task_id.hex, 1, 1, "me", "its key", "open"))
    for key in keys[:2]:
        (site.analyzer_dir / "keys" / f"{key}.key").unlink()
    config = load_settings(ShufflerConfig, site.shuffler_toml())
    storage = await open_store(config)
    windows = [WindowId(task_id, number) for number in range(40) if number != 1]
    await close_for_good(storage.reports, one.served, windows)
    await storage.close()
    hop = next(site.keys_dir.glob("*.key"))
    hop.unlink()
    arguments = "--shuffler", site.shuffler_toml(), "--analyzer", site.analyzer_toml()
    findings = await asyncio.to_thread(examine, capsys, *arguments, status=1)
    assert [one for one in findings if one["check"] == "keys" and one["level"] == "fail"] == []
    (site.analyzer_dir / "keys" / f"{keys[2]}.key").chmod(0o644)
    findings = await asyncio.to_thread(examine, capsys, *arguments, status=1)
    (missing,) = (f for f in findings if f["check"] == "keys" and f["level"] == "fail")
    assert "1 of 38 private keys" in missing["message"]
    assert "chmod 600" in missing["message"]


def test_ports_of_others_names_that_are_not_allowed_and_files_that_are_none(
    tmp_path: Path, capsys: Capture
) -> None:
    """Planted: a port that is taken counted as the service's own -> fails. Planted: the analyzer's
    list of names not looked at -> fails.
    """
    site = Site(tmp_path)
    with socket.create_server(("127.0.0.1", site.ports[0])):
        findings = examine(
            capsys,
            "--shuffler",
            site.shuffler_toml(),
            "--analyzer",
            site.analyzer_toml("somebody.else"),
            status=1,
        )
    failed = {(one["check"], one["message"]) for one in findings if one["level"] == "fail"}
    assert any(check == "ports" and "another process" in text for check, text in failed)
    assert any("allowed_shufflers: add one" in text for _, text in failed)
    mistyped = tmp_path / "shuffler.toml"
    mistyped.write_text("lisen = 1\n")
    (only,) = examine(capsys, "--shuffler", mistyped, status=1)
    assert only["check"] == "config"
    assert "lisen" in only["message"]
    assert main(["doctor"]) == 2
    assert "--shuffler, --analyzer or --agent" in capsys.readouterr().err


def test_lines_for_people_and_a_broker_that_is_away(tmp_path: Path, capsys: Capture) -> None:
    """Planted: the broker not dialled -> fails. Planted: exit status 0 with failures -> fails."""
    site = Site(tmp_path)
    nobody = f'[mqtt]\nbroker = "127.0.0.1:{site.ports[3]}"\ninsecure = true\nuplink = true\n'
    assert main(["doctor", "--agent", str(site.agent_toml(nobody))]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("fail  agent    broker ") for line in lines)
    assert lines[-1].startswith("1 fail, 0 warn, ")
