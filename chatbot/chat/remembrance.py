"""What memory gives to a turn, and what it keeps of one. A failure here never fails the turn."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from chatbot.chat.memory_block import MemoryBlock, build_block
from chatbot.config import AgentSettings
from chatbot.memory import SessionHandle
from chatbot.memory.exchanges import EXCHANGE, exchange_draft
from chatbot.memory.memorability import Memorability
from chatbot.memory.recall import OVER_LIMIT, RECALLED
from chatbot.memory.recall import Recalled as Hit
from chatbot.memory.redaction import redact
from chatbot.models.tokens import estimate_text
from stores.access import SENSITIVITIES, View
from stores.base import ObservationStore
from stores.errors import UnknownObservation
from stores.observation import STATUSES, Observation
from stores.query import Version

AUTO = "auto"
"""The source of what hooks captured by themselves."""
_MOST_SHOWN = 200
_DEFAULT = Memorability()
Choose = Callable[[SessionHandle, Sequence[Hit], int, datetime], Awaitable[Sequence[Hit]]]
"""Which hits of a session, at most so many of them, a prompt of now shall hold."""
_TASKS_SHOWN = 3
_LASTING = ("decision", "preference", "identity")
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
        sees it. In the first turn of a session, tasks that surface at start-up come first, and titles of what lasts
        come last, as far as that is wanted.
        `choose` picks among twice as many hits as there are places; without it the best are taken.
        """
        if not self._settings.recall_rows:
            return Recalled()
        most = self._settings.recall_rows
        await self._drop_outdated()
        exclude = {*await self._shown(since), *await self._own_summaries(), *self.before.injected}
        recollection = await self._session.recall(said, limit=most if choose is None else 2 * most, exclude=exclude)
        hits = recollection.hits
        if choose is not None:
            hits = tuple(await choose(self._session, hits, most, self._clock()))
        rows = [(each.observation, each.score) for each in hits if each.observation is not None]
        index: Sequence[Observation] = ()
        if len(said) == 1:
            rows = [(row, 1.0) for row in await self._startup_tasks()] + rows
            index = await self._index()
        now = self._clock()
        block = build_block(
            rows,
            index,
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
            "query": [redact(text)[0] for text in said[-1:]],  # what was said before stands in its own receipt alone
            "looked_back": len(said) - 1,
            "considered": considered,
            "injected": list(block.injected),
            "left_out": [{"id": each, "why": why} for each, why in block.dropped],
        }
        if block.listed:
            record["listed"] = list(block.listed)
        given = {row.id: row for row in [*(row for row, _ in rows), *index]}
        return Recalled(block, tuple(given[each] for each in (*block.injected, *block.listed)), record)

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
        """Erase what was kept of the turn that began then, and what was made of that, facts and summaries too."""
        session, end = self._session, self._clock() + timedelta.resolution  # for the clock may have been set back
        self.before = Recalled()
        rows = await session.every(session_id=session.id, after=since, before=end, ask=SENSITIVITIES, statuses=STATUSES)
        ids = [row.id for row in rows if row.type == EXCHANGE or row.source == AUTO]
        ids += [row.id for row in await session.session_summaries(session_id=session.id, ask=SENSITIVITIES)
                if row.updated_at >= since]  # fmt: skip
        facts = await session.query_facts(subject=f"session:{session.id}", ask=SENSITIVITIES)
        ids += [fact.id for fact in facts if since <= fact.created_at < end]
        if ids:
            if replaced := await self._replaced_by(ids):
                await session.restore(*replaced)
            await session.purge(*ids, untell=False)

    async def _replaced_by(self, ids: Sequence[str]) -> list[str]:
        """What facts made from these rows took the place of, or denied, and what nothing else has changed since."""
        facts = await self._session.every(derived_from=ids, ask=SENSITIVITIES, statuses=STATUSES)
        made = [(fact.id, old) for fact in facts for old in await self._made_for(fact.id)]
        return [old for fact, old in made if (life := await self._life(old)) and life.events[-1].by == fact]

    async def _made_for(self, observation_id: str) -> list[str]:
        """What went as the row came: that it took the place of, or denied."""
        life = await self._life(observation_id)
        return [old for old in (life.events[0].supersedes, life.events[0].forgets) if old] if life else []

    async def _life(self, observation_id: str) -> Version | None:
        """The row and what happened to it; None where it is gone or hidden."""
        try:
            line = await self._session.history(observation_id, ask=SENSITIVITIES)
        except UnknownObservation:
            return None
        return next(life for life in line if life.observation.id == observation_id)

    async def _drop_outdated(self) -> None:
        """What the last turn was given is shown no more once a row of it was changed, forgotten or hidden."""
        given = {row.id: row.hash for row in self.before.rows}
        if given:
            rows = await self._session.get(list(given), count_use=False)
            if {row.id: row.hash for row in rows} != given:
                self.before = Recalled()

    async def _startup_tasks(self) -> list[Observation]:
        """What is to be brought up when a session begins: tasks that are open and surface then."""
        tasks = await self._session.startup_tasks()
        return await self._session.get([task.id for task in tasks[:_TASKS_SHOWN]], count_use=False)

    async def _index(self) -> Sequence[Observation]:
        """What is meant to last, newest first, so that a model knows what there is to be asked for."""
        most = self._settings.index_rows
        return (await self._session.list_observations(types=_LASTING, limit=most)).rows if most else ()

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
