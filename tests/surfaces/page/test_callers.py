"""Who sees what: tokens typed in at a form, two people side by side, and less clearance."""

from playwright.sync_api import Page, expect

from tests.servers.http_server import Serve
from tests.surfaces.page.actions import Tab, remember, say


def _log_in(page: Page, token: str) -> None:
    page.goto("/")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/i/*")


def test_a_token_is_asked_for_kept_where_no_script_finds_it_and_given_back(http: Serve, tab: Tab) -> None:
    served = http(tokens=True)
    page = tab(served.url, at="/i/ada/memory")
    expect(page).to_have_url(f"{served.url}/login")
    page.get_by_label("Token").fill("cbt_" + "x" * 43)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert").first).to_have_text("Invalid token.")
    _log_in(page, served.token("ada"))
    [cookie] = [each for each in page.context.cookies() if each["name"] == "chatbot_token"]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert page.evaluate("document.cookie") == ""
    say(page, "hello there")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{served.url}/login")
    page.goto("/i/ada")
    expect(page).to_have_url(f"{served.url}/login")


def test_two_people_see_nothing_of_each_other(http: Serve, tab: Tab) -> None:
    served = http(tokens=True)
    ada, grace = tab(served.url), tab(served.url)
    _log_in(ada, served.token("ada"))
    _log_in(grace, served.token("grace"))
    say(ada, "My secret is the blue door")
    say(grace, "My garden has roses")
    session = ada.url.removeprefix(served.url)
    for path in ("", "/sessions?q=door", "/memory?q=door", "/people", "/profile", "/tasks", "/cost"):
        grace.goto(f"/i/grace{path}")
        expect(grace.get_by_role("main")).to_be_visible()
        assert "blue" not in grace.content()
        assert "ada" not in grace.locator("aside").inner_text()
        grace.goto(f"/i/ada{path}")
        expect(grace.locator(".problem")).to_contain_text("Unknown identity 'ada'")
    grace.goto(session)
    expect(grace.locator(".problem")).to_contain_text("Unknown identity 'ada'")
    grace.goto(session.replace("ada", "grace"))
    expect(grace.locator(".problem")).to_contain_text("No session has the id")
    grace.goto("/i/made-up")
    expect(grace.locator(".problem")).to_contain_text("Unknown identity 'made-up'")


def test_less_clearance_sees_less(http: Serve, tab: Tab) -> None:
    served = http(tokens=True)
    with served.client(served.token("ada")) as client:
        hidden = remember(client, "The owner sleeps late")
        remember(client, "The shop opens at nine", visibility="social")
    page = tab(served.url)
    _log_in(page, served.token("ada"))
    say(page, "Between you and me")
    private = page.url
    guest = tab(served.url)
    _log_in(guest, served.token("ada", clearance="familiar"))
    guest.goto("/i/ada/memory")
    expect(guest.locator(".row-title")).to_have_text(["The shop opens at nine"])
    guest.goto(f"/i/ada/memory/{hidden}")
    expect(guest.locator(".problem")).to_contain_text("No memory has the id")
    guest.goto(private)
    expect(guest.locator(".problem")).to_contain_text("No session has the id")
    for path in ("stream", "why", "cost"):
        guest.goto(f"{private}/{path}")
        expect(guest.locator(".problem")).to_contain_text("No session has the id")
    guest.goto("/i/ada")
    expect(guest.locator("#recent li")).to_have_count(0)
    expect(guest.get_by_role("link", name="Cost")).to_be_visible()
    expect(guest.get_by_role("link", name="Settings")).to_have_count(0)
    guest.goto("/i/ada/settings")
    expect(guest.locator(".problem")).to_contain_text("nly the owner may see and change settings")
