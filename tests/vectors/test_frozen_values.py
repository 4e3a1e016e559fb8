"""What a person would look at in frozen folders: counts, states, sums; and nothing is damaged."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shoal.analyzer.config import AnalyzerConfig
from shoal.clients.settings.config import AgentConfig
from shoal.services.settings import load_settings
from shoal.shuffler.config import ShufflerConfig
from tests.vectors.frozen_corpus import COMMANDS, FROZEN, run, unpack

FIRST = "0001"


def _asked(folder: str, command: str) -> Any:
    return json.loads(run(f"shoal {command} --json", COMMANDS[folder][1]))


def test_a_devices_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """17 answers, each with the end that it had; what they cost; the ledger holds; nothing is lost.

    Planted: an unknown outcome shown as a refused one; another mark of rows, by which nearly every
    report is damaged -> each fails.
    """
    monkeypatch.chdir(unpack("agent", tmp_path, FIRST))
    status = _asked("agent", "agent status --config agent.toml")
    states = Counter(one["state"] for one in status["reports"])
    assert states == {"acked": 12, "queued": 2, "refused": 1, "unknown": 1, "withdrawn": 1}
    assert status["budget"] == {"limit": 100.0, "spent": 48.558429492, "left": 51.441570508}
    assert len(status["tasks"]) == 11
    ledger = _asked("agent", "agent ledger --config agent.toml")
    assert (ledger["verified"], ledger["head"]["count"]) == (True, 65)
    events = Counter(one["event"] for one in ledger["entries"])
    assert (events["reported"], events["problem"], events["withdrawn"]) == (17, 1, 1)
    memory = _asked("agent", "agent memory --config agent.toml")
    assert (memory["set_back"], memory["damaged"], memory["verified"]) == (False, [], True)


def test_an_analyzers_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Window 0: reports counted as they came, estimates that add up, sums with their devices.

    Planted: one more in every n -> this fails.
    """
    monkeypatch.chdir(unpack("services", tmp_path, FIRST))
    found = _asked("services", "results list --data analyzer/data")
    counted = {(one["name"], one["window"]): one["n"] for one in found}
    assert counted == {
        ("colours", 0): 3,
        ("hours", 0): 4,
        ("moments", 0): 4,
        ("visits", 0): 6,
        ("weights", 0): 6,
    }
    for one in found:
        assert (one["withheld"], one["damaged"], sum(one["rejected"].values())) == (None, 0, 0)
    (visits,) = (one for one in found if one["name"] == "visits")
    assert sum(cell["value"] for cell in visits["estimates"]) == pytest.approx(6.0)
    assert visits["privacy"]["epsilon0"] == pytest.approx(3.0, abs=1e-9)
    assert sum(visits["processed"]["counts"]) == 6


def test_samples_of_configurations() -> None:
    """As an operator may have them on disk since then: every key is still known.

    Planted: "outbox" of agent.toml, "delivery_delay_max_s" of shuffler.toml under another name
    -> each fails.
    """
    samples = FROZEN / FIRST / "samples"
    agent = AgentConfig.load(samples / "agent.toml")
    assert (agent.outbox, agent.policy.max_epsilon0) == (Path("/var/lib/shoal/outbox.db"), 4.0)
    shuffler = load_settings(ShufflerConfig, samples / "shuffler.toml")
    analyzer = load_settings(AnalyzerConfig, samples / "analyzer.toml")
    assert shuffler.delivery_delay_max_s == 600.0
    assert analyzer.allowed_shufflers == ["shuffler.internal"]
