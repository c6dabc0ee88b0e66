"""Sync with a server, and backup and restore over HTTP."""

import asyncio
import json
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from chatbot.errors import ChatbotError, ConfigError
from chatbot.memory import MemorySystem
from chatbot.memory.scope import utc_now
from chatbot.stores.errors import StoreError, StoreFailed
from chatbot.transfer.sync import sync
from chatbot.transfer.sync_place import NAME, ParcelPlace, ServerPlace, SyncReport, Visitor
from chatbot.transfer.sync_storage import Storage, digest_of_storage
from tests import process
from tests.clock import Clock
from tests.patience import PATIENCE_S
from tests.servers.http_server import Serve
from tests.servers.in_thread import answering
from tests.transfer.sync_world import Machine


async def _synced(machine: Machine, place: ServerPlace, *, dry_run: bool = False) -> SyncReport:
    async with machine.opened() as memory:
        return await sync(memory, place, now=machine.now, dry_run=dry_run)


async def _digest(home: Path) -> str:
    async with Storage.opened(home) as storage:
        return await digest_of_storage(storage)


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    (tmp_path / "server").mkdir()
    monkeypatch.chdir(tmp_path / "server")
    return Machine(tmp_path / "laptop", timedelta(0), Clock(utc_now(), step=timedelta(milliseconds=7)))


async def test_a_machine_and_a_server_come_to_the_same_and_give_only_what_is_new(http: Serve, laptop: Machine) -> None:
    served = http(tokens=True)
    place = ServerPlace(f"{served.url}/?identity=ada", served.token("ada"))
    with served.client(served.token("ada")) as client:
        row = client.post("/v1/memories", json={"title": "Ada keeps bees"}).json()["id"]
    assert (await _synced(laptop, place, dry_run=True)).taken["memories"] == 1
    assert not await laptop.rows()
    for expected in (1, 0):
        assert (await _synced(laptop, place)).taken["memories"] == expected
    async with laptop.opened() as memory:
        session = await memory.create_session(["basic_session", "observations"], "chat")
        await session.attach([(each * 100_000, ".png") for each in (b"photo", b"other")])  # in two files
        await memory.memory("chat").purge(row)
        await memory.memory("chat").remember("Bo keeps goats")
    assert (await _synced(laptop, place)).given == {"memories": 1, "sessions": 1, "calls": 0, "erased": 1}
    report = await _synced(laptop, place)
    assert not any([*report.taken.values(), *report.given.values()])
    with served.client(served.token("ada")) as client:
        assert [each["title"] for each in client.get("/v1/memories").json()["data"]] == ["Bo keeps goats"]
        [there] = client.get("/v1/sessions").json()["data"]
        assert client.get(f"/v1/sessions/{there['id']}/attachments").json()["data"][0]["size"] == 500_000
    assert await _digest(Path("identities/ada/memory")) == await _digest(laptop.folder)


async def test_a_server_says_why_it_refuses(http: Serve, laptop: Machine) -> None:
    served = http(tokens=True)
    with pytest.raises(ConfigError, match="token"):
        await _synced(laptop, ServerPlace(served.url, "cbt_wrong"))
    with pytest.raises(ConfigError, match="the right 'chat' is needed"):
        await _synced(laptop, ServerPlace(served.url, served.token("ada", rights=["read", "write"])))
    for part in (served.token("ada", namespace="users/bo"), served.token("ada", project="house")):
        with pytest.raises(ConfigError, match="a part of the memory cannot be synced"):
            await _synced(laptop, ServerPlace(served.url, part))
        with served.client(part) as client:
            assert client.get("/v1/backup").status_code == 403
    with served.client(served.token("ada", project="house")) as client:
        assert client.delete("/v1/users", params={"user": "bo"}).status_code == 403
    await _synced(laptop, ServerPlace(served.url, served.token("ada")))
    async with MemorySystem(Path("identities/grace/memory")) as memory:
        await memory.memory("chat").remember("Grace keeps snakes")
    with pytest.raises(ConfigError, match="never synced with this one"):
        await _synced(laptop, ServerPlace(f"{served.url}?identity=grace", served.token("grace")))
    with pytest.raises(StoreFailed, match="cannot sync with"):
        await _synced(laptop, ServerPlace("http://127.0.0.1:9"))


@contextmanager
def _answering(answer: Callable[[BaseHTTPRequestHandler], object]) -> Iterator[str]:
    """A server that answers everything so."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with suppress(OSError):
                answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with answering(Handler, ThreadingHTTPServer) as url:
        yield url


def _sends(handler: BaseHTTPRequestHandler, status: int, body: bytes, *headers: tuple[str, str]) -> None:
    handler.send_response(status)
    for header in headers:
        handler.send_header(*header)
    handler.end_headers()
    handler.wfile.write(body)


def _never_ends(handler: BaseHTTPRequestHandler) -> None:
    _sends(handler, 500, b"")
    while True:
        handler.wfile.write(b"x" * 100_000)


_DEEP = b'{"identity": ' + b"[" * 100_000
_WHOLE: dict[str, Any] = {"identity": "", "files": {}, "taken": [], "aside": []}
_ANSWERS: dict[str, tuple[int, bytes, tuple[tuple[str, str], ...]]] = {
    "too deep": (200, _DEEP, ()),
    "an error that is too deep": (500, b'{"error": ' + b"[" * 100_000, ()),
    "an error that breaks off": (500, b"{}", (("Content-Length", "5000"),)),
    "an error in broken chunks": (502, b"5\r\nabcde\r\nZZ", (("Transfer-Encoding", "chunked"),)),
    "a redirection": (307, b"", (("Location", "http://127.0.0.1:9/v1/sync"),)),
    "a redirection to a file": (302, b"", (("Location", "file:///etc/passwd"),)),
    **{
        f"{field} {value!r:.20}": (200, json.dumps(_WHOLE | {field: value}).encode(), ())
        for field, value in (("identity", [1]), ("files", {"a": 1}), ("taken", None), ("aside", 5))
    },
    **{
        f"a head with {what}": (200, json.dumps(_WHOLE | {"files": {NAME: b64encode(data).decode()}}).encode(), ())
        for what, data in {
            "depth": _DEEP,
            "no number": b'{"identity": "ab", "version": Infinity}',
            "no identity": b'{"identity": "../x", "version": 1}',
            "nothing": b"[]",
        }.items()
    },
}


@pytest.mark.parametrize("answer", [*_ANSWERS.values(), _never_ends], ids=[*_ANSWERS, "an error without end"])
async def test_whatever_a_server_answers_is_an_error_that_says_so_and_is_not_kept(laptop: Machine, answer: Any) -> None:
    said = answer if callable(answer) else lambda handler: _sends(handler, *answer[:2], *answer[2])
    with _answering(said) as url, pytest.raises((ChatbotError, StoreError), match=re.escape(url)):
        await _synced(laptop, ServerPlace(url, "cbt_secret"))
    assert not await laptop.rows()


def test_a_server_that_does_not_answer_holds_up_nobody_who_is_interrupted(laptop: Machine) -> None:
    asked, answers = threading.Event(), threading.Event()

    async def interrupted(url: str) -> None:
        syncing = asyncio.create_task(_synced(laptop, ServerPlace(url)))
        await asyncio.to_thread(asked.wait, PATIENCE_S)
        syncing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await syncing

    def wait(_: BaseHTTPRequestHandler) -> None:
        asked.set()
        answers.wait(PATIENCE_S)

    with _answering(wait) as url:
        asyncio.run(interrupted(url))
        assert asked.is_set()
        answers.set()


async def test_a_dry_run_changes_nothing_whatever_it_brings(http: Serve, laptop: Machine) -> None:
    served = http(tokens=True)
    await _synced(laptop, ServerPlace(served.url, served.token("ada")))
    async with laptop.opened() as memory:
        await memory.memory("chat").remember("Ada keeps bees")
        given = ParcelPlace(Visitor(machine="ab"), {})
        await sync(memory, given, now=laptop.now)
    [(name, data)] = [each for each in given.new.items() if each[0] != NAME]
    with served.client(served.token("ada")) as client:
        for dry_run, rows in ((True, 0), (False, 1)):
            body = {"machine": name.partition("/")[0], "dry_run": dry_run, "files": {name: b64encode(data).decode()}}
            assert client.post("/v1/sync", json=body).is_success
            assert len(client.get("/v1/memories").json()["data"]) == rows


async def test_a_machine_that_lost_an_answer_is_given_all_of_it_again(http: Serve, laptop: Machine) -> None:
    served = http(tokens=True)
    place = ServerPlace(served.url, served.token("ada"))
    with served.client(served.token("ada")) as client:
        client.post("/v1/memories", json={"title": "Ada keeps bees"}).raise_for_status()
        lost = {"machine": "0123456789ab"}
        first = client.post("/v1/sync", json=lost).json()
        again = client.post("/v1/sync", json=lost).json()
    assert len(first["files"]) == len(again["files"]) == 1
    assert (await _synced(laptop, place)).taken["memories"] == 1


async def test_a_backup_over_http_is_restored_as_another_identity(http: Serve, laptop: Machine) -> None:
    with http().client() as client:
        client.post("/v1/memories", json={"title": "Ada keeps bees"}).raise_for_status()
        kept = client.get("/v1/backup")
        assert kept.headers["content-type"] == "application/zip"
        Path("ada.chatbot").write_bytes(kept.content)
        assert (await asyncio.to_thread(process.run, "restore", "ada.chatbot", "--as", "copy")).returncode == 0
        assert await _digest(Path("identities/copy/memory")) == await _digest(Path("identities/ada/memory"))
        found = client.get("/v1/memories", params={"identity": "copy"}).json()["data"]
        assert [each["title"] for each in found] == ["Ada keeps bees"]
