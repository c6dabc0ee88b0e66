"""`/v1/sessions/{id}/files`: the plain files that a session is."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Response
from starlette.responses import StreamingResponse

from chatbot.server.dependencies import VisitHere
from chatbot.server.lists import Page, SessionId
from chatbot.server.responses import OF_IDENTITY
from chatbot.server.shapes import Shape
from chatbot.stores.errors import UnsafePath

router = APIRouter(prefix="/v1/sessions/{session_id}/files", tags=["conversation"], responses=OF_IDENTITY)


class File(Shape):
    """A file in a session's folder."""

    name: str
    """What it is called."""
    size: int
    """In bytes."""
    modified: datetime
    """When it was last written."""


@router.get("", summary="List the files of a session")
async def list_files(session_id: SessionId, visit: VisitHere) -> Page[File]:
    """All of them, by name."""
    session = await visit.session(session_id)
    return Page(data=[File.model_validate(file) for file in await session.list_files()])


@router.get(
    "/{name}",
    summary="Download one",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "Its bytes."}},
)
async def get_file(
    session_id: SessionId, name: Annotated[str, Path(max_length=255, description="The file's name.")], visit: VisitHere
) -> StreamingResponse:
    """As it is on the disk."""
    session = await visit.session(session_id)
    if name not in {file.name for file in await session.list_files()}:
        raise UnsafePath(f"the session has no file {name!r:.80}")
    headers = {"content-disposition": "attachment", "x-content-type-options": "nosniff", "cache-control": "no-store"}
    return StreamingResponse(session.stream_file(name), media_type="application/octet-stream", headers=headers)
