"""``shoal agent``: its commands over a real folder, a real outbox file and a far end without a
network; words, JSON, exit status.
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys

import pytest

from shoal.cli.main import main
from shoal.clients.memory.commitments_sqlite import SqliteCommitments
from shoal.clients.memory.ledger import Head, LedgerEntry, LedgerEvent
from tests.cases import for_each
from tests.worlds.devices.owner import OTHER, Owner

COMMANDS = (
    "run", "report", "flush", "status", "explain", "learn", "consent", "ledger", "budget",
)  # fmt: skip


@for_each("command", COMMANDS)
def test_every_command_has_help_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["agent", command, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert f"shoal agent {command} --config agent.toml" in out
    assert re.search(r"--config +FILE", out)


@pytest.mark.parametrize(
    "arguments",
    [
        ["consent", "visits", "allowed"],
        ["consent", "visits", "allow", "extra"],
        ["ledger", "--since", "-1"],
        ["ledger", "--since", "x"],
        ["ledger", "--task"],
        ["explain"],
        ["budget", "visits"],
        ["forget"],
    ],
)
def test_arguments_that_no_command_has_are_usage_errors(owner: Owner, arguments: list[str]) -> None:
    """One line that says where help is, as of every command. Planted: argparse's own error, of
    several lines -> this fails.
    """
    code, out, err = owner.run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("shoal: ")
    assert re.search(r": see shoal agent.* --help\n$", err)
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["status", "ledger", "budget", "consent", "explain", "run"])
def test_a_mistake_in_the_configuration_is_one_line(owner: Owner, command: str) -> None:
    owner.write(policy="lifetime_epsilon = 0")
    code, out, err = owner.run(command, *(["visits"] if command == "explain" else []))
    assert (code, out) == (2, "")
    assert (
        err == "shoal: agent.toml: policy.lifetime_epsilon: a number above 0; "
        "leave it out for no budget\n"
    )


# --- ledger and budget ----------------------------------------------------------------------------


def test_the_ledger_in_json_and_in_words(owner: Owner) -> None:
    """Planted: entries after --since off by one, --task by any substring, the hash left out ->
    fails.
    """
    owner.write(policy="lifetime_epsilon = 10.0")
    owner.remember()
    found = owner.json("ledger")
    assert set(found) == {"entries", "head", "verified", "budget"}
    assert found["verified"] is True
    assert found["budget"] == {"limit": 10.0, "spent": 6.500000001, "left": 3.499999999}
    first = found["entries"][0]
    assert (first["number"], first["event"], first["task"], first["window"]) == (
        1,
        "reported",
        "visits",
        0,
    )
    assert (first["task_id"], first["at_s"], first["at"]) == (
        owner.world.task_id.hex,
        1_800_000_000,
        "2027-01-15 08:00:00 UTC",
    )
    assert first["details"] == {
        "reason": "reason 0\x1b[2J",
        "epsilon_charged": 3.0,
        "epsilon_spent_after": 3.0,
    }
    assert found["head"] == {"count": 3, "hash": found["entries"][-1]["hash"]}
    assert [one["number"] for one in owner.json("ledger", "--since", "2")["entries"]] == [3]
    assert [one["number"] for one in owner.json("ledger", "--task", OTHER.hex[:8])["entries"]] == [
        2
    ]
    assert [one["number"] for one in owner.json("ledger", "--task", "visits")["entries"]] == [
        1,
        2,
        3,
    ]
    assert owner.json("ledger", "--task", OTHER.hex[:7])["entries"] == []
    code, out, err = owner.run("ledger")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 5
    assert "\x1b" not in out
    line = (
        f"1 2027-01-15 08:00:00 UTC reported task visits ({owner.world.task_id.short}) window 0: "
    )
    assert out.splitlines()[0] == line + "reason reason 0?[2J; charged 3; spent in all 3"
    assert f"head 3:{found['head']['hash']}" in out
    assert "budget: epsilon 6.501 of 10 spent, 3.499 left" in out


def test_a_head_that_was_noted_before_is_verified(owner: Owner) -> None:
    """Planted: only the count compared -> the fourth passes."""
    owner.remember()
    entries = owner.json("ledger")["entries"]
    for count in (1, 3):
        assert owner.run("ledger", "--verify", f"{count}:{entries[count - 1]['hash']}")[0] == 0
    assert owner.run("ledger", "--verify", f"0:{'00' * 32}")[0] == 0
    for head, code, words in (
        (f"2:{entries[2]['hash']}", 1, "ledger: entry 2 does not verify"),
        (f"4:{entries[2]['hash']}", 1, "ledger: entry 4 does not verify"),
        ("nonsense", 2, "COUNT:HEX"),
        ("2:zz", 2, "COUNT:HEX"),
    ):
        found, out, err = owner.run("ledger", "--verify", head, "--json")
        assert (found, out) == (code, "")
        assert words in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        (
            "UPDATE ledger SET body = CAST(replace(body, 'reason 1', 'reason 7') AS BLOB) WHERE "
            "number = 2",
            2,
        ),
        ("DELETE FROM ledger WHERE number = 3", 3),
        ("DELETE FROM ledger WHERE number = 1", 1),
        ("DELETE FROM ledger", 1),
    ],
)
def test_a_ledger_that_somebody_changed_is_refused_in_one_line_that_names_the_entry(
    owner: Owner, change: str, entry: int
) -> None:
    """Exit status 1, nothing on stdout. Planted: shown before verified -> fails."""
    owner.remember()
    database = sqlite3.connect(owner.outbox)
    for (trigger,) in database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall():
        database.execute(f"DROP TRIGGER {trigger}")
    database.execute(change)
    database.commit()
    database.close()
    for arguments in ((), ("--json",), ("--since", "3")):
        code, out, err = owner.run("ledger", *arguments)
        assert (code, out) == (1, "")
        assert f"ledger: entry {entry} does not verify" in err
        assert err.count("\n") == 1


def test_a_ledger_whose_file_was_taken_is_missed(owner: Owner) -> None:
    """Its head lies beside it. Planted: no look at the head where there is no outbox -> an empty
    ledger verifies.
    """
    owner.remember()
    owner.outbox.unlink()
    code, out, err = owner.run("ledger")
    assert (code, out) == (1, "")
    assert "entry 1 does not verify" in err
    assert not owner.outbox.exists()


def test_a_device_that_never_ran_has_nothing_and_gets_no_file(owner: Owner) -> None:
    """Nor a tasks folder is wanted. Planted: the store opened all the same -> the file appears."""
    for path in (owner.folder / "tasks").iterdir():
        path.unlink()
    (owner.folder / "tasks").rmdir()
    found = owner.json("ledger")
    assert found == {
        "entries": [],
        "head": {"count": 0, "hash": "00" * 32},
        "verified": True,
        "budget": {"limit": None, "spent": 0.0, "left": None},
    }
    assert owner.json("budget") == {"limit": None, "spent": 0.0, "left": None, "tasks": []}
    assert "no entries" in owner.run("ledger")[1]
    assert not owner.outbox.exists()


def test_the_budget_by_task(owner: Owner) -> None:
    """Rounded in the owner's favour: spent up, left down. Planted: the other way round -> fails."""
    owner.remember()
    code, out, _ = owner.run("budget")
    assert (code, out.splitlines()[0]) == (
        0,
        "budget: none is set (policy.lifetime_epsilon); answers have cost epsilon 6.501 so far",
    )
    owner.write(policy="lifetime_epsilon = 6.0")
    found = owner.json("budget")
    assert (found["limit"], found["spent"], found["left"]) == (6.0, 6.500000001, 0.0)
    assert {(one["task_id"], one["windows"], one["epsilon"]) for one in found["tasks"]} == {
        (owner.world.task_id.hex, 2, 6.0),
        (OTHER.hex, 1, 0.500000001),
    }
    assert "of 6 spent, 0 left" in owner.run("budget")[1]
    assert re.search(rf"\({OTHER.short}\): epsilon 0.5001 for 1 window\n", owner.run("budget")[1])


def test_a_fleets_limit_is_the_budget(owner: Owner) -> None:
    (owner.folder / "fleet.toml").write_text("lifetime_epsilon = 7.5\nmin_batch_floor = 50\n")
    owner.write(top='fleet = "fleet.toml"')
    assert owner.json("budget")["limit"] == 7.5


def test_what_is_entered_while_the_ledger_is_verified_is_not_shown_as_verified(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running agent appends at any time. Planted: all entries shown -> four, under a head of
    three.
    """
    owner.remember()
    verify = SqliteCommitments.verify

    def then_append(commitments: SqliteCommitments) -> Head:
        head = verify(commitments)
        commitments.append(LedgerEntry(LedgerEvent.PROBLEM, 1_800_000_009))
        return head

    monkeypatch.setattr(SqliteCommitments, "verify", then_append)
    found = owner.json("ledger")
    assert (len(found["entries"]), found["head"]["count"]) == (3, 3)
    assert found["entries"][-1]["hash"] == found["head"]["hash"]


# --- status, explain, consent ---------------------------------------------------------------------


def test_the_status_shows_rules_budget_and_what_of_the_fleets_file_has_no_effect(
    owner: Owner,
) -> None:
    (owner.folder / "fleet.toml").write_text(
        'max_epsilon0 = 9.0\n[[rules]]\npurpose = "to plan clinics"\nat_most = 8\n'
    )
    owner.write(
        top='fleet = "fleet.toml"',
        consent="allowed",
        more='[[rules]]\ntask = "visits"\nround_to = 2\n[[rules]]\ntask = "x"\nat_most = 1\n',
    )
    found = owner.json("status")
    (task,) = found["tasks"]
    assert task["rules"] == [
        "task visits: rounded down to a multiple of 2",
        'purpose "to plan clinics" (by the fleet): at most 8',
    ]
    assert (task["consent"], task["refusal"], task["memoized"]) == ("allowed", None, False)
    assert found["budget"] == {"limit": None, "spent": 0.0, "left": None}
    assert len(found["notes"]) == 1
    code, out, _ = owner.run("status")
    assert code == 0
    assert "  rule: task visits: rounded down to a multiple of 2\n" in out
    assert "fleet.toml: no effect: max_epsilon0 = 9" in out
    assert "budget: none is set" in out


def test_the_status_says_when_the_budget_is_used_up(owner: Owner) -> None:
    """Planted: the policy's verdict alone -> the task "may be answered" in both."""
    owner.remember()  # 6.5 are spent, and a report costs a little less than 3
    for limit, answer in (
        (9.6, "may be answered"),
        (9.0, "would send nothing: the budget does not pay for another window"),
    ):
        owner.write(consent="allowed", policy=f"lifetime_epsilon = {limit}")
        code, out, _ = owner.run("status")
        assert code == 0
        assert f"  consent: allowed; {answer}\n" in out


def test_a_task_is_explained(owner: Owner) -> None:
    """The same lines in both forms, and nothing in them steers a terminal. Planted: the book's
    numbers not passed on -> fails.
    """
    owner.write(consent="allowed", policy="lifetime_epsilon = 10.0")
    owner.remember()
    found = owner.json("explain", owner.world.task_id.hex[:8])
    code, out, _ = owner.run("explain", "visits")
    assert code == 0
    assert out.splitlines() == found["explanation"]
    assert (found["task"], found["purpose"], found["consent"], found["refusal"]) == (
        "visits",
        "to plan clinics",
        "allowed",
        None,
    )
    assert "So far 2 windows were answered, which cost epsilon 6." in out
    assert "cost epsilon 6.501 of 10; 3.499 are left" in out
    code, out, err = owner.run("explain", "nobody")
    assert (code, out) == (1, "")
    assert 'no task "nobody"' in err


def test_consent_by_task_name_by_purpose_and_back(owner: Owner) -> None:
    """Planted: "ask" stored as a denial -> the third fails; the answer stored for the task's name
    -> the first fails.
    """
    listed = {
        "purpose": "to plan clinics",
        "consent": "not asked",
        "written": None,
        "answered": None,
        "fleet": None,
        "tasks": ["visits"],
    }
    assert owner.json("consent") == [listed]
    steps: list[tuple[tuple[str, ...], str, str | None]] = [
        (("visits", "allow"), "allowed", "allowed"),
        (("to plan clinics", "deny"), "denied", "denied"),
        ((owner.world.task_id.hex[:8], "ask"), "not asked", None),
        (("visits", "allow"), "allowed", "allowed"),
    ]
    for arguments, consent, answered in steps:
        (row,) = owner.json("consent", *arguments)
        assert row == {**listed, "consent": consent, "answered": answered, "withdrawn": 0}
        (task,) = owner.json("status")["tasks"]
        assert task["consent"] == consent
    code, out, _ = owner.run("consent")
    assert (code, out) == (
        0,
        'purpose "to plan clinics": allowed (allowed by command); tasks: visits\n',
    )
    (row,) = owner.json("consent", "visits")
    assert row["consent"] == "allowed"
    events = [
        one["details"] for one in owner.json("ledger")["entries"] if one["event"] == "consent"
    ]
    assert [one["answer"] for one in events] == ["allowed", "denied", "not asked", "allowed"]


def test_denying_deletes_what_waits_and_says_so(owner: Owner) -> None:
    """Planted: the answer stored and nothing withdrawn -> the report is still queued."""
    owner.run("consent", "visits", "allow")
    assert owner.json("report", "visits", "3", "--queue")["state"] == "queued"
    code, out, _ = owner.run("consent", "visits", "deny")
    assert code == 0
    assert out.splitlines() == [
        "1 report that waited was deleted",
        'purpose "to plan clinics": denied (denied by command); tasks: visits',
    ]
    (report,) = owner.json("status")["reports"]
    assert report["state"] == "withdrawn"
    assert "withdrawn: deleted" in owner.run("status")[1]
    code, _, err = owner.run("report", "visits", "3")
    assert code == 1
    assert "shoal agent consent visits allow" in err
    assert "withdrawn" in [one["event"] for one in owner.json("ledger")["entries"]]


def test_what_the_configuration_or_the_fleet_denies_no_command_allows(owner: Owner) -> None:
    owner.write(consent="denied")
    code, out, _ = owner.run("consent", "visits", "allow")
    assert code == 0
    assert (
        out
        == 'purpose "to plan clinics": denied (denied in the configuration, allowed by command); '
        "tasks: visits\n"
    )
    (owner.folder / "fleet.toml").write_text(
        'purposes_allowed = []\n[purposes]\n"other" = "denied"\n'
    )
    owner.write(consent="allowed", top='fleet = "fleet.toml"')
    assert [(row["purpose"], row["consent"], row["fleet"]) for row in owner.json("consent")] == [
        ("other", "denied", "denied"),
        ("to plan clinics", "denied", "denied"),
    ]


def test_a_purpose_that_nobody_knows_wants_to_be_meant(owner: Owner) -> None:
    """A mistyped task is no new purpose. Planted: unknown words taken as a purpose -> code 0."""
    code, out, err = owner.run("consent", "vists", "allow")
    assert (code, out) == (2, "")
    assert "--purpose" in err
    code, out, _ = owner.run("consent", "Planning of buses", "deny", "--purpose")
    assert (code, out) == (
        0,
        'purpose "Planning of buses": denied (denied by command); no task asks for it\n',
    )
    assert owner.run("consent", "Planning of buses", "ask")[0] == 0
    owner.run("consent", "visits", "deny", "--purpose")
    code, _, err = owner.run("consent", "visits", "allow")
    assert code == 1
    assert "is a task and a purpose" in err


def test_a_large_epsilon0_is_accepted_for_the_task_alone_and_taken_back(owner: Owner) -> None:
    """Planted: the acceptance stored by purpose or for all tasks -> the ledger's entry has no task;
    not looked at in status -> refused.
    """
    owner.write(consent="allowed")
    text = (
        (owner.folder / "agent.toml")
        .read_text()
        .replace("max_epsilon0 = 4.0", "max_epsilon0 = 2.0")
    )
    (owner.folder / "agent.toml").write_text(text)
    (task,) = owner.json("status")["tasks"]
    assert "shoal agent consent visits --accept-epsilon0" in task["refusal"]
    code, out, _ = owner.run("consent", "visits", "--accept-epsilon0")
    assert (code, out.splitlines()[1:]) == (0, ["  it may be answered"])
    assert "epsilon0 = 3, for this task alone" in out
    assert owner.json("status")["tasks"][0]["refusal"] is None
    assert owner.json("report", "visits", "3", "--queue")["state"] == "queued"
    assert owner.json("budget")["spent"] < 1.0  # what the certificate guarantees, not 3
    found = owner.json("consent", "visits", "ask", "--accept-epsilon0")
    assert (found["accepted_epsilon0"], "--accept-epsilon0" in found["refusal"]) == (None, True)
    accepted = [
        one for one in owner.json("ledger")["entries"] if "accepted_epsilon0" in one["details"]
    ]
    assert [(one["task"], one["details"]["accepted_epsilon0"]) for one in accepted] == [
        ("visits", pytest.approx(3.0)),
        ("visits", None),
    ]
    for wrong in (
        ("visits", "allow", "--accept-epsilon0"),
        ("to plan clinics", "--purpose", "--accept-epsilon0"),
    ):
        code, out, err = owner.run("consent", *wrong)
        assert (code, out) == (2, "")
        assert "--accept-epsilon0 is about one task" in err


def test_a_single_pass_measures_charges_and_keeps_what_it_cannot_send(owner: Owner) -> None:
    """From the file of a source to the ledger, without a shuffler. Planted: the rules of the
    configuration not applied -> 9 is kept.
    """
    source = '[sources.visits]\nkind = "json"\nfile = "n.json"\npointer = "/n"\n'
    owner.write(
        consent="allowed",
        more=(
            f'{source}[[rules]]\ntask = "visits"\nat_most = 4\n[ledger]\nkeep_values = '
            "true\n[send]\ngap_s = 0\n"
        ),
    )
    (owner.folder / "n.json").write_text('{"n": 9}')
    code, out, _ = owner.run("run", "--once")
    assert code == 0
    assert out.startswith("task visits, window 0: queued, not sent yet (")
    (report,) = owner.json("status")["reports"]
    assert (report["state"], report["window"]) == ("queued", 0)
    (entry,) = [one for one in owner.json("ledger")["entries"] if one["event"] == "reported"]
    assert (entry["details"]["value"], entry["details"]["first_report"]) == (4, True)
    assert "json" in entry["details"]["source"]
    assert "true value 4" in owner.run("ledger")[1]
    assert entry["details"]["delta_charged"] == 0
    assert "delta" not in owner.run("ledger")[1]
    assert owner.json("budget")["spent"] == pytest.approx(3.0, abs=1e-6)


def test_a_broker_that_is_away_is_told_once(owner: Owner) -> None:
    """In a process of its own: only there nobody has configured logging. Planted: leave the link's
    log alone -> JSON on stderr.
    """
    owner.write(
        consent="allowed", more='[mqtt]\nbroker = "127.0.0.1:1"\ninsecure = true\nuplink = true\n'
    )
    program = "import sys; from shoal.cli.main import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["agent", "report", "--config", str(owner.folder / "agent.toml"), "visits", "3"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "queued, not sent yet (nobody listens" in done.stdout
