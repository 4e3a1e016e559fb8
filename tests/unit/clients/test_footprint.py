"""What a device loads: in a fresh process, because this one has loaded everything."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SERVICES = {
    "typer",
    "click",
    "rich",
    "pydantic",
    "pydantic_settings",
    "structlog",
    "jinja2",
    "starlette",
    "uvicorn",
    "prometheus_client",
    "dp_accounting",
}
LATE = {"numpy", "grpc", "sqlite3"}  # loaded with the first report, not with the agent
_REPORT = "import json, sys, time; print(json.dumps([sorted({name.partition('.')[0] for name in sys.modules}), time.process_time()]))"


def loaded(code: str) -> tuple[set[str], float]:
    """Top-level modules after running ``code``, and the process's CPU seconds."""
    done = subprocess.run([sys.executable, "-c", f"{code}\n{_REPORT}"], capture_output=True, text=True, check=True)
    names, seconds = json.loads(done.stdout.splitlines()[-1])
    return set(names), seconds


@pytest.mark.parametrize(
    "code",
    [
        "import shoal.clients",
        "from shoal.clients import Agent, AgentConfig, Policy",
        "from shoal.cli.main import main\ntry: main(['agent', '--help'])\nexcept SystemExit: pass",
        "from shoal.cli.main import main\ntry: main(['agent', 'report', '--help'])\nexcept SystemExit: pass",
    ],
)
def test_a_device_loads_neither_service_libraries_nor_what_it_does_not_need_yet(code: str) -> None:
    """Planted: `import numpy` at the top of clients/core.py -> fails."""
    names, _ = loaded(code)
    assert "shoal" in names
    assert not names & (SERVICES | LATE)


def test_reporting_loads_numpy_grpc_and_sqlite_but_no_service_library() -> None:
    code = "import shoal.clients.agent, shoal.clients.grpc_transport, shoal.clients.outbox_sqlite\nfrom shoal.mechanisms import create"
    names, _ = loaded(code)
    assert names >= LATE
    assert not names & SERVICES
