"""Talking in a browser: streamed, stopped, again, otherwise, on another way."""

from playwright.sync_api import Page, expect

from chatbot.errors import ProviderFailed
from chatbot.messages import TextDelta, ToolCall
from tests.servers.http_server import Serve
from tests.surfaces.page.actions import Gate, Tab, answers, done, say
from tests.surfaces.page.test_daily import PIXEL


def test_a_reply_comes_with_its_tools_and_screen_readers_get_whole_blocks(http: Serve, tab: Tab, gate: Gate) -> None:
    call = ToolCall("c1", "memory_search", '{"query": "anything"}')
    page = tab(http([[call], gate.reply("First *block*.\n\nSecond bl", "ock, now whole.")]).url, at="/i/ada")
    say(page, "go on", wait=False)
    told = page.locator("#live .complete[aria-live=polite] p")
    expect(told).to_have_text(["uses memory_search", "memory_search answered", "First block."])
    expect(page.locator("#live .growing")).to_have_text("Second bl")
    expect(page.get_by_role("status")).to_have_text("ada is answering")
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true, writable: true })")
    gate.open()
    done(page)
    expect(page).to_have_title("● go on · ada")
    page.evaluate("document.hidden = false; document.dispatchEvent(new Event('visibilitychange'))")
    expect(page).to_have_title("go on · ada")
    expect(answers(page).locator("p")).to_have_text(["First block.", "Second block, now whole."])
    expect(page.locator("details.tool summary").first).to_have_text("used memory_search")
    expect(page.get_by_role("status")).to_have_text("The reply is complete.")


def test_a_stopped_reply_keeps_what_was_said_and_is_marked_so_not_as_failed(http: Serve, tab: Tab, gate: Gate) -> None:
    page = tab(http([gate.reply("This much was said", " and this was not.")]).url, at="/i/ada")
    say(page, "talk", wait=False)
    expect(page.locator("#live .growing")).to_have_text("This much was said")
    page.get_by_role("button", name="Stop").click()
    done(page)
    expect(answers(page)).to_have_text("This much was said")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("The reply was stopped.")
    for _ in range(2):
        expect(page.locator(".ending .small")).to_have_text("Stopped")
        expect(page.locator(".problem")).to_have_count(0)
        expect(answers(page)).to_have_text("This much was said")
        expect(page.get_by_role("button", name="Try again")).to_be_visible()
        page.reload()


def test_the_last_message_is_edited_in_place_and_an_earlier_one_in_a_fork_where_nothing_is_lost(page: Page) -> None:
    for text in ("one", "two", "last"):
        say(page, text)
    url = page.url
    page.get_by_role("link", name="Edit").last.click()
    box = page.get_by_label("Edit your message")
    expect(box).to_be_focused()
    expect(box).to_have_value("last")
    box.fill("three")
    box.press("Enter")
    expect(page.locator(".question")).to_have_text(["one", "two", "three"])
    expect(answers(page)).to_have_text(["You said: one", "You said: two", "You said: three"])
    assert page.url == url
    page.get_by_role("link", name="Edit").nth(1).click()
    page.get_by_label("Edit your message in a fork of this session").fill("zwei")
    page.get_by_role("button", name="Send").first.click()
    expect(page.locator(".question")).to_have_text(["one", "zwei"])
    expect(answers(page)).to_have_text(["You said: one", "You said: zwei"])
    assert page.url != url
    page.goto(url)
    expect(page.locator(".question")).to_have_text(["one", "two", "three"])


def test_a_lost_connection_is_taken_up_again_without_saying_anything_twice(http: Serve, tab: Tab, gate: Gate) -> None:
    page = tab(http([gate.reply("Block one.\n\nHalf", " and the rest.")]).url, at="/i/ada")
    say(page, "slowly", wait=False)
    expect(page.locator("#live .complete")).to_have_text("Block one.")
    page.evaluate(
        "document.querySelector('#live')['htmx-internal-data'].sseEventSource.dispatchEvent(new Event('open'))"
    )
    expect(page.locator("#live .complete")).to_have_text("")  # what comes again begins anew
    gate.open()
    done(page)
    expect(answers(page).locator("p")).to_have_text(["Block one.", "Half and the rest."])


def test_the_page_works_without_a_script(http: Serve, tab: Tab) -> None:
    page = tab(http().url, java_script_enabled=False, at="/")
    page.locator("#text").fill("no script here")
    page.locator("#send").click()
    page.wait_for_load_state()
    for _ in range(50):
        page.reload()
        if answers(page).count():
            break
    expect(answers(page)).to_have_text("You said: no script here")


def test_a_retry_keeps_the_earlier_reply_and_the_model_is_shown_the_chosen_one(http: Serve, tab: Tab) -> None:
    served = http(["reply one", "reply two", "reply three", "and on"])
    page = tab(served.url, at="/i/ada")
    say(page, "My locker at the gym has the number 4711")
    for shown in ("reply two", "reply three"):
        page.get_by_role("button", name="Retry").click()
        expect(answers(page)).to_have_text(shown)
    expect(page.locator(".replies")).to_contain_text("3 of 3")
    page.get_by_role("button", name="Earlier reply").click()
    expect(page.locator(".replies")).to_contain_text("2 of 3")
    expect(page.get_by_text("reply two", exact=True)).to_be_visible()
    page.get_by_role("link", name="Why").click()
    expect(page.get_by_role("heading", name="Why this reply?")).to_be_visible()
    page.go_back()
    say(page, "go on")
    prompt = [(each.role, each.content) for each in served.models["ada"].prompts[-1]]
    assert ("assistant", "reply two") in prompt
    assert not any("reply one" in content or "reply three" in content for _, content in prompt)
    page.get_by_text("2 other replies").click()
    expect(page.get_by_role("region", name="Reply 1")).to_have_text("reply one")
    with served.client() as client:
        kept = [each["assistant_text"] for each in client.get("/v1/memories").json()["data"]]
    assert "reply two" in kept
    assert not {"reply one", "reply three"} & set(kept)


def test_a_failed_reply_says_why_is_tried_again_and_is_announced(http: Serve, tab: Tab) -> None:
    failure = ProviderFailed("the provider is overloaded: wait a minute, then ask again")
    midway = [TextDelta("It begins *well*"), failure]
    page = tab(http([midway, "It works.", failure, "Later.", "In the fork."]).url, at="/i/ada")
    say(page, "does it work?")
    expect(answers(page)).to_have_text("It begins well")
    expect(page.get_by_role("status")).to_have_text(
        "The reply failed. The provider is overloaded: wait a minute, then ask again"
    )
    page.reload()
    expect(page.locator(".problem")).to_have_text("The provider is overloaded: wait a minute, then ask again")
    page.get_by_role("button", name="Try again").click()
    expect(answers(page)).to_have_text("It works.")
    expect(page.locator(".problem")).to_have_count(0)
    expect(page.locator(".replies")).to_have_count(0)  # a failure is nothing to choose
    say(page, "and now?")
    say(page, "and later?")
    url = page.url
    page.get_by_role("button", name="Try again").click()  # of the message before the last one
    page.wait_for_url(lambda now: now != url)
    expect(page.locator(".question")).to_have_text(["does it work?", "and now?"])
    expect(answers(page).last).to_have_text("In the fork.")


def test_a_message_that_could_not_be_kept_is_sent_again_by_a_button(http: Serve, tab: Tab) -> None:
    served = http(["Fine.", "Good."])
    page = tab(served.url, at="/i/ada")
    say(page, "first")
    served.models["ada"]._sees = False
    page.locator("#files").set_input_files({"name": "cat.png", "mimeType": "image/png", "buffer": PIXEL})
    say(page, "what is this?", wait=False)
    expect(page.locator(".problem")).to_contain_text("cannot see pictures (cat.png)")
    expect(page.locator(".question")).to_have_text(["first", "what is this?"])
    page.get_by_role("button", name="Edit", exact=True).click()
    expect(page.get_by_label("Message", exact=True)).to_have_value("what is this?")
    page.reload()
    served.models["ada"]._sees = True
    page.get_by_role("button", name="Send again").click()
    expect(answers(page).last).to_have_text("Good.")
    expect(page.get_by_alt_text("cat.png")).to_be_visible()
