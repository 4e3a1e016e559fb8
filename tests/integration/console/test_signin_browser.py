"""Signing in with a real browser, over TLS, at a provider that runs; and the pages around it."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.worlds.browser import LACKING, NARROW, WIDE, browser, chromium, page_of
from tests.worlds.console import visits, write_data
from tests.worlds.consoles import signing_in
from tests.worlds.provider import Person, provider

pytestmark = pytest.mark.skipif(chromium() is None, reason=LACKING)
_NAME = "\u202eada <b>" + "w" * 300 + "@people.example"


def _troubles(page: Page) -> list[str]:
    """What the browser refused, from now on."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text))
    return found


def _look_over(axe: Axe, page: Page) -> None:
    assert axe.run(page).response["violations"] == [], page.url
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= page.evaluate("innerWidth"), page.url


def test_a_person_signs_in_looks_around_and_signs_out(tmp_path: Path) -> None:
    """In light, dark and narrow, by the keyboard, whatever the name is; nothing that the policy
    refuses, nothing that axe knows. Planted: SameSite=Strict -> the provider's answer finds no
    beginning. Planted: the form of signing out to another place -> refused by the policy. Planted:
    names not cut -> it scrolls sideways. Planted: a policy of "no-referrer", under which a browser
    says "null" for where its form was -> nobody signs out.
    """
    write_data(tmp_path, 2)
    config = visits().write_config(tmp_path)
    axe = Axe()
    with (
        provider() as peer,
        signing_in(tmp_path, peer.issuer, "--analyzer", str(config)) as url,
        browser() as running,
    ):
        peer.person = Person(email=_NAME)
        for width, dark in ((WIDE, False), (WIDE, True), (NARROW, False)):
            with page_of(running, width=width, dark=dark) as page:
                troubles = _troubles(page)
                page.goto(f"{url}/budget?limit=2")
                _look_over(axe, page)
                page.get_by_role("link", name="Sign in").focus()
                page.keyboard.press("Enter")
                page.get_by_role("button", name="Sign out").wait_for()
                assert page.url == f"{url}/budget?limit=2"
                page.get_by_role("button", name="Keep 2 as the limit").click()
                page.wait_for_url("**/budget")
                page.goto(f"{url}/audit")
                _look_over(axe, page)
                assert "sets the limit" in page.locator("table").inner_text()
                assert "signs in" in page.locator("table").inner_text()
                page.get_by_role("button", name="Sign out").focus()
                page.keyboard.press("Enter")
                page.wait_for_url("**/sign-out")
                _look_over(axe, page)
                page.goto(f"{url}/audit")
                assert page.get_by_role("link", name="Sign in").is_visible()
                assert [text for text in troubles if "status of 401" not in text] == []
