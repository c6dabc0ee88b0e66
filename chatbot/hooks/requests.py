"""Requests to memory on the bus: agents in the same process publish one, and are answered.

    [answer] = await context.publisher.publish(Retrieve(session=session, at=now, query="Where does Anna live?"))

A request acts as the holder of its session, with the rights of a tool: it sees and changes no more, and no more than
`MOST` things at once.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import datetime

from chatbot.errors import ChatbotError
from chatbot.memory import SessionHandle
from chatbot.memory.reading import Hit
from chatbot.memory.writing import AddResult, Draft
from chatbot.stores.errors import StoreError

logger = logging.getLogger(__name__)

MOST = 50
"""Hits or drafts of one request."""
MOST_TOKENS = 8_000
"""Tokens of all hits of one request."""
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieve:
    """Ask what is remembered."""

    session: SessionHandle
    at: datetime
    query: str
    limit: int = 10

    @property
    def topic(self) -> str:
        """The topic: `memory.<session id>.retrieve`."""
        return f"memory.{self.session.id}.retrieve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Ask to remember something."""

    session: SessionHandle
    at: datetime
    drafts: tuple[Draft, ...] = field(repr=False)

    @property
    def topic(self) -> str:
        """The topic: `memory.<session id>.update`."""
        return f"memory.{self.session.id}.update"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request: what was found or kept, or why not."""

    hits: tuple[Hit, ...] = ()
    kept: tuple[AddResult, ...] = ()
    error: str = ""


async def answered(request: Retrieve | Update) -> Answer:
    """Answer a request. Raises nothing but cancellation."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await _answer(request)
    except TimeoutError:
        return Answer(error=f"memory did not answer within {TIMEOUT_S:g} s")
    except (ChatbotError, StoreError) as error:
        logger.info("a request on %s was refused: %s", request.topic, error)
        return Answer(error=str(error))


async def _answer(request: Retrieve | Update) -> Answer:
    session = request.session.for_tools()
    if isinstance(request, Retrieve):
        limit = min(max(request.limit, 1), MOST)
        return Answer(hits=tuple(await session.memory.search(request.query, limit=limit, max_tokens=MOST_TOKENS)))
    if len(request.drafts) > MOST:
        return Answer(error=f"a request may have at most {MOST} drafts: it has {len(request.drafts)}")
    return Answer(kept=tuple(await session.memory.remember_all(request.drafts, keep_going=True)))
