"""What is remembered: an observation, and a triple that says something about it. Values, free of any file format.

An observation is checked when it is made. Texts are kept as they come but for what no reader can want: control
characters go, and names, titles and other single lines are folded to one line. What is too long is refused, never cut.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal, get_args

from stores.access import CLEARANCES, SENSITIVITIES, VISIBILITIES, Clearance, Sensitivity, Visibility
from stores.errors import InvalidValue
from stores.records import check_text, check_time, format_time, parse_time

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
PROTECTED_TYPES = frozenset({"decision", "identity", "preference", "task"})
"""The last to go when there is a cap, and never given a time to live by default."""

LASTING_IN_RANK = frozenset({"exchange"})
"""What is found as if it were new, however long ago it was said; caps go by how it has faded all the same."""

LONGEST_LINE = 1_000
LONGEST_TEXT = 1_000_000
MOST_ITEMS = 1_000
MOST_SOURCES = 10_000
MOST_COUNTED = 2**31
DEEPEST = 100
"""How many tables and lists in the metadata may stand in each other."""
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_INVISIBLE = _CONTROLS | dict.fromkeys((8206, 8207, *range(8234, 8239), *range(8294, 8298)))
_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]|\s\s|^\s|\s$")
_ODD_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class NothingSaid(InvalidValue):
    """An observation that would say nothing at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One remembered thing. Ids are UUIDs in lower case, times are aware UTC, `importance` lies in 0 to 1.

    Raises `InvalidValue` for what cannot be kept: a name that says which field, and its limit.
    """

    id: str
    created_at: datetime
    updated_at: datetime
    agent_id: str = ""
    session_id: str | None = None
    project: str = ""
    namespace: str = ""
    type: Type = "note"
    title: str = ""
    subtitle: str = ""
    narrative: str = ""
    facts: tuple[str, ...] = ()
    user_text: str = ""
    """Of an exchange: what the person said."""
    assistant_text: str = ""
    """Of an exchange: what the bot replied."""
    tags: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    subject: str = ""
    category: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    source: str = ""
    """Who or what wrote it: agent, user, tool, import."""
    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    """Ids of the observations that it was made from."""
    visibility: Visibility = "private"
    sensitivity: Sensitivity = "unknown"
    min_clearance: Clearance = "public"
    """The least clearance that may see it, beyond what its visibility asks for."""
    importance: float = 0.5
    token_count: int = 0
    """About how many tokens its text takes; estimated where it is not given."""
    expires_at: datetime | None = None
    status: Status = "active"
    superseded_by: str | None = None
    """The observation that took its place, or the summary that it was compressed into."""
    superseded_at: datetime | None = None
    deleted_at: datetime | None = None
    mention_count: int = 0
    last_mentioned_at: datetime | None = None
    use_count: int = 0
    last_used_at: datetime | None = None
    confirmed_count: int = 0
    last_confirmed_at: datetime | None = None
    strength: float | None = None
    """Its importance as time and use have changed it; None as long as they have not."""
    consolidated_at: datetime | None = None
    """When `strength` was worked out, and `consolidated_touches` the touches that it holds."""
    consolidated_touches: int = 0
    hash: str = ""
    """SHA-256 of what it says, in hexadecimal; see `content_hash`."""

    def __post_init__(self) -> None:
        check_id(self.id)
        self._clean()
        _check_words(self, _WORDS)
        _check_share(self.importance, "importance")
        if self.strength is not None:
            _check_share(self.strength, "strength")
        if not (self.title or self.narrative or self.facts or self.user_text or self.assistant_text):
            raise NothingSaid("an observation needs a title, a narrative or a fact")
        if self.token_count < 1:
            _set(self, "token_count", estimate_tokens(self.text()))
        _set(self, "hash", content_hash(self))

    def _clean(self) -> None:
        for name in _LINES:
            _set(self, name, one_line(getattr(self, name), name))
        for name in _TEXTS:
            _set(self, name, clean_text(getattr(self, name), name))
        for name in _LISTS:
            _set(self, name, _clean_items(getattr(self, name), name))
        if self.session_id is not None:
            _set(self, "session_id", one_line(self.session_id, "session_id") or None)
        if self.superseded_by is not None:
            check_id(self.superseded_by)
        for name in _TIMES:
            if (moment := getattr(self, name)) is not None or name in _ALWAYS:
                _set(self, name, _check_moment(moment, name))
        for name in _COUNTS:
            _check_count(getattr(self, name), name)
        if self.metadata != {}:
            _set(self, "metadata", _clean_metadata(self.metadata))

    @property
    def standing(self) -> float:
        """How important it is by now, from 0 to 1."""
        return self.importance if self.strength is None else self.strength

    @property
    def rank(self) -> float:
        """How important it is among what is found; see `rank`."""
        return rank(self.type, self.importance, self.standing)

    @property
    def touches(self) -> int:
        """How often it was used, mentioned or confirmed."""
        return self.use_count + self.mention_count + self.confirmed_count

    @property
    def touched_at(self) -> datetime:
        """When it was last written, used, mentioned or confirmed."""
        others = (self.last_used_at, self.last_mentioned_at, self.last_confirmed_at)
        return max([self.updated_at, *(at for at in others if at is not None)])

    @property
    def quiet_since(self) -> datetime:
        """When it was last touched, superseded or deleted."""
        return max([self.touched_at, *(at for at in (self.superseded_at, self.deleted_at) if at is not None)])

    def text(self) -> str:
        """Everything that it says, a line or more each."""
        return "\n".join(self.said())

    def said(self) -> Iterable[str]:
        """Each of its texts that is not empty."""
        said = (self.title, self.subtitle, self.narrative, *self.facts, self.user_text, self.assistant_text)
        return [text for text in said if text]

    def is_current(self, now: datetime) -> bool:
        """Whether it is active and not past its time."""
        return self.status == "active" and (self.expires_at is None or self.expires_at > now)

    def as_json(self) -> dict[str, Any]:
        """The fields that differ from their defaults, in the form in which they are written."""
        return {
            name: _to_json(value) for name, default in _DEFAULTS.items() if (value := getattr(self, name)) != default
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Triple:
    """A fact as subject, predicate and object, with the confidence in it from 0 to 1."""

    id: str
    subject: str
    predicate: str
    object: str
    created_at: datetime
    confidence: float = 1.0
    source: str | None = None
    """The observation that it was taken from; it is seen only by who sees that, and while that is current."""
    agent_id: str = ""
    session_id: str | None = None
    namespace: str = ""
    visibility: Visibility = "private"
    sensitivity: Sensitivity = "unknown"
    min_clearance: Clearance = "public"

    def __post_init__(self) -> None:
        check_id(self.id)
        if self.source is not None:
            check_id(self.source)
        for name in ("subject", "predicate", "object", "agent_id", "namespace"):
            _set(self, name, one_line(getattr(self, name), name))
        for name in ("subject", "predicate", "object"):
            if not getattr(self, name):
                raise InvalidValue(f"the {name} of a fact cannot be empty")
        if self.session_id is not None:
            _set(self, "session_id", one_line(self.session_id, "session_id") or None)
        _check_words(self, ("visibility", "sensitivity", "min_clearance"))
        _check_share(self.confidence, "confidence")
        _set(self, "created_at", _check_moment(self.created_at, "created_at"))

    def as_json(self) -> dict[str, Any]:
        """The fields that differ from their defaults, in the form in which they are written."""
        return {
            name: _to_json(value)
            for name, default in _TRIPLE_DEFAULTS.items()
            if (value := getattr(self, name)) != default
        }


def parse_observation(written: Mapping[str, Any]) -> Observation:
    """Read what `as_json` gave; fields of later releases are passed over. Raises `InvalidValue`."""
    return Observation(**from_json(written, _DEFAULTS))


def parse_triple(written: Mapping[str, Any]) -> Triple:
    """Read what `Triple.as_json` gave. Raises `InvalidValue`."""
    return Triple(**from_json(written, _TRIPLE_DEFAULTS))


def changed(observation: Observation, written: Mapping[str, Any]) -> Observation:
    """The observation with other fields, given in the form in which they are written. Raises `InvalidValue`."""
    values = from_json(written, _DEFAULTS, partial=True)
    if not _SAID.isdisjoint(values):
        values.setdefault("token_count", 0)  # to be estimated again
    return replace(observation, **values)


def counted(
    observation: Observation, uses: tuple[int, datetime | None], strength: tuple[float | None, datetime, int] | None
) -> Observation:
    """The observation with other counts: its uses and the last of them, its strength, of when, with which touches.

    Nothing that was checked when it was made is checked again, for rows are counted each time that they are read.
    """
    given: dict[str, Any] = {"use_count": uses[0], "last_used_at": uses[1]}
    if strength is not None:
        given |= zip(("strength", "consolidated_at", "consolidated_touches"), strength, strict=True)
    return unchecked(observation, **given)


def unchecked(observation: Observation, **known: Any) -> Observation:
    """The observation with other fields, which are known to be sound and not to change what it says."""
    copy: Observation = object.__new__(Observation)
    for put, value in zip(_PUTS, _values_of(observation), strict=True):
        put(copy, value)
    for name, value in known.items():
        _set(copy, name, value)
    return copy


def rank(type_: Type, importance: float, standing: float) -> float:
    """How important a row is among what is found, which is not all that time makes of it.

    What was said stays said: an exchange neither fades nor grows. What is meant to last does not fade below the
    importance that it was given.
    """
    if type_ in LASTING_IN_RANK:
        return importance
    return max(importance, standing) if type_ in PROTECTED_TYPES else standing


def content_hash(observation: Observation) -> str:
    """SHA-256 over title, narrative, each fact, and both sides of an exchange, each ended by a NUL.

    Case, width of characters and white space make no difference.
    """
    said = (observation.title, observation.narrative, observation.user_text, observation.assistant_text)
    digest = hashlib.sha256()
    for text in (*said, *observation.facts):
        digest.update(_normal(text).encode() + b"\0")
    return digest.hexdigest()


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` takes: one for every four bytes of UTF-8."""
    return (len(text.encode()) + 3) // 4


def fold(name: str) -> str:
    """The form in which names, tags and subjects are compared: no case, no width, single spaces."""
    return _normal(name)


def is_observation_id(text: str) -> bool:
    """Whether `text` has the form of an id."""
    return _ID.fullmatch(text) is not None


def check_id(text: object) -> None:
    """Raise `InvalidValue` for what is not a UUID in lower case."""
    if not (isinstance(text, str) and _ID.fullmatch(text)):
        raise InvalidValue(f"{text!r:.80} is not an id: ids are UUIDs in lower case")


def one_line(text: object, name: str) -> str:
    """`text` on one line, without control and direction characters; at most 1,000 characters. Else `InvalidValue`."""
    text = _checked(text, name)
    if _ODD.search(text):
        text = " ".join(" ".join(text.split()).translate(_INVISIBLE).split())
    if len(text) > LONGEST_LINE:
        raise InvalidValue(f"{name} is {len(text):,} characters long: at most {LONGEST_LINE:,} can be kept there")
    return text


def clean_text(text: object, name: str) -> str:
    """`text` without control characters but newline and tab; at most a million characters. Else `InvalidValue`."""
    text = _checked(text, name)
    if _ODD_TEXT.search(text):
        text = text.replace("\r\n", "\n").translate(_CONTROLS)
    if len(text) > LONGEST_TEXT:
        raise InvalidValue(f"{name} is {len(text):,} characters long: at most {LONGEST_TEXT:,} can be kept")
    return text


def check_depth(value: object, name: str) -> None:
    """Raise `InvalidValue` for tables and lists that are nested so deeply that not every reader could follow."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for part in level
            if isinstance(part, Mapping | list | tuple)
            for inner in (part.values() if isinstance(part, Mapping) else part)
        ]
        if not level:
            return
    raise InvalidValue(f"{name} is nested more than {DEEPEST} levels deep")


def from_json(written: Mapping[str, Any], defaults: Mapping[str, Any], *, partial: bool = False) -> dict[str, Any]:
    """The values of known fields from their written form. Raises `InvalidValue` for a missing or mistyped one."""
    found = {}
    for name, default in defaults.items():
        if name in written:
            found[name] = _from_json(name, written[name])
        elif default is MISSING and not partial:
            raise InvalidValue(f"it has no {name!r}")
    return found


def _normal(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())


def _checked(text: object, name: str) -> str:
    if not isinstance(text, str):
        raise InvalidValue(f"{name} is {text!r:.80}, not text")
    return text if text.isascii() else check_text(text, name)


def _clean_items(items: object, name: str) -> tuple[str, ...]:
    if items == ():
        return ()
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise InvalidValue(f"{name} is {items!r:.80}, not a list of texts")
    clean = clean_text if name == "facts" else one_line
    kept = tuple(dict.fromkeys(text for item in items if (text := clean(item, name))))
    most = MOST_SOURCES if name == "derived_from" else MOST_ITEMS
    if len(kept) > most:
        raise InvalidValue(f"{name} has {len(kept):,} items: at most {most:,} can be kept")
    return kept


def _clean_metadata(metadata: object) -> Mapping[str, Any]:
    if not isinstance(metadata, Mapping):
        raise InvalidValue(f"metadata is {metadata!r:.80}, not a table")
    check_depth(metadata, "metadata")
    try:
        text = json.dumps(dict(metadata), allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"metadata cannot be written as JSON: {error}") from error
    if len(text) > LONGEST_TEXT:
        raise InvalidValue(f"metadata takes {len(text):,} characters: at most {LONGEST_TEXT:,} can be kept")
    kept: dict[str, Any] = json.loads(check_text(text, "metadata"))
    return kept


def _check_words(owner: object, names: Iterable[str]) -> None:
    for name in names:
        if getattr(owner, name) not in _WORDS[name]:
            raise InvalidValue(f"{name} is {getattr(owner, name)!r}: it must be one of {', '.join(_WORDS[name])}")


def _check_share(value: object, name: str) -> None:
    if isinstance(value, bool) or not (isinstance(value, int | float) and 0 <= value <= 1):
        raise InvalidValue(f"{name} is {value!r:.80}: it must be a number from 0 to 1")


def _check_count(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not -MOST_COUNTED <= value <= MOST_COUNTED:
        raise InvalidValue(f"{name} is {value!r:.80}: it must be a whole number of at most {MOST_COUNTED:,}")


def _check_moment(value: object, name: str) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidValue(f"{name} is {value!r:.80}, not a time")
    return check_time(value)


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _from_json(name: str, value: Any) -> Any:
    if name in _TIMES and value is not None:
        if not isinstance(value, str):
            raise InvalidValue(f"{name} is {value!r:.80}, not a time")
        return parse_time(value)
    if name in _NUMBERS and (name, value) != ("strength", None):
        wanted = int | float if name in {"importance", "strength", "confidence"} else int
        if isinstance(value, bool) or not isinstance(value, wanted) or not 0 <= value < math.inf:
            raise InvalidValue(f"{name} is {value!r:.80}, not a number")
    if name in _IDS and value is not None:
        check_id(value)
    return value


def _set(owner: object, name: str, value: object) -> None:
    object.__setattr__(owner, name, value)


_LINES = ("agent_id", "project", "namespace", "title", "subtitle", "subject", "category", "source")
_TEXTS = ("narrative", "user_text", "assistant_text")
_SAID = frozenset({"title", "subtitle", "narrative", "facts", "user_text", "assistant_text"})
_LISTS = ("facts", "tags", "concepts", "files_read", "files_modified", "people", "derived_from")
_TIMES = (
    "created_at",
    "updated_at",
    "expires_at",
    "superseded_at",
    "deleted_at",
    "last_mentioned_at",
    "last_used_at",
    "last_confirmed_at",
    "consolidated_at",
)
_ALWAYS = ("created_at", "updated_at")
_COUNTS = ("token_count", "mention_count", "use_count", "confirmed_count", "consolidated_touches")
_NUMBERS = ("importance", "strength", "confidence", *_COUNTS)
_IDS = ("id", "superseded_by")
_WORDS: dict[str, tuple[str, ...]] = {
    "type": TYPES,
    "status": STATUSES,
    "visibility": VISIBILITIES,
    "sensitivity": SENSITIVITIES,
    "min_clearance": CLEARANCES,
}
_DEFAULTS: dict[str, Any] = {found.name: found.default for found in fields(Observation)} | {"metadata": {}}
_PUTS = tuple(getattr(Observation, name).__set__ for name in _DEFAULTS)
_values_of = attrgetter(*_DEFAULTS)
"""How each field of an observation is set, and read, past what checks it."""
_TRIPLE_DEFAULTS: dict[str, Any] = {found.name: found.default for found in fields(Triple)}
WRITTEN_DEFAULTS = {name: None if default is MISSING else _to_json(default) for name, default in _DEFAULTS.items()}
"""What a field that is not written stands for."""
