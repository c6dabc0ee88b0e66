"""`/v1/users`: the end users that requests have named, and their quotas; `/v1/backup`, `/v1/sync`: a whole identity."""

import asyncio
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Self

import msgspec
from fastapi import APIRouter, Body, Query, Response
from msgspec.structs import replace
from pydantic import Field
from starlette.responses import StreamingResponse

from chatbot.chat.ledger import Quota
from chatbot.errors import ConfigError
from chatbot.memory.scope import LONGEST_LABEL, namespace_digest, utc_now
from chatbot.memory.users_and_projects import export_user, users_in
from chatbot.server.callers import Account, ServerCaller, forget_user
from chatbot.server.dependencies import AccessHere, CallerHere, IdentitiesHere, Page
from chatbot.server.errors import EVERYWHERE, OF_MEMORY, Problem
from chatbot.server.identities import Identities
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.request_values import TokensOrNone
from chatbot.server.shapes import RequestBody, Shape, SyncAnswer, User
from chatbot.stores.access import RIGHTS
from chatbot.stores.errors import AccessDenied, InvalidValue, UnsupportedOperation
from chatbot.stores.files import writing
from chatbot.transfer.backups import BACKUP_NAME, backup
from chatbot.transfer.sync import exchange
from chatbot.transfer.sync_place import Visitor

users_router = APIRouter(prefix="/v1/users", tags=["users"], responses=OF_MEMORY)
usage_router = APIRouter()
machines_router = APIRouter(prefix="/v1", tags=["machines"], responses=OF_MEMORY)

_CHUNK = 1 << 20
_Id = Annotated[str, Field(max_length=40, pattern="^[0-9a-f]*$")]
_Name = Annotated[str, Field(max_length=100)]
_LABEL = Query(min_length=1, max_length=LONGEST_LABEL, description="Name of the user, as in requests.")
UserName = Annotated[str, _LABEL]


class UserErasure(Shape):
    """Data that was deleted permanently."""

    memories: int
    sessions: list[str]
    """The ids of sessions."""
    requests: int
    """Records of requests with an Idempotency-Key."""


class Export(Shape):
    """All data of a user, or your own, that your clearance permits."""

    namespace: str
    """Namespace that the data is in."""
    user: str | None
    memories: list[dict[str, Any]]
    """Memories of any status, oldest first."""
    facts: list[dict[str, Any]]
    """Facts, oldest first."""
    sessions: list[dict[str, Any]]
    """Each with its messages, values, receipts, and the names and sizes of its files and attachments."""


class QuotaLimits(RequestBody):
    """Limits of a user per day, in UTC."""

    day_usd: Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)] = 0
    """Maximum US dollars; 0: no limit."""
    day_tokens: TokensOrNone = 0
    """Maximum tokens; 0: no limit."""


class AccountReport(Shape):
    """Usage of today, in UTC, and its limits."""

    day_usd: float
    """Maximum US dollars a day; 0: no limit."""
    day_tokens: int
    """Maximum tokens a day; 0: no limit."""
    spent_usd: float
    """Known US dollars today."""
    calls_of_unknown_cost: int
    """Calls of models that have no known price, or whose process was killed."""
    spent_tokens: int
    """Tokens used today."""
    resets_at: datetime
    """When the next day begins."""

    @classmethod
    def of(cls, item: Account) -> Self:
        """Return the report of an account."""
        quota, spent = item.quota, item.spent
        return cls(
            day_usd=quota.day_usd,
            day_tokens=quota.day_tokens,
            spent_usd=spent.cost_usd,
            calls_of_unknown_cost=spent.calls_of_unknown_cost,
            spent_tokens=spent.tokens,
            resets_at=item.resets_at,
        )


class UsageToday(Shape):
    """Your usage of today, in all identities together."""

    token: AccountReport | None
    """Usage of your token; null if none is required."""
    user: AccountReport | None
    """Usage of the user that the request names; null if it names none."""


@users_router.get("", summary="List users", response_model=Page[User])
async def list_users(access: AccessHere) -> Page[Any]:
    """List the users in your token's namespace. Needs the right `curate`."""
    return Page(data=[User.of(each) for each in await users_in(access.memory)])


@users_router.get("/export", summary="Export one user")
async def get_export(access: AccessHere, user: Annotated[str | None, _LABEL] = None) -> Export:
    """Export memories, facts and sessions as one document; without a user, all that is yours."""
    theirs = access if user is None else _of_user(access, user)
    exported = Export.model_validate(await export_user(theirs.memory))
    if user is not None and not (exported.memories or exported.facts or exported.sessions):
        raise _without_data(user)
    return exported


@users_router.delete("", summary="Delete one user permanently")
async def delete_user(access: AccessHere, identities: IdentitiesHere, user: UserName) -> UserErasure:
    """Delete memories, facts, sessions, records of requests and the quota. Needs the right `erase`."""
    theirs = _of_user(access, user)
    namespace, quotas = theirs.caller.namespace, await asyncio.to_thread(identities.accounts.quotas)
    erased = await theirs.erase_user()
    requests = await forget_user(namespace, identities.accounts, identities.requests)
    if not (erased.memories or erased.sessions or requests or namespace_digest(namespace) in quotas):
        raise _without_data(user)
    return UserErasure(memories=erased.memories, sessions=list(erased.sessions), requests=requests)


@users_router.get("/quota", summary="Get the quota of a user")
async def get_quota(access: AccessHere, identities: IdentitiesHere, user: UserName) -> AccountReport:
    """Return the user's own quota, or else the token's quota per user, with today's usage. Needs `curate`."""
    return await _account(identities, _as_caller(access, user))


@users_router.put("/quota", summary="Set the quota of a user")
async def set_quota(
    access: AccessHere, identities: IdentitiesHere, user: UserName, quota: Annotated[QuotaLimits, Body()]
) -> AccountReport:
    """Set a quota for this user, instead of the token's. Applies from the next call on. Needs `curate`."""
    theirs = _as_caller(access, user)
    await asyncio.to_thread(identities.accounts.set_quota, theirs.namespace, Quota(quota.day_usd, quota.day_tokens))
    return await _account(identities, theirs)


@users_router.delete("/quota", summary="Remove a user's own quota")
async def delete_quota(access: AccessHere, identities: IdentitiesHere, user: UserName) -> AccountReport:
    """Remove the user's own quota: the token's quota per user applies again. Needs `curate`."""
    theirs = _as_caller(access, user)
    await asyncio.to_thread(identities.accounts.set_quota, theirs.namespace, None)
    return await _account(identities, theirs)


@usage_router.get("/v1/usage", summary="Get your usage of today", tags=["users"], responses=EVERYWHERE)
async def get_usage(identities: IdentitiesHere, caller: CallerHere) -> UsageToday:
    """Return the usage of your token and of the user that you name, their limits, and when they reset."""
    if caller.metrics and not caller.identities:
        raise Problem(404, "not_found", "a token for metrics has no usage")
    payer = identities.accounts.of_token(caller.token, caller.quota) if caller.token else None
    return UsageToday(
        token=AccountReport.of(await identities.accounts.account(payer, utc_now())) if payer else None,
        user=None if caller.user is None else await _account(identities, caller),
    )


def _without_data(user: str) -> Problem:
    return Problem(404, "not_found", f"no data of the user {user!r:.80}: `GET /v1/users` lists the users")


async def _account(identities: Identities, caller: ServerCaller) -> AccountReport:
    payer = await asyncio.to_thread(identities.accounts.of_user, caller.namespace, caller.user_quota)
    return AccountReport.of(await identities.accounts.account(payer, utc_now()))


def _as_caller(access: IdentityAccess, user: str) -> ServerCaller:
    """Return that user as a caller. Raises `MissingRight` without `curate`."""
    access.memory.caller.check("curate")
    return _of_user(access, user).caller


def _of_user(access: IdentityAccess, user: str) -> IdentityAccess:
    """Return the access of that user. Raises `Problem` if users are shared, `InvalidValue` for an invalid name."""
    theirs = replace(access, caller=access.caller.for_user(user))
    if theirs.caller.user is None:
        raise Problem(409, "users_shared", "all users of this server share one memory: do not name a user")
    return theirs


class SyncRequest(RequestBody):
    """New files of another machine; without files, a request for those that are new here."""

    identity: _Id = ""
    """Id of the sender's identity; empty if it has none yet and takes over this one."""
    machine: Annotated[str, Field(min_length=1, max_length=40, pattern="^[0-9a-f]+$")]
    taken: list[_Name] = Field(default=[], max_length=10_000)
    """Names of the files of the last answer that the sender has merged."""
    dry_run: bool = False
    """True to change nothing."""
    files: dict[_Name, str] = Field(default={}, max_length=1_000)
    """Its files by name, in base64."""


@machines_router.get(
    "/backup",
    summary="Back up an identity",
    response_class=Response,
    responses={200: {"content": {"application/zip": {}}, "description": "The file that `chatbot restore` reads."}},
)
async def get_backup(access: AccessHere) -> StreamingResponse:
    """Return the whole identity in one file. Needs every right, with full clearance."""
    check_whole(access)
    setup = access.runtime.setup
    with writing(Path("the folder for temporary files")), ExitStack() as stack:
        file = stack.enter_context(await asyncio.to_thread(tempfile.TemporaryFile))
        await backup(setup.home, file, name=access.identity, settings=setup.identity.file)
        size = await asyncio.to_thread(file.seek, 0, 2)
        stack.pop_all()  # it is whole before its first byte is sent
    headers = {
        "content-disposition": f'attachment; filename="{BACKUP_NAME.format(access.identity, utc_now())}"',
        "content-length": str(size),
        "x-content-type-options": "nosniff",
    }
    return StreamingResponse(_chunks(file), media_type="application/zip", headers=headers)


@machines_router.post("/sync", summary="Sync with another machine", response_model=SyncAnswer)
async def sync(given: Annotated[SyncRequest, Body()], access: AccessHere) -> Shape:
    """Exchange files with `chatbot sync ADDRESS`: it first asks for new files, then sends its own. Needs all rights."""
    check_whole(access)
    try:
        files = {name: b64decode(each, validate=True) for name, each in given.files.items()}
    except ValueError as error:
        raise InvalidValue(f"files: {error}") from error
    visitor = Visitor(given.identity, given.machine, given.taken, dry_run=given.dry_run)
    try:
        done = await exchange(access.runtime.memory, visitor, files, now=utc_now)
    except ConfigError as error:  # the client's: it has another identity
        raise UnsupportedOperation(str(error)) from error
    answer: Shape = SyncAnswer.of(msgspec.to_builtins(done))
    return answer


def check_whole(access: IdentityAccess) -> None:
    """Raise `MissingRight` or `AccessDenied` unless the caller may see and change all of an identity."""
    memory = access.memory
    for right in RIGHTS:
        memory.caller.check(right)
    if not access.caller.sees_all or memory.caller.namespace:
        raise AccessDenied("a part of the memory cannot be synced or backed up: use a token for all of it")


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        await asyncio.to_thread(file.seek, 0)
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk
