"""Talking in a browser: streamed, stopped, again, otherwise, on another way."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from chatbot.errors import ProviderFailed
from chatbot.messages import ToolCall
from tests.servers.http_server import Serve, wait_until
from tests.surfaces.page.actions import answers, done, go, say
from tests.surfaces.page.gate import Gate

Tab = Callable[..., Page]


def test_a_message_begins_a_session_and_its_reply_is_markdown(http: Serve, tab: Tab) -> None:
    served = http(["It is **bold**, and a list:\n\n- one\n- two\n\n```\ncode <b>\n```\n"])
    page = tab(served.url)
    page.goto("/")
    say(page, "hello there")
    assert "/i/ada/c/" in page.url
    expect(page.get_by_role("heading", level=1)).to_have_text("hello there")
    expect(page).to_have_title("hello there · ada")
    expect(answers(page).locator("strong")).to_have_text("bold")
    expect(answers(page).locator("li")).to_have_text(["one", "two"])
    expect(answers(page).locator("pre")).to_have_text("code <b>")
    expect(page.get_by_role("complementary").get_by_role("link", name="hello there")).to_be_visible()


def test_a_reply_is_shown_while_it_comes_and_complete_blocks_are_told_to_screen_readers(
    http: Serve, tab: Tab, gate: Gate
) -> None:
    served = http([gate.reply("First *block*.\n\nSecond bl", "ock, now whole.")])
    page = tab(served.url)
    page.goto("/i/ada")
    say(page, "go on", wait=False)
    expect(page.locator("#live .complete[aria-live=polite]")).to_have_text("First block.")
    expect(page.locator("#live .growing")).to_have_text("Second bl")
    expect(page.get_by_role("status")).to_have_text("ada is answering")
    gate.open()
    done(page)
    expect(answers(page).locator("p")).to_have_text(["First block.", "Second block, now whole."])
    expect(page.get_by_role("status")).to_have_text("The reply is complete.")


def test_stopping_keeps_what_was_said(http: Serve, tab: Tab, gate: Gate) -> None:
    served = http([gate.reply("This much was said", " and this was not.")])
    page = tab(served.url)
    page.goto("/i/ada")
    say(page, "talk", wait=False)
    expect(page.locator("#live .growing")).to_have_text("This much was said")
    page.get_by_role("button", name="Stop").click()
    done(page)
    expect(answers(page)).to_have_text("This much was said")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("There is no complete reply: stopped before the reply was complete")
    page.reload()
    expect(page.locator(".problem")).to_have_text("stopped before the reply was complete")
    expect(answers(page)).to_have_text("This much was said")


def test_retry_answers_the_same_message_again(http: Serve, tab: Tab) -> None:
    served = http(["first try", "second try"])
    page = tab(served.url)
    page.goto("/i/ada")
    say(page, "tell me something")
    expect(answers(page)).to_have_text("first try")
    page.get_by_role("button", name="Retry").click()
    expect(answers(page)).to_have_text("second try")
    expect(page.locator(".question")).to_have_text(["tell me something"])


def test_the_last_message_is_edited_in_place(http: Serve, tab: Tab) -> None:
    page = tab(http().url)
    page.goto("/i/ada")
    say(page, "one")
    say(page, "two")
    url = page.url
    page.get_by_role("link", name="Edit").last.click()
    box = page.get_by_label("Edit your message")
    expect(box).to_be_focused()
    expect(box).to_have_value("two")
    box.fill("three")
    box.press("Enter")
    expect(page.locator(".question")).to_have_text(["one", "three"])
    expect(answers(page)).to_have_text(["You said: one", "You said: three"])
    assert page.url == url


def test_an_earlier_message_is_edited_in_a_fork_and_nothing_is_lost(http: Serve, tab: Tab) -> None:
    page = tab(http().url)
    page.goto("/i/ada")
    for text in ("one", "two", "three"):
        say(page, text)
    url = page.url
    page.get_by_role("link", name="Edit").nth(1).click()
    page.get_by_label("Edit your message in a fork of this session").fill("zwei")
    page.get_by_role("button", name="Send").first.click()
    expect(page.locator(".question")).to_have_text(["one", "zwei"])
    expect(answers(page)).to_have_text(["You said: one", "You said: zwei"])
    assert page.url != url
    page.goto(url)
    expect(page.locator(".question")).to_have_text(["one", "two", "three"])


def test_a_fork_begins_behind_the_reply_that_was_chosen(http: Serve, tab: Tab) -> None:
    page = tab(http().url)
    page.goto("/i/ada")
    for text in ("one", "two", "three"):
        say(page, text)
    url = page.url
    page.get_by_role("button", name="Fork", exact=True).nth(1).click()
    page.wait_for_url(lambda now: now != url)
    expect(page.locator(".question")).to_have_text(["one", "two"])
    say(page, "four")
    expect(page.locator(".question")).to_have_text(["one", "two", "four"])
    page.get_by_text("More").click()
    page.get_by_role("button", name="Fork this session").click()
    expect(page.locator("#recent li")).to_have_count(3)


def test_a_reload_joins_the_reply_under_way(http: Serve, tab: Tab, gate: Gate) -> None:
    page = tab(http([gate.reply("Half of it", " and the rest.")]).url)
    page.goto("/i/ada")
    say(page, "slowly", wait=False)
    expect(page.locator("#live .growing")).to_have_text("Half of it")
    page.reload()
    expect(page.locator("#live .growing")).to_have_text("Half of it")
    expect(page.locator(".question")).to_have_text(["slowly"])
    gate.open()
    done(page)
    expect(answers(page)).to_have_text("Half of it and the rest.")


def test_a_turn_goes_on_when_the_tab_is_closed(http: Serve, tab: Tab, gate: Gate) -> None:
    served = http([gate.reply("Half of it", " and the rest.")])
    page = tab(served.url)
    page.goto("/i/ada")
    say(page, "slowly", wait=False)
    expect(page.locator("#live .growing")).to_have_text("Half of it")
    session_id = page.url.rpartition("/")[2]
    page.close()
    gate.open()
    with served.client() as client:
        wait_until(
            lambda: (
                client.get(f"/v1/sessions/{session_id}/messages").json()["data"][-1]["content"]
                == "Half of it and the rest."
            )
        )


def test_a_lost_connection_is_taken_up_again_without_saying_anything_twice(http: Serve, tab: Tab, gate: Gate) -> None:
    page = tab(http([gate.reply("Block one.\n\nHalf", " and the rest.")]).url)
    page.goto("/i/ada")
    say(page, "slowly", wait=False)
    expect(page.locator("#live .complete")).to_have_text("Block one.")
    page.evaluate(
        "document.querySelector('#live')['htmx-internal-data'].sseEventSource.dispatchEvent(new Event('open'))"
    )
    expect(page.locator("#live .complete")).to_have_text("")  # what comes again begins anew
    gate.open()
    done(page)
    expect(answers(page).locator("p")).to_have_text(["Block one.", "Half and the rest."])


def test_a_session_is_renamed(http: Serve, tab: Tab) -> None:
    page = tab(http().url)
    page.goto("/i/ada")
    say(page, "a long beginning")
    page.get_by_text("More").click()
    page.get_by_label("Title").fill("The short one")
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("The short one")
    expect(page).to_have_title("The short one · ada")
    expect(page.get_by_role("complementary").get_by_role("link", name="The short one")).to_be_visible()


def test_sessions_are_found_by_their_title_and_by_what_was_said(http: Serve, tab: Tab) -> None:
    page = tab(http().url)
    for first, second in (("Chess openings", "The Sicilian is sharp"), ("Gardening plans", "Tomatoes need the sun")):
        page.goto("/i/ada")
        say(page, first)
        say(page, second)
    go(page, "Sessions")
    rows = page.locator(".rows > li > a")
    expect(rows).to_have_text(["Gardening plans", "Chess openings"])
    page.get_by_role("searchbox").fill("chess")
    expect(rows).to_have_text(["Chess openings"])
    page.get_by_role("searchbox").fill("tomatoes")
    expect(rows).to_have_text(["Gardening plans"])
    expect(page.locator(".rows")).to_contain_text("Tomatoes need the sun")
    expect(page.get_by_role("status")).to_have_text("1 found")
    page.get_by_role("searchbox").fill("zeppelin")
    expect(page.locator(".rows")).to_have_text("No sessions found")


def test_tools_and_failures_are_shown(http: Serve, tab: Tab) -> None:
    call = ToolCall("c1", "memory_search", '{"query": "anything"}')
    page = tab(http([[call], "I looked.", ProviderFailed("the model broke off")]).url)
    page.goto("/i/ada")
    say(page, "look it up")
    expect(page.locator("details.tool summary").first).to_have_text("used memory_search")
    expect(answers(page)).to_have_text("I looked.")
    say(page, "again")
    expect(page.locator(".problem")).to_contain_text("the model broke off")
    expect(page.get_by_role("status")).to_have_text("There is no complete reply: the model broke off")
    page.reload()
    expect(page.locator(".problem")).to_contain_text("the model broke off")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()


def test_the_page_works_without_a_script(http: Serve, tab: Tab) -> None:
    page = tab(http().url, java_script_enabled=False)
    page.goto("/")
    page.locator("#text").fill("no script here")
    page.locator("#send").click()
    for _ in range(50):
        page.reload()
        if answers(page).count():
            break
    expect(answers(page)).to_have_text("You said: no script here")


def test_identities_are_apart_and_one_click_away(http: Serve, tab: Tab) -> None:
    page = tab(http().url)
    page.goto("/i/ada")
    say(page, "only for ada")
    page.locator("aside .who summary").click()
    page.get_by_role("link", name="grace").click()
    expect(page.get_by_label("Message", exact=True)).to_have_attribute("placeholder", "Message grace")
    expect(page.get_by_role("complementary").get_by_role("link", name="only for ada")).to_have_count(0)
