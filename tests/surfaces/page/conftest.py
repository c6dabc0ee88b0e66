"""A real browser, and a server for it to look at. What the page must never do is checked after every test."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Playwright,
    Request,
    expect,
    sync_playwright,
)

from tests.patience import PATIENCE_S
from tests.process import found_or_installed
from tests.servers.http_server import Serve, Served, http
from tests.surfaces.page.actions import Gate, Tab

__all__ = ["http"]

expect.set_options(timeout=PATIENCE_S * 1000)

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_EXPECTED = (
    "Failed to load resource: the server responded with a status of 4",
    "Failed to load resource: net::ERR_FAILED",
)
"""A page that says what went wrong has such a status, a lost connection has none, and a browser mentions both."""


_SHORT = "test_a_message_is_sent_recalled_from_and_corrected_in_one_short_journey"
"""The one test with a browser that always runs; it takes seconds, and all of them minutes."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the tests with a browser to the night."""
    for item in items:
        if "tab" in getattr(item, "fixturenames", ()) and item.name != _SHORT:
            item.add_marker(pytest.mark.nightly)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium. As long as it is there an event loop runs, and no other module can run one of its own."""
    with sync_playwright() as playwright:
        browser = _launched(playwright)
        yield browser
        browser.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    """Opens tabs, each in a browser of its own; they may ask nobody but the server, and run nothing but our script.

    A test ends with an expectation of what the last page shows: Chromium may never close a tab that begins to load one.
    """
    with ExitStack() as stack:
        wrong: list[str] = []
        yield lambda url, **options: _tab(browser, stack, url, wrong, **options)
        stack.close()
        assert wrong == []


@pytest.fixture
def served(http: Serve) -> Served:
    """A server whose model repeats what it is told."""
    return http()


@pytest.fixture
def page(served: Served, tab: Tab) -> Page:
    """The first page of that server, as a user opens it."""
    return tab(served.url, at="/i/ada")


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Holds replies back."""
    gate = Gate()
    yield gate
    gate.open()


def _tab(browser: Browser, stack: ExitStack, url: str, wrong: list[str], *, at: str = "", **options: object) -> Page:
    """A new tab, which shows that page of the server."""
    context: BrowserContext = browser.new_context(base_url=url, **options)  # type: ignore[arg-type]
    stack.callback(context.close)
    context.set_default_timeout(PATIENCE_S * 1000)
    host = urlsplit(url).netloc

    def asked(request: Request) -> None:
        if urlsplit(request.url).netloc != host:
            wrong.append(f"asked for {request.url}")

    def said(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(_EXPECTED):
            wrong.append(f"complained: {message.text}")

    def popped_up(dialog: Dialog) -> None:
        wrong.append(f"popped up: {dialog.message}")
        dialog.dismiss()

    context.on("request", asked)
    context.on("console", said)
    context.on("weberror", lambda error: wrong.append(f"failed: {error.error}"))
    context.on("dialog", popped_up)
    page = context.new_page()
    if at:
        page.goto(at)
    return page


def _launched(playwright: Playwright) -> Browser:
    path = found_or_installed("chromium", *_NAMES) or _playwrights_own()
    if path is None:
        pytest.skip("there is no Chromium, and none can be installed")
    return playwright.chromium.launch(
        executable_path=path,
        args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
    )


def _playwrights_own() -> str | None:
    """Where it can be fetched."""
    subprocess.run(["playwright", "install", "chromium"], check=False, capture_output=True)
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if os.path.exists(path) else None  # noqa: PTH110 - it is a text anyway
