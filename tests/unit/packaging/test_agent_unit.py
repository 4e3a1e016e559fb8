"""The agent's systemd unit: as locked in as the services, started as its sample says, with its
memory where the sample has it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from shoal.limits import LIMITS

ROOT = Path(__file__).resolve().parents[3]
# What each has of its own: where it is, what it is called, how much it may use.
OWN = {
    "Description",
    "User",
    "Group",
    "ExecStart",
    "StateDirectory",
    "MemoryMax",
    "LimitNOFILE",
    "TasksMax",
    "Environment",
}


def unit(role: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (ROOT / "deploy" / "systemd" / f"shoal-{role}.service").read_text().splitlines():
        if "=" in line and line[0] != "#":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_the_agent_is_as_locked_in_as_the_shuffler() -> None:
    """Planted: ProtectSystem=full, or a line left out -> this fails."""
    agent, shuffler = unit("agent"), unit("shuffler")
    assert {name: value for name, value in agent.items() if name not in OWN} == {
        n: v for n, v in shuffler.items() if n not in OWN
    }
    assert agent["Environment"] == ["MALLOC_ARENA_MAX=2"]


def test_the_agent_is_started_reloaded_and_stopped_as_it_wants_it() -> None:
    agent = unit("agent")
    assert agent["ExecStart"] == ["/opt/shoal/bin/shoal agent run --config /etc/shoal/agent.toml"]
    assert agent["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert int(agent["TimeoutStopSec"][0]) > LIMITS.drain_s
    assert agent["User"] == agent["Group"] == ["shoal-agent"]


def test_the_sample_keeps_its_memory_where_the_unit_lets_it_write() -> None:
    """The only folder that it may write. Planted: an outbox in /etc/shoal -> this fails."""
    sample = tomllib.loads((ROOT / "deploy" / "agent.toml").read_text())
    assert Path(sample["outbox"]).is_relative_to(
        Path("/var/lib") / unit("agent")["StateDirectory"][0]
    )
    assert sample["tasks"].startswith("/etc/shoal/")
