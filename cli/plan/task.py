"""``shoal plan --emit``: the chosen mechanism as a task file, and what it still wants."""

from __future__ import annotations

from pathlib import Path

import tomlkit

from shoal.analyzer.planner.task_file import task_text
from shoal.cli.output import write_new
from shoal.cli.task.unfilled import unfilled

__all__ = ["task_text", "write_task"]


def write_task(emit: Path, text: str) -> str:
    """What to say of the file: what it still wants, and what comes next."""
    write_new(emit, text.encode())
    left = unfilled(tomlkit.parse(text).unwrap(), emit.parent)
    if left:
        return (
            f"wrote {emit}; still to be filled in: {'; '.join(left)}; then shoal task lint {emit}"
        )
    return (
        f"wrote {emit}: shoal task lint {emit}, then shoal task sign {emit} --key AUTHORITY.key "
        f"--out {emit.with_suffix('.task')}"
    )
