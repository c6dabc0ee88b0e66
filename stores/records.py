"""The values that stores keep. Plain, immutable, and free of any file format."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from chatbot.stores.errors import InvalidValue

ROLE = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def format_time(moment: datetime) -> str:
    """A moment as UTC text with microseconds: `2026-01-02T03:04:05.678901Z`. Raises `InvalidValue`."""
    return check_time(moment).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_time(text: str) -> datetime:
    """Read what `format_time` wrote, or any ISO 8601 time with a zone. Raises `InvalidValue`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidValue(f"{text!r} is not an ISO 8601 time") from error
    return check_time(moment)


def read_time(text: str) -> datetime:
    """Read a time as people write it: without a zone it is UTC, and a mere date is its first moment.

    Raises `InvalidValue`.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidValue(f"invalid time {text!r:.80}: write 2026-01-31 or 2026-01-31T15:00:00Z") from error
    return check_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def check_time(moment: datetime) -> datetime:
    """Return the moment in UTC. Raises `InvalidValue` without a time zone, or for a year without four digits."""
    if moment.tzinfo is None:
        raise InvalidValue(f"the time {moment.isoformat()} has no time zone: it needs one, such as UTC (Z)")
    try:
        moment = moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidValue(f"the time {moment.isoformat()} is out of range in UTC") from error
    if moment.year < 1000:
        raise InvalidValue(f"the time {moment.isoformat()} lies before the year 1000")
    return moment


def micros(at: datetime) -> int:
    """Microseconds since 1970."""
    return (at - _EPOCH) // _MICROSECOND


def moment(at: int) -> datetime:
    """The time that `micros` gave."""
    return _EPOCH + at * _MICROSECOND


def check_text(text: str, what: str) -> str:
    """Return `text` if it can be written as UTF-8; raise `InvalidValue`, naming `what`, if it cannot."""
    if not isinstance(text, str):
        raise InvalidValue(f"{what} is {text!r:.80}: it must be text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{what} is not valid Unicode (lone surrogate at character {error.start})") from error
    return text


@dataclass(frozen=True, slots=True)
class SessionRef:
    """Reference to a session: its id and the folder of its files."""

    id: str
    folder: Path


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key-value entry. Keys are unique in a session; `at` is when the value was set."""

    key: str
    value: str
    at: datetime

    def __post_init__(self) -> None:
        if not check_text(self.key, "the key"):
            raise InvalidValue("a key cannot be empty")
        check_text(self.value, f"the value of {self.key!r}")
        check_time(self.at)


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """One entry of a conversation. `role` is a lower-case word, such as user, assistant, tool or error."""

    role: str
    content: str
    at: datetime

    def __post_init__(self) -> None:
        if not ROLE.fullmatch(check_text(self.role, "the role")):
            raise InvalidValue(
                f"{self.role!r} cannot be a role: use a lower-case word of letters, digits, - and _, at most 32 long"
            )
        check_text(self.content, "the content")
        check_time(self.at)
