"""A disk that is full or may not be written: sessions stay whole, the file is named, and work goes on afterwards."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
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
        await memory.rename_session(sessions[0].id, "renamed")
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
            memory.rename_session(talk.id, "renamed"),
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


READ_ONLY = """
import asyncio, concurrent.futures.thread, filelock, os, sys, uuid6  # while the interpreter's folder can still be read
from pathlib import Path
from chatbot.memory import MemorySystem
from chatbot.stores.errors import StoreFailed
from chatbot.stores.observations import store, search

if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)

async def refused(work):
    try:
        await work
    except StoreFailed as error:
        print(error)

async def main(home, session_id):
    async with MemorySystem(home) as memory:
        session = await memory.load_session(session_id, "chat")
        print([entry.content for entry in await session.transcript_read_last(5)], await session.kv_get("key"))
        await refused(session.transcript_append("user", "no"))
        await refused(session.kv_set("key", "no"))
        await refused(memory.create_session(["basic_session"], "chat"))
        await refused(memory.delete_session(session_id))

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


@pytest.fixture
def public_home() -> Iterator[Path]:
    """A folder that other users may look into, unlike those of `tmp_path`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "memory"


def test_what_may_only_be_read_is_read_and_every_write_names_what_refused_it(public_home: Path) -> None:
    async def make() -> str:
        async with MemorySystem(public_home) as memory:
            session = await memory.create_session(STORES, "chat")
            await session.transcript_append("user", "kept")
            await session.kv_set("key", "value")
            return session.id

    session_id = asyncio.run(make())
    _make_read_only(public_home)
    command = [sys.executable, "-c", READ_ONLY, str(public_home), session_id]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    _make_writable(public_home)
    assert done.returncode == 0, done.stderr
    said, *refusals = done.stdout.splitlines()
    assert said == "['kept'] value"
    assert len(refusals) == 4
    for refusal in refusals:
        assert str(public_home) in refusal
        assert "Permission denied" in refusal
    said = (public_home / "sessions" / session_id / "transcript.md").read_text(encoding="utf-8")
    assert said.count("### user") == 1


def _make_read_only(home: Path) -> None:
    for path in (home, *home.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)


def _make_writable(home: Path) -> None:
    for path in (home, *home.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
