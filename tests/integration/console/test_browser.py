"""`shoal console` in a real browser: started as a person does, looked at in light and dark, wide
and narrow, with and without scripts, and by axe.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from shoal.console.operator.holdings import from_store
from tests.worlds.browser import LACKING, NARROW, WIDE, browser, chromium, look_over, page_of
from tests.worlds.console import visits, write_data
from tests.worlds.consoles import console

pytestmark = pytest.mark.skipif(chromium() is None, reason=LACKING)
PATHS = (
    "/releases",
    "/releases/visits",
    "/releases/visits/2",
    "/promise?task=visits&held=much",
    "/planner?kind=categories&off=much",
    "/running",
    "/budget?limit=5",
    "/nowhere",
)


# of a group of choices the one that is made; nothing that is folded away
_THOSE = (
    "[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, summary, "
    "textarea')].filter((it) => it.checkVisibility() && (it.type !== 'radio' || it.checked))"
)
_FOCUSABLE = f"{_THOSE}.length"
# which of them has the focus, what it is, and whether somebody sees that
_FOCUSED = f"""(() => {{
  const it = document.activeElement, box = it.getBoundingClientRect(), look = getComputedStyle(it);
  const seen = look.outlineStyle === 'solid' && parseFloat(look.outlineWidth) >= 2
    && box.width > 0 && box.top < innerHeight && box.bottom > 0 && box.left >= 0;
  return [{_THOSE}.indexOf(it), it.outerHTML.slice(0, 80), seen];
}})()"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("console")
    write_data(folder, 5)
    visits().write_config(folder)
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with console("--analyzer", str(folder / "analyzer.toml")) as url:
        yield url


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    with browser() as one:
        yield one


def _troubles(page: Page) -> list[str]:
    """What the browser refused, or could not load, from now on."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text))
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


def test_every_page_for_everybody(url: str, running: Browser) -> None:
    """No violation that axe knows, in light, dark and narrow; nothing that the policy refuses; no
    sideways scrolling at 390 px. Planted: a select without a label, grey on grey, a table of fixed
    width -> each fails.
    """
    with page_of(running) as page:
        troubles = _troubles(page)
        for path in PATHS:
            page.goto(f"{url}{path}")
            look_over(page)
        assert [text for text in troubles if "404" not in text] == []


def test_hostile_words_stay_words(folder: Path, tmp_path: Path, running: Browser) -> None:
    """A file of releases from anywhere: markup, words without an end, letters that turn the
    direction of writing, in every text that a release has. Planted: a label in the CSS of one line
    -> it scrolls sideways; a text marked safe -> its element is there; a name that is not set apart
    -> what follows it is turned.
    """
    bad = "\u202e<img src=x onerror=alert(1)></script>{{ 7 * 7 }}" + "w" * 400
    release = json.loads(json.dumps(from_store(folder / "data", None).question("visits").latest))
    release["name"] = bad
    for row in release["estimates"]:
        row["label"] = f"{row['label']}{bad}"
    release["privacy"]["assumptions"] = [bad]
    release["privacy"]["method"] = release["privacy"]["unit"] = bad
    release["rejected"] = {bad: 3}
    withheld = {key: value for key, value in release.items() if key != "processed"}
    withheld |= {"window": release["window"] + 1, "withheld": bad, "estimates": []}
    rows = [release, withheld]
    (tmp_path / "bad.json").write_text(json.dumps(rows))
    with console("--releases", str(tmp_path / "bad.json")) as url:
        task = release["task_id"]
        paths = ("/releases", f"/releases/{task}", f"/releases/{task}/{release['window']}")
        with page_of(running, width=NARROW) as page:
            troubles = _troubles(page)
            for path in (*paths, f"/promise?task={task}&window={release['window']}", "/budget"):
                page.goto(f"{url}{path}")
                assert page.evaluate("document.documentElement.scrollWidth") <= NARROW, path
                assert page.locator("img").count() == 0
                assert "49" not in page.locator("h1").inner_text()
            page.goto(f"{url}/promise?task={task}")
            apart = page.locator("main p bdi").first
            turned = apart.evaluate("(it) => getComputedStyle(it).unicodeBidi")
            assert (turned, apart.inner_text()) == ("isolate", bad)
            assert troubles == []


def test_the_keyboard_alone_gets_everywhere(url: str, running: Browser) -> None:
    """The first key skips to the page, and what has the focus is seen. Planted: the outline taken
    away -> fails.
    """
    with page_of(running) as page:
        page.goto(f"{url}/releases")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('main') !== null")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        page.wait_for_url("**/releases/*")


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_tab_reaches_everything_in_its_order(url: str, running: Browser, width: int) -> None:
    """On every page: all links, fields and buttons, from the top down, each of them seen while it
    has the focus. Planted: tabindex="-1" on a link, tabindex="3" on a button, no outline for
    selects -> each fails.
    """
    with page_of(running, width=width) as page:
        for path in PATHS:
            page.goto(f"{url}{path}")
            wanted = page.evaluate(_FOCUSABLE)
            page.keyboard.press("Tab")
            reached = []
            for _ in range(wanted):
                reached.append(page.evaluate(_FOCUSED))
                page.keyboard.press("Tab")
            assert [at for at, _, _ in reached] == list(range(wanted)), path
            assert [what for _, what, seen in reached if not seen] == [], path


def test_a_choice_works_with_and_without_scripts(url: str, running: Browser) -> None:
    """Planted: no button -> nothing happens without scripts. Planted: the script's file not loaded
    -> a choice alone does nothing.
    """
    for scripts in (True, False):
        with page_of(running, scripts=scripts) as page:
            page.goto(f"{url}/promise?task=minutes")
            page.select_option("#task", visits().task_id.hex)
            if not scripts:
                page.get_by_role("button", name="Show").click()
            page.wait_for_url(f"**task={visits().task_id.hex}")


def test_a_download_is_kept_under_its_name(url: str, running: Browser, tmp_path: Path) -> None:
    """Planted: no attachment -> the browser shows it, and this waits for a download in vain."""
    with page_of(running) as page:
        page.goto(f"{url}/releases/minutes/1")
        with page.expect_download() as waiting:
            page.get_by_role("link", name="CSV").click()
        assert waiting.value.suggested_filename == "shoal-minutes-window-1.csv"
        waiting.value.save_as(tmp_path / "kept.csv")
    assert (tmp_path / "kept.csv").read_text().startswith("task_id,")
