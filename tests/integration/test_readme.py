"""The README's commands, run as they stand: what a newcomer types works."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from shoal.cli.demo.processes import free_port

ROOT = Path(__file__).resolve().parents[2]
# At the end the services are stopped as an operator would stop them, and must say that they stopped cleanly.
_CLOSING = "\nkill $(jobs -p)\nwait\n"


def _commands() -> str:
    """All ``sh`` blocks in order, one script."""
    return "\n".join(re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL))


def test_the_readmes_commands_work_in_order(tmp_path: Path) -> None:
    """Ports are replaced by free ones; everything else runs as printed, with ``set -e``. Planted: a renamed option -> this fails."""
    script = _commands()
    for port in ("7443", "7444", "7445", "7446"):
        script = script.replace(port, str(free_port()))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    with (tmp_path / "screen").open("wb") as screen:
        # Into a file: services that a failing script leaves behind would hold a pipe open for ever.
        run = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script + _CLOSING],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
        )
        try:
            run.wait(240)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    output = (tmp_path / "screen").read_text()
    assert run.returncode == 0, output + "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert "Traceback" not in output
    assert (tmp_path / "report.html").stat().st_size > 5_000
    assert "10,500" in output
    for role in ("shuffler", "analyzer"):
        assert '"stopped"' in (tmp_path / f"{role}.log").read_text()


def test_the_readmes_python_uses_names_that_exist() -> None:
    """Planted: a misspelt import in the README's Python block -> this fails."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    imports = [line for line in block[1].splitlines() if line.startswith("from ")]
    assert imports
    for line in imports:
        exec(line, {})  # noqa: S102 - the README's own import line
