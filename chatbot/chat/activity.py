"""Figures of each day of a range: turns, recalls, new memories, and cost. Days are UTC.

Everything is read from its newest end, no further back than the range, so that asking for a month costs a month.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from chatbot.chat.ledger import Call
from chatbot.memory import MemorySystem, SessionRecord
from chatbot.memory.memory import Memory
from chatbot.stores.observation import Status
from chatbot.stores.query import MOST_AT_ONCE
from chatbot.stores.records import parse_time

_CREATED: tuple[Status, ...] = ("active", "superseded", "expired", "archived", "compressed")
_SESSIONS_AT_ONCE = 64


@dataclass(slots=True)
class Day:
    """One day. A turn is a hit if its prompt had at least one memory."""

    date: date
    turns: int = 0
    recalls: int = 0
    """Turns that searched memory."""
    hits: int = 0
    considered: int = 0
    injected: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    remembered: Counter[str] = field(default_factory=Counter)
    """The number of new observations, by type."""

    def as_json(self) -> dict[str, Any]:
        """Return the day as a record."""
        figures = {name: getattr(self, name) for name in self.__slots__ if name not in {"date", "remembered"}}
        return {"date": self.date.isoformat(), **figures, "remembered": dict(self.remembered)}


class Activity:
    """The days from `since` to `until`, both included."""

    def __init__(self, since: date, until: date) -> None:
        self.days = [Day(since + timedelta(days=n)) for n in range((until - since).days + 1)]
        self._since = since

    @classmethod
    def of_last(cls, days: int, now: datetime) -> Activity:
        """Make the last `days` days, today included."""
        today = now.astimezone(UTC).date()
        return cls(today - timedelta(days=max(days, 1) - 1), today)

    @property
    def since(self) -> datetime:
        """Start of the first day."""
        return datetime.combine(self._since, datetime.min.time(), UTC)

    def day(self, moment: datetime) -> Day | None:
        """Return the day of a moment, if it is in the range."""
        number = (moment.astimezone(UTC).date() - self._since).days
        return self.days[number] if 0 <= number < len(self.days) else None

    def add_calls(self, calls: Iterable[Call]) -> None:
        """Count model calls."""
        for call in calls:
            if day := self.day(call.at):
                day.calls += 1
                day.input_tokens += call.usage.input_tokens
                day.output_tokens += call.usage.output_tokens
                day.cost_usd += call.usage.cost_usd or 0.0

    def add_receipts(self, receipts: Iterable[Mapping[str, Any]]) -> None:
        """Count turns, by their receipts; one that a hand edit broke counts as none."""
        for receipt in receipts:
            try:
                day, memory = self.day(parse_time(receipt["at"])), receipt.get("memory") or {}
                considered, injected = len(memory.get("considered") or ()), len(memory.get("injected") or ())
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
            if day:
                day.turns += 1
                day.recalls += bool(memory)
                day.hits += injected > 0
                day.considered += considered
                day.injected += injected

    def hit_rate(self) -> float | None:
        """Return the share of recalling turns whose prompt had a memory; None if no turn recalled."""
        recalls = sum(day.recalls for day in self.days)
        return sum(day.hits for day in self.days) / recalls if recalls else None


async def count_turns(activity: Activity, memory: MemorySystem) -> None:
    """Count the turns of every session that was used in the range."""
    for record in await _used_since(memory, activity.since):
        session = await memory.load_session(record.id, any_agent=True)
        activity.add_receipts(await session.receipts_since(activity.since))


async def count_remembered(activity: Activity, memories: Memory) -> None:
    """Count the observations that were made in the range, without forgotten ones."""
    cursor: str | None = None
    while True:
        page = await memories.list_observations(
            order="created", after=activity.since, statuses=_CREATED, limit=MOST_AT_ONCE, cursor=cursor
        )
        for row in page.rows:
            if day := activity.day(row.created_at):
                day.remembered[row.type] += 1
        if (cursor := page.after) is None:
            return


async def _used_since(memory: MemorySystem, since: datetime) -> list[SessionRecord]:
    """Return the sessions used since then, read in growing pages: few may be needed."""
    limit = _SESSIONS_AT_ONCE
    while True:
        records = await memory.list_sessions(limit=limit)
        if len(records) < limit or records[-1].used_at < since:
            return [record for record in records if record.used_at >= since]
        limit *= 4
