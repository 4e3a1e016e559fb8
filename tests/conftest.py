"""Settings for every test: property tests draw the same examples in every run, and as many as the
size of the run asks for.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.sizes import size
from tests.slowest import in_turns

ROOT = Path(__file__).parents[1]
# Our matrices are small: a second BLAS thread only waits, at full CPU, beside the other test
# processes. Set before numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# gRPC's core writes to stderr by itself; set before the first test module imports it, as the
# command line does.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# A shell starts what runs in its background deaf to Ctrl-C, and children inherit that: tests that
# send it to theirs would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # while tests are collected: what is made then stays

# derandomize: a failure is a failure for everybody; no deadline: a busy machine is no defect.
settings.register_profile(
    "shoal",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=size(60, 2_000),
    print_blob=True,
)
settings.load_profile("shoal")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files in the order in which they should start. pyproject.toml keeps xdist from ordering them
    by the number of their tests, which puts the longest, of one test or two, at the very end.
    """
    files = [item.nodeid.partition("::")[0] for item in items]
    places = {name: place for place, name in enumerate(in_turns(files))}
    items.sort(key=lambda item: places[item.nodeid.partition("::")[0]])


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Where all tests run in several processes, these begin to import at different places: in a
    fresh clone each then loads what another one has compiled, instead of all compiling all.
    """
    worker: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    paths = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/**/test_*.py"))]
    first = len(paths) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for path in paths[first:] + paths[:first]:
        # what can't be imported is told when it is collected
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(path.removesuffix(".py").replace("/", "."))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: every full collection of garbage would go through them
    again, in every process.
    """
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _certificates_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents of this process compute certificates in it: children would take most of a test's time.
    Processes of tests have them.
    """
    monkeypatch.setattr("shoal.clients.owner.guarantees._interpreter", lambda: None)


@pytest.fixture(autouse=True)
def _logs_unconfigured() -> Iterator[None]:
    """A command that a test, or a fixture of a whole module, runs in this process sends logs to the
    stream that stderr was then, from a level on, and to nobody else: for no other test.
    """
    _unconfigure()
    yield
    _unconfigure()


def _unconfigure() -> None:
    log = logging.getLogger("shoal")
    log.handlers[:], log.propagate = [logging.NullHandler()], True
    log.setLevel(logging.NOTSET)
