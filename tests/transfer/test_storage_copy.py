"""A copy of an identity's storage holds the attachments of its sessions."""

import os
from pathlib import Path

from chatbot.memory import MemorySystem
from chatbot.transfer.backups import copy_storage


async def test_attachments_are_copied_with_their_session(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    async with MemorySystem(source) as memory:
        session = await memory.create_session(["basic_session", "observations"], "chat")
        [name] = await session.attach([(b"photo", ".png")])
        await session.transcript_append("user", f"[photo.png](attachments/{name})")
    first, again = await copy_storage(source, target), await copy_storage(source, target)
    assert (first.sessions, again.sessions, again.digest) == (1, 0, first.digest)
    async with MemorySystem(target) as memory:
        assert await (await memory.load_session(session.id, "chat")).attachment(name) == b"photo"


async def test_what_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    async with MemorySystem(source) as memory:
        session, damaged, huge = [await memory.create_session(["basic_session"], "chat") for _ in range(3)]
        names = await session.attach([(b"one", ".png"), (b"two", ".png"), (b"three", ".png")])
        await huge.transcript_append("user", "hello")
    (source / "sessions" / session.id / "attachments" / names[0]).write_bytes(b"another")
    os.truncate(source / "sessions" / session.id / "attachments" / names[1], 40 << 30)
    (source / "sessions" / damaged.id / "kv.json").write_text("{nonsense", encoding="utf-8")
    os.truncate(source / "sessions" / huge.id / "transcript.md", 40 << 30)
    done = await copy_storage(source, target)
    for what in (names[0], names[1], damaged.id, huge.id):
        assert any(what in each for each in done.left_out), what
    async with MemorySystem(target) as memory:
        assert [each.id for each in await memory.list_sessions()] == [session.id]
        assert [*await (await memory.load_session(session.id, "chat")).attachments()] == [names[2]]
