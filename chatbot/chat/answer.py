"""One answer without a session: nothing is recalled and nothing is kept, but the bill."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from chatbot.chat.budget import reply_within_budget
from chatbot.chat.ledger import Ledger
from chatbot.chat.usage import Bill, Call
from chatbot.config import BudgetSettings
from chatbot.errors import ContextTooLong
from chatbot.messages import Delta, Finished, Message, TextDelta, ToolCallDelta, ToolSpec
from chatbot.models.base import Model
from chatbot.models.purpose import purpose

PURPOSE = "answer"


async def answer(
    model: Model,
    messages: Sequence[Message],
    *,
    tools: Sequence[ToolSpec] = (),
    max_output_tokens: int,
    budget: BudgetSettings,
    ledger: Ledger,
) -> AsyncGenerator[Delta, None]:
    """Ask the model just that; its deltas, `Finished` last. However it ends, what arrived is on the bill.

    Raises `BudgetExceeded`, `ContextTooLong`, or whatever `ModelError` the model raises.
    """
    tokens = await model.count_tokens(messages, tools)
    room = await model.context_window() - tokens
    if room < 1:
        raise ContextTooLong(f"the messages take about {tokens} tokens, more than the window of {model.name} holds")
    most = reply_within_budget(
        budget,
        Bill(),
        await _spent_today(budget, ledger),
        prompt_tokens=tokens,
        reply_tokens=min(max_output_tokens, room),
        price=await model.price(),
    )
    purpose.set(PURPOSE)
    started, written, finished = time.monotonic(), "", None
    try:
        async with aclosing(model.stream(messages, tools=tools, max_output_tokens=most)) as deltas:
            async for delta in deltas:
                if isinstance(delta, TextDelta):
                    written += delta.text
                elif isinstance(delta, ToolCallDelta):
                    written += delta.arguments
                else:
                    finished = delta
                yield delta
    finally:
        if finished or written:
            await asyncio.shield(
                _bill(model, ledger, tokens, written, finished=finished, seconds=time.monotonic() - started)
            )


async def _spent_today(budget: BudgetSettings, ledger: Ledger) -> Bill:
    if not (budget.day_usd or budget.day_tokens):
        return Bill()
    return await ledger.since(datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0))


async def _bill(
    model: Model, ledger: Ledger, tokens: int, written: str, *, finished: Finished | None, seconds: float
) -> None:
    usage = finished.usage if finished else await model.usage_of(tokens, written)
    await ledger.add(Call(datetime.now(UTC), "", PURPOSE, model.name, usage, seconds))
