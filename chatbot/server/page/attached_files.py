"""Files of messages: sent as `data:` URLs in the fields of a form, shown under the message that names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Response

from chatbot.attachments.kinds import is_image, media_of
from chatbot.attachments.read import Upload, upload_of
from chatbot.server.page.routes import AccessHere, PageRoute, SessionId
from chatbot.stores.backend import is_blob_name
from chatbot.stores.errors import UnsafePath

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

FILE_FIELD = "file:"
"""Beginning of the names of these fields; a number and the file's name follow."""
_HEADERS = {
    "cache-control": "private, max-age=3600",
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
}


@router.get("/c/{session_id}/file/{name}")
async def show(access: AccessHere, session_id: SessionId, name: Annotated[str, Path(max_length=64)]) -> Response:
    """A picture as it is, and any other file as a download."""
    session = await access.session(session_id)
    data = await session.attachment(name) if is_blob_name(name) else None
    if data is None:
        raise UnsafePath(f"the session has no attachment {name!r:.80}")
    media = media_of(name)
    headers = _HEADERS if is_image(media) else {**_HEADERS, "content-disposition": "attachment"}
    return Response(data, media_type=media, headers=headers)


def files_in(fields: Mapping[str, str]) -> list[Upload]:
    """Return the files of a form. Raises `InvalidValue` for a field that is no `data:` URL."""
    return [
        upload_of(name.removeprefix(FILE_FIELD).partition(":")[2] or "file", value)
        for name, value in fields.items()
        if name.startswith(FILE_FIELD)
    ]
