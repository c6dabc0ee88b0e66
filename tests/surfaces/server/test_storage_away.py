"""A server whose storage does not answer says so, and goes on by itself."""

import asyncio
import gc
import threading
from contextlib import chdir
from itertools import count
from pathlib import Path

import pytest

from chatbot.options import Options
from chatbot.server import identities
from chatbot.server.identities import Identities, StorageProbe
from chatbot.stores.errors import FullDisk, ReadOnlyFolder, StoreAway, StoreError, StoreFailed
from chatbot.stores.postgres import database
from tests.command import project
from tests.disk import fill
from tests.patience import PATIENCE_S
from tests.postgres_pair import Node
from tests.servers.http_server import Serve, wait_until
from tests.stores.test_postgres_faults import server
from tests.surfaces.server.test_access_checks import ASKED, address, nowhere

__all__ = ["server"]
WITHOUT_STORAGE = {"/health", "/openapi.json", "/v1/models", "/v1/models/{name}"}


@pytest.mark.parametrize(
    ("kind", "code"),
    [(StoreAway, "away"), (StoreFailed, "away"), (ReadOnlyFolder, "read_only"), (FullDisk, "full")],
)
def test_health_and_readiness_follow_storage(http: Serve, kind: type[StoreError], code: str) -> None:
    served, errors, kept = http(tokens=True), [kind("postgresql://db/chat: no")], ["a memory"]

    def look() -> bool:
        if errors:
            raise errors[0]
        return bool(kept)

    served.identities.storage = StorageProbe(look)
    with served.client() as client:
        health, ready = client.get("/health"), client.get("/ready")
        assert (health.status_code, health.json()) == (200, {"status": "ok", "storage": "away"})
        assert (ready.status_code, ready.json()["error"]["code"]) == (503, f"storage_{code}")
        assert ready.headers["retry-after"]
        assert "postgresql" not in ready.text
        errors.clear()
        assert client.get("/health").json() == client.get("/ready").json() == {"status": "ok", "storage": "ok"}
        kept.clear()  # the folder has vanished
        assert client.get("/ready").status_code == 503


def test_a_memory_whose_folder_is_gone_is_not_begun_anew(http: Serve) -> None:
    served = http()
    folder = served.identities.setup.identities / "ada" / "memory"
    with served.client() as client:
        for title in ("one", "two"):
            assert client.post("/v1/memories", json={"title": title}).is_success
        folder.rename(away := folder.with_name("away"))
        assert client.post("/v1/memories", json={"title": "lost"}).json()["error"]["code"] == "storage_away"
        assert client.get("/v1/memories").status_code == 503
        assert not folder.exists()
        away.rename(folder)
        assert len(client.get("/v1/memories").json()["data"]) == 2


async def test_a_full_disk_takes_no_writes_until_there_is_room(small_disk: Path) -> None:
    with chdir(small_disk):
        project('[model]\nname = "scripted"\n')
    async with Identities(Options(config=small_disk / "config.toml")) as served:
        assert await served.storage.error() is None
        fill(small_disk)
        assert isinstance(await served.storage.error(), FullDisk)
        (small_disk / "ballast").unlink()
        assert await served.storage.error() is None


async def test_storage_that_hangs_is_asked_once_and_waited_for_but_a_moment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(identities, "_LONGEST_WAIT_S", 0.01)
    asked, answer = count(), threading.Event()

    def look() -> bool:
        number = next(asked)
        answer.wait()
        if number == 0:
            raise StoreAway("it is away, and nobody waits any more")
        return True

    probe = StorageProbe(look)
    assert [type(await probe.error()) for _ in range(3)] == [StoreAway] * 3
    assert next(asked) == 1
    answer.set()
    async with asyncio.timeout(PATIENCE_S):
        assert probe._looking is not None
        await asyncio.wait([probe._looking])
        while await probe.error() is not None:
            pass
    await probe.aclose()
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_storage_is_asked_while_all_shared_threads_are_busy() -> None:
    probe, end = StorageProbe(lambda: None), threading.Event()
    busy = [asyncio.create_task(asyncio.to_thread(end.wait)) for _ in range(40)]
    await asyncio.sleep(0)
    try:
        assert await probe.error() is None
    finally:
        end.set()
        await asyncio.gather(*busy)
        await probe.aclose()


@pytest.mark.nightly
def test_every_route_says_that_the_database_was_killed_and_answers_once_it_is_back(
    http: Serve, server: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHATBOT_STORAGE__URL", server.url)
    monkeypatch.setattr(database, "_LONGEST_WAIT_S", 1.0)
    monkeypatch.setattr(Identities, "_check_isolation", unchecked)  # it works as the owner of the tables
    served = http(["whole"] * 9)
    with served.client() as client:
        said = client.post("/v1/sessions", json={}).json()["id"]
        server.kill()
        for (method, path), body in ASKED.items():
            answer = client.request(method, address(path, nowhere("ada") | {"session_id": said}), json=body)
            if path not in WITHOUT_STORAGE and answer.status_code != 422:
                codes = {"storage_away"} if method == "GET" else {"storage_away", "outcome_unknown"}
                assert answer.status_code == 503, (method, path, answer.text)
                assert answer.json()["error"]["code"] in codes, (method, path)
                assert answer.headers["retry-after"], (method, path)
        server.start()
        wait_until(lambda: client.get("/ready").is_success)
        answer = client.post(f"/v1/sessions/{said}/chat", json={"text": "hello", "stream": False})
        assert answer.json()["reply"] == "whole"


async def unchecked(*_: object) -> None:
    """Let every role in."""
