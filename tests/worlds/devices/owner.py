"""An owner at a terminal: a device's folder with one task, and ``shoal agent`` on it in this
process.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.main import main
from shoal.clients.memory.commitments import NANO
from shoal.clients.memory.commitments_sqlite import SqliteCommitments
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.ledger import Detail, LedgerEntry, LedgerEvent
from shoal.ids import TaskId
from tests.worlds.devices.clients import World, make_world

OTHER = TaskId(bytes(range(32)))


@dataclass
class Owner:
    """A device's folder, and ``shoal agent`` on it in this process."""

    folder: Path
    world: World
    capsys: pytest.CaptureFixture[str]

    def write(
        self, *, consent: str | None = None, policy: str = "", more: str = "", top: str = ""
    ) -> None:
        self.world.write(self.folder / "tasks")
        answer = "" if consent is None else f'"{self.world.task.purpose}" = "{consent}"\n'
        (self.folder / "agent.toml").write_text(
            f'tasks = "tasks"\noutbox = "outbox.db"\n{top}\n[policy]\nauthorities = '
            f'["{self.world.authority.public.hex()}"]\n'
            "max_epsilon0 = 4.0\nmin_batch_floor = "
            f"100\n{policy}\n[policy.purposes]\n{answer}{more}"
        )

    def run(self, command: str, *arguments: str) -> tuple[int, str, str]:
        code = main(["agent", command, "--config", str(self.folder / "agent.toml"), *arguments])
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    def json(self, command: str, *arguments: str) -> Any:
        code, out, err = self.run(command, *arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    @property
    def outbox(self) -> Path:
        return self.folder / "outbox.db"

    def remember(self) -> None:
        """Two charged tasks, and a ledger of it."""
        store = AgentStore(self.outbox)
        commitments = SqliteCommitments(store)
        with commitments.transaction():
            for number, nano in enumerate((3_000_000_000, 500_000_001, 3_000_000_000)):
                task_id = OTHER if number % 2 else self.world.task_id
                commitments.charge(task_id, number, nano, None)
                details: dict[str, Detail] = {
                    "reason": f"reason {number}\x1b[2J",
                    "epsilon_charged": nano / NANO,
                    "epsilon_spent_after": commitments.spent() / NANO,
                }
                commitments.append(
                    LedgerEntry(
                        LedgerEvent.REPORTED,
                        1_800_000_000 + number,
                        task_id,
                        "visits",
                        number,
                        details,
                    )
                )
        store.close()


def owner_at(folder: Path, capsys: pytest.CaptureFixture[str]) -> Owner:
    made = Owner(folder, make_world(start=int(time.time()) - 3_600), capsys)
    made.write()
    return made
