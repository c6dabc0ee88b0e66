"""Actions of a person on the page."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import httpx
from playwright.sync_api import Locator, Page, expect

from chatbot.messages import Delta, TextDelta

Tab = Callable[..., Page]
DESKTOP: dict[str, object] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, object] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def slow(page: Page) -> None:
    """Delay each request by 400 ms and take 1 Mbit/s."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 400, "downloadThroughput": 125_000, "uploadThroughput": 125_000},
    )


def say(page: Page, text: str, *, wait: bool = True) -> None:
    """Type a message and send it, with Enter where there are keys, and with the button on a phone."""
    box = page.get_by_label("Message", exact=True)
    box.fill(text)
    if page.evaluate("matchMedia('(hover: hover)').matches"):
        box.press("Enter")
    else:
        page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".pending")).to_have_count(0)
    expect(page.locator(".question").last).to_have_text(text)
    if wait:
        done(page)


def go(page: Page, name: str) -> None:
    """Click a link of the navigation, and wait for its page."""
    open_menu(page)
    page.get_by_role("navigation", name="Main").get_by_role("link", name=name, exact=True).click()
    here = page.locator("nav [aria-current=page]")
    expect(here).to_have_text(name)


def open_menu(page: Page) -> None:
    """Open the drawer with the navigation where the screen is narrow."""
    menu = page.get_by_role("button", name="Menu", exact=True)
    if menu.is_visible():
        menu.click()


def open_memory(page: Page, title: str) -> None:
    """Open the page of a memory that the list of memories shows."""
    go(page, "Memory")
    page.locator(".rows").get_by_role("link", name=title).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(title)


def done(page: Page) -> None:
    """Wait for the reply to be complete."""
    expect(page.locator("#live")).to_have_count(0)


def answers(page: Page) -> Locator:
    """The complete replies on the page."""
    return page.locator(".exchange:not(#live) .answer > .prose")


def remember(client: httpx.Client, title: str, **draft: object) -> str:
    """Have something remembered; its id."""
    response = client.post("/v1/memories", json={"title": title, **draft})
    assert response.status_code == 201, response.text
    memory_id: str = response.json()["id"]
    return memory_id


class Gate:
    """Closed until it is opened, for whoever waits in any thread's event loop."""

    def __init__(self) -> None:
        self._is_open = threading.Event()

    def open(self) -> None:
        """Let everyone through."""
        self._is_open.set()

    async def passed(self) -> None:
        """Wait until it is open."""
        while not self._is_open.is_set():  # noqa: ASYNC110 - another thread opens it
            await asyncio.sleep(0.005)

    def reply(self, before: str, after: str) -> Callable[[], AsyncIterator[Delta]]:
        """A reply that stops at the gate."""

        async def deltas() -> AsyncIterator[Delta]:
            yield TextDelta(before)
            await self.passed()
            yield TextDelta(after)

        return deltas
