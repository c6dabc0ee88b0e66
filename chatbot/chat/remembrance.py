"""What memory gives to a turn, and what it keeps of one. A failure here never fails the turn."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from chatbot.chat.memory_block import MemoryBlock, build_block
from chatbot.config import AgentSettings
from chatbot.memory import SessionHandle
from chatbot.models.tokens import estimate_text
from stores.access import View
from stores.analysis import terms
from stores.base import ObservationStore
from stores.observation import Observation

EXCHANGE = "exchange"
_PLEASANTRIES = "hi hello hey good morning evening night day thanks thank you bye welcome nice great cool"
_LEAST_ASKED = 2
_LEAST_ANSWERED = 6
"""An exchange with fewer content words in both, pleasantries aside, is small talk and not kept."""
_REPEATED = 0.8
"""Share of a reply's words that may stand in what was recalled before it counts as a mere repetition."""
_TASKS_SHOWN = 3
_LONGEST = 100_000
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

    async def recall(self, said: Sequence[str], *, since: datetime | None, most_tokens: int) -> Recalled:
        """What is remembered about what the user said last; `said` ends with the message to be answered.

        What the window shows from `since` on is left out, and so is what the last turn was given, for the model still
        sees it. In the first turn of a session, tasks that surface at start-up come first.
        """
        if not self._settings.recall_rows:
            return Recalled()
        shown = await self._shown(since)
        recollection = await self._session.recall(
            said, limit=self._settings.recall_rows, exclude={*shown, *self.before.injected}
        )
        rows = [(each.observation, each.score) for each in recollection.hits if each.observation is not None]
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
        considered = [
            {"id": each.id, "score": round(each.score, 4), "parts": _rounded(each.parts), "verdict": each.verdict}
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

    async def keep(self, asked_at: datetime, text: str, reply: str, recalled: Recalled) -> str | None:
        """Remember an exchange, word for word; its id, or None for small talk and mere repetition."""
        if not self._settings.remember_exchanges or not is_worth_keeping(text, reply, recalled.rows):
            return None
        kept = await self._session.remember(
            type=EXCHANGE,
            user_text=text[:_LONGEST],
            assistant_text=reply[:_LONGEST],
            created_at=asked_at,
            source="chat",
        )
        return kept.id

    async def take_back(self, since: datetime) -> None:
        """Erase the exchanges that were kept from `since` on."""
        ids = await self._exchanges(since)
        if ids:
            await self._session.purge(*ids)
        self.before = Recalled()

    async def _startup_tasks(self) -> list[Observation]:
        """What is to be brought up when a session begins: tasks that are open and surface then."""
        tasks = await self._session.startup_tasks()
        return await self._session.get([task.id for task in tasks[:_TASKS_SHOWN]], count_use=False)

    async def _shown(self, since: datetime | None) -> Collection[str]:
        return await self._exchanges(since) if since is not None else ()

    async def _exchanges(self, since: datetime) -> list[str]:
        page = await self._session.list_observations(
            session_id=self._session.id, types=(EXCHANGE,), after=since, limit=100, ask=("public", "private", "secret")
        )
        return [row.id for row in page.rows]


def is_worth_keeping(text: str, reply: str, recalled: Sequence[Observation] = ()) -> bool:
    """Whether an exchange says anything: no small talk, no question whose answer only repeats what was recalled."""
    pleasantries = set(terms(_PLEASANTRIES))
    asked, answered = set(terms(text)) - pleasantries, set(terms(reply)) - pleasantries
    if len(asked) < _LEAST_ASKED and len(answered) < _LEAST_ANSWERED:
        return False
    known = {word for row in recalled for word in terms(row.text())}
    is_question = text.rstrip().endswith(("?", "?"))
    return not (known and answered and is_question and len(answered & known) >= _REPEATED * len(answered))


def _rounded(parts: Any) -> dict[str, float]:
    return {name: round(part, 4) for name, part in parts.items()}
