"""The record of a session, and the namespaces that keep the memories of users apart.

A namespace is a label:

    ""                    the owner's
    shop                  of an application, as its token or its code says
    user:alice            of a user that a request named
    shop/user:alice       of a user of that application

A label is mapped to ASCII, so that nothing in it is a path, and no two labels share a namespace: Unicode forms, case
and white space all count. A label that would be too long is replaced by its SHA-256.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

from chatbot.stores.errors import InvalidValue
from chatbot.stores.fields import one_line
from chatbot.stores.session_record import (
    LONGEST_TITLE,
    VERSION,
    SessionRecord,
    decode_record,
    is_session_id,
    parse_record,
)

if TYPE_CHECKING:
    from uuid import UUID

__all__ = [
    "CHOICES",
    "LONGEST_TITLE",
    "VERSION",
    "SessionRecord",
    "decode_record",
    "is_session_id",
    "new_id",
    "parse_record",
    "utc_now",
]

CHOICES = "choices"
"""The key under which a session keeps its own model and persona, and whether memory is used."""


def new_id() -> UUID:
    """A UUIDv7: unique, and in the order of time."""
    import uuid6

    return uuid6.uuid7()


def utc_now() -> datetime:
    """The present moment, aware."""
    return datetime.now(UTC)


LONGEST_LABEL = 1_000
"""Characters of a user's label."""
LONGEST_NAME = 200
"""Characters of a namespace that a person or an application names; what is inside of it may be longer."""
_LONGEST_WRITTEN = 200
_USER = "user:"
_HASHED = "#"
"""Begins what stands for a long label; `quote` would have escaped it."""


def check_namespace(name: str, longest: int = LONGEST_NAME) -> str:
    """Return the name of a namespace. Raises `InvalidValue` for one that could not be kept as it is."""
    if one_line(name, "the namespace") != name or len(name) > longest:
        raise InvalidValue(
            f"the namespace {name!r:.80} is invalid: use one line of at most {longest} characters, "
            "without spaces at its ends or control characters"
        )
    return name


def user_namespace(label: str, within: str = "") -> str:
    """Return the namespace of the user with that label, inside the namespace `within`. Raises `InvalidValue`."""
    if not isinstance(label, str):
        raise TypeError(f"a user's name is a string: got {type(label).__name__} {label!r}")
    if not label or len(label) > LONGEST_LABEL:
        raise InvalidValue(f"a user's name has 1 to {LONGEST_LABEL:,} characters")
    written = label.encode("utf-8", "surrogatepass")
    name = quote(written, safe="@+")
    if len(name) > _LONGEST_WRITTEN:
        name = _HASHED + hashlib.sha256(written).hexdigest()
    return joined(within, _USER + name)


def user_of(namespace: str) -> str | None:
    """Return the label of the user whose namespace that is; a long label's digest; None for other namespaces."""
    name = namespace.rpartition("/")[2]
    if not name.startswith(_USER):
        return None
    return unquote_to_bytes(name.removeprefix(_USER)).decode("utf-8", "surrogatepass")


def joined(outer: str, inner: str) -> str:
    """Return the namespace `inner` inside of `outer`."""
    return f"{outer}/{inner}" if outer and inner else outer or inner


def digest_of(namespace: str) -> str:
    """Return the text that replaces a namespace where no user's name may be kept."""
    return hashlib.sha256(namespace.encode()).hexdigest()
