"""A day with the page by clicks and keys: on a computer, in the dark on a phone with a slow network, and in memory."""

import base64
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, Page, expect

from chatbot.models.provider import stored_key
from tests.servers.http_server import Serve, Served
from tests.surfaces.page.actions import DESKTOP, PHONE, Tab, answers, go, open_memory, remember, say, slow

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
GIVE = """([kind, selector, name, content]) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0))], name,
        {type: name.endsWith("png") ? "image/png" : "text/markdown"}));
    const given = {[kind === "paste" ? "clipboardData" : "dataTransfer"]: data, bubbles: true};
    const event = kind === "paste" ? new ClipboardEvent(kind, given) : new DragEvent(kind, given);
    document.querySelector(selector).dispatchEvent(event);
}"""


@pytest.fixture
def served(http: Serve) -> Served:
    return http(config='[aliases]\nfast = "scripted"\n')


@pytest.fixture(params=["computer", "slow phone"])
def page(request: pytest.FixtureRequest, served: Served, tab: Tab) -> Page:
    """The first page, as a user opens it."""
    if request.param == "computer":
        return tab(served.url, **DESKTOP, at="/i/ada")
    page = tab(served.url, **PHONE, color_scheme="dark")
    slow(page)
    page.goto("/i/ada")
    return page


def test_the_first_visit_says_what_is_kept_where_and_offers_three_things_to_try(page: Page) -> None:
    expect(page.locator(".promise dt")).to_have_text(["Remembered", "Not remembered", "Where"])
    expect(page.locator(".promise code")).to_contain_text(str(Path("identities", "ada", "memory")))
    expect(page.locator(".tries button")).to_have_count(3)
    expect(page.get_by_role("heading", level=1)).to_be_in_viewport(ratio=1)
    expect(page.locator("#composer")).to_be_in_viewport(ratio=1)
    page.locator(".tries button").first.click()
    expect(answers(page)).to_contain_text("You said: My name is")
    expect(page.locator(".noted summary")).to_contain_text("Remembered this")


def test_files_and_pictures_are_chosen_pasted_dropped_taken_off_and_shown(page: Page, served: Served) -> None:
    text = b"The locker has the number 4711."
    chosen: list[FilePayload] = [
        {"name": "chosen.png", "mimeType": "image/png", "buffer": PIXEL},
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": text},
        {"name": "other.txt", "mimeType": "text/plain", "buffer": b"Not this one."},
    ]
    page.locator("#files").set_input_files(chosen)
    expect(page.locator("#attached li")).to_have_count(3)
    expect(page.locator("#attached canvas")).to_have_count(1)
    page.get_by_role("button", name="Remove other.txt").click()
    page.locator("#attached").evaluate("each => { each.dataset.most = 500; }")
    page.locator("#files").set_input_files({"name": "big.txt", "mimeType": "text/plain", "buffer": b"x" * 501})
    expect(page.locator("#announcement")).to_contain_text("big.txt is not attached")
    page.locator("#files").set_input_files({"name": "none.txt", "mimeType": "text/plain", "buffer": b""})
    expect(page.locator("#announcement")).to_have_text("none.txt is not attached: it is empty.")
    page.evaluate(GIVE, ["paste", "#text", "pasted.png", base64.b64encode(PIXEL).decode()])
    expect(page.locator("#attached li")).to_have_count(3)
    page.evaluate(GIVE, ["drop", "#composer", "dropped.md", base64.b64encode(b"dropped text").decode()])
    expect(page.locator("#attached li")).to_have_text(["chosen.png✕", "notes.txt✕", "pasted.png✕", "dropped.md✕"])
    page.get_by_label("Message", exact=True).fill("Look at these")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(answers(page)).to_have_count(1)
    for name in ("chosen.png", "pasted.png"):
        picture = page.get_by_role("img", name=name)
        picture.scroll_into_view_if_needed()
        expect(picture).to_have_js_property("naturalWidth", 1)
    assert len(served.models["ada"].prompts[-1][-1].images) == 2
    with page.expect_download() as download:
        page.locator(".files a", has_text="notes.txt").click()
    assert (download.value.suggested_filename, download.value.path().read_bytes()) == ("notes.txt", text)
    expect(page.locator(".files li", has_text="dropped.md")).to_be_visible()


def test_model_persona_and_memory_are_chosen_or_typed_beside_the_box(page: Page, served: Served) -> None:
    page.locator(".choices summary").click()
    sheet = page.locator(".choices .sheet")
    box = sheet.bounding_box()
    assert box is not None
    assert page.viewport_size is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= page.viewport_size["width"]
    page.get_by_role("combobox", name="Model").select_option("fast")
    expect(page.get_by_role("textbox", name="Instructions")).to_be_hidden()
    page.get_by_role("combobox", name="Persona").select_option("coach")
    page.get_by_label("Use memory").uncheck()
    page.keyboard.press("Escape")
    say(page, "hello there")
    expect(page.locator(".choices summary")).to_have_text("fast · coach · memory off")
    page.reload()
    expect(page.locator(".choices summary")).to_have_text("fast · coach · memory off")
    page.locator(".choices summary").click()
    page.get_by_label("Project", exact=True).fill("House")
    page.keyboard.press("Escape")
    say(page, "hello again")
    expect(page.locator(".choices summary")).to_have_text("fast · coach · House · memory off")
    with served.client() as client:
        assert client.get("/v1/memories").json()["data"] == []
    page.locator(".choices summary").click()
    page.get_by_role("combobox", name="Model").select_option("Another model…")
    page.get_by_label("Its name").fill("fast")
    page.get_by_role("combobox", name="Persona").select_option("Your own words…")
    page.get_by_role("textbox", name="Instructions").fill("You are a pirate.")
    page.keyboard.press("Escape")
    say(page, "and once more")
    expect(page.locator(".choices summary")).to_have_text("fast · own persona · House · memory off")
    page.locator(".choices summary").click()
    expect(page.get_by_role("textbox", name="Instructions")).to_have_value("You are a pirate.")


def test_a_key_is_stored_and_never_shown_and_its_models_are_offered(page: Page, served: Served) -> None:
    key = "sk-ant-0123456789abcdef"
    go(page, "Settings")
    page.get_by_role("combobox", name="Provider").select_option("anthropic")
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Store", exact=True).click()
    expect(page.get_by_role("status").first).to_have_text("The key is stored. The next message uses it.")
    assert stored_key("anthropic") == key
    page.reload()
    assert key not in page.content()
    go(page, "New chat")
    assert page.locator("select[name=model] option[value^='anthropic/']").count() > 5
    with served.client() as client:
        forwarded = {"x-forwarded-for": "203.0.113.9"}
        form = {"provider": "openai", "key": key}
        answer = client.post("/i/ada/settings/key", data=form, headers=forwarded)
        assert answer.status_code == 403
        assert "over TLS or from this machine" in answer.text
        assert key not in answer.text
    go(page, "Settings")
    page.get_by_role("button", name="Remove the key of anthropic").click()
    expect(page.get_by_role("status").first).to_have_text("The key is removed.")
    assert stored_key("anthropic") == ""
    page.get_by_role("combobox", name="Provider").select_option("Another provider…")
    page.locator("[name='provider.other']").fill("cohere")
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Store", exact=True).click()
    expect(page.get_by_role("status").first).to_have_text("The key is stored. The next message uses it.")
    assert stored_key("cohere") == key


def test_a_printed_conversation_holds_nothing_to_click_and_nothing_moves_where_that_is_not_wanted(page: Page) -> None:
    say(page, "hello there")
    page.emulate_media(media="print")
    expect(page.locator(":root")).to_have_css("color-scheme", "light")
    for hidden in (".sidebar", ".dock", ".actions", ".heading .menu"):
        expect(page.locator(hidden).first).to_be_hidden()
    expect(page.locator(".question")).to_be_visible()
    expect(answers(page)).to_be_visible()
    page.emulate_media(media="screen", reduced_motion="reduce")
    names = "[null, '::before', '::after'].map((part) => getComputedStyle(element, part).animationName)"
    moving = f"[...document.querySelectorAll('*')].flatMap((element) => {names}).filter((x) => x !== 'none').length"
    say(page, "and again", wait=False)
    assert page.evaluate(moving) == 0


def test_memory_is_searched_as_one_types_and_shows_what_a_score_is_made_of(served: Served, page: Page) -> None:
    with served.client() as client:
        remember(client, "The locker at the gym has the number 4711", type="note")
        remember(client, "Chess club meets on Tuesday", type="event")
    go(page, "Memory")
    rows = page.locator(".row-title")
    expect(rows).to_have_count(2)
    page.get_by_role("searchbox").press_sequentially("locker gym")
    expect(rows).to_have_text(["The locker at the gym has the number 4711"])
    expect(page.get_by_role("status")).to_have_text("1 found, best first")
    page.wait_for_url("**q=locker%20gym&type=&status=active**")
    page.locator("details.score summary").click()
    expect(page.get_by_role("row", name="lexical match")).to_be_visible()
    page.locator("details.filters > summary").click()
    page.get_by_role("search").get_by_label("Type").select_option("event")
    expect(page.locator(".rows")).to_have_text("No memories found")


def test_a_memory_is_erased_and_a_session_deleted_by_keys_alone_once_confirmed(served: Served, page: Page) -> None:
    with served.client() as client:
        kept = [remember(client, "The password is plugh"), remember(client, "Tea is at four")]
        open_memory(page, "The password is plugh")
        sure = page.get_by_role("button", name="Delete permanently")
        expect(sure).to_be_hidden()
        page.get_by_text("Delete permanently…").focus()
        page.keyboard.press("Enter")
        expect(sure).to_be_visible()
        assert len(client.get("/v1/memories").json()["data"]) == 2
        page.keyboard.press("Tab")
        expect(sure).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").first).to_have_text("Deleted permanently.")
        page.get_by_role("searchbox").fill("tea")
        expect(page.locator(".done")).to_have_count(0)
        assert [row["id"] for row in client.get("/v1/memories").json()["data"]] == kept[1:]
        assert client.get(f"/v1/memories/{kept[0]}").status_code == 404
        go(page, "New chat")
        say(page, "forget all of this")
        page.get_by_text("More", exact=True).focus()
        page.keyboard.press("Enter")
        page.get_by_text("Delete this session…").focus()
        page.keyboard.press("Enter")
        assert len(client.get("/v1/sessions").json()["data"]) == 1
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Delete permanently")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").first).to_have_text("The session is deleted.")
        assert client.get("/v1/sessions").json()["data"] == []
