"""A browser for the tests of pages: any complaint of it fails the test."""

from __future__ import annotations

import shutil

import pytest

from fedpareto import write_page

from .pages import address

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("no browser: install Debian's chromium")
    with sync_api.sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-quic"])
        yield opened
        opened.close()


@pytest.fixture
def tabs(browser):
    """Open addresses at a width; any complaint of the browser fails the test."""
    contexts, faults = [], []

    def show(url, width=1200, **settings):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **settings))
        tab = contexts[-1].new_page()
        tab.set_default_timeout(8000)
        tab.set_default_navigation_timeout(60_000)
        tab.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.on("dialog", lambda dialog: (faults.append("a dialog"), dialog.dismiss()))
        tab.goto(url)
        return tab

    yield show
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture
def shown(tabs, tmp_path):
    """Write a view's page and open it from its file."""
    def show(seen, **settings):
        return tabs(address(write_page(seen, tmp_path / "page.html")), **settings)

    return show
