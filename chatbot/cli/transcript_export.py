"""A session as one Markdown file, from within the chat."""

from __future__ import annotations

import asyncio
from pathlib import Path

from chatbot.memory import SessionHandle
from stores import transcript
from stores.errors import InvalidValue
from stores.files import opened
from stores.records import format_time


async def export_markdown(session: SessionHandle, name: str) -> Path:
    """Write the session to a new file. Raises `InvalidValue` where there is one of that name already."""
    if not name:
        raise InvalidValue("say where to: /export FILE")
    record = session.record
    head = f"# {record.title or 'untitled'}\n\n{record.id}, begun {format_time(record.created_at)}\n\n"
    data = head.encode() + transcript.render(await session.transcript_read_all())
    return await asyncio.to_thread(_create, name, data)


def _create(name: str, data: bytes) -> Path:
    path = Path(name).expanduser().absolute()
    with opened(path.parent) as folder:
        if folder.stamp(path.name):
            raise InvalidValue(f"{path} is there already: name another file")
        folder.create(path.name, data)
    return path
