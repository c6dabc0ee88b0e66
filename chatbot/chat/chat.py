"""A conversation: a session, a model, and the settings of its turns."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chatbot.attachments import is_image, with_file_names
from chatbot.attachments.read import Attachment, Upload, read_all
from chatbot.chat import dialogue
from chatbot.chat.conversation_memory import ConversationMemory, PromptMemory
from chatbot.chat.events import Emit, Notice, Phase, Publisher
from chatbot.chat.ledger import Bill, Call, Ledger, bill_of, calls_in
from chatbot.chat.prompt import PromptBundle
from chatbot.chat.receipts import Receipt
from chatbot.chat.titles import title_of
from chatbot.chat.turn import Turn
from chatbot.config import AgentSettings, BudgetSettings
from chatbot.memory import SessionHandle
from chatbot.memory.episode import summarize_episode, take_back_episode
from chatbot.memory.handle import CHOICES, Choices
from chatbot.memory.memorability import Memorability
from chatbot.memory.scope import utc_now
from chatbot.models.model import Model
from chatbot.stores.base import CLOSED, KeyValueStore, TranscriptStore
from chatbot.stores.errors import ClosedResource, InvalidValue, StoreError, UnsupportedOperation, too_long
from chatbot.stores.loops import LONGEST_END_S, LoopsLock, Waiter, new_waiter, wake
from chatbot.stores.records import LONGEST_CONTENT, TranscriptEntry, check_text, check_type, format_time, parse_time
from chatbot.stores.span import Observer, count, observed, span
from chatbot.tools import Toolbox

COMPACTED = "compacted"
"""Key of the time at which the window of a compacted session begins."""


class Rules(Struct, frozen=True):
    """The settings of every turn of a conversation."""

    persona: str
    agent: str
    settings: AgentSettings
    budget: BudgetSettings
    max_output_tokens: int


class Compaction(Struct, frozen=True):
    """The number of entries that left the window, and their summary."""

    entries: int
    summary: str


class Chat:
    """One conversation. `session` is None for an agent without stores: then no turn sees those before it."""

    def __init__(
        self,
        *,
        model: Model,
        session: SessionHandle | None,
        rules: Rules,
        ledger: Ledger,
        tools: Toolbox | None = None,
        publisher: Publisher | None = None,
        clock: Callable[[], datetime] = utc_now,
        observer: Observer | None = None,
    ) -> None:
        self.model = model
        self.session = session
        self.rules = rules
        self.tools = tools or Toolbox()
        self.ledger = ledger
        self.publisher = publisher or Publisher()
        self.clock = clock
        self.window = dialogue.Window(rules.settings.window_entries)
        self.memory = ConversationMemory.of(session, rules.settings)
        """None if nothing is remembered."""
        self.greeting = ""
        """The title that this conversation made from a greeting, until a better one can be made."""
        self._turn_order = LoopsLock()
        """Held during each turn if there is no session."""
        self._calls: list[Call] = []
        """The calls so far, if there is no session whose receipts have them."""
        self._observer = observer
        self._running: dict[asyncio.Task[Any] | None, list[Waiter]] = {}
        """The tasks that run turns; for each that is being stopped, those who wait for its end."""

    def __repr__(self) -> str:
        return f"Chat({self.session!r}, model={self.model.name!r})"

    async def turn(
        self,
        text: str,
        emit: Emit = lambda _: None,
        *,
        attachments: Sequence[Upload] = (),
        max_output_tokens: int | None = None,
        client: dialogue.ClientRequest = dialogue.NO_CLIENT,
    ) -> Receipt:
        """Run a turn, and return its receipt, which holds the reply. A function `emit` receives events as they happen.

        `attachments` are read first, and stored with the session; with them the text may be empty.
        `max_output_tokens` limits only this reply. A `client` may bring results of its tools: then `text` is the
        message before them. Turns of one session run one after another. Cancelling keeps the reply so far. Raises
        `InvalidValue` for a text that is empty or cannot be stored, `ModelError`, `BudgetExceeded`, or, if it is
        stopped, `ClosedResource`.
        """
        if inspect.iscoroutinefunction(check_type(emit, Callable, "emit")):
            raise InvalidValue("emit is an async function: nothing would await it; put the events into a queue")
        session = {} if self.session is None else {"session": self.session.id}
        task = asyncio.current_task()
        with observed(self._observer), span("turn", agent=self.rules.agent, **session) as work:
            try:
                self._running[task] = []
                files = await self._read(attachments, emit)
                receipt = await self._run_turn(text, emit, files, max_output_tokens, client)
            except BaseException as error:
                is_cancelled = isinstance(error, asyncio.CancelledError)
                work.note(finish="cancelled" if is_cancelled else "error")
                if is_cancelled and task and self._running[task] and not task.uncancel():
                    raise ClosedResource(CLOSED) from None
                raise
            finally:
                wake(self._running.pop(task))
            work.note(finish=receipt.finish, turn=receipt.turn)
            if receipt.first_text_seconds is not None:
                count("first_text", receipt.first_text_seconds)
            return receipt

    async def stop(self) -> None:
        """Stop the turns that run, in any loop, and return once what was said so far is kept."""
        ends = {task: new_waiter() for task in list(self._running) if task and task.get_loop().is_running()}
        for task, end in ends.items():
            task.get_loop().call_soon_threadsafe(self._stop_task, task, end)
        if ends:
            await asyncio.wait(ends.values(), timeout=LONGEST_END_S)

    def _stop_task(self, task: asyncio.Task[Any], end: Waiter) -> None:
        if (ends := self._running.get(task)) is None:  # it ended meanwhile
            wake([end])
            return
        if not ends:
            task.cancel()
        ends.append(end)

    async def dry_run(self, text: str) -> tuple[PromptBundle, Receipt]:
        """Return the prompt that a turn with `text` would send, and how it was made; see `Turn.dry_run`."""
        _check_message(text)
        with observed(self._observer):
            # in this process only, because a lease is a write
            async with self._turn_order if self.session is None else self.session.turn_order.in_process:
                client = await self._heed_session()
                turn, since = Turn(text, self, lambda _: None, client=client), self.window.since
                try:
                    return await turn.dry_run(), turn.receipt
                finally:
                    self.window.since = since  # a long text may have moved the window

    async def _read(self, attachments: Sequence[Upload], emit: Emit) -> list[Attachment]:
        """Read the attachments. Raises `InvalidValue`, also for pictures that the model cannot see."""
        if not attachments:
            return []
        for each in attachments:
            check_type(each, Upload, "an attachment", " of `chatbot.attachments.read`")
        emit(Phase(f"reading {', '.join(each.name for each in attachments)}"))
        found = await read_all(attachments)
        pictures = [each.name for each in found if is_image(each.media)]
        if pictures and not await self.model.sees_images():
            why = f"cannot see pictures ({', '.join(pictures)}): choose a model that can, such as -m gpt-4o"
            raise InvalidValue(f"{self.model.name} {why}")
        return found

    async def _run_turn(
        self,
        text: str,
        emit: Emit,
        files: Sequence[Attachment],
        max_output_tokens: int | None,
        client: dialogue.ClientRequest,
    ) -> Receipt:
        if not files:
            _check_message(text)
        # Read nothing before this turn is first in the order: the turn before may still be writing.
        async with self._hold_order_once_idle() if client.again else self._hold_order():
            client = await self._heed_session(client, emit)
            if client.again:
                await self._set_aside()
            if client.earlier_tool_results and self.session is not None:
                entries = await dialogue.last_exchange(self.session)
                lines = dialogue.awaited_results(entries, client.earlier_tool_results)
                await self.session.transcript_extend(TranscriptEntry(*line, self.clock()) for line in lines)
            turn = Turn(text, self, emit, files=files, max_output_tokens=max_output_tokens, client=client)
            try:
                return await turn.run()
            finally:
                self._calls += turn.receipt.calls if self.session is None else ()

    def _hold_order(self) -> AbstractAsyncContextManager[None]:
        return self._turn_order if self.session is None else self.session.hold_turn()

    @asynccontextmanager
    async def _hold_order_once_idle(self) -> AsyncIterator[None]:
        """Hold the order of turns, once all work of earlier ones is done."""
        session = self.session
        while True:
            if session is not None:
                await self.publisher.wait_idle(session.id)  # not while holding the order: that work may wait for it
            async with self._hold_order():
                if session is None or self.publisher.is_idle(session.id):
                    yield
                    return

    async def _heed_session(
        self, client: dialogue.ClientRequest = dialogue.NO_CLIENT, emit: Emit = lambda _: None
    ) -> dialogue.ClientRequest:
        """Return the request, without memory if it is off in the session; begin a new window at its compaction."""
        values, uses_memory = dict[str, str](), True
        try:
            if self.session is not None and self.session.supports(KeyValueStore):
                values = {each.key: each.value for each in await self.session.kv_entries()}
                uses_memory = Choices.parse(values.get(CHOICES)).memory
        except StoreError as error:
            uses_memory = False
            emit(Notice(f"memory is not used, as it may be off in this session: {error}"))
        if self.window.since is None:
            with suppress(KeyError, ValueError):  # a window that begins too early does no harm
                self.window.since = parse_time(values[COMPACTED])
        return client if uses_memory else replace(client, recalls=False, keeps=False)

    async def take_back(self, *, to_ask_again: bool = False) -> list[TranscriptEntry]:
        """Remove the last exchange, from the user's entry on, and return it; empty if there is none.

        Everything derived from it goes too: rows, captures and summaries, and the attachments that only it names,
        unless it is asked again. Its cost stays on the bill.
        """
        session = self.session
        with observed(self._observer):
            async with self._hold_order_once_idle():
                entries = await dialogue.last_exchange(session)
                if session is not None and entries:
                    # Memory first and the transcript last: then a failure in between can be tried again.
                    await self._erase_derived(session, entries)
                    if session.record.parent:  # the receipt of a fork's title is the original's
                        await session.take_back_turn(entries[0].at, title_of(entries[0].content))
                    await session.transcript_drop_last(len(entries))
                    if not to_ask_again:
                        await session.drop_unnamed_attachments()
                return entries

    async def _erase_derived(self, session: SessionHandle, entries: Sequence[TranscriptEntry]) -> None:
        """Erase everything in memory and summaries that derives from the last exchange."""
        if self.memory is not None:
            await self.memory.take_back(entries[0].at)
        if session.supports(KeyValueStore):
            await take_back_episode(session, entries[0].at)

    async def _set_aside(self) -> None:
        """Set aside the reply to the last message, for another one. Raises `InvalidValue` if there is no message."""
        session = self.session
        entries = await dialogue.last_exchange(session)
        if session is None or not entries:
            raise InvalidValue("no message to answer again")
        replies, current = dialogue.replies_of(entries[1:])
        following = max(replies) + 1 if replies[current] else current  # the turn before may have ended without a reply
        await self._write_replies(session, entries, dialogue.reply_lines(replies, following))

    async def _write_replies(
        self, session: SessionHandle, entries: Sequence[TranscriptEntry], lines: Sequence[dialogue.DialogueLine]
    ) -> None:
        await self._erase_derived(session, entries)
        replies = [TranscriptEntry(role, content, self.clock()) for role, content in lines]
        await session.transcript_drop_last(len(entries) - 1, replies)

    async def choose_reply(self, at: datetime, number: int) -> None:
        """Select, by number, the reply that models see from now on; `at` is the time of the last message.

        The exchange is remembered with that reply if it was remembered before. Raises `InvalidValue` if there is no
        such reply to the last message.
        """
        session = self.session
        if session is None or not session.supports(TranscriptStore):
            raise UnsupportedOperation("no transcript is kept")
        with observed(self._observer):
            async with self._hold_order_once_idle():
                entries = await dialogue.last_exchange(session)
                replies, current = dialogue.replies_of(entries[1:])
                if not entries or entries[0].at != at or number not in replies:
                    raise InvalidValue(f"the last message has no reply {number}")
                if number != current:
                    await self._write_replies(session, entries, dialogue.reply_lines(replies, number))
                    await self._note_choice(session, entries[0], number, replies[number])

    async def _note_choice(
        self, session: SessionHandle, asked: TranscriptEntry, number: int, reply: Sequence[dialogue.DialogueLine]
    ) -> None:
        """Append the chosen reply's receipt again, as the last one, and remember the exchange with that reply."""
        receipts = [each for each in await session.receipts_since(asked.at) if each["at"] == format_time(asked.at)]
        receipt = next((each for each in reversed(receipts) if each.get("reply_number", 1) == number), None)
        memory, kept = self.memory, None
        if memory is not None and any(each.get("remembered") for each in receipts):
            said = "\n\n".join(content for role, content in reply if role == dialogue.ASSISTANT)
            measure = Memorability(threshold=0)  # it was judged when the message came
            row = await memory.remember(asked.at, with_file_names(asked.content), memorability=measure)
            if row is not None:
                result = await session.write_turn(events=memory.last_changes(PromptMemory(), row.id, said)[0])
                for error in result.failed.values():
                    raise error
                kept = await memory.report_completed(result.outcomes[-1])
        if receipt is not None:
            await session.receipt_append({**receipt, "calls": [], "remembered": kept})

    async def last_message(self) -> str | None:
        """Return the user's last message; None if the transcript has none."""
        entries = await dialogue.last_exchange(self.session)
        return entries[0].content if entries else None

    async def compact(self) -> Compaction | None:
        """Begin the window with the last exchange and summarise all before it; None if there is nothing before.

        Nothing is lost: the transcript stays as it is, and the window grows again. Later conversations in the session
        begin there too. Raises `UnsupportedOperation` if the session's stores can keep no summary.
        """
        if self.session is None or not self.session.supports(TranscriptStore):
            raise UnsupportedOperation("nothing to summarize: no transcript is kept")
        if not self.session.supports(KeyValueStore):
            raise UnsupportedOperation("this session has no key-value store, which would keep the summary")
        with observed(self._observer):
            async with self._hold_order():
                await self._heed_session()
                entries = self.window.cut(await self.session.transcript_read_last(self.window.limit), 0)
                asked = [at for at, entry in enumerate(entries) if entry.role == dialogue.USER]
                if len(asked) < 2:
                    return None
                self.window.since = entries[asked[-1]].at
                await self.session.kv_set(COMPACTED, format_time(self.window.since))
                return Compaction(asked[-1], await summarize_episode(self.session, self.window.since))

    def use(self, model: Model, tools: Toolbox) -> None:
        """Change the model and the tools it is offered. Do not call this while a turn runs."""
        self.model, self.tools = model, tools

    async def bill(self) -> Bill:
        """Return what this session has cost so far, in all processes."""
        return bill_of(self._calls if self.session is None else calls_in(await self.session.records()))


def _check_message(text: str) -> None:
    if not check_text(text, "the message").strip():
        raise InvalidValue("the message is empty")
    if len(text) > LONGEST_CONTENT:
        raise too_long("the message", len(text), LONGEST_CONTENT)
