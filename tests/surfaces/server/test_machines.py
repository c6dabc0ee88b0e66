"""Sync with a server, and backup and restore over HTTP."""

from datetime import timedelta
from pathlib import Path

import pytest

from chatbot.errors import ConfigError
from chatbot.memory import MemorySystem
from chatbot.memory.scope import utc_now
from chatbot.stores.errors import StoreFailed
from chatbot.transfer.sync import SyncReport, sync
from chatbot.transfer.sync_place import ServerPlace
from chatbot.transfer.sync_storage import Storage, digest_of_storage
from tests.clock import Clock
from tests.servers.http_server import Serve
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
        await session.attach([(b"photo" * 100_000, ".png")])
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
    with pytest.raises(ConfigError, match="a part of the memory cannot be synced"):
        await _synced(laptop, ServerPlace(served.url, served.token("ada", namespace="users/bo")))
    await _synced(laptop, ServerPlace(served.url, served.token("ada")))
    async with MemorySystem(Path("identities/grace/memory")) as memory:
        await memory.memory("chat").remember("Grace keeps snakes")
    with pytest.raises(ConfigError, match="never one with this"):
        await _synced(laptop, ServerPlace(f"{served.url}?identity=grace", served.token("grace")))
    with pytest.raises(StoreFailed, match="cannot be synced with"):
        await _synced(laptop, ServerPlace("http://127.0.0.1:9"))
    with pytest.raises(ConfigError, match="neither a folder nor the address of a server"):
        ServerPlace("ftp://example.org")


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
    served = http()
    with served.client() as client:
        client.post("/v1/memories", json={"title": "Ada keeps bees"}).raise_for_status()
        kept = client.get("/v1/backup")
        assert kept.headers["content-type"] == "application/zip"
        told = client.post("/i/ada/settings/restore", params={"name": "copy"}, content=kept.content).json()
        assert told["digest"] == await _digest(Path("identities/ada/memory"))
        found = client.get("/v1/memories", params={"identity": "copy"}).json()["data"]
        assert [each["title"] for each in found] == ["Ada keeps bees"]
        assert Path("identities/copy/identity.toml").read_text() == 'persona = "You are ada."\n'
        broken = client.post("/i/ada/settings/restore", params={"name": "other"}, content=kept.content[:-30])
        assert broken.status_code == 422
        assert "cannot be read" in broken.text
        client.post("/v1/memories", params={"identity": "copy"}, json={"title": "Ada keeps hens"}).raise_for_status()
        full = client.post("/i/ada/settings/restore", params={"name": "copy"}, content=kept.content)
        assert full.status_code == 409
        assert "nothing was written" in full.text
    assert not Path("identities/other").exists()
