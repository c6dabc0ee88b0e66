"""Two browsers at one server: what one of them does, the other one shows without being asked."""

from collections.abc import Callable

import httpx
from playwright.sync_api import Page, expect

from tests.servers.http_server import Serve
from tests.surfaces.page.actions import Gate, answers, done, say

Tab = Callable[..., Page]


def test_a_message_sent_in_one_browser_appears_in_another_while_its_reply_comes(
    http: Serve, tab: Tab, gate: Gate
) -> None:
    served = http(["one", gate.reply("Half of it", " and the rest.")])
    here, there = tab(served.url), tab(served.url)
    here.goto("/i/ada")
    say(here, "first")
    there.goto(here.url)
    expect(answers(there)).to_have_text(["one"])
    there.get_by_label("Message", exact=True).press_sequentially("my own draft")
    say(here, "second", wait=False)
    expect(there.locator("#live .growing")).to_have_text("Half of it")
    gate.open()
    done(here)
    expect(answers(there)).to_have_text(["one", "Half of it and the rest."])
    expect(there.get_by_label("Message", exact=True)).to_have_value("my own draft")


def test_a_message_of_another_program_appears_and_then_its_reply(http: Serve, tab: Tab) -> None:
    served = http(["one"])
    page = tab(served.url, at="/i/ada")
    say(page, "first")
    with served.client() as client:
        _append(client, page, "user", "from the terminal")
        expect(page.locator(".question")).to_have_text(["first", "from the terminal"])
        _append(client, page, "assistant", "its answer")
    expect(answers(page)).to_have_text(["one", "its answer"])
    expect(page.locator(".question")).to_have_text(["first", "from the terminal"])


def test_a_session_that_is_deleted_elsewhere_says_so_once(http: Serve, tab: Tab) -> None:
    served = http(["one"])
    page = tab(served.url, at="/i/ada")
    say(page, "first")
    asked: list[int] = []
    page.on("response", lambda answer: asked.append(answer.status) if "/since" in answer.url else None)
    with served.client() as client:
        client.delete(f"/v1/sessions/{page.url.rpartition('/')[2]}")
    expect(page.get_by_role("alert").last).to_contain_text("No session has the id", ignore_case=True)
    expect(answers(page)).to_have_text(["one"])


def _append(client: httpx.Client, page: Page, role: str, content: str) -> None:
    session = page.url.rpartition("/")[2]
    body = {"messages": [{"role": role, "content": content}]}
    assert client.post(f"/v1/sessions/{session}/messages", json=body).is_success
