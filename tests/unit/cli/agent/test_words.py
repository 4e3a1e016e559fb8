"""What ``shoal agent`` says to an owner who made a mistake, or whose machine is in trouble."""

from __future__ import annotations

import json
import tomllib

import pytest

from shoal.cli.agent import command
from shoal.cli.main import main
from shoal.clients.agent import Agent, ReportOutcome
from shoal.clients.core import ReportState
from shoal.clients.memory.device_memory import Memory
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.worlds.devices.owner import Owner


@for_each(
    "arguments, expected",
    [
        (
            ["--config", "agent.toml", "run"],
            "--config goes after the command: shoal agent run --config FILE ...",
        ),
        (
            ["--config=agent.toml", "status"],
            "--config goes after the command: shoal agent status --config FILE ...",
        ),
        (
            ["--json", "--config", "a\x1b.toml", "budget"],
            "--json goes after the command: shoal agent budget --config FILE ...",
        ),
        (
            ["--config", "agent.toml"],
            "--config goes after the command: shoal agent COMMAND --config FILE ...",
        ),
    ],
)
def test_an_option_before_its_command_is_told_where_it_belongs(
    capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    """Planted: left to argparse, which takes the file for a command -> this fails."""
    assert main(["agent", *arguments]) == 2
    assert capsys.readouterr().err == f"shoal: {expected}\n"


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_goes_anywhere(capsys: pytest.CaptureFixture[str], option: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["agent", option])
    assert stop.value.code == 0
    assert "Examples:" in capsys.readouterr().out


# --- sources --------------------------------------------------------------------------------------


def test_status_names_a_source_that_no_task_has(owner: Owner) -> None:
    """Planted: nothing said of a source whose name is wrong, or whose task_id is another's; or of
    one that is read -> this fails.
    """
    source = '\n[sources.{}]\nkind = "json"\nfile = "state.json"\n{}'
    task_id, other = (
        owner.world.task_id,
        "0a1b2c3d" if owner.world.task_id.hex[0] != "0" else "1a1b2c3d",
    )
    owner.write(more=source.format("visits", f'task_id = "{task_id.short}"\n'))
    assert owner.json("status")["notes"] == []
    owner.write(more=source.format("visist", ""))
    expected = "[sources.visist] matches no task that this device knows: known are visits"
    assert owner.json("status")["notes"] == [expected]
    assert owner.run("status")[1].splitlines()[-1] == expected
    owner.write(more=source.format("visits", f'task_id = "{other}"\n'))
    (note,) = owner.json("status")["notes"]
    assert note.endswith(
        f"knows: the id of the task of that name is {task_id.short}, and task_id is {other}"
    )
    owner.write(more=source.format("visits", ""))
    (owner.folder / "tasks" / "visits.keys").unlink()
    found = owner.json("status")
    assert (list(found["problems"]), found["notes"]) == (["visits"], [])
    (owner.folder / "tasks" / "visits.task").unlink()
    assert owner.json("status")["notes"] == [
        "[sources.visits] matches no task that this device knows: none is known yet"
    ]


# --- a disk that is full --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "at"), [("deny", "answer"), ("ask", "answer"), ("deny", "opening")]
)
def test_a_no_that_cannot_be_kept_says_what_needs_no_write(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, word: str, at: str
) -> None:
    """And what it says is true: the line, put into the file, denies. Planted: the disk's message
    alone -> this fails.
    """
    full = ShoalError(
        Kind.OVERLOADED,
        "outbox outbox.db: the disk is full, failing or busy: make room, then again",
    )

    def failing(*_: object, **__: object) -> None:
        raise full

    owner.write(consent="allowed")
    owner.json("status")
    with monkeypatch.context() as patch:
        patch.setattr(Memory, "answer" if at == "answer" else "__init__", failing)
        code, out, err = owner.run("consent", "visits", word)
        assert (code, out) == (1, "")
        assert err.count("\n") == 1
        assert err.startswith(
            f"shoal: {full.message}; the answer was not kept. To deny it all the same, write "
        )
        assert "in agent.toml and send SIGHUP" in err
        assert ('"to plan clinics" = "denied" under [policy.purposes]' in err) == (at == "answer")
        assert "not kept. To deny" not in owner.run("consent", "visits", "allow")[2]
    assert owner.json("status")["tasks"][0]["consent"] == "allowed"
    owner.write(consent="denied")
    with monkeypatch.context() as patch:
        patch.setattr(Memory, "retract", failing)
        assert json.loads(owner.run("status", "--json")[1])["tasks"][0]["consent"] == "denied"
        code, _, err = owner.run("report", "visits", "3")
        assert (code, "its purpose is denied" in err) == (1, True)


def test_the_line_that_is_told_is_toml(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a purpose's words are, and none of them steers a terminal. Planted: the words as
    they are -> this fails.
    """
    purpose = 'a "b" \\ c\x1b[2J\x7f \u202e é 😀'

    def failing(*_: object) -> None:
        raise ShoalError(Kind.OVERLOADED, "full")

    monkeypatch.setattr(Memory, "answer", failing)
    err = owner.run("consent", purpose, "deny", "--purpose")[2]
    line = err.partition(", write ")[2].partition(" under ")[0]
    assert tomllib.loads(line) == {purpose: "denied"}
    assert line.isprintable()


# --- exit status ----------------------------------------------------------------------------------


def test_a_report_that_waits_is_ok_but_not_after_flush(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the help says so. Planted: 0 for a flush that delivered nothing, 1 without a line that
    says why -> this fails.
    """
    owner.write(consent="allowed", more="[send]\ndeadline_s = 1\n")
    assert owner.run("flush") == (0, "nothing waits to be sent\n", "")
    code, out, err = owner.run("report", "visits", "3")  # nobody listens there
    assert (code, "queued, not sent yet" in out, err) == (0, True, "")
    line = (
        "shoal: not delivered: the report that waited; what still waits is tried again by the next "
        "flush\n"
    )
    code, out, err = owner.run("flush")
    assert (code, "queued, not sent yet" in out, err) == (1, True, line)
    code, out, err = owner.run("flush", "--json")
    assert (code, [one["state"] for one in json.loads(out)], err) == (1, ["queued"], line)
    acked, queued = (
        ReportOutcome("visits", owner.world.task_id, window, state, False, 1)
        for window, state in enumerate((ReportState.ACKED, ReportState.QUEUED))
    )
    for outcomes, status in (([acked], 0), ([acked, queued], 1)):

        async def flush(_: Agent, standing: list[ReportOutcome] = outcomes) -> list[ReportOutcome]:
            return standing

        monkeypatch.setattr(Agent, "flush", flush)
        code, _, err = owner.run("flush")
        assert (code, err.partition(";")[0]) == (
            status,
            "shoal: not delivered: 1 of 2 reports" if status else "",
        )
    with pytest.raises(SystemExit):
        main(["agent", "flush", "--help"])
    assert "1 unless everything that waited was delivered" in owner.capsys.readouterr().out


def test_a_pass_with_nothing_to_send_says_why_of_each_question(owner: Owner) -> None:
    """Planted: the one line for all reasons (as it was) -> fails at the first."""
    source = '[sources.visits]\nkind = "json"\nfile = "n.json"\npointer = "/n"\n'
    (owner.folder / "n.json").write_text('{"n": 3}')
    for consent, more, why in (
        ("allowed", "", "no [sources.visits] in agent.toml"),
        (None, source, "its purpose was never agreed to"),
        ("denied", source, "its purpose is denied"),
    ):
        owner.write(consent=consent, more=more)
        code, out, err = owner.run("run", "--once")
        assert code == 0, err
        assert f"\n  visits: {why}" in out


def test_who_waits_for_the_shuffler_is_told_that_ctrl_c_loses_nothing(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the patience of a person is over, and not before. Planted: the word never said -> fails
    at the second.
    """
    owner.write(consent="allowed")
    assert owner.run("report", "visits", "3", "--queue")[2] == ""
    monkeypatch.setattr(command, "_PATIENCE_S", 0.0)
    code, _, err = owner.run("report", "visits", "3")
    assert (code, "Ctrl-C loses nothing" in err, err.count("\n")) == (0, True, 1)
    assert owner.json("status")["reports"][0]["state"] == "queued"


def test_a_value_of_the_configuration_without_quotation_marks_is_told(owner: Owner) -> None:
    """Planted: the parser's "Invalid value" alone -> fails."""
    file = owner.folder / "agent.toml"
    file.write_text(file.read_text().replace("max_epsilon0 = 4.0", "max_epsilon0 = four"))
    code, _, err = owner.run("status")
    assert (code, err.count("\n")) == (2, 1)
    assert "line 6" in err
    assert "quotation marks" in err
