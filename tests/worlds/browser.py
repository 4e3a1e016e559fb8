"""Chromium, driven by Playwright: pages as people have them, in light and dark, wide and narrow."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

LACKING = "install Chromium, for example: apt-get install chromium"
# Tests run as root in containers, where Chromium's own sandbox doesn't start.
_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
WIDE, NARROW = 1200, 390  # CSS pixels
_HEIGHT = 844
_AXE = Axe()
_WRONG = "axe.run({resultTypes: ['violations']}).then((found) => found.violations)"


@functools.cache
def chromium() -> str | None:
    """Where the program is; None if it is not installed: then the tests that want it are skipped
    and say so. SHOAL_CHROMIUM=1 (as in ``.ci/run``) makes that a failure.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program is not None or os.environ.get("SHOAL_CHROMIUM") != "1", LACKING
    return program


@contextmanager
def browser() -> Iterator[Browser]:
    """A running Chromium that downloads nothing."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=list(_QUIET))
        try:
            yield running
        finally:
            running.close()


@contextmanager
def page_of(
    running: Browser, *, width: int = WIDE, dark: bool = False, scripts: bool = True
) -> Iterator[Page]:
    """A page of a browser that knows nothing of any other."""
    context = running.new_context(
        viewport={"width": width, "height": _HEIGHT},
        color_scheme="dark" if dark else "light",
        java_script_enabled=scripts,
        ignore_https_errors=True,  # certificates of our own making
    )
    try:
        yield context.new_page()
    finally:
        context.close()


def look_over(page: Page) -> None:
    """What lies there, in light, dark and narrow: no violation that axe knows, no sideways
    scrolling. It is loaded once: colours and widths are style sheets' alone.
    """
    page.evaluate(_AXE.axe_script)
    for width, dark in ((WIDE, False), (WIDE, True), (NARROW, False)):
        page.set_viewport_size({"width": width, "height": _HEIGHT})
        page.emulate_media(color_scheme="dark" if dark else "light")
        where = page.url, width, dark
        assert page.evaluate("document.documentElement.scrollWidth") <= width, where
        wrong = page.evaluate(_WRONG)
        assert [(each["id"], each["nodes"][0]["html"]) for each in wrong] == [], where
    page.set_viewport_size({"width": WIDE, "height": _HEIGHT})
