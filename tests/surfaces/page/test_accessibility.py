"""For everyone: by keyboard, by ear, on a telephone, in the dark."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.servers.http_server import Serve, Served
from tests.surfaces.page.actions import DESKTOP, PHONE, Tab, go, open_menu, remember, say

LONG = "Donaudampfschifffahrtsgesellschaftskapitaenswitwenrentenauszahlungsstelle" * 3
REPLY = (
    f"# A heading\n\nSome *text* with `code` and {LONG}.\n\n| a | b |\n|---|---|\n| 1 | {LONG} |\n\n```\n{LONG}\n```\n"
)


@pytest.fixture
def served(http: Serve) -> Served:
    return http([REPLY])


@pytest.fixture
def places(served: Served, tab: Tab) -> list[str]:
    """The addresses of one page of each kind, with something on each."""
    with served.client() as client:
        memory_id = remember(client, f"The gym {LONG}", people=["Sam"], facts=[LONG], tags=["sports"])
        client.post("/v1/tasks", json={"title": f"Call {LONG}", "due": "2026-01-02", "priority": "high"})
        client.post("/v1/facts", json={"subject": "Sam", "predicate": "plays", "object": LONG})
        session = client.post("/v1/sessions", json={"title": ""}).json()["id"]
        for text in ("Tell me of the gym", LONG):
            client.post(f"/v1/sessions/{session}/chat", json={"text": text, "stream": False})
        at = client.get(f"/v1/sessions/{session}/messages").json()["data"][0]["at"]
    paths = ["", "/sessions", "/memory", "/memory?q=gym", "/tasks", "/people", "/profile", "/settings", "/cost"]
    paths += [
        f"/memory/{memory_id}", f"/c/{session}", f"/c/{session}?edit={at}", f"/c/{session}/why", f"/c/{session}/cost",
        "/memory/nothing",
    ]  # fmt: skip
    return [*(f"/i/ada{path}" for path in paths), "/login"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing(width: int, scheme: str, served: Served, places: list[str], tab: Tab) -> None:
    page = tab(served.url, color_scheme=scheme, viewport={"width": width, "height": 844}, has_touch=width < 900)
    for place in places:
        page.goto(place)
        for details in page.locator("main details").all():
            details.evaluate("element => element.open = true")
        found = Axe().run(page)
        told = [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found.response["violations"]]
        assert told == [], place


_TOO_SMALL = """() => {
    const inText = ".unseen, .skip, .prose, dd, .small, p:not(:has(> a:only-child)), [popover]:not(:popover-open)";
    const boxes = "label:has(input[type=checkbox], input[type=radio], input[type=file])";
    return [...document.querySelectorAll("a, button, summary, select, textarea, input:not([type=hidden])")]
        .filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.closest(inText))
        .map((each) => [(each.closest(boxes) ?? each).getBoundingClientRect().height, each.outerHTML.slice(0, 90)])
        .filter(([height]) => height > 0 && height < 40);
}"""
"""Elements to hit that are lower than 40 pixels; links within a text may be."""


def test_a_small_telephone_shows_all_of_it_and_fingers_hit_it(served: Served, places: list[str], tab: Tab) -> None:
    page = tab(served.url, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    small = []
    for place in places:
        page.goto(place)
        for details in page.locator("main details").all():
            details.evaluate("element => element.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, place
        small += [each for each in page.evaluate(_TOO_SMALL) if each not in small]
        assert "Shift" not in page.locator("body").inner_text()
        page.evaluate("document.documentElement.style.fontSize = '200%'")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, f"{place} with large text"
    assert small == []


def test_forced_colours_show_the_current_tab_and_the_message_of_a_link(served: Served, tab: Tab) -> None:
    page = tab(served.url, forced_colors="active", at="/i/ada")
    say(page, "hello there")
    page.goto(str(page.get_by_role("link", name="Link").get_attribute("href")))
    outline = "question => getComputedStyle(question).outlineStyle"
    assert page.locator("#here .question").evaluate(outline) == "solid"
    go(page, "Sessions")
    lines = "tabs => tabs.map(each => getComputedStyle(each).borderBottomColor)"
    current, other = page.locator(".tabs a").evaluate_all(lines)
    assert current != other
    expect(page.locator(".tabs a")).to_have_count(2)


@pytest.mark.parametrize("size", [(640, 400), (1280, 420)], ids=["twice as large", "low"])
def test_all_of_a_menu_can_be_reached_on_a_low_screen(served: Served, tab: Tab, size: tuple[int, int]) -> None:
    page = tab(served.url, viewport={"width": size[0], "height": size[1]}, at="/i/ada")
    say(page, "hello there")
    page.locator(".heading .menu > summary").click()
    page.get_by_text("Delete this session…").click()
    page.get_by_role("button", name="Delete permanently").click(trial=True)
    page.locator("#choices > summary").click()
    for name in ("Model", "Persona"):
        page.get_by_role("combobox", name=name).click(trial=True)


def test_the_keyboard_is_enough(page: Page) -> None:
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.keyboard.press("Enter")  # nothing is sent, and no bubble of the browser asks for text
    assert not page.locator("#text").evaluate("box => box.required")
    page.keyboard.type("first line")
    page.locator("#text").dispatch_event("keydown", {"key": "Enter", "keyCode": 229})  # Safari, after a composition
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second line")
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/*")
    expect(page.locator(".question")).to_have_text("first line\nsecond line")
    expect(page.locator("#live")).to_have_count(0)
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.reload()
    page.evaluate("document.activeElement.blur()")
    seen = _walk(page, 40)
    order = ["Skip to the content", "New chat", "Sessions", "Memory", "Theme", "More", "Retry", "Edit", "Why"]
    assert [seen.index(each) for each in order] == sorted(seen.index(each) for each in order)
    page.get_by_role("link", name="Why").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Why this reply?")
    expect(page.get_by_role("main", name="Why · first line")).to_be_focused()


def test_an_arabic_reply_reads_from_the_right_and_its_code_from_the_left(http: Serve, tab: Tab) -> None:
    page = tab(http(["مرحبا `a.py`\n\n> اقتباس\n\n```\nprint(1)\n```"]).url, at="/i/ada")
    say(page, "سؤال")
    expect(page.locator(".prose blockquote")).to_have_css("border-right-width", "3px")
    for code in (".prose p code", ".prose .code pre"):
        expect(page.locator(code)).to_have_css("direction", "ltr")
    assert page.locator("#text:lang(en), .question:lang(en), .prose:lang(en), bdi:lang(en)").count() == 0
    for title in ("#heading bdi", "#recent bdi"):  # cut at the end of its words
        expect(page.locator(title)).to_have_css("direction", "rtl")
        expect(page.locator(title)).to_have_css("text-overflow", "ellipsis")


def test_the_list_of_sessions_keeps_its_place_and_what_is_below_it_stays_in_view(served: Served, tab: Tab) -> None:
    with served.client() as client:
        for number in range(40):
            client.post("/v1/sessions", json={"title": f"Session {number}"})
    page = tab(served.url, **DESKTOP, at="/i/ada")
    expect(page.get_by_role("button", name="Theme")).to_be_in_viewport()
    page.locator("#recent a").nth(30).click()
    here = page.locator("#recent [aria-current]")
    for _ in range(2):
        expect(here).to_be_in_viewport()
        page.reload()
    say(page, "hello there")
    assert page.evaluate("document.getElementById('recent').scrollTop") > 0


def test_light_and_dark_follow_the_system_and_the_switch_which_is_remembered(served: Served, tab: Tab) -> None:
    page = tab(served.url, color_scheme="dark", at="/i/ada")
    dark = _ground(page)
    page.emulate_media(color_scheme="light")
    light = _ground(page)
    assert sum(dark) < 150
    assert sum(light) > 600
    page.get_by_role("button", name="Theme").click()
    assert _ground(page) == dark
    go(page, "Memory")
    assert _ground(page) == dark
    page.get_by_role("button", name="Theme").click()
    page.emulate_media(color_scheme="dark")
    page.reload()
    assert _ground(page) == light


def _ground(page: Page) -> list[int]:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return [int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(", ")]


def _walk(page: Page, steps: int) -> list[str]:
    """Return the elements that the Tab key visits; where the focus is must be seen."""
    seen = []
    for _ in range(steps):
        page.keyboard.press("Tab")
        focus = page.locator("*:focus:not(body)")
        assert focus.evaluate_all("all => all.every((each) => parseFloat(getComputedStyle(each).outlineWidth) >= 1)")
        seen.append(page.evaluate("document.activeElement.innerText.replace(/[\\s▾]+$/, '')"))
    return seen


def test_the_page_can_be_installed(served: Served) -> None:
    with served.client() as client:
        [href] = re.findall(r'rel="manifest" href="([^"]+)"', client.get("/i/ada").text)
        manifest = client.get(href)
        assert manifest.headers["content-type"] == "application/manifest+json"
        [icon] = manifest.json()["icons"]
        assert client.get(icon["src"]).headers["content-type"] == "image/svg+xml"


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_each_link_leads_to_a_page_with_its_own_layout(served: Served, tab: Tab, screen: dict[str, object]) -> None:
    """It has its sidebar where there is room, and nothing to scroll sideways for."""
    page = tab(served.url, **screen, at="/i/ada")
    assert page.viewport_size is not None
    width = page.viewport_size["width"]
    has_sidebar = width > 900
    for stop in ("Sessions", "New chat", "Memory", "Profile", "New chat", "Tasks", "Cost"):
        go(page, stop)
        box = page.locator("#main").bounding_box()
        assert box is not None
        assert box["x"] == (256 if has_sidebar else 0)
        assert box["x"] + box["width"] == page.evaluate("document.documentElement.clientWidth")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        expect(page.locator("aside.sidebar")).to_be_visible(visible=has_sidebar)
    page.context.route("**/memory", lambda route: route.abort())
    open_menu(page)
    expect(page.get_by_role("button", name="Shortcuts")).to_be_visible(visible=has_sidebar)
    page.get_by_role("link", name="Memory", exact=True).click()
    page.get_by_text("The server cannot be reached").click()  # nothing covers it


@pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_page_opened_from_anothers_end_begins_at_its_top(served: Served, tab: Tab, screen: dict[str, object]) -> None:
    page = tab(served.url, **screen, at="/i/ada")
    for number in range(4):
        say(page, f"line {number}\n" * 30)
    assert page.evaluate("window.scrollY") > 500
    page.get_by_role("link", name="Why").last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Why this reply?")
    expect(page.locator("#main")).to_be_focused()
    assert page.evaluate("window.scrollY") == 0
