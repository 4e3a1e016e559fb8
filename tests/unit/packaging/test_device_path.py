"""A device installs the base alone: its code must import, run and report without a single package of the service extras."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEVICE_MODULES = (
    "shoal.clients.agent",
    "shoal.clients.config",
    "shoal.clients.grpc_transport",
    "shoal.clients.outbox_sqlite",
    "shoal.cli.agent",
    "shoal.cli.main",
    "shoal.crypto.trust",
    "shoal.mechanisms.registry",
    "shoal.accounting.accountant",
)


def service_modules() -> list[str]:
    """Top-level import names of what [server] and [accounting] install, read from the installed packages."""
    extras = PROJECT["optional-dependencies"]
    names = [line.split(";")[0].split(">")[0].split("=")[0].strip() for extra in ("server", "accounting") for line in extras[extra]]
    found = set()
    for name in names:
        for file in distribution(name).files or ():
            top = file.parts[0].removesuffix(".py")
            if top.isidentifier() and (file.name == "__init__.py" or len(file.parts) == 1):
                found.add(top)
    return sorted(found - {"google"})


PROGRAM = """
import importlib, json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in set({absent!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
for name in {modules!r}:
    importlib.import_module(name)
{then}
"""


def device(then: str, modules: tuple[str, ...] = DEVICE_MODULES) -> subprocess.CompletedProcess[str]:
    """Run in a Python where the packages of the service extras can't be found."""
    program = PROGRAM.format(absent=service_modules(), modules=modules, then=then)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_the_extras_are_known() -> None:
    assert {"typer", "rich", "pydantic", "pydantic_settings", "starlette", "uvicorn", "jinja2", "prometheus_client"} <= set(
        service_modules()
    )
    assert not {"grpc", "numpy", "cryptography", "google"} & set(service_modules())


def test_a_device_imports_what_it_needs() -> None:
    """Planted: ``from shoal.settings import ...`` in clients/config.py -> this fails."""
    done = device("")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["shoal.settings", "shoal.rpc.admin", "shoal.cli.output"])
def test_the_absence_is_real(module: str) -> None:
    """The control: service modules do not import there."""
    done = device("", (module,))
    assert done.returncode != 0
    assert "ModuleNotFoundError" in done.stderr


def test_the_agents_command_runs() -> None:
    done = device("from shoal.cli.main import main\nsys.exit(main(['agent', '--help']))")
    assert done.returncode == 0, done.stderr
    assert "usage: shoal agent" in done.stdout


def test_other_commands_say_what_to_install() -> None:
    done = device("from shoal.cli.main import main\nsys.exit(main(['demo']))")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'shoal[server]'" in done.stderr


def test_importing_shoal_loads_next_to_nothing() -> None:
    """Every package __init__ is light: no numpy, no grpc, no cryptography before somebody asks for them."""
    packages = (
        "shoal",
        "shoal.clients",
        "shoal.mechanisms",
        "shoal.accounting",
        "shoal.crypto",
        "shoal.shuffler",
        "shoal.analyzer",
        "shoal.cli",
    )
    done = device("print(json.dumps(sorted(sys.modules)))", packages)
    assert done.returncode == 0, done.stderr
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"numpy", "grpc", "cryptography", "google", "asyncio", "sqlite3"}
