"""The composition root: what the configuration says is what runs."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chatbot.chat.dialogue import STOPPED
from chatbot.config import ModelSettings
from chatbot.embedder import EmbeddingResult
from chatbot.errors import BudgetExceeded, UnknownModel
from chatbot.memory import MemorySystem
from chatbot.memory.meaning import Meaning
from chatbot.messages import TextDelta, Usage
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.server.callers import OWNER
from chatbot.server.identities import Identities
from chatbot.stores.basic_session import BasicSessionStore
from chatbot.stores.errors import ClosedResource, StoreFailed
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.tools.mcp.server import McpServers
from tests.clock import Clock
from tests.command import project
from tests.memory.test_meaning import LetterEmbedder
from tests.patience import PATIENCE_S
from tests.test_trust import MODELS_WITH_A_PLACE


@pytest.fixture(autouse=True)
def _config() -> None:
    stores = '[agents.chat]\nmemory = ["basic_session"]\n[agents.other]\nmemory = ["basic_session"]\n'
    config = f'[model]\nname = "scripted"\nscript = ["one", "two"]\n{stores}'
    project(config, "ada")


def _configure(table: str) -> None:
    with Path("config.toml").open("a", encoding="utf-8") as file:
        file.write(table)


async def test_a_relative_cache_is_beside_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Path("config.toml").resolve()
    config.write_text('[model]\nname = "scripted"\n[memory.observations]\ncache = "caches"', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    async with Runtime(Options(config=str(config))) as runtime:
        await runtime.memory.memory("chat").remember("tea")
        await runtime.memory.memory("chat").reindex()
    assert list((config.parent / "caches").rglob("table"))
    assert not list(tmp_path.iterdir())


async def test_expired_sessions_are_erased_when_a_conversation_begins_and_not_by_a_dry_run() -> None:
    _configure("[sessions]\nttl_days = 1")
    model, clock = ScriptedModel(["Well."]), Clock()
    async with Runtime(model=model, clock=clock) as runtime:
        await (chat := runtime.chat(await runtime.new_session())).turn("I like green tea.")
        assert repr(runtime) == "Runtime('ada', agent='chat', model='scripted')"
        assert repr(chat) == f"Chat({chat.session!r}, model='scripted')"
    clock.move(days=2)
    async with Runtime(model=model, clock=clock) as runtime:
        await runtime.chat(await runtime.new_session(for_dry_run=True)).dry_run("Which tea do I like?")
        assert len(await runtime.memory.expired_sessions()) == 1
        await runtime.chat(await runtime.new_session()).turn("Which tea do I like?")
    assert len(list(Path("identities/ada/memory/sessions").iterdir())) == 1


async def test_a_session_may_choose_what_the_owner_set_and_nothing_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[ScriptedModel] = []

    def open_scripted(settings: ModelSettings, _: object) -> ScriptedModel:
        opened.append(ScriptedModel([]))
        opened[-1].name = settings.name
        return opened[-1]

    monkeypatch.setattr("chatbot.runtime.open_model", open_scripted)
    _configure(
        '[aliases]\nmine = "vertex_ai/x"\n[providers.box]\nkind = "openai"\napi_base = "http://127.0.0.1:9/v1"\n'
        '[providers.hosted_vllm]\napi_base = "http://127.0.0.1:9/v1"\n'
    )
    async with Runtime(Options(config=Path("config.toml")), model=ScriptedModel([])) as runtime:
        for name in ("box/x", "hosted_vllm/x", "ollama_chat/x", "mine"):
            assert await runtime.model_named(name) is opened[-1]
        assert [model.name for model in opened] == ["box/x", "hosted_vllm/x", "ollama_chat/x", "vertex_ai/x"]
        for name in ("box/https://evil.example", "vertex_ai/x", "a\nb", *MODELS_WITH_A_PLACE):
            with pytest.raises(UnknownModel, match="may not choose"):
                await runtime.model_named(name)


async def test_what_cannot_be_closed_leaves_nothing_else_open(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[Any] = [McpServers, Meaning, BasicSessionStore, ObservationFileStore, ScriptedModel]
    closed: list[object] = []
    for part in parts:

        async def aclose(self: Any, part: Any = part, close: Any = part.aclose) -> None:
            await close(self)
            closed.append(part)
            raise StoreFailed("the disk is gone")

        monkeypatch.setattr(part, "aclose", aclose)
    monkeypatch.setenv("CHATBOT_EMBEDDING__MODEL", "openai/stub")
    runtime = Runtime()
    await runtime.memory.memory("chat").remember("tea")
    await runtime.new_session()
    with pytest.raises(StoreFailed):
        await runtime.aclose()
    assert closed == parts


@pytest.mark.parametrize("loop", ["its own", "another"])
async def test_closing_stops_the_turns_that_run_and_keeps_their_replies_so_far(loop: str) -> None:
    class Endless(ScriptedModel):
        async def stream(self, *_: Any, **__: Any) -> Any:
            yield TextDelta("So far")
            begun.set()
            await asyncio.Event().wait()

    begun, runtime = threading.Event(), Runtime(model=Endless())
    session = await runtime.new_session()
    assert session is not None

    async def turn() -> None:
        with pytest.raises(ClosedResource, match="open it again"):
            await runtime.chat(session).turn("hello")
        await asyncio.sleep(0)  # the task itself goes on

    running = asyncio.create_task(turn() if loop == "its own" else asyncio.to_thread(asyncio.run, turn()))
    assert await asyncio.to_thread(begun.wait, PATIENCE_S)
    await asyncio.wait_for(asyncio.gather(runtime.aclose(), runtime.aclose()), PATIENCE_S)
    await running
    async with Runtime() as again:
        entries = await (await again.resume(session.id)).transcript_read_last(9)
    assert [each.content for each in entries] == ["hello", "So far", STOPPED]


async def test_embeddings_under_way_count_towards_the_limit_of_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def embed(_: MemorySystem, texts: Sequence[str]) -> tuple[str, EmbeddingResult]:
        asked.set()
        await go_on.wait()
        return "stub", EmbeddingResult([], Usage(len(texts)))

    monkeypatch.setattr(MemorySystem, "embed", embed)
    monkeypatch.setenv("CHATBOT_EMBEDDING__MODEL", "openai/stub")
    _configure("[budget]\nday_tokens = 100\n")
    async with Identities(Options(identity="ada")) as identities:
        access = await identities.access(OWNER)
        first = asyncio.create_task(access.embed(["tea " * 60]))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        with pytest.raises(BudgetExceeded, match="running now"):
            await asyncio.wait_for(access.embed(["tea " * 60]), PATIENCE_S)
        go_on.set()
        assert await first == await access.embed(["tea " * 60])


@pytest.mark.parametrize("sends_away", [False, True])
async def test_a_runtime_is_ready_once_the_encoder_is_loaded_and_a_provider_is_not_asked(*, sends_away: bool) -> None:
    _configure("[budget]\nday_tokens = 1\n")
    embedder = LetterEmbedder(sends_away=sends_away)
    async with Runtime(Options(identity="ada"), embedder=embedder) as runtime:
        await runtime.ready()
    assert bool(embedder.calls) is not sends_away
    async with Identities(Options(identity="ada"), open_runtime=partial(Runtime, embedder=embedder)) as identities:
        with pytest.raises(BudgetExceeded) if sends_away else nullcontext():
            await (await identities.access(OWNER)).embed(["tea"])
