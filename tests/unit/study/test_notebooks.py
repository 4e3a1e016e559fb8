"""The notebooks of docs/notebooks, run in a real kernel as they stand, and stored as nobody ran
them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

import shoal
from tests.sizes import FULL

NOTEBOOKS = sorted((Path(__file__).resolve().parents[3] / "docs" / "notebooks").glob("*.ipynb"))


def test_notebooks_are_stored_without_what_a_run_leaves() -> None:
    """Planted: an output, or the number of a run -> fails."""
    assert len(NOTEBOOKS) == 5
    for path in NOTEBOOKS:
        book = json.loads(path.read_text())
        nbformat.validate(_read(path))
        for cell in book["cells"]:
            if cell["cell_type"] == "code":
                assert (cell["outputs"], cell["execution_count"]) == ([], None), path.name
        assert path.read_text() == json.dumps(book, indent=1, ensure_ascii=False) + "\n"
        assert book["cells"][0]["source"][0].startswith("# ")


def _read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call] # its own stubs


# In a process of its own: the client's sockets are closed by its end at the latest.
_RUN = """
import sys
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=sys.argv[2])
NotebookClient(book, km=kernel, timeout=240).execute()
nbformat.write(book, sys.argv[1])
"""


def _run(cells: list[Any], folder: Path) -> list[Any]:
    """The same cells with their outputs."""
    path = folder / "run.ipynb"
    path.write_text(json.dumps({**json.loads(NOTEBOOKS[0].read_text()), "cells": cells}))
    environment = {
        **os.environ,
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
    }
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(path), str(folder / "k")],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    ran: list[Any] = _read(path)["cells"]
    return ran


def test_notebooks_run(tmp_path: Path) -> None:
    """Without a network, in a folder of their own, in which they leave nothing. One kernel for all
    at reduced size, forgotten between two of them; at full size one each. Planted: a misspelt name
    in a cell; ``_repr_svg_`` that gives nothing -> fails.
    """
    books = [json.loads(path.read_text())["cells"] for path in NOTEBOOKS]
    forget = {**books[0][1], "source": ["%reset -f"]}
    if not FULL:
        books = [
            [
                cell
                for at, book in enumerate(books)
                for cell in (*book, {**forget, "id": f"forget-{at}"})
            ]
        ]
    pictures = 0
    for book in books:
        outputs = [out for cell in _run(book, tmp_path) for out in cell.get("outputs", ())]
        kinds = [kind for out in outputs for kind in out.get("data", {})]
        pictures += kinds.count("image/svg+xml")
        assert {"text/plain", "text/html"} <= set(kinds)
        assert not [out for out in outputs if out.get("name") == "stderr"], outputs
    assert pictures == 2
    left = {name for name in os.listdir(tmp_path) if not name.startswith("k-")}
    assert left <= {"run.ipynb", "ipython", "runtime"}


def test_an_attack_stays_below_the_claim() -> None:
    """And convicts a randomizer that claims too much. Planted: the claim of a batch for one report
    -> fails.
    """
    yes = shoal.design(epsilon0=2)
    attacked = yes.audit(n=20, trials=4_000, simulation_seed=1)
    assert not attacked.refuted
    assert 1 < attacked.local.epsilon_measured_lower < attacked.local.claimed < 2.1
    assert attacked.shuffled.claimed == yes.certify(20, delta=0.01, honest_fraction=1).epsilon
    assert "within the claim" in repr(attacked)
    with pytest.raises(ValueError, match=r"^trials: "):
        yes.audit(trials=10)
    with pytest.raises(ValueError, match=r"^design: "):
        shoal.design(["a"], kind="words").audit()
