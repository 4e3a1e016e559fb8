"""What a person types is an answer to the question, or refused before anything is charged; what a
source says counts as the owner wrote.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.owner.rules import Rule, settle
from shoal.clients.settings.config import AgentConfig
from shoal.domain import NO_ANSWER, Categories, Domain, Numeric, Value, YesNo
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.worlds.devices.clients import make_world
from tests.worlds.devices.owner import Owner, owner_at
from tests.worlds.devices.runner import HOUR, Place

Capture = pytest.CaptureFixture[str]
DEGREES = Categories(("Bachelors", "Masters"))


def at(folder: Path, capsys: Capture, domain: Domain, mechanism: str) -> Owner:
    owner = owner_at(folder, capsys)
    owner.world = make_world(
        start=int(owner.world.task.windows.start_s),
        domain=domain,
        mechanism=mechanism,
        epsilon0=1.0,
    )
    for path in (folder / "tasks").iterdir():
        path.unlink()
    owner.write(consent="allowed")
    return owner


@for_each(
    "domain, mechanism, typed, said",
    [
        (YesNo(), "binary_rr", "maybe", "yes or no"),
        (YesNo(), "binary_rr", ">50K", "yes or no"),
        (DEGREES, "krr", "Bachelor", '"Bachelors", "Masters"'),
        (DEGREES, "krr", "masters", '"Bachelors", "Masters"'),
        (Numeric(0, 40, 5), "kmean", "thirty", "a number from 0 to 40"),
        (Numeric(0, 40, 5, clip=False), "kmean", "41", "a number from 0 to 40"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_was_mistyped_is_refused_and_costs_nothing(
    tmp_path: Path, capsys: Capture, domain: Domain, mechanism: str, typed: str, said: str
) -> None:
    """Planted: the check left out -> "maybe" is queued as "no", charged, and this fails."""
    owner = at(tmp_path, capsys, domain, mechanism)
    code, out, err = owner.run("report", owner.world.task.name, typed, "--queue")
    assert (code, out) == (2, "")
    assert said in err
    assert typed not in err.split("give ")[0]
    assert err.count("\n") == 1
    assert owner.json("status")["reports"] == []
    assert owner.json("budget")["spent"] == 0


@pytest.mark.parametrize(
    ("domain", "mechanism", "typed"),
    [
        (YesNo(), "binary_rr", " YES"),
        (DEGREES, "krr", " Bachelors "),
        (Numeric(0, 40, 5), "kmean", "2.5e1"),
    ],
)
def test_blanks_around_an_answer_are_no_mistake(
    tmp_path: Path, capsys: Capture, domain: Domain, mechanism: str, typed: str
) -> None:
    owner = at(tmp_path, capsys, domain, mechanism)
    code, out, _ = owner.run("report", owner.world.task.name, typed, "--queue")
    assert code == 0
    assert "queued" in out
    # A window is answered once: the next one is ignored, but not before it was an answer.
    assert owner.run("report", owner.world.task.name, "nonsense", "--queue")[0] == 2
    assert owner.run("report", owner.world.task.name, "--no-answer", "--queue")[0] == 0


@for_each(
    "value, rules, otherwise, settled",
    [
        ("Masters", (), None, "Masters"),
        (None, (), None, None),
        ("Dr.", (), NO_ANSWER, None),
        ("Dr.", (), "Masters", "Masters"),
        ("Dr.", (), "Magister", None),  # no answer either
        ("MSc", (Rule(task="visits", replace={"MSc": "Masters"}),), None, "Masters"),
        ("Masters", (Rule(task="visits", redact=("Masters",)),), None, None),
    ],
)
def test_what_a_value_becomes(
    value: Value, rules: tuple[Rule, ...], otherwise: str | None, settled: Value
) -> None:
    """Planted: the value looked at before the rules -> "MSc", which the owner's rule makes an
    answer of, is refused: this fails.
    """
    task = make_world(domain=DEGREES, mechanism="krr", epsilon0=1.0).task
    assert settle(rules, task, value, otherwise) == settled


@pytest.mark.parametrize("rules", [(), (Rule(task="visits", round_to=10),)])
def test_what_is_no_answer_is_refused_where_it_was_typed(rules: tuple[Rule, ...]) -> None:
    """Also where a rule that does not fit it makes nothing of it. Planted: a rule's "no answer"
    taken for the person's -> fails.
    """
    task = make_world(domain=DEGREES, mechanism="krr", epsilon0=1.0).task
    with pytest.raises(ShoalError) as caught:
        settle(rules, task, "Dr.", None)
    assert caught.value.kind is Kind.INVALID
    assert "Dr." not in str(caught.value)


@pytest.mark.parametrize(
    ("otherwise", "counted"),
    [("", b"\0"), ('otherwise = "yes"\n', b"\1"), ('otherwise = "perhaps"\n', b"\0")],
)
async def test_what_a_source_says_counts_as_its_owner_wrote(
    tmp_path: Path, otherwise: str, counted: bytes
) -> None:
    """Never refused: a device that stayed away would tell. Next to no noise: fewer than 3 of 5
    right has probability 4e-10.

    Planted: ``otherwise`` not passed on -> the windows are refused, and this waits for ever; always
    "no answer" -> fails for "yes".
    """
    here = Place(
        tmp_path,
        make_world(length=HOUR, count=5, domain=YesNo(), mechanism="binary_rr", epsilon0=8.0),
    )
    text = here.config_text().replace("max_epsilon0 = 4.0", "max_epsilon0 = 9.0")
    (tmp_path / "agent.toml").write_text(
        text.replace("[sources.visits]\n", f"[sources.visits]\n{otherwise}")
    )
    (tmp_path / "state.json").write_text('{"visits": "many"}')
    async with here.running():
        await here.until(lambda: len(here.far.contents) == 5)
    assert len(here.entries(LedgerEvent.REPORTED)) == 5
    assert sum(here.world.reports(frame) == [counted] for frame in here.far.frames) >= 3


def test_an_empty_otherwise_is_refused(tmp_path: Path) -> None:
    here = Place(tmp_path, make_world())
    (tmp_path / "agent.toml").write_text(
        here.config_text().replace("[sources.visits]\n", '[sources.visits]\notherwise = " "\n')
    )
    with pytest.raises(ShoalError, match=r"sources\.visits\.otherwise"):
        AgentConfig.load(tmp_path / "agent.toml")
