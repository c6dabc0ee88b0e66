"""Memory for an agent of your own, in any framework: `open_memory` is the way in; see docs/embedding.md.

`context` and `record` run the code of the chat's own turns: the same governor, fence and receipt, and the same
decision about what is worth keeping. All other operations are those of `Memory`. Imports no LiteLLM, no terminal and no
network library. Safe to share between tasks, threads and event loops; code without a loop uses `Portal`.
"""

import asyncio
import atexit
import json
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from chatbot.chat.conversation_memory import RECENT_QUESTIONS, ConversationMemory, PromptMemory
from chatbot.chat.dialogue import ASSISTANT, USER, entries_with_question, tool_call_line, tool_result_line
from chatbot.chat.memory_tools import agent_context, offered_to_models
from chatbot.config_layers import FILE_NAME, Settings, is_there
from chatbot.embedder import Embedder
from chatbot.errors import ConfigError
from chatbot.hooks.capture import ToolUse, exchange_measure, keep_runs
from chatbot.hooks.hook import plan_hook
from chatbot.memory import Memory, MemorySystem, SessionHandle
from chatbot.memory.episode import Exchange, exchanges_in
from chatbot.memory.scope import user_namespace, user_of, utc_now
from chatbot.messages import INTRODUCTION, ToolCall, ToolSpec, arguments_as_written, json_in
from chatbot.models import warn_without_encoders
from chatbot.models.model import UNKNOWN_MODEL
from chatbot.options import IN_MEMORY, Options, Setup
from chatbot.stores import TranscriptEntry
from chatbot.stores.access import TOOL_RIGHTS, Clearance
from chatbot.stores.base import AsyncResource, TranscriptStore
from chatbot.stores.errors import AccessDenied, InvalidValue
from chatbot.stores.observation import Observation
from chatbot.stores.query import check_limit
from chatbot.stores.records import check_path, check_text, check_time, check_type, real_path, well_formed
from chatbot.tools import Toolbox, ToolResult

__all__ = ["AgentMemory", "MemoryContext", "MemoryTool", "Portal", "RecordResult", "ToolUse", "open_memory"]

Result = TypeVar("Result")
AnyMessage = TypeVar("AnyMessage", bound=Mapping[str, Any])
_CLOCKS_APART = timedelta(minutes=1)
"""How far a sender's clock may be ahead of ours."""
_SAYS_NOTHING = "the message states nothing, and the reply adds nothing that memory needs"


@dataclass(frozen=True, slots=True)
class MemoryContext:
    """Memory block for some messages. `text` is empty if memory has nothing to add."""

    text: str = ""
    """The block: data between marks with a nonce, which no stored text can leave."""
    receipt: Mapping[str, Any] = field(default_factory=dict)
    """Considered memories with scores, and which were injected or left out, and why."""
    recalled: PromptMemory = field(default_factory=PromptMemory, repr=False)

    @property
    def memories(self) -> tuple[Observation, ...]:
        """The memories in the block."""
        return self.recalled.rows

    def added_to(self, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        """Return the messages with the block as a user message before the last question: prefixes stay cacheable.

        Raises `InvalidValue` for a text or a single message.
        """
        given = cast("object", messages)
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise InvalidValue("messages is not a list such as [{'role': 'user', 'content': …}]")
        if not self.text:
            return list(messages)
        last = max((at for at, each in enumerate(messages) if each.get("role") == USER), default=len(messages))
        block = cast("AnyMessage", {"role": USER, "content": self.text})
        return [*messages[:last], block, *messages[last:]]


class RecordResult(Struct, frozen=True):
    """Ids of the rows kept of a turn, and kinds of secrets removed; without an `exchange`, `reason` says why."""

    exchange: str | None = None
    tools: tuple[str, ...] = ()
    redacted: tuple[str, ...] = ()
    reason: str = ""


class MemoryTool:
    """An operation on memory as a function for a model. Call it with the JSON that the model wrote, or a mapping."""

    def __init__(self, spec: ToolSpec, box: Toolbox) -> None:
        self.name, self.description = spec.name, spec.description
        self.parameters = spec.parameters
        """JSON schema of the arguments."""
        self.schema: Any = spec.as_openai()
        """The tool in the format of chat completions, which LiteLLM converts for providers; `Any` fits every SDK."""
        self._box = box

    async def __call__(self, arguments: str | Mapping[str, Any] = "{}") -> str:
        """Run it and return the text for the model, which may be an error. Memories in it are framed as data."""
        [result] = await self._box.run([ToolCall(self.name, self.name, arguments_as_written(arguments))])
        return str(result.content)


class AgentMemory(Memory, AsyncResource):
    """The memory of one agent and one user: every operation of `Memory`, and those of a turn."""

    def __init__(self, system: MemorySystem, setup: Setup, *, owns: bool = True) -> None:
        hooks, beside = setup.config.hooks, setup.settings.plugins_beside
        self._measure = exchange_measure(setup.config, setup.agent, beside=beside)
        is_on = setup.agent_settings.remember_exchanges
        self._captures = is_on and plan_hook("capture", hooks.get("capture"), beside=beside).enabled
        super().__init__(system.memory(setup.agent).scope)  # opens a store: nothing may fail after it
        self.system = system
        """Sessions, and the same memory for other callers."""
        self._setup = setup
        self._owns = owns

    async def context(
        self,
        messages: "Sequence[ChatMessage] | str",
        *,
        tokens: int = 2000,
        rows: int = 5,
        session: SessionHandle | None = None,
    ) -> MemoryContext:
        """Return the memories about the user's last messages: at most `rows` memories in `tokens` tokens.

        Memories that `messages`, or the `session` that they continue, show anyway are left out. Writes nothing.
        """
        said = asked_in(messages)
        turn = self._turn(session, recall_rows=check_limit(rows, "rows"), recall_tokens=check_limit(tokens, "tokens"))
        if not said or await _is_off(session):
            return MemoryContext()
        since, listed = None, [messages] if isinstance(messages, str) else messages
        if session is not None and session.supports(TranscriptStore):
            since = next((each.at for each in await session.transcript_read_last(len(listed))), None)
        sent = "\n\n".join(filter(None, map(_text, listed[:-1])))
        recalled = await turn.recall(said, since=since, most_tokens=tokens, disclosure=UNKNOWN_MODEL, client_text=sent)
        text = f"{INTRODUCTION}\n{recalled.text}" if recalled.text else ""
        return MemoryContext(text, recalled.record, recalled)

    async def record(
        self,
        *,
        user: str,
        assistant: str,
        tools: Sequence[ToolUse] = (),
        context: MemoryContext | None = None,
        session: SessionHandle | None = None,
        at: datetime | None = None,
    ) -> RecordResult:
        """Keep what is worth keeping of a turn, as the chat does. Durable on return.

        `context` is what the prompt held: a reply that only repeats it is not kept, and its memories count as used.
        With a `session` the turn is also appended to its transcript. `at` is when the user spoke; default: now.
        """
        check_text(user, "user")
        check_text(assistant, "assistant")
        at = self.scope.clock() if at is None else at
        self._check_past(at, "at")
        turn, memory = self._turn(session), session.memory if session else self._sessionless
        recalled = check_type(MemoryContext() if context is None else context, MemoryContext, "context").recalled
        given = enumerate(check_type(tools, Iterable, "tools"))
        results = [check_type(each, ToolUse, f"tools[{number}]").as_result(number) for number, each in given]
        is_off = await _is_off(session, [at])
        if session is not None and session.supports(TranscriptStore):
            await session.transcript_extend(_entries(at, user, max(self.scope.clock(), at), assistant, results))
        if is_off:
            return RecordResult(reason="memory is off in this session")
        await memory.note_use(recalled.block.injected)
        measure = self._measure
        kept = None if measure is None else await turn.remember(at, user, assistant, recalled, memorability=measure)
        captured = await keep_runs(memory, results if self._captures else (), measure=measure)
        if kept is None:
            why = "exchanges are not remembered: see remember_exchanges and [hooks.exchange]"
            return RecordResult(None, captured, reason=_SAYS_NOTHING if measure else why)
        return RecordResult(kept.id, captured, kept.redacted)

    async def append(self, session: SessionHandle, entries: Iterable[TranscriptEntry | Mapping[str, Any]]) -> list[str]:
        """Append messages of a conversation that is held elsewhere, and record each exchange that they complete.

        A dict with role and content, as OpenAI's clients write it, is of now. Returns the ids of the exchanges that
        were worth keeping. Durable on return. If a later call continues a reply, the longer exchange replaces the one
        kept so far. Raises `InvalidValue` for an unknown role, or a time in the future.
        """
        new: list[TranscriptEntry] = []
        for number, message in enumerate(check_type(entries, Iterable, "messages")):
            check_type(message, TranscriptEntry | Mapping, f"messages[{number}]")
            if not isinstance(message, TranscriptEntry):
                asked_in([message])  # raises for a message without a known role
            new.append(message if isinstance(message, TranscriptEntry) else entry_of(message, self.scope.clock()))
            self._check_past(new[-1].at, f"messages[{number}].at")
        async with self._own_session(session).hold_turn():
            turn, measure = self._turn(session), self._measure
            before = await entries_with_question(session, unwrap_message)
            is_off = await _is_off(session, [each.at for each in new if unwrap_message(each).role == USER])
            await session.transcript_extend(new)
            if measure is None or is_off:
                return []
            known = {each.number for each in await _exchanges_in(session, before)}
            kept = []
            found = await _exchanges_in(session, [*before, *map(unwrap_message, new)])
            for each in [each for each in found if each.last > len(before)]:
                if each.number in known:
                    await _take_back(turn, each, found)
                kept.append(await turn.remember(each.at, each.text, each.reply, memorability=measure))
        return [each.id for each in kept if each is not None]

    async def drop_last(self, session: SessionHandle) -> list[TranscriptEntry]:
        """Remove the last message of a session permanently, with the memory of its exchange; return it, if any."""
        async with self._own_session(session).hold_turn():
            before = await entries_with_question(session, unwrap_message)
            for each in (found := await _exchanges_in(session, before)):
                if each.last == len(before):
                    await _take_back(self._turn(session), each, found)
            return await session.transcript_drop_last(1)

    def tools(self) -> list[MemoryTool]:
        """Return the memory tools for a model; they see only the `public` rows that this caller sees."""
        own = self._sessionless.caller
        system = self.system.cleared_for(own.clearance, rights=own.rights & TOOL_RIGHTS, project=own.project)
        box = Toolbox(offered_to_models(agent_context(system, self._setup.agent)))
        return [MemoryTool(each, box) for each in box.specs]

    async def session(self, key: str | None = None, *, title: str = "") -> SessionHandle:
        """Return the session of that `key`, created if there is none; without a key, a new session."""
        stores = self._setup.agent_settings.memory if self.system.where else (IN_MEMORY,)
        if key is None:
            return await self.system.create_session(stores, self._setup.agent, title=title)
        return await self.system.keyed_session(key, stores, self._setup.agent, title=title)

    def for_user(self, user: str, *, clearance: Clearance = "full") -> "AgentMemory":
        """Return the same memory for a user, closed with this one. Raises `AccessDenied` on a user's memory."""
        if (mine := user_of(self.caller.namespace)) is not None:
            raise AccessDenied(f"this is the memory of {mine!r:.80}: call for_user on memory opened without a user")
        return AgentMemory(self.system.cleared_for(clearance, namespace=user_namespace(user)), self._setup, owns=False)

    def for_project(self, project: str) -> "AgentMemory":
        """Return the same memory in a project, closed with this one; `-` for none.

        Memories of a project are found only in it, those without a project in all. Raises `AccessDenied` on the memory
        of another project.
        """
        return AgentMemory(self.system.cleared_for(project=project), self._setup, owns=False)

    async def aclose(self) -> None:
        """Close the memory. May be called twice."""
        if self._owns:
            await self.system.aclose()

    def _check_past(self, at: datetime, name: str) -> None:
        if check_time(at) > self.scope.clock() + _CLOCKS_APART:
            raise InvalidValue(f"{name} is {at.isoformat()}, which is in the future")

    @property
    def _sessionless(self) -> Memory:
        """The memory for a conversation without a session: in one project, or in none."""
        project = self._setup.project or "" if self.caller.project is None else self.caller.project
        return self.within(project=project)

    def _own_session(self, session: SessionHandle) -> SessionHandle:
        check_type(session, SessionHandle, "session", ": `await memory.session(key)` returns one")
        if session.caller.namespace != self.caller.namespace:
            raise AccessDenied(f"session {session.id} is of another user: open it with this user's memory")
        return session

    def _turn(self, session: SessionHandle | None, **changes: Any) -> ConversationMemory:
        memory = self._sessionless if session is None else self._own_session(session).memory
        return ConversationMemory(memory, replace(self._setup.agent_settings, **changes), session)


def open_memory(
    place: Path | str | None,
    *,
    identity: str | None = None,
    user: str | None = None,
    agent: str = "chat",
    clearance: Clearance | None = None,
    project: str | None = None,
    embedder: Embedder | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> AgentMemory:
    """Open the memory in a folder, at the address of a database, or, for None, only in this process.

    A folder is that of `chatbot --config FOLDER/config.toml`: identities are below it, and a `config.toml` in it is
    read, if there is one. Each `user` has a memory of their own. Memories of a `project` are found only in it, those
    without a project in all. An `embedder` takes the place of that of the settings, and is closed. Open with
    `async with`, or call `aclose`. Raises `ConfigError`, `IdentityError` or `InvalidValue`.
    """
    if isinstance(place, str) and "://" in place:
        settings = Settings(None, {}, {"place": {"storage": {"url": place}}})
    else:
        folder = real_path(check_path("" if place is None else place, "place"))
        if folder.is_file():
            raise ConfigError(f"{folder} is a file: name the folder that it is in")
        file = folder / FILE_NAME
        settings = Settings.read(file) if place is not None and is_there(file) else Settings(file, {})
    setup = Setup.resolve(Options(identity=identity, agent=agent, project=project, settings=settings))
    warn_without_encoders("" if embedder else setup.config.embedding.model)
    system = setup.open_memory(
        ephemeral=place is None,
        is_billed=place is not None,
        observations=None if place is None else setup.observation_store(),
        clearance=clearance,
        embedder=embedder,
        clock=clock,
        namespace="" if user is None else user_namespace(user),
        project=project,
    )
    return AgentMemory(system, setup)


class Portal(AbstractContextManager["Portal"]):
    """An event loop in a thread, for code without one: `portal.run(memory.recall("tea"))`.

    It runs everything with `await`, so there is no second interface. Open with `with`. Any other thread may use it.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._guard, self._is_closing = threading.RLock(), False
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="chatbot-portal", daemon=True)
        self._thread.start()
        # Earlier than `atexit`: what still runs needs the pools of threads, which Python ends before.
        getattr(threading, "_register_atexit", atexit.register)(_close, weakref.ref(self))

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end and return its result. Raises what it raises. Ctrl-C cancels it."""
        work = check_type(work, Coroutine, "work", ": call the operation, as in `portal.run(memory.recall(text))`")
        is_own = threading.current_thread() is self._thread
        with self._guard:  # work that begins while the loop ends would never return
            if is_own or self._is_closing or not self._thread.is_alive():
                work.close()
                why = "a portal cannot wait for itself: use await here" if is_own else "the portal is closed"
                raise RuntimeError(why if self._process == os.getpid() else "it is of the process that was forked")
            running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        finally:
            running.cancel()  # without effect on one that has ended

    def close(self) -> None:
        """Cancel what still runs, and end the thread. May be called twice."""
        with self._guard:
            if not (self._is_closing or self._loop.is_closed()):
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._is_closing = True
        self._thread.join()

    def _run(self) -> None:
        with self._runner:
            self._loop.run_forever()

    def __exit__(self, *raised: object) -> None:
        self.close()


def _close(portal: weakref.ref[Portal]) -> None:
    if (forgotten := portal()) is not None:
        forgotten.close()


def _entries(at: datetime, user: str, now: datetime, reply: str, results: list[ToolResult]) -> list[TranscriptEntry]:
    calls = [tool_call_line([each.call for each in results])] if results else []
    answers = [tool_result_line(each.call.id, each.content) for each in results]
    first = TranscriptEntry(USER, user, at)
    return [first, *(TranscriptEntry(role, text, now) for role, text in (*calls, *answers, (ASSISTANT, reply)))]


def checked(memory: AgentMemory) -> AgentMemory:
    """Return the memory. Raises `InvalidValue` for another kind of memory, such as a `MemorySystem`."""
    return check_type(memory, AgentMemory, "memory", ": `open_memory` returns one")


_ROLES = frozenset({USER, ASSISTANT, "developer", "function", "system", "tool"})
ITEM = "item"
"""The role of a transcript entry that holds a framework's own message, as JSON."""
ChatMessage = Mapping[str, Any] | str
"""A message with role and content as OpenAI's clients write them; a string is a user message."""


def text_of(content: object) -> str:
    """Return the text of a message's content, which may come in parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    texts = (each.get("text") if isinstance(each, Mapping) else each for each in parts)
    return "\n".join(each for each in texts if isinstance(each, str))


def is_block(text: str) -> bool:
    """Return whether a message is a memory block for another program's prompt."""
    return text.startswith(INTRODUCTION)


def entry_of(item: Mapping[str, Any], at: datetime | None = None) -> TranscriptEntry:
    """Return the transcript entry of a framework's message: plain if it has only a role and a text, else JSON."""
    role, content = item.get("role"), item.get("content")
    if item.keys() == {"role", "content"} and role in (USER, ASSISTANT) and isinstance(content, str) and content:
        return TranscriptEntry(role, content, at or utc_now())
    return TranscriptEntry(ITEM, json.dumps(item, ensure_ascii=False, default=str), at or utc_now())


def item_of(entry: TranscriptEntry) -> dict[str, Any]:
    """Return the message from which an entry was made."""
    if entry.role != ITEM:
        return {"role": entry.role, "content": entry.content}
    found = json_in(entry.content)  # which may have been edited by hand
    return found if isinstance(found, dict) else {"role": USER, "content": entry.content}


async def _is_off(session: SessionHandle | None, asked: Iterable[datetime] = ()) -> bool:
    """Return whether memory is off in a session; if so, the messages that were `asked` then are never remembered."""
    if session is None or (await session.choices()).memory:
        return False
    for at in asked:
        await session.note_not_kept(at)
    return True


async def _exchanges_in(session: SessionHandle, entries: Sequence[TranscriptEntry]) -> list[Exchange]:
    """Return the exchanges among these entries that may be remembered."""
    return exchanges_in(entries, await session.times_not_kept(min(each.at for each in entries))) if entries else []


async def _take_back(turn: ConversationMemory, taken: Exchange, found: Iterable[Exchange]) -> None:
    """Erase the memory of an exchange, and of no other that began at the same time."""
    await turn.take_back(taken.at, spare={each.text for each in found if each.at == taken.at} - {taken.text})


def unwrap_message(entry: TranscriptEntry) -> TranscriptEntry:
    """Return a framework's JSON message with its role and text, if it has both; other entries unchanged."""
    if entry.role != ITEM:
        return entry
    item = item_of(entry)
    role, text = item.get("role"), text_of(item.get("content"))
    return TranscriptEntry(role, text, entry.at) if role in (USER, ASSISTANT) and text else entry


def asked_in(messages: Sequence[ChatMessage] | Mapping[str, Any] | str) -> list[str]:
    """Return the last messages of the user, the one to be answered last. Raises `InvalidValue` for an invalid one."""
    if not isinstance(messages, Sequence):  # one message, or nothing
        raise InvalidValue(f"messages is {messages!r:.80}: put it into a list")
    listed: Sequence[ChatMessage] = [messages] if isinstance(messages, str) else messages
    said = [text for each in listed if (text := _text(each)) and (isinstance(each, str) or each.get("role") == USER)]
    roles = {str(each.get("role", USER)) for each in listed if isinstance(each, Mapping)}
    if not any(said) and (unknown := roles - _ROLES):
        raise InvalidValue(f"no message is of the user: their role is 'user', not {min(unknown)!r:.80}")
    return [well_formed(each) for each in said if each.strip()][-RECENT_QUESTIONS:]


def _text(message: object) -> str:
    if isinstance(message, str):
        return message
    if not isinstance(message, Mapping) or not message.keys() & {"role", "type"}:  # a call of a tool has a type alone
        raise InvalidValue(f"a message is a string, or has role and content: got {message!r:.80}")
    return text_of(message.get("content"))
