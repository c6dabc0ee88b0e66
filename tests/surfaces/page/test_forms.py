"""Forms of the page, sent as a browser sends them, without a browser."""

import asyncio
import json
import re
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import httpx
import pytest

from chatbot.memory import MemorySystem
from chatbot.memory.handle import CHOICES
from chatbot.models.model import Price
from chatbot.server.page import settings
from chatbot.stores.errors import StoreFailed
from tests.servers.http_server import Served, serving

FILE = Path("identities/ada/identity.toml")


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        client.follow_redirects = True
        yield client


def after_the_turn(client: httpx.Client, page: httpx.Response) -> str:
    """Return the conversation once the reply that the page shows under way is complete."""
    for place in re.findall(r'sse-connect="([^"]+)"', page.text):
        client.get(unescape(place)).read()
    return client.get(page.url).text


def titles(html: str) -> list[str]:
    return re.findall(r'class="row-title"[^>]*><bdi lang="">(.*?)</bdi>', html)


def test_settings_are_written_to_the_identity_keep_its_comments_and_hold_at_once(client: httpx.Client) -> None:
    FILE.write_text('# mine\npersona = "You are ada."\n')
    page = client.get("/i/ada/settings")
    assert "You are ada." in page.text
    form = {
        "persona": "/other", "persona.other": "You are brief.", "budget.day_usd": "2.5", "agents.chat.recall_rows": "3",
        "model.name": "scripted",
    }  # fmt: skip
    saved = client.post("/i/ada/settings", data=form)
    assert "Saved." in saved.text
    assert FILE.read_text().startswith("# mine\n")
    assert 'value="2.5"' in saved.text
    assert "You are brief." in saved.text


@pytest.mark.parametrize(
    ("before", "form"),
    [
        ("# mine\n", {"sessions.ttl_days": "1e308"}),
        ("# mine\n", {"model.name": "local//etc/passwd"}),
        ("# mine\n[broken\n", {"budget.day_usd": "7"}),
        ("# \udcff\n", {"budget.day_usd": "7"}),
        ("# mine\r\nbudget = 3\r\n", {"budget.day_usd": "7"}),
    ],
    ids=["too far away", "a file as model", "no TOML", "no text", "no table"],
)
def test_what_cannot_be_saved_leaves_every_byte_and_the_identity_as_they_were(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, before: str, form: dict[str, str]
) -> None:
    assert client.get("/i/ada").is_success
    data = before.encode(errors="surrogateescape")
    FILE.write_bytes(data)
    monkeypatch.setattr(settings, "_replace", lambda *_: pytest.fail("it was written before it was checked"))
    other = {"persona": "/other", "persona.other": "You are ada.", **form}
    assert client.post("/i/ada/settings", data=other).status_code == 422
    assert FILE.read_bytes() == data
    assert client.get("/i/ada").is_success


def test_settings_behind_a_link_or_of_an_identity_that_cannot_be_opened_stay_as_they_were(
    served: Served, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: str) -> None:
        raise StoreFailed("the disk is full")

    assert client.get("/i/ada").is_success
    with monkeypatch.context() as patch:
        patch.setattr(served.identities, "reopen", fail)
        before = FILE.read_bytes()
        assert client.post("/i/ada/settings", data={"persona": "/other", "persona.other": "Other"}).is_error
        assert FILE.read_bytes() == before
        FILE.unlink()
        assert client.post("/i/ada/settings", data={"persona": "/other", "persona.other": "Other"}).is_error
        assert not FILE.exists()
    elsewhere = Path("elsewhere.toml")
    elsewhere.write_text("# mine\n")
    FILE.symlink_to(elsewhere.resolve())
    assert client.post("/i/ada/settings", data={"persona": "/other", "persona.other": "Other"}).is_error
    assert (FILE.is_symlink(), elsewhere.read_text()) == (True, "# mine\n")


def test_a_form_that_was_opened_before_another_change_undoes_nothing(client: httpx.Client) -> None:
    memory = client.post("/v1/memories", json={"title": "Tea is at four"}).json()["id"]
    path = f"/i/ada/memory/{memory}"
    for page, to, forms in (
        (
            "/i/ada/settings",
            "/i/ada/settings",
            [{"budget.day_usd": "5"}, {"budget.day_usd": "0", "model.name": "fast"}],
        ),
        (path, f"{path}/correct", [{"title": "Tea is at five"}, {"title": "Coffee is at four"}]),
    ):
        opened = dict(re.findall(r'type="hidden" name="(seen|version)" value="(\w+)"', client.get(page).text))
        asked = opened | {"persona": "/other", "persona.other": "You are ada.", "how": "wrong"}
        assert [client.post(to, data=asked | form).status_code for form in forms] in ([200, 409], [200, 412])
    assert "day_usd = 5.0" in FILE.read_text()
    assert client.get(f"/v1/memories/{memory}").json()["title"] == "Tea is at five"


def test_a_persona_that_cannot_be_used_is_named_and_hides_no_page(client: httpx.Client) -> None:
    own = Path.home() / ".config/chatbot/personas"
    own.mkdir(parents=True)
    (own / "pirate.md").write_text("Arr.\n\n" + "Arr! " * 30_000)
    (own / "empty.md").touch()
    for page in (client.get("/i/ada"), client.get("/i/ada/settings")):
        assert '<option value="pirate" disabled>pirate · cannot be used: it is longer than 100,000' in page.text
        assert '<option value="empty" disabled>empty · cannot be used: it has no text' in page.text
    assert client.post("/i/ada/say", data={"text": "x", "chosen": "1", "persona": "empty"}).is_error
    (own / "other.md").write_text("Another.\n\nYou are another.\n\nTwice.")
    assert "Saved." in client.post("/i/ada/settings", data={"persona": "other", "persona.other": ""}).text
    assert tomllib.loads(FILE.read_text())["persona"] == "You are another.\n\nTwice."
    assert '<option value="other" selected>other' in client.get("/i/ada/settings").text
    assert client.post("/i/ada/say", data={"text": "x", "chosen": "1", "persona": ""}).is_success


def test_memories_are_added_filtered_hidden_together_and_brought_back(client: httpx.Client) -> None:
    for title, tags in (("Tea is at four", "home, tea"), ("The gym opens at six", "sports")):
        assert "Added." in client.post("/i/ada/memory", data={"title": title, "tags": tags, "people": "Sam"}).text
    assert "Already remembered" in client.post("/i/ada/memory", data={"title": "Tea is at four"}).text
    assert titles(client.get("/i/ada/memory", params={"tag": "tea"}).text) == ["Tea is at four"]
    today = datetime.now(UTC).astimezone().date()
    tomorrow = (today + timedelta(days=1)).isoformat()
    assert titles(client.get("/i/ada/memory", params={"since": tomorrow}).text) == []
    assert len(titles(client.get("/i/ada/memory", params={"since": str(today), "person": "Sam"}).text)) == 2
    assert client.get("/i/ada/memory", params={"since": "0001-01-01"}).status_code == 422
    listed = client.get("/i/ada/memory")
    assert ">Today</h2>" in listed.text
    ids = re.findall(r'name="(id:[0-9a-f-]+)"', listed.text)
    hidden = client.post("/i/ada/memory/hide", data=dict.fromkeys(ids, "1"))
    assert titles(hidden.text) == []
    assert "2 memories are hidden" in hidden.text
    assert "Status: hidden" in client.get(f"/i/ada/memory/{ids[0].removeprefix('id:')}").text
    assert len(titles(client.post("/i/ada/memory/restore", data=dict.fromkeys(ids, "1")).text)) == 2
    assert client.post("/i/ada/memory/hide", data={"none": "1"}).status_code == 422


def test_people_are_shown_with_what_is_stated_of_them_also_in_private(client: httpx.Client) -> None:
    said = (("Sam won the tournament", ["Sam"]), ("Kim and Sam play chess", ["Sam", "Kim"]))
    made = [client.post("/v1/memories", json={"title": title, "people": people}).json()["id"] for title, people in said]
    assert "not marked as private" in client.get(f"/i/ada/memory/{made[1]}").text
    marked = client.post(f"/i/ada/memory/{made[1]}/mark", data={"sensitivity": "private"}).text
    assert "<dd>sensitivity private</dd>" in marked
    client.post("/v1/facts", json={"subject": "Sam", "predicate": "lives in", "object": "Graz"})
    for q, names in (("", ["Sam", "Kim"]), ("ki", ["Kim"])):
        shown = client.get("/i/ada/people", params={"q": q}).text
        assert re.findall(r'[?]person=(\w+)"', shown) == names
        assert ("lives in Graz" in shown) == ("Sam" in names)
    assert titles(client.get("/i/ada/memory?person=Kim").text) == ["Kim and Sam play chess"]


def test_the_profile_is_set_pinned_forgotten_and_shows_its_history(client: httpx.Client) -> None:
    assert client.get("/i/ada/profile").text.count("No memory clearly answers") == 1
    shown = [client.post("/i/ada/profile", data={"key": "home", "value": each}).text for each in ("Berlin", "Lisbon")]
    assert "home: Berlin" in shown[0]
    [link] = re.findall(r'href="(/v1/users/export[^"]*)"', shown[1])
    assert [row["title"] for row in client.get(link).json()["memories"]][-1] == "home: Lisbon"
    [pin] = re.findall(r'action="([^"]*/pin)"', shown[1])
    assert "Unpin: home: Lisbon" in client.post(pin).text
    history = client.get("/i/ada/profile/home").text
    assert re.findall('<bdi lang="">(home: .*?)</bdi>', history) == ["home: Berlin", "home: Lisbon"]
    forgotten = client.post(pin.replace("/pin", "/forget")).text
    assert "no values yet" in forgotten
    assert "1 memory is hidden" in forgotten
    undo = dict(re.findall(r'name="(id:[^"]*|back)" value="([^"]*)"', forgotten))
    assert "home: Lisbon" in client.post("/i/ada/memory/restore", data=undo).text


def test_a_text_that_is_too_long_is_refused_or_kept_whole_and_no_field_cuts_it(client: httpx.Client) -> None:
    long = "long " * 1_000
    fields = {"/profile": "value", "/memory": "title", "/tasks": "title"}
    for path, name in fields.items():
        answer = client.post(f"/i/ada{path}", data={"key": "home", name: long})
        assert answer.is_error or f"{long.strip()}<" in answer.text
        assert "maxlength" not in client.get(f"/i/ada{path}").text
    assert "must have 1 to 60 characters" in client.post("/i/ada/profile", data={"key": "k" * 61, "value": "x"}).text


def test_tasks_have_dates_and_private_ones_are_shown_too(client: httpx.Client) -> None:
    today = datetime.now(UTC).astimezone().date()
    due = {"Overdue": -2, "Today": 0, "Next 7 days": 3, "Later": 30}
    for name, days in due.items():
        client.post("/i/ada/tasks", data={"title": f"of {name}", "due": str(today + timedelta(days=days))})
    places = re.findall(r'action="(/i/ada/tasks/[^"]*)"', client.get("/i/ada/tasks").text)
    for place in places:
        client.post(f"{place.replace('tasks', 'memory')}/mark", data={"sensitivity": "private"}).raise_for_status()
    days_of = re.compile('class="by-day[^>]*>(.*?)<')
    assert days_of.findall(client.get("/i/ada/tasks").text) == list(due)
    assert days_of.findall(client.post(places[1], data={"status": "completed"}).text) == [*due][:1] + [*due][2:]
    assert "of Today" in client.get("/i/ada/tasks?done=1").text
    again = {"status": "pending", "back": "/tasks?done=1"}
    assert "No completed tasks" in client.post(places[1], data=again).text


def test_cost_is_shown_for_sessions_and_turns(served: Served, client: httpx.Client) -> None:
    client.get("/i/ada").raise_for_status()
    served.models["ada"]._price = Price(0.000001, 0.000002)
    page = client.post("/i/ada/say", data={"text": "what do you cost?"})
    after_the_turn(client, page)
    bill = client.get(f"/v1/sessions/{page.url.path.rpartition('/')[2]}/usage").json()
    shown = client.get("/i/ada/cost").text
    told = ["1", f"{bill['input_tokens']:,}", f"{bill['output_tokens']:,}", f"${bill['cost_usd']:.4f}"]
    assert re.findall("<td>(.*?)</td>", shown.partition("what do you cost?</bdi></a></th>")[2])[:4] == told
    assert client.get(f"{page.url.path}/cost").text.count("/why?at=") == 1
    served.models["ada"]._price = None  # type: ignore[assignment] # so the call fails, and its cost is unknown
    after_the_turn(client, client.post("/i/ada/say", data={"text": "and you?"}))
    shown = client.get("/i/ada/cost").text
    cost = f"over ${bill['cost_usd']:.4f}"
    assert all(each in shown for each in (f"<strong>{cost}<", f": {cost}, 2 calls", "<td>cost unknown<"))


def test_a_session_is_exported_pinned_archived_and_listed_accordingly(client: httpx.Client) -> None:
    first, second = (client.post("/v1/sessions", json={"title": title}).json()["id"] for title in ("One", "Two"))
    export = client.get(f"/i/ada/c/{first}/export")
    assert (export.text[:6], "One.md" in export.headers["content-disposition"]) == ("# One\n", True)
    pinned = client.post(f"/i/ada/c/{first}/pin", data={"pinned": "yes"}).text
    assert pinned.index(">Pinned</h3>") < pinned.index(">One<") < pinned.index(">Today</h3>") < pinned.index(">Two<")
    client.post(f"/i/ada/c/{second}/archive", data={"archived": "yes"})
    assert "Two" not in client.get("/i/ada/sessions").text
    assert "Two" in client.get("/i/ada/sessions?archived=1").text
    client.post(f"/i/ada/c/{second}/archive", data={"archived": "no"})
    assert "Two" in client.get("/i/ada/sessions").text
    assert "2 found" not in client.get("/i/ada/sessions?q=%20").text


def test_a_search_of_memories_leads_on_to_all_that_was_found(client: httpx.Client) -> None:
    for number in range(27):
        client.post("/v1/memories", json={"title": f"An orchard with {number} trees"})
    first = client.get("/i/ada/memory?q=orchard").text
    [more] = re.findall(r'href="([^"]*after=[^"]*)">More<', first)
    second = client.get(unescape(more)).text
    assert ("1 to 25, best first" in first, "26 to 27, best first" in second) == (True, True)
    assert len({*titles(first), *titles(second)}) == 27
    assert ">More<" not in second.partition("<main")[2]
    assert client.get("/i/ada/memory?q=orchard&after=x").status_code == 404


def test_a_message_with_a_file_names_it_and_an_edit_keeps_it(client: httpx.Client) -> None:
    sent = {"text": "look", "file:0:notes.txt": "data:text/plain;base64,VGhlIGxvY2tlciBpcyA0NzEx"}
    page = client.post("/i/ada/say", data=sent)
    session = str(page.url).rpartition("/")[2]
    shown = after_the_turn(client, page)
    assert '<bdi lang="">notes.txt</bdi>' in shown
    [place] = re.findall(r'href="(/i/ada/c/[^"]*/file/[^"]*)"', shown)
    got = client.get(place)
    assert got.text == "The locker is 4711"
    assert "sandbox" in got.headers["content-security-policy"]
    assert got.headers["content-disposition"] == "attachment"
    assert client.get(place.rpartition("/")[0] + "/" + "0" * 32).status_code == 404
    at = client.get(f"/v1/sessions/{session}/messages").json()["data"][0]["at"]
    shown = after_the_turn(client, client.post(f"/i/ada/c/{session}/edit", data={"at": at, "text": "look again"}))
    assert "look again" in shown
    assert '<bdi lang="">notes.txt</bdi>' in shown
    page = client.post("/i/ada/say", data={"text": "not lost", "file:0:bad.xlsx": "data:;base64,UEsDBAA="})
    shown = after_the_turn(client, page)
    assert ("not lost" in shown, "bad.xlsx is neither" in shown) == (True, True)
    assert "Untitled" not in client.get("/i/ada").text
    assert client.post("/i/ada/say", data={"text": " "}).status_code == 422
    assert client.post("/i/ada/say", data={"text": "x", "file:0:a": "https://example.test/a"}).status_code == 422


def test_an_edit_that_cannot_be_answered_leaves_the_message_as_it_was(client: httpx.Client) -> None:
    page = client.post("/i/ada/say", data={"text": "The old text"})
    after_the_turn(client, page)
    session = str(page.url).rpartition("/")[2]
    messages = client.get(f"/v1/sessions/{session}/messages").json()
    asyncio.run(_choose(session, "no-such-provider/model"))
    edited = {"at": messages["data"][0]["at"], "text": "The new text"}
    assert client.post(f"/i/ada/c/{session}/edit", data=edited).is_error
    assert client.get(f"/v1/sessions/{session}/messages").json() == messages
    chosen = {"at": messages["data"][0]["at"], "reply": "1" * 5_000}
    assert client.post(f"/i/ada/c/{session}/choose", data=chosen).status_code == 422


async def _choose(session_id: str, model: str) -> None:
    async with MemorySystem("identities/ada/memory") as memory:
        session = await memory.load_session(session_id, any_agent=True)
        await session.kv_set(CHOICES, json.dumps({"model": model}))


def test_a_first_message_that_is_refused_leaves_no_session_and_one_that_is_sent_twice_one(client: httpx.Client) -> None:
    assert client.post("/i/ada/say", data={"text": "x", "project": "p" * 1_500}).status_code == 422
    assert client.get("/v1/sessions").json()["data"] == []
    client.headers["Idempotency-Key"] = "k"
    assert len({client.post("/i/ada/say", data={"text": "x"}).url for _ in range(2)}) == 1
    assert len(client.get("/v1/sessions").json()["data"]) == 1


async def _derived() -> tuple[str, str]:
    """Something of Ada's, and what was made from it."""
    async with MemorySystem("identities/ada/memory") as memory:
        memories = memory.memory("chat")
        source = (await memories.remember("Kim told of the boat that she sold to Ole for nine thousand")).id
        made = await memories.remember("Kim sold the boat to Ole", derived_from=[source], visibility="shared")
        return source, made.id


@pytest.mark.parametrize("how", ["wrong", "changed"])
def test_a_correction_goes_along_with_what_it_was_made_from(how: str) -> None:
    source, made = asyncio.run(_derived())
    with serving() as served, served.client() as client:
        said = {"how": how, "title": "Kim sold the barge to Ole", "facts": "In May\nAt noon"}
        answer = client.post(f"/i/ada/memory/{made}/correct", data=said)
        corrected = answer.headers["location"].rpartition("/")[2].partition("?")[0]
        assert (corrected == made) == (how == "wrong")
        assert "Kim sold the barge to Ole" in client.get(f"/i/ada/memory/{corrected}").raise_for_status().text
        assert client.get(f"/v1/memories/{corrected}").json()["facts"] == ["In May", "At noon"]
        client.patch(f"/v1/memories/{source}", json={"sensitivity": "private"}).raise_for_status()
        assert client.get(f"/v1/memories/{corrected}").status_code == 404, "it is as strict as its source by now"
        client.delete(f"/v1/memories/{source}", params={"purge": True}).raise_for_status()
        assert client.get(f"/v1/memories/{corrected}", params={"sensitivity": ["private"]}).status_code == 404
    assert b"barge" not in Path("identities/ada/memory/observations.jsonl").read_bytes()
