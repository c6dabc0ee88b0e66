"""A disk that is full or may not be written: sessions stay whole, the file is named, and work goes on afterwards."""

import subprocess
import sys
from pathlib import Path

import pytest

from chatbot.memory import MemorySystem
from chatbot.stores.errors import StoreFailed
from tests.disk import fill
from tests.patience import PATIENCE_S

STORES = ["basic_session"]

INDEX_REFUSED = """
import asyncio, logging, resource, sys
from pathlib import Path
from chatbot.memory import MemorySystem

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main(home):
    async with MemorySystem(home) as memory:
        sessions = [await memory.create_session(["basic_session"], "chat", title=f"number {n}") for n in range(8)]
        limit(2048)  # every file of a session stays below, the index does not
        await sessions[0].transcript_append("user", "hello")
        await sessions[0].rename("renamed")
        await memory.delete_session(sessions[1].id)
        made = await memory.create_session(["basic_session"], "chat", title="made")
        print(*[record.title for record in await memory.list_sessions()], sep=", ")
        limit(resource.RLIM_INFINITY)
        print(*[record.title for record in await memory.list_sessions()], sep=", ")

asyncio.run(main(Path(sys.argv[1])))
"""


def test_an_index_that_cannot_be_written_fails_nothing_and_hides_nothing(memory_home: Path) -> None:
    command = [sys.executable, "-c", INDEX_REFUSED, str(memory_home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    listed = "made, renamed, number 7, number 6, number 5, number 4, number 3, number 2"
    assert done.stdout.splitlines() == [listed, listed]
    assert "sessions.journal.jsonl could not be written" in done.stderr
    assert "File too large" in done.stderr


async def test_on_a_full_disk_everything_stays_readable_and_deleting_makes_room(small_disk: Path) -> None:
    home = small_disk / "memory"
    async with MemorySystem(home) as memory:
        talk, old = [await memory.create_session(STORES, "chat", title=title) for title in ("talk", "old")]
        for session in (talk, old):
            await session.transcript_append("user", "kept")
            await session.kv_set("key", "kept")
        fill(small_disk)
        for refused in (
            talk.transcript_append("user", "x" * 5_000),
            talk.kv_set("key", "x" * 5_000),
            talk.receipt_append({"text": "x" * 5_000}),
            memory.create_session(STORES, "chat"),
            talk.rename("renamed"),
            memory.fork_session(talk.id),
        ):
            with pytest.raises(StoreFailed, match="No space left"):
                await refused
        assert list((home / ".drafts").iterdir()) == []
        assert [entry.content for entry in await talk.transcript_read_all()] == ["kept"]
        assert await talk.kv_get("key") == "kept"
        assert {record.title for record in await memory.list_sessions()} == {"talk", "old"}
        await memory.delete_session(old.id)
        assert [record.title for record in await memory.list_sessions()] == ["talk"]
    (small_disk / "ballast").unlink()
    async with MemorySystem(home) as memory:
        talk = await memory.load_session(talk.id, "chat")
        await talk.transcript_append("user", "x" * 5_000)
        assert [len(entry.content) for entry in await talk.transcript_read_all()] == [4, 5_000]
        assert (await memory.create_session(STORES, "chat")).id > talk.id
        assert {record.title for record in await memory.list_sessions()} == {"talk", ""}
