"""Tokens of the server. Only their hashes are stored, in a private file.

identities/.server/tokens.json    {"version": 1, "tokens": [{"id", "sha256", "label", "identities", …}]}

A token is 256 random bits, so its plain SHA-256 cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

import msgspec
from msgspec.structs import replace

from chatbot.errors import UnknownToken
from chatbot.memory.scope import Caller, check_namespace, utc_now
from chatbot.server.callers import Grant, ServerCaller, check_quota
from chatbot.stores.access import RIGHTS
from chatbot.stores.errors import MISFITS, DamagedFile, InvalidValue, LaterFormat
from chatbot.stores.fields import one_line
from chatbot.stores.home import Home
from chatbot.stores.plugins import open_place
from chatbot.stores.records import format_time

NAME = "tokens.json"
VERSION = 1
_PREFIX = "cbt_"
_MOST = 10_000
_FORM = re.compile(r"cbt_[A-Za-z0-9_-]{43}")


class Token(Grant, frozen=True, kw_only=True):
    """Stored data of a token, without the token itself."""

    id: str
    sha256: str
    label: str
    created_at: datetime

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        check_quota(self.quota)
        check_quota(self.user_quota)

    def as_json(self) -> dict[str, Any]:
        """Return the token as it is stored."""
        lists = {"identities": list(self.identities), "rights": [each for each in RIGHTS if each in self.rights]}
        held: dict[str, Any] = msgspec.to_builtins(self)
        return held | lists | {"created_at": format_time(self.created_at)}

    def caller(self) -> ServerCaller:
        """Return the caller of this token."""
        return ServerCaller(token=self.id, **_grant_fields(self))


def _grant_fields(grant: Grant) -> dict[str, Any]:
    return {name: getattr(grant, name) for name in Grant.__struct_fields__}


class Tokens:
    """The tokens in a home. A change by any process applies from the next request."""

    def __init__(self, home: Home) -> None:
        self._document = open_place(home).document(NAME)
        self._parsed = lru_cache(maxsize=1)(partial(_parse, path=self._document.name))

    def all(self) -> tuple[Token, ...]:
        """Return every token, oldest first. Raises `DamagedFile` or `LaterFormat`: all requests are then refused."""
        return self._parsed(self._document.read())

    def find(self, text: str) -> Token | None:
        """Return the token with that text, or None, in constant time."""
        asked = _hash(text)
        found = None
        for token in self.all():
            if hmac.compare_digest(token.sha256, asked):
                found = token
        return found if _FORM.fullmatch(text) else None

    def add(self, label: str, grant: Grant) -> tuple[str, Token]:
        """Make a token; its text is not stored. Raises `InvalidValue`, also for a label in use.

        Durable on return. A token for metrics need not open an identity.
        """
        if not grant.identities and not grant.metrics:
            raise InvalidValue("a token must open at least one identity")
        project = Caller().narrowed(rights=grant.rights, project=grant.project).project
        text = _PREFIX + secrets.token_urlsafe(32)
        token = Token(
            **_grant_fields(replace(grant, project=project)),
            id=f"tk_{secrets.token_hex(4)}",
            sha256=_hash(text),
            label=one_line(label, "the label"),
            created_at=utc_now(),
        )
        self._change(lambda tokens: _with(tokens, token))
        return text, token

    def limit(self, text: str, change: Callable[[Token], Token]) -> Token:
        """Change the quotas of the token with that id or label, and return it. Durable on return.

        Raises `UnknownToken` if there is none, or several.
        """
        changed: list[Token] = []

        def limited(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
            token = _find_token(tokens, text)
            new = change(token)
            changed[:] = [replace(token, quota=new.quota, user_quota=new.user_quota)]
            return tuple(changed[0] if each is token else each for each in tokens)

        self._change(limited)
        return changed[0]

    def revoke(self, text: str) -> Token:
        """Revoke the token with that id or label. Raises `UnknownToken` if there is none, or several."""
        revoked: list[Token] = []

        def without(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
            revoked[:] = [_find_token(tokens, text)]
            return tuple(token for token in tokens if token is not revoked[0])

        self._change(without)
        return revoked[0]

    def _change(self, change: Callable[[tuple[Token, ...]], tuple[Token, ...]]) -> None:
        def changed(data: bytes | None) -> bytes:
            tokens = change(_parse(data, self._document.name))
            if len(tokens) > _MOST:
                raise InvalidValue(f"{_MOST:,} tokens exist, the maximum: revoke some")
            written = {"version": VERSION, "tokens": [token.as_json() for token in tokens]}
            return json.dumps(written, indent=2, ensure_ascii=False).encode() + b"\n"

        self._document.change(changed)


def _find_token(tokens: tuple[Token, ...], text: str) -> Token:
    """Return the token with that id or label. Raises `UnknownToken`."""
    found = [token for token in tokens if token.id == text] or [token for token in tokens if token.label == text]
    if len(found) != 1:
        count = len(found) or "no"
        raise UnknownToken(f"{count} tokens are called {text!r:.80}: see `chatbot token list` for their ids")
    return found[0]


def _with(tokens: tuple[Token, ...], token: Token) -> tuple[Token, ...]:
    if token.label in {each.label for each in tokens}:
        raise InvalidValue(f"a token called {token.label!r:.80} already exists: choose another label, or revoke it")
    return (*tokens, token)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _parse(data: bytes | None, path: str) -> tuple[Token, ...]:
    if data is None:
        return ()
    try:
        written = json.loads(data)
        if written["version"] > VERSION:
            raise LaterFormat(f"{path} was written by a later release: upgrade chatbot to read it")
        return msgspec.convert(written["tokens"], tuple[Token, ...])
    except MISFITS as error:
        if isinstance(error, LaterFormat):
            raise
        raise DamagedFile(
            f"{path} cannot be read, so all requests are refused: repair or delete it ({error})"
        ) from error
