"""Words that nobody listed, found by real services: a shuffler and an analyzer in processes of
their own, TLS, a fleet that follows from level to level by the shuffler's catalogue.

The words are those of this project's pages. Estimates lie within 9 of their standard errors of the
truth: dummies are Poisson, the chance of a false alarm is below 1e-9 each. A word that 6 standard
errors more devices than the threshold have is missed with a chance below 1e-8; half a false word is
expected at most, and 6 or more have a chance of 2e-5.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.results.checkable import checkable
from shoal.checker.check import check_releases
from shoal.checker.findings import Outcome
from shoal.cli.demo.workspace import Site, prepare
from shoal.cli.main import main
from shoal.clients.agent import Agent
from shoal.clients.core import ReportState, assign, seal
from shoal.clients.owner.policy import Policy
from shoal.clients.settings.config import AgentConfig
from shoal.clients.transports.grpc_transport import GrpcTransport
from shoal.crypto.discovery_steps import DiscoveryStep, check_step, sign_step
from shoal.crypto.keyfiles import load_signing_key
from shoal.crypto.step_folder import STEPS_FOLDER
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.mechanisms.several.levels import level_of
from shoal.mechanisms.several.registry import create
from shoal.protos.release_pb2 import Release
from shoal.questions.spelling import ANOTHER, MORE, shown, spell
from shoal.services.settings import load_settings
from tests.sizes import FULL, size
from tests.worlds import discoveries
from tests.worlds.operations import agreed
from tests.worlds.ports import free_port
from tests.worlds.services.releasing import running

SIMULATED = size(1_200, 20_000)
LENGTH_S = size(10, 150)
EPSILON = float(size(3, 1))  # of one window
MOST_FALSE = 5
OWN = "the"  # the agent's word


def checked(
    asked: discoveries.Asked, words: tuple[str, ...], releases: dict[int, Release]
) -> dict[str, float]:
    """The words that were found, each with its estimate, once all that was said of every level
    holds.
    """
    made, discovery = create(asked.task.mechanism, asked.discovery), asked.discovery
    found, bound = dict[str, float](), 0.0
    level = discovery.level(0)
    for release in (releases[window] for window in sorted(releases)):
        told = release.discovered
        assert (told.level, release.n, release.withheld) == (level.number, len(words), "")
        truth = Counter(shown(spell(word, level.depth)) for word in words)
        assert [row.label for row in release.estimates] == [
            *map(shown, told.beginnings),
            ANOTHER,
        ]
        for row in release.estimates[:-1]:
            assert abs(row.value - truth[row.label]) < 9 * row.stderr, row
            assert row.value >= told.threshold
            if not row.label.endswith(MORE) or level.is_last:
                found[row.label] = row.value
        error = level_of(made, level).expected_stderr(release.n)
        bound = max(bound, told.threshold + 6 * error)
        assert told.no_room == 0
        after = discovery.after(level.number, told.beginnings)
        if after is not None:
            level = after
    truth = Counter(shown(spell(word, discovery.longest)) for word in words)
    assert {word for word, count in truth.items() if count >= bound} <= found.keys()
    assert len(found.keys() - truth.keys()) <= MOST_FALSE
    return found


async def answers_otherwise(site: Site, asked: discoveries.Asked, window: int) -> None:
    """Devices that answer something else than the window asks are not among those that do: one was
    told a step of the analyzer's that this shuffler never heard, one names its task alone.
    """
    key = load_signing_key(site.analyzer_config.parent / "signing.key")
    trusted = trust_task(asked.signed_task, {site.authority.public})
    assignment = assign(trusted, trust_schedule(asked.signed_schedule, trusted))
    level = asked.discovery.level(1, [b"\x00\x01"])
    step = DiscoveryStep(asked.task_id, window, level, Digest.of(b"none"))
    transport = GrpcTransport(site.shuffler_address, site.ca)
    try:
        for private, kind in ((True, Kind.UNKNOWN_TASK), (False, Kind.INVALID)):
            assignment.steps.clear()
            assignment.sealers.clear()
            if private:
                assignment.steps[window] = sign_step(step, asked.discovery, key)
            prepared = seal(assignment, window, (bytes(asked.task.report_size),))
            with pytest.raises(ShoalError) as refused:
                await transport.submit(prepared.frame, prepared.ack_key, 30.0)
            assert refused.value.kind is kind
    finally:
        await transport.close()


async def answers(agent: Agent, heard: discoveries.Heard, window: int) -> bool:
    """One device of its own, which hears what it hears. Whether it was in time."""
    for step in heard.steps.values():
        agent.tasks.step(step.data)
    try:
        outcome = await agent.report(heard.asked.task.name, OWN, window=window)
    except ShoalError as error:
        if error.kind is not Kind.WINDOW_CLOSED:
            raise
        return False
    assert outcome.state is ReportState.ACKED, outcome
    return True


def agent_of(site: Site, folder: Path) -> Agent:
    policy = Policy(frozenset({site.authority.public}), 1.0, 10, {"tests": "allowed"})
    return Agent(AgentConfig(site.folder / "tasks", folder / "outbox.db", policy))


@pytest.mark.timeout(size(300, 3_000))
async def test_words_are_found_level_by_level(tmp_path: Path) -> None:
    """One device is an agent, which answers no window before it knows what that asks.

    Planted: the fleet answers every window as level 0 -> nothing of level 1 is found; the analyzer
    follows what was below the threshold too -> a step that is not of its release; the shuffler
    takes whatever a report names -> see ``answers_otherwise``.
    """
    site = prepare(tmp_path, free_port)
    discovery = Discovery(first=2, longest=size(4, 8), most=size(31, 128))
    words = (*discoveries.words_of_pages(SIMULATED), OWN)

    def ask(pace: float) -> discoveries.Asked:
        return discoveries.ask(
            site,
            discovery,
            len(words),
            windows=discovery.levels + 6,
            length_s=round(LENGTH_S * pace),
            epsilon=EPSILON,
        )

    async with discoveries.asking(site, ask) as (asked, _, _), agent_of(site, tmp_path) as agent:
        heard = discoveries.Heard(site, asked)
        await agent.accept(asked.task.name)
        with pytest.raises(ShoalError) as early:
            agent.tasks.check_open(agent.tasks.all()[0], 0.0, 1)
        assert early.value.kind is Kind.UNAVAILABLE
        window, signed_step, answered = 0, b"", list[int]()
        while True:
            came = await discoveries.answer(site, asked, words[:-1], window, signed_step)
            if came == len(words) - 1:  # else the window was over too soon, and is lost
                if len(answered) == 1:
                    await answers_otherwise(site, asked, window)
                if await answers(agent, heard, window):
                    answered.append(window)
            step, signed_step = await heard.after(window)
            if step.is_over:
                break
            window = step.window
        agent.tasks.step(signed_step)
        with pytest.raises(ShoalError) as over:
            agent.tasks.check_open(agent.tasks.all()[0], 0.0, step.window)
        assert over.value.kind is Kind.WINDOW_CLOSED
        releases = await discoveries.releases_of(site, asked)
    assert sorted(releases) == answered
    assert len(answered) == discovery.levels
    files = [data for _, data in checkable(load_settings(AnalyzerConfig, site.analyzer_config))]
    checks = list(check_releases(files, [site.authority.public]))
    assert [check.outcome for check in checks] == [Outcome.HOLDS] * len(answered), checks
    found = checked(asked, words, releases)
    assert OWN in found


@pytest.mark.timeout(size(300, 1_500))
async def test_a_lost_window_and_killed_services_cost_no_level(tmp_path: Path) -> None:
    """Window 1 is asked level 1, and then shuffler and analyzer are killed, and nobody answers it.
    Started again they ask the same level in a later window, with the same beginnings.

    Planted: the analyzer keeps no step -> it asks level 1 of window 1 anew in every run (and signs
    the same bytes: nothing to be seen); a repeated step follows what it likes -> this fails.
    """
    site = prepare(tmp_path, free_port)
    discovery = Discovery(first=2, longest=3, most=size(31, 128))
    words = discoveries.words_of_pages(SIMULATED)

    def ask(pace: float) -> discoveries.Asked:
        length_s = round(LENGTH_S * pace)
        return discoveries.ask(
            site, discovery, len(words), windows=12, length_s=length_s, epsilon=EPSILON
        )

    async with discoveries.asking(site, ask) as (asked, shuffler, analyzer):
        heard = discoveries.Heard(site, asked)
        begun = await discoveries.answer_in_time(heard, words, 0, b"")
        first, _ = await heard.after(begun)
        for one in (shuffler, analyzer):
            assert one.pid is not None
            os.kill(one.pid, signal.SIGKILL)
    async with running(site):
        again, signed_step = await heard.after(first.window)
        assert again.window > first.window + 1
        assert (again.level, again.release) == (first.level, first.release)
        ended = await discoveries.answer_in_time(heard, words, again.window, signed_step)
        step, _ = await heard.after(ended)
        releases = await discoveries.releases_of(site, asked)
    assert step.is_over
    assert sorted(releases) == [begun, ended]
    checked(asked, words, releases)


@pytest.mark.skipif(not FULL, reason="waits for windows to pass; SHOAL_FULL=1 runs it")
@pytest.mark.timeout(900)
async def test_withheld_levels_end_with_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All devices answer level 0, half of them each window after it: too few, so the shuffler
    withholds level 1 again and again, until the task has no window left. What level 0 found stands,
    and the command says why nothing follows.

    Planted: what was found not told without a last level -> no word, fails.
    """
    site = prepare(tmp_path, free_port)
    discovery = Discovery(first=2, longest=4, most=31)
    words = ("a",) * 200 + ("ship",) * 120 + ("shoal",) * 80

    def ask(pace: float) -> discoveries.Asked:
        length_s = round(20 * pace)
        return discoveries.ask(site, discovery, len(words), windows=5, length_s=length_s, epsilon=3)

    async with discoveries.asking(site, ask) as (asked, _, _):
        heard, late = discoveries.Heard(site, asked), list[int]()
        begun = await discoveries.answer_in_time(heard, words, 0, b"")
        step, signed_step = await heard.after(begun)
        while step.window not in late:
            assert step.level is not None
            assert step.level.number == 1
            late.append(step.window)
            assert await discoveries.answer(site, asked, words[::2], step.window, signed_step)
            with suppress(RuntimeError):  # there is none
                step, signed_step = await heard.after(step.window)
        show = ["discover", "show", asked.task.name, "--config", str(site.analyzer_config)]
        assert await asyncio.to_thread(main, [*show, "--watch"]) == 0
        watched = capsys.readouterr().out
        assert main([*show, "--json"]) == 0
        releases = await discoveries.releases_of(site, asked)
    assert {window for window, one in releases.items() if not one.withheld} == {begun}
    rows = {row.label: row for row in releases[begun].estimates}
    assert {"a", f"sh{MORE}"} <= rows.keys()
    assert abs(rows["a"].value - 200) < 9 * rows["a"].stderr
    told = json.loads(capsys.readouterr().out)
    assert told["state"] == "ran out"
    assert [word["label"] for word in told["words"]] == ["a"]
    assert f"sh{MORE}" in {branch["label"] for branch in told["tree"]}
    assert "windows are over, and not all levels were asked" in watched
    assert "1 word found" in watched


@pytest.mark.skipif(not FULL, reason="waits for windows to pass; SHOAL_FULL=1 runs it")
@pytest.mark.timeout(600)
async def test_an_analyzer_of_an_older_copy_goes_on_with_the_shufflers_steps(
    tmp_path: Path,
) -> None:
    """The analyzer loses its disk while devices answer level 1. Its copy is of window 0: it lacks
    that release, so that window is given up, and what was asked since. With the shuffler's files it
    releases level 1 as what devices answered, and goes on to the end, with steps that follow from
    theirs.

    Planted: without the shuffler's files -> nothing follows level 1, it waits and fails.
    """
    site = prepare(tmp_path, free_port)
    discovery = Discovery(first=2, longest=4, most=31)
    words = discoveries.words_of_pages(400)
    asked = discoveries.ask(site, discovery, len(words), windows=8, length_s=20, epsilon=3.0)
    heard, file = discoveries.Heard(site, asked), tmp_path / "copy"
    window, signed_step, told = 0, b"", list[DiscoveryStep]()
    config, steps = str(site.analyzer_config), site.analyzer_data / STEPS_FOLDER
    async with running(site) as (_, analyzer):
        assert main(["backup", "--analyzer", config, "--out", str(file)]) == 0
        while not told or not told[-1].is_over:
            await discoveries.answer(site, asked, words, window, signed_step)
            if len(told) == 1:
                analyzer.stop()
                shutil.rmtree(site.analyzer_data)
                assert main(["restore", str(file), "--config", config, *agreed()]) == 0
                gone = [asked.task.name, "0", "--config", config, "--reason", "its key", "--yes"]
                assert main(["analyzer", "window", "abandon", *gone]) == 0
                shutil.copytree(site.folder / "shuffler" / "data" / STEPS_FOLDER, steps)
                analyzer.start()
                await analyzer.ready()
            step, signed_step = await heard.after(window)
            check_step(step, told, discovery)
            told.append(step)
            window = step.window
        releases = await discoveries.releases_of(site, asked)
    levels = [releases[window].discovered.level for window in sorted(releases)]
    assert (sorted(releases)[0], levels) == (told[0].window, [1, 2])
    assert not any(release.withheld for release in releases.values())
