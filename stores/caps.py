"""Caps and lifetimes of rows. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from msgspec import Struct

from chatbot.stores.observation import PROTECTED_TYPES, Observation
from chatbot.stores.row_events import Event


class CapFields(Struct, frozen=True):
    """Fields that decide which rows are archived first. `number` is the order of addition."""

    id: str
    number: int
    type: str
    standing: float
    uses: int
    """Uses and mentions together."""

    @property
    def weight(self) -> tuple[bool, float, int]:
        """Sort key: the lowest goes first. Protected types are last, then by standing and use, then the oldest."""
        return (self.type in PROTECTED_TYPES, self.standing + 0.1 * math.log1p(self.uses), self.number)


def surplus(rows: Iterable[CapFields], cap: int) -> list[str]:
    """Return the ids to archive so that `cap` rows are left, least important first."""
    by_weight = sorted(rows, key=lambda row: row.weight)
    return [row.id for row in by_weight[: max(0, len(by_weight) - cap)]]


def is_overfull(active: int, cap: int) -> bool:
    """Return True if archiving is due: a tenth of slack keeps it rare."""
    return cap > 0 and active > cap + cap // 10


def archiving(ids: list[str], at: datetime, cap: int) -> Event:
    """Return the event that archives rows past a cap."""
    return Event(kind="archive", at=at, ids=tuple(ids), who="cap", why=f"more than {cap:,} memories")


def with_time_to_live(event: Event, ttl_days: float) -> Event:
    """Return the event with the default time to live for its new row."""
    row = event.row
    if not ttl_days or row is None or row.expires_at is not None or row.type in PROTECTED_TYPES:
        return event
    try:
        expires = row.created_at + timedelta(days=ttl_days)
    except OverflowError:
        return event  # the expiry is beyond the last date
    return replace(event, row=replace(row, expires_at=expires))


def weigh(row: Observation, number: int) -> CapFields:
    """Return the cap fields of a row."""
    return CapFields(row.id, number, row.type, row.standing, row.use_count + row.mention_count)
