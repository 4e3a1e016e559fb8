"""The analyzer as an operator meets it: a process with a configuration file, an admin port, signals
and an exit status.
"""

from __future__ import annotations

import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from shoal.analyzer.service import AnalyzerService
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.main import main
from shoal.rpc.channel import call
from shoal.services.process import DataFolder
from tests.worlds.ports import free_port
from tests.worlds.services.analyzer import World, make_task
from tests.worlds.services.analyzer_process import refused_start, serving, wait_gone

# The real clock: windows that were over long ago.
PAST = make_task()
WORLD = World(
    replace(
        PAST, windows=replace(PAST.windows, start_s=1_700_000_000), retention_s=100 * 366 * 86_400
    )
)
BATCH = WORLD.batch(WORLD.seal_cells([i % 7 for i in range(50)]))


def get(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}", timeout=30) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_a_service_from_start_to_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Start, health, admin pages, a batch, status and results commands beside it, a clean stop
    without anything left running.
    """
    admin = f"127.0.0.1:{free_port()}"
    with serving(WORLD, tmp_path, admin_listen=f'"{admin}"') as analyzer:
        caller = analyzer.caller()
        health = await call(
            caller.channel,
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest().SerializeToString(),
            30,
        )
        assert (
            health_pb2.HealthCheckResponse.FromString(health).status
            == health_pb2.HealthCheckResponse.SERVING
        )
        await caller.done(BATCH)
        await caller.channel.close()
        assert get(f"{admin}/healthz") == (200, "ok\n")
        assert get(f"{admin}/readyz") == (200, "ready\n")
        _, metrics = get(f"{admin}/metrics")
        assert 'shoal_analyzer_windows_total{outcome="released"} 1.0' in metrics
        assert "shoal_analyzer_reports_total 50.0" in metrics
        status = json.loads(get(f"{admin}/status")[1])
        (task,) = status["tasks"]
        assert (status["ready"], task["released"], task["windows"], task["ended"][0]["n"]) == (
            None,
            1,
            2,
            50,
        )
        config = str(tmp_path / "analyzer.toml")
        assert main(["analyzer", "status", "--config", config, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {**status, "ready": True}
        assert main(["analyzer", "status", "--admin", admin]) == 0
        assert "visits, window 0: 50 reports" in capsys.readouterr().out
        assert main(["results", "list", "--config", config, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["n"] == 50
        workers = analyzer.workers()
        assert workers
        assert analyzer.end(signal.SIGTERM) == 0
        assert analyzer.events[-1]["event"] == "stopped"
    wait_gone(workers)
    assert main(["analyzer", "status", "--admin", admin]) == 1
    assert capsys.readouterr().err.count("\n") == 1


async def test_a_release_is_the_same_after_a_restart(tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):
        with serving(WORLD, tmp_path) as analyzer:
            caller = analyzer.caller()
            ack = await caller.done(BATCH)
            await caller.channel.close()
            assert analyzer.end(signal.SIGTERM) == 0
        store = AnalyzerStore(tmp_path / "data" / FILE_NAME, read_only=True)
        seen.add((store.releases()[0].release, ack.SerializeToString()))
        store.close()
        # write_config puts the key back for the second start; the real one is gone
        (tmp_path / "keys" / f"{WORLD.keys[0].config.key_id.hex}.key").unlink(missing_ok=True)
    assert len(seen) == 1


async def test_tasks_are_read_again_on_sighup(tmp_path: Path) -> None:
    other = World(
        replace(WORLD.task, name="second", salt=bytes(16)),
        WORLD.authority,
        WORLD.shuffler,
        WORLD.analyzer,
    )
    with serving(WORLD, tmp_path, reload_s="86400") as analyzer:
        other.write(tmp_path)
        analyzer.process.send_signal(signal.SIGHUP)
        assert analyzer.until("tasks read")["tasks"] == 2
        assert analyzer.end(signal.SIGINT) == 0


async def test_a_task_put_into_the_folder_is_served_without_a_signal(tmp_path: Path) -> None:
    """Also after a file that is none: it is told, the service goes on, and takes what is good once
    the folder is in order.

    Planted: the folder read on SIGHUP alone -> it waits in vain; a bad file that raises out of the
    look -> the process ends. Both fail.
    """
    other = World(
        replace(WORLD.task, name="second", salt=bytes(16)),
        WORLD.authority,
        WORLD.shuffler,
        WORLD.analyzer,
    )
    with serving(WORLD, tmp_path, reload_s="1") as analyzer:
        bad = tmp_path / "tasks" / "bad.task"
        bad.write_bytes(b"no task")
        assert "bad.task" in analyzer.until("a task is not served")["error"]
        bad.unlink()
        other.write(tmp_path)
        while analyzer.until("tasks read")["tasks"] != 2:
            continue
        assert analyzer.end(signal.SIGTERM) == 0


async def test_logs_hold_counts_and_no_more(tmp_path: Path) -> None:
    """Neither keys nor rows nor addresses nor labels; the log itself is there."""
    with serving(WORLD, tmp_path, log_level='"debug"') as analyzer:
        caller = analyzer.caller()
        await caller.done(BATCH)
        await caller.channel.close()
        analyzer.end(signal.SIGTERM)
    text = json.dumps(analyzer.events)
    assert "window released" in text
    for secret in (
        WORLD.keys[0].to_raw_secret().hex(),
        BATCH.rows[0].hex(),
        "127.0.0.1",
        "3-4",
        str(tmp_path),
    ):
        assert secret not in text


def private(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    return folder


CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

# What is wrong in a folder that is otherwise complete, and the exit status.
DAMAGE: dict[str, tuple[Callable[[Path], object], int]] = {
    "signing key missing": (lambda folder: (folder / "signing.key").unlink(), 2),
    "signing key readable by others": (lambda folder: (folder / "signing.key").chmod(0o644), 2),
    "signing key is none": (
        lambda folder: (folder / "signing.key").write_bytes(b"-----BEGIN X-----"),
        2,
    ),
    "TLS key readable by others": (lambda folder: (folder / "tls.key").chmod(0o640), 2),
    "TLS certificate missing": (lambda folder: (folder / "tls.crt").unlink(), 2),
    "TLS certificate is none": (lambda folder: (folder / "tls.crt").write_text(CERTIFICATE), 2),
    "tasks folder missing": (lambda folder: (folder / "tasks").rename(folder / "elsewhere"), 2),
    "keys folder missing": (lambda folder: (folder / "keys").rename(folder / "elsewhere"), 2),
    "data folder open to others": (lambda folder: private(folder / "data").chmod(0o755), 2),
}


@pytest.fixture
def no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that would start in this process fails the test, instead of serving for ever."""

    async def started(self: AnalyzerService) -> tuple[int, int]:
        raise AssertionError("it started")

    monkeypatch.setattr(AnalyzerService, "start", started)


@pytest.mark.usefixtures("no_start")
@pytest.mark.parametrize("how", DAMAGE)
def test_what_keeps_it_from_starting_is_one_line(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, through the command's entry point; nothing listens and no worker is left."""
    config = WORLD.write_config(tmp_path)
    damage, status = DAMAGE[how]
    damage(tmp_path)
    assert main(["analyzer", "serve", "--config", str(config)]) == status
    error = capsys.readouterr().err
    assert error.startswith("shoal: ")
    lines = [line for line in error.splitlines() if not line.startswith("{")]
    assert len(lines) == 1
    assert "bug" not in error


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    """Planted: SO_REUSEPORT left on -> a second service would take half of the calls, and this
    fails.
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f'"127.0.0.1:{taken.getsockname()[1]}"'
        for key in ("listen", "admin_listen"):
            status, error = refused_start(WORLD.write_config(tmp_path, **{key: address}))
            assert status == 2
            assert "another process" in error


@pytest.mark.usefixtures("no_start")
def test_one_data_folder_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = WORLD.write_config(tmp_path)
    with DataFolder(tmp_path / "data"):
        assert main(["analyzer", "serve", "--config", str(config)]) == 2
    assert "another process uses it" in capsys.readouterr().err
