"""What can be asked of an observation store, and the shapes of its answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from stores.consolidation import Decay, consolidated
from stores.errors import InvalidValue
from stores.events import Event
from stores.observation import Observation, Status, Triple, Type, fold

Order = Literal["created", "updated"]
Labelled = Literal[
    "type", "agent_id", "session_id", "project", "subject", "category", "tags", "concepts", "people", "files"
]
"""The fields by whose values rows can be counted."""

EXACT = frozenset({"agent_id", "session_id", "derived_from"})
"""The fields that are compared as they are; in all others case and width of characters make no difference."""

MOST_AT_ONCE = 1_000
"""The longest page that a store returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which rows are wanted: those that fit every field that is set. Of several values in one field, any will do.

    Names, tags, subjects and files are compared without case. `after` is inclusive, `before` exclusive, and both are
    about `created_at`. A row past its time counts as expired, whatever its status says.
    """

    types: tuple[Type, ...] = ()
    agent_id: str | None = None
    session_id: str | None = None
    project: str | None = None
    subject: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Keys that must be there, with exactly these values."""
    visibilities: tuple[str, ...] = ()
    after: datetime | None = None
    before: datetime | None = None
    quiet_since: datetime | None = None
    """Nothing has happened to the row since then: see `Observation.quiet_since`."""
    fading: Decay | None = None
    """Rows that consolidation would change: see `stores.consolidation`."""
    min_importance: float = 0
    statuses: tuple[Status, ...] = ("active",)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list. `after` is what to ask for next, or None at the end."""

    rows: tuple[Observation, ...]
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """A row that was found, with its lexical score and what ranking goes by."""

    id: str
    score: float
    type: Type
    session_id: str | None
    created_at: datetime
    updated_at: datetime
    importance: float = 0.5
    """As time and use have changed it; see `Observation.rank`."""
    mention_count: int = 0
    use_count: int = 0
    confirmed_count: int = 0

    @classmethod
    def of(cls, row: Observation, score: float = 0.0) -> Match:
        """A row as something found."""
        return cls(
            row.id,
            score,
            row.type,
            row.session_id,
            row.created_at,
            row.updated_at,
            row.rank,
            row.mention_count,
            row.use_count,
            row.confirmed_count,
        )


@dataclass(frozen=True, slots=True)
class Version:
    """One observation of a line of succession, with the events that it went through, oldest first."""

    observation: Observation
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Facet:
    """A value of a field: in how many rows it stands, when it was last written, and how the newest row spells it."""

    value: str
    count: int
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FactFilter:
    """Which triples are wanted. Texts are compared without case."""

    subject: str | None = None
    predicate: str | None = None
    object: str | None = None
    source: str | None = None
    sources: frozenset[str] = frozenset()
    """Any of these will do; none: whatever it was taken from."""
    session_id: str | None = None
    min_confidence: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counts of what the caller may see, and what it takes on the disk, in bytes."""

    by_status: Mapping[str, int]
    by_type: Mapping[str, int]
    by_visibility: Mapping[str, int]
    facts: int
    journal_bytes: int = 0
    cache_bytes: int = 0


@dataclass(frozen=True, slots=True)
class VectorStats:
    """Which model made the vectors that are kept, empty where there are none, and how many current rows have one."""

    model: str
    dimension: int
    embedded: int
    missing: int


Progress = Callable[[int, int], None]
"""Called with how many rows are done, and how many there are."""


def status_now(row: Observation, now: datetime) -> Status:
    """The row's status, with the time that has passed taken into account."""
    return "expired" if row.status == "active" and not row.is_current(now) else row.status


def fits(row: Observation, wanted: Filter, now: datetime) -> bool:
    """Whether `wanted` lets the row through. The gate is not its business."""
    return (
        status_now(row, now) in wanted.statuses
        and (not wanted.types or row.type in wanted.types)
        and (not wanted.visibilities or row.visibility in wanted.visibilities)
        and all(_same(getattr(row, name), getattr(wanted, name)) for name in ("agent_id", "session_id"))
        and all(
            asked is None or fold(getattr(row, name)) == fold(asked)
            for name in ("project", "subject", "category")
            for asked in [getattr(wanted, name)]
        )
        and all(_any(getattr(wanted, name), values_of(row, name)) for name in ("tags", "concepts", "people", "files"))
        and (not wanted.derived_from or not set(wanted.derived_from).isdisjoint(row.derived_from))
        and all(
            key in row.metadata and written(row.metadata[key]) == written(asked)
            for key, asked in wanted.metadata.items()
        )
        and (wanted.after is None or row.created_at >= wanted.after)
        and (wanted.before is None or row.created_at < wanted.before)
        and row.importance >= wanted.min_importance
        and (wanted.quiet_since is None or row.quiet_since <= wanted.quiet_since)
        and (wanted.fading is None or consolidated(row, wanted.fading.at, wanted.fading.per_day) is not None)
    )


def values_of(row: Observation, name: Labelled | str) -> Sequence[str]:
    """The values that the row has in a field that can be counted."""
    if name == "files":
        return tuple(dict.fromkeys((*row.files_read, *row.files_modified)))
    value = getattr(row, name)
    if isinstance(value, tuple):
        return value
    return (value,) if value else ()


def key_of(name: str, value: str) -> str:
    """The form in which the values of a field are compared."""
    return value if name in EXACT else fold(value)


def written(value: object) -> str:
    """A value of the metadata as text, so that 1, 1.0 and true are three different ones."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def fact_fits(fact: Triple, wanted: FactFilter) -> bool:
    """Whether `wanted` lets the fact through."""
    return (
        all(
            asked is None or fold(getattr(fact, name)) == fold(asked)
            for name in ("subject", "predicate", "object")
            for asked in [getattr(wanted, name)]
        )
        and all(_same(getattr(fact, name), getattr(wanted, name)) for name in ("source", "session_id"))
        and (not wanted.sources or fact.source in wanted.sources)
        and fact.confidence >= wanted.min_confidence
    )


def check_limit(limit: int) -> int:
    """The limit, at most 1,000. Raises `InvalidValue` for a negative one."""
    if limit < 0:
        raise InvalidValue(f"the limit is {limit}: it cannot be negative")
    return min(limit, MOST_AT_ONCE)


def _same(value: object, asked: object) -> bool:
    return asked is None or value == asked


def _any(asked: Sequence[str], values: Sequence[str]) -> bool:
    return not asked or not {fold(value) for value in values}.isdisjoint(map(fold, asked))
