"""A refusal tells nothing by how long it takes: what is closed takes the same road as what is not there.

Seconds would flake, so the steps of the road are compared: look-ups of sessions, and every file that is opened.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from chatbot.memory.catalog import FolderCatalog
from tests.servers.http_server import Serve, Served

MISSING = "0196d5e4-0000-7000-8000-000000000000"
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_TOKENS = (".server", "tokens.json")
"""Read anew for a while after a change, whoever asks."""
_opened: list[list[str]] = []
_is_listening: list[bool] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event in {"open", "os.listdir", "os.scandir"} and _opened:
        name = str(arguments[0])
        if not name.endswith(_TOKENS):
            _opened[-1].append(name)


@contextmanager
def opened() -> Iterator[list[str]]:
    """The files and folders that this process opens meanwhile."""
    if not _is_listening:
        sys.addaudithook(_hear)  # it cannot be taken away again, so there is one
        _is_listening.append(True)
    names: list[str] = []
    _opened.append(names)
    try:
        yield names
    finally:
        _opened.remove(names)


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sessions that were looked up, by what they were asked for."""
    asked: list[str] = []
    get = FolderCatalog.get

    async def noted(self: FolderCatalog, session_id: str) -> Any:
        asked.append(session_id)
        return await get(self, session_id)

    monkeypatch.setattr(FolderCatalog, "get", noted)
    return asked


ROUTES = [
    ("GET", "/v1/sessions/{}", None),
    ("PATCH", "/v1/sessions/{}", {"title": "mine"}),
    ("DELETE", "/v1/sessions/{}", None),
    ("POST", "/v1/sessions/{}/fork", {}),
    ("GET", "/v1/sessions/{}/messages", None),
    ("POST", "/v1/sessions/{}/chat", {"text": "hello"}),
    ("GET", "/v1/sessions/{}/files", None),
    ("GET", "/v1/sessions/{}/receipts", None),
]


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
def test_a_closed_session_is_looked_up_as_often_as_a_missing_one(
    http: Serve, lookups: list[str], method: str, path: str, body: Any
) -> None:
    served = http(tokens=True)
    closed = _begun(served)
    with served.client(served.token("ada", clearance="familiar")) as client:
        roads = []
        for session_id in (closed, MISSING):
            lookups.clear()
            answer = client.request(method, path.format(session_id), json=body)
            roads.append((len(lookups), answer.status_code, _ID.sub("…", answer.text), sorted(answer.headers)))
    assert roads[0] == roads[1]
    assert roads[0][:2] == (2, 404)


def _begun(served: Served) -> str:
    with served.client(served.token("ada")) as client:
        return str(client.post("/v1/sessions", json={"title": "closed to guests"}).json()["id"])


def test_a_foreign_identity_opens_the_same_files_as_a_missing_one_and_is_not_opened_itself(http: Serve) -> None:
    served = http(tokens=True)
    with served.client(served.token("ada")) as client:
        _asked(client, "ada")
        _asked(client, "grace")
        roads = []
        for name in ("grace", "nobod", "grace", "nobod"):
            with opened() as names:
                roads.append((_asked(client, name), [each for each in names if "identities" in each]))
    assert roads[0] == roads[1] == roads[2] == roads[3]
    assert roads[0][0] == 404
    assert list(served.models) == ["ada"]


def _asked(client: httpx.Client, identity: str) -> int:
    return client.get("/v1/sessions", params={"identity": identity}).status_code


def test_a_memory_that_is_closed_is_refused_from_the_same_files_as_a_missing_one(http: Serve) -> None:
    served = http(tokens=True)
    with served.client(served.token("ada")) as owner:
        closed = owner.post("/v1/memories", json={"title": "for the owner alone"}).json()["id"]
    with served.client(served.token("ada", clearance="familiar")) as client:
        client.get(f"/v1/memories/{closed}")
        roads = []
        for memory_id in (closed, MISSING, closed, MISSING):
            with opened() as names:
                answer = client.get(f"/v1/memories/{memory_id}")
            roads.append((answer.status_code, _ID.sub("…", answer.text), [_ID.sub("…", each) for each in names]))
    assert roads[0] == roads[1] == roads[2] == roads[3]
    assert roads[0][0] == 404
