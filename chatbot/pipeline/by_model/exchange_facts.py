"""From an exchange that is over to the facts that are remembered of it: asked without a lock, written between turns.

What comes too late is dropped: facts of an exchange that was taken back, forgotten or hidden meanwhile. What is written
is written whole, even where whoever asked for it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from chatbot.memory import SessionHandle
from chatbot.pipeline.by_model.errands import Errand
from chatbot.pipeline.by_model.facts import Extracted, extract
from chatbot.pipeline.by_model.learning import Learned, Origin, apply, plan
from stores.access import Guard
from stores.observation import Observation

T = TypeVar("T")
_SAID_AT_ONCE = 5


@dataclass(frozen=True, slots=True)
class Said:
    """What was said in a turn that began `at` a time, and what its prompt held from memory."""

    at: datetime
    text: str
    reply: str
    recalled: Sequence[Observation] = ()


async def learn_from(said: Said, session: SessionHandle, errand: Errand) -> tuple[Extracted, Sequence[Learned]]:
    """Take the facts out of an exchange and remember them; what became of them.

    They are as strict as the observation that keeps the exchange. Where none does, it was small talk, and no model is
    asked. Raises a `ModelError`, `BudgetExceeded` or `StoreError`; then nothing of it is kept.
    """
    source = await _kept(said, session)
    if source is None:
        return Extracted(), ()
    extracted = await extract(errand, [("person said", said.text), ("bot replied", said.reply)], at=said.at)
    extracted = extracted.without_recalled(said.text, said.recalled)
    if not extracted.facts:
        return extracted, ()
    origin = Origin(session.agent_id, Guard.of(source), (source.id,), said.at)
    steps = await plan(extracted.facts, session, errand, origin)
    async with session.turn_order:  # nobody takes the exchange back while its facts are written
        if await _kept(said, session) is None:
            return extracted, ()
        return extracted, await whole(apply(steps, session, origin))


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """The outcome of work that is done to its end once it has begun, even where whoever waits for it is cancelled."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _kept(said: Said, session: SessionHandle) -> Observation | None:
    """The observation that keeps the exchange, if there is one, and it is not delicate."""
    page = await session.list_observations(
        types=("exchange",),
        session_id=session.id,
        agent_id=session.agent_id,
        after=said.at,
        order="created",
        ascending=True,
        limit=_SAID_AT_ONCE,
    )
    return next((row for row in page.rows if row.created_at == said.at), None)
