"""Moving about by clicks: after each one the page is laid out as if it had been opened by its address."""

from collections.abc import Callable
from itertools import combinations

import pytest
from playwright.sync_api import Page, expect

from tests.servers.http_server import Serve, Served
from tests.surfaces.page.actions import go, remember, say

Tab = Callable[..., Page]

DESKTOP = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
LINKS = ("New chat", "Sessions", "Memory", "Profile", "Tasks", "Cost")
SIDEBAR_PX = 256


@pytest.fixture
def served(http: Serve) -> Served:
    served = http()
    with served.client() as client:
        remember(client, "The locker at the gym has the number 4711", people=["Sam"])
        client.post("/v1/tasks", json={"title": "Call Sam"})
    return served


@pytest.fixture(params=[DESKTOP, PHONE], ids=["desktop", "phone"])
def page(request: pytest.FixtureRequest, served: Served, tab: Tab) -> Page:
    """The first page, as a user opens it; everything else is reached from there."""
    return tab(served.url, **request.param, at="/i/ada")


def width_of(page: Page) -> int:
    assert page.viewport_size is not None
    return page.viewport_size["width"]


def assert_laid_out(page: Page) -> None:
    """The page has its sidebar where there is room, and nothing to scroll sideways for."""
    has_sidebar = width_of(page) > 900
    box = page.locator("#main").bounding_box()
    assert box is not None
    assert box["x"] == (SIDEBAR_PX if has_sidebar else 0)
    assert box["x"] + box["width"] == page.evaluate("document.documentElement.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width_of(page)
    expect(page.locator("aside.beside")).to_be_visible() if has_sidebar else expect(
        page.locator("aside.beside")
    ).to_be_hidden()


def test_each_link_of_the_navigation_leads_to_a_page_with_its_own_layout(page: Page) -> None:
    assert_laid_out(page)
    here = "New chat"
    for origin, target in combinations(LINKS, 2):
        for stop in (origin, target, origin):
            if stop != here:
                go(page, stop)
                assert_laid_out(page)
                here = stop


def test_a_page_opened_from_the_end_of_another_begins_at_its_top(page: Page) -> None:
    for number in range(4):
        say(page, f"line {number}\n" * 30)
    assert _scrolled(page) > 500
    page.get_by_role("link", name="Why").last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Why this reply?")
    expect(page.locator("#main")).to_be_focused()
    assert _scrolled(page) == 0


def _scrolled(page: Page) -> int:
    return int(page.evaluate("window.scrollY"))
