"""`shoal agent console` in a real browser: started as its owner does, opened from a file as
`--open` does, looked at in light and dark, wide and narrow, without scripts, by axe and by the
keyboard.
"""

from __future__ import annotations

import ast
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from shoal.cli.main import main
from tests.worlds.browser import LACKING, browser, chromium, look_over
from tests.worlds.consoles import owners_console
from tests.worlds.devices.clients import World, make_world

pytestmark = pytest.mark.skipif(chromium() is None, reason=LACKING)
PATHS = ("/questions", "/answers", "/budget", "/ledger", "/ledger?head=much", "/memory", "/nowhere")
EVIL = "<img src=x onerror=alert(1)>{{ 7 * 7 }}" + "w" * 300


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(start=int(time.time()) - 3_600, purpose=f"to plan {EVIL}")


@pytest.fixture(scope="module")
def folder(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A device that answered once."""
    folder = tmp_path_factory.mktemp("device")
    world.write(folder / "tasks")
    (folder / "agent.toml").write_text(
        f'tasks = "tasks"\noutbox = "outbox.db"\n[policy]\nauthorities = '
        f'["{world.authority.public.hex()}"]\nmax_epsilon0 = 4.0\nmin_batch_floor = 100\n'
        "lifetime_epsilon = 20.0\n"
    )
    config = ["--config", str(folder / "agent.toml")]
    assert main(["agent", "consent", *config, "visits", "allow"]) == 0
    assert main(["agent", "report", *config, "visits", "3", "--queue"]) == 0
    return folder


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    with browser() as one:
        yield one


def opened_from_a_file(page: Page, folder: Path, url: str) -> str:
    """As `--open` has it. The address of the site."""
    way = folder / "open.html"
    way.write_text(f'<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">Open</a>')
    page.goto(way.as_uri())
    page.wait_for_url("**/questions")
    return url.partition("/open")[0]


def test_an_owner_comes_in_looks_and_says_no(folder: Path, world: World, running: Browser) -> None:
    """Without a script. The word is gone from the address; no violation that axe knows and no
    sideways scrolling, with words that are markup and do not end;
    a denial by the keyboard alone. Another browser with the same address sees nothing.

    Planted: a redirection for the page that follows the word -> from a file the strict cookie is
    not sent, and nobody comes in. Planted: grey on grey, a button without a name, a purpose in one
    line -> each fails. Planted: a switch that is no button of a form -> not denied.
    """
    with owners_console(folder / "agent.toml") as url:
        context = running.new_context(java_script_enabled=False)
        page = context.new_page()
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(message.text))
        base = opened_from_a_file(page, folder, url)
        assert page.url == f"{base}/questions"
        for cookie in context.cookies():
            assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        kept = context.storage_state()
        page.keyboard.press("Tab")  # to the skip link, and past everything before the switch
        for _ in range(12):
            if page.evaluate("document.activeElement.textContent") == "Deny":
                break
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**/questions?done=deny*")
        assert "1 report that waited was deleted" in page.inner_text("main")
        assert page.locator("img").count() == 0
        context.close()
        paths = (*PATHS, f"/questions/{world.task_id.hex}")
        context = running.new_context(storage_state=kept)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        for path in paths:
            page.goto(f"{base}{path}")
            look_over(page)
        context.close()
        context = running.new_context()
        page = context.new_page()
        answer = page.goto(url)
        assert answer is not None
        assert answer.status == 403
        look_over(page)
        context.close()
        assert [text for text in troubles if "404" not in text] == []


def test_the_browser_is_started_without_the_word(folder: Path, tmp_path: Path) -> None:
    """Others see what a program is started with: it gets a file of the owner's, which is gone at
    the end. The browser here answers only after it was let in, as one of a terminal does. Planted:
    the address given to it -> fails; opened on the loop that answers -> it waits in vain. Planted:
    SIGTERM left to the system -> the file stays, and this fails.
    """
    program = tmp_path / "browser.py"
    program.write_text(
        "import os, re, sys, urllib.request as u\n"
        "try:\n"
        "    file = u.url2pathname(sys.argv[1].removeprefix('file://'))\n"
        "    modes = [os.stat(at).st_mode & 0o777 for at in (file, os.path.dirname(file))]\n"
        "    url = re.search('href=\"([^\"]*)', open(file).read())[1]\n"
        "    status = u.build_opener(u.ProxyHandler({})).open(url, timeout=5).status\n"
        "except Exception as error:\n"
        "    modes, status = [], repr(error)\n"
        "open(sys.argv[2], 'w').write(repr((sys.argv[1], modes, status)))\n"
    )
    told = tmp_path / "told"
    os.mkfifo(told)
    browser = f"{sys.executable} {program} %s {told}"
    config = folder / "agent.toml"
    with owners_console(config, "--open", ending=signal.SIGTERM, BROWSER=browser) as url:
        given, modes, status = ast.literal_eval(told.read_text())  # waits for who writes
    assert url.partition("word=")[2] not in given
    assert given.startswith("file://")
    assert (modes, status) == ([0o600, 0o700], 200)
    assert not Path(given.removeprefix("file://")).exists()
