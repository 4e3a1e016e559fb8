"""Commands answer what they answered in earlier versions, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vectors.frozen_corpus import (
    COMMANDS,
    VERSIONS,
    again,
    differences,
    first_difference,
    recorded,
    run,
    transcript,
    unpack,
)


def _answered(name: str, version: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is answered otherwise today than in a transcript."""
    archive, now = COMMANDS[name]
    monkeypatch.chdir(unpack(archive, folder, version) if archive else folder)
    before = transcript(name, version)
    assert len(recorded(before)) > 8
    return differences(before, again(before, now))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["epsilon", "plan"])
def test_the_accountant_and_the_planner(
    version: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``shoal epsilon``, ``audit`` and ``plan``, and the tasks that a plan writes.

    Planted: "honest_fraction" of a certificate as "honest_part"; "method" before "relation";
    "honest_share" in an emitted task -> each fails, and the line is shown.
    """
    assert _answered(name, version, tmp_path, monkeypatch) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_an_operators_desk(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are linted, signed and shown, keys and key schedules made, a load planned: with the
    same keys and random bytes the files are the same, and so are their ids.

    Planted: the windows of a schedule in reverse; "retention_s" of ``task show --json`` as
    "retention" -> each fails, and the line is shown.
    """
    assert _answered("desk", version, tmp_path, monkeypatch) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["agent", "older", "services"])
def test_what_programs_left_is_read_and_gone_on_with(
    version: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device's memory, an older copy of it beside a newer head, and both services' folders.

    The commands show what is in them, and ``shoal agent`` goes on: it queues reports, takes consent
    and acceptance back, and confirms what was lost, with the same entries, hashes and charges.

    Planted: the ledger read in the order of its hashes; "epsilon_spent_after" of an entry under
    another name -> each fails, and the line is shown.
    """
    assert _answered(name, version, tmp_path, monkeypatch) == []


def test_what_counts_as_the_same() -> None:
    """Planted: no look at the number of lines -> an answer that was cut is the same."""
    before = '{"a": 0.12345678901234567, "b": 0.5, "c": 12, "d": 6338750102434780504}\nend\n'
    assert first_difference(before, before.replace("234567,", "234568,")) is None
    assert first_difference(before, before.replace("780504", "750489")) is None
    for other in (
        before.replace("6338750102", "6338750122"),
        before.replace("0.123456", "0.123457"),
        before.replace("0.5", "0.50000000001"),
        before.replace("12,", "13,"),
        before.replace('"b"', '"e"'),
        before.replace("end\n", ""),
        before + "more\n",
    ):
        assert first_difference(before, other), other


def test_a_failure_is_part_of_an_answer() -> None:
    """Planted: the exit status left out -> this fails."""
    refused = "shoal epsilon --mechanism rr --epsilon0 -2 --n 10"
    assert run(refused, 1_800_000_100.0) == "(exit status 2)\n"
