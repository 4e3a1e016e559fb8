"""What can be seen of keys before a task is published: that no other task uses them, and that their
owners have them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shoal import codec
from shoal.cli.output import read_bytes
from shoal.crypto.keyfiles import load_hpke_key
from shoal.crypto.suites import PublicKeyConfig
from shoal.crypto.trust import SCHEDULE_SUFFIX
from shoal.errors import Kind, ShoalError
from shoal.task import KeySchedule


def check_apart(schedule: KeySchedule, folder: Path) -> None:
    """Raises CONFIG if the schedule of another task in this folder names one of its analyzer keys.

    An analyzer's key is deleted when its window is released: another task's window would be left
    without. A hop key may serve many tasks, and best does.
    """
    own = {window.analyzer_key for window in schedule.windows}
    for path in sorted(folder.glob(f"*{SCHEDULE_SUFFIX}")):
        try:
            other = codec.decode_schedule(codec.decode_signed_schedule(read_bytes(path)).data)
        except ShoalError:
            continue  # none of ours
        if other.task_id != schedule.task_id and not own.isdisjoint(
            window.analyzer_key for window in other.windows
        ):
            raise ShoalError(
                Kind.CONFIG,
                f"{path.name}: another task uses the same analyzer keys, and each is deleted with "
                "its window: make new ones",
            )


def check_held(keys: Iterable[PublicKeyConfig], folder: Path, whose: str) -> None:
    """Raises KEY_FILE if one of the private keys is not in ``folder``, or can't be read there.
    ``whose``: "analyzer" or "shuffler".
    """
    for config in dict.fromkeys(keys):
        path = folder / f"{config.key_id.hex}.key"
        if load_hpke_key(path).config.key_id != config.key_id:
            raise ShoalError(
                Kind.KEY_FILE,
                f"{path} holds another key than its name says: put the {whose}'s right file there",
            )
