"""What a person does on the page."""

import httpx
from playwright.sync_api import Locator, Page, expect


def say(page: Page, text: str, *, wait: bool = True) -> None:
    """Type a message and send it with Enter."""
    box = page.get_by_label("Message", exact=True)
    box.fill(text)
    box.press("Enter")
    expect(page.locator(".question").last).to_have_text(text)
    if wait:
        done(page)


def done(page: Page) -> None:
    """Wait for the reply to be complete."""
    expect(page.locator("#live")).to_have_count(0)


def answers(page: Page) -> Locator:
    """The complete replies on the page."""
    return page.locator(".answer:not(#live) .prose")


def remember(client: httpx.Client, title: str, **draft: object) -> str:
    """Have something remembered; its id."""
    response = client.post("/v1/memories", json={"title": title, **draft})
    assert response.status_code == 201, response.text
    memory_id: str = response.json()["id"]
    return memory_id
