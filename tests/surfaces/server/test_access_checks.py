"""The doors: every route of the app, tried by everyone who should not get in."""

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import httpx
import pytest
from starlette.routing import Match

from chatbot.server.access_checks import OPEN_PATHS
from chatbot.server.callers import Grant
from chatbot.stores.errors import StoreAway
from tests.effort import share
from tests.servers.http_server import Serve, Served, events, serving, wait_until

Json = dict[str, Any]
Route = tuple[str, str]


def routes_in(text: str) -> list[tuple[str, str]]:
    """Return the routes that a text names, with a comma between each two."""
    return [(method, path) for method, path in (each.split() for each in text.split(",") if each.strip())]


_NEEDS: dict[tuple[str, str], str] = {
    ("", ""): """
        GET /, GET /health, GET /login, POST /login, POST /logout, GET /openapi.json, GET /ready, GET /v1/models,
        GET /v1/models/{name}, GET /v1/usage,
    """,
    ("read", "read"): """
        POST /v1/context, GET /v1/facts, GET /v1/memories, GET /v1/memories/by-key/{key}, GET /v1/memories/export,
        GET /v1/memories/recall, GET /v1/memories/search, GET /v1/memories/{memory_id},
        GET /v1/memories/{memory_id}/history, GET /v1/memories/{memory_id}/timeline, GET /v1/people, GET /v1/profile,
        GET /v1/profile/{key}/history, GET /v1/projects, GET /v1/projects/{project},
        GET /v1/responses/{response}, GET /v1/sessions, GET /v1/sessions/search, GET /v1/sessions/{session_id},
        GET /v1/sessions/{session_id}/attachments, GET /v1/sessions/{session_id}/attachments/{name},
        GET /v1/sessions/{session_id}/chat,
        GET /v1/sessions/{session_id}/files, GET /v1/sessions/{session_id}/files/{name},
        GET /v1/sessions/{session_id}/messages, GET /v1/sessions/{session_id}/receipts,
        GET /v1/sessions/{session_id}/usage, GET /v1/tasks, GET /v1/users/export,
        GET /i/{identity}, GET /i/{identity}/c/{session_id}, GET /i/{identity}/c/{session_id}/cost,
        GET /i/{identity}/c/{session_id}/earlier, GET /i/{identity}/c/{session_id}/export,
        GET /i/{identity}/c/{session_id}/file/{name}, GET /i/{identity}/c/{session_id}/later,
        GET /i/{identity}/c/{session_id}/noted, GET /i/{identity}/c/{session_id}/since,
        GET /i/{identity}/c/{session_id}/stream, GET /i/{identity}/c/{session_id}/why, GET /i/{identity}/cost,
        GET /i/{identity}/memory, GET /i/{identity}/memory/{memory_id}, GET /i/{identity}/people,
        GET /i/{identity}/profile, GET /i/{identity}/profile/{key}, GET /i/{identity}/projects,
        GET /i/{identity}/sessions, GET /i/{identity}/tasks,
    """,
    ("write", "write"): """
        POST /v1/facts, POST /v1/memories, POST /v1/memories/batch, PUT /v1/memories/by-key/{key},
        POST /v1/memories/import, POST /v1/people, PUT /v1/profile/{key}, POST /v1/tasks,
        POST /i/{identity}/memory, POST /i/{identity}/profile, POST /i/{identity}/tasks,
    """,
    ("write", "curate"): """
        DELETE /v1/facts/{fact_id}, PATCH /v1/memories/{memory_id}, DELETE /v1/memories/{memory_id},
        POST /v1/memories/{memory_id}/confirm, POST /v1/memories/{memory_id}/restore,
        POST /v1/memories/{memory_id}/supersede, DELETE /v1/profile/proposals/{memory_id}, DELETE /v1/profile/{key},
        PUT /v1/profile/{key}/pin, PATCH /v1/projects/{project}, PATCH /v1/sessions/{session_id},
        POST /v1/sessions/{session_id}/fork, POST /v1/sessions/{session_id}/messages,
        PUT /v1/sessions/{session_id}/pin, PUT /v1/sessions/{session_id}/project,
        PUT /v1/sessions/{session_id}/sensitivity, PATCH /v1/tasks/{task_id},
        POST /i/{identity}/c/{session_id}/archive, POST /i/{identity}/c/{session_id}/fork,
        POST /i/{identity}/c/{session_id}/mark, POST /i/{identity}/c/{session_id}/pin,
        POST /i/{identity}/c/{session_id}/rename, POST /i/{identity}/memory/hide, POST /i/{identity}/memory/restore,
        POST /i/{identity}/memory/{memory_id}/confirm, POST /i/{identity}/memory/{memory_id}/correct,
        POST /i/{identity}/memory/{memory_id}/forget, POST /i/{identity}/memory/{memory_id}/mark,
        POST /i/{identity}/memory/{memory_id}/restore, POST /i/{identity}/profile/{key}/forget,
        POST /i/{identity}/profile/{key}/pin, POST /i/{identity}/profile/proposals/{memory_id}/reject,
        POST /i/{identity}/tasks/{task_id},
    """,
    ("chat", "chat"): """
        POST /v1/embeddings, POST /v1/profile/proposals/{memory_id}/accept, POST /v1/sessions,
        POST /i/{identity}/say, POST /i/{identity}/profile/proposals/{memory_id}/accept,
    """,
    ("chat", "curate"): """
        POST /v1/chat/completions, POST /v1/responses, POST /v1/sessions/{session_id}/chat,
        DELETE /v1/sessions/{session_id}/chat, DELETE /v1/sessions/{session_id}/messages,
        POST /i/{identity}/c/{session_id}/choose, POST /i/{identity}/c/{session_id}/edit,
        POST /i/{identity}/c/{session_id}/retry, POST /i/{identity}/c/{session_id}/say,
        POST /i/{identity}/c/{session_id}/stop,
    """,
    ("curate", "curate"): """
        GET /v1/users, GET /v1/users/quota, PUT /v1/users/quota, DELETE /v1/users/quota,
    """,
    ("erase", "erase"): """
        GET /v1/backup, POST /v1/memories/purge, DELETE /v1/projects/{project}, DELETE /v1/sessions/{session_id},
        GET /v1/sessions/{session_id}/deletion, POST /v1/sync, DELETE /v1/users,
        POST /i/{identity}/c/{session_id}/delete, POST /i/{identity}/memory/{memory_id}/purge,
    """,
}
NEEDS: dict[Route, tuple[str, str]] = {route: pair for pair, text in _NEEDS.items() for route in routes_in(text)}
"""The right that each route needs: for what is one's own, and for what is another's. A new route must say its own."""

OWNERS_ALONE = routes_in("""
    GET /i/{identity}/settings, POST /i/{identity}/settings, POST /i/{identity}/settings/key,
""")


ASKED: dict[tuple[str, str], Json | None] = {
    **{route: None for route in NEEDS if not re.match("/($|i/|login|logout)", route[1])},
    ("POST", "/v1/chat/completions"): {"model": "ada", "messages": [{"role": "user", "content": "hi"}]},
    ("POST", "/v1/responses"): {"model": "ada", "input": "hi"},
    ("POST", "/v1/embeddings"): {"model": "ada", "input": "hi"},
    ("PUT", "/v1/profile/{key}"): {"value": "Oslo"},
    ("PUT", "/v1/profile/{key}/pin"): {},
    ("POST", "/v1/sessions"): {"title": "new"},
    ("PATCH", "/v1/sessions/{session_id}"): {"title": "other"},
    ("POST", "/v1/sessions/{session_id}/fork"): {},
    ("PUT", "/v1/sessions/{session_id}/pin"): {},
    ("PUT", "/v1/sessions/{session_id}/sensitivity"): {"sensitivity": "private"},
    ("PUT", "/v1/sessions/{session_id}/project"): {"project": "house"},
    ("PATCH", "/v1/projects/{project}"): {"name": "home"},
    ("POST", "/v1/sessions/{session_id}/messages"): {"messages": [{"role": "user", "content": "hello"}]},
    ("POST", "/v1/context"): {"messages": [{"role": "user", "content": "hello"}]},
    ("POST", "/v1/sessions/{session_id}/chat"): {"text": "hello", "stream": False},
    ("POST", "/v1/memories"): {"title": "something else"},
    ("POST", "/v1/memories/batch"): {"memories": [{"title": "yet another"}]},
    ("POST", "/v1/memories/import"): {"text": '{"kind": "memories", "format": 1}\n{"kind": "end"}'},
    ("PUT", "/v1/memories/by-key/{key}"): {"title": "under a key"},
    ("POST", "/v1/memories/purge"): {"person": "nobody", "dry_run": True},
    ("PATCH", "/v1/memories/{memory_id}"): {"title": "changed"},
    ("POST", "/v1/memories/{memory_id}/supersede"): {"by": "{other_id}"},
    ("POST", "/v1/people"): {"name": "Maria", "alias": "Mary"},
    ("POST", "/v1/tasks"): {"title": "to do"},
    ("PATCH", "/v1/tasks/{task_id}"): {"status": "completed"},
    ("POST", "/v1/facts"): {"subject": "a", "predicate": "b", "object": "c"},
    ("POST", "/v1/sync"): {"machine": "0123456789ab", "dry_run": True},
    ("PUT", "/v1/users/quota"): {"day_usd": 1},
}
"""How to ask each route that is not the page's, so that it would answer."""

_OF_A_USER = """
    GET /v1/users/export, DELETE /v1/users, GET /v1/users/quota, PUT /v1/users/quota, DELETE /v1/users/quota
"""
QUERIES: dict[tuple[str, str], dict[str, str]] = {
    **{route: {"user": "alice"} for route in routes_in(_OF_A_USER)},
    ("GET", "/v1/memories/recall"): {"q": "anything"},
}
"""Parameters that a route needs; ids stand in braces."""

EVERY = [*NEEDS, *OWNERS_ALONE]
GUARDED = [route for route in ASKED if route[1] not in OPEN_PATHS]
NAMING = [
    route
    for route in ASKED
    if re.search("_id}|{response}|{key}", route[1])
    and route not in {("PUT", "/v1/profile/{key}"), ("PUT", "/v1/memories/by-key/{key}")}
]
"""Routes that name a session, a response, or something remembered."""
NOWHERE = {"/openapi.json", "/v1/usage", "/v1/models", "/v1/models/{name}", "/v1/responses/{response}"}
PLACED = [route for route in GUARDED if route[1] not in NOWHERE]
"""Routes at one identity."""


def proposal(value: str) -> Json:
    """Return a memory that proposes a value for a key of the profile."""
    return {"title": f"proposed: motto: {value}", "category": "profile",
            "metadata": {"line": f"motto {uuid.uuid4()}", "held": {"value": value}}}  # fmt: skip


@dataclass
class World:
    """A server with something of Ada's, and tokens of several people."""

    served: Served
    client: httpx.Client
    tokens: dict[str, str] = field(default_factory=dict)
    _read: dict[tuple[str, frozenset[str]], dict[str, str]] = field(default_factory=dict)

    @cached_property
    def shared(self) -> dict[str, str]:
        """Something of Ada's of each kind, for routes that are about none of them."""
        return self.ids("".join(f"{{{name}}}" for name in _MAKERS))

    def ids(self, path: str, token: str = "", *, is_read: bool = False) -> dict[str, str]:
        """Something new of Ada's, or of who has the token, that a path names; routes that only read may share it."""
        key = token, frozenset(re.findall(r"{\w+}|files|attachments|/file/", path))
        if is_read and key in self._read:
            return self._read[key]
        ids = nowhere("transcript.md" if "files" in path else "ada")
        with self.served.client(token or self.tokens["ada"]) as client:
            for name in [name for name in _MAKERS if f"{{{name}}}" in path]:
                is_proposed = name == "memory_id" and "proposals" in path
                make = _new("/v1/memories", proposal("plugh")) if is_proposed else _MAKERS[name]
                ids[name] = make(client, ids)
            if "attachments" in path or "/file/" in path:
                attached = client.get(f"/v1/sessions/{ids['session_id']}/attachments").json()["data"]
                ids["name"] = attached[0]["name"]
        if is_read:
            self._read[key] = ids
        return ids

    def ask(
        self,
        route: tuple[str, str],
        ids: dict[str, str],
        token: str | None = None,
        *,
        query: Json | None = None,
        headers: Mapping[str, str] | None = None,
        body: Json | None = None,
        form: Json | None = None,
    ) -> httpx.Response:
        """Ask a route as it wants to be asked, with more in its body, or with a form."""
        method, path = route
        headers = dict(headers or {})
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self.client.request(
            method,
            address(path, ids),
            json={**filled(ASKED[route], ids), **body} if body else filled(ASKED.get(route), ids),
            data=form,
            params={key: each.format(**ids) for key, each in QUERIES.get(route, {}).items()} | (query or {}),
            headers=headers,
        )


def _new_session(client: httpx.Client, _: Any) -> str:
    session: str = client.post("/v1/sessions", json={}).json()["id"]
    note = {"name": "note.txt", "data": "data:text/plain;base64,cGx1Z2g="}
    said = {"text": "my secret word is plugh", "stream": False, "attachments": [note]}
    client.post(f"/v1/sessions/{session}/chat", json=said)
    return session


def _new_key(client: httpx.Client, ids: Mapping[str, str]) -> str:
    client.put(f"/v1/profile/{ids['key']}", json={"value": "plugh"}).raise_for_status()
    client.put(f"/v1/memories/by-key/{ids['key']}", json={"title": f"plugh {ids['key']}"}).raise_for_status()
    return ids["key"]


def _new(path: str, body: Json) -> Callable[[httpx.Client, Any], str]:
    """Makes one thing by a request that answers with its id."""

    def make(client: httpx.Client, _: Any) -> str:
        unique = body | {name: f"{body[name]} {uuid.uuid4()}" for name in ("title", "object") if name in body}
        return str(client.post(path, json=unique).raise_for_status().json()["id"])

    return make


def _new_project(client: httpx.Client, ids: Mapping[str, str]) -> str:
    kept = {"title": f"plugh {ids['project']}", "project": ids["project"]}
    client.post("/v1/memories", json=kept).raise_for_status()
    return ids["project"]


_MAKERS: dict[str, Callable[[httpx.Client, Any], str]] = {
    "session_id": _new_session, "memory_id": _new("/v1/memories", {"title": "The secret word is plugh"}),
    "other_id": _new("/v1/memories", {"title": "It is xyzzy now"}), "task_id": _new("/v1/tasks", {"title": "to do"}),
    "fact_id": _new("/v1/facts", {"subject": "plugh", "predicate": "is", "object": "secret"}), "key": _new_key,
    "project": _new_project,
    "response": _new("/v1/responses", {"model": "ada", "input": "my secret word is plugh", "store": True}),
}  # fmt: skip
"""How to make something of Ada's of each kind."""


def address(path: str, ids: Mapping[str, str]) -> str:
    """The path with these ids in it."""
    return path.format(**ids)


def nowhere(name: str) -> dict[str, str]:
    """Ids of nothing that is there, but for the name."""
    return {
        **{name: str(uuid.uuid4()) for name in ("session_id", "memory_id", "other_id", "task_id", "fact_id")},
        "key": f"key/{uuid.uuid4()}",
        "project": f"{'project' * 20}/{uuid.uuid4()}",
        "response": f"resp_{uuid.uuid4().hex}{uuid.uuid4().hex}",
        "name": name,
        "identity": name,
    }


def named(route: tuple[str, str]) -> str:
    """Return what a route is about, in its path or its body."""
    return f"{route[1]} {ASKED.get(route)}"


def filled(body: Any, ids: Mapping[str, str]) -> Any:
    """A body in which an id stands where one is asked for."""
    return {**body, "by": ids["other_id"]} if body and "by" in body else body


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with served_in(tmp_path_factory) as served, served.client() as client:
        tokens = {name: served.token(name) for name in ("ada", "grace")}
        tokens |= {"both": served.token("ada", "grace"), "familiar": served.token("ada", clearance="familiar")}
        yield World(served, client, tokens)


@contextmanager
def served_in(folders: pytest.TempPathFactory, *, tokens: bool = True, **options: Any) -> Iterator[Served]:
    """A server in a folder of its own, for all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folders.mktemp("world"))
        patch.setenv("XDG_CACHE_HOME", str(folders.mktemp("cache")))
        with serving(tokens=tokens, **options) as served:
            yield served


def routes_of(routes: Any) -> Iterator[tuple[str, str]]:
    for route in routes:
        if (inner := getattr(getattr(route, "original_router", route), "routes", None)) is not None:
            yield from routes_of(inner)
        else:
            for method in getattr(route, "methods", None) or {"WEBSOCKET"}:
                yield method, route.path_format


def test_every_route_of_the_app_is_tried_here_and_only_these_paths_are_open(world: World) -> None:
    assert set(OPEN_PATHS) == {"/health", "/ready"}
    there = {(method, path) for method, path in routes_of(world.served.app.routes) if method != "HEAD"}
    assert there == {*EVERY}, "add the route to the right that it needs in _NEEDS, and its body to ASKED"
    assert any(route.matches({"type": "http", "path": "/health", "method": "GET"})[0] is Match.FULL
               for route in world.served.app.routes)  # fmt: skip


WRONG: list[dict[str, str]] = [
    {}, {"Authorization": f"Bearer cbt_{'x' * 43}"}, {"Authorization": "Bearer ada"}, {"Authorization": "Bearer"},
    {"Authorization": "Basic YWRhOmFkYQ=="}, {"Cookie": "chatbot_token=ada; chatbot_token="},
    {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "localhost"},
]  # fmt: skip


def test_nobody_comes_in_without_a_valid_token(world: World) -> None:
    for route in [route for route in EVERY if route[1] not in {*OPEN_PATHS, "/login"}]:
        ids = nowhere("ada")
        for headers in share(WRONG, route):
            response = world.ask(route, ids, headers=headers)
            assert response.status_code in {401, 429}, (route, headers)  # the latter once it was tried too often
            assert set(response.json()["error"]) == {"message", "type", "code", "param"}


@pytest.mark.parametrize("route", NAMING, ids=str)
def test_what_is_anothers_or_needs_more_clearance_is_as_if_it_were_absent(world: World, route: tuple[str, str]) -> None:
    """For another identity, for less clearance, and for another user of the very same token."""
    ids = world.ids(named(route), is_read=route[0] == "GET")
    nothing = nowhere(ids["name"])
    malformed = nothing | dict.fromkeys(("session_id", "memory_id", "task_id", "fact_id"), "a" * 99)
    for token, user in (("grace", {}), ("familiar", {}), ("ada", {"X-Chatbot-User": "bob"})):
        closed, missing, none = (
            world.ask(route, x, world.tokens[token], headers=user) for x in (ids, nothing, malformed)
        )
        assert closed.status_code == missing.status_code == none.status_code == 404, (token, user)
        assert _told(closed) == _told(missing)
    assert world.ask(route, ids, world.tokens["ada"]).is_success


WITHIN = [
    (("POST", "/v1/chat/completions"), "session_id", "session_id"), (("GET", "/v1/memories"), "cursor", "memory_id"),
    (("POST", "/v1/facts"), "source", "memory_id"), (("POST", "/v1/memories"), "supersedes", "memory_id"),
    (("POST", "/v1/memories/{memory_id}/supersede"), "by", "memory_id"),
]  # fmt: skip
"""Fields of requests that name something else than their route does, and its kind."""


@pytest.mark.parametrize(("route", "field", "kind"), WITHIN)
def test_so_is_what_a_request_names_besides(world: World, route: tuple[str, str], field: str, kind: str) -> None:
    answers, own = [], nowhere("ada")
    own["memory_id"] = world.ids("{task_id}", world.tokens["familiar"])["task_id"]
    for each in (world.shared[kind], nowhere("ada")[kind]):
        more: Any = {"query" if route[0] == "GET" else "body": {field: each}}
        answers.append(_told(world.ask(route, own, world.tokens["familiar"], **more)))
    assert answers[0] == answers[1]
    assert answers[0][0] == 404


@pytest.mark.parametrize("route", PLACED, ids=str)
def test_another_users_identity_is_as_if_it_were_not_there(world: World, route: tuple[str, str]) -> None:
    ids = nowhere("x")
    answers = []
    for name in ("ada", "adb"):
        body = dict(ASKED[route] or {})
        query = {"identity": name}
        if "model" in body:
            body, query = body | {"model": name}, {}
        with world.served.client(world.tokens["grace"]) as client:
            answers.append(client.request(route[0], address(route[1], ids), json=body or None, params=query))
    foreign, missing = answers
    assert foreign.status_code == missing.status_code == 404
    assert foreign.text.replace("'ada'", "…") == missing.text.replace("'adb'", "…")


def test_so_is_one_among_the_models_or_on_the_page_and_it_is_not_opened(served: Served) -> None:
    with served.client(served.token("grace"), accept="text/html") as client:
        for path in ("/v1/models/{}", "/i/{}/memory", "/v1/sessions?identity={}"):
            answers = [_told(client.get(path.format(name))) for name in ("ada", "adb")]
            foreign, missing = [(status, re.sub(r"\bad[ab]\b", "…", text), names) for status, text, names in answers]
            assert foreign == missing
            assert foreign[0] == 404
    assert "ada" not in served.models


@pytest.mark.parametrize("route", [route for route in GUARDED if route not in NAMING], ids=str)
def test_no_list_tells_of_what_is_anothers_or_needs_more_clearance(world: World, route: tuple[str, str]) -> None:
    ids = world.shared
    if route[1] == "/openapi.json":
        return
    for who in ("grace", "familiar"):
        told = world.ask(
            route, ids | {"name": "grace"}, world.tokens[who], query={"q": "secret"} if "search" in route[1] else {}
        )
        assert "plugh" not in told.text
        assert ids["session_id"] not in told.text
        assert ids["memory_id"] not in told.text
        assert ids["response"] not in told.text
    assert "ada" not in world.ask(("GET", "/v1/models"), {}, world.tokens["grace"]).text


HOSTS = [
    *("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "a@localhost", ":b@localhost"),
    *("localhost:evil", "localhost:99999", "[::1", "10.0.0.1"),
]


FOREIGN = [
    {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost:1"},
    {"Origin": "http://127.0.0.1.evil.example"}, {"Origin": "http://["}, {"Origin": ""},
    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
]  # fmt: skip


def test_a_request_by_another_name_and_a_page_of_another_site_are_refused(world: World) -> None:
    for route in EVERY:
        ids = nowhere("ada")
        for host in share(HOSTS, route):
            assert world.ask(route, ids, world.tokens["ada"], headers={"Host": host}).status_code == 421, (route, host)
        for headers in share(FOREIGN, route):
            response = world.ask(route, ids, world.tokens["ada"], headers=headers)
            assert response.status_code == 403, (route, headers)
            assert not [name for name in response.headers if name.startswith("access-control")]


def test_our_own_page_may_call_and_a_link_may_be_followed(world: World) -> None:
    host = world.served.url.removeprefix("http://")
    for headers in ({"Origin": world.served.url}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        assert world.ask(("GET", "/v1/models"), {}, world.tokens["ada"], headers={"Host": host, **headers}).is_success
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert world.ask(("GET", "/v1/models"), {}, world.tokens["ada"], headers=link).is_success
    assert world.ask(("POST", "/v1/sessions"), {}, world.tokens["ada"], headers=link).status_code == 403


@pytest.mark.parametrize("headers", [{}, *({"X-Forwarded-Proto": each} for each in ("http", "https", "HTTPS, http"))])
def test_the_cookie_is_kept_to_tls_where_a_proxy_has_it(world: World, headers: dict[str, str]) -> None:
    form = headers | {"Content-Type": "application/x-www-form-urlencoded"}
    answer = world.client.post("/login", content=f"token={world.tokens['ada']}", headers=form)
    assert ("; Secure" in answer.headers["set-cookie"]) is ("https" in str(headers).lower())


def test_the_cookie_of_the_page_is_a_token_too(world: World) -> None:
    for name, status in ((world.tokens["ada"], 200), ("cbt_wrong", 401)):
        sent = {"Cookie": f'of_another_server={{"a b": 1}}; chatbot_token={name}'}
        assert world.ask(("GET", "/v1/models"), {}, headers=sent).status_code == status


def test_a_familiar_caller_has_sessions_and_memories_of_their_own(world: World) -> None:
    with world.served.client(world.tokens["familiar"]) as client:
        session = client.post("/v1/sessions", json={}).json()
        assert session["clearance"] == "familiar"
        path = f"/v1/sessions/{session['id']}"
        said = {"text": "What is the secret word? Is it xyzzy?", "stream": False}
        assert client.post(f"{path}/chat", json=said).is_success
        listed = client.get("/v1/sessions").json()["data"]
        assert listed[0]["id"] == session["id"]
        assert {each["clearance"] for each in listed} == {"familiar"}
        kept = client.post("/v1/memories", json={"title": "Familiar faces like tea"}).json()["id"]
        assert client.get(f"/v1/memories/{kept}").json()["visibility"] == "social"
        refused = client.post("/v1/memories", json={"title": "Mine", "visibility": "private"})
        assert (refused.status_code, refused.json()["error"]["type"]) == (403, "permission_error")
        told = client.get(f"{path}/receipts").text + client.get(f"{path}/messages").text
    assert "plugh" not in told
    prompts = [message.content for prompt in world.served.models["ada"].prompts[-1:] for message in prompt]
    assert not any("plugh" in text for text in prompts)
    with world.served.client(world.tokens["ada"]) as client:
        assert client.get(path).is_success


def test_a_token_opens_several_identities_and_the_first_answers(world: World) -> None:
    with world.served.client(world.tokens["both"]) as client:
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["ada", "grace"]
        made = client.post("/v1/sessions", params={"identity": "grace"}).json()["id"]
        assert client.get(f"/v1/sessions/{made}").status_code == 404
        assert client.get(f"/v1/sessions/{made}", params={"identity": "grace"}).is_success


def test_a_stream_ends_when_its_token_is_revoked_not_when_it_cannot_be_checked(
    http: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def away() -> None:
        asked.append(1)
        raise StoreAway("no PostgreSQL answers there")

    served = http(["word " * 400], tokens=True, delay_s=0.02)
    text, token = served.identities.tokens.add("guest", Grant(("ada",), "full"))
    with served.client(text) as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        with client.stream("POST", f"/v1/sessions/{session}/chat", json={"text": "hello"}) as stream:
            told = events(stream)
            next(told)
            monkeypatch.setattr(served.identities.tokens, "all", away)
            wait_until(lambda: asked)
            monkeypatch.undo()
            served.identities.tokens.revoke(token.id)
            assert [name for name, _ in told][-1] == "text"
        assert client.get("/v1/models").status_code == 401


def test_the_holder_of_a_renewed_token_keeps_what_is_theirs(http: Serve) -> None:
    served = http(tokens=True)
    before, token = served.identities.tokens.add("guest", Grant(("ada",), "full"))
    with served.client(before) as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        after, renewed = served.identities.tokens.renew("guest")
        assert client.get("/v1/sessions").status_code == 401
    assert (renewed.id, renewed.caller()) == (token.id, token.caller())
    with served.client(after) as client:
        assert client.patch(f"/v1/sessions/{session}", json={"title": "mine"}).is_success


def test_once_there_is_a_token_the_owner_needs_one_too_and_revoking_the_last_opens_nothing(http: Serve) -> None:
    served = http()
    with served.client() as client:
        assert client.get("/v1/models").is_success
        _, token = served.identities.tokens.add("guest", Grant(("ada",), "full"))
        assert client.get("/v1/models").status_code == 401
        served.identities.tokens.revoke(token.id)
        assert client.get("/v1/models").status_code == 401
    closed = http(tokens=True)
    with closed.client() as client:
        for token in closed.identities.tokens.all():
            closed.identities.tokens.revoke(token.id)
        assert client.get("/v1/models").status_code == 401


def test_a_damaged_file_of_tokens_lets_nobody_in(served: Served) -> None:
    token = served.token("ada")
    served.identities.setup.identities.joinpath(".server", "tokens.json").write_text('{"version": 1, "tokens": 7}')
    with served.client(token) as client:
        response = client.get("/v1/models")
    assert response.status_code == 500
    assert str(served.identities.setup.identities) not in response.text


def test_who_asks_too_often_is_told_when_to_come_back(http: Serve, served: Served) -> None:
    with served.client(served.token("ada", rate=5)) as client:
        answers = [client.get("/v1/models") for _ in range(8)]
    assert [each.status_code for each in answers] == [200] * 5 + [429] * 3
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 12
    with served.client(served.token("ada", rate=5)) as client:
        assert client.get("/v1/models").is_success
    served = http(config="[server]\nrate_per_minute = 3\n", tokens=True)
    with served.client(served.token("ada", rate=0)) as client:  # which leaves it to the settings
        assert [client.get("/v1/models").status_code for _ in range(4)] == [200, 200, 200, 429]


def test_who_guesses_tokens_is_slowed_down(served: Served) -> None:
    with served.client("guess") as client:
        answers = {client.get("/v1/models").status_code for _ in range(70)}
    assert answers == {401, 429}
    with served.client(served.token("ada")) as client:
        assert client.get("/v1/models").is_success


@pytest.mark.usefixtures("config_is_asked_for")
def test_other_sites_and_names_may_be_allowed(http: Serve) -> None:
    served = http(
        config='[server]\nallowed_hosts = ["Bot.example.org"]\nallowed_origins = ["https://chat.example.org"]\n'
    )
    origin = {"Origin": "https://chat.example.org"}
    with served.client(None, Host="bot.example.org") as client:
        allowed = client.get("/v1/models", headers=origin)
        assert allowed.headers["access-control-allow-origin"] == "https://chat.example.org"
        assert allowed.headers["access-control-expose-headers"] == "*"
        preflight = client.options("/v1/sessions", headers=origin | {"Access-Control-Request-Method": "POST"})
        assert preflight.is_success
        refused = client.get("/v1/models", headers={"Origin": "https://evil.example"})
        assert refused.status_code == 403
        assert "access-control-allow-origin" not in refused.headers


def test_a_server_for_one_identity_knows_no_other(http: Serve) -> None:
    from chatbot.runtime import Options

    served = http(options=Options(identity="grace"))
    with served.client() as client:
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["grace"]
        assert client.get("/v1/sessions", params={"identity": "ada"}).status_code == 404


def _told(answer: httpx.Response) -> tuple[int, str, list[str]]:
    """What an answer tells but for the id that was asked for."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|resp_[0-9a-f]{64}", "…", answer.text)
    return answer.status_code, text, sorted(answer.headers)
