"""Each first hour of docs/first_hour, its blocks run as they stand: what a newcomer types works."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.sizes import size
from tests.worlds.mqtt.broker import mosquitto
from tests.worlds.ports import free_port
from tests.worlds.warm_commands import shoal_on_path

ROOT = Path(__file__).resolve().parents[3]
# Each goes on in the folder of the one before.
HOURS = ("OPERATOR", "DEVICE_OWNER", "LOAD_TESTER")
# what a newcomer reads next: they go on in the same folder, at full size alone
PAGES = ("AGENT", "LOAD")[: size(0, 2)]
# from here on a page wants a broker
_BROKER = re.compile(
    r"^## (Over an MQTT broker|An agent that runs by itself|Before anything)", re.M
)
_PORTS = ("7443", "7444", "7445", "7446", "8883")
DEVICES = size(1_600, 10_500)  # a batch of the page's 10,500 takes a third of the whole test
# At the end the services are stopped as an operator would stop them, and must say that they stopped
# cleanly.
_CLOSING = "\nkill $(jobs -p)\nwait\n"
_HOUR = "first hour of {}: %d s\\n"


def _blocks(text: str) -> list[str]:
    """The commands and the programs of a page, in their order; a program as the command that runs
    it. A block of ``shell`` is an example that wants what the page does not make.
    """
    found = re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)
    return [
        block if kind == "sh" else f"python - <<'PROGRAM'\n{block}PROGRAM\n"
        for kind, block in found
    ]


def _commands(names: Sequence[str], broker: bool) -> str:
    """All ``sh`` and ``python`` blocks of these pages in order, one script, which says how long
    each page took. Without a broker: those that want none.
    """
    parts = []
    for name in names:
        page = _page(name)
        parts += [
            "SECONDS=0",
            *_blocks(page if broker else _BROKER.split(page)[0]),
            f'printf "{_HOUR.format(name)}" $SECONDS',
        ]
    return "\n".join(parts)


def _smaller(script: str) -> str:
    """A batch that DEVICES fill, and the load that fills it. Planted: one of the two alone -> the
    load waits for a full batch.
    """
    if DEVICES == 10_500:
        return script
    assert script.count("max_batch=10500") == 1 + ("chronic-illness" in script)
    assert script.count("--devices 10500") == 1
    script = script.replace(
        "max_batch=10500", f"max_batch={DEVICES} --set min_batch={DEVICES - 500}"
    )
    return script.replace("--devices 10500", f"--devices {DEVICES}")


def _page(name: str) -> str:
    folder = "first_hour/" if name in {*HOURS, "ANALYST"} else ""
    return (ROOT / "docs" / f"{folder}{name}.md").read_text()


def _run(script: str, folder: Path, *path: str) -> str:
    """What the script shows on its screen, run with ``set -e`` in the folder; ``shoal`` starts
    warm. Fails unless it ends with 0.
    """
    with shoal_on_path() as shoal, (folder / "screen").open("wb") as screen:
        environment = {
            **os.environ,
            "PATH": ":".join([shoal, os.environ["PATH"], *path]),
            "HOME": str(folder),
        }
        # Into a file: services that a failing script leaves behind would hold a pipe open for ever.
        run = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
        )
        try:
            run.wait(900)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    output = (folder / "screen").read_text()
    # shown with pytest -rP
    sys.stdout.writelines(f"{line}\n" for line in re.findall(r"^first hour of .*", output, re.M))
    assert run.returncode == 0, output + "".join(path.read_text() for path in folder.glob("*.log"))
    assert "Traceback" not in output
    return output


def test_the_hours_of_operator_device_owner_and_load_tester(tmp_path: Path) -> None:
    """Ports are replaced by free ones; everything else runs as printed, but at reduced counts a
    batch is smaller. Where mosquitto is not installed the parts about a broker are left out.

    Planted: the device's question asked in a window that the load has filled -> it is refused, and
    this fails; a renamed option; no [mqtt] in the shuffler's configuration; a max_batch in
    docs/LOAD.md that the load does not fill -> fails.
    """
    broker = mosquitto()
    ports = {port: str(free_port()) for port in _PORTS}
    script = re.sub(
        "|".join(_PORTS),
        lambda found: ports[found[0]],
        _smaller(_commands([*HOURS, *PAGES], broker is not None)),
    )
    output = _run(script + _CLOSING, tmp_path, *([str(Path(broker).parent)] if broker else []))
    assert (tmp_path / "report.html").stat().st_size > 5_000
    assert f"{DEVICES:,}" in output
    assert re.search(r"task sound-sleep, window \d+: delivered", output)
    assert re.search(r"^acked \d+$", output, re.MULTILINE)
    for role in ("shuffler", "analyzer"):
        assert '"stopped"' in (tmp_path / f"{role}.log").read_text().splitlines()[-1]
    if broker is not None:
        _check_broker(tmp_path, output)


def test_the_analysts_hour(tmp_path: Path) -> None:
    """It wants no service. At reduced counts its two audits have a tenth of their trials. Planted:
    ``--epsilon0`` given to ``shoal plan`` -> fails.
    """
    script = _commands(["ANALYST"], broker=True)
    assert script.count("--trials 20000") == 2
    output = _run(script.replace("--trials 20000", f"--trials {size(2_000, 20_000)}"), tmp_path)
    assert "epsilon" in output


def _check_broker(folder: Path, output: str) -> None:
    """What the pages promise of a device that is reached through a broker, and
    of a load.
    """
    assert re.search(r"outcome task chronic-illness \([0-9a-f]{8}\) window 0: state acked", output)
    assert "acknowledged with the same bytes" in output
    if not PAGES:
        return
    assert "task chronic-illness, window 0: delivered, the shuffler has it on disk" in output
    assert "no effect: min_batch_floor = 500" in output
    assert "2,880" in output
    ledger = json.loads((folder / "ledger.json").read_text())
    assert ledger["verified"] is True
    reported = [one for one in ledger["entries"] if one["event"] == "reported"]
    assert [(one["details"]["source"], one["details"]["memoized"]) for one in reported] == [
        ("json", "new")
    ]


@pytest.mark.parametrize("name", ["AGENT", "LOAD"])
def test_the_pages_name_commands_that_exist(name: str) -> None:
    """Planted: ``shoal agent ledgers`` in a table -> this fails."""
    known = {
        "agent": {
            "run",
            "report",
            "flush",
            "status",
            "explain",
            "consent",
            "console",
            "ledger",
            "budget",
            "memory",
            "learn",
        }
    }
    known |= {
        "task": {"new", "lint", "sign", "publish", "show"},
        "keys": {"hpke", "schedule"},
        "demo": set(),
        "load": set(),
        "trial": set(),
        "results": {"list", "show", "export"},
        "shuffler": {"status", "clock"},
    }
    for group, command in re.findall(r"\bshoal (\w+)(?: ([a-z]+))?", _page(name)):
        assert group in known
        assert not known[group] or not command or command in known[group], (
            f"shoal {group} {command}"
        )
