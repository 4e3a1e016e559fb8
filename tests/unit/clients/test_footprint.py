"""What a device loads: in a fresh process, because this one has loaded everything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.worlds.devices.clients import make_world
from tests.worlds.mqtt.broker import Broker
from tests.worlds.ports import free_port

SERVICES = {
    "typer",
    "click",
    "rich",
    "pydantic",
    "pydantic_core",
    "pydantic_settings",
    "tomlkit",
    "structlog",
    "jinja2",
    "starlette",
    "uvicorn",
    "uvloop",
    "prometheus_client",
    "dp_accounting",
}
LATE = {"grpc"}  # loaded with the first report that is sent
FILE = {"sqlite3"}  # loaded with the agent, which opens its file whatever it does
MQTT = {"paho"}
# In an agent's process: neither arrays nor the accountant. What a task may be memoized for is a
# rule without arithmetic.
HEAVY = {
    "numpy",
    "mpmath",
    "importlib.resources",
    "tempfile",
    "zipfile",
    "email",
    "cryptography.x509",
}
TLS = {"ssl", "_ssl", "hashlib", "hmac", "_hashlib"}  # of Python: a second OpenSSL
COMPRESSION = {"shutil", "bz2", "lzma"}  # which argparse loads to ask how wide the terminal is
ACCOUNTING = {
    "shoal.accounting",
    "shoal.accounting.composition",
    "shoal.accounting.composition.memoized",
}
SIMULATION = {
    "shoal.clients.fleet",
    "shoal.crypto.prepared",
    "shoal.mechanisms.parts.many_devices",
    "shoal.analyzer",
    "shoal.shuffler",
}
_REPORT = (
    "import json, sys; print(json.dumps([part for name in sys.modules for part in (name, "
    "name.partition('.')[0])]))"
)
HOUR = 3_600

# `shoal agent run` up to its first attempt to send, after which it waits for the next window.
_RUN = """
import asyncio, sqlite3, sys
from pathlib import Path

async def main(config):
    from shoal.clients.service.runner import run
    stop = asyncio.Event()
    running = asyncio.create_task(run(Path(config), stop))
    while not running.done() and not attempts(Path(config).with_name("outbox.db")):
        await asyncio.sleep(0.02)
    stop.set()
    await running

def attempts(outbox):
    try:
        with sqlite3.connect(f"file:{outbox}?mode=ro", uri=True) as db:
            rows = db.execute("SELECT attempts, kind FROM report")
            return [row for row in rows if row[0] and row[1] is not None]
    except sqlite3.Error:
        return []

asyncio.run(main(sys.argv[1]))
"""

_COMMAND = """
import sys
from shoal.cli.main import main
assert main(["agent", "run", "--once", "--config", sys.argv[1]]) == 0
"""

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
    """Modules after running ``code``: their whole names, and their first."""
    command = [sys.executable, "-c", f"{code}\n{_REPORT}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@for_each(
    "code, allowed",
    [
        ("import shoal.clients", set()),
        ("from shoal.clients import AgentConfig, Policy", set()),
        ("from shoal.clients import Agent, AgentConfig, Policy", FILE),
        (
            "from shoal.cli.main import main\ntry: main(['agent', 'forget'])\nexcept SystemExit: "
            "pass",
            set(),
        ),
        (
            "from shoal.cli.main import main\ntry: main(['agent', 'report', '--config', "
            "'none'])\nexcept SystemExit: pass",
            set(),
        ),
    ],
)
def test_a_device_loads_neither_service_libraries_nor_what_it_does_not_need_yet(
    code: str, allowed: set[str]
) -> None:
    """Planted: `np.pi` at the end of clients/core.py -> fails."""
    names = loaded(code)
    assert "shoal" in names
    assert names & (SERVICES | HEAVY | LATE | FILE | MQTT | SIMULATION) <= allowed


def test_the_way_over_a_broker_loads_no_grpc_and_no_library_before_it_connects() -> None:
    """Planted: `import shoal.rpc.channel` in common/mqtt/settings.py; `import paho.mqtt.client` at
    the top of common/mqtt/link.py -> fails.
    """
    names = loaded(
        "import shoal.mqtt.link, shoal.mqtt.settings, shoal.mqtt.topics, "
        "shoal.clients.feeds.mqtt_feed"
    )
    assert names & (SERVICES | HEAVY | MQTT | SIMULATION | {"grpc"}) == set()


def test_no_module_of_a_device_loads_numpy_when_it_is_imported() -> None:
    """All modules that a device may load, but those of rounds, whose vectors are arrays.

    Planted: ``ZERO = np.uint64(0)`` in common/entropy.py; ``import numpy`` in
    mechanisms/parts/sketches.py; ``np.pi`` at the end of common/arrays.py -> each fails.
    """
    root = Path(__file__).resolve().parents[3]
    names = [
        ".".join(["shoal", *path.relative_to(root).with_suffix("").parts])
        for folder in ("common", "crypto", "mechanisms", "accounting", "clients")
        for path in (root / folder).rglob("*.py")
    ]
    assert len(names) > 200
    modules = [
        name.replace("shoal.common.", "shoal.").removesuffix(".__init__")
        for name in names
        if not re.match(r"shoal\.(crypto\.secagg|clients\.rounds)\.|.*\.__main__$", name)
    ]
    assert "numpy" not in loaded("".join(f"import {name}\n" for name in modules))


def test_the_stand_in_is_numpy_for_every_thread_that_asks_first() -> None:
    """Eight threads at once, in a process that has not loaded numpy. Planted: the standard
    library's LazyLoader in its place (Python 3.11.7) -> seven threads find numpy half loaded.
    """
    names = loaded(
        "import threading\n"
        "from shoal.arrays import np\n"
        "ready, sums = threading.Barrier(8), []\n"
        "def add(): ready.wait(); sums.append(int(np.arange(4).sum()))\n"
        "threads = [threading.Thread(target=add) for _ in range(8)]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "import numpy\n"
        "assert sums == [6] * 8, sums\n"
        "assert np.ndarray is numpy.ndarray and np.linalg is numpy.linalg\n"
    )
    assert "numpy" in names


def device(folder: Path, tables: str = "", memoized: bool = False) -> Path:
    """agent.toml of a device with one task, a source for it, and a shuffler that listens
    nowhere.
    """
    world = make_world(f"localhost:{free_port()}", start=int(time.time()) - HOUR // 2, length=HOUR)
    if memoized:
        world.task = replace(world.task, memoized=True)
        world.sign()
    world.write(folder / "tasks")
    (folder / "visits.json").write_text("3")
    config = folder / "agent.toml"
    config.write_text(
        'tasks = "tasks"\noutbox = "outbox.db"\n[policy]\nauthorities = '
        f'["{world.authority.public.hex()}"]\nmax_epsilon0 = 4.0\n'
        f'min_batch_floor = 100\n[policy.purposes]\n"{world.task.purpose}" = '
        '"allowed"\n[send]\ndeadline_s = 1.0\ngap_s = 0.0\n'
        '[measure]\nmean_s = 0.001\n[sources.visits]\nkind = "json"\nfile = '
        f'"visits.json"\n{tables}'
    )
    return config


def over(broker: Broker, folder: Path) -> str:
    """[mqtt] for reports through that broker. Nobody answers there."""
    (folder / "broker.pem").write_bytes(broker.settings.ca or b"")
    protocol = broker.settings.protocol
    return (
        f'[mqtt]\nbroker = "127.0.0.1:{broker.port}"\nca = "broker.pem"\nprotocol = '
        f'"{protocol}"\nuplink = true\n'
    )


@for_each("memoized", [False, True], ids=["plain", "memoized"])
@for_each("code", [_ANSWER, _RUN], ids=["report", "run"])
def test_an_agent_that_sends_over_grpc_stays_small(
    code: str, memoized: bool, tmp_path: Path
) -> None:
    """After a report, its certificate and an attempt to send it: no arrays, no accountant, no MQTT.

    Planted: `import shoal.clients.transports.mqtt_transport` at the top of clients/agent.py;
    `np.pi` at the end of mechanisms/parts/cells.py; ``randomize`` for ``randomize_one`` in
    ``core.draw``; no child for the certificate -> each fails.
    """
    names = loaded(code, str(device(tmp_path, memoized=memoized)))
    assert names >= LATE | FILE
    assert (
        names & (SERVICES | HEAVY | MQTT | SIMULATION | {"shoal.clients.transports.mqtt_transport"})
        == set()
    )
    assert {name for name in names if name.startswith("shoal.accounting")} <= ACCOUNTING


def test_the_command_loads_no_second_openssl(tmp_path: Path) -> None:
    """Nor what the library's agent does without. Planted: ``import asyncio`` at the top of
    cli/main.py; RawDescriptionHelpFormatter without a width in cli/agent/help.py -> each fails.
    """
    names = loaded(_COMMAND, str(device(tmp_path)))
    assert names >= LATE | FILE
    assert names & (SERVICES | HEAVY | TLS | COMPRESSION | MQTT | SIMULATION) == set()
    assert {name for name in names if name.startswith("shoal.accounting")} <= ACCOUNTING


@pytest.mark.parametrize("code", [_ANSWER, _RUN], ids=["report", "run"])
def test_an_agent_that_sends_over_a_broker_never_loads_grpc(code: str, tmp_path: Path) -> None:
    """Nor any of gRPC's threads. Planted: `import shoal.clients.transports.grpc_transport` at the
    top of clients/agent.py -> fails.
    """
    with Broker() as broker:
        names = loaded(code, str(device(tmp_path, over(broker, tmp_path))))
    assert names >= {"paho", "sqlite3", "shoal.clients.transports.mqtt_transport"}
    assert (
        names
        & (SERVICES | SIMULATION | {"numpy", "grpc", "shoal.clients.transports.grpc_transport"})
        == set()
    )
    assert {name for name in names if name.startswith("shoal.accounting")} <= ACCOUNTING
