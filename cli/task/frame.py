"""What a report of a task takes on the wire: its frame, which has one of a few sizes; and lint of a
report that fits none.
"""

from __future__ import annotations

from dataclasses import replace

from shoal.accounting.lint.findings import Finding, LintResult
from shoal.cli.figures import counted
from shoal.crypto.admission.members import frame_bytes
from shoal.errors import ShoalError
from shoal.task import Task


def report_words(task: Task) -> str:
    """For people: the report and its frame."""
    least, most = task.least_messages, task.messages
    number = f"{most}" if least == most else f"{least} to {most}"
    messages = "" if most == 1 else f"{number} messages of "
    return (
        f"a report is {messages}{counted(task.report_size, 'byte')}, sent in a frame of "
        f"{frame_bytes(task):,} bytes"
    )


def with_frame(task: Task, result: LintResult) -> LintResult:
    """The findings, with an error if no frame holds a report, and a warning if it takes a larger
    one than a report of one byte does.
    """
    if task.pairwise is not None:
        return result
    report = (
        f"a report of {'up to ' * (task.fewest_messages > 0)}{task.messages} "
        f"message{'s' * (task.messages > 1)} of {counted(task.report_size, 'byte')}"
    )
    try:
        size = frame_bytes(task)
    except ShoalError as error:
        wrong = Finding(
            True, f"{report} fits no frame ({error.message}): use a mechanism with shorter reports"
        )
        return LintResult((*result.findings, wrong), result.guarantee)
    if size <= frame_bytes(replace(task, report_size=1, messages=1, fewest_messages=0)):
        return result
    shorter = "local_hash, projective and hadamard_response have short ones"
    if task.messages > 1:
        shorter = "more devices in a batch, or dummies, want fewer messages of each"
    larger = (
        f"{report} is sent in a frame of {size:,} bytes, larger than most tasks': whoever watches "
        f"the network may tell its reports by their size: {shorter}"
    )
    return LintResult((*result.findings, Finding(False, larger)), result.guarantee)
