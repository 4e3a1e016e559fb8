"""The releases of an analyzer's store, and which of them are meant."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.storage.array_files import ArrayFile


def read_releases(data: Path | None, config: Path | None) -> list[dict[str, Any]]:
    """All releases of a store that are what was signed, in the shape of
    ``release_json.to_json``, by name and window.

    Raises CONFIG, NOT_FOUND.
    """
    from shoal.analyzer.results.release_json import decode_release, to_json  # not for shoal --help
    from shoal.analyzer.store import FILE_NAME, AnalyzerStore

    store = AnalyzerStore(_data_dir(data, config) / FILE_NAME, read_only=True)
    try:
        return in_order([to_json(decode_release(stored.release)) for stored in store.releases()])
    finally:
        store.close()


def read_spent(data: Path | None, config: Path | None) -> list[dict[str, Any]]:
    """What was spent, in the shape of ``spent_by_question``. Raises CONFIG, NOT_FOUND."""
    from shoal.analyzer.results.questions import spent_by_question
    from shoal.analyzer.results.release_json import decode_release
    from shoal.analyzer.store import FILE_NAME, AnalyzerStore

    store = AnalyzerStore(_data_dir(data, config) / FILE_NAME, read_only=True)
    try:
        names = {one.task_id: decode_release(one.release).name for one in store.releases()}
        return spent_by_question(store.spendings(), names)
    finally:
        store.close()


def array_of(data: Path | None, config: Path | None, release: dict[str, Any]) -> ArrayFile:
    """The array of a release of a long vector, in the analyzer's folder. Raises CONFIG for a
    release that has an estimate for each answer, or none.
    """
    from shoal.analyzer.results.totals import FOLDER, array_of_json

    told = release.get("array")
    if told is None:
        why = (
            f"it was withheld ({release['withheld']})"
            if release["withheld"]
            else ("it has an estimate for each answer: use --format csv or parquet")
        )
        name = f"{release['name']}:{release['window']}"
        raise ShoalError(Kind.CONFIG, f"{name} has no array: {why}")
    return array_of_json(_data_dir(data, config) / FOLDER / told["file"], told)


def only(releases: list[dict[str, Any]], task: str) -> dict[str, Any]:
    """The one of them. Raises CONFIG where a task has several windows."""
    if len(releases) > 1:
        windows = ", ".join(str(release["window"]) for release in releases)
        raise ShoalError(
            Kind.CONFIG,
            f"{task} has several windows ({windows}): give one, as {task}:{releases[0]['window']}",
        )
    return releases[0]


def in_order(releases: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """By name and window, as every list of releases is shown."""
    return sorted(
        releases, key=lambda release: (release["name"], release["task_id"], release["window"])
    )


def check_damage(data: Path | None, config: Path | None, task: str | None = None) -> None:
    """Raises MISMATCH, exit status 1, if a release of the store (of ``task``) is not what was
    signed, or some are gone.
    """
    from shoal.analyzer.store import FILE_NAME, AnalyzerStore

    path = _data_dir(data, config) / FILE_NAME
    store = AnalyzerStore(path, read_only=True)
    try:
        damaged, lost = store.damaged_releases(), store.lost
    finally:
        store.close()
    if task is not None:
        name, colon, window = task.partition(":")
        damaged = [
            condition
            for condition in damaged
            if condition[0].startswith(name.lower())
            and (not colon or condition[0].endswith(f":{window}"))
        ]
    elif lost:
        raise ShoalError(
            Kind.MISMATCH, f"{path}: {lost} releases are missing: restore the file from a copy"
        )
    if damaged:
        more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
        raise ShoalError(Kind.MISMATCH, damaged[0][1] + more)


def _data_dir(data: Path | None, config: Path | None) -> Path:
    if (data is None) == (config is None):
        raise ShoalError(
            Kind.CONFIG, "say where the releases are: either --data DIR or --config analyzer.toml"
        )
    if data is not None:
        return data
    from shoal.analyzer.config import AnalyzerConfig
    from shoal.services.settings import load_settings

    return load_settings(AnalyzerConfig, config or Path()).data_dir


def select(releases: list[dict[str, Any]], task: str) -> list[dict[str, Any]]:
    """The releases of TASK or TASK:WINDOW. Raises NOT_FOUND; CONFIG for a window that is no number
    or a task that is several.
    """
    name, colon, window = task.partition(":")
    if colon and not window.isdecimal():
        raise ShoalError(
            Kind.CONFIG, f"{task}: TASK:WINDOW wants a number after the colon, for example {name}:0"
        )
    chosen = [
        release
        for release in releases
        if name and (release["name"] == name or release["task_id"].startswith(name.lower()))
    ]
    if len({release["task_id"] for release in chosen}) > 1:
        raise ShoalError(
            Kind.CONFIG,
            f"{name}: several tasks are meant: give more of the task's id (shoal results list "
            "--json shows it)",
        )
    chosen = [release for release in chosen if not colon or release["window"] == int(window)]
    if not chosen:
        raise ShoalError(
            Kind.NOT_FOUND, f"{task}: no such release; `shoal results list` shows what there is"
        )
    return chosen
