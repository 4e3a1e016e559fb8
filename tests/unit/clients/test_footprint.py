"""What a device loads: in a fresh process, because this one has loaded everything."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.broker import free_port
from tests.clients_world import make_world

SERVICES = {
    "typer",
    "click",
    "rich",
    "pydantic",
    "pydantic_core",
    "pydantic_settings",
    "structlog",
    "jinja2",
    "starlette",
    "uvicorn",
    "uvloop",
    "prometheus_client",
    "dp_accounting",
}
LATE = {"numpy", "grpc", "sqlite3"}  # loaded with the first report, not with the agent
MQTT = {"aiomqtt", "paho"}
SIMULATION = {"shoal.clients.fleet", "shoal.crypto.prepared", "shoal.analyzer", "shoal.shuffler"}
_REPORT = "import json, sys; print(json.dumps([name if name.startswith('shoal') else name.partition('.')[0] for name in sys.modules]))"
HOUR = 3_600

# A device that answers once, tries to send, and then waits.
_ANSWER = """
import asyncio, sys
from pathlib import Path

async def main(config):
    from shoal.clients import Agent, AgentConfig
    async with Agent(AgentConfig.load(Path(config))) as agent:
        outcome = await agent.report("visits", 3)
        assert outcome.state.value == "queued", outcome

asyncio.run(main(sys.argv[1]))
"""


def loaded(code: str, *arguments: str) -> set[str]:
    """Modules after running ``code``: ours by their whole names, others by their first."""
    command = [sys.executable, "-c", f"{code}\n{_REPORT}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


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
    names = loaded(code)
    assert "shoal" in names
    assert not names & (SERVICES | LATE | MQTT | SIMULATION)


def test_reporting_loads_numpy_grpc_and_sqlite_but_no_service_library() -> None:
    code = "import shoal.clients.agent, shoal.clients.grpc_transport, shoal.clients.outbox_sqlite\nfrom shoal.mechanisms import create"
    names = loaded(code)
    assert names >= LATE
    assert not names & (SERVICES | MQTT | SIMULATION)


def test_the_way_over_a_broker_loads_no_grpc_and_no_library_before_it_connects() -> None:
    """Planted: `import shoal.rpc.channel` in common/mqtt/settings.py; `import aiomqtt` at the top of common/mqtt/link.py -> fails."""
    names = loaded("import shoal.mqtt.link, shoal.mqtt.settings, shoal.mqtt.topics, shoal.clients.feeds.mqtt_feed")
    assert not names & (SERVICES | MQTT | SIMULATION | {"grpc", "numpy"})


def device(folder: Path, more: str = "") -> Path:
    """agent.toml of a device with one task, whose shuffler listens nowhere."""
    world = make_world(f"localhost:{free_port()}", start=int(time.time()) - HOUR // 2, length=HOUR)
    world.write(folder / "tasks")
    config = folder / "agent.toml"
    config.write_text(
        f'tasks = "tasks"\noutbox = "outbox.db"\n{more}\n[policy]\nauthorities = ["{world.authority.public.hex()}"]\nmax_epsilon0 = 4.0\n'
        f'min_batch_floor = 100\n[policy.purposes]\n"{world.task.purpose}" = "allowed"\n[send]\ndeadline_s = 1.0\n'
    )
    return config


def test_an_agent_that_sends_over_grpc_never_loads_mqtt(tmp_path: Path) -> None:
    """Planted: MqttTransport imported at the top of clients/agent.py -> the module's name fails."""
    names = loaded(_ANSWER, str(device(tmp_path)))
    assert names >= LATE
    assert not names & (SERVICES | MQTT | SIMULATION | {"shoal.clients.mqtt_transport"})
