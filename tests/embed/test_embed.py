"""The public door for developers: context, record, tools, users, sessions, threads, and code without a loop."""

import asyncio
import inspect
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from chatbot.adapters import ContextOfRuns
from chatbot.config import Config
from chatbot.embed import AgentMemory, MemoryContext, Portal, ToolUse, open_memory
from chatbot.errors import ChatbotError, ConfigError
from chatbot.memory import MemorySystem, erase_user, export_user
from chatbot.memory.handle import CHOICES, Choices
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.stores.errors import AccessDenied, InvalidValue, StoreError
from chatbot.stores.records import TranscriptEntry
from tests.adapters.poisoned import ATTACKS, assert_inside, poison
from tests.memory.test_meaning import LetterEmbedder
from tests.patience import PATIENCE_S
from tests.test_architecture import HEAVY, loaded_by


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AgentMemory]:
    """A memory that is searched by words alone."""
    (tmp_path / "config.toml").write_text('[embedding]\nmodel = ""\n', encoding="utf-8")
    async with open_memory(tmp_path, user="ada") as opened:
        yield opened


@pytest.mark.parametrize("kind", ["folder", "database"])
async def test_what_was_recorded_is_recalled_by_another_process_of_the_same_user_alone(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = tmp_path if kind == "folder" else request.getfixturevalue("postgres")
    ada, bob = f"ada {tmp_path}", f"bob {tmp_path}"
    async with open_memory(place, user=ada) as memory:
        recorded = await memory.record(user="My sister Anna lives in Lisbon.", assistant="Noted.")
    async with open_memory(place, user=ada) as memory:
        context = await memory.context([{"role": "user", "content": "Where does my sister live?"}])
        assert "Anna lives in Lisbon" in context.text
        assert context.receipt["injected"] == [recorded.exchange]
        assert [row.id for row in context.memories] == [recorded.exchange]
        session = await memory.session("thread-7")
        await memory.record(user="Is she well?", assistant="Yes.", session=session)
    async with open_memory(place, user=ada) as memory:
        kept = await (await memory.session("thread-7")).transcript_read_all()
        assert [entry.content for entry in kept] == ["Is she well?", "Yes."]
    async with open_memory(place, user=bob) as memory:
        assert not (await memory.context("Where does my sister live?")).text
    assert {path.name for path in Path.home().rglob("*.jsonl")} | {path.name for path in tmp_path.iterdir()} == (
        {"identities"} if kind == "folder" else set()
    )


USE = """
import asyncio
from chatbot.embed import open_memory

async def main():
    async with open_memory({home!r}, user="ada") as memory:
        await memory.record(user="My sister Anna lives in Lisbon.", assistant="Noted.")
        assert (await memory.context("Where does Anna live?")).text
        await memory.tools()[0]({{"query": "Anna"}})

asyncio.run(main())
"""
NEVER = {"httpcore", "httpx", "requests", "urllib3"} | HEAVY - {"numpy", "pydantic", "tokenizers", "whoosh"}


def test_using_it_loads_no_litellm_terminal_or_network_library(tmp_path: Path) -> None:
    assert NEVER & loaded_by(USE.format(home=str(tmp_path))) == set()


@pytest.mark.parametrize("place", [".", "", "~"])
async def test_it_is_the_memory_of_the_command_line_in_that_folder_with_its_configuration(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text("[hooks.exchange]\nenabled = false\n", encoding="utf-8")
    async with open_memory(place) as memory:
        kept = await memory.remember("The heating is serviced in May")
        recorded = await memory.record(user="My sister Anna lives in Lisbon.", assistant="Noted.")
        assert (recorded.exchange, "[hooks.exchange]" in recorded.reason) == (None, True)
    async with MemorySystem(tmp_path / "identities" / Config().identity / "memory") as system:
        assert [hit.observation.id for hit in await system.memory().search("heating")] == [kept.id]


SAID = [
    ("hi", "Hello!"),
    ("My sister Anna lives in Lisbon and keeps bees.", "How lovely!"),
    ("Tell me a joke", "Why did the chicken cross the road?"),
    ("Where does Anna live?", "Anna lives in Lisbon and keeps bees."),
    ("We decided to paint the kitchen green", "Good."),
    ("What does 'watch your prepositions' mean? My teacher on Zoom says so on Tuesdays.", "Use the right one."),
    ("thanks", "You are welcome."),
]


@pytest.mark.usefixtures("with_encoders")
async def test_a_message_that_needs_no_memory_recalls_nothing_and_the_receipt_says_so(tmp_path: Path) -> None:
    async with open_memory(tmp_path) as memory:
        kept = await memory.remember("My sister Anna cooks every egg for seven minutes")
        greek = await memory.remember("Η αδελφή μου έχει αλλεργία στα καρύδια")
        told = await memory.context("What did I tell you about my sister?")
        general = await memory.context("How long do I boil an egg?")
        assert (told.receipt["injected"], told.receipt["judged"]["needs_memory"]) == ([kept.id], True)
        assert general.text == ""
        assert general.receipt["considered"] == []
        assert general.receipt["judged"]["needs_memory"] is False
        unread = (await memory.context("Τι αλλεργία έχει;")).receipt  # a script that the encoder cannot read
        assert (unread["injected"], "judged" in unread) == ([greek.id], False)


@pytest.mark.usefixtures("with_encoders")
async def test_record_keeps_what_the_chat_keeps(tmp_path: Path) -> None:
    recorded: list[str | None] = []
    messages: list[dict[str, str]] = []
    async with open_memory(tmp_path, user="ada") as memory:
        session = await memory.session("same")
        for text, reply in SAID:
            context = await memory.context([*messages, {"role": "user", "content": text}], session=session)
            messages += [{"role": "user", "content": text}, {"role": "assistant", "content": reply}]
            kept_of = await memory.record(user=text, assistant=reply, context=context, session=session)
            recorded.append(kept_of.exchange)
    file = tmp_path / "chat.toml"
    file.touch()
    async with Runtime(Options(config=file), model=ScriptedModel([reply for _, reply in SAID])) as runtime:
        chat = runtime.chat(await runtime.new_session())
        kept = [(await chat.turn(text)).remembered for text, _ in SAID]
    assert [each is not None for each in recorded] == [each is not None for each in kept]
    small_talk = ["hi", "Tell me a joke", "thanks"]
    assert [text for (text, _), each in zip(SAID, kept, strict=True) if each is None] == small_talk


async def test_tools_that_were_used_are_kept_as_the_chat_captures_them(memory: AgentMemory) -> None:
    asked = {"command": "pytest", "in": Path("tests")}
    run = ToolUse("run_tests", asked, "12 passed in 3 s\nfixed the regression in the parser module")
    listing = ToolUse("shell", {"command": "ls -la"}, "a b c")
    own = ToolUse("memory_search", {"query": "harbour"}, "The harbour master changed the tariff of granite barges")
    recorded = await memory.record(user="ok", assistant="ok", tools=[run, listing, own])
    [row] = await memory.get(recorded.tools)
    assert row.title.startswith("Tool run: run_tests · pytest tests")
    assert (row.source, "states nothing" in recorded.reason) == ("auto", True)


@pytest.mark.parametrize(("writes", "read", "modified"), [(True, 0, 1), (False, 1, 0), (None, 0, 0)])
async def test_a_tool_that_was_used_is_said_to_have_read_or_written_files_if_that_is_known(
    memory: AgentMemory, *, writes: bool | None, read: int, modified: int
) -> None:
    text = "The harbour master changed the tariff of granite barges"
    run = ToolUse("edit", {"path": "notes.md", "text": text}, f"notes.md: {text}", writes=writes)
    [row] = await memory.get((await memory.record(user="ok", assistant="ok", tools=[run])).tools)
    assert (len(row.files_read), len(row.files_modified)) == (read, modified)


async def test_a_context_keeps_to_its_budget_and_says_what_was_left_out(memory: AgentMemory) -> None:
    for n in range(8):
        await memory.remember(f"Anna's beehive number {n}", narrative="honey " * 200)
    small = await memory.context("Tell me about Anna's beehives", tokens=300, rows=8)
    large = await memory.context("Tell me about Anna's beehives", tokens=3000, rows=8)
    assert len(small.memories) < len(large.memories)
    assert {each["why"] for each in small.receipt["left_out"]} >= {"budget"}


async def test_recording_counts_the_memories_of_its_context_as_used(memory: AgentMemory) -> None:
    kept = await memory.remember("Anna lives in Lisbon")
    context = await memory.context("Where does Anna live?")
    await memory.record(user="Where does Anna live?", assistant="In Lisbon.", context=context)
    [row] = await memory.get([kept.id], count_use=False)
    assert row.use_count == 1


async def test_the_calls_of_a_run_get_one_block_though_others_run_unless_a_memory_in_it_is_forgotten(
    memory: AgentMemory,
) -> None:
    contexts, called = ContextOfRuns(tokens=2000, rows=5), {"role": "tool", "content": "x"}
    kept = [await memory.remember(each) for each in ("Anna lives in Lisbon", "Bo lives in Porto")]
    runs = [[{"role": "user", "content": f"Where does {name} live?"}] for name in ("Anna", "Bo")]
    begun = [await contexts.of(memory, each) for each in runs]
    assert [await contexts.of(memory, [*each, called]) for each in runs] == begun
    await memory.forget(kept[0].id)
    anna, bo = [await contexts.of(memory, [*each, called]) for each in runs]
    assert ("Lisbon" in begun[0].text, "Lisbon" in anna.text, bo) == (True, False, begun[1])
    assert await contexts.of(memory, runs[1]) != bo  # asked anew


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_poisoned_memory_stays_inside_the_fence(memory: AgentMemory, attack: str) -> None:
    await poison(memory, attack)
    context = await memory.context("What is the door code?")
    assert_inside(context.text, attack)
    added = context.added_to([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "the door?"}])
    assert [each["role"] for each in added][:1] == ["system"]
    assert added[-1] == {"role": "user", "content": "the door?"}


async def test_tools_have_schemas_and_answer_in_text_whatever_a_model_writes(memory: AgentMemory) -> None:
    tools = {each.name: each for each in memory.tools()}
    assert {"memory_search", "memory_write", "memory_more"} <= tools.keys()
    assert tools["memory_search"].schema["function"]["parameters"]["type"] == "object"
    wrote = json.loads(await tools["memory_write"]({"title": "Anna lives in Lisbon"}))
    assert wrote["outcome"] == "added"
    assert json.loads(await tools["memory_search"]('{"query": "Anna"}'))["hits"][0]["id"] == wrote["id"]
    assert "not valid JSON" in await tools["memory_search"]("{")
    assert "no memory has the id" in await tools["memory_forget"]({"ids": [wrote["id"][:-4] + "0000"]})
    added = await tools["memory_more"]({"tool": "task_add", "arguments": {"title": "Call Anna"}})
    assert "Call Anna" in added
    assert "Call Anna" in await tools["memory_more"]({"tool": "task_list"})


async def test_a_key_names_one_session_whoever_asks_at_once(tmp_path: Path) -> None:
    async with open_memory(tmp_path) as one, open_memory(tmp_path) as other:
        found = await asyncio.gather(*(each.session("thread-7") for each in (one, other, one, other)))
        assert len({each.id for each in found}) == 1
        assert (await one.session("thread-8")).id != found[0].id
        assert (await one.for_user("ada").session("thread-7")).id != found[0].id


async def test_what_is_wrong_in_a_call_is_said_and_nothing_is_put_elsewhere(tmp_path: Path) -> None:
    one: Any = {"role": "user", "content": "Where does Anna live?"}
    (tmp_path / "config.toml").touch()
    with pytest.raises(ConfigError, match="name the folder"):
        open_memory(tmp_path / "config.toml")
    wrong: Any = "high"
    nothing: Any = None
    empty: Any = ""
    falsy: list[Any] = ["", 0, []]
    with pytest.raises(InvalidValue, match="'high': choose from familiar"):
        open_memory(tmp_path, clearance=wrong)
    with pytest.raises(ConfigError, match=r"^place: 'mysql://x': unknown storage"):
        open_memory("mysql://x")
    async with open_memory(tmp_path) as memory:
        with pytest.raises(InvalidValue, match="'high': choose from familiar"):
            memory.for_user("ada", clearance=wrong)
        for narrow in (memory.for_user("ada").system.cleared_for, memory.system.cleared_for):
            for value in falsy:
                with pytest.raises(InvalidValue, match="choose from familiar"):
                    narrow(clearance=value)
                with pytest.raises(InvalidValue, match="it must be"):
                    memory.for_project(value or falsy[1])
                with pytest.raises(InvalidValue, match="a user's name"):
                    memory.for_user(value)
        with pytest.raises(AccessDenied, match="the memory of 'ada': call for_user on memory opened without"):
            memory.for_user("ada").for_user("bob")
        with pytest.raises(AccessDenied, match="is of another user: open it with this user's memory"):
            await memory.for_user("ada").record(user="I ski.", assistant="Ok", session=await memory.session())
        key: Any = "thread-7"
        for call, message in [
            (memory.context(one), "put it into a list"),
            (memory.context("Anna", tokens=key), "tokens is 'thread-7': it must be a whole number"),
            (memory.context("Anna", tokens=-1), "tokens is -1: it cannot be negative"),
            (memory.context([{"rol": "user", "content": "Anna"}]), "a message is a string, or has role and c"),
            (memory.context([{"role": "human", "content": "Anna"}]), "their role is 'user', not 'human'"),
            (memory.context("Anna", session=key), r"session is 'thread-7': it must be SessionHandle: `await memory\."),
            (memory.append(await memory.session(key), nothing), "messages is None: it must be Iterable"),
            (memory.append(nothing, []), "session is None: it must be SessionHandle"),
            ((await memory.session()).transcript_extend(nothing), "entries is None: it must be Iterable"),
            (memory.system.fork_session((await memory.session()).id, at=key), "at is 'thread-7': it must be a whole"),
            (memory.record(user="I ski.", assistant="Ok", context=empty), "context is '': it must be MemoryContext"),
            (memory.record(user="I ski.", assistant="Ok", at=empty), "the time is '': it must be datetime"),
            (memory.record(user="I ski.", assistant="Ok", tools=nothing), "tools is None: it must be Iterable"),
            (memory.append(await memory.session(key), key), r"messages\[0\] is 't': it must be TranscriptEntry or"),
            (memory.append(await memory.session(key), [one, one | {"role": "human"}]), "is 'user', not 'human'"),
            (memory.record(user="I ski.", assistant="Ok", tools=[key]), r"tools\[0\] is 'thread-7'"),
            (memory.forget(one), "'Where does Anna live\\?'} is not an id"),
            (memory.history(one), "is not an id"),
            (memory.get("0195"), "ids is '0195': it must be a list"),
            (erase_user(cast("MemorySystem", memory)), "it must be MemorySystem: the `system` of a memory is one"),
            (export_user(cast("MemorySystem", memory)), "it must be MemorySystem"),
        ]:
            with pytest.raises(InvalidValue, match=message):
                await call
        assert (await memory.context("Anna \ud83d")).receipt["query"] == ["Anna \ufffd"]
        for said in ({"user": nothing, "assistant": "ok"}, {"user": "My dog is Rex", "assistant": nothing}):
            with pytest.raises(InvalidValue, match="is None: it must be text"):
                await memory.record(**said)
    with pytest.raises(InvalidValue, match="it must be text"):
        ToolUse("look", "{}", one)
    for hook in ("exchange", "capture"):
        (tmp_path / "config.toml").write_text(f'[hooks.{hook}]\nenabled = "no"\n', encoding="utf-8")
        with pytest.raises(ConfigError, match="expected true or false, got text"):
            open_memory(tmp_path)
    for messages in (nothing, one, "Where does Anna live?"):
        with pytest.raises(InvalidValue, match="messages is not a list"):
            MemoryContext().added_to(messages)


async def test_messages_that_are_appended_at_once_are_remembered_once(memory: AgentMemory) -> None:
    session = await memory.session("thread-7")
    await memory.append(session, [{"role": "user", "content": "My cat is called Tom."}])
    replies = [{"role": "assistant", "content": f"I see {number}."} for number in range(8)]
    await asyncio.gather(*(memory.append(session, [reply]) for reply in replies))
    [exchange] = await memory.every(types=["exchange"])
    assert all(reply["content"] in exchange.assistant_text for reply in replies)


async def test_a_message_that_is_repeated_or_taken_back_is_remembered_as_it_ended(memory: AgentMemory) -> None:
    session = await memory.session("thread-7")
    asked, other = ({"role": "user", "content": f"My {pet} is called Tom."} for pet in ("cat", "dog"))
    first, second = ({"role": "assistant", "content": text} for text in ("A fine cat.", "A fine tomcat."))

    async def remembered() -> list[tuple[str, str]]:
        return [(row.user_text, row.assistant_text) for row in await memory.every(types=["exchange"])]

    await memory.append(session, [other, first, asked])
    await memory.append(session, [asked, second])  # the first call failed
    before = [(asked["content"], second["content"]), (other["content"], first["content"])]
    assert await remembered() == before
    assert [each.content for each in await memory.drop_last(session)] == [second["content"]]
    assert await remembered() == before[1:]
    await memory.append(session, [second])
    assert await remembered() == before
    for _ in range(3):
        await memory.drop_last(session)
    assert await remembered() == before[1:]
    assert len(await session.transcript_read_all()) == 2
    old = datetime(2024, 5, 1, tzinfo=UTC)
    await memory.append(session, [TranscriptEntry("user", "My fish is called Tim.", old)])
    await memory.append(session, [TranscriptEntry("assistant", "A fine fish.", old)])
    assert await remembered() == [*before[1:], ("My fish is called Tim.", "A fine fish.")], "though it is older"
    for _ in range(2):
        await memory.drop_last(session)
    assert await remembered() == before[1:]
    bird = TranscriptEntry("user", "My bird is called Tim.", old), TranscriptEntry("assistant", "A fine bird.", old)
    blank = TranscriptEntry("user", "", old), TranscriptEntry("assistant", "", old)
    await memory.append(session, [*blank, *bird, TranscriptEntry("user", "My mouse is called Tom.", old)])
    await memory.append(session, [TranscriptEntry("assistant", "A fine mouse.", old)])
    await memory.append(session, [TranscriptEntry("assistant", "A tiny mouse.", old)])
    await memory.drop_last(session)
    assert await remembered() == [*before[1:], ("My bird is called Tim.", "A fine bird.")], "though of the same time"


async def test_an_embedder_of_ones_own_has_no_bill_without_a_place_and_a_clock_of_ones_own_dates_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    now, embedder = datetime(2026, 1, 1, tzinfo=UTC), LetterEmbedder()
    async with open_memory(None, embedder=LetterEmbedder(), clock=lambda: now) as memory:
        await memory.record(user="My cat purrs", assistant="Good", session=(session := await memory.session()))
        await memory.append(session, [{"role": "user", "content": "It sleeps"}])
        assert {entry.at for entry in await session.transcript_read_all()} == {now}
        assert await memory.search("attaches")
    assert list(tmp_path.iterdir()) == []
    async with Runtime(Options(ephemeral=True), model=ScriptedModel(), embedder=embedder) as runtime:
        await runtime.chat(await runtime.new_session()).turn("My cat is called Tom")
    assert embedder.calls


@pytest.mark.parametrize(
    "call",
    [
        lambda wrong: Runtime(tools=wrong), lambda wrong: Runtime(confirm=wrong), lambda wrong: Runtime(clock=wrong),
        lambda wrong: Runtime(Options(settings=wrong)), lambda wrong: Runtime(Options(agent=wrong)),
        lambda wrong: Runtime(Options(config=wrong)), lambda wrong: MemorySystem(None, settings=wrong),
        lambda _: MemorySystem("a\0b"), lambda _: open_memory("a\0b"), open_memory,
        lambda _: open_memory(None, clock=datetime.now), lambda wrong: open_memory(None, clock=lambda: wrong),
    ],
)  # fmt: skip
def test_a_constructor_names_a_wrong_argument(call: Callable[[Any], object]) -> None:
    with pytest.raises(InvalidValue):
        call(5)


async def test_an_error_quotes_neither_all_of_a_long_value_nor_what_cannot_be_printed(tmp_path: Path) -> None:
    long, half = "x" * 5_000, "\ud800\n"
    async with (
        open_memory(tmp_path) as memory,
        Runtime(Options(ephemeral=True), model=ScriptedModel(["Ok"])) as runtime,
    ):
        session = await memory.session()
        opened: list[Callable[[str], object]] = [
            lambda value: open_memory(None, agent=value), lambda value: open_memory(None, identity=value),
            memory.history, memory.forget, memory.resolve, memory.system.find_session,
            lambda value: memory.system.create_session([value], "chat"),
            lambda value: session.transcript_append(value, "hello"),
            lambda value: memory.remember("I ski.", **cast("dict[str, Any]", {value: ""})), runtime.use_model,
        ]  # fmt: skip
        for call, value in itertools.product(opened, (long, half)):
            with pytest.raises((ChatbotError, StoreError)) as raised:
                await cast("Awaitable[object]", call(value))
            message = str(raised.value)
            assert message.isprintable()
            assert len(message) < 500, message


async def test_a_session_keeps_the_transcript_and_shows_nothing_twice(memory: AgentMemory) -> None:
    session = await memory.session("thread-7")
    text = "My sister Anna lives in Lisbon."
    await memory.record(user=text, assistant="Noted.", tools=[ToolUse("look", "{}", "ok")], session=session)
    roles = [entry.role for entry in await session.transcript_read_all()]
    assert roles == ["user", "tool_call", "tool", "assistant"]
    messages = [text, "", "", "Noted.", "Where does Anna live?"]
    assert not (await memory.context(messages, session=session)).text
    replied = [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]
    assert not (await memory.context([*replied, {"role": "user", "content": messages[-1]}])).text
    assert "Lisbon" in (await memory.context(messages[-1])).text


async def test_a_session_with_memory_off_recalls_and_remembers_nothing(memory: AgentMemory) -> None:
    session = await memory.session("thread-7")
    await memory.record(user="My sister Anna lives in Lisbon.", assistant="Noted.")
    await session.kv_set(CHOICES, Choices(memory=False).as_text())
    assert not (await memory.context("Where does Anna live?", session=session)).text
    recorded = await memory.record(user="My brother Otto lives in Porto.", assistant="Noted.", session=session)
    assert recorded.reason == "memory is off in this session"
    uncle = {"role": "user", "content": "My uncle Jan lives in Faro."}
    assert await memory.append(session, [uncle, {"role": "assistant", "content": "Noted."}, uncle]) == []
    reply = {"role": "assistant", "content": "In Faro."}
    for memory_is_on, said in (
        (True, [reply, {**uncle, "content": "My aunt Rosa, too."}]),
        (False, [uncle]),
        (True, [reply]),
    ):
        await session.kv_set(CHOICES, Choices(memory=memory_is_on).as_text())
        assert await memory.append(session, said) == []
    assert len(await memory.every()) == 1


def test_a_portal_leaves_no_work_and_no_thread_waiting_nor_waits_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    portal, has_begun, has_ended = Portal(), threading.Event(), threading.Event()

    async def wait_for_ever() -> None:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    def interrupted(_: object) -> None:
        has_begun.wait(PATIENCE_S)
        raise KeyboardInterrupt

    async def wait_for_itself() -> None:
        portal.run(asyncio.sleep(0))

    with monkeypatch.context() as patched:
        patched.setattr(Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            portal.run(wait_for_ever())
    assert has_ended.wait(PATIENCE_S)
    has_begun.clear()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(lambda: portal.run(wait_for_ever()))
        assert has_begun.wait(PATIENCE_S)
        with pytest.raises(RuntimeError, match="cannot wait for itself"):
            portal.run(wait_for_itself())
        portal.close()
        assert type(waiting.exception(PATIENCE_S)).__name__ == "CancelledError"
    portal.close()
    with pytest.raises(RuntimeError, match="the portal is closed"):
        portal.run(wait_for_ever())
    with pytest.raises(InvalidValue, match="it must be Coroutine: call the operation"):
        portal.run(wait_for_ever)  # type: ignore[arg-type]


def test_no_work_begins_while_a_portal_is_closing() -> None:
    portal, has_begun, may_end = Portal(), threading.Event(), threading.Event()

    def hold_up() -> None:
        has_begun.set()
        may_end.wait(PATIENCE_S)

    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(lambda: portal.run(asyncio.to_thread(hold_up)))
        assert has_begun.wait(PATIENCE_S)
        closing = threads.submit(portal.close)
        assert type(waiting.exception(PATIENCE_S)).__name__ == "CancelledError"
        late = threads.submit(lambda: portal.run(asyncio.Event().wait()))
        assert "portal is closed" in str(late.exception(PATIENCE_S))
        threads.submit(portal.close)
        may_end.set()
        closing.result(PATIENCE_S)


def test_a_program_that_does_not_close_its_portal_ends_in_silence(tmp_path: Path) -> None:
    use = "portal = Portal(); portal.run(open_memory('.').remember('Anna lives in Lisbon'))"
    program = [sys.executable, "-c", f"from chatbot.embed import *; {use}"]
    assert subprocess.run(program, cwd=tmp_path, capture_output=True, check=True).stderr == b""


@pytest.mark.parametrize("operation", [AgentMemory.remember, AgentMemory.recall, AgentMemory.update])
def test_help_shows_plain_types(operation: Callable[..., object]) -> None:
    assert "Annotated" not in str(inspect.signature(operation))
