"""Findings of a second attack on the memory: each way in stays closed."""

import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from chatbot.errors import ChatbotError
from chatbot.memory import MemorySystem
from chatbot.stores.errors import StoreError, UnsafePath
from chatbot.stores.files import opened
from tests.command import project, run

SECRET = "the vault code is 4711"


@pytest.mark.parametrize("name", [".trash", ".drafts", "sessions"])
def test_a_link_in_the_place_of_a_folder_of_sessions_is_never_followed(name: str, tmp_path: Path) -> None:
    project('[model]\nname = "scripted"\n')
    outside = tmp_path / "outside"
    (outside / "documents").mkdir(parents=True)
    (outside / "documents" / "thesis.txt").write_text("precious", encoding="utf-8")
    memory = Path("identities/ada/memory")
    memory.mkdir()
    (memory / name).symlink_to(outside)
    for command in (["ask", "hi"], ["sessions", "list"], ["doctor"], ["sessions", "search", "hi"]):
        run(*command)
    assert [path.name for path in sorted(outside.rglob("*"))] == ["documents", "thesis.txt"]
    with pytest.raises(UnsafePath, match="replace the link"):
        MemorySystem(memory)


async def test_a_folder_that_a_thread_makes_meanwhile_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = os.lstat

    def look_too_early(path: Path, **options: Any) -> os.stat_result:
        try:
            return look(path, **options)
        except FileNotFoundError:
            if path.name in {"sessions", ".drafts", ".trash"}:
                path.mkdir(parents=True)
            raise

    async with MemorySystem(tmp_path / "memory") as memory:
        monkeypatch.setattr(os, "lstat", look_too_early)
        session = await memory.create_session(["basic_session"], "chat")
        assert await memory.find_session(session.id) == session.record


async def test_no_file_of_a_memory_that_is_a_hard_link_is_read_or_written(tmp_path: Path) -> None:
    async def use(memory: MemorySystem) -> None:
        """Read and write every file that a memory has."""
        with suppress(ChatbotError, StoreError):
            session = await memory.latest_session("chat")
            assert session is not None
            for operation, *arguments in (
                (session.transcript_append, "user", SECRET), (session.transcript_read_all,),
                (session.kv_set, "a", SECRET), (session.receipt_append, {"at": "2026-01-01T00:00:00Z"}),
                (session.memory.remember, SECRET), (session.rename, SECRET),
            ):  # fmt: skip
                with suppress(ChatbotError, StoreError):
                    await cast("Callable[..., Awaitable[object]]", operation)(*arguments)
        with suppress(ChatbotError, StoreError):
            await memory.memory().purge(*[row.id for row in await memory.memory().every()])

    async with MemorySystem(tmp_path / "ada") as memory:
        session = await memory.create_session(["basic_session", "observations"], "chat", title="first")
        await use(memory)
        await session.memory.remember("kept")
        await use(memory)
    names = [path.relative_to(tmp_path / "ada") for path in (tmp_path / "ada").rglob("*") if path.is_file()]
    usual = {"transcript.md", "observations.jsonl", "receipts.jsonl", "tombstones.jsonl"}
    assert {path.name for path in names} >= usual
    (tmp_path / "ada").rename(tmp_path / "whole")
    for name in names:
        shutil.copytree(tmp_path / "whole", tmp_path / "ada")
        outside = tmp_path / "outside"
        (tmp_path / "ada" / name).rename(outside)
        (tmp_path / "ada" / name).hardlink_to(outside)
        before = outside.read_bytes()
        with pytest.raises(UnsafePath, match="hard link"), opened(tmp_path / "ada" / name.parent) as folder:
            folder.read(name.name)
        async with MemorySystem(tmp_path / "ada") as memory:
            await use(memory)
        assert outside.read_bytes() == before, name
        shutil.rmtree(tmp_path / "ada")


async def test_a_summary_of_another_principal_is_not_changed() -> None:
    async with MemorySystem(None) as system:
        guest = system.cleared_for(principal="token:2", rights=["read", "chat", "write"])
        first = await guest.memory("a").summarize_session("guest", session_id="s")
        second = await system.memory("a").summarize_session("owner", session_id="s")
        assert first.id != second.id
        assert {row.id for row in await system.memory("a").session_summaries()} == {first.id, second.id}
