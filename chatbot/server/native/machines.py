"""`/v1/backup` and `/v1/sync`: a whole identity, for callers who may see and change all of it."""

from __future__ import annotations

import asyncio
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Annotated, BinaryIO

import msgspec
from fastapi import APIRouter, Body, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from chatbot.errors import ConfigError
from chatbot.memory.scope import utc_now
from chatbot.server.dependencies import AccessHere
from chatbot.server.errors import OF_MEMORY
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.shapes import RequestBody, Shape
from chatbot.stores.access import RIGHTS
from chatbot.stores.errors import AccessDenied, InvalidValue, UnsupportedOperation
from chatbot.transfer.backups import BACKUP_NAME, backup
from chatbot.transfer.sync import exchange
from chatbot.transfer.sync_place import Visitor

router = APIRouter(prefix="/v1", tags=["machines"], responses=OF_MEMORY)
_CHUNK = 1 << 20
_Id = Annotated[str, Field(max_length=40, pattern="^[0-9a-f]*$")]
_Name = Annotated[str, Field(max_length=100)]


class SyncRequest(RequestBody):
    """New files of another machine; without files, a request for those that are new here."""

    identity: _Id = ""
    """Id of the sender's identity; empty if it has none yet and takes over this one."""
    machine: Annotated[str, Field(min_length=1, max_length=40, pattern="^[0-9a-f]+$")]
    taken: list[_Name] = Field(default=[], max_length=10_000)
    """Names of the files of the last answer that the sender has merged."""
    is_trial: bool = False
    """True to change nothing."""
    files: dict[_Name, str] = Field(default={}, max_length=1_000)
    """Its files by name, in base64."""


class SyncAside(Shape):
    """A file that was refused."""

    file: str
    why: str


class SyncAnswer(Shape):
    """Files that are new to the other machine."""

    identity: str
    """Id of this identity."""
    files: dict[str, str]
    """Files by name, in base64."""
    taken: list[str]
    """Names of the other machine's files that were merged."""
    aside: list[SyncAside]
    """Refused files."""


@router.get(
    "/backup",
    summary="Back up an identity",
    response_class=Response,
    responses={200: {"content": {"application/zip": {}}, "description": "The file that `chatbot restore` reads."}},
)
async def get_backup(access: AccessHere) -> StreamingResponse:
    """Return the whole identity in one file. Needs every right, with full clearance."""
    check_whole(access)
    setup = access.runtime.setup
    file = await asyncio.to_thread(tempfile.TemporaryFile)
    try:  # it is whole before its first byte is sent
        await backup(setup.home, file, name=access.identity, settings=setup.identity.file)
        size = await asyncio.to_thread(file.seek, 0, 2)
    except BaseException:
        file.close()
        raise
    headers = {
        "content-disposition": f'attachment; filename="{BACKUP_NAME.format(access.identity, utc_now())}"',
        "content-length": str(size),
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
    }
    return StreamingResponse(_chunks(file), media_type="application/zip", headers=headers)


@router.post("/sync", summary="Sync with another machine")
async def sync(given: Annotated[SyncRequest, Body()], access: AccessHere) -> SyncAnswer:
    """Exchange files with `chatbot sync ADDRESS`: it first asks for new files, then sends its own. Needs all rights."""
    check_whole(access)
    try:
        files = {name: b64decode(each, validate=True) for name, each in given.files.items()}
    except ValueError as error:
        raise InvalidValue(f"files: {error}") from error
    visitor = Visitor(given.identity, given.machine, given.taken, is_trial=given.is_trial)
    try:
        done = await exchange(access.runtime.memory, visitor, files, now=utc_now)
    except ConfigError as error:  # the client's: it has another identity
        raise UnsupportedOperation(str(error)) from error
    return SyncAnswer.model_validate(msgspec.to_builtins(done))


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
