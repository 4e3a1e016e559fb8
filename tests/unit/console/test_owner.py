"""A device owner's console over a real device's folder: who gets in, what is shown, and that its
switches are those of `shoal agent consent`.
"""

from __future__ import annotations

import asyncio
import html
import re
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from shoal.clients.agent import Agent
from shoal.clients.core import ReportState, SealedReport
from shoal.clients.memory.commitments import NANO
from shoal.clients.memory.commitments_sqlite import SqliteCommitments
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.device_memory import Memory
from shoal.clients.memory.ledger import Detail, LedgerEntry, LedgerEvent
from shoal.clients.memory.outbox_sqlite import SqliteOutbox
from shoal.clients.owner.consent import DENIED
from shoal.clients.settings.config import AgentConfig
from shoal.console.owner.app import owner_app
from shoal.console.owner.door import Door
from shoal.digests import sha256
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.unit.analyzer.results.test_report_page import Page
from tests.worlds.devices.outbox import claim
from tests.worlds.devices.owner import Owner

HERE = "127.0.0.1:7460"
PATHS = ("/questions", "/answers", "/budget", "/ledger")
PURPOSE = "to plan clinics"
POSTED = {"origin": f"http://{HERE}", "sec-fetch-site": "same-origin"}


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.fixture
def stranger(owner: Owner, door: Door) -> Iterator[TestClient]:
    app = owner_app(owner.folder / "agent.toml", HERE, door)
    with TestClient(app, base_url=f"http://{HERE}", follow_redirects=False) as client:
        yield client


@pytest.fixture
def browser(stranger: TestClient, door: Door) -> TestClient:
    """The owner's, which opened the printed address."""
    assert stranger.get("/open", params={"word": door.word}).status_code == 200
    return stranger


def purpose_id(purpose: str = PURPOSE) -> str:
    return sha256(purpose.encode())[:16].hex()


def switch(client: TestClient, door: Door, answer: str, purpose: str = PURPOSE) -> tuple[int, str]:
    fields = {"seal": door.seal, "purpose": purpose_id(purpose), "answer": answer}
    answered = client.post("/consent", data=fields, headers=POSTED)
    if answered.status_code == 303:
        answered = client.get(answered.headers["location"])
        assert answered.status_code == 200
        return 303, Page(answered.text).text
    return answered.status_code, Page(answered.text).text


# --- the door -------------------------------------------------------------------------------------


@for_each("path", ["/", *PATHS, "/questions/visits", "/nowhere"])
def test_who_never_had_the_address_sees_nothing(owner: Owner, path: str) -> None:
    """Neither a page nor its name. Planted: pages given to who has no cookie, or the door left out
    of the app -> each fails.
    """
    client = TestClient(owner_app(owner.folder / "agent.toml", HERE, Door()), f"http://{HERE}")
    for cookie in ({}, {"shoal-owner": "x"}, {"shoal-owner-00000000": "\u00e9"}):
        lines = "; ".join(f"{name}={word}" for name, word in cookie.items())
        answer = client.get(path, headers={b"cookie": lines.encode("latin-1")} if lines else None)
        assert answer.status_code == 403
        assert PURPOSE not in answer.text
        assert "/ledger" not in answer.text
        assert "Only this device's owner" in Page(answer.text).text


def test_the_address_opens_once(stranger: TestClient, door: Door) -> None:
    """For one browser; and a wrong word does not use it up. Planted: ``_opened`` never set -> the
    second is let in; set by any word -> the first is not.
    """
    for word in ("", "x", door.word[:-1], f"{door.word}x"):
        assert stranger.get("/open", params={"word": word}).status_code == 403
    assert stranger.head("/open", params={"word": door.word}).status_code == 403
    first = stranger.get("/open", params={"word": door.word})
    assert first.status_code == 200
    kept = first.headers["set-cookie"]
    assert "HttpOnly" in kept
    assert "samesite=strict" in kept.lower()
    assert door.word not in kept
    assert door.word not in first.text
    again = stranger.get("/open", params={"word": door.word})
    assert (again.status_code, again.headers["location"]) == (303, "/questions")
    stranger.cookies.clear()
    assert stranger.get("/open", params={"word": door.word}).status_code == 403


def test_its_secrets_are_not_shown_by_accident(door: Door) -> None:
    """Planted: a dataclass's repr -> the word is in it."""
    assert door.word not in repr(door)
    assert len({door.word, door.seal, Door().word, Door().seal}) == 4


# --- pages ----------------------------------------------------------------------------------------


def test_questions_say_who_asks_what_and_what_is_drawn(owner: Owner, browser: TestClient) -> None:
    """Planted: the owner's refusal left out -> fails."""
    text = Page(browser.get("/questions").text).text
    task = owner.world.task
    for words in (task.question, task.purpose, task.name, "not asked", "epsilon \u2264 3", "krr"):
        assert words in text
    whole = Page(browser.get(f"/questions/{owner.world.task_id.hex}").text).text
    assert "Promised of one window" in whole
    assert browser.get("/questions/nothing").status_code == 404


@pytest.mark.parametrize("kept", [False, True])
def test_an_answer_is_shown_as_it_was_sent(owner: Owner, kept: bool) -> None:
    """With the answer that it says; the true value only where its owner has it kept. Planted: the
    draw without its label, details of an entry left out -> no
    report; an answer's value looked for elsewhere than in the ledger has nothing to be found in.
    """
    owner.write(consent="allowed", more="[ledger]\nkeep_values = true\n" if kept else "")
    assert owner.run("report", "visits", "3", "--queue")[0] == 0
    (entry,) = [one for one in owner.json("ledger")["entries"] if one["event"] == "reported"]
    door = Door()
    with TestClient(owner_app(owner.folder / "agent.toml", HERE, door), f"http://{HERE}") as client:
        client.get("/open", params={"word": door.word})
        page = Page(client.get("/answers").text).text
    sent = entry["details"]["report"]
    label = owner.world.task.domain.labels[int(sent, 16)]
    for words in ("visits, window 0", "waits", f"drawn by chance: {label}, and sent as {sent}"):
        assert words in page
    assert "epsilon 3" in page
    assert ("true value" in page.lower().replace("not the true value", "")) is kept


def test_the_ledger_says_whether_it_holds_and_where_not(owner: Owner, browser: TestClient) -> None:
    """Planted: entries shown unverified -> the altered one is; a head looked for and not compared
    -> that of another chain agrees.
    """
    owner.remember()
    count = owner.json("ledger")["head"]["count"]
    head = owner.json("ledger")["head"]["hash"]
    text = Page(browser.get("/ledger").text).text
    assert "the chain holds" in text
    assert f"{count}:{head}" in text
    assert "still begins with it" in Page(browser.get(f"/ledger?head={count}:{head}").text).text
    assert "written COUNT:HEX" in Page(browser.get("/ledger?head=much").text).text
    other = Page(browser.get(f"/ledger?head={count}:{'ab' * 32}").text).text
    assert f"entry {count} does not verify" in other
    assert "still begins with it" not in other
    with sqlite3.connect(owner.outbox) as database:
        for (name,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'ledger'"
        ).fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute(
            "UPDATE ledger SET body = CAST(replace(CAST(body AS TEXT), 'reason 1', 'reason 9') "
            "AS BLOB) WHERE number = 2"
        )
    database.close()
    text = Page(browser.get("/ledger").text).text
    assert "entry 2 does not verify" in text
    assert "reason 9" not in text


def _same(report: SealedReport) -> SealedReport:
    return report


def long_lived(owner: Owner, count: int) -> None:
    """A device that answered ``count`` windows, each with its entry."""
    owner.write(consent="allowed")
    store = AgentStore(owner.outbox)
    commitments, outbox = SqliteCommitments(store), SqliteOutbox(store)
    with commitments.transaction():
        for window in range(count):
            report = SealedReport(owner.world.task_id, window, b"f" * 64, b"k" * 32, window)
            claim(outbox, owner.world.task_id, window, partial(_same, report))
            outbox.finish(owner.world.task_id, window, ReportState.ACKED)
            commitments.charge(owner.world.task_id, window, NANO, None)
            details: dict[str, Detail] = {
                "report": f"{window:08x}",
                "epsilon_charged": 1.0,
                "epsilon_spent_after": commitments.spent() / NANO,
            }
            commitments.append(
                LedgerEntry(
                    LedgerEvent.REPORTED, 1e9, owner.world.task_id, "visits", window, details
                )
            )
    store.close()


@pytest.mark.parametrize("path", ["/answers", "/ledger"])
def test_long_lists_come_a_page_at_a_time(owner: Owner, browser: TestClient, path: str) -> None:
    """By plain links, from the newest to the oldest and back; everything once. What is no number of
    a page is the newest. Planted: a link by one entry off -> one is missing or there twice; the
    oldest ones without a page (as it was) -> fails.
    """
    long_lived(owner, 230)
    seen: list[str] = []
    links: list[str] = []
    at: str | None = path
    while at is not None:
        text = browser.get(at).text
        links.append(at)
        seen += re.findall(r"<bdi>visits</bdi>(?:</b>)?, window ([0-9]+)", text)
        older = re.search(r'href="([^"]*)" rel="next">Older', text)
        at = html.unescape(older[1]) if older is not None else None
    assert seen == [str(window) for window in reversed(range(230))]
    assert len(links) == 3
    back = re.search(r'href="([^"]*)" rel="prev">Newer', browser.get(links[-1]).text)
    assert back is not None
    assert back[1] == links[-2]
    newest = browser.get(path).text
    for wrong in ("0", "-1", "x", "9" * 30, "231"):
        assert browser.get(path, params={"to": wrong}).text == newest


def test_a_long_ledger_that_is_damaged_is_shown_as_far_as_it_goes(
    owner: Owner, browser: TestClient
) -> None:
    """With a link to the place, which is marked; nothing after it; and Answers goes on. Planted:
    rows of a broken ledger taken by number alone -> window 200 is shown.
    """
    long_lived(owner, 230)
    with sqlite3.connect(owner.outbox) as database:
        for (name,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'ledger'"
        ).fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("UPDATE ledger SET body = x'00' WHERE number = 151")
    database.close()
    for path in ("/ledger", "/ledger?to=151", "/ledger?to=230"):
        text = Page(browser.get(path).text).text
        assert "entry 151 does not verify" in text
        assert "was altered or is missing" in text
        assert "window 149" in text
        assert "window 150" not in text
        assert "the chain holds" not in text
    older = browser.get("/ledger?to=50").text
    assert 'href="/ledger?to=150"' in older
    assert "was altered or is missing" not in older
    assert "00000095" in Page(browser.get("/answers?to=151").text).text


def test_the_budget_is_that_of_the_command(owner: Owner, browser: TestClient) -> None:
    """Planted: what is left rounded up, or spent rounded down -> fails."""
    owner.write(policy="lifetime_epsilon = 10.0\n")
    owner.remember()
    _, out, _ = owner.run("budget")
    spent, left = out.split("epsilon ")[1].split(" ")[0], out.split("spent, ")[1].split(" ")[0]
    text = Page(browser.get("/budget").text).text
    assert f"Spent, epsilon{spent}" in text.replace(" ", "").replace("Spent,", "Spent, ")
    assert f"Left{left}" in text.replace(" ", "")


def test_a_budget_that_is_used_up_is_said_beside_the_question(
    owner: Owner, browser: TestClient
) -> None:
    """Planted: only the policy's refusals shown -> it "may be answered", and this fails."""
    owner.write(consent="allowed", policy="lifetime_epsilon = 8.0\n")
    assert "it may be answered" in Page(browser.get("/questions").text).text
    owner.remember()
    assert "budget does not pay" in Page(browser.get("/questions").text).text


# --- switches -------------------------------------------------------------------------------------


def test_a_switch_does_what_the_command_does(owner: Owner, browser: TestClient, door: Door) -> None:
    """Planted: the answer not kept, or reports that wait not deleted; a window that is answered not
    said to be -> each fails.
    """
    assert switch(browser, door, "allow")[0] == 303
    assert owner.json("consent")[0]["consent"] == "allowed"
    assert "it may be answered" in Page(browser.get("/questions").text).text
    assert owner.run("report", "visits", "3", "--queue")[0] == 0
    assert "has its answer: visits" in Page(browser.get("/questions").text).text
    status, text = switch(browser, door, "deny")
    assert status == 303
    assert "1 report that waited was deleted" in text
    assert owner.json("consent")[0]["answered"] == DENIED
    assert [one["state"] for one in owner.json("status")["reports"]] == ["withdrawn"]
    assert switch(browser, door, "ask")[0] == 303
    assert owner.json("consent")[0]["consent"] == "not asked"


@pytest.mark.parametrize("at", ["answer", "__init__"])
def test_a_no_that_cannot_be_kept_says_what_needs_no_write(
    owner: Owner, browser: TestClient, door: Door, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """As the command does, also where not even the page can be made. Planted: the disk's message
    alone -> fails.
    """
    owner.write(consent="allowed")

    def failing(*_: object, **__: object) -> None:
        raise ShoalError(Kind.OVERLOADED, "outbox outbox.db: the disk is full: make room")

    with monkeypatch.context() as patch:
        patch.setattr(Memory, at, failing)
        status, text = switch(browser, door, "deny")
        assert status == 503
        assert "the answer was not kept" in text
        assert "[policy.purposes] in agent.toml" in text
    assert owner.json("consent")[0]["consent"] == "allowed"


def test_a_memory_that_was_set_back_is_said(owner: Owner, browser: TestClient) -> None:
    """Planted: tasks' problems alone -> nothing is said of it, and this fails."""
    owner.remember()
    for file in owner.folder.glob("outbox.db*"):
        if file.is_file() and not file.name.endswith(".head"):
            file.unlink()
    assert "--confirm-set-back" in Page(browser.get("/questions").text).text
    assert "does not verify" in Page(browser.get("/ledger").text).text


async def test_an_agent_that_runs_heeds_a_switch(
    owner: Owner, browser: TestClient, door: Door
) -> None:
    """Both have the device's memory open. Planted: the agent asks its memory once -> it answers
    after the denial.
    """
    async with Agent(AgentConfig.load(owner.folder / "agent.toml"), background=True) as agent:
        assert (await asyncio.to_thread(switch, browser, door, "allow"))[0] == 303
        assert (await agent.report("visits", 3, send=False)).fresh
        status, text = await asyncio.to_thread(switch, browser, door, "deny")
        assert (status, "1 report that waited was deleted" in text) == (303, True)
        with pytest.raises(ShoalError) as caught:
            await agent.report("visits", 3, send=False)
        assert caught.value.kind is Kind.REFUSED


@for_each(
    "arguments, words",
    [
        (["--listen", "0.0.0.0:0"], "for this machine alone"),
        (["--listen", "7460"], "--listen"),
        (["--listen", "127.0.0.1:99999"], "--listen"),
    ],
)
def test_beyond_loopback_it_does_not_listen(owner: Owner, arguments: list[str], words: str) -> None:
    """Planted: the address not looked at -> it serves, and this does not end."""
    code, out, err = owner.run("console", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("by", ["fleet", "agent.toml"])
def test_a_no_of_somebody_else_stays_above(
    owner: Owner, browser: TestClient, door: Door, by: str
) -> None:
    """Said beside the purpose. Planted: an allow kept all the same -> something was answered, and
    this fails; said above all purposes -> fails.
    """
    if by == "fleet":
        (owner.folder / "fleet.toml").write_text(f'[purposes]\n"{PURPOSE}" = "denied"\n')
        owner.write(top='fleet = "fleet.toml"')
    else:
        owner.write(consent="denied")
    status, text = switch(browser, door, "allow")
    assert status == 409
    assert by in text
    assert text.index(PURPOSE) < text.index("nothing was changed")
    assert owner.json("consent")[0]["answered"] is None
    assert switch(browser, door, "deny")[0] == 303  # tighter is anybody's right


@for_each(
    "fields, status, words",
    [
        ({"seal": None}, 403, "not sent by a page"),
        ({"seal": "x"}, 403, "not sent by a page"),
        ({"answer": "alow"}, 400, "alow"),
        ({"answer": None}, 400, "allow"),
        ({"purpose": "ab" * 16}, 400, "choose one below"),
        ({"purpose": None}, 400, "choose one below"),
    ],
)
def test_a_form_that_is_wrong_changes_nothing(
    owner: Owner,
    browser: TestClient,
    door: Door,
    fields: dict[str, str | None],
    status: int,
    words: str,
) -> None:
    """And says so on the page. Planted: the seal not compared -> the first two are taken."""
    given = {"seal": door.seal, "purpose": purpose_id(), "answer": "allow", **fields}
    sent = {name: value for name, value in given.items() if value is not None}
    assert browser.post("/consent", content=b"&&=%ff", headers=POSTED).status_code == 400
    answer = browser.post("/consent", data=sent, headers=POSTED)
    assert answer.status_code == status
    assert words in Page(answer.text).text
    assert owner.json("consent")[0]["answered"] is None


@for_each(
    "headers",
    [{}, {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:1"}],
)
def test_a_form_of_another_site_is_not_taken(
    owner: Owner, browser: TestClient, door: Door, headers: dict[str, str]
) -> None:
    """Even with cookie and seal. Planted: the guard not around the app -> fails."""
    fields = {"seal": door.seal, "purpose": purpose_id(), "answer": "allow"}
    for path in ("/consent", f"/questions/{owner.world.task_id.hex}/accept", "/memory/confirm"):
        assert browser.post(path, data=fields, headers=headers).status_code == 403
    assert owner.json("consent")[0]["answered"] is None


def test_a_configuration_that_is_wrong_is_said_in_place(
    owner: Owner, browser: TestClient, tmp_path: Path
) -> None:
    """And once it is mended pages come again. Planted: the file read once -> fails."""
    whole = (tmp_path / "agent.toml").read_text()
    (tmp_path / "agent.toml").write_text("tasks = 3\n")
    answer = browser.get("/questions")
    assert answer.status_code == 400
    assert "agent.toml: policy: required" in Page(answer.text).text
    (tmp_path / "agent.toml").write_text(whole)
    assert browser.get("/questions").status_code == 200
