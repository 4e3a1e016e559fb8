"""The tasks that this analyzer serves, from a folder of signed tasks and key schedules."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from shoal.accounting.lint.servable import check_servable
from shoal.crypto.task_folder import TaskFolder
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.log import get_log

log = get_log("analyzer")


class AnalyzerTasks(TaskFolder):
    """``signing_key``: our Ed25519 public key; a task that names another analyzer is none of ours.

    A task with a missing key is served for its other windows (``MissingKeys``): to refuse it would
    lose them as well.
    """

    def __init__(self, folder: Path, authorities: Collection[bytes], signing_key: bytes) -> None:
        self._signing_key = signing_key
        super().__init__(folder, authorities, "analyzer")
        log.info("tasks read", tasks=len(self.served), count=len(self._refused))

    def take_up(self, served: ServedTask) -> None:
        """See ``TaskFolder.take_up``. Raises CONFIG, and what ``check_servable`` raises."""
        task = served.task
        if task.analyzer_key != self._signing_key:
            raise ShoalError(
                Kind.CONFIG,
                f"task {task.name}: its analyzer_key is not the public key of our signing_key: "
                "remove the task, or mend the key",
            )
        check_servable(task)

    def all(self) -> list[ServedTask]:
        """Every task that is served now."""
        return list(self.served.values())

    def serves(self, task_id: TaskId) -> bool:
        """Whether the task is served now, without another look at the folder."""
        return task_id in self.served

    def get(self, task_id: TaskId) -> ServedTask:
        """Reads the folder again if the task is unknown and the folder has changed. Raises
        UNKNOWN_TASK.
        """
        if task_id not in self.served and self.changed():
            self.reload()
        served = self.served.get(task_id)
        if served is None:
            raise ShoalError(
                Kind.UNKNOWN_TASK,
                "this analyzer does not serve the task: put its signed files into the tasks folder",
            )
        return served

    def users_of(self, key_id: KeyId) -> set[tuple[TaskId, int]]:
        """Every (task, window) whose reports are sealed for that analyzer key, of refused tasks
        too: they may be mended.
        """
        return {
            (served.task_id, window)
            for served in self.known()
            for window, config in enumerate(served.keys.analyzer_keys)
            if config.key_id == key_id
        }

    def known(self) -> list[ServedTask]:
        """Served tasks, and those that verify and are not served; of one with two schedules
        both.
        """
        return [*self.all(), *self.refused()]
