"""The lock of a running agent. With processes and signals:
tests/integration/agent/test_agent_run.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.clients.service.instance_lock import Hold
from shoal.errors import Kind, ShoalError
from tests.worlds.devices.runner import place_at


def refused(outbox: Path) -> ShoalError:
    with pytest.raises(ShoalError) as caught:
        Hold(outbox)
    assert "\n" not in caught.value.message
    return caught.value


def test_one_has_it_until_it_lets_go(tmp_path: Path) -> None:
    """flock(2) counts opened files: two of one process are two. Planted: LOCK_SH -> both have it;
    no ``resolve`` -> the link has it too.
    """
    outbox = tmp_path / "outbox.db"
    one, other = Hold(outbox), Hold(tmp_path / "other.db")
    assert (tmp_path / "outbox.db.run").stat().st_mode & 0o777 == 0o600
    outbox.touch()
    (tmp_path / "link.db").symlink_to(outbox)
    for name in (outbox, tmp_path / "link.db"):
        error = refused(name)
        assert (
            error.kind,
            error.message.startswith(f"another agent runs on this outbox: {name}: "),
        ) == (Kind.CONFIG, True)
    one.release()
    Hold(outbox).release()
    other.release()


def test_where_no_file_can_be_made_it_says_so(tmp_path: Path) -> None:
    assert refused(tmp_path / "nowhere" / "outbox.db").kind is Kind.CONFIG


def test_a_reload_keeps_it_and_takes_the_next_before_it_lets_go(tmp_path: Path) -> None:
    """The same file under another name is no other outbox. Planted: names compared as they are
    written -> the agent refuses itself.
    """
    runner, elsewhere = place_at(tmp_path).runner(), tmp_path / "folder"
    elsewhere.mkdir()
    outbox, taken = tmp_path / "outbox.db", Hold(elsewhere / "taken.db")
    runner._take(outbox)
    runner._take(elsewhere / ".." / "outbox.db")
    with pytest.raises(ShoalError):
        runner._take(elsewhere / "taken.db")
    refused(outbox)  # still its own
    taken.release()
    runner._take(elsewhere / "taken.db")
    Hold(outbox).release()
    runner._release()
    Hold(elsewhere / "taken.db").release()
