"""Home of an identity's memory: a folder of files, or an identity in a database.

An address is written as a URL with the identity after `#`: `postgresql://chatbot@db.example.org/chatbot#ada`.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from chatbot.stores.errors import InvalidSettings, did_you_mean
from chatbot.stores.records import check_path

SCHEMES = ("postgresql", "postgres")
DEFAULT_IDENTITY = "default"
"""The identity of an address that names none."""
_IDENTITY = re.compile(r"\.?[a-z0-9][a-z0-9_-]{0,63}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PASSWORD = re.compile(r"(:/{1,2}[^/?#\s@:]*):.*@", re.DOTALL)
"""A password with any character, up to the last @."""
_PARAMETER = re.compile(r"([?&](?:ssl)?password=)[^&\s]*", re.IGNORECASE)
_ENCODE = "write / ? # @ and % in a password as %2F %3F %23 %40 and %25"


@dataclass(frozen=True, slots=True)
class Address:
    """An identity in a database. Its text and its `repr` hold no password."""

    url: str = field(repr=False)
    identity: str = DEFAULT_IDENTITY

    def __str__(self) -> str:
        return f"{without_password(self.url)}#{self.identity}"

    def of(self, identity: str) -> "Address":
        """Return the address of another identity in the same database."""
        return Address(self.url, identity)


Home = Path | Address


def is_address(text: str) -> bool:
    """Return True for text that is a URL, not a path."""
    return _SCHEME.match(text) is not None


def parse_address(text: str) -> Address:
    """Read an address. Raises `InvalidSettings`, which shows no password."""
    shown = without_password(text)
    if (scheme := _SCHEME.match(text)) is None:
        raise InvalidSettings(f"{shown!r} is not the URL of a database: write postgresql://user@host:5432/database")
    if scheme[1] not in SCHEMES:
        raise InvalidSettings(f"{shown!r}: unknown storage {scheme[1]!r}{did_you_mean(scheme[1], SCHEMES)}")
    url, _, identity = text.partition("#")
    if identity and not _IDENTITY.fullmatch(identity):
        raise InvalidSettings(
            f"{shown!r}: the part after # is not an identity: use lower-case letters, digits, - and _; {_ENCODE}"
        )
    try:
        _ = urlsplit(url).port
    except ValueError:  # its message quotes the password
        if "," not in url:  # several hosts, of which libpq takes the first that answers
            raise InvalidSettings(f"{shown!r} cannot be read: correct its port, and {_ENCODE}") from None
    return Address(url, identity or DEFAULT_IDENTITY)


def parse_home(text: str) -> Home:
    """Return the address or the folder that the text names."""
    return parse_address(text) if is_address(text) else check_path(text, "the folder")


def without_password(text: str) -> str:
    """Return the text with `***` for each password in a URL."""
    return _PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))
