"""Chromium without a screen, where it is installed: Debian's, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
SHOTS_DIR = Path(__file__).parents[2] / "build" / "screenshots"
TIMEOUT_MS = 60_000  # for what takes a second on a machine that does nothing else
SERIOUS = ("serious", "critical")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that ends with the block."""
    from playwright.sync_api import sync_playwright  # half a second, for who has a browser

    assert CHROMIUM is not None
    with sync_playwright() as playwright:
        # Root may not have a sandbox; the only pages are ours.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=TIMEOUT_MS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def looking(browser: Browser, url: str, *, unless: str = "\n", **options: Any) -> Iterator[Page]:
    """A page in a window of its own; once the block is over, it is an error if the console has one without `unless`."""
    complaints: list[str] = []
    context = browser.new_context(**options)
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url)
    yield page
    context.close()
    assert [said for said in complaints if unless not in said] == []


def hurdles(page: Page) -> list[tuple[str, str]]:
    """What axe finds that keeps people out: rule and the element."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in SERIOUS]


def shot(page: Page, name: str) -> None:
    """Keep a picture of the whole page for whoever looks at it."""
    SHOTS_DIR.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS_DIR / f"{name}.png", full_page=True)
