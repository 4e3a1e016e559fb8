"""A discovery of which each device answers one window alone, by real services: who draws which
window, and that nobody answers another.

Devices draw with the code of agents. Estimates lie within 9 of their standard errors of the truth
(dummies are Poisson: below 1e-9 each); a window has too few devices in 1e-3 of all runs.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.discovery.drawn import at_a_window, chance_of_few
from shoal.analyzer.results.checkable import checkable
from shoal.checker.check import check_releases
from shoal.checker.findings import Outcome
from shoal.cli.demo.workspace import prepare
from shoal.clients.agent import Agent
from shoal.clients.core import ReportState, assign
from shoal.clients.memory.commitments_memory import MemoryCommitments
from shoal.clients.owner.policy import Policy
from shoal.clients.reports.own_window import draw_window
from shoal.clients.settings.config import AgentConfig
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Discovery
from shoal.entropy import SYSTEM
from shoal.questions.spelling import ANOTHER, MORE, shown, spell
from shoal.services.settings import load_settings
from tests.sizes import size
from tests.worlds import discoveries
from tests.worlds.ports import free_port
from tests.worlds.services.releasing import running

SIMULATED = size(1_200, 20_000)
WINDOWS = 6  # two levels, and four for windows that a slow machine loses
LENGTH_S = size(8, 60)
EPSILON = 2.0
AGENTS = 3


def drawn(asked: discoveries.Asked, authority: bytes, words: tuple[str, ...]) -> list[list[str]]:
    """The words of the devices that drew each window, each device by itself."""
    trusted = trust_task(asked.signed_task, {authority})
    assignment = assign(trusted, trust_schedule(asked.signed_schedule, trusted))
    crowds: list[list[str]] = [[] for _ in range(WINDOWS)]
    for word in words:
        own = draw_window(assignment, MemoryCommitments(), SYSTEM, 0.0)
        assert own is not None
        assert own.window is not None
        crowds[own.window].append(word)
    return crowds


@pytest.mark.timeout(size(120, 900))
async def test_levels_are_asked_of_devices_of_their_own(tmp_path: Path) -> None:
    """The fleet follows from level to level; some devices are agents, which are asked in every
    window and answer one of them at most. Planted: agents answer every window -> two reports of
    one; the checker composes all windows -> not the epsilon of one; everybody answers level 0 ->
    its release has all of them.
    """
    site = prepare(tmp_path, free_port)
    discovery = Discovery(first=1, longest=2, most=8, fresh=True)
    words = discoveries.words_of_pages(SIMULATED)
    least = at_a_window(SIMULATED, WINDOWS)
    assert chance_of_few(SIMULATED, WINDOWS, least) < 1e-3
    asked = discoveries.ask(
        site, discovery, least, windows=WINDOWS, length_s=LENGTH_S, epsilon=EPSILON, room=None
    )
    crowds = drawn(asked, site.authority.public, words)
    policy = Policy(frozenset({site.authority.public}), 1.0, 10, {"tests": "allowed"})
    heard, states = discoveries.Heard(site, asked), Counter[tuple[int, ReportState]]()
    answered = list[int]()
    async with running(site), AsyncExitStack() as stack:
        agents = list[Agent]()
        for number in range(AGENTS):
            outbox = tmp_path / f"device-{number}" / "outbox.db"
            outbox.parent.mkdir()
            config = AgentConfig(site.folder / "tasks", outbox, policy)
            agents.append(await stack.enter_async_context(Agent(config)))
            await agents[-1].accept(asked.task.name)
        window, signed_step = 0, b""
        while True:
            await discoveries.answer(site, asked, tuple(crowds[window]), window, signed_step)
            for number, agent in enumerate(agents):
                if signed_step:
                    agent.tasks.step(signed_step)
                outcome = await agent.report(asked.task.name, "the", window=window)
                states[number, outcome.state] += 1
            answered.append(window)
            step, signed_step = await heard.after(window)
            if step.is_over:
                break
            window = step.window
        releases = await discoveries.releases_of(site, asked)
        spent = [agent.memory.commitments.spent() for agent in agents]
    assert sorted(releases) == answered
    assert len(answered) == discovery.levels
    reports = Counter[int]()
    for (number, state), count in states.items():
        assert state in {ReportState.ACKED, ReportState.NOT_ASKED}
        reports[number] += count * (state is ReportState.ACKED)
    assert set(reports.values()) <= {0, 1}
    for number in range(AGENTS):
        assert (spent[number] > 0) == (reports[number] == 1)
        assert spent[number] <= round(EPSILON * 1e9) + 1
    came = sum(release.n for release in releases.values())
    assert came == sum(len(crowds[window]) for window in answered) + reports.total()
    for window in answered:
        release, depth = releases[window], discovery.first + releases[window].discovered.level
        assert least <= release.n <= len(crowds[window]) + AGENTS
        truth = Counter(shown(spell(word, depth)) for word in crowds[window])
        for row in release.estimates:
            if row.label != ANOTHER:
                assert abs(row.value - truth[row.label]) < 9 * row.stderr + AGENTS, row
    assert {row.label for row in releases[0].estimates} > {f"t{MORE}"}
    files = [data for _, data in checkable(load_settings(AnalyzerConfig, site.analyzer_config))]
    checks = list(check_releases(files, [site.authority.public]))
    assert [check.outcome for check in checks] == [Outcome.HOLDS] * len(answered), checks
    told = [one.why for check in checks for one in check.checked if "together" in one.what]
    assert any("a device answers in one window" in why for why in told), told
