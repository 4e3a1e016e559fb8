"""A device installs the base alone: its code must import, run and report without a single package
of the service extras.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

import pytest

from shoal.cli.extras import PACKAGES
from tests.worlds.pytorch import needs_pytorch

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMMAND_LINE = (
    "pydantic",
    "rich",
    "tomlkit",
    "typer",
)  # in a base install, and never loaded by an agent
DEVICE_MODULES = (
    "shoal.clients.agent",
    "shoal.clients.settings.config",
    "shoal.clients.transports.grpc_transport",
    "shoal.clients.memory.outbox_sqlite",
    "shoal.cli.agent.command",
    "shoal.cli.main",
    "shoal.crypto.trust",
    "shoal.mechanisms.registry",
    "shoal.accounting.accountant",
)


def service_modules(extras: Sequence[str] = ("server", "accounting")) -> list[str]:
    """Top-level import names of what these extras install, read from the installed packages."""
    lines = [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    names = [line.split(";")[0].split(">")[0].split("=")[0].strip() for line in lines]
    found = set()
    for name in names:
        for file in distribution(name).files or ():
            top = file.parts[0].removesuffix(".py")
            if top.isidentifier() and (file.name == "__init__.py" or len(file.parts) == 1):
                found.add(top)
    return sorted(found - {"google", "pydantic"})  # protobuf's and typer's too


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


def device(
    then: str, modules: tuple[str, ...] = DEVICE_MODULES, also: tuple[str, ...] = COMMAND_LINE
) -> subprocess.CompletedProcess[str]:
    """Run in a Python where neither the packages of the service extras nor those of ``also`` can be
    found.
    """
    program = PROGRAM.format(absent=[*service_modules(), *also], modules=modules, then=then)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


def test_the_extras_are_known() -> None:
    assert {"pydantic_settings", "starlette", "uvicorn", "jinja2", "prometheus_client"} <= set(
        service_modules()
    )
    assert not {"grpc", "numpy", "cryptography", "google", *COMMAND_LINE} & set(service_modules())


def test_a_device_imports_what_it_needs() -> None:
    """Planted: ``from shoal.services.settings import ...`` in clients/core.py -> this fails."""
    done = device("")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "module", ["shoal.services.settings", "shoal.rpc.admin", "shoal.cli.output"]
)
def test_the_absence_is_real(module: str) -> None:
    """The control: service modules do not import there."""
    done = device("", (module,))
    assert done.returncode != 0
    assert "ModuleNotFoundError" in done.stderr


def test_the_agents_command_runs() -> None:
    done = device("from shoal.cli.main import main\nsys.exit(main(['agent', '--help']))")
    assert done.returncode == 0, done.stderr
    assert "usage: shoal agent" in done.stdout


BASE_COMMANDS = (
    ["--help"],
    ["--version"],
    ["epsilon", "--mechanism", "rr", "--epsilon0", "2", "--n", "1000", "--delta", "1e-6", "--json"],
    ["plan", "yes_no", "--n", "2000", "--epsilon", "0.5", "--json"],
    ["keys", "--help"],
    ["results", "--help"],
    ["shuffler", "serve", "--help"],
)


# What a base install brings, loaded once: then each command has a process of its own, forked.
_BASE_PACKAGES = ("numpy", "cryptography.x509", "pydantic", "rich.console", "tomlkit", "typer")
_EACH_COMMAND = """
import gc, os, tempfile
answers = []
gc.collect()
gc.freeze()
for arguments in {commands!r}:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            status = 1
            try:
                from shoal.cli.main import main
                status = main(arguments)
            except SystemExit as ended:
                status = ended.code
            except BaseException:
                sys.excepthook(*sys.exc_info())
            sys.stdout.flush()
            sys.stderr.flush()
            # what else Python does at its end takes as long as a short command
            os._exit(status or 0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = [(file.seek(0), file.read().decode())[1] for file in (out, err)]
        answers.append([status, *texts])
print(json.dumps(answers))
"""


def base_install(commands: Sequence[list[str]]) -> list[tuple[int, str, str]]:
    """Of each of these commands of ``shoal``, without the packages of the service extras: exit
    status, what it printed, what it complained of.
    """
    done = device(_EACH_COMMAND.format(commands=list(commands)), _BASE_PACKAGES, ())
    assert done.returncode == 0, done.stderr
    return [(status, out, err) for status, out, err in json.loads(done.stdout)]


def test_a_base_install_has_the_commands_that_need_no_service() -> None:
    """Planted: ``from jinja2 import ...`` at the top of common/pictures/templates.py -> these
    fail.
    """
    answers = base_install(BASE_COMMANDS)
    for arguments, (status, out, err) in zip(BASE_COMMANDS, answers, strict=True):
        assert (status, err) == (0, ""), arguments
        assert out, arguments


def test_a_base_install_has_the_analysts_python() -> None:
    """Without pandas, Polars, Arrow and jinja2 too; a picture says what to install. Planted:
    ``from shoal.analyzer.config import ...`` in study/releases.py -> fails.
    """
    done = device(
        "sys.modules.update(dict.fromkeys(('pandas', 'polars', 'pyarrow')))\n"
        "import shoal\n"
        "yes = shoal.design(epsilon0=4)\n"
        "estimates = yes.estimate(yes.randomize([True, False] * 50))\n"
        "yes.simulate(n=100, hostile=0.1, runs=2)\n"
        "yes.certify(100), shoal.clip_update([3.0, 4.0], 1)\n"
        "shoal.design_vector, shoal.read_release\n"
        "shoal.plan(n=100, epsilon=1, mechanisms=['binary_rr'])\n"
        "assert estimates.to_frame() is estimates\n"
        "try:\n    estimates.plot()\nexcept shoal.errors.ShoalError as error:\n    print(error)",
        ("shoal",),
        (),
    )
    assert done.returncode == 0, done.stderr
    assert "[plot]" in done.stdout


EXTRA_COMMANDS = (
    (["demo"], "server"),
    (["shuffler", "serve", "--config", "none.toml"], "server"),
    (["analyzer", "serve", "--config", "none.toml"], "server"),
    (["shuffler", "status", "--config", "none.toml"], "server"),
    (["results", "export", "--format", "html", "--out", "r.html", "--data", "none"], "plot"),
    (
        [
            "epsilon",
            "--mechanism",
            "rr",
            "--epsilon0",
            "2",
            "--n",
            "1000",
            "--delta",
            "1e-6",
            "--plot",
            "none.svg",
        ],
        "plot",
    ),
    (
        [
            "plan",
            "yes_no",
            "--n",
            "2000",
            "--epsilon",
            "0.5",
            "--max-epsilon0",
            "1e-30",
            "--plot",
            "none.svg",
        ],
        "plot",
    ),
)


def test_other_commands_say_what_to_install() -> None:
    """Before any work. Planted: no ``need`` in ``check_plot`` -> a plan is computed first, and that
    there is none is said: fails.
    """
    answers = base_install([arguments for arguments, _ in EXTRA_COMMANDS])
    for (arguments, extra), (status, out, err) in zip(EXTRA_COMMANDS, answers, strict=True):
        assert (status, out) == (2, ""), arguments
        assert err.count("\n") == 1, arguments
        assert f"pip install 'shoal[{extra}]'" in err, arguments


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param(extra, marks=needs_pytorch) if extra == "network" else extra
        for extra in PACKAGES
    ],
)
def test_extras_name_what_they_install(extra: str) -> None:
    """The table that tells a person what to install holds packages that the extra brings. Planted:
    jinja2 under "mqtt" -> fails.
    """
    assert set(PACKAGES[extra]) <= set(service_modules([extra]))


def test_importing_shoal_loads_next_to_nothing() -> None:
    """Every package __init__ is light: no numpy, no grpc, no cryptography before somebody asks for
    them.
    """
    packages = (
        "shoal",
        "shoal.clients",
        "shoal.mechanisms",
        "shoal.accounting",
        "shoal.crypto",
        "shoal.shuffler",
        "shoal.analyzer",
        "shoal.study",
        "shoal.cli",
    )
    done = device("print(json.dumps(sorted(sys.modules)))", packages)
    assert done.returncode == 0, done.stderr
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"numpy", "grpc", "cryptography", "google", "asyncio", "sqlite3"}
