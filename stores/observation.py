"""Memories: an observation, and a triple that states a fact. Values, free of any file format.

Each field is declared here, once: `fields` explains how. An observation is checked when it is made. Texts are
kept as they are, with two exceptions: control characters are removed, and names, titles and other single lines are
folded to one line. What is too long is refused, never cut.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Generic, Literal, get_args

from msgspec import Struct

from chatbot.stores.access import OWNER, Clearance, Guard, Sensitivity, Visibility, fold
from chatbot.stores.errors import InvalidValue
from chatbot.stores.fields import (
    MERGED,
    NONE,
    SAID,
    Count,
    Id,
    Ids,
    InTable,
    Label,
    Line,
    LineOrNone,
    Lines,
    Many,
    Moment,
    SearchField,
    Share,
    Table,
    Text,
    Texts,
    checker,
    fields_of,
    names_with,
    parse_fields,
    writer,
)
from chatbot.stores.records import format_time

Type = Literal[
    "bugfix",
    "feature",
    "refactor",
    "change",
    "discovery",
    "decision",
    "preference",
    "identity",
    "task",
    "note",
    "event",
    "technical",
    "exchange",
    "session_summary",
    "compressed_summary",
]
Status = Literal["active", "superseded", "expired", "archived", "compressed", "deleted"]

TYPES: tuple[Type, ...] = get_args(Type)
STATUSES: tuple[Status, ...] = get_args(Status)
OF_SESSION = "session:"
"""Beginning of the subject of a fact about a session; its id follows."""
PROTECTED_TYPES = frozenset({"decision", "identity", "preference", "task"})
"""Types archived last past a cap, and without a default time to live."""
SUMMARIES = frozenset({"session_summary", "compressed_summary"})
LASTING_IN_RANK = frozenset({"exchange", "compressed_summary"})
"""Types ranked as if new, at any age; caps still use their decayed strength.

A digest starts with the decayed importance of its best row, and must not decay again.
"""

BOOST = 0.1
"""Gain of the first use since the last consolidation, divided by ln 2."""
FLOOR = 0.2
"""Minimum strength as a share of the importance, which keeps the order of importance."""
LASTING_TYPES = PROTECTED_TYPES | {"discovery"}
"""Types that decay at half the rate."""
LEAST_CHANGE = 0.06
"""Smaller changes wait and add up, so that not every row is written at every run. One use is more than this."""
_HEADLINE, _HEADING = 200, 80
"""Characters of a headline, and of the heading of a note whose memory has no title."""
_STEEPEST = 1_000_000

NEVER = 2**62
"""Number of a time that never comes."""


class NothingSaid(InvalidValue):
    """An observation without content."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Content(Generic[Many]):
    """Content of a row: what its writer gives and may change. A draft and a change have the same fields."""

    __slots__ = ()

    type: Annotated[Type, Label(), InTable()] = "note"
    title: Annotated[Line, SAID, SearchField("title")] = ""
    subtitle: Annotated[Line, SAID, SearchField("title")] = ""
    subject: Annotated[Line, Label(), SearchField("title")] = ""
    narrative: Annotated[Text, SAID, SearchField("narrative")] = ""
    facts: Annotated[Texts[Many], SAID, SearchField("facts")] = NONE
    tags: Annotated[Lines[Many], MERGED, Label(), SearchField("tags")] = NONE
    concepts: Annotated[Lines[Many], MERGED, Label(), SearchField("tags")] = NONE
    category: Annotated[Line, Label(), SearchField("tags")] = ""
    people: Annotated[Lines[Many], MERGED, Label(), SearchField("people")] = NONE
    user_text: Annotated[Text, SAID, SearchField("user")] = ""
    """Message of the person, in an exchange."""
    assistant_text: Annotated[Text, SAID, SearchField("assistant")] = ""
    """Reply of the bot, in an exchange."""
    project: Annotated[Line, Label()] = ""
    metadata: Table = field(default_factory=dict, hash=False)
    source: Line = ""
    """Who added it: agent, user, tool, import."""
    files_read: Annotated[Lines[Many], MERGED, Label("files")] = NONE
    files_modified: Annotated[Lines[Many], MERGED, Label("files")] = NONE
    derived_from: Annotated[Ids[Many], Label(exact=True)] = NONE
    """Ids of the observations that it was made from."""
    importance: Annotated[Share, InTable()] = 0.5
    token_count: Count = 0
    """Approximate number of tokens of its text; estimated if not given."""
    expires_at: Annotated[Moment | None, InTable(none=NEVER, blank=NEVER)] = None


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Row:
    """Common fields of all memories: origin, owner, and who may see them."""

    __slots__ = ()

    id: Id
    created_at: Annotated[Moment, InTable()]
    agent_id: Annotated[Line, Label(exact=True)] = ""
    session_id: Annotated[LineOrNone, Label(exact=True)] = None
    namespace: Line = ""
    principal: Line = OWNER
    """Principal that owns it: the owner, a token, or a user named by an application."""
    visibility: Visibility = "private"
    sensitivity: Sensitivity = "unknown"
    min_clearance: Clearance = "public"
    """Minimum clearance that may see it, besides its visibility."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Observation(Content[tuple[str, ...]], Row):
    """A memory. Ids are lower-case UUIDs, times aware UTC, `importance` is from 0 to 1. Raises `InvalidValue`."""

    updated_at: Annotated[Moment, InTable()]
    status: Status = "active"
    superseded_by: Id | None = None
    """The observation that replaced it, or the summary that it was compressed into."""
    superseded_at: Moment | None = None
    deleted_at: Moment | None = None
    mention_count: Annotated[Count, InTable()] = 0
    last_mentioned_at: Moment | None = None
    use_count: Annotated[Count, InTable()] = 0
    last_used_at: Annotated[Moment | None, InTable()] = None
    confirmed_count: Annotated[Count, InTable()] = 0
    last_confirmed_at: Moment | None = None
    strength: Annotated[Share | None, InTable(none=-1, blank=-1)] = None
    """Importance after time and use; None before the first consolidation."""
    consolidated_at: Annotated[Moment | None, InTable()] = None
    """Time of `strength`; `consolidated_touches` are the touches counted in it."""
    consolidated_touches: Annotated[Count, InTable()] = 0
    hash: str = ""
    """SHA-256 of its content, in hexadecimal; see `content_hash`."""

    def __post_init__(self) -> None:
        _check(self)
        if not (self.title or self.narrative or self.facts or self.user_text or self.assistant_text):
            raise NothingSaid("a memory needs a title, a narrative or a fact")
        if self.token_count < 1:
            _set(self, "token_count", estimate_tokens(self.text()))
        _set(self, "hash", content_hash(self))

    def __repr__(self) -> str:
        return f"Observation({self.as_json()})"

    @property
    def current_strength(self) -> float:
        """Its importance now, from 0 to 1."""
        return self.importance if self.strength is None else self.strength

    @property
    def rank(self) -> float:
        """Its importance among results; see `rank`."""
        return rank(self.type, self.importance, self.current_strength)

    @property
    def last_said_at(self) -> datetime:
        """The time when it was made, or last said again."""
        return max(self.created_at, self.last_mentioned_at or self.created_at)

    @property
    def quiet_since(self) -> datetime:
        """The time when it was last written, used, mentioned, confirmed, superseded or deleted."""
        later = (self.last_used_at, self.last_mentioned_at, self.last_confirmed_at, self.superseded_at, self.deleted_at)
        return max([self.updated_at, *(at for at in later if at is not None)])

    def text(self) -> str:
        """Return all its texts, each on lines of its own."""
        return "\n".join(self.said())

    def said(self) -> list[str]:
        """Return its texts that are not empty."""
        said: list[str] = []
        for value in _spoken(self):
            if value:
                said += (value,) if isinstance(value, str) else value
        return said

    @property
    def headline(self) -> str:
        """The beginning of its first text, on one line, with a mark if there is more."""
        text = next(iter(self.said()), "")
        return " ".join(text[:_HEADLINE].split()) + "…" * (len(text) > _HEADLINE)

    def as_note(self) -> tuple[str, str]:
        """Return the heading and the text of its section in a Markdown file."""
        said = self.said()
        title = self.title or "".join(said[:1])[:_HEADING]
        about = ", ".join((self.type, format_time(self.created_at)[:10], *self.tags))
        texts = [f"Reply: {text}" if text is self.assistant_text else text for text in said if text != title]
        body = "".join(f"\n{text}\n".replace("\n#", "\n\\#") for text in texts)  # `#` starts a note
        return " ".join(title.split()), f"{body}\n*{about}*\n"

    def brief(self) -> dict[str, Any]:
        """Return what is needed to decide whether to read all of it."""
        return {
            "id": self.id,
            "type": self.type,
            "title": self.title or self.narrative[:80] or self.user_text[:80],
            "created_at": format_time(self.created_at),
            "token_count": self.token_count,
        }

    def is_current(self, now: datetime) -> bool:
        """Return whether it is active and not expired."""
        return self.status == "active" and (self.expires_at is None or self.expires_at > now)

    def as_json(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, in their written form."""
        return _written(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Triple(Row):
    """A fact as subject, predicate and object, with the confidence in it from 0 to 1."""

    subject: Line
    predicate: Line
    object: Line
    project: Line = ""
    """Its project; a fact with a source has none of its own and belongs to its source's."""
    confidence: Share = 1.0
    source: Id | None = None
    """Observation that it was taken from; the fact is visible with it, and while it is current."""
    count: Count = 1
    """How often it was stated."""

    def __post_init__(self) -> None:
        _check_triple(self)
        for name in ("subject", "predicate", "object"):
            if not getattr(self, name):
                raise InvalidValue(f"the {name} of a fact cannot be empty")

    @property
    def is_about_session(self) -> bool:
        """True if it was noted about a session itself, such as a change of topic."""
        return self.subject.startswith(OF_SESSION)

    def as_json(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, in their written form."""
        return _written_triple(self)


FIELDS = fields_of(Observation)
CONTENT = tuple(each.name for each in fields(Content))
"""Fields that a writer gives and may change; all others, except the guard, are set by events."""
SPOKEN = names_with(FIELDS, SAID)
SEARCHED = {each.name: mark.field for each in FIELDS.values() if (mark := each.mark(SearchField))}
"""Searchable fields, with their fields of the index."""
searched_of = attrgetter(*SEARCHED)
_spoken = attrgetter(*SPOKEN)
GUARDED = ("visibility", "sensitivity", "min_clearance")
TRIPLE_FIELDS = fields_of(Triple)
_set = object.__setattr__
_check, _check_triple = checker(FIELDS), checker(TRIPLE_FIELDS)
_written, _written_triple = writer(FIELDS), writer(TRIPLE_FIELDS)
WRITTEN_DEFAULTS = {each.name: each.written_default for each in FIELDS.values()}
"""Defaults of fields that are not written."""
_VERSIONED = sorted({"id", "status", *CONTENT, *GUARDED} - {"derived_from"})
"""Fields in `version_of`. Not the sources: not every caller sees all of them."""
_PUTS = tuple(getattr(Observation, name).__set__ for name in FIELDS)
_values_of = attrgetter(*FIELDS)
"""Setters of the fields of an observation, and a getter of all, without checks."""


def version_of(row: Observation) -> str:
    """Return a hash of the row's content, guard and status, without what use changes."""
    written = row.as_json()
    shown = {name: written[name] for name in _VERSIONED if name in written}
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:32]


def parse_observation(line: Mapping[str, Any]) -> Observation:
    """Read an observation in the form of `as_json`; unknown fields are ignored. Raises `InvalidValue`."""
    return Observation(**parse_fields(line, FIELDS))


def parse_triple(line: Mapping[str, Any]) -> Triple:
    """Read a triple in the form of `as_json`. Raises `InvalidValue`."""
    return Triple(**parse_fields(line, TRIPLE_FIELDS))


def with_fields(observation: Observation, line: Mapping[str, Any]) -> Observation:
    """Return the observation with other fields, given in their written form. Raises `InvalidValue`."""
    values = parse_fields(line, FIELDS, partial=True)
    if not values.keys().isdisjoint(SPOKEN):
        values.setdefault("token_count", 0)  # to be estimated again
    return replace(observation, **values)


def with_counts(
    observation: Observation, uses: tuple[int, datetime | None], strength: tuple[float | None, datetime, int] | None
) -> Observation:
    """Return the observation with other counts, unchecked: uses and last use; strength, its time and touches."""
    given: dict[str, Any] = {"use_count": uses[0], "last_used_at": uses[1]}
    if strength is not None:
        given |= zip(("strength", "consolidated_at", "consolidated_touches"), strength, strict=True)
    return replace_unchecked(observation, **given)


def replace_unchecked(observation: Observation, **known: Any) -> Observation:
    """Return the observation with other fields that need no check and do not change its content."""
    copy: Observation = object.__new__(Observation)
    for put, value in zip(_PUTS, _values_of(observation), strict=True):
        put(copy, value)
    for name, value in known.items():
        _set(copy, name, value)
    return copy


def rank(type_: Type, importance: float, current_strength: float) -> float:
    """Return the importance of a row among search results.

    An exchange or digest keeps its importance; that of a protected type never falls below the original.
    """
    if type_ in LASTING_IN_RANK:
        return importance
    return max(importance, current_strength) if type_ in PROTECTED_TYPES else current_strength


class Decay(Struct, frozen=True):
    """Rate of decay, seen from the moment `at`."""

    at: datetime
    per_day: float

    def __post_init__(self) -> None:
        check_rate(self.per_day)


def check_rate(per_day: object) -> None:
    """Raise `InvalidValue` for a rate of decay below 0 or not a number."""
    if isinstance(per_day, bool) or not isinstance(per_day, int | float) or not 0 <= per_day < _STEEPEST:
        raise InvalidValue(f"decay_per_day is {per_day!r:.80}: it must be a number of 0 or more")


def next_strength(
    current_strength: float, importance: float, new: int, *, elapsed: float, quiet: float, rate: float
) -> float | None:
    """Return the strength after `elapsed` seconds, the last `quiet` untouched, with `new` touches; None if it stays."""
    if elapsed <= 0 or (new <= 0 and current_strength <= FLOOR * importance):
        return None
    grown = BOOST * math.log1p(max(0, new))
    floor = FLOOR * importance
    strength = round(max(floor, min(1.0, current_strength + grown) - rate * quiet / 86_400), 4)
    least = 0.0001 if strength <= floor or strength >= 1 else LEAST_CHANGE  # a step to an end is always written
    return strength if abs(strength - current_strength) >= least else None


def cap_weight(type_: Type, current_strength: float, uses: int) -> tuple[bool, float]:
    """Return the sort key of a row above a cap: the lowest are archived first, protected types last.

    `uses` are uses and mentions together. Of equals, the row that was added first is archived first.
    """
    return (type_ in PROTECTED_TYPES, current_strength + 0.1 * math.log1p(uses))


OWN_KEY = "key"
"""Metadata key of a row that is kept under its writer's own key."""
PROFILE, KIND, LINE, IMPORTED = "profile", "kind", "line", "imported_from"
"""Category of rows that may be lines of a profile, and the metadata keys that make them lines."""


def is_line(row: Observation) -> bool:
    """Return whether a row is a line of a profile; an imported one is only a proposal."""
    return (
        row.category == PROFILE
        and isinstance(row.metadata.get(LINE), str)
        and row.metadata.get(KIND) == LINE
        and IMPORTED not in row.metadata
    )


_BY_OTHERS = ("import", "tool", "file", "mcp", "auto", "extraction:reply", "maintenance")


def is_own(row: Observation) -> bool:
    """Return whether a row is a statement of its person; rows from tools, files, imports and replies are not."""
    return not row.source.startswith(_BY_OTHERS)


def content_hash(observation: Content[Any]) -> str:
    """Return the SHA-256 of title, narrative, each fact, and both sides of an exchange, each ended by a NUL.

    Case, width of characters and white space make no difference. A key of the writer's own, or of the profile, is
    hashed too.
    """
    said = (observation.title, observation.narrative, observation.user_text, observation.assistant_text)
    digest = hashlib.sha256()
    for text in (*said, *observation.facts):
        digest.update(fold(text).encode() + b"\0")
    for name in (OWN_KEY, LINE) if observation.category == PROFILE else (OWN_KEY,):
        if isinstance(key := observation.metadata.get(name), str):
            digest.update(b"\0" + key.encode(errors="surrogatepass"))
    return digest.hexdigest()


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of `text`: one for every four bytes of UTF-8."""
    return (len(text.encode()) + 3) // 4


class RowState(Struct, frozen=True):
    """State of a row: enough to decide whether it is kept, and who may change that."""

    id: str
    type: Type
    guard: Guard
    status: Status
    superseded_by: str | None
    quiet_since: datetime
    """As `Observation.quiet_since`."""
    expires_at: datetime | None

    @classmethod
    def of(cls, row: Observation) -> RowState:
        """Return the state of a row that was read."""
        return cls(row.id, row.type, Guard.of(row), row.status, row.superseded_by, row.quiet_since, row.expires_at)

    @property
    def namespace(self) -> str:
        """The namespace that the row is in."""
        return self.guard.namespace

    def is_current(self, now: datetime) -> bool:
        """Return True for an active row that has not expired."""
        return self.status == "active" and (self.expires_at is None or self.expires_at > now)
