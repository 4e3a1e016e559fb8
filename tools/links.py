"""Make .links/shoal: one link per package folder and per entry of common/, so that type checkers
see ``shoal.*``.

Type checkers can't follow an editable installation of mapped folders. ``make lint`` and ``make
links`` make the links anew each time, so they are neither committed nor ever stale. Editors can be
pointed at .links too.
"""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "protos",
    "crypto",
    "mechanisms",
    "accounting",
    "clients",
    "shuffler",
    "analyzer",
    "checker",
    "study",
    "console",
    "cli",
)


def wanted() -> dict[str, Path]:
    """Link name -> the folder or file of the source tree that it stands for."""
    links = {name: ROOT / name for name in PACKAGES}
    for entry in sorted((ROOT / "common").iterdir()):
        if entry.name != "__pycache__":
            links[entry.name] = entry
    return links


def make(root: Path) -> None:
    """Write ``root``/shoal anew.

    Raises:
        OSError: it can't be written.
    """
    folder = root / "shoal"
    shutil.rmtree(folder, ignore_errors=True)  # removes links, never what they lead to
    folder.mkdir(parents=True)
    for name, target in wanted().items():
        (folder / name).symlink_to(target)


if __name__ == "__main__":
    make(ROOT / ".links")
