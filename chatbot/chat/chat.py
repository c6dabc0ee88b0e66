"""A conversation: a session, a model, and the rules by which they talk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from chatbot.chat.dialogue import USER
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
from stores.base import TranscriptStore
from stores.errors import InvalidValue
from stores.records import TranscriptEntry, check_text

_ENTRIES_AT_A_TIME = 50


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
            turn, receipt = self._turn(text, emit, max_output_tokens)
            self._receipts.append(receipt)
            return await turn.run()

    async def dry_run(self, text: str) -> tuple[PromptBundle, Receipt]:
        """What the model would be sent for `text`, and how it was chosen. Nothing is written, nobody is asked."""
        if not check_text(text, "the message").strip():
            raise InvalidValue("the message is empty")
        async with self._order:
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
        )
        return turn, receipt

    async def take_back(self) -> list[TranscriptEntry]:
        """Remove the last exchange, from the user's entry on, and return it; empty where there is none."""
        if self.session is None or not self.session.supports(TranscriptStore):
            return []
        async with self._order:
            await self._publisher.settle(self.session)
            n = _ENTRIES_AT_A_TIME
            while True:
                entries = await self.session.transcript_read_last(n)
                asked = [at for at, entry in enumerate(entries) if entry.role == USER]
                if asked:
                    taken = await self.session.transcript_drop_last(len(entries) - asked[-1])
                    if self._remembrance and taken:
                        await self._remembrance.take_back(taken[0].at)
                    return taken
                if len(entries) < n:
                    return []
                n *= 2

    async def bill(self) -> Bill:
        """What this session has cost so far, in all processes and runs."""
        if self.session is not None:
            return bill_of(calls_in(await self.session.records()))
        return bill_of(call for receipt in self._receipts for call in receipt.calls)
