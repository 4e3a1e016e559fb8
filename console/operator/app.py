"""The operator's console, put together: its pages, and where they read from.

A page is a module with ``NAVIGATION`` and ``routes``, and a line in ``PAGES``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from starlette.types import ASGIApp

from shoal.analyzer.store import FILE_NAME
from shoal.console.known import Watched
from shoal.console.operator import (
    audited,
    budget,
    downloads,
    promise,
    releases,
    running,
)
from shoal.console.operator.desk import Desk
from shoal.console.operator.holdings import Holdings, from_files, from_store
from shoal.console.operator.limit import StandingLimit
from shoal.console.operator.planner import page as planner
from shoal.console.operator.sources import Unchanged, in_folder
from shoal.console.signin.gate import Gate
from shoal.crypto.trust import TASK_SUFFIX
from shoal.errors import Kind, ShoalError
from shoal.rpc.admin_pages import AdminPort

PAGES = (releases, promise, planner, running, budget)
_EVERY_S = 3.0  # between two readings of releases, or of a service's status


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the console reads from. ``data_dir``: of an analyzer on this machine; ``releases``: a
    file or a folder of releases instead; ``tasks_dir``: signed tasks, for their words.
    ``analyzer``, ``shuffler``: where they say how they are.

    Raises CONFIG unless there is exactly one source of releases.
    """

    data_dir: Path | None = None
    releases: Path | None = None
    tasks_dir: Path | None = None
    analyzer: AdminPort | None = None
    shuffler: AdminPort | None = None

    def __post_init__(self) -> None:
        if (self.data_dir is None) == (self.releases is None):
            raise ShoalError(
                Kind.CONFIG,
                "say where the releases are: either --analyzer analyzer.toml or --releases PATH "
                "(a file or folder of shoal results export)",
            )


def operator_app(
    places: Sources,
    address: str,
    hosts: frozenset[str] = frozenset(),
    gate: Gate | None = None,
    kept: Path | None = None,
) -> ASGIApp:
    """The console for who asks for it as ``address`` (HOST:PORT) or one of ``hosts``, and whom
    ``gate`` lets in. ``kept``: a folder for what operators set here; None keeps nothing. Raises
    what the first reading of the releases raises: a console of nothing is a mistake.
    """
    read = _reader(places)
    first = read()
    services = {
        port.service: Watched(port.status, _EVERY_S)
        for port in (places.shuffler, places.analyzer)
        if port is not None
    }
    pages = PAGES if gate is None or gate.audit is None else (*PAGES, audited)
    desk = Desk(
        Watched(read, _EVERY_S, first=first),
        services,
        tuple(page.NAVIGATION for page in pages),
        gate=gate or Gate(None),
        limit=StandingLimit(kept),
    )
    routes = [route for page in pages for route in page.routes(desk)]
    return desk.site.app([*routes, *downloads.routes(desk)], address, hosts, gate)


def _reader(places: Sources) -> Unchanged[Holdings]:
    tasks, data = places.tasks_dir, places.data_dir
    if data is not None:
        own = [data / FILE_NAME, data / f"{FILE_NAME}-wal"]
        return Unchanged(
            partial(from_store, data, tasks), lambda: [*own, *in_folder(tasks, TASK_SUFFIX)]
        )
    files = places.releases or Path()
    return Unchanged(
        partial(from_files, files, tasks),
        lambda: [*in_folder(files, ".json"), *in_folder(tasks, TASK_SUFFIX)],
    )
