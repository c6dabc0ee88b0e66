"""Model calls beside the conversation: each has a purpose, limits that are checked before it, and a line on the bill.

No lock is held while a model is asked. What broke off is billed by our own count.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from chatbot.chat.budget import Limit, limits_of, reply_within
from chatbot.chat.ledger import Ledger
from chatbot.chat.usage import Bill, Call, bill_of, calls_in
from chatbot.config import BudgetSettings, ExtractionSettings, ModelSettings
from chatbot.errors import ContextTooLong, ModelError, ModelTimeout, RequestRefused
from chatbot.memory import SessionHandle
from chatbot.memory.record import utc_now
from chatbot.messages import Finished, Message, TextDelta, Usage
from chatbot.models.base import Model
from chatbot.models.purpose import purpose as purpose_of_call
from chatbot.pipeline.hook import HookContext
from stores.errors import StoreError
from stores.lifecycle import AsyncResource
from stores.records import format_time

logger = logging.getLogger(__name__)

Purpose = Literal["extract", "reconcile", "summarize"]
PURPOSES: tuple[Purpose, ...] = ("extract", "reconcile", "summarize")
_LONGEST_REPLY = 200_000
"""Characters after which a reply that does not end is broken off."""
_LARGEST_REPLY_SHARE = 2


def settings_of_model(chat: ModelSettings, settings: ExtractionSettings) -> ModelSettings | None:
    """The model that `[extraction]` names, None where it is the one that chats. It answers as evenly as it can."""
    if not settings.model:
        return None
    return ModelSettings(
        name=settings.model,
        api_key=settings.api_key,
        api_base=settings.api_base,
        temperature=0.0,
        max_output_tokens=settings.max_output_tokens,
        timeout_s=settings.timeout_s,
        retries=chat.retries,
        input_usd_per_million=settings.input_usd_per_million,
        output_usd_per_million=settings.output_usd_per_million,
        script=chat.script,
    )


@dataclass(frozen=True, slots=True)
class Clerk:
    """What calls are made with: the model, what they may cost, and the bill. The model is the owner's to close."""

    model: Model
    settings: ExtractionSettings
    budget: BudgetSettings
    ledger: Ledger
    clock: Callable[[], datetime] = utc_now

    def errand(self, session: SessionHandle | None = None) -> Errand:
        """A piece of work, which may take several calls."""
        return Errand(self, session)


class ClerkOf(AsyncResource):
    """From settings to a clerk. Opens the model of `[extraction]` when it is needed, where it is not the chat's."""

    def __init__(self, context: HookContext) -> None:
        self._context = context
        self._own: Model | None = None

    def clerk(self) -> Clerk:
        """The clerk. Raises what opening a model raises."""
        context, config = self._context, self._context.config
        other = settings_of_model(config.model, config.extraction)
        if other is not None and self._own is None:
            self._own = context.open_model(other)
        return Clerk(self._own or context.model, config.extraction, config.budget, context.ledger, context.clock)

    async def aclose(self) -> None:
        """Close the model that was opened, and not the chat's. May be called twice."""
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()


@dataclass(slots=True)
class _Reply:
    text: str = ""
    usage: Usage | None = None


@dataclass(slots=True)
class Errand:
    """One piece of work for a session, or for none."""

    clerk: Clerk
    session: SessionHandle | None
    calls: list[Call] = field(default_factory=list)
    """What was billed so far."""

    async def room(self) -> int:
        """How many tokens a prompt may take beside the longest reply."""
        window = await self.clerk.model.context_window()
        return window - min(self.clerk.settings.max_output_tokens, window // _LARGEST_REPLY_SHARE)

    async def ask(
        self, purpose: Purpose, messages: Sequence[Message], *, schema: Mapping[str, Any] | None = None
    ) -> str:
        """The reply, held to `schema` where the model can be. Raises a `ModelError` or `BudgetExceeded`."""
        limit = await self._affordable(messages)
        if schema is not None and await self.clerk.model.json_mode():
            try:
                return await self._call(purpose, messages, limit, schema)
            except RequestRefused:
                limit = await self._affordable(messages)  # LiteLLM's tables promised too much: asked in words alone
        return await self._call(purpose, messages, limit, None)

    async def note(self, kind: str, **record: Any) -> None:
        """Keep what was done in the receipts of the session, with its calls, so that they are on its bill."""
        if self.session is None:
            return
        line = {"version": 1, "kind": kind, "at": format_time(self.clerk.clock()), **record}
        calls, self.calls = self.calls, []
        await self.session.receipt_append(line | {"calls": [call.as_json() for call in calls]})

    async def _call(
        self, purpose: Purpose, messages: Sequence[Message], limit: int, schema: Mapping[str, Any] | None
    ) -> str:
        model, begun = self.clerk.model, time.monotonic()
        reply = _Reply()
        purpose_of_call.set(purpose)
        try:
            async with asyncio.timeout(self.clerk.settings.timeout_s):
                stream = model.stream(messages, max_output_tokens=limit, json_schema=schema)
                async with aclosing(stream) as deltas:
                    async for delta in deltas:
                        _take(delta, reply)
                        if len(reply.text) > _LONGEST_REPLY:
                            break
        except (asyncio.CancelledError, ModelError, TimeoutError) as error:
            if reply.text or not isinstance(error, ModelError):
                await asyncio.shield(self._bill(purpose, messages, reply, time.monotonic() - begun))
            if isinstance(error, TimeoutError) and not isinstance(error, ModelError):
                seconds = self.clerk.settings.timeout_s
                raise ModelTimeout(f"{model.name}: no whole reply within {seconds:g} s: raise timeout_s") from error
            raise
        await self._bill(purpose, messages, reply, time.monotonic() - begun)
        return reply.text

    async def _affordable(self, messages: Sequence[Message]) -> int:
        """How long the reply may be. Raises `BudgetExceeded`, or `ContextTooLong` where the prompt does not fit."""
        clerk = self.clerk
        tokens, room = await clerk.model.count_tokens(messages), await self.room()
        if tokens > room:
            raise ContextTooLong(f"{clerk.model.name} has no room for a prompt of {tokens} tokens: it has {room}")
        return reply_within(
            await self._limits(),
            prompt_tokens=tokens,
            reply_tokens=min(clerk.settings.max_output_tokens, await clerk.model.context_window() - tokens),
            price=await clerk.model.price(),
        )

    async def _limits(self) -> list[Limit]:
        clerk, budget = self.clerk, self.clerk.budget
        session = day = Bill()
        if self.session is not None and (budget.session_usd or budget.session_tokens):
            session = bill_of([*calls_in(await self.session.records()), *self.calls])
        if budget.day_usd or budget.day_tokens or clerk.settings.budget_usd:
            day = await clerk.ledger.since(clerk.clock().replace(hour=0, minute=0, second=0, microsecond=0))
        return [*limits_of(budget, session, day), *_own_limit(clerk.settings, day)]

    async def _bill(self, purpose: Purpose, messages: Sequence[Message], reply: _Reply, seconds: float) -> None:
        model = self.clerk.model
        usage = reply.usage or await model.usage_of(await model.count_tokens(messages), reply.text)
        session = self.session.id if self.session is not None else ""
        call = Call(self.clerk.clock(), session, purpose, model.name, usage, seconds)
        self.calls.append(call)
        try:
            await self.clerk.ledger.add(call)
        except StoreError as error:
            logger.warning("the cost of a call could not be written to the bill: %s", error)


def _take(delta: object, reply: _Reply) -> None:
    if isinstance(delta, TextDelta):
        reply.text += delta.text
    elif isinstance(delta, Finished):
        reply.usage = delta.usage


def _own_limit(settings: ExtractionSettings, day: Bill) -> Iterator[Limit]:
    if settings.budget_usd:
        spent = sum(day.by_purpose[purpose].cost_usd for purpose in PURPOSES if purpose in day.by_purpose)
        yield Limit(
            "budget_usd", "USD", settings.budget_usd, spent, "raise it in [extraction], or wait for the next day"
        )
