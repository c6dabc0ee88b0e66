"""One turn, top to bottom: write down what was asked, ask the model, run its tools, write down what it said.

Whatever happens, the user's entry stays, the receipt is written, and the session can go on. A failure of the memory
never fails the turn: it goes on without, and says so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime

from chatbot.chat.budget import reply_within_budget
from chatbot.chat.dialogue import ASSISTANT, ERROR, USER, Said, messages_of, said_tool_calls, said_tool_result
from chatbot.chat.events import PromptSubmit, Publisher, ToolPost, TurnEnd
from chatbot.chat.ledger import Ledger
from chatbot.chat.memory_block import system_notice
from chatbot.chat.offer import fitting, left_out
from chatbot.chat.prompt import Aside, PromptBundle, build_prompt
from chatbot.chat.receipts import Receipt
from chatbot.chat.remembrance import Recalled, Remembrance
from chatbot.chat.reply import Reply
from chatbot.chat.titles import REPLY_TOKENS, is_greeting, title_in, title_of, title_request
from chatbot.chat.usage import Bill, Call, bill_of, calls_in
from chatbot.chat.window import Window
from chatbot.config import AgentSettings, BudgetSettings
from chatbot.errors import BudgetExceeded, ModelError, without_folders
from chatbot.memory import SessionHandle
from chatbot.memory.redaction import redact
from chatbot.messages import Delta, TextDelta, ToolCall, ToolSpec, Usage
from chatbot.models.base import Model
from chatbot.models.purpose import purpose
from chatbot.tools import Toolbox, ToolResult
from stores.base import TranscriptStore
from stores.errors import StoreError
from stores.records import TranscriptEntry

logger = logging.getLogger(__name__)

PURPOSE = "chat"
TITLE_PURPOSE = "title"
_RECENT_QUESTIONS = 3
"""How many of the user's last messages memory is asked about; one alone often leaves out what it is about."""
_TOOLS_SHARE = 2
"""Tools that take more than this part of the model's window are not offered."""
_MEMORY_SHARE = 6
"""The memory block takes at most this part of the model's window."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for every turn of a conversation."""

    persona: str
    agent: str
    settings: AgentSettings
    budget: BudgetSettings
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class Phase:
    """What the turn is waiting for from now on, in a few words, for those who watch."""

    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the user should know, and that did not stop the turn."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """The model asked for a tool, which now runs."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """What a tool answered."""

    result: ToolResult


Event = TextDelta | Phase | ToolStarted | ToolFinished | Notice
Emit = Callable[[Event], None]
Summarize = Callable[..., Awaitable[str]]
"""What a window left out, in short; see `summarize_episode`."""


class Turn:
    """One exchange. Made for one `run`; `emit` is told what happens, as it happens."""

    def __init__(
        self,
        text: str,
        *,
        model: Model,
        session: SessionHandle | None,
        rules: Rules,
        tools: Toolbox,
        ledger: Ledger,
        window: Window,
        remembrance: Remembrance | None,
        publisher: Publisher,
        receipt: Receipt,
        emit: Emit,
        clock: Callable[[], datetime],
        summarize: Summarize,
    ) -> None:
        self._text = text
        self._model = model
        self._session = session
        self._rules = rules
        self._tools = tools
        self._ledger = ledger
        self._window = window
        self._remembrance = remembrance
        self._publisher = publisher
        self._receipt = receipt
        self._emit = emit
        self._clock = clock
        self._summarize = summarize
        self._started = time.monotonic()
        self._written = 0
        self._unsaved: list[Said] = []
        self._results: list[ToolResult] = []
        self._is_dry_run = False
        self._recalled: Recalled | None = None
        self._aside = Aside()
        self._offered: tuple[ToolSpec, ...] | None = None
        self._keeps_transcript = session is not None and session.supports(TranscriptStore)

    async def run(self) -> Receipt:
        """Do it all. Raises `ModelError` or `BudgetExceeded`, the session then holding an `error` entry."""
        await self._write((USER, self._text))
        try:
            await self._converse()
        except asyncio.CancelledError:
            self._receipt.finish = "cancelled"
            await asyncio.shield(self._close())
            raise
        except (ModelError, BudgetExceeded) as error:
            await self._fail(error)
            raise
        await self._remember()
        try:
            await self._title_by_model()
        finally:
            await asyncio.shield(self._close())
        return self._receipt

    async def prompt(self) -> PromptBundle:
        """What the model would be sent. Writes nothing and asks nobody."""
        self._is_dry_run = True
        self._unsaved.append((USER, self._text))
        return await self._prompt()

    async def _converse(self) -> None:
        steps = self._rules.settings.tool_steps
        for step in range(steps + 1):
            calls = await self._ask(may_run_tools=step < steps)
            if not calls:
                return
            await self._run_tools(calls)

    async def _ask(self, *, may_run_tools: bool) -> list[ToolCall]:
        """One model call. Writes down what was said, and returns the tools to run before the next one."""
        prompt = await self._prompt()
        reply_tokens = await self._affordable(prompt)
        reply = Reply()
        started = time.monotonic()
        self._emit(Phase(f"waiting for {self._model.name}"))
        purpose.set(PURPOSE)
        try:
            stream = self._model.stream(prompt.messages, tools=await self._specs(), max_output_tokens=reply_tokens)
            async with aclosing(stream) as deltas:
                async for delta in deltas:
                    self._take(delta, reply)
        except (asyncio.CancelledError, ModelError) as error:
            await asyncio.shield(self._break_off(reply, prompt, started, error))
            raise
        usage = reply.finished.usage if reply.finished else await self._model.usage_of(prompt.tokens, reply.text)
        await self._bill(usage, time.monotonic() - started)
        return await self._write_reply(reply, may_run_tools=may_run_tools)

    def _take(self, delta: Delta, reply: Reply) -> None:
        reply.take(delta)
        if isinstance(delta, TextDelta):
            if self._receipt.first_text_seconds is None:
                self._receipt.first_text_seconds = time.monotonic() - self._started
            self._emit(delta)

    async def _write_reply(self, reply: Reply, *, may_run_tools: bool) -> list[ToolCall]:
        self._receipt.reply = reply.text
        reason = reply.finished.reason if reply.finished else "stop"
        self._receipt.finish = "stop" if reason == "tool_calls" else reason
        calls = reply.calls()
        said = [(ASSISTANT, reply.text)] if reply.text else []
        if calls and may_run_tools:
            said.append(said_tool_calls(calls))
        elif calls:
            self._receipt.finish = "tool_limit"
            self._notice("the model still asks for tools: raise tool_steps to let it go on")
        elif not said:
            self._receipt.finish = "empty"
            self._notice("the model returned an empty reply")
            said.append((ERROR, "the model returned an empty reply"))
        if said:
            await self._write(*said)
        return calls if may_run_tools else []

    async def _break_off(self, reply: Reply, prompt: PromptBundle, started: float, error: BaseException) -> None:
        """Keep what had arrived when the call was cancelled or failed, and bill it as well as we can."""
        self._receipt.reply = reply.text
        if reply.text or isinstance(error, asyncio.CancelledError):
            await self._bill(await self._model.usage_of(prompt.tokens, reply.text), time.monotonic() - started)
        if reply.text and isinstance(error, asyncio.CancelledError):
            await self._write((ASSISTANT, reply.text))

    async def _run_tools(self, calls: list[ToolCall]) -> None:
        for call in calls:
            self._emit(ToolStarted(call))
        results = await self._tools.run(calls)
        await self._write(*(said_tool_result(result.call.id, result.content) for result in results))
        for result in results:
            self._receipt.tools.append({"name": result.call.name, "error": result.is_error, **self._judged(result)})
            self._emit(ToolFinished(result))
            if self._session is not None:
                at = self._clock()
                event = ToolPost(session=self._session, turn=self._receipt.turn, at=at, result=result)
                await self._publisher.publish(event)
        self._results += results

    def _judged(self, result: ToolResult) -> dict[str, str]:
        """What the receipt says of an answer that reads like an instruction: it is data all the same, and is kept."""
        from chatbot.chat.rules import rule_against  # late, for they are many and the first prompt needs none

        rule = rule_against([result.content])
        if rule is None:
            return {}
        self._notice(f"what the tool {result.call.name} answered reads like an instruction ({rule}), and is only data")
        return {"reads_like": rule}

    async def _prompt(self) -> PromptBundle:
        entries = await self._read_window()
        said = [(entry.role, entry.content) for entry in entries] + self._unsaved
        if self._recalled is None:
            self._emit(Phase("recalling"))
            self._recalled = await self._recall(said)
            self._aside = await self._beside(self._recalled)
        prompt = await build_prompt(
            self._model,
            self._persona(),
            messages_of(said),
            tools=await self._specs(),
            reply_tokens=self._rules.max_output_tokens,
            aside=self._aside,
        )
        self._receipt.note_prompt(prompt, entries)
        return prompt

    async def _specs(self) -> tuple[ToolSpec, ...]:
        """The tools that the model is told of: as many as do not take too much of its window."""
        if self._offered is None:
            for complaint in await self._tools.complete():
                self._notice(complaint)
            self._offered = await self._fitting(self._tools.specs)
        return self._offered

    async def _fitting(self, specs: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        window = await self._model.context_window()
        room = window // _TOOLS_SHARE
        if not specs or await self._model.count_tokens([], specs) <= room:
            return specs
        kept = fitting(specs, {spec.name: await self._model.count_tokens([], [spec]) for spec in specs}, room)
        self._notice(left_out(specs, kept, window))
        return kept

    def _persona(self) -> str:
        return self._rules.persona if self._remembrance is None else f"{self._rules.persona}\n\n{system_notice()}"

    async def _recall(self, said: list[Said]) -> Recalled:
        """What memory holds on this, if anybody answers."""
        if self._session is None:
            return Recalled()
        event = PromptSubmit(
            session=self._session,
            turn=self._receipt.turn,
            at=self._receipt.at,
            said=tuple(content for role, content in said if role == USER)[-_RECENT_QUESTIONS:],
            since=self._window.since,
            most_tokens=await self._model.context_window() // _MEMORY_SHARE,
            dry_run=self._is_dry_run,
            remembrance=self._remembrance,
            notice=self._notice,
        )
        answers = await self._publisher.publish(event)
        recalled = next((answer for answer in answers if isinstance(answer, Recalled)), Recalled())
        self._receipt.memory = recalled.record
        return recalled

    async def _beside(self, recalled: Recalled) -> Aside:
        summary = ""
        try:
            if self._session is not None and self._keeps_transcript:
                summary = await self._summarize(self._session, self._window.since, save=self._written > 0)
        except StoreError as error:
            self._notice(f"what came before cannot be summed up: {error}")
        earlier = self._remembrance.before.text if self._remembrance else ""
        return Aside(summary=summary, block=recalled.text, earlier_block=earlier)

    async def _remember(self) -> None:
        """Count what was recalled as used, and tell what was said, so that it can be recalled later."""
        if self._session is None or self._recalled is None:
            return
        if self._remembrance is not None:
            await self._remembrance.note_use(self._recalled)
        event = TurnEnd(
            session=self._session,
            turn=self._receipt.turn,
            at=self._receipt.at,
            text=self._text,
            reply=self._receipt.reply,
            tools=tuple(self._results),
            recalled=self._recalled,
            remembrance=self._remembrance,
            notice=self._notice,
        )
        answered = replace(event, answers=tuple(await self._publisher.publish(event)))
        self._receipt.remembered = answered.kept

    async def _read_window(self) -> list[TranscriptEntry]:
        """The last entries, and all of this turn however many tools it ran."""
        if self._session is None or not self._keeps_transcript:
            return []
        own = self._written
        try:
            entries = await self._session.transcript_read_last(self._window.limit + own - 1)
            return self._window.cut(entries, max(own - 1, 0))
        except StoreError as error:
            self._notice(f"earlier messages cannot be read, so this turn goes without them: {error}")
            if (USER, self._text) not in self._unsaved:
                self._unsaved.insert(0, (USER, self._text))
            return []

    async def _affordable(self, prompt: PromptBundle) -> int:
        budget = self._rules.budget
        session = day = Bill()
        if self._session is not None and (budget.session_usd or budget.session_tokens):
            session = bill_of([*calls_in(await self._session.records()), *self._receipt.calls])
        if budget.day_usd or budget.day_tokens:
            day = await self._ledger.since(self._clock().replace(hour=0, minute=0, second=0, microsecond=0))
        return reply_within_budget(
            budget,
            session,
            day,
            prompt_tokens=prompt.tokens,
            reply_tokens=prompt.reply_tokens,
            price=await self._model.price(),
        )

    async def _bill(self, usage: Usage, seconds: float, purpose: str = PURPOSE) -> None:
        call = Call(self._clock(), self._receipt.session or "", purpose, self._receipt.model, usage, seconds)
        self._receipt.calls.append(call)
        try:
            await self._ledger.add(call)
        except StoreError as error:
            self._notice(f"the cost of this call could not be written to the bill: {error}")

    async def _write(self, *said: Said) -> None:
        """Add entries to the transcript, or keep them for this turn alone where that is not possible."""
        if self._session is None or not self._keeps_transcript:
            self._unsaved.extend(said)
            return
        try:
            entries = [TranscriptEntry(role, content, self._clock()) for role, content in said]
            await self._session.transcript_extend(entries)
            self._receipt.at = self._receipt.at if self._written else entries[0].at
            self._written += len(said)
        except StoreError as error:
            self._unsaved.extend(said)
            self._notice(f"this could not be saved, and will be forgotten: {error}")

    async def _fail(self, error: Exception) -> None:
        self._receipt.finish = "error"
        self._receipt.error = without_folders(str(error))
        partial = f"\n\nwhat had arrived:\n\n{self._receipt.reply}" if self._receipt.reply else ""
        await self._write((ERROR, f"{self._receipt.error}{partial}"))
        await self._close()

    async def _close(self) -> None:
        self._receipt.seconds = time.monotonic() - self._started
        if self._session is None:
            return
        try:
            if self._may_title():
                await self._title(title_of(redact(self._text)[0]))
            await self._session.receipt_append(self._receipt.as_json())
        except StoreError as error:
            self._notice(f"the receipt of this turn could not be saved: {error}")

    def _may_title(self) -> bool:
        """Whether the session has no title yet, or one that only greets and that nobody gave it."""
        title = "" if self._session is None else self._session.record.title
        return not title or (title == self._window.greeting and not is_greeting(self._text))

    async def _title(self, title: str) -> None:
        """Call the session that, unless somebody gave it a title meanwhile."""
        if self._session is not None and title:
            await self._session.entitle(title, instead_of=self._session.record.title)
            self._window.greeting = title if is_greeting(title) else ""
            if self._session.record.title == title:  # nobody gave it another one meanwhile
                self._receipt.title = title

    async def _title_by_model(self) -> None:
        """Ask the model what to call the session, where the settings say so; the rule does it where that fails."""
        if not (self._rules.settings.title_by_model and self._receipt.finish == "stop" and self._may_title()):
            return
        if self._session is None or is_greeting(self._text):
            return
        self._emit(Phase("looking for a title"))
        purpose.set(TITLE_PURPOSE)
        request = title_request(self._text, self._receipt.reply)
        prompt = PromptBundle(
            tuple(request), {"title": await self._model.count_tokens(request)}, reply_tokens=REPLY_TOKENS
        )
        reply = Reply()
        started = time.monotonic()
        try:
            most = await self._affordable(prompt)
            async with aclosing(self._model.stream(prompt.messages, max_output_tokens=most)) as deltas:
                async for delta in deltas:
                    reply.take(delta)
            usage = reply.finished.usage if reply.finished else await self._model.usage_of(prompt.tokens, reply.text)
            await self._bill(usage, time.monotonic() - started, TITLE_PURPOSE)
            await self._title(title_in(redact(reply.text)[0]))
        except asyncio.CancelledError:
            estimate = await self._model.usage_of(prompt.tokens, reply.text)
            await asyncio.shield(self._bill(estimate, time.monotonic() - started, TITLE_PURPOSE))
            raise
        except (ModelError, BudgetExceeded, StoreError) as error:
            self._notice(f"no model found a title for this session: {error}")

    def _notice(self, text: str) -> None:
        """Tell what does not work, and nothing of where our files are; guests are not told why, but the log is."""
        if self._session is not None and self._session.clearance != "full":
            logger.warning("%s", text)
            text = text.partition(": ")[0]
        text = without_folders(text)
        self._receipt.notices.append(text)
        self._emit(Notice(text))
