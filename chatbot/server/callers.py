"""Callers with their permissions: the tokens of the server, of which only hashes are stored, and the accounts of users.

identities/.server/tokens.json    {"version": 1, "tokens": [{"id", "sha256", "label", "identities", …}]}
identities/.server/usage.jsonl    one line per call and account, without text or names
identities/.server/quotas.json    {"version": 1, "users": {digest of namespace: {"day_usd", "day_tokens"}}}

A token is 256 random bits, so its plain SHA-256 cannot be guessed.
"""

import asyncio
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from chatbot.chat.ledger import NO_QUOTA, Bill, Ledger, Payer, Quota, next_day
from chatbot.config import Remembers, Users
from chatbot.errors import UnknownToken
from chatbot.memory import MemorySystem
from chatbot.memory.scope import Caller, check_namespace, join_namespaces, namespace_digest, user_namespace, utc_now
from chatbot.server.earlier_requests import EarlierRequests
from chatbot.stores.access import EVERY_RIGHT, GUEST_RIGHTS, RIGHTS, Clearance, Right
from chatbot.stores.access import OWNER as OWNER_PRINCIPAL
from chatbot.stores.errors import MISFITS, DamagedFile, InvalidValue, LaterFormat
from chatbot.stores.fields import one_line
from chatbot.stores.home import Home
from chatbot.stores.plugins import open_place
from chatbot.stores.records import format_time

TOKENS = "tokens.json"
QUOTAS = "quotas.json"
Stored = TypeVar("Stored")


class Grant(msgspec.Struct, frozen=True):
    """The rights of a token: which identities it opens, and how much its holder may do and spend."""

    identities: tuple[str, ...] = ()
    clearance: Clearance = "public"
    rate_per_minute: int = 0
    """0 uses the server's setting."""
    metrics: bool = False
    """True for a metrics token, which reads the metrics of all identities."""
    rights: frozenset[Right] = GUEST_RIGHTS
    """The rights of the holder; those of a guest by default."""
    namespace: str = ""
    """Namespace in each identity's memory; no request can leave it."""
    project: str | None = None
    """The project that it is bound to; empty for none, None for all."""
    users: Users = "apart"
    """Memory of users named in requests: one for each, or the holder's; or one for each, and each request names one."""
    memory: Remembers = "off"
    """`on` to remember calls through OpenAI's API that name no session."""
    quota: Quota = NO_QUOTA
    """Daily limits of all its calls."""
    user_quota: Quota = NO_QUOTA
    """Daily limits of each user named in requests, unless they have their own."""


class ServerCaller(Grant, frozen=True, kw_only=True):
    """An authorised caller: the holder of a token or the owner, and the user and project that their request names."""

    token: str = ""
    """Id of their token; empty for the owner, who needs none."""
    user: str | None = None
    """The user that the request names, if users are apart; then `namespace` is theirs."""
    opens_all: bool = False
    """True for the owner: every identity."""

    @property
    def key(self) -> str:
        """Key of the caller's rate: the id of the token, and a digest of the user."""
        holder = self.token or "owner"
        return holder if self.user is None else f"{holder}/{namespace_digest(self.namespace)}"

    @property
    def principal(self) -> str:
        """Principal of their rows, unless they name a user."""
        return f"token:{self.token}" if self.token else OWNER_PRINCIPAL

    @property
    def is_owner(self) -> bool:
        """True for the owner on this machine."""
        return self.opens_all and self.user is None

    @property
    def sees_all(self) -> bool:
        """True for a caller who sees all of an identity: clearance, namespace and project hide nothing."""
        return self.clearance == "full" and not self.namespace and self.project is None

    def may_enter(self, identity: str) -> bool:
        """Return whether the caller may open the identity, and know that it exists."""
        return self.opens_all or identity in self.identities

    def for_user(self, label: str) -> "ServerCaller":
        """Return the caller acting for that user; unchanged if users are shared.

        Raises `InvalidValue` for an invalid name, and for a second one.
        """
        namespace = user_namespace(label, self.namespace if self.user is None else "")
        if self.users == "shared" or label == self.user:
            return self
        if self.user is not None:
            raise InvalidValue("the request names two users: send one")
        return replace(self, namespace=namespace, user=label)

    def in_project(self, name: str) -> "ServerCaller":
        """Return the caller in a project; `-` is none. Raises `AccessDenied` if they are bound to another."""
        return replace(self, project=Caller(project=self.project).narrowed(project=name).project)

    def memory_of(self, memory: MemorySystem, rights: frozenset[Right] = EVERY_RIGHT) -> MemorySystem:
        """Return the memory of an identity as the caller may use it, with at most these rights.

        Raises `InvalidValue` if the request has to name a user, and does not.
        """
        if self.users == "required" and self.user is None:
            raise InvalidValue("name the user: X-Chatbot-User, or `user` in OpenAI's routes; this server requires one")
        is_named = self.user is not None or memory.caller.principal != OWNER_PRINCIPAL  # then the user is the writer
        return memory.cleared_for(
            self.clearance,
            rights=self.rights & rights,
            principal=None if is_named else self.principal,
            namespace=join_namespaces(memory.caller.namespace, self.namespace),
            project=self.project,
        )


OWNER = ServerCaller((), "full", rights=EVERY_RIGHT, opens_all=True)
"""The caller on this machine while no tokens exist."""

_VERSION = 1
_FORM = re.compile(r"cbt_[A-Za-z0-9_-]{43}")
_MOST_TOKENS = 10_000
_MOST_QUOTAS = 100_000


class Token(Grant, frozen=True, kw_only=True):
    """Stored data of a token, without the token itself."""

    id: str
    sha256: str
    label: str
    created_at: datetime

    def __post_init__(self) -> None:
        check_namespace(self.namespace)

    def as_json(self) -> dict[str, Any]:
        """Return the token as it is stored."""
        held: dict[str, Any] = msgspec.to_builtins(self)
        rights = [each for each in RIGHTS if each in self.rights]
        return held | {"rights": rights, "created_at": format_time(self.created_at)}

    def caller(self) -> ServerCaller:
        """Return the caller of this token."""
        return ServerCaller(token=self.id, **_grant_fields(self))


def _grant_fields(grant: Grant) -> dict[str, Any]:
    return {name: getattr(grant, name) for name in Grant.__struct_fields__}


class Tokens:
    """The tokens in a home. A change by any process applies from the next request."""

    def __init__(self, home: Home) -> None:
        self._document = open_place(home).document(TOKENS)
        self._parsed = lru_cache(maxsize=1)(partial(_parse_tokens, name=self._document.name))

    def all(self) -> tuple[Token, ...]:
        """Return every token, oldest first. Raises `DamagedFile` or `LaterFormat`: all requests are then refused."""
        return self._parsed(self._document.read())

    def find(self, text: str) -> Token | None:
        """Return the token with that text, or None, in constant time."""
        asked = _hash(text)
        found = [token for token in self.all() if hmac.compare_digest(token.sha256, asked)]
        return found[0] if found and _FORM.fullmatch(text) else None

    def add(self, label: str, grant: Grant) -> tuple[str, Token]:
        """Make a token; its text is not stored. Durable on return. Raises `InvalidValue`, also for a label in use."""
        if not grant.identities and not grant.metrics:
            raise InvalidValue("a token must open at least one identity")
        project = Caller().narrowed(rights=grant.rights, project=grant.project).project
        text = _new_text()
        token = Token(
            **_grant_fields(replace(grant, project=project)),
            id=f"tk_{secrets.token_hex(4)}",
            sha256=_hash(text),
            label=one_line(label, "the label"),
            created_at=utc_now(),
        )

        def added(tokens: list[Token]) -> Token:
            if token.label in {each.label for each in tokens}:
                raise InvalidValue(f"a token is called {token.label!r:.80}: choose another label, or revoke that one")
            tokens.append(token)
            return token

        return text, self._change(added)

    def update(self, text: str, change: Callable[[Token], Token]) -> Token:
        """Change the one token with that id or label, and return it. Durable on return. Raises `UnknownToken`."""

        def updated(tokens: list[Token]) -> Token:
            at = _index_of(tokens, text)
            tokens[at] = change(tokens[at])
            return tokens[at]

        return self._change(updated)

    def renew(self, text: str) -> tuple[str, Token]:
        """Give the token with that id or label another text: what its holder wrote stays theirs. Raises as `update`."""
        new = _new_text()
        return new, self.update(text, lambda token: replace(token, sha256=_hash(new)))

    def revoke(self, text: str) -> Token:
        """Revoke the token with that id or label. Raises `UnknownToken` if there is none, or several."""
        return self._change(lambda tokens: tokens.pop(_index_of(tokens, text)))

    def _change(self, change: Callable[[list[Token]], Token]) -> Token:
        """Store the list that `change` was given and changed; return the token that it returned."""
        touched: list[Token] = []

        def changed(data: bytes | None) -> bytes:
            tokens = [*_parse_tokens(data, self._document.name)]
            touched[:] = [change(tokens)]
            if len(tokens) > _MOST_TOKENS:
                raise InvalidValue(f"{_MOST_TOKENS:,} tokens exist, the maximum: revoke some")
            written = {"version": _VERSION, "tokens": [token.as_json() for token in tokens]}
            return json.dumps(written, indent=2, ensure_ascii=False).encode() + b"\n"

        self._document.change(changed)
        return touched[0]


class Account(msgspec.Struct, frozen=True):
    """State of an account on a day."""

    whose: str
    quota: Quota
    spent: Bill
    resets_at: datetime


class Accounts:
    """The accounts in a home."""

    def __init__(self, home: Home) -> None:
        place = open_place(home)
        self._ledger = Ledger(place, counts=False)
        self._document = place.document(QUOTAS)
        self._parsed = lru_cache(maxsize=1)(partial(_parse_quotas, name=self._document.name))

    def payers(self, caller: ServerCaller) -> tuple[Payer, ...]:
        """Return the token and user who pay. May block. Raises `DamagedFile` for unreadable quotas."""
        payers = []
        if caller.token:
            payers.append(self.of_token(caller.token, caller.quota))
        if caller.user is not None:
            payers.append(self.of_user(caller.namespace, caller.user_quota))
        return tuple(payers)

    def of_token(self, token_id: str, quota: Quota) -> Payer:
        """Return the payer for a token."""
        return Payer(self._ledger, f"token:{token_id}", "this token", quota)

    def of_user(self, namespace: str, otherwise: Quota = NO_QUOTA) -> Payer:
        """Return the payer for the user of a namespace, with the quota `otherwise` if they have none. May block."""
        digest = namespace_digest(namespace)
        return Payer(self._ledger, f"user:{digest}", "this user", self.quotas().get(digest, otherwise))

    def quotas(self) -> Mapping[str, Quota]:
        """Return the quotas of users who have their own, by the digests of their namespaces. May block."""
        return self._parsed(self._document.read())

    async def account(self, payer: Payer, now: datetime) -> Account:
        """Return today's account of a payer."""
        spent = (await payer.ledger.by_session()).get(payer.account(now), Bill())
        return Account(payer.whose, payer.quota, spent, next_day(now))

    def set_quota(self, namespace: str, quota: Quota | None) -> None:
        """Give a user a quota of their own; None removes it, so the token's applies again. Durable on return."""

        def changed(data: bytes | None) -> bytes:
            quotas = {**_parse_quotas(data, self._document.name)}
            quotas.pop(namespace_digest(namespace), None)
            if quota is not None:
                quotas[namespace_digest(namespace)] = quota
            if len(quotas) > _MOST_QUOTAS:
                raise InvalidValue(f"{_MOST_QUOTAS:,} users have a quota of their own, the maximum: remove some")
            stored = {"version": _VERSION, "users": {digest: asdict(each) for digest, each in quotas.items()}}
            return json.dumps(stored, indent=1).encode() + b"\n"

        self._document.change(changed)


async def forget_user(namespace: str, accounts: Accounts, requests: EarlierRequests) -> int:
    """Delete the user's quota and the records of their requests; return how many. Durable on return."""
    await asyncio.to_thread(accounts.set_quota, namespace, None)
    return await asyncio.to_thread(requests.forget, namespace)


def _index_of(tokens: list[Token], text: str) -> int:
    """Return the index of the token with that id or label. Raises `UnknownToken`."""
    found = [at for at, token in enumerate(tokens) if token.id == text]
    found = found or [at for at, token in enumerate(tokens) if token.label == text]
    if len(found) != 1:
        count = len(found) or "no"
        raise UnknownToken(f"{count} tokens are called {text!r:.80}: see `chatbot token list` for their ids")
    return found[0]


def _new_text() -> str:
    return f"cbt_{secrets.token_urlsafe(32)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _parse_tokens(data: bytes | None, name: str) -> tuple[Token, ...]:
    return _parse(data, name, "tokens", tuple[Token, ...], "all requests are refused")


def _parse_quotas(data: bytes | None, name: str) -> dict[str, Quota]:
    return _parse(data, name, "users", dict[str, Quota], "users cannot chat")


def _parse(data: bytes | None, name: str, field: str, kind: type[Stored], effect: str) -> Stored:
    """Return the field of a document; empty if there is none. Raises `DamagedFile` or `LaterFormat`."""
    if data is None:
        return kind()
    try:
        written = json.loads(data)
        if written["version"] > _VERSION:
            raise LaterFormat(f"{name} was written by a later release: upgrade chatbot to read it")
        return msgspec.convert(written[field], kind)
    except LaterFormat:
        raise
    except MISFITS as error:
        raise DamagedFile(f"{name} is damaged, so {effect} ({error}): repair or delete it") from error
