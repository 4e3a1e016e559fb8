"""Downloads: releases as JSON, CSV, a page of their own, and a notebook that draws them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from threading import BoundedSemaphore
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shoal.analyzer.results.files.exports import Format, file_of
from shoal.console.operator.desk import Desk, window_of
from shoal.console.operator.notebook import notebook
from shoal.errors import Kind, ShoalError

_PATH = "/download"


@dataclass(frozen=True, slots=True)
class Download:
    """One kind of file. ``make``: its bytes, from releases in the shape of ``release.to_json``."""

    suffix: str
    name: str
    media_type: str
    make: Callable[[list[dict[str, Any]]], bytes]
    most: int = 1_000_000  # releases of one file


def _written(kind: Format) -> Callable[[list[dict[str, Any]]], bytes]:
    return lambda releases: file_of(releases, kind)


_DRAWN = 1_000  # releases that a browser still shows on one page
KINDS = (
    Download("csv", "CSV", "text/csv; charset=utf-8", _written(Format.csv)),
    Download("json", "JSON", "application/json", _written(Format.json)),
    Download(
        "html", "A page with plots", "text/html; charset=utf-8", _written(Format.html), _DRAWN
    ),
    Download("ipynb", "Notebook", "application/x-ipynb+json", notebook, _DRAWN),
    Download("parquet", "Parquet", "application/vnd.apache.parquet", _written(Format.parquet)),
)
_MAKING = BoundedSemaphore(2)  # large files at once: pages go on meanwhile


def offers(path: str = "") -> list[tuple[str, str]]:
    """(name, address) of every file of all releases, or of those of TASK or TASK/WINDOW."""
    return [(kind.name, f"{_PATH}/{path or 'all'}.{kind.suffix}") for kind in KINDS if _can(kind)]


def _can(kind: Download) -> bool:
    return kind.suffix != "parquet" or find_spec("pyarrow") is not None


def routes(desk: Desk) -> list[BaseRoute]:
    """/download/all.csv, /download/TASK.csv, /download/TASK/WINDOW.csv, and so for every kind."""

    def everything(request: Request) -> Response:
        return _file(request, "shoal-releases", desk.holdings().releases)

    def question(request: Request) -> Response:
        chosen = desk.holdings().question(request.path_params["task"])
        if "window" not in request.path_params:
            return _file(request, f"shoal-{chosen.name}", list(map(dict, chosen.releases)))
        release = window_of(request, chosen)
        name = f"shoal-{chosen.name}-window-{release['window']}"
        return _file(request, name, [dict(release)])

    return [
        Route(f"{_PATH}/all.{{kind}}", everything),
        Route(f"{_PATH}/{{task}}.{{kind}}", question),
        Route(f"{_PATH}/{{task}}/{{window}}.{{kind}}", question),
    ]


def _file(request: Request, name: str, releases: list[dict[str, Any]]) -> Response:
    suffix = request.path_params["kind"]
    kind = next((kind for kind in KINDS if kind.suffix == suffix), None)
    if kind is None:
        known = ", ".join(each.suffix for each in KINDS)
        raise ShoalError(Kind.NOT_FOUND, f"no such kind of file: choose one of {known}")
    if len(releases) > kind.most:
        raise ShoalError(
            Kind.INVALID,
            f"{len(releases):,} releases are too many for such a file ({kind.most:,} at most): "
            "take those of one question or window, or CSV or JSON",
        )
    if not _can(kind):
        raise ShoalError(
            Kind.CONFIG, "Parquet wants Shoal's extra [parquet] where the console runs: take CSV"
        )
    headers = {"content-disposition": f'attachment; filename="{name}.{kind.suffix}"'}
    with _MAKING:
        data = kind.make(releases)
    return Response(data, media_type=kind.media_type, headers=headers)
