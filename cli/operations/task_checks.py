"""The tasks of a role: signatures, key schedules, private keys, and the time they have left."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path

from shoal.cli.operations.findings import Findings
from shoal.cli.operations.tls_checks import tell_days
from shoal.crypto.keyfiles import load_hpke_key
from shoal.crypto.task_folder import load_task_folder
from shoal.crypto.trust import ServedTask
from shoal.errors import ShoalError
from shoal.ids import KeyId, TaskId
from shoal.rpc.renewal import ending

_DAY_S = 86_400
_SOON_S = 30 * _DAY_S

KeysOf = Callable[[ServedTask], tuple[KeyId, ...]]


def tasks(findings: Findings, folder: Path, authorities: Collection[bytes]) -> list[ServedTask]:
    """Those that verify; what is wrong with the others is told."""
    files = load_task_folder(folder, authorities)
    for refused in files.refused:
        findings.fail("tasks", f"{refused.error}: it is not served")
    if not files.served and not files.refused:
        findings.warn("tasks", f"{folder} holds no task: put NAME.task and NAME.keys there")
    for served in files.served.values():
        _time_left(findings, served)
        task = served.task
        if task.shuffler_ca:
            with findings.checking("certificates"):
                name = Path(f"shuffler_ca of task {task.name}")
                end = ending("a task's authority", name, task.shuffler_ca, authority=True)
                tell_days(
                    findings,
                    end,
                    "a task can't be changed: sign the next version of the question with the new "
                    "authority in it",
                )
    return list(files.served.values())


def _time_left(findings: Findings, served: ServedTask) -> None:
    """Its windows are numbered, and so are its keys: both end."""
    task, now = served.task, time.time()
    plan = task.windows
    end = plan.end_of(plan.count - 1)
    date = f"{datetime.fromtimestamp(end, UTC):%Y-%m-%d}"
    left = sum(plan.end_of(window) > now for window in range(plan.count))
    if not left:
        findings.warn(
            "keys",
            f"task {task.name}: its last window ended on {date}: sign the next version of the "
            "question, or take its files away once all is released",
        )
    elif end - now < _SOON_S:
        findings.warn(
            "keys",
            f"task {task.name}: {left} of {plan.count} windows are left, until {date}: sign the "
            "next version of the question (docs/OPERATIONS.md)",
        )
    else:
        findings.ok("keys", f"task {task.name}: {left} of {plan.count} windows left, until {date}")


def private_keys(
    findings: Findings,
    served: list[ServedTask],
    keys_dir: Path,
    keys_of: KeysOf,
    over: Collection[tuple[TaskId, int]] = (),
) -> None:
    """That the key of every window that still takes reports is there, and is what its name says.
    ``over``: windows that are decided, released or given up, whose keys are deleted.
    """
    now = time.time()
    for one in served:
        task, ids = one.task, keys_of(one)
        wanted = {
            ids[window]
            for window in range(task.windows.count)
            if now < task.windows.deadline_of(window) and (one.task_id, window) not in over
        }
        wrong, why = [], ""
        for key_id in sorted(wanted):
            try:
                if load_hpke_key(keys_dir / f"{key_id.hex}.key").config.key_id != key_id:
                    wrong.append(key_id)
            except ShoalError as error:
                wrong.append(key_id)
                why = why or error.message
        if wrong:
            findings.fail(
                "keys",
                f"task {task.name}: {len(wrong)} of {len(wanted)} private keys are missing or "
                f"unreadable in {keys_dir}, first {wrong[0].hex}.key: put them there, or their "
                f"windows can't be opened{f' ({why})' if why else ''}",
            )
        elif wanted:
            findings.ok("keys", f"task {task.name}: all {len(wanted)} private keys are there")
