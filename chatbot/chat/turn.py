"""One turn, top to bottom: remember what was said, recall, ask the model, run its tools, keep the reply.

Whatever happens, the user's entry stays, the receipt is written, and the session can go on. A failure of the memory
never fails the turn: it continues without memory, with a notice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chatbot.attachments import readable, split, with_links
from chatbot.attachments.read import Attachment
from chatbot.chat.attached import Attachments, inlined
from chatbot.chat.calls import Calls, Reply
from chatbot.chat.client import NO_CLIENT, ClientRequest
from chatbot.chat.dialogue import (
    ASSISTANT,
    ERROR,
    REPLY_TOKENS,
    STOPPED,
    USER,
    Line,
    Window,
    last_exchange,
    messages_of,
    replies_of,
    says_little,
    title_from,
    title_in,
    title_request,
    tool_call_line,
    tool_result_line,
    unanswered,
    without_answers,
)
from chatbot.chat.events import (
    CHOOSE,
    EXCHANGE,
    INJECT,
    MEMORABILITY,
    ClientCall,
    Emit,
    KeptExchange,
    Notice,
    Phase,
    PromptSubmit,
    Publisher,
    Step,
    ToolFinished,
    ToolPost,
    ToolStarted,
    TurnEnd,
)
from chatbot.chat.ledger import Ledger
from chatbot.chat.memory_block import system_notice
from chatbot.chat.prompt import PromptBundle, PromptExtras, build_prompt, fitting_tools, tools_left_out
from chatbot.chat.receipts import Receipt
from chatbot.chat.tool_names import is_memory_tool
from chatbot.chat.turn_memory import RECENT_QUESTIONS, PromptMemory, TurnMemory, disclosed, reply_before
from chatbot.config import AgentSettings, BudgetSettings
from chatbot.errors import BudgetExceeded, ModelError, without_folders
from chatbot.memory import SessionHandle
from chatbot.memory.episode import summarize_episode
from chatbot.memory.handle import WriteResult
from chatbot.memory.memorability import Memorability
from chatbot.memory.recall import RankedMemory as Hit
from chatbot.messages import Delta, ReasoningDelta, TextDelta, ToolCall, ToolSpec
from chatbot.models.model import Model
from chatbot.models.rerank import Reranker
from chatbot.orders import form_in
from chatbot.redaction import redact
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import InvalidValue, StoreError
from chatbot.stores.loops import to_its_end
from chatbot.stores.records import TranscriptEntry
from chatbot.stores.row_events import Event
from chatbot.tools import Toolbox, ToolResult

logger = logging.getLogger(__name__)

_TOOLS_SHARE = 2
"""Tools are offered up to one part in so many of the model's window."""
_LONGEST_ARGUMENTS = 500
"""Most characters of a confirmed call's arguments in a receipt."""
_MEMORY_SHARE = 6
"""The memory block takes at most one part in so many of the model's window."""


class Rules(Struct, frozen=True):
    """The settings of every turn of a conversation."""

    persona: str
    agent: str
    settings: AgentSettings
    budget: BudgetSettings
    max_output_tokens: int
    candidates: int = 50
    """Number of memories that a reranker ranks."""


class TurnContext(Struct):
    """The parts that all turns of a conversation share. `session` and `memory` are None if nothing is kept."""

    model: Model
    session: SessionHandle | None
    rules: Rules
    tools: Toolbox
    ledger: Ledger
    publisher: Publisher
    clock: Callable[[], datetime]
    window: Window
    memory: TurnMemory | None
    reranker: Reranker | None = None


class Turn:
    """One exchange. Made for one `run`; `emit` receives events as they happen. `reply_tokens` is the longest reply."""

    def __init__(
        self,
        text: str,
        conversation: TurnContext,
        receipt: Receipt,
        emit: Emit,
        *,
        reply_tokens: int,
        client: ClientRequest = NO_CLIENT,
        files: Sequence[Attachment] = (),
    ) -> None:
        self._entry = text
        """Text for the transcript, with the links of attachments."""
        self._files = files
        self._model = conversation.model
        self._session = conversation.session
        self._rules = conversation.rules
        self._tools = conversation.tools
        self._window = conversation.window
        self._memory = conversation.memory
        self._reranker = conversation.reranker
        self._publisher = conversation.publisher
        self._clock = conversation.clock
        self._receipt = receipt
        self._emit = emit
        self._reply_tokens = reply_tokens
        self._client = client
        self._unbilled: list[Callable[[], object]] = []
        saves_trips = self._session is not None and self._session.saves_trips
        self._calls = Calls(
            self._model,
            conversation.ledger,
            self._rules.budget,
            reply_tokens=reply_tokens,
            session=self._session,
            payers=client.payers,
            clock=self._clock,
            report=self._notice,
            unbilled=self._unbilled if saves_trips else None,
        )
        self._receipt.calls = self._calls.made
        self._started = time.monotonic()
        self._written = 0
        self._unsaved: list[Line] = []
        self._reply: list[Line] = []
        """The last reply, written at the end of the turn."""
        self._said_before: str | None = None
        """The bot's last reply before this turn; None if it is not known."""
        self._has_gap = False
        """True once an entry could not be saved: later ones would follow a gap."""
        self._results: list[ToolResult] = []
        self._is_dry_run = False
        self._unremembered: StoreError | None = None
        """Why the user's words could not be remembered so far."""
        self._window_read: list[TranscriptEntry] | None = None
        """The window; None once something was written."""
        self._recalled = PromptMemory()
        self._earlier = PromptMemory()
        """The block of the message before, which stays in the prompt for one more turn."""
        self._steps = 0
        self._is_asked = self._is_kept = False
        self._extras = PromptExtras()
        self._offered: tuple[ToolSpec, ...] | None = None
        self._has_resumed = False
        self._cut: set[str] = set()
        self._removed: set[str] = set()
        """Kinds of secrets that were left out of memory and reported."""
        self._attached = Attachments(self._session, self._notice)
        self._keeps_transcript = self._session is not None and self._session.supports(TranscriptStore)

    @property
    def _text(self) -> str:
        """User's text with the names of attachments: for memory and hooks."""
        return readable(self._entry)

    @property
    def _typed(self) -> str:
        """User's text, for titles; the names of attachments if there is no text."""
        return split(self._entry)[0] or self._text

    async def run(self) -> Receipt:
        """Run the turn. Raises `ModelError` or `BudgetExceeded`; the session then holds an `error` entry.

        Related writes are completed together, even if the turn is stopped meanwhile.
        """
        try:
            await to_its_end(self._write_question())
            await self._remember_words()
            await self._recall()
            while calls := await self._ask():
                await self._run_tools(calls)
            await self._keep()
            await self._title_by_model()
        except (Exception, asyncio.CancelledError) as error:
            if self._is_asked:
                await to_its_end(self._fail(error))
            raise
        await to_its_end(self._close())
        return self._receipt

    async def _write_question(self) -> None:
        """Write the message with links to attachments, or the answers of a client's tools, into the transcript."""
        if self._client.answers:
            await self._resume()
        elif self._client.again:
            await self._begin_again()
        else:
            kept = await self._attached.keep(self._files)
            self._entry = with_links(self._entry, [link for link, _ in kept])
            self._receipt.attachments = [record for _, record in kept]
            await self._write((USER, self._entry))
            await self._title_by_rule()
        self._is_asked = True

    async def _resume(self) -> None:
        """Go on with the turn whose tools the client has run, as far as the transcript holds it."""
        self._receipt.resumed_at = self._clock()
        entries = await self._last_exchange()
        waiting = {call.id for call in unanswered(entries)}
        if not waiting.issuperset(str(each.tool_call_id) for each in self._client.answers):
            if not self._client.sent:
                raise InvalidValue("no pending tool call matches these answers: send the whole conversation")
            await self._write((USER, self._entry))
            return
        self._written = len(entries)
        self._receipt.at, self._receipt.reply_number = entries[0].at, replies_of(entries[1:])[1]
        self._has_resumed = True
        if self._session is not None:
            earlier = await self._session.receipts_since(self._receipt.at)
            self._receipt.remembered = next((each["remembered"] for each in earlier if each.get("remembered")), None)
        await self._write(*(tool_result_line(str(each.tool_call_id), each.content) for each in self._client.answers))

    async def _begin_again(self) -> None:
        """Answer the last message, which is in the transcript with its earlier replies."""
        entries = await self._last_exchange()
        self._entry, self._written, self._receipt.at = entries[0].content, len(entries), entries[0].at
        self._receipt.resumed_at, self._receipt.reply_number = self._clock(), replies_of(entries[1:])[1]

    async def _last_exchange(self) -> list[TranscriptEntry]:
        return await last_exchange(self._session) if self._session is not None and self._keeps_transcript else []

    async def prompt(self) -> PromptBundle:
        """Return the prompt that the model would be sent. Writes nothing and calls no model."""
        self._is_dry_run = True
        self._unsaved.append((USER, self._entry))
        await self._recall()
        return await self._prompt()

    async def _ask(self) -> list[ToolCall]:
        """Ask the model once and write its reply. Returns the tools to run before the next call."""
        if self._receipt.finish == "tool_calls":  # the client runs the others
            return []
        prompt = await self._prompt()
        reply = Reply()
        self._emit(Phase(f"waiting for {self._model.name}"))
        stream = self._calls.stream(
            "chat",
            prompt.messages,
            tools=await self._specs(),
            prompt_tokens=prompt.tokens,
            reply_tokens=prompt.reply_tokens,
            options=self._client.options,
        )
        try:
            async with aclosing(stream) as deltas:
                async for delta in deltas:
                    self._take(delta, reply)
        except (asyncio.CancelledError, ModelError) as error:
            await to_its_end(self._keep_partial(reply, error))
            raise
        self._steps += 1
        return await self._write_reply(reply, may_run_tools=self._steps <= self._rules.settings.tool_steps)

    def _take(self, delta: Delta, reply: Reply) -> None:
        reply.take(delta)
        if isinstance(delta, TextDelta):
            if self._receipt.first_text_seconds is None:
                self._receipt.first_text_seconds = time.monotonic() - self._started
            self._emit(delta)
        elif isinstance(delta, ReasoningDelta):
            self._emit(delta)

    async def _write_reply(self, reply: Reply, *, may_run_tools: bool) -> list[ToolCall]:
        self._receipt.reply = reply.text
        reason = reply.finished.reason if reply.finished else "stop"
        self._receipt.finish = "stop" if reason == "tool_calls" else reason
        calls = [self._tools.unwrapped(call) for call in reply.calls()]
        said = [(ASSISTANT, reply.text)] if reply.text else []
        clients = self._client.own(calls)
        if clients:
            self._receipt.finish = "tool_calls"
            for call in clients:
                self._emit(ClientCall(call))
            said.append(tool_call_line(calls))
        elif calls and may_run_tools:
            said.append(tool_call_line(calls))
        elif calls:
            self._receipt.finish = "tool_limit"
            self._notice("the model still asks for tools: raise tool_steps to let it go on")
        elif not said:
            self._receipt.finish = "empty"
            self._notice("the model returned an empty reply")
            said.append((ERROR, "the model returned an empty reply"))
        if calls:
            await self._write(*said)
        else:
            self._reply = said
        return [call for call in calls if call not in clients] if may_run_tools else []

    async def _keep_partial(self, reply: Reply, error: BaseException) -> None:
        """Keep the partial text of a call that was cancelled or failed; a whole reply was neither."""
        self._receipt.reply = reply.text
        if reply.text and isinstance(error, asyncio.CancelledError):
            await self._write((ASSISTANT, reply.text))
            if reply.finished is not None and not reply.calls():
                self._is_kept, self._receipt.finish = True, reply.finished.reason

    async def _run_tools(self, calls: list[ToolCall]) -> None:
        for call in calls:
            self._emit(ToolStarted(call))
        results = await self._tools.run(calls)
        await self._write(*(tool_result_line(result.call.id, result.content) for result in results))
        for result in results:
            record = {"name": result.call.name, "error": result.is_error}
            self._receipt.tools.append(record | _confirmation(result) | self._instruction_in(result))
            self._emit(ToolFinished(result))
            if result.refusal:  # the model was told, and may not pass it on
                self._notice(result.refusal)
            if self._session is not None:
                at = self._clock()
                event = ToolPost(session=self._session, turn=self._receipt.turn, at=at, result=result)
                await self._publisher.publish(event)
        self._results += results

    def _instruction_in(self, result: ToolResult) -> dict[str, str]:
        """Return the note that an answer reads like an instruction, and report it. The answer is kept, as data."""
        form = form_in([result.content])
        if form is None:
            return {}
        self._notice(f"what the tool {result.call.name} answered reads like an instruction ({form}), and is only data")
        return {"reads_like": form}

    async def _prompt(self) -> PromptBundle:
        entries, said = await self._said()
        dialogue = await self._attached.shown(messages_of(said), self._model)
        if self._client.sent and not self._has_resumed:
            begins = max((at for at, message in enumerate(dialogue) if message.role == "user"), default=0)
            dialogue[begins : begins + 1] = self._client.sent
        if loading := self._model.loading:
            self._emit(Phase(f"loading {loading}"))
        prompt = await build_prompt(
            self._model,
            self._persona(),
            without_answers(await inlined(self._client.dialogue(dialogue)), self._model.disclosure.withheld_tools),
            tools=await self._specs(),
            reply_tokens=self._reply_tokens,
            extras=self._extras,
        )
        self._receipt.note_prompt(prompt, entries)
        self._receipt.note_memory(prompt, entries, self._recalled, self._earlier)
        self._notice_cuts(prompt)
        return prompt

    async def _said(self) -> tuple[list[TranscriptEntry], list[Line]]:
        """Return the window, read again after a write, and its lines with those that could not be saved."""
        if self._window_read is None:
            self._window_read = await self._read_window()
        return self._window_read, [*((each.role, each.content) for each in self._window_read), *self._unsaved]

    def _notice_cuts(self, prompt: PromptBundle) -> None:
        """Report each text that was cut for the model, once a turn."""
        for cut in prompt.cut:
            if cut.what not in self._cut:
                self._cut.add(cut.what)
                what = "this message" if cut.what == "message" else cut.what
                self._notice(
                    f"{what} is too long for the model's window and was cut: {cut.kept:,} of {cut.tokens:,} tokens"
                )

    async def _specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools that are offered to the model: as many as do not take too much of its window."""
        if self._offered is None:
            for complaint in await self._tools.complete():
                self._notice(complaint)
            clients = self._client.tools
            names = {tool.name for tool in clients}
            own = () if self._client.is_forced else tuple(each for each in self._tools.specs if each.name not in names)
            if not self._client.keeps:
                own = tuple(each for each in own if not is_memory_tool(each.name))
            self._offered = (*await self._fitting(own), *clients)
        return self._offered

    async def _fitting(self, specs: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        window = await self._model.context_window()
        room = window // _TOOLS_SHARE
        if not specs or await self._model.count_tokens([], specs) <= room:
            return specs
        kept = fitting_tools(specs, {spec.name: await self._model.count_tokens([], [spec]) for spec in specs}, room)
        self._notice(tools_left_out(specs, kept, window))
        return kept

    def _persona(self) -> str:
        persona = self._client.persona or self._rules.persona
        recalls = self._memory is not None and self._client.recalls
        return f"{persona}\n\n{system_notice()}" if recalls else persona

    async def _recall(self) -> None:
        """Recall for the prompt, and sum up what the window leaves out."""
        self._emit(Phase("recalling"))
        if self._session is not None and self._client.recalls:
            self._recalled = await self._recalled_in(self._session)
        self._extras = await self._prompt_extras(self._recalled)

    async def _recalled_in(self, session: SessionHandle) -> PromptMemory:
        """Recall, among the hooks at `prompt:submit`: the first answer is the memory block."""
        _, said = await self._said()
        event = PromptSubmit(
            session=session,
            turn=self._receipt.turn,
            at=self._receipt.at,
            said=tuple(readable(content) for role, content in said if role == USER)[-RECENT_QUESTIONS:],
            since=self._window.since,
            most_tokens=await self._model.context_window() // _MEMORY_SHARE,
            dry_run=self._is_dry_run,
            remembrance=self._memory if self._client.keeps else None,
            notice=self._notice,
        )
        answers = await self._publisher.publish(event, Step(INJECT, partial(self._memory_block, event)))
        recalled = next((answer for answer in answers if isinstance(answer, PromptMemory)), PromptMemory())
        return disclosed(recalled, self._model.disclosure)

    async def _memory_block(self, event: PromptSubmit) -> PromptMemory | None:
        """Recall rows about the message; None if memory fails, which is reported."""
        if self._memory is None:
            return None
        choose = self._publisher.find(CHOOSE)
        try:
            return await self._memory.recall(
                event.said,
                since=event.since,
                most_tokens=event.most_tokens,
                choose=choose,
                rank=self._ranked if self._reranker is not None and not self._is_dry_run else None,
                candidates=self._rules.candidates,
                disclosure=self._model.disclosure,
                shown="\n".join(message.content for message in self._client.history or ()),
            )
        except StoreError as error:
            self._notice(f"memory cannot be searched, so this turn goes without it: {error}")
            return None

    async def _ranked(self, question: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        """Rank hits by the reranker; a failure is reported and changes nothing.

        Only public memories are sent to it; others come after them.
        """
        sent = [each for each in hits if each.observation is not None and each.observation.sensitivity == "public"]
        if self._reranker is None or len(sent) < 2:
            return hits
        texts = [each.observation.text() for each in sent if each.observation is not None]
        try:
            scores = await self._calls.rerank(self._reranker, question, texts)
        except (ModelError, BudgetExceeded) as error:
            self._notice(f"memories are ranked without {self._reranker.name}: {error}")
            return hits
        best = sorted(range(len(sent)), key=lambda number: -scores[number])
        return [*(sent[number] for number in best), *(each for each in hits if each not in sent)]

    async def _prompt_extras(self, recalled: PromptMemory) -> PromptExtras:
        summary = ""
        try:
            if self._session is not None and self._keeps_transcript and self._client.history is None:
                summary = await summarize_episode(self._session, self._window.since, save=self._written > 0)
        except StoreError as error:
            self._notice(f"what came before cannot be summed up: {error}")
        if self._memory and self._client.recalls:
            self._earlier = disclosed(self._memory.earlier, self._model.disclosure)
        earlier = self._earlier.text if self._earlier.shown else ""
        return PromptExtras(summary=summary, block=recalled.text, earlier_block=earlier)

    async def _remember_words(self) -> None:
        """Remember what the user says, before anything that may fail, be stopped or take long."""
        is_kept = self._receipt.remembered is not None  # remembered before the client ran its tools
        if self._memory is None or not self._client.keeps or self._publisher.find(EXCHANGE) is None or is_kept:
            return
        await self._said()  # finds the bot's last reply
        try:
            kept = await self._memory.keep_words(
                self._receipt.at, self._text, memorability=self._gate(), before=self._said_before
            )
            self._receipt.remembered = None if kept is None else kept.id
            self._notice_secrets(() if kept is None else kept.redacted)
            if self._session is not None:
                self._session.turn_order.answering = self._receipt.remembered or ""
        except StoreError as error:
            self._unremembered = error  # tried again at the end

    async def _keep(self) -> None:
        """Count a use of what was recalled, and keep the exchange, among the hooks at `turn:end`."""
        self._is_kept = True
        is_answered = self._receipt.finish != "tool_calls"
        row = self._receipt.remembered if is_answered else None
        events, removed = list[Event](), tuple[str, ...]()
        if self._memory is not None:
            events, removed = self._memory.end_events(self._recalled, row, self._receipt.reply)
        ended = await to_its_end(self._write(*self._reply, events=events))
        self._notice_secrets(removed)
        if self._memory is not None and row is not None and ended.outcomes:
            self._receipt.remembered = await self._memory.completed(row, ended.outcomes[-1])
        if self._session is None or not is_answered:
            return
        self._session.turn_order.answering = ""
        event = TurnEnd(
            session=self._session,
            turn=self._receipt.turn,
            at=self._receipt.at,
            text=self._text,
            reply=self._receipt.reply,
            tools=tuple(self._results),
            recalled=self._recalled,
            remembrance=self._memory if self._client.keeps else None,
            notice=self._notice,
        )
        step = partial(self._keep_exchange, event, is_kept=row is not None)
        answers = await self._publisher.publish(event, Step(EXCHANGE, step))
        self._receipt.remembered = replace(event, answers=tuple(answers)).kept or self._receipt.remembered

    async def _keep_exchange(self, event: TurnEnd, *, is_kept: bool) -> KeptExchange | None:
        """Remember the exchange unless its words are; None if it is not worth it, or on failure, which is reported."""
        if is_kept:
            return KeptExchange(self._receipt.remembered) if self._receipt.remembered else None
        if self._memory is None or not self._client.keeps:
            return None
        try:
            kept = await self._memory.keep(
                event.at, event.text, event.reply, event.recalled, memorability=self._gate(), before=self._said_before
            )
        except StoreError as error:
            self._unremembered = error
            return None
        self._unremembered = None
        self._notice_secrets(() if kept is None else kept.redacted)
        return None if kept is None else KeptExchange(kept.id)

    def _gate(self) -> Memorability:
        """Return what decides whether an exchange is worth keeping: without a hook for it, everything is."""
        return self._publisher.find(MEMORABILITY) or Memorability(gate=0)

    def _notice_secrets(self, kinds: Sequence[str]) -> None:
        """Report, once a turn for each kind, the secrets that were removed from the memory of this exchange."""
        if new := [each for each in kinds if each not in self._removed]:
            self._removed.update(new)
            rest = "; the transcript keeps it" if self._keeps_transcript else ""
            self._notice(f"what looks like a secret ({', '.join(new)}) is left out of memory{rest}")

    async def _read_window(self) -> list[TranscriptEntry]:
        """Return the last entries, and all of this turn however many tools it ran."""
        if self._session is None or not self._keeps_transcript:
            return []
        own = self._written
        try:
            if self._client.history is not None:
                self._window.since = self._session.record.created_at  # the client shows the model all of it
                return await self._session.transcript_read_last(own)
            entries = await self._session.transcript_read_last(self._window.limit + own - 1)
            if self._said_before is None:
                self._said_before = reply_before(entries, self._receipt.at)
            return self._window.cut(entries, max(own - 1, 0))
        except StoreError as error:
            self._notice(f"earlier messages cannot be read, so this turn goes without them: {error}")
            if (USER, self._entry) not in self._unsaved:
                self._unsaved.insert(0, (USER, self._entry))
            return []

    async def _write(self, *said: Line, events: Sequence[Event] = ()) -> WriteResult:
        """Add entries to the transcript, or keep them for this turn alone if that fails.

        Bills of calls so far and `events` of memory are written with them.
        """
        self._window_read = None
        if self._session is None or not self._keeps_transcript or self._has_gap:
            self._unsaved.extend(said)
            said = ()
        entries = [TranscriptEntry(role, content, self._clock()) for role, content in said]
        ended = await self._write_parts(entries=entries, events=events)
        if (error := ended.failed.get("entries")) is not None:
            self._has_gap = True
            self._unsaved.extend(said)
            self._notice(f"this could not be saved, and will be forgotten: {error}")
        elif entries:
            self._receipt.at = self._receipt.at if self._written else entries[0].at
            self._written += len(said)
        if (error := ended.failed.get("events")) is not None:
            self._unremembered = error if self._receipt.remembered else None
            logger.warning("uses were not counted: %s", error)
        return ended

    async def _write_parts(self, **parts: Any) -> WriteResult:
        """Write these parts and the bills of calls so far."""
        bills, self._unbilled[:] = [*self._unbilled], []
        if self._session is None or not (bills or any(parts.values())):
            return WriteResult()
        try:
            ended = await self._session.write_together(bills=bills, **parts)
        except StoreError as error:
            ended = WriteResult({name: error for name, part in {"bill": bills, **parts}.items() if part})
        if "bill" in ended.failed:
            self._calls.report_unbilled(ended.failed["bill"])
        return ended

    async def _fail(self, error: BaseException) -> None:
        """End a turn that failed or was stopped; if it is kept already, only its title is missing."""
        if isinstance(error, asyncio.CancelledError) and not self._is_kept:
            self._receipt.finish = "cancelled"
        elif not self._is_kept:
            self._receipt.finish = "error"
            self._receipt.error = without_folders(str(error))
            partial = f"\n\nwhat had arrived:\n\n{self._receipt.reply}" if self._receipt.reply else ""
            await self._write((ERROR, f"{self._receipt.error}{partial}"))
        await self._close()

    async def _close(self) -> None:
        self._receipt.seconds = time.monotonic() - self._started
        if self._receipt.finish == "cancelled":
            await self._write((ERROR, STOPPED))
        if self._unremembered is not None:
            self._notice(f"this exchange could not be remembered: {self._unremembered}")
        if self._session is None:
            return
        await self._title_by_rule()
        ended = await self._write_parts(receipt=self._receipt.as_json())
        if (error := ended.failed.get("receipt")) is not None:
            self._notice(f"the receipt of this turn could not be saved: {error}")

    def _may_title(self) -> bool:
        """Return whether the session has no title yet, or one made of a greeting."""
        title = "" if self._session is None else self._session.record.title
        return not title or (title == self._window.greeting and not says_little(self._typed))

    async def _title(self, title: str) -> None:
        """Give the session that title, unless it got another one meanwhile."""
        if self._session is not None and title:
            await self._session.entitle(title, instead_of=self._session.record.title)
            self._window.greeting = title if says_little(self._typed) else ""
            if self._session.record.title == title:  # it got no other one meanwhile
                self._receipt.title = title

    async def _title_by_rule(self) -> None:
        """Title the session with the message, before the reply: a list shows the session meanwhile."""
        try:
            if self._may_title():
                await self._title(title_from(self._typed))
        except StoreError as error:
            self._notice(f"this session could not be given a title: {error}")

    def _may_title_again(self) -> bool:
        """Return whether the title is the one that this turn gave."""
        return self._session is not None and self._receipt.title == self._session.record.title != ""

    async def _title_by_model(self) -> None:
        """Ask the model for a title if the settings say so; on failure, the one made by rule stays."""
        may_title = self._may_title() or self._may_title_again()
        if not (self._rules.settings.title_by_model and self._receipt.finish == "stop" and may_title):
            return
        if self._session is None or says_little(self._typed):
            return
        self._emit(Phase("looking for a title"))
        try:
            reply = await self._calls.ask(
                "title", title_request(self._typed, self._receipt.reply), reply_tokens=REPLY_TOKENS
            )
            await self._title(title_in(redact(reply)[0]))
        except (ModelError, BudgetExceeded, StoreError) as error:
            self._notice(f"no model found a title for this session: {error}")

    def _notice(self, text: str) -> None:
        """Report a problem, without paths; a guest is not told the reason, which is logged."""
        if self._session is not None and self._session.caller.clearance != "full":
            logger.warning("%s", text)
            text = text.partition(": ")[0]
        text = without_folders(text)
        self._receipt.notices.append(text)
        self._emit(Notice(text))


def _confirmation(result: ToolResult) -> dict[str, str]:
    """Return the arguments that the user was asked to allow, and the answer."""
    if result.asked is None:
        return {}
    arguments = redact(result.call.arguments)[0]
    shown = arguments if len(arguments) <= _LONGEST_ARGUMENTS else f"{arguments[:_LONGEST_ARGUMENTS]}…"
    return {"arguments": shown, "allowed": result.asked}
