"""Pictures of a device owner's console, for tools/screenshots.py: of a real agent that answered
beside the simulated ones, and of its copies whose memory is damaged, set back, or empty.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page

from shoal.cli.demo.workspace import Site
from tests.worlds.browser import browser
from tests.worlds.consoles import owners_console

Shoot = Callable[[Page, str, str], None]  # the page, the picture's name, its look

# of the device that answered: name of the picture -> its path; the first stays above its limit
PAGES = {
    "owner-above": "/questions/mean-visits",
    "owner-accepted": "/questions/visit-groups",
    "owner-questions": "/questions",
    "owner-answers": "/answers",
    "owner-budget": "/budget",
    "owner-ledger": "/ledger",
    "owner-ledger-head": "/ledger?head=much",
    "owner-memory": "/memory",
    "owner-nowhere": "/nowhere",
}
NEW = {"owner-new": "/questions", "owner-new-answers": "/answers", "owner-new-ledger": "/ledger"}
SET_BACK = {"owner-set-back": "/memory", "owner-set-back-questions": "/questions"}
DAMAGED = {"owner-ledger-damaged": "/ledger", "owner-memory-damaged": "/memory"}
_TOML = """\
tasks = "{tasks}"
outbox = "outbox.db"
[policy]
authorities = ["{authority}"]
max_epsilon0 = 2.5
lifetime_epsilon = 20.0
min_batch_floor = 500
"""


class Device:
    """One of the devices, with an owner."""

    def __init__(self, site: Site) -> None:
        self.folder = site.folder / "device"
        self.folder.mkdir()
        (self.folder / "agent.toml").write_text(
            _TOML.format(tasks=site.folder / "tasks", authority=site.authority.public.hex())
        )
        self.run("status")
        self.new = self._copy("new")

    def run(self, command: str, *arguments: str) -> None:
        """``shoal agent`` on this device. Its exit status is not looked at: pictures show it."""
        config = ("--config", str(self.folder / "agent.toml"))
        subprocess.run(
            [sys.executable, "-m", "shoal.cli.main", "agent", command, *config, *arguments],
            check=False,
            stdout=subprocess.DEVNULL,
        )

    def agrees(self) -> None:
        """The owner's answers, before the first report."""
        self.run("consent", "slept-well", "allow")
        self.run("consent", "visit-groups", "--accept-epsilon0")

    def answers_surveys(self) -> None:
        """One is delivered, one waits, one is above the limit."""
        self.run("report", "visit-groups", "3")
        self.run("report", "mean-visits", "3")
        self.run("report", "any-visit", "yes", "--queue")

    def _copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.folder, self.folder.with_name(f"device-{name}")))

    def set_back(self) -> Path:
        """A copy whose memory is the one of the beginning, beside the head of now."""
        copy = self._copy("set-back")
        for file in copy.glob("outbox.db*"):
            if file.is_file() and not file.name.endswith(".head"):
                file.unlink()
        shutil.copy(self.new / "outbox.db", copy / "outbox.db")
        return copy

    def damaged(self) -> Path:
        """A copy where a disk changed an entry and an answer."""
        copy = self._copy("damaged")
        database = sqlite3.connect(copy / "outbox.db")
        database.execute("PRAGMA ignore_check_constraints = ON")
        for (name,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("UPDATE ledger SET body = x'00' WHERE number = 12")
        database.execute("UPDATE consent SET answer = 'alloweD'")
        database.commit()
        database.close()
        return copy


def take(device: Device, looks: dict[str, tuple[int, bool]], shoot: Shoot) -> None:
    """All of them, and what somebody sees who was not let in."""
    of = {
        device.folder: PAGES,
        device.new: NEW,
        device.set_back(): SET_BACK,
        device.damaged(): DAMAGED,
    }
    with browser() as running:
        for folder, pages in of.items():
            with owners_console(folder / "agent.toml", quiet=False) as url:
                context = running.new_context()
                page = context.new_page()
                page.goto(url)
                page.wait_for_url("**/questions")
                base = url.partition("/open")[0]
                for look, (width, dark) in looks.items():
                    page.set_viewport_size({"width": width, "height": 844})
                    page.emulate_media(color_scheme="dark" if dark else "light")
                    for name, path in pages.items():
                        page.goto(f"{base}{path}")
                        shoot(page, name, look)
                    if pages is NEW:
                        stranger = running.new_page(
                            viewport={"width": width, "height": 844},
                            color_scheme="dark" if dark else "light",
                        )
                        stranger.goto(url)
                        shoot(stranger, "owner-stranger", look)
                        stranger.close()
                context.close()
