"""A copy of an identity's storage holds the attachments of its sessions."""

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
