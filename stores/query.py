"""Queries of an observation store, and their results.

Conditions on metadata are exact values, comparisons, and their combinations, as docs/embedding.md shows them. All
fields must match. Only two numbers, or two texts, are less or greater than each other. `$ne` and `$not` match a
row that has no such field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import force_setattr

from chatbot.stores.access import VISIBILITIES, Visibility, fold
from chatbot.stores.errors import InvalidValue, did_you_mean
from chatbot.stores.fields import Form, Label, Table, checker, fields_by_label, fields_of
from chatbot.stores.observation import FIELDS, STATUSES, TYPES, Decay, Observation, Status, Triple, Type
from chatbot.stores.records import Vector, canonical, check_time, check_type
from chatbot.stores.row_events import Event

Each = TypeVar("Each")
Order = Literal["created", "updated"]
Labelled = Literal[
    "type", "agent_id", "session_id", "project", "subject", "category", "tags", "concepts", "people", "files"
]

LABELS = fields_by_label(FIELDS)
"""Labels by which rows are filtered and counted, each with the fields that hold it."""
EXACT = frozenset(
    name for name, held in LABELS.items() for each in held if (_label := each.mark(Label)) and _label.exact
)
"""Labels that are compared exactly; for all others, case and character width are ignored."""
EMPTY = frozenset(name for name, held in LABELS.items() if held[0].default == "")
"""Labels for which an empty filter text selects the rows without one."""

MOST_AT_ONCE = 1_000
"""Maximum rows of a `Page`; other results are as long as their limit."""
EVERY = 2**31


def _several(*known: str) -> Form:
    """Return the form of a filter field that takes one text or several alternatives."""

    def texts(value: Any, name: str) -> tuple[str, ...]:
        found = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
        for each in found:
            if not isinstance(each, str):
                raise InvalidValue(f"{name} is {value!r:.80}: it must be one text, or a list of texts")
            if known and each not in known:
                raise InvalidValue(f"{name} has {each!r:.80}{did_you_mean(each, known)}")
        return found

    return Form(texts)


def _one(kind: Any, *, is_optional: bool = True) -> Form:
    """Return the form of a filter field that takes one value."""

    def value_of(value: Any, name: str) -> Any:
        if not isinstance(value, kind) and not (is_optional and value is None):
            check_type(value, kind, name)
        return check_time(value) if isinstance(value, datetime) else value

    return Form(value_of)


_Name: TypeAlias = Annotated[str | None, _one(str)]
_Names: TypeAlias = Annotated[Sequence[str], _several()]
_Time: TypeAlias = Annotated[datetime | None, _one(datetime)]


class RowFilter(Struct, frozen=True, kw_only=True):
    """Filter of rows by anything but their time: every field that is set must match.

    Several values in one field are alternatives. Names, tags, subjects and files are compared without case. An active
    row past its expiry counts as expired. Raises `InvalidValue` for an invalid filter.
    """

    types: Annotated[Type | Sequence[Type], _several(*TYPES)] = ()
    agent_id: _Name = None
    session_id: _Name = None
    project: _Name = None
    subject: _Name = None
    category: _Name = None
    tags: _Names = ()
    concepts: _Names = ()
    people: _Names = ()
    files: _Names = ()
    derived_from: _Names = ()
    metadata: Table = field(default_factory=dict)
    """Keys that must exist with exactly these values, or conditions: see `chatbot.stores.query`."""
    visibilities: Annotated[Visibility | Sequence[Visibility], _several(*VISIBILITIES)] = ()
    quiet_since: _Time = None
    """Nothing has happened to the row since then: see `Observation.quiet_since`."""
    fading: Annotated[Decay | None, _one(Decay)] = None
    """Rows that consolidation would change: see `chatbot.stores.observation`."""
    min_importance: Annotated[float, _one(int | float, is_optional=False)] = 0
    statuses: Annotated[Sequence[Status], _several(*STATUSES)] = ("active",)


class Filter(RowFilter, frozen=True, kw_only=True):
    """A `RowFilter` of rows that were made at or `after` a moment and `before` another one."""

    after: _Time = None
    before: _Time = None

    def __post_init__(self) -> None:
        _check(self)
        check_conditions(self.metadata)


FILTER_FIELDS = fields_of(Filter)
_check = checker(FILTER_FIELDS, force_setattr)
FILTERED = {name: label for name in FILTER_FIELDS if (label := "type" if name == "types" else name) in LABELS}
"""Labels by which rows are chosen, for each field of a filter."""


class Page(Struct, frozen=True):
    """A part of a list. `after` starts the next part; None at the end."""

    rows: tuple[Observation, ...]
    after: str | None = None


class Match(Struct, frozen=True):
    """A row that was found, with its lexical score and the data for ranking."""

    id: str
    score: float
    type: Type
    session_id: str | None
    created_at: datetime
    updated_at: datetime
    importance: float = 0.5
    """As time and use have changed it; see `Observation.rank`."""
    mention_count: int = 0
    confirmed_count: int = 0

    @classmethod
    def of(cls, row: Observation, score: float = 0.0) -> Match:
        """Return a row as a match."""
        return cls(row.id, score, *_matched(row))


_matched = attrgetter(*("rank" if name == "importance" else name for name in Match.__struct_fields__[2:]))


def best_cosines(found: Iterable[tuple[Vector, Iterable[tuple[Each, float]]]], limit: int) -> dict[Each, float]:
    """Return what is nearest to any of the vectors, with its best cosine times their length, most similar first."""
    best: dict[Each, float] = {}
    for vector, cosines in found:
        weight = min(1.0, math.hypot(*vector))
        for each, cosine in cosines:
            best[each] = max(best.get(each, 0.0), weight * cosine)
    return dict(sorted(best.items(), key=lambda item: -item[1])[:limit])


_CORRECTED = frozenset({"title", "narrative"})
EventStep = tuple[Event, Mapping[str, tuple[Any, Any]]]
"""An event, and the fields that it changed, with their values before and after, as they are written."""


class Version(Struct, frozen=True):
    """One observation of a chain of succession, with the events that the caller may see, oldest first."""

    observation: Observation
    steps: tuple[EventStep, ...]

    @property
    def events(self) -> list[Event]:
        """The events alone."""
        return [event for event, _ in self.steps]

    def readable_steps(self) -> list[EventStep]:
        """Return the events for people: a correction replaces the person's original words."""
        said = self.observation.user_text
        return [
            (event, {name: (old or (name in _CORRECTED and said), new) for name, (old, new) in changed.items()})
            for event, changed in self.steps
        ]


class Facet(Struct, frozen=True):
    """A value of a field: in how many rows it is, when it was last written, and how the newest row spells it."""

    value: str
    count: int
    last_at: datetime


class FactFilter(Struct, frozen=True, kw_only=True):
    """Filter of triples. Texts are compared without case."""

    ids: frozenset[str] = frozenset()
    """Any of these; empty for all."""
    subject: _Name = None
    predicate: _Name = None
    object: _Name = None
    project: _Name = None
    source: _Name = None
    sources: frozenset[str] = frozenset()
    """Facts from any of these; empty for any source."""
    session_id: _Name = None
    min_confidence: Annotated[float, _one(int | float, is_optional=False)] = 0
    about_sessions: Annotated[bool, _one(bool, is_optional=False)] = True
    """False leaves out facts about a session itself, such as a change of topic."""


check_facts = checker(fields_of(FactFilter), force_setattr)


class Stats(Struct, frozen=True, kw_only=True):
    """Counts of what the caller may see; sizes on the disk in bytes, None unless the caller may see everything."""

    by_status: Mapping[str, int]
    by_type: Mapping[str, int]
    by_visibility: Mapping[str, int]
    facts: int
    journal_bytes: int | None = None
    cache_bytes: int | None = None


class VectorStats(Struct, frozen=True):
    """Model of the stored vectors, empty if there are none, and how many current rows have one."""

    model: str
    dimension: int
    embedded: int
    missing: int


class Question(Struct, frozen=True, kw_only=True):
    """A question: its analysed terms, those of the texts before it, and vectors of its meaning."""

    terms: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    """Terms of the dates that the text names."""
    earlier: tuple[str, ...] = ()
    """Terms of earlier texts, each of which counts `earlier_weight`."""
    earlier_weight: float = 0.4
    vectors: tuple[Vector, ...] = ()
    """Vectors of the meaning; the length of each, at most 1, is its weight."""
    model: str = ""
    """Name of the model that made the vectors."""
    limit: int = 300
    """Number of hits of each kind that are considered."""
    without: str = ""
    """Row to leave out, such as the one of the question itself."""


class Candidates(Struct):
    """Rows that may answer, by id, with the data for ranking."""

    rows: dict[str, Match] = field(default_factory=dict)
    sessions: Mapping[str, float] = field(default_factory=dict)
    """How much each session is about the terms."""
    similar: Mapping[str, float] = field(default_factory=dict)
    """Cosines of the most similar rows."""
    density: Mapping[str, float] = field(default_factory=dict)
    """Mean cosine of each of the first of them with the ten that are nearest to it among them; empty if unknown."""
    dated: Mapping[str, float] = field(default_factory=dict)
    """Share of the asked dates that a row names."""
    weight: float = 0.0
    """Sum of the inverse frequencies of the terms; those of earlier texts count their share."""


Progress = Callable[[int, int], None]
"""Called with the number of finished rows, and of all rows."""


def status_now(row: Observation, now: datetime) -> Status:
    """Return the row's status at that time, which may be past its expiry."""
    return "expired" if row.status == "active" and not row.is_current(now) else row.status


def values_of(row: Observation, name: Labelled | str) -> Sequence[str]:
    """Return the row's values of a field that can be counted."""
    held: list[str] = []
    for each in LABELS[name]:
        value = getattr(row, each.name)
        held += value if isinstance(value, tuple) else (value,) if value else ()
    return held if len(held) < 2 else tuple(dict.fromkeys(held))


def key_of(name: str, value: str) -> str:
    """Return the value of a field in the form for comparison."""
    return value if name in EXACT else fold(value)


def fact_fits(fact: Triple, wanted: FactFilter) -> bool:
    """Return whether the fact fits `wanted`."""
    return (
        all(
            asked is None or fold(getattr(fact, name)) == fold(asked)
            for name in ("subject", "predicate", "object")
            for asked in [getattr(wanted, name)]
        )
        and all(getattr(wanted, name) in {None, getattr(fact, name)} for name in ("source", "session_id"))
        and (not wanted.ids or fact.id in wanted.ids)
        and (not wanted.sources or fact.source in wanted.sources)
        and fact.confidence >= wanted.min_confidence
        and (wanted.about_sessions or not fact.is_about_session)
    )


def check_limit(limit: int, what: str = "the limit") -> int:
    """Return the limit, at most `EVERY`. Raises `InvalidValue` for a negative one."""
    if check_number(limit, what) < 0:
        raise InvalidValue(f"{what} is {limit}: it cannot be negative")
    return min(limit, EVERY)


def check_number(number: int, what: str) -> int:
    """Return the number. Raises `InvalidValue`, naming `what`, for anything but a whole number."""
    if not isinstance(number, int):
        raise InvalidValue(f"{what} is {number!r:.80}: it must be a whole number")
    return number


_MOST_DEEP = 20
MISSING: Any = object()
_NOT = "$not"
_JOINED = ("$and", "$or", _NOT)


def _is_ordered(value: Any, other: Any) -> bool:
    """Return whether two values can be compared: two numbers or two texts."""
    if isinstance(value, str) or isinstance(other, str):
        return isinstance(value, str) and isinstance(other, str)
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in (value, other))


_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, other: value is not MISSING and canonical(value) == canonical(other),
    "$ne": lambda value, other: value is MISSING or canonical(value) != canonical(other),
    "$gt": lambda value, other: _is_ordered(value, other) and bool(value > other),
    "$gte": lambda value, other: _is_ordered(value, other) and bool(value >= other),
    "$lt": lambda value, other: _is_ordered(value, other) and bool(value < other),
    "$lte": lambda value, other: _is_ordered(value, other) and bool(value <= other),
    "$in": lambda value, others: value is not MISSING and canonical(value) in map(canonical, others),
    "$prefix": lambda value, other: isinstance(value, str) and value.startswith(other),
    "$exists": lambda value, other: (value is not MISSING) is bool(other),
}
_KINDS = {"$in": (list, "a list"), "$prefix": (str, "text"), "$exists": (bool, "true or false")}


def tests_of(asked: object) -> Mapping[str, Any] | None:
    """Return the comparisons in a condition; None if it is an exact value."""
    if isinstance(asked, Mapping) and asked and all(str(name).startswith("$") for name in asked):
        return asked
    return None


def passes(value: Any, tests: Mapping[str, Any]) -> bool:
    """Return whether a value, or `MISSING`, passes all comparisons."""
    return all(_TESTS[name](value, other) for name, other in tests.items())


def check_conditions(wanted: Mapping[str, Any], depth: int = 0) -> None:
    """Raise `InvalidValue` for invalid conditions."""
    if depth > _MOST_DEEP:
        raise InvalidValue(f"metadata: conditions can be nested at most {_MOST_DEEP} levels deep")
    for name, asked in wanted.items():
        if name in _JOINED:
            for each in _parts(name, asked):
                check_conditions(each, depth + 1)
        elif name.startswith("$"):
            raise InvalidValue(f"metadata: unknown operator {name!r:.80}{did_you_mean(name, _JOINED)}")
        else:
            _check_tests(tests_of(asked) or {})


def _check_tests(tests: Mapping[str, Any]) -> None:
    for test, other in tests.items():
        if test not in _TESTS:
            raise InvalidValue(f"metadata: unknown comparison {test!r:.80}{did_you_mean(test, _TESTS)}")
        kind, what = _KINDS.get(test, (object, ""))
        if not isinstance(other, kind):
            raise InvalidValue(f"metadata: {test} takes {what}")


def _parts(name: str, asked: Any) -> Sequence[Mapping[str, Any]]:
    """Return the joined conditions. Raises `InvalidValue`."""
    parts = [asked] if name == _NOT else asked
    if not isinstance(parts, list | tuple) or not all(isinstance(each, Mapping) for each in parts):
        raise InvalidValue(f"metadata: {name} takes {'conditions' if name == _NOT else 'a list of conditions'}")
    return parts
