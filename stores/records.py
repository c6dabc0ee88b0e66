"""Values that stores keep, and the record of a session, known without opening it. Immutable."""

import json
import logging
import math
import os
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import replace

from chatbot.stores import access
from chatbot.stores.errors import InvalidValue, LaterFormat, unknown_choice

Item = TypeVar("Item")
ROLE = re.compile(r"[a-z][a-z0-9_-]{0,31}")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_time(moment: datetime) -> str:
    """Return a moment as UTC text with microseconds: `2026-01-02T03:04:05.678901Z`. Raises `InvalidValue`."""
    return check_time(moment).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_time(text: str) -> datetime:
    """Read what `format_time` wrote, or any ISO 8601 time with a zone. Raises `InvalidValue`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidValue(f"{text!r:.80} is not an ISO 8601 time") from error
    return check_time(moment)


def read_time(text: str) -> datetime:
    """Read a time as people write it: UTC without a zone, a date alone is its start. Raises `InvalidValue`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidValue(f"invalid time {text!r:.80}: write 2026-01-31 or 2026-01-31T15:00:00Z") from error
    return check_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def check_time(moment: datetime) -> datetime:
    """Return the moment in UTC. Raises `InvalidValue` without a time zone, or for a year without four digits."""
    if check_type(moment, datetime, "the time").tzinfo is None:
        raise InvalidValue(f"the time {moment.isoformat()} has no time zone: it needs one, such as UTC (Z)")
    try:
        moment = moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidValue(f"the time {moment.isoformat()} is out of range in UTC") from error
    if moment.year < 1000:
        raise InvalidValue(f"the time {moment.isoformat()} is before the year 1000")
    return moment


def micros(at: datetime) -> int:
    """Return the microseconds since 1970."""
    return (at - EPOCH) // timedelta.resolution


def moment(at: int) -> datetime:
    """Return the time of these microseconds."""
    return EPOCH + at * timedelta.resolution


def check_type(value: Item, kind: Any, what: str, hint: str = "") -> Item:
    """Return the value. Raises `InvalidValue`, naming `what`, unless it is of the type, or of one in a union."""
    if not isinstance(value, kind):
        names = " or ".join(each.__name__.removesuffix("Type") for each in get_args(kind) or (kind,))
        raise InvalidValue(f"{what} is {value!r:.80}: it must be {names}{hint}")
    return value


def check_text(text: str, what: str) -> str:
    """Return `text` if it can be written as UTF-8; raise `InvalidValue`, naming `what`, if it cannot."""
    if not isinstance(text, str):
        raise InvalidValue(f"{what} is {text!r:.80}: it must be text")
    try:
        _ = text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{what} is not valid Unicode (lone surrogate at character {error.start})") from error
    return text


def check_path(path: str | os.PathLike[str], what: str) -> Path:
    """Return the path, `~` expanded. Raises `InvalidValue`, naming `what`, for another type and for a NUL character."""
    if "\0" in str(check_type(path, str | os.PathLike, what)):
        raise InvalidValue(f"{what} is {path!r:.80}: a path has no NUL character")
    return expand_home(Path(path))


def expand_home(path: str | Path) -> Path:
    """Return the path with the home folder in place of `~`. Raises `InvalidValue` for an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InvalidValue(f"{str(path)!r:.200} names an unknown user: write the whole path") from error


def real_path(path: Path) -> Path:
    """Return the path after all links. Unlike `Path.resolve` it raises nothing for a link that leads to itself."""
    return Path(os.path.realpath(path))


def reason_of(error: BaseException) -> str:
    """Return type and message of an error that a plug-in raised, of a group those of its errors; log the traceback."""
    logging.getLogger(__name__).debug("a plug-in failed", exc_info=error)
    if isinstance(error, BaseExceptionGroup):  # its own message only counts them
        return "; ".join(map(reason_of, error.exceptions))
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - its own code makes the message
        message = "it has no message"
    return well_formed(f"{type(error).__name__}: {message}")


def well_formed(text: str) -> str:
    """Return `text` with its surrogates joined to characters; a lone one becomes a replacement character."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


if TYPE_CHECKING:
    Vector: TypeAlias = array[float]
else:
    Vector = array  # Python 3.11 has no array[float]
"""Vector of meaning, of length 1: 32-bit floats (type code `f`), which NumPy reads without copying."""


def vector(values: Sequence[float]) -> Vector:
    """Return the numbers as 32-bit floats."""
    return array("f", values)


def unit(values: Sequence[float], *, length: float = 1.0) -> Vector:
    """Return the vector scaled to that length; a zero or infinite one becomes zeros."""
    norm = math.hypot(*values)
    if not norm or not math.isfinite(norm):
        return array("f", bytes(4 * len(values)))
    return array("f", [value / norm * length for value in values])


class SessionRef(Struct, frozen=True):
    """Reference to a session: its id and the folder of its files."""

    id: str
    folder: Path
    fresh_at: float = 0.0
    """As in `View`."""


KEYED = "key:"
"""Beginning of the origin of a session that a caller knows by a key; any other origin is that of an import."""
LONGEST_KEY = 2_000
"""Maximum bytes of a key: PostgreSQL cannot index a longer one."""


class KeyValue(Struct, frozen=True):
    """One key-value entry. Keys are unique in a session; `at` is when the value was set."""

    key: str
    value: str
    at: datetime

    def __post_init__(self) -> None:
        if not check_text(self.key, "the key"):
            raise InvalidValue("a key cannot be empty")
        if (size := len(self.key.encode())) > LONGEST_KEY:
            raise InvalidValue(f"the key {self.key!r:.80} takes {size:,} bytes: at most {LONGEST_KEY:,} can be kept")
        check_text(self.value, f"the value of {self.key!r:.80}")
        check_time(self.at)


class TranscriptEntry(Struct, frozen=True):
    """One entry of a conversation. `role` is a lower-case word, such as user, assistant, tool or error."""

    role: str
    content: str
    at: datetime

    def __post_init__(self) -> None:
        if not ROLE.fullmatch(check_text(self.role, "the role")):
            raise InvalidValue(
                f"{self.role!r:.80} cannot be a role: use a lower-case word of at most 32 letters, digits, - and _"
            )
        check_text(self.content, "the content")
        check_time(self.at)


VERSION = 1
LONGEST_TITLE = 200
LONGEST_CONTENT = 15_000_000
"""Characters of an entry, which then takes less than `LONGEST_ENTRY` bytes and is found from the end of its file."""
CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_INVISIBLE = CONTROLS | dict.fromkeys((8206, 8207, *range(8234, 8239), *range(8294, 8298)))
ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]|\s\s|^\s|\s$")
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
"""Form of every id: a UUID in lower case."""


def chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield the items in slices of at most `size`."""
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def canonical(value: object) -> str:
    """Return a JSON value as text, the same for equal tables; 1, 1.0 and true differ."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def in_line(text: str) -> str:
    """Return the text on one line, without control characters and marks of direction."""
    return " ".join(" ".join(text.split()).translate(_INVISIBLE).split()) if ODD.search(text) else text


class SessionRecord(Struct, frozen=True, repr_omit_defaults=True):
    """One session. `id` is a UUIDv7, `store_types` the names of its stores, times are aware UTC.

    Texts are single lines, also from files and other machines: a title is folded to one, other texts are refused.
    """

    id: str
    agent_id: str
    store_types: tuple[str, ...]
    created_at: datetime
    used_at: datetime
    """Time of the last addition, as far as the index knows."""
    title: str = ""
    parent: str | None = None
    """The session that this one was forked from."""
    expires_at: datetime | None = None
    clearance: access.Clearance = "full"
    """Clearance needed to open the session, and the highest clearance of memories seen through it."""
    archived_at: datetime | None = None
    """Time of archiving: lists leave it out, but it can be opened."""
    pinned_at: datetime | None = None
    """Time of pinning: lists for people show it first."""
    origin: str = ""
    """Stable key of the origin of an imported session."""
    namespace: str = ""
    """Namespace that it reads and writes, the only one from which it can be opened."""
    principal: str = access.OWNER
    """Principal who owns it; see `chatbot.stores.access`."""
    project: str = ""
    """Project of the session and its memories; those of other projects are not recalled."""
    sensitivity: access.Sensitivity = "public"
    """Minimum sensitivity of its memories."""
    history: str = ""
    """A client's conversation, as `entries:one.another`: their number, and digests of its last exchanges."""

    def __post_init__(self) -> None:
        for each in (self.id,) if self.parent is None else (self.id, self.parent):
            if not is_id(each):
                raise InvalidValue(f"{each!r:.80} is not a session id")
        for name, value in zip(_TEXTS, _texts_of(self), strict=True):
            if value != "" and in_line(check_text(value, name)) != value:
                raise InvalidValue(f"the {name} is {value!r:.80}: it must be one line without control characters")
        if self.clearance not in access.CLEARANCES:
            raise unknown_choice("the clearance", self.clearance, access.CLEARANCES)
        if self.sensitivity not in access.SENSITIVITIES[:-1]:
            raise InvalidValue(f"the sensitivity is {self.sensitivity!r:.80}: it must be public, private or secret")
        for name in self.store_types:
            check_text(name, "a store's name")

    def expiry(self, ttl: timedelta | None) -> datetime | None:
        """Return the end of its time to live: its own or, if it began without one, `ttl` after its last use."""
        return self.used_at + ttl if self.expires_at is None and ttl is not None else self.expires_at

    def renamed(self, title: str) -> "SessionRecord":
        """Return the record with another title, on one line and at most 200 characters long."""
        return replace(self, title=_title(title))

    def used(self, now: datetime) -> "SessionRecord":
        """Return the record of the session after something was added to it."""
        return replace(self, used_at=max(now, self.used_at))

    def is_open_to(self, clearance: access.Clearance, namespace: str = "", project: str | None = None) -> bool:
        """Return whether a caller of this clearance, namespace and project (None: all) may know of the session."""
        return (
            namespace == self.namespace
            and (project is None or access.is_same_project(project, self.project))
            and access.is_cleared(clearance, self.clearance)
        )

    def as_json(self) -> dict[str, Any]:
        """Return the record as stored in `session.json` and in the index."""
        said: dict[str, Any] = {"version": VERSION}
        for name in _FIELDS:
            value = getattr(self, name)
            if name not in _LEFT_OUT or value != _LEFT_OUT[name]:
                said[name] = format_time(value) if isinstance(value, datetime) else value
        return said | {"store_types": list(self.store_types)}


_FIELDS = SessionRecord.__struct_fields__
_TEXTS = ("agent_id", "title", "origin", "namespace", "principal", "project", "history")
_texts_of = attrgetter(*_TEXTS)
_TIMES = ("created_at", "used_at", "expires_at", "archived_at", "pinned_at")
_LEFT_OUT = {"project": "", "sensitivity": "public", "pinned_at": None, "history": ""}
"""Fields that are not written if they have this value."""


def _title(text: str) -> str:
    title = in_line(check_text(text, "the title"))
    return title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1].rstrip()}…"


def is_id(text: object) -> bool:
    """Return whether `text` has the form of an id; nothing else may name a session's folder."""
    return isinstance(text, str) and ID.fullmatch(text) is not None


_NEEDED = ("id", "agent_id", "store_types", "created_at")


def parse_record(written: Mapping[str, Any]) -> SessionRecord:
    """Read a record in the form of `as_json`. Raises `InvalidValue`, or `LaterFormat` for one of a later version."""
    try:
        if written.get("version", VERSION) > VERSION:
            raise LaterFormat(
                f"it was written by a later release (format {written['version']}): upgrade chatbot to read it"
            )
        given = {
            name: value
            for name, value in written.items()
            if name in _FIELDS and (name in _NEEDED or value not in (None, ""))
        }
        for name in _TIMES:
            if name in given:
                given[name] = parse_time(given[name])
        if not isinstance(given["store_types"], list):
            raise TypeError(f"the stores are {given['store_types']!r}, not a list of names")
        given["store_types"] = tuple(given["store_types"])
        given["title"] = _title(given.get("title", ""))
        return SessionRecord(**{"used_at": given["created_at"]} | given)
    except KeyError as error:
        raise InvalidValue(f"it has no {error}") from error
    except (TypeError, AttributeError) as error:
        raise InvalidValue(f"a field has the wrong type: {error}") from error


def decode_record(data: bytes, session_id: str) -> SessionRecord:
    """Read a `session.json`; the folder's name is the id, whatever it says. Raises `InvalidValue` or `LaterFormat`."""
    try:
        written = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"not valid JSON: {error}") from error
    return replace(parse_record(written), id=session_id)
