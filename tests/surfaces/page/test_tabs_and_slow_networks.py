"""Talking on a slow network, in several tabs and far back: what is sent is seen at once, and nothing is lost."""

import re

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.servers.http_server import Serve, Served, wait_until
from tests.surfaces.page.actions import DESKTOP, PHONE, Gate, Tab, answers, done, go, remember, say

DARK = {**DESKTOP, "color_scheme": "dark"}
CODE = 'Here:\n\n```python\nprint("hello")\n```\n\n| a | b |\n|--:|---|\n| 1 | 2 |\n\n- [x] done\n\n$$\\int x\\,dx$$'


@pytest.fixture(params=[DESKTOP, DARK, PHONE], ids=["light", "dark", "phone"])
def look(request: pytest.FixtureRequest) -> dict[str, object]:
    options: dict[str, object] = request.param
    return options


def test_a_message_is_sent_recalled_from_and_corrected_in_one_short_journey(http: Serve, tab: Tab) -> None:
    served = http([CODE])
    with served.client() as client:
        remember(client, "The locker at the gym has the number 4711")
    page = tab(served.url, **DESKTOP, at="/i/ada")
    say(page, "Which number has the locker at the gym?")
    expect(answers(page).locator(".code .head span")).to_have_text("python")
    expect(answers(page).locator(".code .s")).to_have_text('"hello"')
    expect(answers(page).locator("td.right")).to_have_text("1")
    expect(answers(page).locator("math mo").first).to_have_text("∫")
    page.locator(".noted summary").click()
    row = page.locator(".noted-rows li", has_text="4711")
    row.get_by_role("button", name="Never recall").click()
    expect(row).to_contain_text("hidden and no longer recalled")
    expect(row.get_by_role("button", name="Undo")).to_be_focused()
    row.get_by_role("button", name="Undo").click()
    row.get_by_role("link", name="Correct").click()
    page.locator("#f-title").fill("It has another number")
    page.keyboard.press("Escape")
    expect(page.locator("#f-title")).to_be_hidden()
    expect(page.locator("#f-title")).to_have_value("The locker at the gym has the number 4711")


def test_a_message_is_seen_before_it_is_sent_and_what_is_typed_then_stays(
    http: Serve, tab: Tab, look: dict[str, object]
) -> None:
    page = tab(http().url, **look, at="/i/ada")
    box = page.get_by_label("Message", exact=True)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.context.route("**/say", hold)
    for text in ("first", "second"):  # by the form that begins a session, and in one
        box.fill(text)
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.locator(".pending .question")).to_have_text(text)
        expect(page.locator(".pending")).to_contain_text("Sending…")
        expect(box).to_have_value("")
        expect(box).to_be_in_viewport(ratio=1)
        box.press_sequentially("typed meanwhile")
        while not held:
            page.wait_for_timeout(20)
        held.pop().continue_()
        expect(answers(page).last).to_have_text(f"You said: {text}")
        expect(page.locator(".pending")).to_have_count(0)
        expect(box).to_have_value("typed meanwhile")


def test_what_is_typed_while_a_reply_streams_waits_for_its_end_and_can_be_taken_back(
    http: Serve, tab: Tab, gate: Gate
) -> None:
    page = tab(http([gate.reply("Half of it", " and the rest."), "two", "three"]).url, **DESKTOP, at="/i/ada")
    say(page, "slowly", wait=False)
    expect(page.locator("#live .growing")).to_have_text("Half of it")
    for text in ("next", "never", "last"):
        say(page, text, wait=False)
    waiting = page.locator(".exchange.waiting")
    expect(waiting).to_have_count(3)
    waiting.nth(1).get_by_role("button", name="Do not send").click()
    expect(waiting).to_have_count(2)
    assert page.request.post(f"{page.url}/retry", form={"x": "y"}).status == 409  # it would drop what waits
    page.reload()
    expect(waiting.locator(".question")).to_have_text(["next", "last"])
    page.keyboard.press("Escape")
    expect(waiting).to_have_count(0)
    done(page)
    expect(page.locator(".question")).to_have_text(["slowly", "next", "last"])
    expect(answers(page)).to_have_text(["Half of it", "two", "three"])


def test_a_message_that_could_not_be_sent_stays_and_is_sent_again_once(page: Page) -> None:
    lost: list[str] = []

    def answer_lost(route: Route) -> None:
        """Let the message reach the server, and its answer get lost."""
        if lost:
            return route.continue_()
        lost.append(route.fetch().text())
        return route.abort()

    page.context.route("**/say", answer_lost)
    page.get_by_label("Message", exact=True).fill("first")
    page.get_by_label("Message", exact=True).press("Enter")
    expect(page.locator("#announcement")).to_contain_text("The server cannot be reached.")
    page.evaluate("htmx.ajax('GET', '/i/ada/projects', '#projects')")  # the answer to something else
    say(page, "first")
    assert len(page.request.get("/v1/sessions").json()["data"]) == 1
    lost.clear()
    page.get_by_label("Message", exact=True).fill("second")
    page.get_by_label("Message", exact=True).press("Enter")
    expect(page.locator(".failed")).to_contain_text("Not sent. The server cannot be reached.")
    page.context.route("**/memory", lambda route: route.abort())
    page.get_by_role("link", name="Memory", exact=True).click()
    expect(page.locator("#announcement")).to_contain_text("The server cannot be reached.")
    places = [page.locator(each).bounding_box() for each in ("#announcement", "#composer")]
    assert places[0]["y"] + places[0]["height"] <= places[1]["y"]  # type: ignore[index] # both are visible
    page.get_by_role("button", name="Send again").click()
    expect(page.locator(".failed")).to_have_count(0)
    expect(answers(page)).to_have_text(["You said: first", "You said: second"])
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.reload()
    expect(page.locator(".question")).to_have_text(["first", "second"])
    page.get_by_label("Message", exact=True).fill("long " * 2_000_000)  # more than a draft may be
    page.get_by_label("Message", exact=True).press("Enter")
    expect(page.locator(".failed")).to_contain_text("Not sent. A request may hold at most")


def test_what_is_not_sent_yet_or_cannot_be_sent_is_a_draft_of_its_session(page: Page) -> None:
    def refuse(route: Route) -> None:
        if "/c/" in route.request.url:
            return route.fulfill(status=409, json={"error": {"message": "the session is busy."}})
        return route.fulfill(status=409, content_type="text/html", body='<p class="problem">The session is busy.</p>')

    box = page.get_by_label("Message", exact=True)
    for text in ("first", "second"):  # by the form that begins a session, and in one
        page.context.route("**/say", refuse)
        box.fill(text)
        box.press("Enter")
        expect(page.locator("#announcement, .failed").filter(has_text="The session is busy.")).to_be_visible()
        page.reload()
        expect(box).to_have_value(text)
        page.context.unroute("**/say")
        say(page, text)
    url, held = page.url, list[Route]()
    page.context.route("**/say", lambda route: route.continue_() if held else held.append(route))
    box.fill("third")
    box.press("Enter")
    go(page, "New chat")
    say(page, "other")
    with page.expect_response("**/say"):
        held[0].continue_()
    page.reload()
    expect(page.locator(".question")).to_have_text(["other"])
    page.goto(url)
    expect(page.locator(".question")).to_have_text(["first", "second", "third"])
    expect(box).to_have_value("")
    box.press_sequentially("half a thou")
    go(page, "Memory")
    page.go_back()
    expect(box).to_have_value("half a thou")
    box.press_sequentially("ght")
    box.press("Enter")
    expect(page.locator(".question").last).to_have_text("half a thought")


def test_the_message_box_grows_with_its_text_where_the_style_alone_does_not(page: Page) -> None:
    def without_property(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace("field-sizing: content", ""))

    page.context.route("**/style.css*", without_property)
    page.context.add_init_script("CSS.supports = () => false")
    page.reload()
    box = page.get_by_label("Message", exact=True)
    heights: list[int] = []
    for text in ("one line", "one\ntwo\nthree", "one line"):
        box.fill(text)
        heights.append(box.evaluate("box => box.offsetHeight"))
    assert heights[0] == heights[2] < heights[1]


def test_a_reply_that_ended_before_its_message_was_answered_is_announced(page: Page) -> None:
    def answer_late(route: Route) -> None:
        """Answer when the turn has ended, with the page or the part of it that the server makes then."""
        answer = route.fetch()
        session = answer.url.removesuffix("/say")
        while "data-turn" in page.request.get(session).text():
            page.wait_for_timeout(20)
        key = route.request.headers.get("idempotency-key")
        route.fulfill(response=route.fetch() if key else page.request.get(session, headers={"HX-Boosted": "true"}))

    for form in ("say", "retry"):
        page.context.route(f"**/{form}", answer_late)
    for text in ("first", "second"):  # by the form that begins a session, and in one
        say(page, text)
        expect(page.get_by_role("status")).to_have_text("The reply is complete.")
    page.get_by_role("button", name="Retry").last.click()
    expect(page.get_by_text("2 of 2")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("The reply is complete.")


@pytest.fixture
def long_talk(http: Serve) -> tuple[Served, str]:
    """A session of 150 messages with their replies."""
    served = http()
    with served.client() as client:
        session = client.post("/v1/sessions", json={"title": "A long talk"}).json()["id"]
        for number in range(150):
            text = "a word about a kumquat" if number == 20 else f"question {number}"
            client.post(f"/v1/sessions/{session}/chat", json={"text": text, "stream": False})
    return served, session


def test_going_back_keeps_place_and_adds_news(long_talk: tuple[Served, str], tab: Tab, look: dict[str, object]) -> None:
    served, session = long_talk
    page = tab(served.url, **look)
    page.goto(f"/i/ada/c/{session}")
    questions = page.locator(".question")
    expect(questions.last).to_be_in_viewport()
    assert questions.count() <= 20
    sizes: list[int] = []
    page.on("response", lambda answer: sizes.append(len(answer.body())) if "/earlier" in answer.url else None)
    first = questions.first.inner_text()
    page.get_by_text(first, exact=True).scroll_into_view_if_needed()
    place = page.get_by_text(first, exact=True).bounding_box()
    page.evaluate("document.querySelector('#log > .earlier a').click()")
    expect(questions.first).not_to_have_text(first)
    moved = page.get_by_text(first, exact=True).bounding_box()
    assert place is not None
    assert moved is not None
    assert abs(place["y"] - moved["y"]) < 3
    for number in (100, 60, 0):
        while not page.get_by_text(f"question {number}", exact=True).count():
            count = questions.count()
            page.evaluate("document.querySelector('#log > .earlier a').click()")
            expect(questions).not_to_have_count(count)
    expect(questions).to_have_count(150)
    assert len(set(questions.all_inner_texts())) == 150
    assert max(sizes) < 80_000
    expect(page.get_by_role("link", name="Show earlier messages")).to_have_count(0)


def test_a_hit_opens_midway_and_goes_on(long_talk: tuple[Served, str], tab: Tab, look: dict[str, object]) -> None:
    served, _ = long_talk
    page = tab(served.url, **look, at="/i/ada")
    go(page, "Sessions")
    page.get_by_role("searchbox").fill("kumquat")
    expect(page.get_by_role("status")).to_have_text("1 found")
    page.locator(".rows").get_by_role("link", name="A long talk").click()
    expect(page.get_by_text("a word about a kumquat", exact=True)).to_be_in_viewport()
    assert page.locator(".question").count() < 30
    page.get_by_role("link", name="Show later messages").click()
    expect(page.get_by_text("question 40", exact=True)).to_be_attached()
    page.get_by_role("link", name="Go to the end").click()
    expect(page.get_by_text("question 149", exact=True)).to_be_in_viewport()
    left = page.get_by_text("question 135", exact=True)
    left.evaluate("element => element.scrollIntoView({ block: 'center' })")
    page.reload()
    expect(left).to_be_in_viewport()
    top = page.locator(".heading").evaluate("element => element.getBoundingClientRect().top")
    assert top == 0, "one bar, also on a phone"
    go(page, "Memory")
    page.go_back()
    expect(left).to_be_in_viewport()
    page.go_forward()
    expect(page.locator("nav [aria-current=page]")).to_have_text("Memory")


def test_code_and_replies_are_copied_as_they_are(http: Serve, tab: Tab) -> None:
    page = tab(http([CODE]).url, permissions=["clipboard-read", "clipboard-write"], **DESKTOP, at="/i/ada")
    say(page, "hello")
    page.get_by_role("button", name="Copy", exact=True).first.click()
    wait_until(lambda: _copied(page) == 'print("hello")\n')
    page.locator(".copy-reply").click()
    wait_until(lambda: _copied(page) == CODE)
    page.get_by_role("link", name="Link").click()
    wait_until(lambda: "?at=" in _copied(page))
    page.goto(_copied(page))
    expect(page.locator("#here .question")).to_have_text("hello")


def _copied(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_the_keys_of_the_list_do_what_it_says(page: Page) -> None:
    say(page, "first")
    page.get_by_text("More").press("Enter")
    page.get_by_role("button", name="Copy").focus()
    expect(page.get_by_label("Title")).to_be_hidden()
    page.get_by_text("More").press("Enter")
    page.get_by_label("Title").fill("other")
    page.get_by_label("Title").press("Escape")
    expect(page.get_by_label("Title")).to_be_hidden()
    expect(page.locator("#title")).to_have_value("first")
    expect(page.locator(".heading .menu > summary")).to_be_focused()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_visible()
    expect(page.get_by_role("button", name="Close", exact=True)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_label("Edit your message")).to_have_value("first")
    page.keyboard.press("Escape")
    expect(page.locator("#edited")).to_have_count(0)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("m")
    expect(page.get_by_label("Search memories")).to_be_focused()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("s")
    expect(page.get_by_label("Search titles and messages")).to_be_focused()
    page.locator("#main a[data-rename]").focus()
    page.keyboard.press("F2")
    page.keyboard.type("Renamed in place")
    page.keyboard.press("Enter")
    expect(page.locator("#main a[data-rename]")).to_be_focused()
    expect(page.locator("#recent a")).to_have_text("Renamed in place")
    expect(page.locator(".rename [name=title]")).to_have_value("Renamed in place")
    page.reload()
    expect(page.locator("#main a[data-rename]")).to_have_text("Renamed in place")
    page.get_by_role("button", name="Shortcuts").click()
    page.get_by_label("Use shortcuts of a single letter").uncheck()
    page.keyboard.press("Escape")
    page.goto("/i/ada/tasks")
    page.keyboard.press("n")  # a person who dictates says words, which are letters
    page.keyboard.press("?")
    expect(page).to_have_url(re.compile("/tasks$"))
    expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_hidden()


def test_a_message_sent_in_one_browser_appears_in_another_during_its_reply(http: Serve, tab: Tab, gate: Gate) -> None:
    served = http(["one", gate.reply("Half of it", " and the rest."), "three"])
    here, there = tab(served.url), tab(served.url)
    here.goto("/i/ada")
    say(here, "first")
    there.goto(here.url)
    expect(answers(there)).to_have_text(["one"])
    there.get_by_label("Message", exact=True).press_sequentially("my own draft")
    here.locator("#choices summary").click()
    here.get_by_label("Use memory").uncheck()
    say(here, "second", wait=False)
    expect(there.locator("#live .growing")).to_have_text("Half of it")
    say(here, "third", wait=False)
    expect(here.locator(".waiting")).to_have_count(1)
    gate.open()
    done(here)
    expect(answers(here)).to_have_text(["one", "Half of it and the rest.", "three"])
    expect(answers(there)).to_have_text(["one", "Half of it and the rest.", "three"])
    expect(there.get_by_label("Message", exact=True)).to_have_value("my own draft")
    expect(there.locator("#choices summary")).to_contain_text("memory off")


def test_a_message_of_another_program_appears_and_then_its_reply(http: Serve, tab: Tab) -> None:
    served = http(["one"])
    page = tab(served.url, at="/i/ada")
    say(page, "first")
    page.context.route("**/say", lambda route: route.abort())
    page.get_by_label("Message", exact=True).fill("not sent yet")
    page.get_by_label("Message", exact=True).press("Enter")
    with served.client() as client:
        _append(client, page, "user", "from the terminal")
        expect(page.locator(".question")).to_have_text(["first", "from the terminal", "not sent yet"])
        _append(client, page, "assistant", "its answer")
    expect(answers(page)).to_have_text(["one", "its answer"])
    expect(page.locator(".question")).to_have_text(["first", "from the terminal", "not sent yet"])


def test_a_session_that_is_deleted_elsewhere_says_so_once(http: Serve, tab: Tab, gate: Gate) -> None:
    served = http(["one", gate.reply("Half of it", " and the rest.")])
    page = tab(served.url, at="/i/ada")
    say(page, "first")
    say(page, "second", wait=False)
    expect(page.locator("#live .growing")).to_have_text("Half of it")
    with served.client() as client:
        client.delete(f"/v1/sessions/{page.url.rpartition('/')[2]}")
    done(page)
    expect(page.get_by_role("alert").last).to_contain_text("No session has the id", ignore_case=True)
    expect(answers(page).first).to_have_text("one")


def _append(client: httpx.Client, page: Page, role: str, content: str) -> None:
    session = page.url.rpartition("/")[2]
    body = {"messages": [{"role": role, "content": content}]}
    assert client.post(f"/v1/sessions/{session}/messages", json=body).is_success
