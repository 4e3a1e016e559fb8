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
from shoal.cli.demo.workspace import Site, prepare
from shoal.clients.agent import Agent
from shoal.clients.core import ReportState, assign
from shoal.clients.fleet.remembering import RememberingDevices
from shoal.clients.owner.policy import Policy
from shoal.clients.settings.config import AgentConfig
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.protos.release_pb2 import Release
from shoal.questions.spelling import ANOTHER, MORE, shown, spell
from shoal.services.settings import load_settings
from tests.sizes import size
from tests.worlds import discoveries
from tests.worlds.ports import free_port

SIMULATED = size(4_000, 20_000)
ASKED = Discovery(first=1, longest=size(2, 4), most=size(24, 31), fresh=True)
WINDOWS = ASKED.levels + 6  # six for windows that a slow machine loses
LENGTH_S = size(8, 60)
EPSILON = 2.0
AGENTS = 3


def drawn(asked: discoveries.Asked, authority: bytes, words: tuple[str, ...]) -> list[list[str]]:
    """The words of the devices that drew each window, each device by itself."""
    trusted = trust_task(asked.signed_task, {authority})
    assignment = assign(trusted, trust_schedule(asked.signed_schedule, trusted))
    people = RememberingDevices(len(words))
    crowds = [
        [words[device] for device in people.asked(assignment, window, 0.0)]
        for window in range(WINDOWS)
    ]
    assert sum(map(len, crowds)) == len(words)
    return crowds


async def reported(agent: Agent, name: str, window: int) -> ReportState:
    """NOT_ASKED too where the window is over since, and nothing was sent."""
    try:
        outcome = await agent.report(name, "the", window=window)
    except ShoalError as error:
        if error.kind is not Kind.WINDOW_CLOSED:
            raise
        return ReportState.NOT_ASKED
    return outcome.state


def check_level(release: Release, crowd: list[str], least: int, followed: set[str]) -> set[str]:
    """What is told of a window, against the truth of those who drew it and some agents: nothing
    that is wrong, and all that is frequent, after those beginnings. What it tells.
    """
    assert least <= release.n <= len(crowd) + AGENTS
    depth, told = ASKED.first + release.discovered.level, release.discovered
    truth = Counter(shown(spell(word, depth)) for word in crowd)
    for row in release.estimates:
        if row.label != ANOTHER:
            assert abs(row.value - truth[row.label]) < 9 * row.stderr + AGENTS, row
    labels = {row.label for row in release.estimates} - {ANOTHER}
    enough = told.threshold + 6 * max(row.stderr for row in release.estimates)
    asked = {
        shown(spell(word, depth))
        for word in crowd
        if not told.level or shown(spell(word, depth - 1)) in followed - {word}  # else it is told
    }
    frequent = {label for label in asked if truth[label] >= enough and label.endswith(MORE)}
    assert told.no_room or frequent <= labels
    whole = {label for label in asked if truth[label] >= enough} - frequent
    assert whole <= labels
    return labels


def check_levels(releases: dict[int, Release], crowds: dict[int, list[str]], least: int) -> None:
    """``crowds``: of the windows that nobody missed."""
    found = set[str]()
    for window, release in sorted(releases.items()):
        if window in crowds:
            found = check_level(release, crowds[window], least, found)
        else:  # who came is not known
            found = {row.label for row in release.estimates}
    assert "the" in found or ASKED.longest < 4


async def agents_of(stack: AsyncExitStack, site: Site, folder: Path, name: str) -> list[Agent]:
    """Devices of their own, whose owners allow it."""
    policy = Policy(frozenset({site.authority.public}), 1.0, 10, {"tests": "allowed"})
    agents = list[Agent]()
    for number in range(AGENTS):
        outbox = folder / f"device-{number}" / "outbox.db"
        outbox.parent.mkdir()
        config = AgentConfig(site.folder / "tasks", outbox, policy)
        agents.append(await stack.enter_async_context(Agent(config)))
        await agents[-1].accept(name)
    return agents


@pytest.mark.timeout(size(300, 900))
async def test_levels_are_asked_of_devices_of_their_own(tmp_path: Path) -> None:
    """The fleet follows from level to level; some devices are agents, which are asked in every
    window and answer one of them at most. Planted: agents answer every window -> two reports of
    one; the checker composes all windows -> not the epsilon of one; everybody answers level 0 ->
    its release has all of them; the first beginning that came to the threshold not told -> fails.
    """
    site = prepare(tmp_path, free_port)
    words = discoveries.words_of_pages(SIMULATED)
    least = at_a_window(SIMULATED, WINDOWS)
    assert chance_of_few(SIMULATED, WINDOWS, least) < 1e-3

    def ask(pace: float) -> discoveries.Asked:
        return discoveries.ask(
            site,
            ASKED,
            least,
            windows=WINDOWS,
            length_s=round(LENGTH_S * pace),
            epsilon=EPSILON,
            room=None,
        )

    states, answered = Counter[tuple[int, ReportState]](), list[int]()
    came = Counter[int]()
    async with discoveries.asking(site, ask) as (asked, _, _), AsyncExitStack() as stack:
        crowds = drawn(asked, site.authority.public, words)
        heard = discoveries.Heard(site, asked)
        agents = await agents_of(stack, site, tmp_path, asked.task.name)
        window, signed_step = 0, b""
        while True:
            crowd = tuple(crowds[window])
            came[window] = await discoveries.answer(site, asked, crowd, window, signed_step)
            if came[window] == len(crowd):  # else the window was over too soon
                for number, agent in enumerate(agents):
                    if signed_step:
                        agent.tasks.step(signed_step)
                    states[number, await reported(agent, asked.task.name, window)] += 1
                answered.append(window)
            step, signed_step = await heard.after(window)
            if step.is_over:
                break
            window = step.window
        releases = await discoveries.releases_of(site, asked)
        spent = [agent.memory.commitments.spent() for agent in agents]
    assert set(answered) <= releases.keys() <= came.keys()
    levels = sorted(one.discovered.level for one in releases.values())
    assert levels == list(range(ASKED.levels))
    reports = Counter[int]()
    for (number, state), count in states.items():
        assert state in {ReportState.ACKED, ReportState.NOT_ASKED}
        reports[number] += count * (state is ReportState.ACKED)
    assert set(reports.values()) <= {0, 1}
    for number in range(AGENTS):
        assert (spent[number] > 0) == (reports[number] == 1)
        assert spent[number] <= round(EPSILON * 1e9) + 1
    counted = sum(release.n for release in releases.values())
    assert counted == sum(came[window] for window in releases) + reports.total()
    check_levels(releases, {window: crowds[window] for window in answered}, least)
    first = next(one for one in releases.values() if not one.discovered.level)
    # a seventh of all words begin with it: it is below the threshold in 1e-7 of all runs
    assert {row.label for row in first.estimates} > {f"t{MORE}"}
    files = [data for _, data in checkable(load_settings(AnalyzerConfig, site.analyzer_config))]
    checks = list(check_releases(files, [site.authority.public]))
    assert [check.outcome for check in checks] == [Outcome.HOLDS] * len(releases), checks
    told = [one.why for check in checks for one in check.checked if "together" in one.what]
    assert any("a device answers in one window" in why for why in told), told
