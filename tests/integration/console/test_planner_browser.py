"""The Planner in a real browser: sliders by the keyboard, figures that follow, with and without
scripts, for everybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.worlds.browser import LACKING, NARROW, browser, chromium, look_over, page_of
from tests.worlds.console import visits, write_data
from tests.worlds.consoles import console

pytestmark = pytest.mark.skipif(chromium() is None, reason=LACKING)
ASKED = "/planner?n=600&off=5"
FINAL = "#progress:has-text('Final')"
SEVERAL_FINAL = "#several-progress:has-text('Final')"
_PATIENCE_MS = 120_000  # the Planner steps back for everything else on a busy machine


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("console")
    write_data(folder, 1)
    with console("--analyzer", str(visits().write_config(folder))) as address:
        yield address


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    with browser() as one:
        yield one


def epsilon(page: Page) -> float:
    told = page.locator("#answer .tiles b").first.inner_text()
    return float(re.sub("[^0-9.e-]", "", told))


def test_a_slider_by_the_keyboard_moves_the_figures(url: str, running: Browser) -> None:
    """The field, the words that a screen reader says, the figures and the address follow; a coarse
    answer is replaced by the final one, which is no larger. Planted: no event for the slider ->
    nothing changes, and this fails. Planted: the field left as it is -> another question, and
    this fails.
    """
    with page_of(running) as page:
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(f"{url}{ASKED}")
        page.wait_for_selector("#answer .tiles")
        coarse = epsilon(page)
        page.wait_for_selector(FINAL, timeout=_PATIENCE_MS)
        before = epsilon(page)
        assert before <= coarse * 1.005
        page.focus("#off_at")
        for _ in range(2):
            page.keyboard.press("ArrowLeft")
        page.wait_for_selector("#answer:has-text('(2 %)')")
        assert page.input_value("#off") == "2"
        assert page.get_attribute("#off_at", "aria-valuetext") == "2"
        page.wait_for_selector(FINAL, timeout=_PATIENCE_MS)
        assert epsilon(page) > before
        page.wait_for_url("**off=2&**")
        # and back, which is known already
        page.fill("#off", "5")
        page.wait_for_selector("#answer:has-text('(5 %)')")
        assert epsilon(page) == before
        page.fill("#off", "five")
        page.wait_for_selector("#off[aria-invalid]")
        assert "Mend what is marked" in page.inner_text("#answer")
        page.fill("#off", "5")
        page.wait_for_selector("#off:not([aria-invalid])")
        assert troubles == []


def test_a_choice_shows_its_own_fields(url: str, running: Browser) -> None:
    """By the keyboard, without scripts too. Planted: a kind left out of the style sheet -> the
    fields of other kinds show, and this fails.
    """
    for scripts in (True, False):
        with page_of(running, scripts=scripts) as page:
            page.goto(f"{url}{ASKED}&windows=3")
            assert not page.locator("#at").is_visible()
            page.focus("[value=sum]")
            page.keyboard.press("ArrowRight")
            assert page.locator("[value=quantiles]").is_checked()
            for name, seen in {"at": True, "low": True, "off": True, "answers": False}.items():
                assert page.locator(f"#{name}").is_visible() == seen, name
            assert page.locator(".of-quantiles", has_text="A quantile may be off by").is_visible()
            assert not page.locator(".of-mean").is_visible()
            assert not page.locator("#changes").is_visible()  # "More" is open: three windows
            page.focus("[name=memoized]")
            page.keyboard.press("Space")
            assert page.locator("#changes").is_visible()


def test_it_works_without_scripts(url: str, running: Browser) -> None:
    """Planted: the slider's place not sent -> the field's old value is kept, and this fails."""
    with page_of(running, scripts=False) as page:
        page.goto(f"{url}{ASKED}")
        page.focus("#off_at")
        page.keyboard.press("ArrowLeft")
        page.get_by_role("button", name="Work it out").click()
        assert page.input_value("#off") == "3"
        while not page.locator("#answer .tiles").count():
            page.get_by_role("link", name="Look again").click()


def test_several_messages_come_with_a_tick_and_are_taken_by_choice(
    url: str, running: Browser, tmp_path: Path
) -> None:
    """By the keyboard: the tick, the table that follows, the choice, the file. Planted: the tick
    quiet, as words are -> no table, and this fails; the choice shown without the tick -> fails.
    """
    with page_of(running) as page:
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(f"{url}/planner?n=600&off=0.5&delta=1e-6")
        page.wait_for_selector(FINAL, timeout=_PATIENCE_MS)
        assert not page.locator("#messages").count()
        assert not page.locator("#choose").is_visible()
        page.focus("#several")
        page.keyboard.press("Space")
        page.wait_for_selector(SEVERAL_FINAL, timeout=_PATIENCE_MS)
        assert page.locator("#answer tbody tr:has-text('signed_count')").count() == 1
        page.select_option("#choose", "cancelling")
        page.fill("#question", "Do you swim?")
        with page.expect_download(timeout=_PATIENCE_MS) as waiting:
            page.get_by_role("button", name="Write the task file").click()
        waiting.value.save_as(tmp_path / "kept.toml")
        assert troubles == []
    assert 'name = "cancelling"' in (tmp_path / "kept.toml").read_text()


def test_quantiles_come_with_ranges_beside_them(url: str, running: Browser, tmp_path: Path) -> None:
    """The tick holds for quantiles too: the table, its words on ranges, and the file. Planted:
    quantiles refused at the tick -> no table, fails.
    """
    with page_of(running, width=NARROW) as page:
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(f"{url}/planner?kind=quantiles&n=1000&off=4&delta=1e-6")
        page.wait_for_selector(FINAL, timeout=_PATIENCE_MS)
        page.check("#several")
        page.wait_for_selector(SEVERAL_FINAL, timeout=_PATIENCE_MS)
        row = page.locator("#answer tbody tr:has-text('ranges')")
        assert row.count() == 1
        assert "of any range of levels" in row.inner_text()
        assert page.locator("#several-wrong").inner_text() == ""
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
        assert Axe().run(page).response["violations"] == []
        page.select_option("#choose", "ranges")
        page.fill("#question", "How old are you?")
        with page.expect_download(timeout=_PATIENCE_MS) as waiting:
            page.get_by_role("button", name="Write the task file").click()
        waiting.value.save_as(tmp_path / "kept.toml")
        assert troubles == []
    assert 'name = "ranges"' in (tmp_path / "kept.toml").read_text()


def test_words_are_planned_by_how_many_have_them(
    url: str, running: Browser, tmp_path: Path
) -> None:
    """By the keyboard: the kind, its own fields, the answer, the file. Planted: the kind left out
    of the style sheet -> fields of other kinds show, and this fails; its answer never asked for
    again -> it waits for "Final" in vain.
    """
    with page_of(running) as page:
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(f"{url}/planner?n=2000&off=3&kind=quantiles&letters=4")
        assert not page.locator("#letters").is_visible()
        page.focus("[name=kind][value=quantiles]")
        page.keyboard.press("ArrowRight")
        assert page.locator("[name=kind][value=words]").is_checked()
        seen = {"letters": True, "spare": True, "off": True, "several": False, "low": False}
        for name, shown in seen.items():
            assert page.locator(f"#{name}").is_visible() == shown, name
        page.fill("#off", "3")
        page.wait_for_selector(FINAL, timeout=_PATIENCE_MS)
        assert page.locator("#answer tbody tr").count() == 3
        assert "Found with 95 % from" in page.inner_text("#answer .tiles")
        page.fill("#question", "Which word?")
        with page.expect_download(timeout=_PATIENCE_MS) as waiting:
            page.get_by_role("button", name="Write the task file").click()
        waiting.value.save_as(tmp_path / "kept.toml")
        assert troubles == []
    assert 'kind = "discovery"' in (tmp_path / "kept.toml").read_text()


def test_a_map_is_planned_drawn_and_kept(url: str, running: Browser, tmp_path: Path) -> None:
    """By the keyboard, narrow: the kind, its own fields, the grid that follows the rows, the way,
    the file. Planted: the kind left out of the style sheet -> fields of other kinds show, and this
    fails; the choice of the way quiet -> the figures stay those of another, and this fails.
    """
    with page_of(running, width=NARROW) as page:
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(f"{url}/planner?n=3000&kind=words&rows=8&columns=9")
        assert not page.locator("#map").is_visible()
        page.focus("[name=kind][value=words]")
        page.keyboard.press("ArrowRight")
        assert page.locator("[name=kind][value=places]").is_checked()
        seen = {"map": True, "epsilon": True, "off": False, "several": False, "letters": False}
        for name, shown in seen.items():
            assert page.locator(f"#{name}").is_visible() == shown, name
        page.wait_for_selector(FINAL, timeout=_PATIENCE_MS)
        page.fill("#rows", "6")
        page.wait_for_selector("#grid-t:has-text('6 x 9 cells')", state="attached")
        page.wait_for_selector(FINAL, timeout=_PATIENCE_MS)
        page.select_option("#way", "krr")
        page.wait_for_selector("#answer .tiles:has-text('As you chose')")
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
        assert Axe().run(page).response["violations"] == []
        page.fill("#question", "Where do you park?")
        with page.expect_download(timeout=_PATIENCE_MS) as waiting:
            page.get_by_role("button", name="Write the task file").click()
        waiting.value.save_as(tmp_path / "kept.toml")
        assert troubles == []
    kept = (tmp_path / "kept.toml").read_text()
    assert 'kind = "places"' in kept
    assert 'name = "krr"' in kept


def test_vectors_show_their_own_fields_and_a_model_its_step(
    url: str, running: Browser, tmp_path: Path
) -> None:
    """By the keyboard, narrow, and without scripts. Planted: the kind left out of the style sheet
    -> fields of other kinds show, and this fails; the step always shown -> fails.
    """
    asked = "/planner?n=600&kind=places&dimension=2&clip=0.5&delta=1e-6"
    for scripts in (False, True):
        with page_of(running, width=NARROW, scripts=scripts) as page:
            page.goto(f"{url}{asked}")
            assert not page.locator("#dimension").is_visible()
            page.focus("[name=kind][value=places]")
            page.keyboard.press("ArrowRight")
            assert page.locator("[name=kind][value=vectors]").is_checked()
            seen = {
                "dimension": True, "epsilon": True, "unit": True, "labels": True, "map": False,
                "off": False, "several": False, "step": False, "letters": False, "low": False,
            }  # fmt: skip
            for name, shown in seen.items():
                assert page.locator(f"#{name}").is_visible() == shown, name
            page.select_option("#learn", "network")
            assert page.locator("#hidden").is_visible()
            page.select_option("#learn", "logistic")
            assert page.locator("#step").is_visible()
            assert not page.locator("#hidden").is_visible()
            if not scripts:
                page.get_by_role("button", name="Work it out").click()
            page.wait_for_selector("#answer:has-text('gradients')", timeout=_PATIENCE_MS)
            while not scripts and not page.locator(FINAL).count():
                page.reload()
            page.wait_for_selector(FINAL, timeout=_PATIENCE_MS)
            assert "Logistic regression over 2 numbers" in page.inner_text("#answer")
            assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
            if scripts:
                assert Axe().run(page).response["violations"] == []
            page.fill("#question", "How must a model change?")
            with page.expect_download(timeout=_PATIENCE_MS) as waiting:
                page.get_by_role("button", name="Write the task file").click()
            waiting.value.save_as(tmp_path / "kept.toml")
            assert 'aggregator = "pairwise"' in (tmp_path / "kept.toml").read_text()


def test_for_everybody(url: str, running: Browser) -> None:
    """Coarse and final, light, dark and narrow. Planted: a slider without a name -> axe says so;
    the chart with a fixed width -> it scrolls sideways at 390 px.
    """
    kept = "/planner?kind=quantiles&n=600&off=9&windows=2&memoized=yes"
    categories = "/planner?kind=categories&answers=3&n=600&off=5"
    several = "/planner?n=600&off=0.5&delta=1e-6&several=yes"
    words = "/planner?kind=words&n=2000&off=3&letters=4"
    with page_of(running) as page:
        for path in (ASKED, categories, kept, several, words, "/planner?off=x"):
            page.goto(f"{url}{path}")
            if "off=x" not in path:
                page.wait_for_selector(FINAL, timeout=_PATIENCE_MS)
            if path == several:
                page.wait_for_selector(SEVERAL_FINAL, timeout=_PATIENCE_MS)
            look_over(page)


def test_the_task_file_is_kept_under_its_name(url: str, running: Browser, tmp_path: Path) -> None:
    """Planted: no attachment -> the browser shows it, and this waits for a download in vain."""
    with page_of(running) as page:
        page.goto(f"{url}{ASKED}")
        page.fill("#question", "Do you swim?")
        with page.expect_download(timeout=_PATIENCE_MS) as waiting:
            page.get_by_role("button", name="Write the task file").click()
        assert waiting.value.suggested_filename == "do-you-swim.toml"
        waiting.value.save_as(tmp_path / "kept.toml")
    assert 'question = "Do you swim?"' in (tmp_path / "kept.toml").read_text()
