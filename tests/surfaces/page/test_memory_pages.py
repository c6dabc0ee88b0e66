"""Looking into what is remembered, correcting it, and seeing why and at what cost."""

from playwright.sync_api import Page, expect

from tests.servers.http_server import Served
from tests.surfaces.page.actions import go, open_memory, remember, say


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
