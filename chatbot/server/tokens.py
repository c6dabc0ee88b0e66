"""Tokens: what lets a caller in from afar. Only their hashes are kept, in a file that others cannot read.

identities/.server/tokens.json    {"version": 1, "tokens": [{"id", "sha256", "label", "identities", …}]}

A token is 256 random bits, so a plain SHA-256 of it tells nothing that could be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from chatbot.errors import UnknownToken
from chatbot.memory.record import utc_now
from chatbot.server.callers import Caller
from stores.access import CLEARANCES, Clearance
from stores.errors import DamagedFile, InvalidValue, LaterFormat, MissingFolder
from stores.files import Stamp, locked, make_folder, opened, stamp
from stores.observation import one_line
from stores.records import format_time, parse_time

FOLDER = ".server"
NAME = "tokens.json"
VERSION = 1
_PREFIX = "cbt_"
_MOST = 10_000
_FORM = re.compile(r"cbt_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token; not the token itself."""

    id: str
    sha256: str
    label: str
    identities: tuple[str, ...]
    clearance: Clearance
    rate_per_minute: int
    """0 leaves it to the server's settings."""
    created_at: datetime
    metrics: bool = False
    """Whether it opens the metrics."""

    def as_json(self) -> dict[str, Any]:
        """The token as the file holds it."""
        return asdict(self) | {"identities": list(self.identities), "created_at": format_time(self.created_at)}

    def caller(self) -> Caller:
        """Who comes in with it."""
        return Caller(self.id, frozenset(self.identities), self.clearance, self.rate_per_minute, self.metrics)


class Tokens:
    """The tokens in a folder. A change, by whichever process, holds from the next request on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: tuple[Stamp | None, tuple[Token, ...]] = (None, ())

    @classmethod
    def of(cls, identities: Path) -> Tokens:
        """Those that open the identities in that folder."""
        return cls(identities / FOLDER)

    def all(self) -> tuple[Token, ...]:
        """Every token, oldest first. Raises `DamagedFile` or `LaterFormat`: then nobody gets in."""
        now = stamp(self._folder / NAME)
        if now is None:
            self._read = (None, ())
        elif now != self._read[0] or not now.is_settled():
            self._read = (now, self._load())
        return self._read[1]

    def find(self, text: str) -> Token | None:
        """The token of that text, or None. Takes the same time for any text, whatever there is."""
        asked = _hash(text)
        found = None
        for token in self.all():
            if hmac.compare_digest(token.sha256, asked):
                found = token
        return found if _FORM.fullmatch(text) else None

    def add(
        self,
        label: str,
        identities: Iterable[str],
        clearance: Clearance,
        *,
        rate_per_minute: int = 0,
        metrics: bool = False,
    ) -> tuple[str, Token]:
        """Make a token; its text is known only now. Raises `InvalidValue`, also for a label that is taken.

        Durable on return. One for `metrics` opens those, and may open no identity.
        """
        names = tuple(dict.fromkeys(identities))
        if not names and not metrics:
            raise InvalidValue("a token needs at least one identity that it opens")
        if clearance not in CLEARANCES:
            raise InvalidValue(f"the clearance is {clearance!r}: it must be one of {', '.join(CLEARANCES)}")
        text = _PREFIX + secrets.token_urlsafe(32)
        token = Token(
            id=f"tk_{secrets.token_hex(4)}",
            sha256=_hash(text),
            label=one_line(label, "the label"),
            identities=names,
            clearance=clearance,
            rate_per_minute=rate_per_minute,
            created_at=utc_now(),
            metrics=metrics,
        )
        self._change(lambda tokens: _with(tokens, token))
        return text, token

    def revoke(self, text: str) -> Token:
        """Take the token back whose id or label that is. Raises `UnknownToken` where none is, or several."""
        revoked: list[Token] = []

        def without(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
            revoked[:] = [token for token in tokens if token.id == text] or [
                token for token in tokens if token.label == text
            ]
            if len(revoked) != 1:
                count = len(revoked) or "no"
                raise UnknownToken(f"{count} tokens are called {text!r:.80}: see `chatbot token list` for their ids")
            return tuple(token for token in tokens if token is not revoked[0])

        self._change(without)
        return revoked[0]

    def _change(self, change: Callable[[tuple[Token, ...]], tuple[Token, ...]]) -> None:
        make_folder(self._folder)
        with locked(self._folder) as folder:
            tokens = change(self._load())
            if len(tokens) > _MOST:
                raise InvalidValue(f"there are {_MOST:,} tokens: revoke some")
            written = {"version": VERSION, "tokens": [token.as_json() for token in tokens]}
            folder.replace(NAME, json.dumps(written, indent=2, ensure_ascii=False).encode() + b"\n")

    def _load(self) -> tuple[Token, ...]:
        try:
            with opened(self._folder) as folder:
                data = folder.read(NAME)
        except (FileNotFoundError, MissingFolder):
            return ()
        return _parse(data, self._folder / NAME)


def _with(tokens: tuple[Token, ...], token: Token) -> tuple[Token, ...]:
    if token.label in {each.label for each in tokens}:
        raise InvalidValue(
            f"there is a token called {token.label!r:.80} already: give another label, or revoke that one"
        )
    return (*tokens, token)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _parse(data: bytes, path: Path) -> tuple[Token, ...]:
    try:
        written = json.loads(data)
        if written["version"] > VERSION:
            raise LaterFormat(f"{path} was written by a later release: upgrade chatbot to read it")
        return tuple(_parse_token(token) for token in written["tokens"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, LaterFormat):
            raise
        raise DamagedFile(f"{path} cannot be read, so nobody is let in: mend it, or delete it ({error})") from error


def _parse_token(written: dict[str, Any]) -> Token:
    if written["clearance"] not in CLEARANCES or not isinstance(written["identities"], list):
        raise InvalidValue(f"the token {written['id']!r} has no valid clearance or identities")
    return Token(
        id=str(written["id"]),
        sha256=str(written["sha256"]),
        label=str(written["label"]),
        identities=tuple(map(str, written["identities"])),
        clearance=written["clearance"],
        rate_per_minute=int(written["rate_per_minute"]),
        created_at=parse_time(written["created_at"]),
        metrics=written.get("metrics") is True,
    )
