"""A refusal tells nothing: what is closed is answered like what is not there."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from chatbot.stores.files import stamp
from tests.servers.http_server import Served, serving, wait_until
from tests.surfaces.server.test_access_checks import ASKED, NAMING, address, filled

MISSING = "0196d5e4-0000-7000-8000-000000000000"
TITLE = "for the owner alone"
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_NAMED = re.compile(r"{(\w+)}")

Ask = Callable[[httpx.Client, str], httpx.Response]


@dataclass
class World:
    """Items closed to a guest of Ada's, by the kind of the route that names them."""

    served: Served
    guest: httpx.Client
    closed: dict[str, str]

    def refused(self, ask: Ask, *ids: str) -> list[Any]:
        """Return the answers for these ids, texts without them, and the names of headers."""
        found = []
        for each in ids:
            answer = ask(self.guest, each)
            found.append((answer.status_code, _ID.sub("…", answer.text).replace(each, "…"), sorted(answer.headers)))
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("world"))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with serving(tokens=True) as served, served.client(served.token("ada", "grace")) as owner:
            closed = _fill(owner)
        with serving(tokens=True) as served, served.client(served.token("ada", clearance="familiar")) as guest:
            tokens = Path("identities", ".server", "tokens.json")
            wait_until(lambda: (known := stamp(tokens)) is not None and known.is_settled())
            yield World(served, guest, closed)


def _fill(owner: httpx.Client) -> dict[str, str]:
    """Some things that a guest may see, and one of each kind that none may."""

    def made(kind: str, identity: str = "ada", **given: Any) -> str:
        answer = owner.post(f"/v1/{kind}", json=given, params={"identity": identity}).raise_for_status()
        return str(answer.json()["id"])

    for number in range(20):
        made("memories", title=f"The number {number} bus goes to the harbour", visibility="social")
    closed = {
        "sessions": made("sessions", title=TITLE),
        "grace": made("sessions", "grace", title=TITLE),
        "memories": made("memories", title=TITLE, people=["Kurt"]),
        "tasks": made("tasks", title="water the plants of the owner"),
        "facts": made("facts", subject="Kurt", predicate="likes", object="tea"),
    }
    source = made("memories", title="Kurt drinks coffee now", visibility="social")
    closed["sourced"] = made("facts", subject="Kurt", predicate="drinks", object="coffee", source=source)
    owner.patch(f"/v1/memories/{source}", json={"visibility": "private"}).raise_for_status()
    closed["erased"] = made("memories", title="The harbour master is called Ole")
    owner.delete(f"/v1/memories/{closed['erased']}", params={"purge": True}).raise_for_status()
    return closed


def _asking(route: tuple[str, str]) -> Ask:
    def ask(client: httpx.Client, named: str) -> httpx.Response:
        ids = dict.fromkeys(_NAMED.findall(route[1]), named) | {"name": "session.json", "other_id": MISSING}
        return client.request(route[0], address(route[1], ids), json=filled(ASKED[route], ids))

    return ask


def _kind(route: tuple[str, str]) -> str:
    return route[1].split("/")[2]


BY_ID = frozenset({"sessions", "memories", "tasks", "facts"})
"""Kinds that an id names. Only rows of the caller's own make a profile, and a response is named by its session."""


@pytest.mark.parametrize("route", [each for each in NAMING if _kind(each) in BY_ID], ids=" ".join)
def test_what_is_closed_is_answered_like_what_is_not_there(world: World, route: tuple[str, str]) -> None:
    kind = _kind(route)
    others = {"sessions": ["grace"], "facts": ["sourced"], "memories": ["erased"]}.get(kind, [])
    answers = world.refused(_asking(route), MISSING, *(world.closed[each] for each in (kind, *others)))
    assert all(each == answers[0] for each in answers), answers
    assert answers[0][0] == 404


HELLO = [{"role": "user", "content": "hi"}]
FACT = {"subject": "a", "predicate": "b", "object": "c"}
WITHIN: list[tuple[str, Ask]] = [
    ("sessions", lambda to, it: _post(to, "chat/completions", model="ada", session_id=it, messages=HELLO)),
    ("memories", lambda to, it: to.get("/v1/memories", params={"cursor": it})),
    ("memories", lambda to, it: _post(to, "facts", **FACT, source=it)),
    ("memories", lambda to, it: _post(to, "memories", title="new", supersedes=it)),
    ("memories", lambda to, it: _post(to, f"memories/{MISSING}/supersede", by=it)),
]
IDENTITY: list[Ask] = [
    lambda to, it: to.get("/v1/sessions", params={"identity": it}),
    lambda to, it: to.get(f"/v1/memories/{MISSING}", params={"identity": it}),
    lambda to, it: _post(to, f"memories?identity={it}", title="x"),
    lambda to, it: to.get(f"/v1/models/{it}"),
    lambda to, it: _post(to, "chat/completions", model=it, messages=HELLO),
    lambda to, it: to.get(f"/i/{it}/memories", headers={"accept": "text/html"}),
]


def _post(client: httpx.Client, path: str, **body: Any) -> httpx.Response:
    return client.post(f"/v1/{path}", json=body)


@pytest.mark.parametrize(("kind", "ask"), WITHIN + [("identity", each) for each in IDENTITY])
def test_so_is_what_a_request_names_and_an_identity_that_is_not_opened(world: World, kind: str, ask: Ask) -> None:
    named = ("nobod", "grace") if kind == "identity" else (MISSING, world.closed[kind])
    answers = world.refused(ask, *named)
    assert all(each == answers[0] for each in answers), answers
    assert answers[0][0] == 404


def test_an_identity_that_nobody_was_let_in_to_is_not_opened(world: World) -> None:
    for ask in IDENTITY:
        ask(world.guest, "grace")
    assert list(world.served.models) == ["ada"]
