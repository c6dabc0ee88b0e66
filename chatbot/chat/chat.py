"""A conversation: a session, a model, and the rules by which they talk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from chatbot.chat.dialogue import USER
from chatbot.chat.episode import summarize_episode, take_back_episode
from chatbot.chat.events import Alone, Publisher
from chatbot.chat.ledger import Ledger
from chatbot.chat.prompt import PromptBundle
from chatbot.chat.receipts import Receipt
from chatbot.chat.remembrance import Remembrance
from chatbot.chat.turn import Emit, Rules, Turn
from chatbot.chat.usage import Bill, bill_of, calls_in
from chatbot.chat.window import Window
from chatbot.memory import SessionHandle
from chatbot.memory.record import new_id, utc_now
from chatbot.models.base import Model
from chatbot.tools import Toolbox
from stores.base import KeyValueStore, TranscriptStore
from stores.errors import InvalidValue, StoreError, UnsupportedOperation
from stores.records import TranscriptEntry, check_text, format_time, parse_time

COMPACTED = "compacted"
"""The key under which a session keeps from when on it was compacted to."""
_ENTRIES_AT_A_TIME = 50
_LEAST_TO_COMPACT = 2


@dataclass(frozen=True, slots=True)
class Compacted:
    """How many entries left the window, and the summary that stands for them."""

    entries: int
    summary: str


class Chat:
    """One conversation. `session` is None for an agent without stores: then every turn stands alone."""

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
    ) -> None:
        self.model = model
        self.session = session
        self.rules = rules
        self._ledger = ledger
        self._tools = tools or Toolbox()
        self._publisher = publisher or Alone()
        self._clock = clock
        self._order = asyncio.Lock() if session is None else session.turn_order
        self._receipts: list[Receipt] = []
        self._window = Window(rules.settings.window_entries)
        self._remembrance = Remembrance.of(session, rules.settings, clock)

    async def turn(self, text: str, emit: Emit = lambda _: None, *, max_output_tokens: int | None = None) -> Receipt:
        """Say `text`, and return the receipt, which holds the reply. `emit` gets what happens, as it happens.

        `max_output_tokens` shortens this reply alone. Turns of one session take their order. Cancelling keeps what was
        said so far. Raises `InvalidValue` for a text that is empty or cannot be kept, `ModelError`, or
        `BudgetExceeded`.
        """
        if not check_text(text, "the message").strip():
            raise InvalidValue("the message is empty")
        async with self._order:
            if self.session is not None:
                await self._publisher.begin(self.session)
            await self._begin_window()
            turn, receipt = self._turn(text, emit, max_output_tokens)
            self._receipts.append(receipt)
            return await turn.run()

    async def dry_run(self, text: str) -> tuple[PromptBundle, Receipt]:
        """What the model would be sent for `text`, and how it was chosen. Nothing is written, nobody is asked."""
        if not check_text(text, "the message").strip():
            raise InvalidValue("the message is empty")
        async with self._order:
            await self._begin_window()
            turn, receipt = self._turn(text, lambda _: None)
            return await turn.prompt(), receipt

    def _turn(self, text: str, emit: Emit, most: int | None = None) -> tuple[Turn, Receipt]:
        rules = self.rules
        if most is not None:
            rules = replace(rules, max_output_tokens=min(most, rules.max_output_tokens))
        receipt = Receipt(
            turn=str(new_id()),
            session=self.session.id if self.session else None,
            agent=self.rules.agent,
            model=self.model.name,
            at=self._clock(),
        )
        turn = Turn(
            text,
            model=self.model,
            session=self.session,
            rules=rules,
            tools=self._tools,
            ledger=self._ledger,
            window=self._window,
            remembrance=self._remembrance,
            publisher=self._publisher,
            receipt=receipt,
            emit=emit,
            clock=self._clock,
            summarize=self._summarize,
        )
        return turn, receipt

    async def take_back(self) -> list[TranscriptEntry]:
        """Remove the last exchange, from the user's entry on, and return it; empty where there is none.

        What was made of it goes too: what was remembered, captured and summed up. What it cost stays on the bill.
        """
        if self.session is None or not self.session.supports(TranscriptStore):
            return []
        while True:
            await self._publisher.settle(self.session)  # not within the order, for which some of it may wait
            async with self._order:
                if self._publisher.is_settled(self.session):
                    return await self._take_back(self.session)

    async def _take_back(self, session: SessionHandle) -> list[TranscriptEntry]:
        """The transcript comes last: what a failure leaves behind can be taken back again."""
        n = _ENTRIES_AT_A_TIME
        while True:
            entries = await session.transcript_read_last(n)
            asked = [at for at, entry in enumerate(entries) if entry.role == USER]
            if asked:
                since = entries[asked[-1]].at
                if self._remembrance:
                    await self._remembrance.take_back(since)
                if session.supports(KeyValueStore):
                    await take_back_episode(session, since)
                await session.take_back_turn(since)
                return await session.transcript_drop_last(len(entries) - asked[-1])
            if len(entries) < n:
                return []
            n *= 2

    async def asked_last(self) -> str | None:
        """What the user said last, as far as it is within the transcript's cap; None where that is nothing."""
        if self.session is None or not self.session.supports(TranscriptStore):
            return None
        entries = await self.session.transcript_read_last(_ENTRIES_AT_A_TIME)
        return next((entry.content for entry in reversed(entries) if entry.role == USER), None)

    async def compact(self) -> Compacted | None:
        """Begin the window with the last exchange, so that a summary stands for all before it; None where it does.

        Nothing is lost: the transcript stays as it is, and the window grows again. It holds for whoever goes on with
        the session later, too. Raises `UnsupportedOperation` where the session's stores can keep no summary.
        """
        if self.session is None or not self.session.supports(TranscriptStore):
            raise UnsupportedOperation("there is nothing to sum up: no transcript is kept")
        if not self.session.supports(KeyValueStore):
            raise UnsupportedOperation("this session has no key-value store, which would keep the summary")
        async with self._order:
            await self._begin_window()
            entries = self._window.cut(await self.session.transcript_read_last(self._window.limit), 0)
            asked = [at for at, entry in enumerate(entries) if entry.role == USER]
            if len(asked) < _LEAST_TO_COMPACT:
                return None
            self._window.since = entries[asked[-1]].at
            await self.session.kv_set(COMPACTED, format_time(self._window.since))
            summary = await self._summarize(self.session, self._window.since)
            return Compacted(asked[-1], summary)

    def use(self, model: Model, tools: Toolbox) -> None:
        """Go on with another model, and the tools that it is offered. Not while a turn runs."""
        self.model = model
        self._tools = tools

    async def _summarize(self, session: SessionHandle, since: datetime | None, *, save: bool = True) -> str:
        """What the window left out, in short."""
        return await summarize_episode(session, since, save=save)

    async def _begin_window(self) -> None:
        """Where the session was compacted, the window of a new conversation begins there too."""
        if self._window.since is not None or self.session is None or not self.session.supports(KeyValueStore):
            return
        with suppress(StoreError, ValueError):  # a window that begins too early does no harm
            if kept := await self.session.kv_get(COMPACTED):
                self._window.since = parse_time(kept)

    async def bill(self) -> Bill:
        """What this session has cost so far, in all processes and runs."""
        if self.session is not None:
            return bill_of(calls_in(await self.session.records()))
        return bill_of(call for receipt in self._receipts for call in receipt.calls)
