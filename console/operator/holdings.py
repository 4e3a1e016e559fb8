"""What the operator's console shows releases from: an analyzer's store, or files of releases; and
the signed tasks that give them their words.

Reports are never read: a store is opened read-only for what it released and what that cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from shoal.analyzer.records import Spending
from shoal.analyzer.results.reading import in_order
from shoal.analyzer.results.release_files import Truth, read_release_files
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.codec import decode_signed_task, decode_task
from shoal.crypto.signing import SigningContext, verify
from shoal.crypto.trust import TASK_SUFFIX, read_file
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.task import Task

Release = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReleasedQuestion:
    """One task and what was released of it, by window. ``task``: None where its signed file can't
    be read here.
    """

    task_id: str
    name: str
    task: Task | None
    releases: tuple[Release, ...]

    @property
    def words(self) -> str:
        """The question that devices were asked, or the task's name."""
        return self.name if self.task is None else self.task.question

    @property
    def latest(self) -> Release:
        """The release of the last window."""
        return self.releases[-1]

    def release_of(self, window: int) -> Release:
        """Raises NOT_FOUND."""
        for release in self.releases:
            if release["window"] == window:
                return release
        raise ShoalError(
            Kind.NOT_FOUND,
            f"{self.name}: window {window} is not released: choose one of the list on its page",
        )


@dataclass(frozen=True, slots=True)
class Holdings:
    """``spendings``: what every opened batch cost, with its law of losses where there is one.
    ``truths``: true values by label, by task id, where a demonstration knows them. ``tasks``: those
    whose signed files can be read, by id. ``notices``:
    what is wrong with the source, a line each.
    """

    questions: tuple[ReleasedQuestion, ...]
    spendings: tuple[Spending, ...]
    truths: Mapping[str, Truth]
    tasks: Mapping[str, Task]
    notices: tuple[str, ...] = ()

    @property
    def releases(self) -> list[dict[str, Any]]:
        """All of them, by name and window."""
        return in_order(dict(each) for question in self.questions for each in question.releases)

    def question(self, name: str) -> ReleasedQuestion:
        """By its id, the beginning of it, or its name. Raises NOT_FOUND; CONFLICT where several are
        meant.
        """
        known = [
            question
            for question in self.questions
            if name and (question.name == name or question.task_id.startswith(name.lower()))
        ]
        if len(known) == 1:
            return known[0]
        if known:
            raise ShoalError(
                Kind.INVALID, "several questions are meant: follow a link of the releases' page"
            )
        raise ShoalError(Kind.NOT_FOUND, "no such question here: choose one of the releases' page")


def from_store(data_dir: Path, tasks_dir: Path | None) -> Holdings:
    """Everything that an analyzer released so far. Raises CONFIG if its store can't be read."""
    path = data_dir / FILE_NAME
    store = AnalyzerStore(path, read_only=True)
    try:
        releases = [_shown(stored.release) for stored in store.releases()]
        spendings = tuple(store.spendings())
        damaged, lost = store.damaged_releases(), store.lost
    finally:
        store.close()
    notices = [message for _, message in damaged]
    if lost:
        notices.append(f"{path.name}: {lost} releases are missing: restore the file from a copy")
    tasks, wrong = _tasks(tasks_dir)
    return Holdings(_grouped(releases, tasks), spendings, {}, tasks, (*notices, *wrong))


def from_files(path: Path, tasks_dir: Path | None) -> Holdings:
    """The releases of a file or of a folder's files. Raises CONFIG, INVALID, CONFLICT."""
    files = read_release_files(path)
    tasks, wrong = _tasks(tasks_dir)
    return Holdings(
        _grouped(files.releases, tasks),
        tuple(_spending(release) for release in files.releases),
        files.truths,
        tasks,
        tuple(wrong),
    )


@lru_cache(maxsize=65_536)
def _shown(release: bytes) -> Release:
    """Signed bytes never change: each is decoded once."""
    return to_json(decode_release(release))


def _grouped(
    releases: Iterable[Release], tasks: Mapping[str, Task]
) -> tuple[ReleasedQuestion, ...]:
    of_task: dict[str, list[Release]] = {}
    for release in in_order(dict(each) for each in releases):
        of_task.setdefault(release["task_id"], []).append(release)
    return tuple(
        ReleasedQuestion(task_id, found[0]["name"], tasks.get(task_id), tuple(found))
        for task_id, found in of_task.items()
    )


def _spending(release: Release) -> Spending:
    """What is known of a batch's cost without the store: its epsilon and delta, and no law, so that
    whatever is composed of it errs up.
    """
    privacy = release["privacy"]
    return Spending(
        TaskId.parse(release["task_id"]),
        max(privacy["epsilon_upper"], _received(release)),
        privacy["delta"],
        lifetime=privacy.get("memoized", {}).get("lifetime_epsilon"),
    )


def _received(release: Release) -> float:
    """What came, where it was fewer than the guarantee is about; 0.0 otherwise."""
    privacy = release["privacy"]
    fewer = release["n"] * privacy["honest_fraction"] < privacy["n_certified"]
    received = privacy["epsilon_at_received_n"]
    return (float("inf") if received is None else received) if fewer else 0.0


def _tasks(folder: Path | None) -> tuple[dict[str, Task], list[str]]:
    """The signed tasks of a folder, by id. A release names its task by the hash of the task's
    bytes: words of another task can't be shown with it, whoever signed.
    """
    tasks: dict[str, Task] = {}
    wrong: list[str] = []
    try:
        files = [] if folder is None else sorted(folder.glob(f"*{TASK_SUFFIX}"))
    except OSError as error:
        return {}, [f"tasks folder: {error.strerror or 'unreadable'}"]
    for file in files:
        try:
            task_id, task = _task(read_file(file, LIMITS.task_bytes))
            tasks[task_id] = task
        except ShoalError as error:
            wrong.append(f"{file.name}: its words are not shown: {error}")
    return tasks, wrong


@lru_cache(maxsize=1024)
def _task(signed_bytes: bytes) -> tuple[str, Task]:
    signed = decode_signed_task(signed_bytes)
    verify(signed.authority, SigningContext.TASK, signed.data, signed.signature)
    return TaskId.of(signed.data).hex, decode_task(signed.data)
