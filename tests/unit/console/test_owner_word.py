"""An owner's console where more is asked than the limit allows, and where the device's memory is
not whole: what is shown before the owner says yes, and that no yes means more than that.
"""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from shoal.clients.memory.device_memory import Memory
from shoal.console.owner.door import Door
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.unit.analyzer.results.test_report_page import Page
from tests.unit.clients.memory.test_damaged_memory import flipped
from tests.unit.console.test_owner import POSTED, browser, door, stranger
from tests.worlds.devices.owner import Owner

__all__ = ("browser", "door", "stranger")  # fixtures


def strict(owner: Owner, *, limit: float = 2.0, top: str = "") -> None:
    """A limit below what the world's question gives away; its purpose is allowed."""
    owner.write(consent="allowed", top=top)
    file = owner.folder / "agent.toml"
    file.write_text(file.read_text().replace("max_epsilon0 = 4.0", f"max_epsilon0 = {limit}"))


def post(browser: TestClient, path: str, fields: dict[str, str | None]) -> tuple[int, str]:
    """The answer, and the words of the page that it leads to."""
    sent = {name: value for name, value in fields.items() if value is not None}
    answer = browser.post(path, data=sent, headers=POSTED)
    if answer.status_code == 303:
        return 303, Page(browser.get(answer.headers["location"]).text).text
    return answer.status_code, Page(answer.text).text


def seen_on(browser: TestClient, path: str) -> str:
    """What the form of a page says that its reader saw."""
    found = re.search(r'name="seen" value="([^"]*)"', browser.get(path).text)
    assert found is not None
    return found[1]


def refusal(owner: Owner) -> str | None:
    (task,) = owner.json("status")["tasks"]
    told: str | None = task["refusal"]
    return told


# --- more than the limit --------------------------------------------------------------------------


def test_more_than_the_limit_is_accepted_once_its_odds_were_shown(
    owner: Owner, browser: TestClient, door: Door
) -> None:
    """As by the command, for this question, and no wider than shown; and taken back. Planted: an
    infinite epsilon accepted -> the ledger says so; the way back left out; a word taken twice,
    when the limit is high enough by then -> fails.
    """
    strict(owner)
    path = f"/questions/{owner.world.task_id.hex}"
    assert f"{path}#above" in browser.get("/questions").text
    text = Page(browser.get(path).text).text
    assert "right at most 95.3 % of the time: epsilon 3" in text
    assert "holds that to 88.1 %" in text
    fields: dict[str, str | None] = {
        "seal": door.seal,
        "answer": "accept",
        "seen": seen_on(browser, path),
    }
    status, text = post(browser, f"{path}/accept", fields)
    assert (status, "for this question alone" in text, "Take that back" in text) == (
        303,
        True,
        True,
    )
    assert refusal(owner) is None
    entry = owner.json("ledger")["entries"][-2:]
    assert 3.0 <= entry[0]["details"]["accepted_epsilon0"] < 3.0001
    assert owner.run("report", "visits", "3", "--queue")[0] == 0
    strict(owner, limit=4.0)
    status, text = post(browser, f"{path}/accept", fields)
    assert (status, "within your limit" in text) == (409, True)
    strict(owner)
    status, text = post(browser, f"{path}/accept", {**fields, "answer": "back"})
    assert (status, "not accepted" in text) == (303, True)
    assert "more than max_epsilon0 = 2" in str(refusal(owner))


@for_each(
    "fields, status, words",
    [
        ({"seal": "x"}, 403, "not sent by a page"),
        ({"answer": "yes"}, 400, '"accept" or "back"'),
        ({"answer": None}, 400, '"accept" or "back"'),
        ({"seen": "0x1.0p+1"}, 409, "not what the page said"),
        ({"seen": "inf"}, 409, "not what the page said"),
        ({"seen": None}, 409, "not what the page said"),
    ],
)
def test_a_wrong_acceptance_changes_nothing(
    owner: Owner,
    browser: TestClient,
    door: Door,
    fields: dict[str, str | None],
    status: int,
    words: str,
) -> None:
    """And is told on the question's page. Planted: what was seen not compared -> accepted."""
    strict(owner)
    path = f"/questions/{owner.world.task_id.hex}"
    seen = seen_on(browser, path)
    given = {"seal": door.seal, "answer": "accept", "seen": seen, **fields}
    answered, text = post(browser, f"{path}/accept", given)
    assert (answered, words in text, owner.world.task.question in text) == (status, True, True)
    assert refusal(owner) is not None
    by_name = post(browser, "/questions/visits/accept", {**given, **{"answer": "accept"}})
    assert by_name[0] in (403, 409)
    assert refusal(owner) is not None


@for_each(
    "limit, fleet, words",
    [
        (4.0, "", "within your limit"),
        (2.0, "max_epsilon0 = 2.5", "only tighten"),
    ],
)
def test_nobody_accepts_what_is_not_asked_or_not_theirs(
    owner: Owner, browser: TestClient, door: Door, limit: float, fleet: str, words: str
) -> None:
    """What is within the limit today would stay accepted under a lower one tomorrow; and a fleet's
    file stands above. Planted: either not looked at -> it is entered, and this fails.
    """
    strict(owner)
    path = f"/questions/{owner.world.task_id.hex}"
    seen = seen_on(browser, path)
    (owner.folder / "fleet.toml").write_text(f"{fleet}\n")
    strict(owner, limit=limit, top='fleet = "fleet.toml"')
    fields: dict[str, str | None] = {"seal": door.seal, "answer": "accept", "seen": seen}
    status, text = post(browser, f"{path}/accept", fields)
    assert (status, words in text, "Accept it" in text) == (409, True, False)
    assert "accepted_epsilon0" not in owner.run("ledger", "--json")[1]


def test_a_full_disk_does_not_keep_an_acceptance(
    owner: Owner, browser: TestClient, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how to deny without a write. Planted: the disk's message alone -> fails."""
    strict(owner)
    path = f"/questions/{owner.world.task_id.hex}"
    fields: dict[str, str | None] = {
        "seal": door.seal,
        "answer": "accept",
        "seen": seen_on(browser, path),
    }
    assert post(browser, f"{path}/accept", fields)[0] == 303

    def failing(*_: object, **__: object) -> None:
        raise ShoalError(Kind.OVERLOADED, "outbox outbox.db: the disk is full: make room")

    monkeypatch.setattr(Memory, "accept", failing)
    status, text = post(browser, f"{path}/accept", {**fields, "answer": "back"})
    assert (status, "[policy.purposes] in agent.toml" in text) == (503, True)


# --- a memory that is not whole -------------------------------------------------------------------


def test_a_memory_that_was_set_back_goes_on_by_its_owners_word(
    owner: Owner, browser: TestClient, door: Door
) -> None:
    """What was read is what is confirmed. Planted: what was seen not compared -> the first form,
    of a page that said less, is taken.
    """
    assert "whole" in Page(browser.get("/memory").text).text
    kept = owner.outbox.read_bytes()
    owner.remember()
    owner.outbox.write_bytes(kept)
    text = Page(browser.get("/memory").text).text
    assert "entries 1 to 3 are lost" in text
    assert "In all, epsilon 9.501 counts as spent" in text
    assert "/memory" in browser.get("/questions").text
    seen = seen_on(browser, "/memory")
    for wrong in ("", "x", seen[::-1]):
        status, text = post(browser, "/memory/confirm", {"seal": door.seal, "seen": wrong})
        assert (status, "not what the page said" in text) == (409, True)
    assert post(browser, "/memory/confirm", {"seal": "x", "seen": seen})[0] == 403
    assert owner.run("ledger")[0] == 1
    status, text = post(browser, "/memory/confirm", {"seal": door.seal, "seen": seen})
    assert (status, "the device answers again" in text) == (303, True)
    assert owner.json("ledger")["entries"][-1]["event"] == "set_back"
    assert owner.json("budget")["spent"] == pytest.approx(9.500000001)
    status, text = post(browser, "/memory/confirm", {"seal": door.seal, "seen": seen})
    assert (status, "nothing to confirm" in text) == (409, True)


def test_a_memory_that_the_disk_damaged_is_mended_by_its_owners_word(
    owner: Owner, browser: TestClient, door: Door
) -> None:
    """Planted: only what was set back looked at -> it "is whole", and this fails."""
    assert owner.run("consent", "visits", "allow")[0] == 0
    flipped(owner.outbox, "consent", "answer")
    text = Page(browser.get("/memory").text).text
    for words in ("Damaged", "A yes counts as not asked", "In all, epsilon 0 counts as spent"):
        assert words in text
    assert not re.search(r"[:,]\.", text)
    seen = seen_on(browser, "/memory")
    status, text = post(browser, "/memory/confirm", {"seal": door.seal, "seen": seen})
    assert (status, "replaced by what is safe" in text) == (303, True)
    assert owner.json("consent")[0]["consent"] == "not asked"
    assert owner.json("memory")["damaged"] == []
