"""A session as one file, from within the chat."""

from __future__ import annotations

import asyncio
from pathlib import Path

from chatbot.memory import MemorySystem
from chatbot.stores.errors import InvalidValue
from chatbot.stores.files import opened
from chatbot.transfer import export_session
from chatbot.transfer.session_export import SUFFIXES, render


async def export_to(memory: MemorySystem, session_id: str, name: str) -> Path:
    """Write the session to a new file, in the form that its ending tells; Markdown for one that tells none.

    Raises `InvalidValue` where there is a file of that name already.
    """
    if not name:
        raise InvalidValue("usage: /export FILE")
    form = next((form for form, suffix in SUFFIXES.items() if name.endswith(suffix)), "markdown")
    text = render(await export_session(memory, session_id, memories=False), form)
    return await asyncio.to_thread(create, name, text.encode())


def create(name: str, data: bytes) -> Path:
    """Write a new file. Raises `InvalidValue` where there is a file of that name already."""
    path = Path(name).expanduser().absolute()
    with opened(path.parent) as folder:
        if folder.stamp(path.name):
            raise InvalidValue(f"{path} already exists: name another file")
        folder.create(path.name, data)
    return path
