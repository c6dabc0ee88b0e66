"""After `aclose`, every operation raises `ClosedResource`: of memories, sessions, what they give out, and of stores."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from inspect import getmembers, isasyncgenfunction, iscoroutinefunction, signature
from pathlib import Path
from typing import Any

import pytest

from chatbot.errors import SessionNotFound
from chatbot.memory import MemorySystem
from chatbot.memory.scope import new_id
from chatbot.runtime import Options, Runtime
from chatbot.stores.access import View
from chatbot.stores.base import KeyValueStore
from chatbot.stores.errors import (
    BrokenStore,
    ClosedResource,
    FullDisk,
    MissingFolder,
    StoreAway,
    UnknownStore,
    UnsupportedOperation,
)
from chatbot.stores.records import KeyValue, SessionRecord, SessionRef, TranscriptEntry
from tests.talk import begun, configure

NOW = datetime(2026, 1, 2, tzinfo=UTC)
NOT_CLOSED = {"aclose"}


def _operations(thing: object) -> list[str]:
    kind = type(thing)
    return [
        name
        for name, found in getmembers(kind, lambda found: iscoroutinefunction(found) or isasyncgenfunction(found))
        if not name.startswith("_") and name not in NOT_CLOSED
    ]


async def _call(thing: object, name: str) -> object:
    """Call with an argument for each parameter that needs one; which one matters to nobody who is closed."""
    operation: Callable[..., Any] = getattr(thing, name)
    required = [p for p in signature(operation).parameters.values() if p.default is p.empty]
    given = [_value(p.name) for p in required if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    named = {p.name: _value(p.name) for p in required if p.kind is p.KEYWORD_ONLY}
    answer = operation(*given, **named)
    if isinstance(answer, AsyncIterator):
        return [each async for each in answer]
    return await answer


def _value(name: str) -> Any:
    values: dict[str, Any] = {
        "store_types": ["basic_session"], "at": NOW, "moment": NOW,
        "record": SessionRecord(new_id(), "chat", (), NOW, NOW), "entries": [TranscriptEntry("user", "said", NOW)],
        "receipt": {}, "n": 1, "session": SessionRef("s", Path()), "view": View("full", NOW),
    }  # fmt: skip
    return values.get(name, "text")


async def _raises_closed(thing: object) -> int:
    operations = _operations(thing)
    for name in operations:
        with pytest.raises(ClosedResource, match="the memory is closed: open it again"):
            print(f"{type(thing).__name__}.{name}", await _call(thing, name), "goes on")  # noqa: T201 - where it fails
    return len(operations)


@pytest.mark.parametrize("store", ["observations", "in_memory"])
async def test_everything_that_a_closed_memory_gave_out_is_closed(memory_home: Path, store: str) -> None:
    home = None if store == "in_memory" else memory_home
    memory = MemorySystem(home)
    stores = [store] if home is None else ["basic_session", store]
    session = await memory.create_session(stores, "chat")
    memories = memory.memory()
    handed_out: list[object] = [memory, memory.cleared_for("familiar"), memories, memories.within(across=True)]
    handed_out += [session, session.memory.within(namespace=""), memories.scope.store]
    await memory.aclose()
    assert sum([await _raises_closed(each) for each in handed_out]) > 150
    await memory.aclose()


async def test_an_open_handle_says_that_its_session_or_the_whole_memory_is_gone(memory_home: Path) -> None:
    async with MemorySystem(memory_home) as memory, MemorySystem(memory_home) as other:
        session, memories = await memory.create_session(["basic_session", "observations"], "chat"), memory.memory()
        assert repr(session) == f"SessionHandle(id='{session.id}', agent_id='chat')"
        assert repr(session.memory) == f"Memory(agent_id='chat', session_id='{session.id}', namespace='')"
        assert repr(memory) == f"MemorySystem('{memory_home}')"
        await session.transcript_append("user", "hello")
        await other.delete_session(session.id)
        for name in ("transcript_read_all", "kv_get", "receipts", "rename", "list_files", "transcript_append"):
            with pytest.raises((MissingFolder, SessionNotFound), match=f"{session.id}: it was deleted"):
                await _call(session, name)
        with pytest.raises(MissingFolder, match=f"{session.id}: it was deleted"):
            await session.memory.remember(title="The ferry leaves at nine")
        memory_home.rename(away := memory_home.with_name("away"))
        for call in (memories.search("x"), memory.list_sessions(), memory.create_session([], "chat")):
            with pytest.raises(StoreAway, match=f"{memory_home} is gone"):
                await call
        away.rename(memory_home)
        assert (await memory.create_session(["basic_session"], "chat")).id


async def test_a_memory_that_was_dropped_without_being_closed_warns(memory_home: Path) -> None:
    memory = MemorySystem(memory_home)
    await memory.create_session(["basic_session"], "chat")
    memory.cleared_for("familiar")
    with pytest.warns(ResourceWarning, match=f"the memory {memory_home} was never closed: use async with"):  # noqa: PT031
        del memory
        await asyncio.get_running_loop().shutdown_default_executor()  # a thread may hold its last call for a moment
        gc.collect()


class Faulty(KeyValueStore):
    """A plug-in that knows nothing of `StoreError`, nor of being closed."""

    at: Any = None

    async def kv_get(self, session: SessionRef, key: str) -> str | None:
        raise {"cancel": asyncio.CancelledError, "exit": SystemExit, "panic": BaseException}.get(key, KeyError)(key)

    async def kv_set(self, session: SessionRef, entry: KeyValue) -> None:
        raise OSError(28, "No space left on device")

    async def kv_delete(self, session: SessionRef, key: str) -> bool:
        if key == "number":
            return 3  # type: ignore[return-value]
        raise UnsupportedOperation("keys stay")

    async def kv_entries(self, session: SessionRef) -> list[KeyValue]:
        return self.at and [KeyValue("key", "value", self.at), self.at]

    async def forget_session(self, session: SessionRef) -> None: ...


class Unopened(Faulty):
    """A plug-in whose constructor fails."""

    def __init__(self, home: Path) -> None:
        raise SystemExit("no server answers")


async def test_what_a_plug_in_raises_of_its_own_is_a_store_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemorySystem(Path("memory"))
    session = await memory.create_session([f"{__name__}:Faulty"], "chat")
    with pytest.raises(BrokenStore, match=r"store Faulty failed in kv_get: KeyError: 'key'") as caught:
        await session.kv_get("key")
    assert isinstance(caught.value.__cause__, KeyError)
    for key in ("cancel", "exit", "panic"):
        with pytest.raises(BrokenStore, match=f"(CancelledError|SystemExit|BaseException): {key}"):
            await session.kv_get(key)
    with pytest.raises(BrokenStore, match="kv_entries: TypeError: it returned None, which is not a list of KeyValue"):
        await session.kv_entries()
    monkeypatch.setattr(Faulty, "at", "2026-01-02")
    with pytest.raises(BrokenStore, match="store Faulty failed in kv_entries: InvalidValue: the time is '2026-01-02'"):
        await session.kv_entries()
    monkeypatch.setattr(Faulty, "at", datetime.now(UTC))
    with pytest.raises(BrokenStore, match=r"kv_entries: TypeError: it returned \[.*, which is not a list of KeyValue"):
        await session.kv_entries()
    with pytest.raises(FullDisk, match=r"Faulty failed in kv_set.*No space left"):
        await session.kv_set("key", "value")
    with pytest.raises(UnsupportedOperation, match="keys stay"):
        await session.kv_delete("key")
    with pytest.raises(BrokenStore, match="kv_delete: TypeError: it returned 3, not bool"):
        await session.kv_delete("number")
    with pytest.raises(BrokenStore, match="Unopened' could not be opened: SystemExit: no server answers"):
        await memory.create_session([f"{__name__}:Unopened"], "chat")
    await memory.aclose()
    assert await _raises_closed(session) > 20


async def test_a_session_of_a_store_that_is_not_installed_any_more_says_so() -> None:
    async with MemorySystem(Path("memory")) as memory:
        session = await memory.create_session(["basic_session"], "chat")
    record = Path("memory/sessions", session.id, "session.json")
    record.write_text(record.read_text("utf-8").replace("basic_session", "gone"), "utf-8")
    async with MemorySystem(Path("memory")) as memory:
        with pytest.raises(
            UnknownStore, match=f"session {session.id} is kept in a store that is not installed: .*gone"
        ):
            await memory.load_session(session.id, "chat")


async def test_a_turn_of_a_closed_runtime_begins_nothing(caplog: pytest.LogCaptureFixture) -> None:
    configure()
    async with Runtime(Options(identity="ada")) as runtime:
        _, chat = await begun(runtime)
    with pytest.raises(ClosedResource):
        await chat.turn("My sister Ingrid keeps a heron")
    assert "hook" not in caplog.text
