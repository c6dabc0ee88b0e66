"""`/v1/sessions/{id}/files`: the plain files that a session is, and `/attachments`, those that its messages name."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Response
from starlette.responses import StreamingResponse

from chatbot.attachments import media_of
from chatbot.server.dependencies import AccessHere
from chatbot.server.errors import OF_IDENTITY
from chatbot.server.lists import Page, SessionId
from chatbot.server.shapes import Shape
from chatbot.stores.backend import is_blob_name
from chatbot.stores.errors import UnsafePath

router = APIRouter(prefix="/v1/sessions/{session_id}", tags=["conversation"], responses=OF_IDENTITY)
_AS_A_DOWNLOAD = {
    "content-disposition": "attachment",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "no-store",
}
"""Uploaded content is never opened as a page of this server."""


class StoredFile(Shape):
    """A file in a session's folder."""

    name: str
    """Name."""
    size: int
    """In bytes."""
    modified: datetime
    """When it was last written."""


@router.get("/files", summary="List the files of a session")
async def list_files(session_id: SessionId, access: AccessHere) -> Page[StoredFile]:
    """All of them, by name."""
    session = await access.session(session_id)
    return Page(data=[StoredFile.model_validate(file) for file in await session.list_files()])


@router.get(
    "/files/{name}",
    summary="Download one",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "Its bytes."}},
)
async def get_file(
    session_id: SessionId,
    name: Annotated[str, Path(max_length=255, description="The file's name.")],
    access: AccessHere,
) -> StreamingResponse:
    """As it is on the disk."""
    session = await access.session(session_id)
    if name not in {file.name for file in await session.list_files()}:
        raise UnsafePath(f"the session has no file {name!r:.80}")
    return StreamingResponse(session.stream_file(name), media_type="application/octet-stream", headers=_AS_A_DOWNLOAD)


class AttachedFile(Shape):
    """A file that messages of a session name."""

    name: str
    """Stored name: a digest of the content."""
    size: int
    """In bytes."""
    media_type: str
    """Content type."""


@router.get("/attachments", summary="List the attachments of a session")
async def list_attachments(session_id: SessionId, access: AccessHere) -> Page[AttachedFile]:
    """Files and pictures; messages name them by links to `attachments/` and their name."""
    session = await access.session(session_id)
    return Page(
        data=[
            AttachedFile(name=name, size=size, media_type=media_of(name))
            for name, size in (await session.attachments()).items()
        ]
    )


@router.get(
    "/attachments/{name}",
    summary="Download an attachment",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "Its bytes."}},
)
async def get_attachment(
    session_id: SessionId,
    name: Annotated[str, Path(max_length=64, description="The attachment's name.")],
    access: AccessHere,
) -> Response:
    """As it was sent, always as a download; a document in which a secret was found is its text alone."""
    session = await access.session(session_id)
    data = await session.attachment(name) if is_blob_name(name) else None
    if data is None:
        raise UnsafePath(f"the session has no attachment {name!r:.80}")
    return Response(data, media_type=media_of(name), headers=_AS_A_DOWNLOAD)
