"""Texts of strangers do nothing but be read, and nobody sees what is another's, or needs more clearance.

The fixture `tab` fails a test whose page asks any other host, logs an error, or opens a dialog.
"""

import json
import re
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.servers.http_server import Serve, Served
from tests.surfaces.page.actions import Gate, Tab, done, remember, say

BAD = (
    "<script>window.bad=1</script><img src=x onerror='window.bad=1'><svg onload=window.bad=1>"
    "<iframe src=https://evil.test></iframe><a href='javascript:window.bad=1'>a</a>"
    "</textarea></title></bdi><style>*{display:none}</style>{{ 7*7 }}'\"`\u202ereversed"
)
MARKDOWN = (
    f"{BAD}\n\n![p](https://evil.test/pixel.png) ![q](//evil.test/p.png) [click](javascript:window.bad=1) "
    "[data](data:text/html,<script>window.bad=1</script>) <https://evil.test> [ref][1]\n\n[1]: vbscript:x\n\n"
    "```html\n<script>window.bad=1</script>\n```\n\n<div hx-get='/i/ada' hx-trigger='load' hx-on:load='window.bad=1'>"
)


@pytest.fixture
def served(http: Serve) -> Served:
    return http([MARKDOWN])


def _is_harmless(page: Page) -> None:
    expect(page.get_by_role("main")).to_be_visible()
    assert page.evaluate("window.bad") is None
    harmful = "main :is(img, iframe, svg:not([class]), style, script, object, embed, link, [onerror], [onload])"
    assert page.locator(harmful).count() == 0
    assert page.locator("main a[href^='javascript'], main a[href^='data'], main a[href^='vbscript']").count() == 0
    assert page.locator(".prose [hx-get], .question [hx-get]").count() == 0
    foreign = page.locator("main :is(a[href^='http'], a[href^='//'], a[href^='mailto'])")
    assert {link.get_attribute("rel") for link in foreign.all()} <= {"noopener noreferrer nofollow"}


def _everywhere(client: httpx.Client) -> list[str]:
    """Put it wherever something can be written; the addresses at which it shows."""
    memory_id = remember(
        client, BAD[:900], narrative=MARKDOWN, facts=[BAD], people=[BAD[:200]], tags=[BAD[:200]], metadata={"a<b>": BAD}
    )
    newer = remember(client, f"newer {BAD[:800]}", supersedes=None)
    client.patch(f"/v1/memories/{newer}", json={"title": BAD[:800]})
    client.post("/v1/facts", json={"subject": BAD[:200], "predicate": BAD[:200], "object": BAD[:200]})
    client.post("/v1/tasks", json={"title": f"task {BAD[:800]}", "note": BAD[:800], "due": BAD[:100]})
    session = client.post("/v1/sessions", json={"title": BAD[:200]}).json()["id"]
    client.post(f"/v1/sessions/{session}/chat", json={"text": MARKDOWN, "stream": False})
    q = f"?{urlencode({'q': BAD[:200]})}"
    places = ["", "/sessions", f"/sessions{q}", "/memory", f"/memory{q}", f"/memory/{memory_id}", "/tasks"]
    places += [f"/memory/{newer}", "/people", f"/people{q}", "/cost"]
    places += [f"/c/{session}{part}" for part in ("", "/why", "/cost")]
    return [f"/i/ada{place}" for place in places]


def test_hostile_text_is_shown_and_does_nothing(served: Served, tab: Tab) -> None:
    with served.client() as client:
        places = _everywhere(client)
    page = tab(served.url)
    for place in places:
        page.goto(place)
        _is_harmless(page)
    page.goto(places[5])
    expect(page.locator(".prose")).to_contain_text("<script>window.bad=1</script>")
    expect(page.locator(".about")).to_contain_text("{{ 7*7 }}")


def test_a_hostile_reply_does_nothing_while_it_comes(served: Served, tab: Tab) -> None:
    page = tab(served.url, at="/i/ada")
    say(page, BAD)
    done(page)
    _is_harmless(page)
    expect(page.locator(".answer .prose")).to_contain_text("image: p (evil.test)")
    page.get_by_role("link", name="Edit").click()
    expect(page.get_by_label("Edit your message")).to_have_value(BAD)
    _is_harmless(page)


def test_every_page_forbids_what_it_does_not_need(served: Served) -> None:
    with served.client() as client:
        for place in ("/i/ada", "/i/ada/memory", "/login", "/i/nobody"):
            headers = client.get(place).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert not re.search(r"https?:|\*|data:|blob:", policy)
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert headers["referrer-policy"] == "same-origin"


def test_forms_are_bounded_and_must_be_forms(http: Serve) -> None:
    served = http(config="[server]\nbody_kb = 4\n")
    with served.client() as client:
        assert client.post("/i/ada/say", json={"text": "x"}).status_code == 415
        assert client.post("/i/ada/say", data={"text": "x" * 5_000}).status_code == 413
        many = "&".join(f"f{number}=1" for number in range(500))
        form = {"content-type": "application/x-www-form-urlencoded"}
        for content in (many.encode(), b"text=%ff%fe", b"\xff\xfe", b"text=", b"text=%20%0A"):
            response = client.post("/i/ada/say", content=content, headers=form)
            assert response.status_code == 422, content
            assert response.headers["content-type"].startswith("text/html")
        assert client.get("/v1/sessions").json()["data"] == []


def test_broken_addresses_are_told_of_and_break_nothing(served: Served) -> None:
    with served.client() as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        for path, status in {
            "c/nothing": 404, f"c/{session}/why": 404, f"c/{session}/why?at=yesterday": 422,
            f"c/{session}?before=-1": 422, "memory/nothing": 404, "memory?type=made-up": 422,
            "memory?status=made-up": 422, "sessions?before=nowhere": 404, "cost?before=~": 404,
        }.items():  # fmt: skip
            response = client.get(f"/i/ada/{path}")
            assert response.status_code == status, path
            assert "Error" in response.text
        client.post(f"/v1/sessions/{session}/chat", json={"text": "x", "stream": False})
        elsewhere = {"messages": [{"role": "user", "content": "said elsewhere"}]}
        client.post(f"/v1/sessions/{session}/messages", json=elsewhere)
        at = client.get(f"/v1/sessions/{session}/messages").json()["data"][-1]["at"]
        assert client.get(f"/i/ada/c/{session}/why").is_success
        assert client.get(f"/i/ada/c/{session}").text.count("/why?at=") == 1  # only where it leads to a receipt
        assert client.get(f"/i/ada/c/{session}/why", params={"at": at}).status_code == 404  # not of the turn before
        [receipts] = Path("identities/ada/memory/sessions").glob("*/receipts.jsonl")
        receipts.write_text(receipts.read_text("utf-8").replace('"memory":{', '"memory":3,"was":{'), encoding="utf-8")
        for path in (f"c/{session}/why", f"c/{session}"):
            assert "A receipt was edited or damaged: Expected" in client.get(f"/i/ada/{path}").text
        whole = json.loads(receipts.read_text("utf-8"))
        few = {name: whole[name] for name in ("at", "turn", "calls")} | {"tools": [{}]}
        for edited in (few, whole | {"memory": {"x": 3}}):
            receipts.write_text(f"{json.dumps({'calls': few['calls']})}\n{json.dumps(edited)}\n", encoding="utf-8")
            assert all(client.get(f"/i/ada/c/{session}/{page}").is_success for page in ("why", "cost"))
        as_page = client.get("/i/ada/nosuch", headers={"accept": "text/html"})
        assert (as_page.status_code, "<h1" in as_page.text and "Error" in as_page.text) == (404, True)
        assert client.get("/i/ada/nosuch").json()["error"]["code"] == "not_found"
        assert client.get("/page/style.css").is_success
        assert {client.get(f"/page/{path}").status_code for path in ("../app.py", "%2e%2e/rendering.py")} == {404}
        for path in ("retry", "edit", "fork"):
            response = client.post(f"/i/ada/c/{session}/{path}", data={"at": "2020-01-01T00:00:00Z", "text": "x"})
            assert response.status_code == 409, path
        assert client.get("/v1/sessions").json()["data"][0]["id"] == session


def test_a_token_is_asked_for_kept_where_no_script_finds_it_and_given_back(http: Serve, tab: Tab) -> None:
    served = http(tokens=True)
    page = tab(served.url, at="/i/ada/memory?tag=a%26b")
    expect(page).to_have_url(f"{served.url}/login?to=/i/ada/memory%3Ftag%3Da%2526b")
    for token, shown in (("cbt_" + "x" * 43, "Invalid token."), (served.token("ada"), "Memory")):
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("main")).to_contain_text(shown)
    expect(page).to_have_url(f"{served.url}/i/ada/memory?tag=a%26b")
    [cookie] = [each for each in page.context.cookies() if each["name"] == "chatbot_token"]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert page.evaluate("document.cookie") == ""
    page.goto("/")
    expect(page.get_by_role("link", name="Settings")).to_have_count(0)
    say(page, "hello there")
    page.get_by_label("Message", exact=True).press_sequentially("not for the next person")
    assert page.evaluate("Object.keys(localStorage).length") == 1
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{served.url}/login")
    assert page.evaluate("Object.keys(localStorage).length") == 0
    page.goto("/i/ada")
    expect(page).to_have_url(f"{served.url}/login?to=/i/ada")
    with served.client() as client:  # it leads to no other site
        answer = client.post("/login", data={"token": served.token("ada"), "to": "//evil.test"})
        assert answer.headers["location"] == "/"
        assert client.post("/logout").headers["clear-site-data"] == '"cache"'


@pytest.mark.parametrize("does", ["sends", "clicks", "waits", "reads a reply"])
def test_who_has_no_valid_token_now_logs_in_and_is_where_he_was(http: Serve, tab: Tab, gate: Gate, does: str) -> None:
    served = http(["one", gate.reply("Half of it", " and the rest.")], tokens=True)
    tokens = [served.token("ada"), served.token("ada")]
    page = tab(served.url)
    page.goto("/")
    page.get_by_label("Token").fill(tokens[0])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/i/*")
    say(page, "hello there")
    url, box = page.url, page.get_by_label("Message", exact=True)
    if does == "reads a reply":
        say(page, "slowly", wait=False)
        expect(page.locator("#live .growing")).to_have_text("Half of it")
    box.fill("not lost")
    served.identities.tokens.revoke(str(served.identities.tokens.find(tokens[0]).id))  # type: ignore[union-attr]
    gate.open()
    if does == "sends":
        box.press("Enter")
    if does == "clicks":
        page.get_by_role("link", name="Memory", exact=True).click()
    page.wait_for_url("**/login?to=*")
    page.get_by_label("Token").fill(tokens[1])
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(url)
    expect(box).to_have_value("not lost")
