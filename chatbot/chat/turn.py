"""One turn, top to bottom: remember what was said, recall, ask the model, run its tools, keep the reply.

The user's entry is written first and stays. From then on, unless the process is killed, the receipt is written and the
session can go on, whatever happens. If memory fails, the turn continues without it, with a notice.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from chatbot.attachments import split_links, with_file_names
from chatbot.attachments.read import Attachment
from chatbot.chat import dialogue, events
from chatbot.chat.attached import Attachments, with_file_texts
from chatbot.chat.calls import Calls, Reply
from chatbot.chat.conversation_memory import RECENT_QUESTIONS, PromptMemory, limit_disclosure
from chatbot.chat.memory_block import system_notice
from chatbot.chat.prompt import PromptBundle, build_prompt, fitting_tools, is_memory_tool, withheld_tools
from chatbot.chat.receipts import Receipt
from chatbot.chat.titles import SessionTitle
from chatbot.errors import ChatbotError, ModelError, without_folders
from chatbot.memory import SessionHandle
from chatbot.memory.episode import summarize_episode
from chatbot.memory.memorability import Memorability
from chatbot.memory.prompt_injection import injection_in
from chatbot.memory.scope import new_id
from chatbot.messages import CallOptions, ReasoningDelta, TextDelta, ToolCall, ToolSpec
from chatbot.stores.errors import InvalidValue, StoreError, UnknownOutcome
from chatbot.stores.loops import to_its_end
from chatbot.stores.query import check_limit
from chatbot.stores.records import format_time, reason_of, well_formed
from chatbot.stores.row_events import Event
from chatbot.tools import ToolResult

if TYPE_CHECKING:
    from chatbot.chat.chat import Chat
    from chatbot.chat.conversation_memory import ConversationMemory

logger = logging.getLogger(__name__)

_MEMORY_SHARE = 6
"""The memory block takes at most the model's window divided by this."""


class Turn:
    """One exchange; `run` it once. The parameters are those of `Chat.turn`."""

    def __init__(
        self,
        text: str,
        chat: "Chat",
        emit: events.Emit,
        *,
        max_output_tokens: int | None = None,
        client: dialogue.ClientRequest = dialogue.NO_CLIENT,
        files: Sequence[Attachment] = (),
    ) -> None:
        self._chat = chat
        self._files = files
        self._model = chat.model
        self._tools = chat.tools
        self._session = chat.session
        self._memory = chat.memory
        self._emit = emit
        most = chat.rules.max_output_tokens
        self._reply_tokens = min(check_limit(max_output_tokens or most, "max_output_tokens"), most)
        self._client = client
        shows_window = client.history is None
        self._transcript = dialogue.TurnTranscript(
            self._session, chat.window, chat.clock, self._notice, asked=text, shows_window=shows_window
        )
        self._calls = Calls(
            self._model,
            chat.ledger,
            chat.rules.budget,
            reply_tokens=self._reply_tokens,
            session=self._session,
            payers=client.payers,
            clock=chat.clock,
            report=self._notice,
            # None: each is billed at once
            bills=self._transcript.bills if self._session and self._session.saves_trips else None,
        )
        self.receipt = Receipt(
            turn=client.turn or new_id(),
            session=self._session.id if self._session else None,
            agent=chat.rules.agent,
            model=self._model.name,
            at=self._transcript.asked_at,
            calls=self._calls.made,  # which grows
        )
        self._title = SessionTitle(chat, self.receipt, self._notice)
        self._started = time.monotonic()
        self._last_reply: list[dialogue.DialogueLine] = []
        """Lines of the last reply, written at the end of the turn."""
        self._rounds = 0
        self._results: list[ToolResult] = []
        self._unremembered: StoreError | None = None
        """The error of the last try to remember the exchange; None if it succeeded."""
        self._recalled = self._earlier = PromptMemory()
        """The memory in the prompt, and that of the previous message, which stays for one more turn."""
        self._is_begun = self._is_complete = False
        """`_is_begun` is true once the message is written; never in a dry run, which writes nothing."""
        self._summary = ""
        self._offered: tuple[ToolSpec, ...] | None = None
        self._attached = Attachments(self._session, self._notice)

    @property
    def _text(self) -> str:
        """The user's text with the names of attachments: for memory and hooks."""
        return with_file_names(self._transcript.asked)

    @property
    def _typed(self) -> str:
        """The user's text, for titles; the names of attachments if there is no text."""
        return split_links(self._transcript.asked)[0] or self._text

    async def run(self) -> Receipt:
        """Run the turn. Raises `ModelError` or `BudgetExceeded`; the session then holds an `error` entry."""
        try:
            await to_its_end(self._write_message())
            if self._session is not None:
                await self._chat.publisher.begin_session(self._session, self.receipt.at)
            await self._remember_message()
            await self._recall()
            await self._summarize()
            while tool_calls := await self._ask():
                await self._run_tools(tool_calls)
            await self._keep_reply()
            await self._title_by_model()  # once the reply is kept
        except (Exception, asyncio.CancelledError) as error:
            if self._is_begun:
                await to_its_end(self._write_receipt(error))
            raise
        await to_its_end(self._write_receipt())
        return self.receipt

    async def dry_run(self) -> PromptBundle:
        """Return the prompt that would be sent. Calls no chat model; writes only the cost of a remote encoder."""
        self._transcript.show_asked()
        await self._recall()
        await self._summarize()
        return await self._prompt()

    @property
    def _kept_in(self) -> "ConversationMemory | None":
        """The memory that may keep the exchange, and what hooks make of it."""
        return self._memory if self._client.keeps and self._chat.rules.settings.remember_exchanges else None

    async def _write_message(self) -> None:
        """Write the message with its attachments, or continue one that has no last reply yet; set a title by rule."""
        if self._client.tool_results:
            await self._resume()
        elif self._client.again:
            self.receipt.resumed_at = self._chat.clock()
            self._transcript.resume(await dialogue.last_exchange(self._session))
        else:
            kept = [await self._attached.store(each) for each in self._files]
            self.receipt.attachments = [record for _, record in kept]
            if self._memory is not None and self._session is not None and self._kept_in is None:
                with suppress(StoreError):  # the next writes report it
                    await self._session.note_not_kept(self._transcript.asked_at)
            await self._transcript.write_asked([link for link, _ in kept])
        self.receipt.at, self.receipt.reply_number = self._transcript.asked_at, self._transcript.reply_number
        if self._session and self._kept_in and self.receipt.resumed_at:  # memory may have been off when it was written
            unkept = await self._session.times_not_kept(self.receipt.at)
            self._client = replace(self._client, keeps=format_time(self.receipt.at) not in unkept)
        await self._title.set_by_rule(self._typed)  # before the reply: a list shows the session meanwhile
        self._is_begun = True

    async def _resume(self) -> None:
        """Continue the turn whose tools the client has run; if no transcript has it, with the client's own messages."""
        self.receipt.resumed_at = self._chat.clock()
        entries = await dialogue.last_exchange(self._session)
        results = dialogue.awaited_results(entries, self._client.tool_results)
        if len(results) < len(self._client.tool_results):
            if not self._client.sent:
                raise InvalidValue(dialogue.UNMATCHED_ANSWERS)
            await self._transcript.write_asked()
            return
        self._client = replace(self._client, sent=())  # the transcript has the turn
        self._transcript.resume(entries)
        if self._session is not None:
            earlier = reversed(await self._session.receipts_since(entries[0].at))
            self.receipt.remembered = next((each["remembered"] for each in earlier if each.get("remembered")), None)
        await self._transcript.write(*results)

    async def _remember_message(self) -> None:
        """Remember what the user says, before anything that may fail, be stopped or take long."""
        is_remembered = self.receipt.remembered is not None  # remembered before the client ran its tools
        if self._session is None or is_remembered or self._chat.publisher.find(events.KEEPS_MESSAGES) is None:
            return
        earlier = [each for each in await self._transcript.entries() if each.at != self._transcript.asked_at]
        if (memory := self._kept_in) and (lost := dialogue.unanswered(earlier)):
            self._notice("the message before this one was never answered; the model sees both")
            try:
                await memory.recover(lost, self._memorability)
            except StoreError as error:
                self._notice(f"an earlier message could not be remembered: {error}")
        await self._write_row()
        self._session.turn_order.asked_row = self.receipt.remembered or ""

    @property
    def _memorability(self) -> Memorability:
        measure = self._chat.publisher.find(events.MEMORABILITY) or Memorability(threshold=0)  # without a hook keep all
        if isinstance(measure, Memorability):
            return measure
        self._notice(f"{events.MEMORABILITY} is {measure!r:.80}, which is no Memorability: everything is remembered")
        return Memorability(threshold=0)

    async def _write_row(self, reply: str | None = None) -> None:
        """Remember the message; with the reply if only that makes it worth keeping, or if the first try failed."""
        if (memory := self._kept_in) is None:
            return
        at, text, before = self.receipt.at, self._text, await self._transcript.reply_before()
        measure = self._memorability
        try:
            kept = await memory.remember(at, text, reply, self._recalled, memorability=measure, before=before)
        except StoreError as error:
            self._unremembered = error
            return
        self._unremembered = None
        self.receipt.remembered = None if kept is None else kept.id
        self._notice_secrets(() if kept is None else kept.redacted)

    async def _recall(self) -> None:
        """Recall for the prompt."""
        self._emit(events.Phase("recalling"))
        if self._session is not None and self._client.recalls:
            self._recalled = await self._recall_in(self._session)
        if self._memory and self._client.recalls:
            self._earlier = limit_disclosure(self._memory.earlier, self._model.disclosure)

    async def _recall_in(self, session: SessionHandle) -> PromptMemory:
        """Recall, in the order of the hooks at `prompt:submit`: the first answer is the memory block."""
        said = await self._transcript.lines()
        event = events.PromptSubmit(
            session=session,
            turn=self.receipt.turn,
            at=self.receipt.at,
            said=tuple(with_file_names(content) for role, content in said if role == dialogue.USER)[-RECENT_QUESTIONS:],
            since=self._chat.window.since,
            most_tokens=await self._model.context_window() // _MEMORY_SHARE,
            dry_run=not self._is_begun,
            memory=self._memory if self._client.keeps else None,
            notice=self._notice,
        )

        async def recall() -> PromptMemory | None:
            if self._memory is None:
                return None
            try:
                return await self._memory.recall(
                    event.said,
                    since=event.since,
                    most_tokens=event.most_tokens,
                    choose=self._chat.publisher.find(events.CHOOSE),
                    disclosure=self._model.disclosure,
                    client_text="\n".join(message.content for message in self._client.history or ()),
                )
            except StoreError as error:
                self._notice(f"memory cannot be searched, so this turn continues without it: {error}")
                return None

        answers = await self._chat.publisher.publish(event, events.OwnHook(events.INJECT, recall))
        if others := [each for each in answers if not isinstance(each, PromptMemory | None)]:
            self._notice(f"a hook answered prompt:submit with {type(others[0]).__name__}: only a PromptMemory is used")
        recalled = next((answer for answer in answers if isinstance(answer, PromptMemory)), self._recalled)
        limited = limit_disclosure(recalled, self._model.disclosure)
        if recalled.text and not limited.text:
            self._notice(f"a hook's memory block names no memories, so {self._model.name} is not sent it")
        return limited

    async def _summarize(self) -> None:
        """Summarise what was said before the window."""
        try:
            if self._session is not None and self._transcript.is_kept and self._client.history is None:
                since = self._chat.window.since
                self._summary = await summarize_episode(self._session, since, save=self._is_begun)
        except StoreError as error:
            self._notice(f"earlier messages cannot be summarized: {error}")

    async def _ask(self) -> list[ToolCall]:
        """Ask the model once. Returns the tools to run before the next call; without any, the reply is the last one."""
        if self.receipt.finish == "tool_calls":  # the client runs the remaining calls
            return []
        prompt = await self._prompt()
        reply = Reply()
        tools, options, most = await self._specs(), self._client.options, self._chat.rules.settings.tool_steps
        may_run_tools = self._rounds < most
        self._rounds += 1
        if tools and not (may_run_tools or self._client.tools):
            options = replace(options or CallOptions(), tool_choice="none")
            if self._results:
                self._notice(f"the model had to answer after {most} rounds of tools: raise tool_steps to allow more")
        self._emit(events.Phase(f"waiting for {self._model.name}"))
        stream = self._calls.stream(
            "chat",
            prompt.messages,
            tools=tools,
            prompt_tokens=prompt.tokens,
            reply_tokens=prompt.reply_tokens,
            options=options,
        )
        try:
            async with aclosing(stream) as deltas:
                async for delta in deltas:
                    reply.take(delta)
                    if isinstance(delta, TextDelta) and self.receipt.first_text_seconds is None:
                        self.receipt.first_text_seconds = time.monotonic() - self._started
                    if isinstance(delta, TextDelta | ReasoningDelta):
                        self._emit(delta)
        except (asyncio.CancelledError, ModelError) as error:
            await to_its_end(self._write_partial(reply, error))
            raise
        return await self._take_reply(reply, may_run_tools=may_run_tools)

    async def _prompt(self) -> PromptBundle:
        """Return the prompt, and summarise what the window leaves out."""
        if loading := self._model.loading:
            self._emit(events.Phase(f"loading {loading}"))
        prompt = await self._build()
        while prompt.left_out and await self._transcript.begin_window(prompt.exchanges):
            await self._summarize()
            prompt = await self._build()
        since = self.receipt.at if prompt.left_out else self._chat.window.since
        self.receipt.note_prompt(prompt, await self._transcript.entries(), since, self._recalled, self._earlier)
        for cut in prompt.cut:  # each is reported once a turn
            says = f"{'this message' if cut.what == 'message' else cut.what} is too long for the model's window"
            if not any(each.startswith(says) for each in self.receipt.notices):
                self._notice(f"{says} and was cut: {cut.kept:,} of {cut.tokens:,} tokens are sent")
        return prompt

    async def _build(self) -> PromptBundle:
        said = await self._transcript.lines()
        messages = self._client.dialogue(await self._attached.fill_links(dialogue.messages_of(said), self._model))
        recalls = self._memory is not None and self._client.recalls
        persona = self._client.persona or self._chat.rules.persona
        return await build_prompt(
            self._model,
            f"{persona}\n\n{system_notice(self.receipt.at)}" if recalls else persona,
            dialogue.with_results_withheld(await with_file_texts(messages), withheld_tools(self._model.disclosure)),
            tools=await self._specs(),
            reply_tokens=self._reply_tokens,
            summary=self._summary,
            block=self._recalled.text,
            earlier_block=self._earlier.text if self._earlier.shown else "",
        )

    async def _specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools that are offered to the model: as many as do not take too much of its window."""
        if self._offered is None:
            for complaint in await self._tools.complete():
                self._notice(complaint)
            specs = self._client.tools_beside(self._tools.specs)
            fitting, notice = await fitting_tools(self._model, specs, memory=self._client.keeps)
            self._notice(notice)
            self._offered = (*fitting, *self._client.tools)
        return self._offered

    async def _take_reply(self, reply: Reply, *, may_run_tools: bool) -> list[ToolCall]:
        """Write a reply that calls tools, and return the calls to run here; `_keep_reply` writes the last reply."""
        self.receipt.reply = text = reply.text if reply.text.strip() else ""
        reason = reply.finished.reason if reply.finished else "stop"
        self.receipt.finish = "stop" if reason == "tool_calls" else reason
        if reason == "length" and (most := self._calls.shortened_to):
            self._notice(f"the reply was cut after {most:,} tokens: a limit of tokens or cost allows no more")
        tool_calls = [self._tools.unwrapped(call) for call in reply.tool_calls()]
        lines = [(dialogue.ASSISTANT, text)] if text else []
        theirs = {tool.name for tool in self._client.tools}
        clients = [call for call in tool_calls if call.name in theirs]
        if tool_calls and (clients or may_run_tools):
            lines.append(dialogue.tool_call_line(tool_calls))
            for call in clients:
                self.receipt.finish = "tool_calls"
                self._emit(events.ClientCall(call))
        elif tool_calls:
            self.receipt.finish = "tool_limit"
            self._notice("the model still asks for tools: raise tool_steps to let it continue")
        elif not lines:
            self.receipt.finish = "empty"
            what = "only thoughts and no reply" if reply.reasoning.strip() else "an empty reply"
            more = ": raise max_output_tokens in [model]" if reason == "length" and not self._calls.shortened_to else ""
            self._notice(f"the model returned {what}{more}")
            lines.append((dialogue.ERROR, f"the model returned {what}"))
        if tool_calls:
            await to_its_end(self._transcript.write(*lines))
        else:
            self._last_reply = lines
        return [call for call in tool_calls if call not in clients] if may_run_tools else []

    async def _write_partial(self, reply: Reply, error: BaseException) -> None:
        """Write the text of a cancelled call, maybe a complete reply; that of a failed one is in its error entry."""
        self.receipt.reply = reply.text
        if reply.text and isinstance(error, asyncio.CancelledError):
            await self._transcript.write((dialogue.ASSISTANT, reply.text))
            if reply.finished is not None and not reply.tool_calls():
                self._is_complete, self.receipt.finish = True, reply.finished.reason

    async def _run_tools(self, calls: list[ToolCall]) -> None:
        for call in calls:
            self._emit(events.ToolStarted(call))
        results = ended = list[ToolResult]()
        # A model may call tools of memory that it was not offered: the transcript shows earlier calls.
        tools = self._tools if self._client.keeps else self._tools.without(is_memory_tool)
        try:
            results = await tools.run(calls, ended)  # in the order of the calls
        finally:  # if the turn is stopped, those that have ended
            await to_its_end(self._write_results(results))
        self._results += results
        if self._session is None:
            return
        for result in results:
            at, memory = self._chat.clock(), self._kept_in
            event = events.ToolPost(session=self._session, turn=self.receipt.turn, at=at, result=result, memory=memory)
            await self._chat.publisher.publish(event)

    async def _write_results(self, results: Sequence[ToolResult]) -> None:
        await self._transcript.write(*(dialogue.tool_result_line(result.call.id, result.content) for result in results))
        for result in results:
            form = injection_in([result.content])
            self.receipt.note_tool(result, form)
            if form is not None:
                says = f"the answer of the tool {result.call.name} reads like an instruction ({form})"
                self._notice(f"{says}; the model gets it as data")
            self._emit(events.ToolFinished(result))
            self._notice(result.refusal)  # the model may not pass it on

    async def _keep_reply(self) -> None:
        """Write the last reply, publish the turn's end, and remember the message if that waited for the reply."""
        self._is_complete = True
        is_answered = self.receipt.finish != "tool_calls"
        if is_answered and isinstance(self._unremembered, UnknownOutcome):  # if it was written, this finds its row
            await self._write_row()
        row = self.receipt.remembered if is_answered else None
        await self._write_last_reply(row)
        if self._session is None or not is_answered:
            return
        self._session.turn_order.asked_row = ""

        async def keep() -> events.KeptExchange | None:
            if row is None:
                await self._write_row(self.receipt.reply)
            return events.KeptExchange(self.receipt.remembered) if self.receipt.remembered else None

        event = events.TurnEnd(
            session=self._session,
            turn=self.receipt.turn,
            at=self.receipt.at,
            text=self._text,
            reply=self.receipt.reply,
            tools=tuple(self._results),
            recalled=self._recalled,
            memory=self._kept_in,
            notice=self._notice,
        )
        answers = await self._chat.publisher.publish(event, events.OwnHook(events.EXCHANGE, keep))
        kept = (well_formed(str(answer.id)) for answer in answers if isinstance(answer, events.KeptExchange))
        self.receipt.remembered = next(kept, self.receipt.remembered)

    async def _write_last_reply(self, row: str | None) -> None:
        """Append the last reply, add it to the `row` of the message, and count uses of recalled rows."""
        changes, removed = list[Event](), tuple[str, ...]()
        if self._memory is not None:
            self._memory.earlier = self._recalled  # the next block leaves these rows out
            changes, removed = self._memory.last_changes(self._recalled, row, self.receipt.reply)
        result = await to_its_end(self._transcript.write(*self._last_reply, events=changes))
        self._notice_secrets(removed)
        if (error := result.failed.get("events")) is not None:
            self._unremembered = error if self.receipt.remembered else None
            logger.warning("uses were not counted: %s", error)
        if self._memory is not None and row is not None and result.outcomes:
            self.receipt.remembered = await self._memory.report_completed(result.outcomes[-1])

    async def _title_by_model(self) -> None:
        wanted = self._chat.rules.settings.title_by_model and self.receipt.finish == "stop"
        if wanted and self._title.may_be_set(self._typed, by_model=True):
            self._emit(events.Phase("looking for a title"))
            await self._title.set_by_model(self._typed, self._calls)

    async def _write_receipt(self, error: BaseException | None = None) -> None:
        """Write the receipt, after the `error` entry of a turn that failed or was stopped before it was complete."""
        self.receipt.seconds = time.monotonic() - self._started
        if isinstance(error, asyncio.CancelledError) and not self._is_complete:
            self.receipt.finish = "cancelled"
            await self._transcript.write((dialogue.ERROR, dialogue.STOPPED))
        elif error is not None and not self._is_complete:
            self.receipt.finish = "error"
            why = str(error) if isinstance(error, ChatbotError | StoreError) else reason_of(error)  # `emit`, or a bug
            self.receipt.error = well_formed(without_folders(why))
            partial = f"{dialogue.SO_FAR}{self.receipt.reply}" if self.receipt.reply else ""
            await self._transcript.write((dialogue.ERROR, f"{self.receipt.error}{partial}"))
        if self._unremembered is not None:
            self._notice(f"this exchange could not be remembered: {self._unremembered}")
        result = await self._transcript.write(receipt=self.receipt.as_json())
        if "receipt" in result.failed:
            self._notice(f"the receipt of this turn could not be saved: {result.failed['receipt']}")
        self.receipt.lost = self._transcript.has_gap or self._unremembered is not None or "receipt" in result.failed

    def _notice_secrets(self, kinds: Sequence[str]) -> None:
        if kinds:
            rest = "; the transcript keeps it" if self._transcript.is_kept else ""
            self._notice(f"what looks like a secret ({', '.join(kinds)}) is left out of memory{rest}")

    def _notice(self, text: str) -> None:
        """Report a problem, if any, once and without paths; a guest gets no reason, which is logged."""
        if text and self._session is not None and self._session.caller.clearance != "full":
            logger.warning("%s", text)
            text = text.partition(": ")[0]
        if text and (text := well_formed(without_folders(text))) not in self.receipt.notices:
            self.receipt.notices.append(text)
            self._emit(events.Notice(text))
