"""Looking into what is remembered, correcting it, and seeing why and at what cost."""

import pytest
from playwright.sync_api import Page, expect

from chatbot.models.model import Price
from tests.servers.http_server import Serve, Served
from tests.surfaces.page.actions import Tab, go, open_memory, remember, say


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
    score = page.locator("details.score")
    score.locator("summary").click()
    parts = {
        row.locator("th").inner_text(): float(row.locator("td").first.inner_text())
        for row in score.locator("tbody tr").all()
    }
    assert set(parts) >= {"match", "recency", "mentions", "lexical match"}
    told = float(score.locator(".number").inner_text())
    assert told == pytest.approx(0.96 * parts["match"] + 0.02 * parts["recency"] + 0.02 * parts["mentions"], abs=0.02)
    page.locator("details.filters > summary").click()
    page.get_by_role("search").get_by_label("Type").select_option("event")
    expect(page.locator(".rows")).to_have_text("No memories found")


def test_a_memory_is_erased_and_a_session_deleted_with_the_keys_alone_and_only_when_it_is_confirmed(
    served: Served, page: Page
) -> None:
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


def test_the_profile_is_set_pinned_forgotten_and_shows_its_history(page: Page) -> None:
    go(page, "Profile")
    expect(page.locator(".rows").first).to_contain_text("No profile yet")
    expect(page.locator(".rows").last).to_contain_text("No memory clearly answers this")
    for value in ("Berlin", "Lisbon"):
        page.get_by_label("Key, such as home or favourite tea").fill("home")
        page.get_by_label("Value", exact=True).fill(value)
        page.get_by_role("button", name="Set").click()
        expect(page.get_by_role("link", name=f"home: {value}")).to_be_visible()
    page.get_by_role("button", name="Pin: home: Lisbon").click()
    expect(page.get_by_role("button", name="Unpin: home: Lisbon")).to_be_visible()
    page.get_by_role("link", name="History").click()
    expect(page.locator(".task a")).to_have_text(["home: Berlin", "home: Lisbon"])
    page.get_by_role("link", name="The whole profile").click()
    page.get_by_role("button", name="Forget: home: Lisbon").click()
    expect(page.locator(".rows").first).to_contain_text("No profile yet")


def test_people_are_shown_with_what_is_stated_about_them(served: Served, page: Page) -> None:
    with served.client() as client:
        remember(client, "Sam won the tournament", people=["Sam"])
        remember(client, "Kim and Sam play chess", people=["Sam", "Kim"])
        client.post("/v1/facts", json={"subject": "Sam", "predicate": "lives in", "object": "Graz"})
    go(page, "People")
    expect(page.locator(".rows > li > a")).to_have_text(["Sam", "Kim"])
    expect(page.locator(".rows > li").first).to_contain_text("lives in Graz")
    page.get_by_role("searchbox").fill("ki")
    expect(page.locator(".rows > li > a")).to_have_text(["Kim"])
    page.get_by_role("link", name="Kim").click()
    expect(page.locator(".row-title")).to_have_text(["Kim and Sam play chess"])


def test_why_shows_what_was_looked_at_what_went_in_and_why_the_rest_did_not(served: Served, page: Page) -> None:
    with served.client() as client:
        inside = remember(client, "The locker at the gym has the number 4711")
        for number in range(12):
            remember(client, f"The gym has a locker room with a door that is painted in colour {number}")
    say(page, "Which number has the locker at the gym?")
    say(page, "Thank you, that is all.")
    page.get_by_role("link", name="Why").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Why this reply?")
    expect(page.locator(".asked")).to_contain_text("Which number has the locker at the gym?")
    considered = page.get_by_role("region", name="Memories considered").locator(".rows > li")
    injected = page.locator("li.in")
    assert 1 <= injected.count() < considered.count()
    expect(injected.first).to_contain_text("sent")
    expect(page.locator("li.out .verdict").first).to_have_text("left out: below relative floor")
    expect(page.get_by_text("In the prompt: 1 memory sent")).to_be_visible()
    expect(injected.locator(f"a[href='/i/ada/memory/{inside}']")).to_be_visible()
    injected.first.locator("summary").click()
    expect(injected.first.get_by_role("row", name="credibility")).to_be_visible()
    expect(page.get_by_role("region", name="Parts of the prompt").get_by_role("row", name="persona")).to_be_visible()


def test_cost_is_shown_for_sessions_and_turns(http: Serve, tab: Tab) -> None:
    served = http()
    page = tab(served.url, at="/i/ada")
    served.models["ada"]._price = Price(0.000001, 0.000002)
    say(page, "what do you cost?")
    page.get_by_role("link", name="Cost", exact=True).click()
    row = page.get_by_role("row", name="what do you cost?")
    expect(row).to_contain_text("$0.")
    with served.client() as client:
        [session] = client.get("/v1/sessions").json()["data"]
        bill = client.get(f"/v1/sessions/{session['id']}/usage").json()
    expect(page.locator(".total")).to_contain_text("for 1 model call in total")
    expect(row.get_by_role("cell")).to_have_text(
        ["1", f"{bill['input_tokens']:,}", f"{bill['output_tokens']:,}", f"${bill['cost_usd']:.4f}"]
    )
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Cost")
    expect(page.locator(".rows > li")).to_have_count(1)
