"""What memory gives to a turn, and what it keeps of one. A failure here never fails the turn."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from chatbot.chat.memory_block import MemoryBlock, build_block
from chatbot.config import AgentSettings
from chatbot.memory import SessionHandle
from chatbot.memory.exchanges import EXCHANGE, exchange_draft
from chatbot.memory.memorability import Memorability
from chatbot.memory.recall import OVER_LIMIT, RECALLED
from chatbot.memory.recall import Recalled as Hit
from chatbot.models.tokens import estimate_text
from stores.access import View
from stores.base import ObservationStore
from stores.observation import Observation

AUTO = "auto"
"""The source of what hooks captured by themselves."""
_MOST_SHOWN = 200
_DEFAULT = Memorability()
Choose = Callable[[SessionHandle, Sequence[Hit], int, datetime], Awaitable[Sequence[Hit]]]
"""Which hits of a session, at most so many of them, a prompt of now shall hold."""
_TASKS_SHOWN = 3
_TOLD = 30
"""How many of the rows that were looked at a receipt tells of."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a turn was given: the block, and the record of how it was chosen."""

    block: MemoryBlock | None = None
    rows: tuple[Observation, ...] = ()
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The block as the model is shown it."""
        return self.block.text if self.block else ""

    @property
    def injected(self) -> tuple[str, ...]:
        """The ids of what is in the block."""
        return self.block.injected if self.block else ()


class Remembrance:
    """The memory of one conversation. `before` is what the last turn was given."""

    def __init__(self, session: SessionHandle, settings: AgentSettings, clock: Callable[[], datetime]) -> None:
        self._session = session
        self._settings = settings
        self._clock = clock
        self.before = Recalled()

    @classmethod
    def of(
        cls, session: SessionHandle | None, settings: AgentSettings, clock: Callable[[], datetime]
    ) -> Remembrance | None:
        """The memory of that conversation, or None where nothing is remembered."""
        if session is None or not session.supports(ObservationStore):
            return None
        return cls(session, settings, clock)

    async def recall(
        self, said: Sequence[str], *, since: datetime | None, most_tokens: int, choose: Choose | None = None
    ) -> Recalled:
        """What is remembered about what the user said last; `said` ends with the message to be answered.

        What the window shows from `since` on is left out, and so is what the last turn was given, for the model still
        sees it. In the first turn of a session, tasks that surface at start-up come first.
        `choose` picks among twice as many hits as there are places; without it the best are taken.
        """
        if not self._settings.recall_rows:
            return Recalled()
        most = self._settings.recall_rows
        exclude = {*await self._shown(since), *await self._own_summaries(), *self.before.injected}
        recollection = await self._session.recall(said, limit=most if choose is None else 2 * most, exclude=exclude)
        hits = recollection.hits
        if choose is not None:
            hits = tuple(await choose(self._session, hits, most, self._clock()))
        rows = [(each.observation, each.score) for each in hits if each.observation is not None]
        if len(said) == 1:
            rows = [(row, 1.0) for row in await self._startup_tasks()] + rows
        now = self._clock()
        block = build_block(
            rows,
            nonce=secrets.token_hex(4),
            view=View(self._session.clearance, now),
            now=now,
            budget_tokens=min(self._settings.recall_tokens, most_tokens),
            most=self._settings.recall_rows,
            count=estimate_text,
        )
        chosen = {each.id for each in hits}
        considered = [
            {
                "id": each.id,
                "score": round(each.score, 4),
                "parts": _rounded(each.parts),
                "verdict": OVER_LIMIT if each.verdict == RECALLED and each.id not in chosen else each.verdict,
            }
            for each in recollection.considered[:_TOLD]
        ]
        record = {
            "query": list(said),
            "considered": considered,
            "injected": list(block.injected),
            "left_out": [{"id": each, "why": why} for each, why in block.dropped],
        }
        return Recalled(block, tuple(row for row, _ in rows if row.id in block.injected), record)

    async def note_use(self, recalled: Recalled) -> None:
        """The model was shown what was recalled: that counts as a use of each row, and the next turn need not."""
        self.before = recalled
        await self._session.note_use(recalled.injected)

    async def keep(
        self,
        asked_at: datetime,
        text: str,
        reply: str,
        recalled: Recalled,
        *,
        memorability: Memorability | None = None,
    ) -> str | None:
        """Remember an exchange, word for word; its id, or None for small talk and mere repetition."""
        known = [row.text() for row in recalled.rows]
        draft = exchange_draft(asked_at, text, reply, gate=memorability or _DEFAULT, known=known)
        if not self._settings.remember_exchanges or draft is None:
            return None
        [kept] = await self._session.remember_all([draft])
        return kept.id

    async def take_back(self, since: datetime) -> None:
        """Erase the exchanges that were kept from `since` on, and what was captured beside them."""
        ids = await self._shown(since)
        if ids:
            await self._session.purge(*ids)
        self.before = Recalled()

    async def _startup_tasks(self) -> list[Observation]:
        """What is to be brought up when a session begins: tasks that are open and surface then."""
        tasks = await self._session.startup_tasks()
        return await self._session.get([task.id for task in tasks[:_TASKS_SHOWN]], count_use=False)

    async def _shown(self, since: datetime | None) -> Collection[str]:
        """What the transcript shows anyway: exchanges, and what was captured of them and of tools."""
        if since is None:
            return ()
        page = await self._session.list_observations(
            session_id=self._session.id, after=since, limit=_MOST_SHOWN, ask=("public", "private", "secret")
        )
        return [row.id for row in page.rows if row.type == EXCHANGE or row.source == AUTO]

    async def _own_summaries(self) -> Collection[str]:
        """What sums up this very session: its window and the summary of what left that tell it better."""
        return [row.id for row in await self._session.session_summaries(session_id=self._session.id)]


def _rounded(parts: Any) -> dict[str, float]:
    return {name: round(part, 4) for name, part in parts.items()}
